"""Writes a new plug-in: a complete distribution with one part that works."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from dmltk import registry
from dmltk.errors import UserError

__all__ = ["write"]

SETUP = """\
[metadata]
name = {distribution}
version = 0.1.0
description = {summary}
long_description = file: README.md
long_description_content_type = text/markdown

[options]
python_requires = >=3.10
package_dir =
    = src
packages = find:
install_requires =
    dmltk>=0.1

[options.packages.find]
where = src

[options.extras_require]
test =
    dmltk[testing]

[options.entry_points]
dmltk.{group} =
    {name} = {module}:{factory}

[tool:pytest]
testpaths = tests
addopts = -q --import-mode=importlib
"""
BUILD = """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"
"""
TEST = """\
from dmltk.testing import parametrize_with_checks


@parametrize_with_checks(["{kind}:{name}"])
def test_{function}(part, check):
    check(part)
"""
README = """\
# {distribution}

{summary}

```
pip install -e '.[test]' && python -m pytest
dmltk show {kind} {name}
dmltk check {kind}:{name}
```

`src/{module}/__init__.py` holds the {kind} `{name}`: its keyword parameters, annotations and
docstring are what `dmltk show` prints and what a spec may set (`{name}:…`). `setup.cfg` names it
under `dmltk.{group}`; that entry is all that dmltk reads.
"""


def write(name: str, kind: str, parent: str | Path = ".") -> Path:
    """Write a distribution.

    Args:
        name: of the part; the distribution is called ``dmltk-NAME``.
        kind: of the part, singular or plural.
        parent: folder in which the distribution's folder is made.

    Returns:
        That folder.

    Raises:
        UserError: an unknown kind, a name that cannot be registered or is taken by a built-in, or
            a folder that is there already.
    """
    group = registry.plural(kind)
    kind = registry.singular(group)
    name = name.removeprefix("dmltk-")
    registry.check_name(group, name)
    distribution = f"dmltk-{name}"
    folder = Path(parent, distribution)
    if folder.exists():
        raise UserError(f"{folder} exists: choose another name, or another folder with --out")
    function = re.sub(r"\W", "_", name)
    source = (resources.files("dmltk.templates") / f"{kind}.py").read_text("utf-8")
    klass = "".join(word.capitalize() for word in function.split("_"))
    factory = function if re.search(r"^def example\b", source, re.M) else klass
    words = {
        "distribution": distribution,
        "name": name,
        "kind": kind,
        "group": group,
        "function": function,
        "factory": factory,
        "module": f"dmltk_{function}",
        "summary": source.split('"""')[1],
    }
    package = folder / "src" / words["module"]
    for path, text in {
        folder / "setup.cfg": SETUP.format(**words),
        folder / "pyproject.toml": BUILD,
        folder / "README.md": README.format(**words),
        folder / "tests" / f"test_{function}.py": TEST.format(**words),
        package / "__init__.py": _renamed(source, function, klass),
        package / "py.typed": "",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def _renamed(source: str, function: str, klass: str) -> str:
    """A template under another name."""
    source = re.sub(r"\bexample\b", function, source)
    return re.sub(r"\bExample\b", klass, source)
