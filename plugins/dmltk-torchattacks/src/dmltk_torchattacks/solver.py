"""A class of torchattacks as a solver of the toolkit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from dmltk.attacks import Probe, Threat
from dmltk.attacks.guard import seeded
from dmltk.errors import DmltkError, UserError
from torch import Generator, Tensor

from dmltk_torchattacks.bank import Bank
from dmltk_torchattacks.columns import BankColumns, TwoColumns
from dmltk_torchattacks.library import default_of, find, radius_of, takes
from dmltk_torchattacks.table import Row

NORMS = {"linf": "Linf", "l2": "L2"}


@dataclass(frozen=True)
class Theirs:
    """A class of torchattacks, its random draws taken from the generator.

    Args:
        name: of the class.
        arguments: its own, by name; those left out have the class's defaults.
    """

    name: str
    arguments: Mapping[str, Any]

    @property
    def row(self) -> Row:
        """What the table says of the class."""
        return find(self.name)[1]

    @property
    def exact(self) -> bool:
        """Whether the goal's loss itself is what the class climbs down."""
        return self.row.way in ("exact", "callable")

    @property
    def gradient_free(self) -> bool:
        """Whether a model without a gradient will do."""
        return self.row.gradient_free

    @property
    def start(self) -> int | None:
        """0 where the class starts at the clean pictures."""
        cls, row = find(self.name)
        chosen = takes(cls, "random_start") and not self._value(cls, "random_start")
        return 0 if row.at_clean or chosen else None

    def __call__(
        self, probe: Probe, images: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """The class's pictures; those that it leaves not finite stay clean, with a warning."""
        if self.row.colour and images.shape[1] != 3:
            raise UserError(
                f"torchattacks:{self.name} takes pictures of three channels and these have "
                f"{images.shape[1]}: take another class"
            )
        begun = images.float() if self.row.float32 else images
        begun = begun.contiguous() if self.row.contiguous else begun
        seed = int(torch.randint(2**31, (), generator=generator))
        with seeded(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                found = self._found(probe, images, begun, threat, seed)
            except (DmltkError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                raise DmltkError(f"torchattacks:{self.name} failed ({said})") from error
        if found.dtype != images.dtype:
            found = images + (found - begun).to(images.dtype)
        found = self._finite(found, images)
        if self.row.clipped:
            found = found.clamp(0, 1)
        return self._allowed(found, images, threat)

    def _found(
        self, probe: Probe, images: Tensor, begun: Tensor, threat: Threat, seed: int
    ) -> Tensor:
        """What the class makes of the pictures `begun`, the same as `images` in what it takes."""
        cls, row = find(self.name)
        bank = probe.objective if row.way == "bank" else None
        if row.way == "bank" and not isinstance(bank, Bank):
            raise UserError(
                f"torchattacks:{self.name} attacks class centres and takes no objective: "
                "take another class, such as PGD"
            )
        settings = {**self.arguments, **self._given(cls, threat, seed, bank)}
        if isinstance(bank, Bank):
            attack = cls(BankColumns(probe, images, bank), **settings)
            labels = bank.labels
            if bank.aimed:
                attack.set_mode_targeted_by_label(quiet=True)
        else:
            columns = TwoColumns(probe, images, row.rows)
            if row.way == "callable":
                settings["loss"] = lambda images, labels, target: -columns.loss(images).sum()
            attack = cls(columns, **settings)
            labels = torch.zeros(len(images), dtype=torch.long, device=images.device)
        size = 1 if row.single else len(images)
        pairs = zip(begun.split(size), labels.split(size), strict=True)
        return torch.cat([attack(some, their).detach() for some, their in pairs])

    def _given(self, cls: type[Any], threat: Threat, seed: int, bank: object) -> dict[str, Any]:
        """The class's arguments that are not the user's."""
        offered: dict[str, Any] = {"seed": seed, "norm": NORMS.get(threat.norm)}
        if (radius := radius_of(cls)) is not None:
            offered[radius.name] = threat.largest
        if self.row.rows:
            offered["batch_max"] = 2**62
        if isinstance(bank, Bank) and takes(cls, "n_classes"):
            offered["n_classes"] = min(self._value(cls, "n_classes"), len(bank.centres))
        return {name: value for name, value in offered.items() if takes(cls, name)}

    def _value(self, cls: type[Any], name: str) -> Any:
        """An argument as given, or its default."""
        return self.arguments.get(name, default_of(cls, name))

    def _finite(self, found: Tensor, images: Tensor) -> Tensor:
        finite = torch.isfinite(found).flatten(1).all(1)
        if bool(finite.all()):
            return found
        warnings.warn(
            f"torchattacks:{self.name} returned {int((~finite).sum())} of {len(finite)} pictures "
            "with values that are not finite (as where a gradient is zero): they stay clean",
            stacklevel=2,
        )
        return torch.where(finite.view(-1, 1, 1, 1), found, images)

    def _allowed(self, found: Tensor, images: Tensor, threat: Threat) -> Tensor:
        if not threat.allows(found, images):
            raise DmltkError(
                f"torchattacks:{self.name} returned pictures that the threat does not allow"
            )
        return found.clamp(0, 1)
