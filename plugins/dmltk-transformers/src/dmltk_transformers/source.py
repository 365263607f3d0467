"""The model source ``transformers:NAME``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import transformers as library
from dmltk.errors import UserError
from dmltk.models import Source
from msgspec import Meta
from torch import Tensor, nn

__all__ = ["transformers"]

Feature = Literal["auto", "projected", "pooled", "cls", "mean"]
VISION = {
    "clip": "CLIPVisionModelWithProjection",
    "clip_vision_model": "CLIPVisionModelWithProjection",
    "siglip": "SiglipVisionModel",
    "siglip_vision_model": "SiglipVisionModel",
}
"""The half of a model of pictures and text that sees pictures."""
AUTO: dict[str, Feature] = {
    "clip": "projected",
    "clip_vision_model": "projected",
    "siglip": "pooled",
    "siglip_vision_model": "pooled",
    "dinov2": "pooled",
}
POOLER = "pooler."


class _Features:
    """Normalised pictures to one vector each.

    Args:
        module: the encoder.
        feature: which of its outputs.
        stretched: whether pictures have another size than it was trained on.
    """

    def __init__(self, module: nn.Module, feature: Feature, stretched: bool) -> None:
        self.module, self.feature = module, feature
        known = inspect.signature(module.forward).parameters
        self.extra = {"interpolate_pos_encoding": True} if stretched else {}
        if not self.extra.keys() <= known.keys():
            self.extra = {}

    def __call__(self, pictures: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, D)."""
        found = self.module(pixel_values=pictures, **self.extra)
        named = {
            "projected": getattr(found, "image_embeds", None),
            "pooled": getattr(found, "pooler_output", None),
        }
        made = named.get(self.feature)
        if self.feature in named:
            if made is None:
                raise UserError(f"this model has no feature={self.feature}: take cls or mean")
            return made.flatten(1)
        hidden: Tensor = found.last_hidden_state
        if hidden.ndim == 4:
            return hidden.mean((2, 3))
        return hidden[:, 0] if self.feature == "cls" else hidden.mean(1)


def transformers(
    name: str,
    *,
    feature: Feature = "auto",
    hub: bool = False,
    checkpointing: bool = False,
    size: Annotated[int, Meta(ge=0)] = 0,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> Source:
    """An image encoder of transformers: CLIP, SigLIP, DINOv2, ViT and others that see pixels.

    Of a model of pictures and text only the half that sees pictures is loaded. The normalisation
    of its processor moves inside, so that pictures are in [0, 1]. Weights are read from
    safetensors alone, and no code that a repository brings is run.

    Args:
        name: a folder with config.json and model.safetensors, or a name on the model hub.
        feature: what becomes the embedding: `projected` into the space shared with text (CLIP),
            the model's `pooled` output, its `cls` token, or the `mean` over all tokens; `auto`
            is projected for CLIP, pooled for SigLIP and DINOv2, cls otherwise.
        hub: fetch it from the model hub; without, a folder or what was fetched before.
        checkpointing: recompute activations in backward, for less memory.
        size: side of the pictures in pixels; 0 is the model's own. Positions are interpolated.
        mean: subtracted from pictures in [0, 1]; none is the processor's.
        std: pictures are divided by it; none is the processor's.

    Source: the transformers library.
    """
    where: dict[str, Any] = {"local_files_only": not hub, "trust_remote_code": False}
    with _quiet():
        config = _read(library.AutoConfig, name, where)
        kind = config.model_type
        loader = getattr(library, VISION.get(kind, "AutoModel"))
        module, report = _read(
            loader, name, {**where, "use_safetensors": True, "output_loading_info": True}
        )
        if getattr(module, "main_input_name", "") != "pixel_values":
            raise UserError(f"'{name}' is a {kind}, which sees no pictures: name an image encoder")
        chosen = AUTO.get(kind, "cls") if feature == "auto" else feature
        _complete(name, report["missing_keys"], chosen)
        if not (mean and std):
            own_mean, own_std = _normalisation(name, where)
            mean, std = mean or own_mean, std or own_std
    if checkpointing:
        module.gradient_checkpointing_enable()
    own = _side(module.config)
    features = _Features(module, chosen, bool(size and size != own))
    return Source(module, mean=mean, std=std, size=size or own, features=features, pools=("avg",))


def _read(loader: Any, name: str, arguments: dict[str, Any]) -> Any:
    try:
        return loader.from_pretrained(name, **arguments)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise UserError(
            f"transformers cannot load '{name}' ({reason}): name a folder with config.json and"
            " model.safetensors, or fetch it with hub=true"
        ) from error


def _complete(name: str, missing: Any, feature: Feature) -> None:
    """Refuse weights that would stay as they were drawn; a pooler that is not used may."""
    lacking = sorted(key for key in missing if feature == "pooled" or not key.startswith(POOLER))
    if lacking:
        advice = "take feature=cls" if lacking[0].startswith(POOLER) else "name another"
        raise UserError(f"the weights of '{name}' lack {lacking[0]}: {advice}")


def _normalisation(name: str, where: dict[str, Any]) -> tuple[tuple[float, ...], ...]:
    """What a processor does to pixels of 0 to 255, as mean and deviation of pictures in [0, 1]."""
    try:
        processor = library.AutoImageProcessor.from_pretrained(name, **where)
    except (OSError, ValueError) as error:
        raise UserError(
            f"'{name}' has no processor that tells how pictures are normalised:"
            " give mean=[…],std=[…]"
        ) from error
    factor = processor.rescale_factor * 255 if getattr(processor, "do_rescale", True) else 255.0
    normalised = getattr(processor, "do_normalize", True)
    mean = processor.image_mean if normalised else (0.0, 0.0, 0.0)
    std = processor.image_std if normalised else (1.0, 1.0, 1.0)
    return tuple(value / factor for value in mean), tuple(value / factor for value in std)


def _side(config: Any) -> int | None:
    """The side of the pictures that a model was trained on, None where it does not say."""
    found = getattr(config, "image_size", None)
    if isinstance(found, list | tuple):
        if len(set(found)) > 1:
            raise UserError(f"the model takes pictures of {found[0]} x {found[1]}, not square ones")
        found = found[0]
    return found if isinstance(found, int) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's progress bars and remarks on weights that are left over."""
    level, bars = library.logging.get_verbosity(), library.logging.is_progress_bar_enabled()
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    try:
        yield
    finally:
        library.logging.set_verbosity(level)
        if bars:
            library.logging.enable_progress_bar()
