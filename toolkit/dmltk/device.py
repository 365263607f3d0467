"""Where tensors live."""

from __future__ import annotations

import torch

from dmltk.errors import UserError


def pick_device(name: str) -> torch.device:
    """The device that a name means; ``auto`` is an accelerator where there is one.

    Raises:
        UserError: for a device that is not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"there is no device '{name}' here: use --device cpu or auto") from None
    return device
