"""What this installation has and lacks."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from importlib import metadata
from typing import Any

from dmltk import registry
from dmltk.cache import cache_dir
from dmltk.errors import PluginError

_PACKAGES = (
    "dmltk torch torchvision timm pytorch-metric-learning numpy scikit-learn msgspec click rich"
)
_EXTRAS = {
    "faiss": ("faiss", "pip install 'dmltk[faiss]'"),
    "emoji pictures": ("resvg_py", "pip install 'dmltk[data]'"),
    "tensorboard": ("tensorboard", "pip install 'dmltk[tensorboard]'"),
    "torchattacks": ("torchattacks", "pip install --no-deps torchattacks"),
}


def examine() -> dict[str, Any]:
    """Versions, devices, extras with the command that would install them, cache, plug-ins."""
    import torch

    broken = {}
    for kind in registry.KINDS:
        for entry in registry.entries(kind):
            if entry.disabled:
                continue
            try:
                entry.load()
            except PluginError:
                broken[f"{kind}: {entry.full_name}"] = entry.state
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    cache = cache_dir()
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES.split()},
        "devices": ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])],
        "threads": torch.get_num_threads(),
        "extras": {
            name: "here" if importlib.util.find_spec(module) else f"missing: {command}"
            for name, (module, command) in _EXTRAS.items()
        },
        "npm": shutil.which("npm") or "missing: needed by 'dmltk data get emoji'",
        "apt-get": shutil.which("apt-get") or "missing: needed by 'dmltk data get fashion-mnist'",
        "cache": str(cache),
        "cached": sorted(p.name for p in cache.glob("*/*")) if cache.exists() else [],
        "broken plug-ins": broken or "none",
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
