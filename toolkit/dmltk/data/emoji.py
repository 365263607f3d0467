"""One emoji is a class, its drawings by eight designers are the pictures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from dmltk.cache import cache_dir
from dmltk.data.division import divide
from dmltk.data.fetch import member, npm_pack, staged
from dmltk.data.files import Files
from dmltk.data.split import Dataset, number
from dmltk.errors import UserError

PIXELS = 128
DESIGNS_NEEDED = 6
DROPPED = re.compile(r"flag|skin-tone")
NAME = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Design:
    """A set of drawings: an npm package of the scope @iconify-json.

    Args:
        name: of the package and of the design.
        version: pinned.
        sha256: of the archive.
        licence: of the drawings.
        credit: who drew them, and where they come from.
    """

    name: str
    version: str
    sha256: str
    licence: str
    credit: str


DESIGNS = [
    Design(
        "noto",
        "1.2.9",
        "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
        "Apache-2.0",
        "Noto Emoji, Google Inc",
    ),
    Design(
        "noto-v1",
        "1.2.5",
        "2bf62c26c2c2884aa99e90aec942cdaee17a5921f05690694f4978ad4b017c37",
        "Apache-2.0",
        "Noto Emoji (v1), Google Inc",
    ),
    Design(
        "twemoji",
        "1.2.5",
        "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7",
        "CC-BY-4.0",
        "Twitter Emoji, Twitter and contributors (jdecked/twemoji)",
    ),
    Design(
        "fluent-emoji-flat",
        "1.2.6",
        "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
        "MIT",
        "Fluent Emoji Flat, Microsoft Corporation",
    ),
    Design(
        "emojione",
        "1.2.3",
        "26a14f44284407e8bcde91799388dca2bfd91dbcd55a97f425524a1c5b73610e",
        "CC-BY-4.0",
        "Emoji One (EmojiTwo)",
    ),
    Design(
        "fxemoji",
        "1.2.2",
        "f3e72b3c59d05e1db03b7e308d55c0d05bd7ba3f625a90da1b79313c12858eef",
        "Apache-2.0",
        "Firefox OS Emoji, Mozilla",
    ),
    Design(
        "openmoji",
        "1.2.29",
        "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5",
        "CC-BY-SA-4.0",
        "OpenMoji (hfg-gmuend/openmoji)",
    ),
    Design(
        "emojione-v1",
        "1.2.3",
        "6641d59d48a42823fdc2b84e7427e9f302944eb98d2c7d94d6e67c139e7b37b3",
        "CC-BY-SA-4.0",
        "Emoji One (v1), JoyPixels",
    ),
]


@dataclass(frozen=True)
class Drawing:
    """One picture to be made: class name, design, and the SVG text."""

    name: str
    design: str
    svg: str


def emoji(
    *,
    size: Annotated[int, Meta(ge=8)] = 64,
    val: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> Dataset:
    """Emoji by eight designers: 1,055 classes, 7,665 pictures, mostly 7 or 8 a class.

    Read from the cache, where `dmltk data get emoji` puts it: rasterised on white at 128 px,
    brought to `size` when read. The first half of the classes by name trains, the second
    half tests. Flags and skin tones are left out; some classes are near twins (clock faces).

    Args:
        size: height and width in pixels; above 128 the stored pictures are enlarged.
        val: share of the training classes, the last ones, kept for validation.

    Raises:
        UserError: it was not fetched yet.
    """
    root = place()
    if not (root / "index.json").is_file():
        raise UserError(f"the emoji are not in {root.parent}; fetch them: dmltk data get emoji")
    index = json.loads((root / "index.json").read_text(encoding="utf-8"))
    entries = index["pictures"]
    labels, names = number([entry["class"] for entry in entries])
    files = Files([root / entry["path"] for entry in entries], size)
    return divide(files, labels, names, val=val, card={**index["card"], "size": size})


def get(report: Callable[[str], None]) -> Path:
    """Fetch the designs (14 MB), draw the pictures, and put them into the cache.

    Args:
        report: told what is being done, a line at a time.

    Returns:
        The folder of the pictures and their index.

    Raises:
        UserError: npm or resvg-py is not installed.
        DmltkError: a package cannot be fetched or is not the expected one.
    """
    if find_spec("resvg_py") is None:
        raise UserError("resvg-py is needed to draw the emoji; run: pip install 'dmltk[data]'")
    target = place()
    with staged(target) as folder:
        drawn: list[Drawing] = []
        for design in DESIGNS:
            report(f"fetching {design.name} {design.version}")
            package = f"@iconify-json/{design.name}"
            archive = npm_pack(package, design.version, design.sha256, folder)
            drawn += drawings(design.name, json.loads(member(archive, "package/icons.json")))
        chosen = shared(drawn, DESIGNS_NEEDED)
        report(f"drawing {len(chosen)} pictures")
        write(chosen, folder / target.name)
    report(f"kept in {target}")
    return target


def place() -> Path:
    """Where the emoji are kept."""
    return cache_dir() / "data" / "emoji"


def drawings(design: str, icons: Mapping[str, Any]) -> list[Drawing]:
    """The drawings of a design, without flags and skin tones.

    Args:
        design: its name.
        icons: the package's icons.json: bodies and view boxes by name.
    """
    found = []
    for name, icon in icons["icons"].items():
        joined = name.replace("-", "")
        if DROPPED.search(name) or not NAME.fullmatch(joined):
            continue
        box = {"left": 0, "top": 0, "width": 16, "height": 16, **icons, **icon}
        view = " ".join(str(float(box[key])) for key in ("left", "top", "width", "height"))
        svg = (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{PIXELS}" height="{PIXELS}" viewBox="{view}">{icon["body"]}</svg>'
        )
        found.append(Drawing(joined, design, svg))
    return found


def shared(drawn: Iterable[Drawing], needed: int) -> list[Drawing]:
    """Those whose name at least `needed` designs have, sorted by class."""
    by_class: dict[str, dict[str, Drawing]] = {}
    for drawing in drawn:
        by_class.setdefault(drawing.name, {}).setdefault(drawing.design, drawing)
    chosen = [found for _, found in sorted(by_class.items()) if len(found) >= needed]
    return [drawing for found in chosen for drawing in found.values()]


def write(chosen: list[Drawing], folder: Path) -> None:
    """Draw the pictures into `folder` and describe them in its index.json."""
    with ThreadPoolExecutor() as pool:
        pictures = list(pool.map(lambda drawing: render(drawing.svg), chosen))
    entries = []
    whole = hashlib.sha256()
    for drawing, picture in zip(chosen, pictures, strict=True):
        path = folder / drawing.name / f"{drawing.design}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
        whole.update(f"{drawing.name}/{drawing.design}\0".encode() + picture)
        relative = path.relative_to(folder).as_posix()
        entries.append({"path": relative, "class": drawing.name, "design": drawing.design})
    card = {
        "name": "emoji",
        "licence": ", ".join(sorted({design.licence for design in DESIGNS})),
        "credits": [asdict(design) for design in DESIGNS],
        "sha256": whole.hexdigest(),
        "skipped": {},
        "stored_size": PIXELS,
    }
    index = json.dumps({"card": card, "pictures": entries}, indent=1)
    (folder / "index.json").write_text(index, encoding="utf-8")


def render(svg: str) -> bytes:
    """An SVG on white as PNG, PIXELS wide; it can refer to nothing outside itself."""
    import resvg_py

    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg,
            width=PIXELS,
            height=PIXELS,
            background="#ffffff",
            skip_system_fonts=True,
        )
    )
