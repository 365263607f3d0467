"""One optimizer step in two phases: first every branch's pictures, then group by group."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dmltk import seeds
from dmltk.batch import Batch
from dmltk.errors import DmltkError, UserError
from dmltk.pipelines.check import groups, order
from dmltk.pipelines.structure import Branch, Of, Pipeline, Term
from dmltk.training.parts import Parts, takes_strength

Views = dict[str, Batch]
Embeddings = Mapping[tuple[str, str], Tensor]


class Step:
    """Makes the pictures of all branches, then gradients, for one pipeline.

    Args:
        model: the routed embedder that is trained.
        pipeline: checked.
        parts: the pipeline's, built.
        seed: of the run.
        ema: the routed embedder of averaged weights, where a branch asks for it.
        amp: the type in which training passes are computed; attacks and losses never are.

    Attributes:
        watch: told the embeddings of each group of branches, and all pictures.
    """

    def __init__(
        self,
        model: Any,
        pipeline: Pipeline,
        parts: Parts,
        seed: int,
        ema: Any = None,
        amp: torch.dtype | None = None,
    ) -> None:
        self.model, self.ema, self.amp = model, ema, amp
        self.pipeline, self.parts, self.seed = pipeline, parts, seed
        self.order, self.groups = order(pipeline), groups(pipeline)
        self.watch: Callable[[Embeddings, Views], None] | None = None

    def pictures(self, batch: Batch, epoch: int, step: int) -> Views:
        """Phase 1: every branch's pictures, under the weights and statistics of now."""
        views: Views = {}
        for name in self.order:
            branch = self.pipeline.branches[name]
            view = _taken(_joined([views[s] for s in branch.source] or [batch]), branch.take)
            draws = seeds.generator(self.seed, "branch", epoch, step, name)
            if branch.augment:
                augment = self.parts.augments[name]
                given = {"strength": branch.strength_at(step)} if takes_strength(augment) else {}
                view = dataclasses.replace(view, images=augment(view.images, draws, **given))
            elif branch.attack:
                images = self._attacked(name, view, views, step, draws)
                view = dataclasses.replace(view, images=images)
            views[name] = view
        return views

    def gradients(self, views: Views, step: int) -> dict[str, float]:
        """Phase 2: one training forward a branch, one backward a group of joined branches.

        Returns:
            The weighted value of each term, by ``terms.N``.

        Raises:
            DmltkError: where a loss is not finite, with its term.
        """
        values: dict[str, float] = {}
        for group in self.groups:
            active = [
                (number, term, refs)
                for number, term in enumerate(self.pipeline.terms)
                if step >= term.from_step
                and (refs := [of for of in term.references if of.branch in group])
            ]
            references = {of for _, _, refs in active for of in refs}
            embeddings = self.embedded(views, references, self.amp)
            if self.watch is not None:
                self.watch(embeddings, views)
            total: Tensor | None = None
            for number, term, refs in active:
                loss = _value(term, refs, self.parts.losses[number], embeddings, views)
                loss = loss * term.weight_at(step)
                key = f"terms.{number}"
                values[key] = values.get(key, 0.0) + loss.item()
                if not torch.isfinite(loss):
                    raise DmltkError(
                        f"{key} ({term.loss}) is not finite at step {step}: lower the learning rate"
                    )
                total = loss if total is None else total + loss
            if total is not None and total.requires_grad:
                total.backward()
        return values

    def embedded(
        self, views: Views, references: set[Of], amp: torch.dtype | None = None
    ) -> dict[tuple[str, str], Tensor]:
        """What terms refer to, by branch and head, from one pass a branch.

        Args:
            views: pictures by branch.
            references: what is wanted; a branch of which all is stopped passes without gradient.
            amp: the type in which the passes are computed.
        """
        found: dict[tuple[str, str], Tensor] = {}
        for name, branch in self.pipeline.branches.items():
            wanted = [of for of in references if of.branch == name]
            if not wanted:
                continue
            model = self.ema if branch.ema else self.model
            trained = not branch.ema and not all(of.stop for of in wanted)
            images, heads = views[name].images, tuple(sorted({of.head for of in wanted}))
            fast = torch.autocast(images.device.type, amp, enabled=amp is not None)
            with torch.set_grad_enabled(trained), fast:
                made = model(images, route=branch.route, heads=heads)
            found |= {(name, head): made[head] for head in heads}
        return found

    def _attacked(
        self, name: str, view: Batch, views: Views, step: int, draws: torch.Generator
    ) -> Tensor:
        branch, attack = self.pipeline.branches[name], self.parts.attacks[name]
        model = self.ema if branch.ema else self.model
        if not branch.objective:
            return attack(model.at(branch.route), view, generator=draws).images
        heads = {of.head for t in branch.objective for of in t.references if of.branch == "self"}
        losses = list(self.parts.objectives.get_submodule(name).children())
        goal = Climb(self, branch, losses, views, step)
        climbing = dataclasses.replace(attack, goal=goal)
        embed = model.at(branch.route, heads=tuple(sorted(heads)))
        return climbing(embed, view, generator=draws).images


class Climb:
    """The goal of an attack with an objective: minus its terms, other branches constant.

    Args:
        trainer: whose model embeds the other branches.
        branch: the attacked one.
        losses: one for each term of its objective.
        views: the pictures made so far.
        step: the optimizer step, for the weights.
    """

    takes_heads = True

    def __init__(
        self, trainer: Step, branch: Branch, losses: list[nn.Module], views: Views, step: int
    ) -> None:
        self.trainer, self.branch, self.losses = trainer, branch, losses
        self.views, self.step = views, step

    def prepare(
        self, probe: Any, batch: Batch, generator: torch.Generator
    ) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """Embed the other branches once; the objective takes the attacked ones by head."""
        references = {of for term in self.branch.objective for of in term.references}
        with torch.no_grad():
            others = self.trainer.embedded(
                self.views, {of for of in references if of.branch != "self"}
            )
        views = {**self.views, "self": batch}

        def objective(heads: Mapping[str, Tensor]) -> Tensor:
            embeddings = others | {("self", head): made for head, made in heads.items()}
            values = [
                term.weight_at(self.step)
                * _value(term, list(term.references), loss, embeddings, views)
                for term, loss in zip(self.branch.objective, self.losses, strict=True)
            ]
            return -torch.stack(values).sum()

        return objective


def _value(
    term: Term, references: list[Of], loss: nn.Module, embeddings: Embeddings, views: Views
) -> Tensor:
    tensors = [_reference(of, embeddings) for of in references]
    labels = [_labels(term, views[of.branch]) for of in references]
    indices = [views[of.branch].index for of in references]
    if term.join == "each":
        each = zip(tensors, labels, indices, strict=True)
        return torch.stack([loss(z, labels=y, index=i) for z, y, i in each]).sum()
    if term.join == "args":
        return loss(*tensors, labels=labels[0], index=indices[0])
    index = (
        None
        if any(i is None for i in indices)
        else torch.cat([i for i in indices if i is not None])
    )
    return loss(torch.cat(tensors), labels=torch.cat(labels), index=index)


def _reference(of: Of, embeddings: Embeddings) -> Tensor:
    found = embeddings[of.branch, of.head]
    return found.detach() if of.stop else found


def _labels(term: Term, view: Batch) -> Tensor:
    known = {"labels": view.labels, "index": view.index, **view.extra}
    found = known.get(term.labels)
    if found is None:
        have = ", ".join(key for key, value in known.items() if value is not None)
        raise UserError(f"term {term.loss}: the batch has no '{term.labels}' (it has: {have})")
    return found


def _joined(sources: list[Batch]) -> Batch:
    if len(sources) == 1:
        return sources[0]
    extra = {key: torch.cat([source.extra[key] for source in sources]) for key in sources[0].extra}
    labels = [source.labels for source in sources if source.labels is not None]
    index = [source.index for source in sources if source.index is not None]
    return Batch(
        torch.cat([source.images for source in sources]),
        torch.cat(labels) if len(labels) == len(sources) else None,
        torch.cat(index) if len(index) == len(sources) else None,
        sources[0].reference,
        extra,
    )


def _taken(view: Batch, take: tuple[float, float]) -> Batch:
    if take == (0.0, 1.0):
        return view
    count = len(view.images)
    rows = slice(round(take[0] * count), round(take[1] * count))
    return Batch(
        view.images[rows],
        None if view.labels is None else view.labels[rows],
        None if view.index is None else view.index[rows],
        view.reference,
        {key: value[rows] for key, value in view.extra.items()},
    )
