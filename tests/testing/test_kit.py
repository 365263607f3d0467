"""The kit itself: a part that breaks one rule fails the check of that rule."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dmltk import attacks, norms, registry
from dmltk.attacks import Attack, Threat
from dmltk.data.split import Dataset
from dmltk.errors import UserError
from dmltk.testing import Part, check, checks_of, samples
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    yield
    for kind in registry.KINDS:
        known = registry.entries(kind)
        known[:] = [entry for entry in known if entry.distribution != registry.SESSION]


def fails(kind: str, factory: Any, *rules: str) -> bool:
    """Whether a factory fails every one of these checks, by what they assert."""
    registry.register(kind, "broken", factory)
    part = Part.of(f"{kind}:broken")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rule in rules:
            with pytest.raises((AssertionError, UserError)):
                checks_of(kind)[rule](part)
    return True


class Wrong:
    """An attack that hands its pictures on through something that breaks a rule."""

    def __init__(self, eps: float, spoil: Any) -> None:
        self.inner: Attack = attacks.build("misrank:steps=3", context={"eps": eps})
        self.threat: Threat = self.inner.threat
        self.spoil = spoil

    def __call__(self, embed: Any, batch: Any, *, generator: torch.Generator) -> Any:
        result = self.inner(embed, batch, generator=generator)
        return self.spoil(result, embed, batch) or result


def farther(result: Any, embed: Any, batch: Any) -> Any:
    return replace(result, images=(2 * result.images - batch.images).clamp(0, 1))


def brighter(result: Any, embed: Any, batch: Any) -> Any:
    return replace(result, images=result.images + 1e-2)


def written(result: Any, embed: Any, batch: Any) -> None:
    batch.images.copy_(result.images)


def left(result: Any, embed: Any, batch: Any) -> None:
    if isinstance(embed, nn.Module):
        embed.train()


def counted(result: Any, embed: Any, batch: Any) -> Any:
    return replace(result, forwards=result.forwards - 1)


def shaken(result: Any, embed: Any, batch: Any) -> Any:
    noise = torch.rand_like(result.images) * 1e-3
    return replace(result, images=batch.images + (result.images - batch.images) * (1 - noise))


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (farther, "pictures_stay_within_the_bound_and_the_box"),
        (brighter, "pictures_stay_within_the_bound_and_the_box"),
        (brighter, "a_bound_of_zero_changes_nothing"),
        (written, "model_and_pictures_are_left_alone"),
        (left, "model_and_pictures_are_left_alone"),
        (counted, "passes_are_counted"),
        (shaken, "the_generator_decides"),
        (shaken, "the_process_is_left_alone"),
        (shaken, "the_same_twice"),
    ],
)
def test_an_attack_that_breaks_a_rule_fails_its_check(spoil: Any, rule: str) -> None:
    def broken(*, eps: float = 0.1) -> Wrong:
        return Wrong(eps, spoil)

    assert fails("attack", broken, rule)


def test_a_factory_that_nobody_can_call_by_name_fails() -> None:
    def broken(**anything: Any) -> Any:
        return attacks.build("stax")

    assert fails("attack", broken, "every_parameter_has_a_name")


def test_a_factory_that_says_nothing_fails() -> None:
    def broken(*, width: int = 3) -> Any:
        return nn.Identity()

    rules = "the_docstring_tells_every_parameter", "the_docstring_names_a_source"
    assert fails("loss", broken, *rules)


def test_a_default_that_cannot_be_written_fails() -> None:
    def broken(*, width: int = "three") -> Any:  # type: ignore[assignment]
        return attacks.build("stax")

    assert fails("attack", broken, "defaults_can_be_written")


@dataclass(frozen=True)
class Dragged:
    """A goal that pulls on the clean pictures and hangs on its batch mates."""

    def prepare(self, probe: Any, batch: Any, generator: Any) -> Any:
        aim = nn.Parameter(probe.embed(batch.images).roll(1, 0))
        return lambda z: (z - aim).square().sum(1) + z.mean(0).sum()


def test_a_goal_that_breaks_rules_fails_their_checks() -> None:
    rules = (
        "what_it_aims_at_is_constant",
        "a_pictures_loss_is_its_own",
    )
    assert fails("goal", Dragged, *rules)


@dataclass(frozen=True)
class Free:
    """A solver that forgets the ball, and says that it needs no gradient."""

    gradient_free = True
    start = 0

    def __call__(self, probe: Any, images: Tensor, threat: Any, generator: Any) -> Tensor:
        _, gradient = probe.gradient(images + 0.01)
        return images - gradient.sign()


def test_a_solver_that_breaks_rules_fails_their_checks() -> None:
    rules = (
        "pictures_stay_within_the_threat",
        "gradient_free_means_no_gradient",
        "a_start_at_the_pictures_is_declared",
    )
    assert fails("solver", Free, *rules)


class Leaky:
    """A strategy whose routes share their statistics, though it says that they do not."""

    def apply(self, embedder: nn.Module, routes: Any) -> Any:
        return norms.build("kway:private=affine").apply(embedder, routes)


class Noisy:
    """A strategy that moves main."""

    def apply(self, embedder: nn.Module, routes: Any) -> Any:
        made = norms.build("kway:layers=all").apply(embedder, routes)
        with torch.no_grad():
            next(made.parameters()).add_(0.1)
        return made


def test_a_norm_strategy_that_breaks_rules_fails_their_checks() -> None:
    rule = "training_one_route_leaves_the_others_statistics"
    assert fails("norm", Leaky, rule)
    assert fails("norm", Noisy, "main_is_the_model_as_it_was")


class Unsure(nn.Module):
    """A loss without a value for one class, written into its input, in half precision."""

    def forward(self, z: Tensor, *, labels: Tensor, index: Any = None) -> Tensor:
        apart = z[labels != labels[0]].mean()
        return apart + (z @ z.T).mean() + z[0, 0]


def test_a_loss_that_breaks_rules_fails_their_checks() -> None:
    rules = (
        "degenerate_batches_are_defined",
        "half_precision_is_computed_in_full",
        "the_order_of_pictures_does_not_matter",
    )
    assert fails("loss", Unsure, *rules)


def test_a_data_set_that_breaks_rules_fails_their_checks() -> None:
    def broken() -> Dataset:
        split = samples.split()
        split.labels = split.labels * 2
        return Dataset(split, None, split, {"name": split})

    rules = (
        "it_has_its_splits_and_a_card",
        "labels_have_no_gaps",
    )
    assert fails("dataset", broken, *rules)


def test_a_model_that_breaks_rules_fails_their_checks() -> None:
    class Mates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.size = 16
            self.weight = nn.Parameter(torch.rand(12, 3))

        def forward(self, images: Tensor) -> Tensor:
            z = images.detach().mean((2, 3)) @ self.weight.T
            return z - z.mean(0)

    rules = (
        "a_picture_does_not_hang_on_those_beside_it",
        "gradients_reach_the_pictures",
    )
    assert fails("model", Mates, *rules)


def test_a_metric_that_breaks_rules_fails_their_checks() -> None:
    def broken() -> Any:
        def figure(query: Tensor, gallery: Tensor, ql: Tensor, gl: Tensor, own: Tensor) -> Any:
            return {"first": (ql[0] == gl).float().sum() / 0, "sum": float(ql.sum())}

        return figure

    rules = (
        "figures_are_named_numbers",
        "the_labels_names_do_not_matter",
        "degenerate_galleries_are_defined",
    )
    assert fails("metric", broken, *rules)


def test_an_augment_that_breaks_rules_fails_their_checks() -> None:
    def broken() -> Any:
        return lambda images, generator: images.mul_(2)

    rules = (
        "pictures_stay_pictures",
        "pictures_are_not_written_into",
    )
    assert fails("augment", broken, *rules)


def test_a_pipeline_that_breaks_rules_fails_their_checks() -> None:
    def nothing() -> Any:
        return {"branches": {}}

    assert fails("pipeline", nothing, "it_is_a_pipeline")


def test_a_suite_that_breaks_rules_fails_their_checks() -> None:
    from dmltk.bench.suite import Item, Suite

    def broken() -> Any:
        return Suite((Item("no-such-attack"),))

    assert fails("suite", broken, "its_attacks_and_protocols_can_be_built")


def test_a_protocol_that_breaks_rules_fails_their_checks() -> None:
    from dmltk.evaluation.protocols import Layout, against

    def broken() -> Any:
        return Layout("all", lambda clean, twins: against(clean.queries, clean.gallery))

    assert fails("protocol", broken, "what_is_attacked_is_there")


def test_failures_may_be_foretold_and_must_then_happen() -> None:
    reason = {"the_order_of_pictures_does_not_matter": "pairs by place"}
    told = {one.check: one for one in check("loss", "npairs", expected_failed_checks=reason)}
    one = told["the_order_of_pictures_does_not_matter"]
    assert (one.status, one.message) == ("expected", "pairs by place")
    told = {r.check: r for r in check("loss", "circle", expected_failed_checks=reason)}
    assert told["the_order_of_pictures_does_not_matter"].status == "failed"
    with pytest.raises(UserError, match="unknown check 'the_ordr'"):
        check("loss", "circle", expected_failed_checks={"the_ordr": ""})


def test_what_does_not_apply_is_skipped_with_its_reason() -> None:
    (one,) = [one for one in check("loss", "circle") if one.check == "its_parameters_learn"]
    assert (one.status, one.message) == ("skipped", "it has no parameters")


def test_every_kind_has_checks_of_its_own_and_those_of_all() -> None:
    for kind in registry.KINDS:
        names = checks_of(kind)
        assert "the_same_twice" in names and len(names) > 8
        assert all(run.__doc__ for run in names.values())


PYTEST = """
from dmltk.testing import parametrize_with_checks

KNOWN = {"the_order_of_pictures_does_not_matter": "so it is"}

@parametrize_with_checks(["loss:npairs"], expected_failed_checks=KNOWN)
def test_npairs(part, check):
    check(part)

@parametrize_with_checks(["metric:recall", "protocol:clean"])
def test_two(part, check):
    check(part)
"""


def test_pytest_runs_them_as_cases(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(PYTEST)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "test_npairs[loss:npairs-the_order_of_pictures_does_not_matter] XFAIL" in done.stdout
    assert "test_two[protocol:clean-it_says_who_is_attacked] PASSED" in done.stdout
    assert "test_npairs[loss:npairs-its_parameters_learn] SKIPPED" in done.stdout
