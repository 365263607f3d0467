"""Whatever an attack does inside, the model and the random state are afterwards as before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

Mode = Literal["eval", "train"]


@contextmanager
def guard(embed: Callable[..., Any], mode: Mode = "eval") -> Iterator[None]:
    """Runs an attack so that nothing of it stays behind, also when it fails.

    Recorded and restored: the `training` flag of every sub-module, `requires_grad` and `.grad` of
    every parameter, the values of the buffers, and the random state of Python, numpy and torch.
    Inside, gradients are on and inference mode is off. A module is recorded whole at the start;
    behind any other callable each module is recorded, with all below it, just before its first
    call.

    Autocast's cache of cast weights is emptied at both ends: older versions of torch keep casts
    made without gradients, and a training pass in the same context would not reach the weights.

    Args:
        embed: the model that is attacked: a module or any callable.
        mode: `eval` puts every sub-module in eval mode; `train` leaves every one as it was found,
            so that a training model uses the statistics of the batch.
    """
    record = _Record(mode)
    owner = getattr(embed, "__self__", embed)
    if isinstance(owner, nn.Module):
        record.add(owner)
    watch = None if owner is embed and isinstance(embed, nn.Module) else record.watch()
    randomness = _random_state()
    torch.clear_autocast_cache()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        if watch is not None:
            watch.remove()
        with torch.inference_mode(False):
            record.restore()
        _set_random_state(randomness)
        torch.clear_autocast_cache()


class _Record:
    """Modules as they were found."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.training: dict[nn.Module, bool] = {}
        self.parameters: dict[nn.Parameter, tuple[bool, Tensor | None, Tensor | None]] = {}
        self.buffers: list[tuple[nn.Module, str, Tensor, Tensor]] = []

    def watch(self) -> Any:
        """Records modules as they are called; returns the hook's handle."""
        return register_module_forward_pre_hook(lambda module, args: self.add(module))

    def add(self, root: nn.Module) -> None:
        """Records a module and all below it, and puts them in the wanted mode."""
        if root in self.training:
            return
        for module in root.modules():
            if module in self.training:
                continue
            self.training[module] = module.training
            for parameter in module.parameters(recurse=False):
                self._add_parameter(parameter)
            for name, buffer in module.named_buffers(recurse=False):
                self.buffers.append((module, name, buffer, buffer.detach().clone()))
            if self.mode == "eval" and module.training:
                module.training = False

    def _add_parameter(self, parameter: nn.Parameter) -> None:
        grad = parameter.grad
        value = None if grad is None else grad.detach().clone()
        self.parameters.setdefault(parameter, (parameter.requires_grad, grad, value))

    @torch.no_grad()
    def restore(self) -> None:
        """Puts back what differs, and touches nothing else."""
        for module, training in self.training.items():
            if module.training != training:
                module.training = training
        pairs = []
        for parameter, (requires_grad, grad, value) in self.parameters.items():
            if parameter.requires_grad != requires_grad:
                parameter.requires_grad_(requires_grad)
            if parameter.grad is not grad:
                parameter.grad = grad
            if grad is not None and value is not None:
                pairs.append((grad, value))
        recorded = {id(buffer) for _, _, buffer, _ in self.buffers}
        for module, name, buffer, value in self.buffers:
            # a recorded buffer in another's place was exchanged by a route, which takes it home
            if id(module._buffers.get(name)) not in recorded:
                module._buffers[name] = buffer
            pairs.append((buffer, value))
        _write_back(pairs)


def _write_back(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copies each second tensor into its first where they differ; one look at each device."""
    by_device: dict[torch.device, list[tuple[Tensor, Tensor]]] = {}
    for now, before in pairs:
        by_device.setdefault(now.device, []).append((now, before))
    for group in by_device.values():
        changed = torch.stack([(now != before).any() for now, before in group]).tolist()
        for (now, before), differs in zip(group, changed, strict=True):
            if differs:
                now.copy_(before)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The global random state from a seed, for parts that draw from it; afterwards as before."""
    randomness = _random_state()
    try:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        yield
    finally:
        _set_random_state(randomness)


def _random_state() -> tuple[Any, Any, Tensor, list[Tensor] | None]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda


def _set_random_state(state: tuple[Any, Any, Tensor, list[Tensor] | None]) -> None:
    python, numpy, cpu, cuda = state
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
