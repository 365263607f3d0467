"""Everything that decides a bench, as one frozen structure that is saved and read back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

__all__ = ["EPS", "Config"]

EPS = (0.0, 1 / 255, 2 / 255, 4 / 255, 8 / 255)
Count = Annotated[int, msgspec.Meta(ge=0)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bench: which model is attacked how, on which pictures.

    Args:
        model: model spec.
        dataset: data set spec; its test split is attacked.
        suites: suite specs or YAML files.
        attacks: attack specs beside the suites.
        protocols: protocol specs of `attacks`.
        eps: bounds in pixel units for every attack that names none; 0 is the control.
        limit: how many test pictures are attacked, drawn by `seed`; 0 for all. The gallery
            stays whole.
        route: of a `run:DIR` with several; `worst` takes each query's worst over all of them.
        surrogate: model spec; every attack is also made on it and tried on the model.
        metrics: metric specs.
        size: picture size in pixels; 0 takes the data set's, the model's, or 64.
        batch: pictures a pass.
        channels_last: ``on`` keeps weights and feature maps in that memory format: faster for
            some models (EfficientNets on a CPU: 1.45 times), slower for others. The last bits of a
            figure hang on it.
        seed: of every draw.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        save_adversarial: folder for all adversarial pictures; empty for none.
    """

    model: str
    dataset: str
    suites: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ("query",)
    eps: tuple[Annotated[float, msgspec.Meta(ge=0, le=1)], ...] = EPS
    limit: Count = 0
    route: str = "main"
    surrogate: str = ""
    metrics: tuple[str, ...] = ("recall", "map@r", "spectrum")
    size: Count = 0
    batch: Annotated[int, msgspec.Meta(ge=1)] = 112
    channels_last: Literal["on", "off"] = "off"
    seed: Count = 0
    device: str = "auto"
    save_adversarial: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found

    def to_yaml(self) -> str:
        """What ``config.yaml`` holds."""
        import yaml

        return yaml.safe_dump(self.to_dict(), sort_keys=False, width=100)
