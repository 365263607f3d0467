"""The two-phase step: every method is data, and its gradient is that of the plain sum."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from dmltk import models, norms, pipelines, seeds
from dmltk.batch import Batch
from dmltk.errors import DmltkError, UserError
from dmltk.pipelines import Pipeline
from dmltk.training.parts import build_parts
from dmltk.training.step import Step
from torch import Tensor, nn

from .methods import METHODS, register

EPS = 8 / 255


@pytest.fixture(autouse=True)
def parts_of_the_methods() -> None:
    register()


def batch(count: int = 12, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 3, 16, 16, generator=generator)
    return Batch(images, torch.arange(count) // 2, torch.arange(count))


def trainer(pipeline: Pipeline, *, ema: bool = False, norms_spec: str = "", seed: int = 0) -> Step:
    torch.manual_seed(seed)
    embedder = models.build("smallconv:width=4", dim=6)
    for name, head in pipeline.heads.items():
        put = embedder.set_head if name == "embed" else embedder.add_head
        put(name, pool=head.pool, dim=head.dim, hidden=head.hidden, unit=head.unit, bn=head.bn)
    model = norms.apply(norms_spec or pipeline.norms, embedder, pipeline.routes).train()
    sizes = {name: head.out_features for name, head in embedder.heads.items()}
    parts = build_parts(pipeline, {"eps": EPS, "num_classes": 6, "sizes": sizes})
    return Step(model, pipeline, parts, seed, copy.deepcopy(model) if ema else None)


def gradients(step: Step) -> dict[str, Tensor]:
    return {k: p.grad.clone() for k, p in step.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", METHODS)
def test_two_steps_of_every_method_train_all_it_should(name: str) -> None:
    step = trainer(pipelines.from_yaml(METHODS[name]))
    weights = [*step.model.parameters(), *step.parts.losses.parameters()]
    optimizer = torch.optim.SGD(weights, 0.05)
    for number in range(2):
        views = step.pictures(batch(seed=number), 0, number)
        optimizer.zero_grad(set_to_none=True)
        values = step.gradients(views, number)
        optimizer.step()
        assert all(abs(value) < 1e4 for value in values.values())
    assert set(values) == {f"terms.{i}" for i in range(len(step.pipeline.terms))}
    used = {of.head for term in step.pipeline.terms for of in term.references}
    for key, parameter in step.model.named_parameters():
        if key.startswith("embedder.heads.") and key.split(".")[2] not in used:
            assert parameter.grad is None
        else:
            assert parameter.grad is not None and parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", METHODS)
def test_one_trained_forward_a_branch(name: str) -> None:
    step = trainer(pipelines.from_yaml(METHODS[name]))
    views = step.pictures(batch(), 0, 0)
    passes = []
    step.model.embedder.register_forward_hook(lambda m, *_: passes.append(m.training))
    step.gradients(views, 5)
    trained = {of.branch for term in step.pipeline.terms for of in term.references}
    assert passes == [True] * len(trained)


@pytest.mark.parametrize("name", METHODS)
def test_the_grouped_gradient_is_that_of_the_summed_loss(name: str) -> None:
    """Written out plainly: all branches forward, all terms summed, one backward."""
    pipeline = pipelines.from_yaml(METHODS[name])
    grouped, plain = trainer(pipeline), trainer(pipeline)
    views = grouped.pictures(batch(), 0, 0)
    grouped.gradients(views, 3)
    total = torch.zeros(())
    embedded = {
        name: plain.model(views[name].images, branch.route, ("embed", *pipeline.heads))
        for name, branch in pipeline.branches.items()
    }
    for term, loss in zip(pipeline.terms, plain.parts.losses, strict=True):
        z, y = [], []
        for text in term.of:
            path, _, stop = text.partition("|")
            branch, _, head = path.partition(".")
            found = embedded[branch][head or "embed"]
            z.append(found.detach() if stop else found)
            y.append(views[branch].index if term.labels == "index" else views[branch].labels)
        weight = term.weight if isinstance(term.weight, float) else 50 * 3 / 4
        if term.join == "each":
            value = sum(loss(a, labels=b) for a, b in zip(z, y, strict=True))
        elif term.join == "cat":
            value = loss(torch.cat(z), labels=torch.cat(y))
        else:
            value = loss(*z, labels=y[0])
        total = total + weight * value
    total.backward()
    ours, theirs = gradients(grouped), gradients(plain)
    assert ours.keys() == theirs.keys()
    for key in ours:
        torch.testing.assert_close(ours[key], theirs[key], rtol=0, atol=1e-6, msg=key)


def test_all_attacks_come_before_the_first_training_pass() -> None:
    """Under shared norms a training pass moves the statistics that an attack would see."""
    step = trainer(pipelines.from_yaml(METHODS["at"]))
    before = {k: v.clone() for k, v in step.model.state_dict().items()}
    views = step.pictures(batch(), 0, 0)
    after = step.model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert all(p.grad is None for p in step.model.parameters())
    assert step.model.training
    change = (views["stax"].images - views["main"].images).abs().max()
    assert 0 < change <= EPS + 1e-6


def test_equal_routes_and_no_attack_embed_every_branch_equally() -> None:
    text = METHODS["mdprop"].replace('attack: "stax:steps=1", ', "")
    text = text.replace('attack: "mtax:targets=3,steps=1", ', "")
    step = trainer(pipelines.from_yaml(text))
    views = step.pictures(batch(), 0, 0)
    z = [step.model(views[name].images, route=name) for name in ("main", "stax", "mtax")]
    assert torch.equal(z[0], z[1]) and torch.equal(z[0], z[2])


@pytest.mark.parametrize("name", ["mdprop", "rocl"])
def test_pictures_depend_on_seed_epoch_step_and_branch_alone(name: str) -> None:
    pipeline = pipelines.from_yaml(METHODS[name])
    step = trainer(pipeline)
    torch.manual_seed(1)
    first = step.pictures(batch(), 2, 5)
    torch.manual_seed(2)
    again = trainer(pipeline).pictures(batch(), 2, 5)
    other = step.pictures(batch(), 2, 6)
    assert all(torch.equal(first[n].images, again[n].images) for n in first)
    assert any(not torch.equal(first[n].images, other[n].images) for n in first)


def test_an_attack_whose_backward_dies_leaves_every_route_as_it_was() -> None:
    """As when memory runs out in the middle: no statistics change places."""
    step = trainer(pipelines.from_yaml(METHODS["mdprop"]))
    step.model.sets.get_submodule("mtax")
    step.model.train()
    for route in ("main", "stax", "mtax"):
        step.model(torch.rand(6, 3, 16, 16), route=route)
    before = {k: v.clone() for k, v in step.model.state_dict().items()}

    class OutOfMemory(Exception):
        pass

    class Dies(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            raise OutOfMemory

    handle = step.model.embedder.backbone.register_forward_pre_hook(
        lambda m, a: (Dies.apply(a[0]),)
    )
    with pytest.raises(OutOfMemory):
        step.parts.attacks["mtax"](
            step.model.at("mtax"), batch(), generator=torch.Generator().manual_seed(0)
        )
    handle.remove()
    after = step.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_attacks_climb_their_objective() -> None:
    pipeline = pipelines.from_yaml(METHODS["rocl"])
    step = trainer(pipeline)
    views = step.pictures(batch(), 0, 0)
    step.model.eval()
    from_terms = pipelines.from_yaml(METHODS["rocl"]).branches["adv"].objective[0]
    loss = step.parts.objectives["adv"][0]

    def value(images: Tensor) -> float:
        one = step.model(images, "adv", ("proj",))["proj"]
        two = step.model(views["two"].images, "main", ("proj",))["proj"]
        labels = torch.cat([views["adv"].index, views["two"].index])
        return loss(torch.cat([one, two]), labels=labels).item()

    assert from_terms.labels == "index"
    assert value(views["adv"].images) > value(views["one"].images)


def test_climbing_an_objective_leaves_the_trained_loss_as_it_was() -> None:
    """A loss with a memory must not learn the attack's pictures."""
    memory = "crossbatchmemory(loss=contrastive,memory_size=64)"
    text = f"""
branches:
  main: {{}}
  adv:
    attack: "pgd:steps=2,select=last"
    objective: [{{loss: "{memory}", of: [self]}}]
terms: [{{loss: "{memory}", of: [main, adv]}}]
"""
    step = trainer(pipelines.from_yaml(text))
    before = {k: v.clone() for k, v in step.parts.losses.state_dict().items()}
    step.pictures(batch(), 0, 0)
    after = step.parts.losses.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_an_objective_shares_the_parameters_that_its_term_trains() -> None:
    text = """
branches:
  main: {}
  adv: {attack: "pgd:steps=1,select=last", objective: [{loss: arcface, of: [self]}]}
terms: [{loss: arcface, of: [main, adv]}]
"""
    step = trainer(pipelines.from_yaml(text))
    ours = list(step.parts.losses[0].parameters())
    theirs = list(step.parts.objectives["adv"][0].parameters())
    assert ours and all(a is b for a, b in zip(ours, theirs, strict=True))
    lonely = text.replace("terms: [{loss: arcface", "terms: [{loss: ntxent")
    with pytest.raises(UserError, match="has parameters that no term trains"):
        trainer(pipelines.from_yaml(lonely))


def test_terms_of_one_loss_start_from_proxies_of_their_own() -> None:
    text = "branches: {main: {}}\nterms: [{loss: arcface, of: [main]}, {loss: arcface, of: [main]}]"
    one, two = (next(loss.parameters()) for loss in trainer(pipelines.from_yaml(text)).parts.losses)
    assert not torch.equal(one, two)


def test_the_authors_method_goes_by_name() -> None:
    assert pipelines.build("mdprop-authors:targets=3") == pipelines.from_yaml(
        METHODS["mdprop-authors"]
    )


def test_take_splits_the_batch_without_loss() -> None:
    step = trainer(pipelines.from_yaml(METHODS["mdprop-authors"]))
    views = step.pictures(batch(), 0, 0)
    rows = torch.cat([views["stax"].index, views["mtax"].index])
    assert torch.equal(rows, torch.arange(12))
    assert torch.equal(views["mtax"].labels, views["main"].labels[6:])


def test_several_sources_are_concatenated() -> None:
    text = "branches: {a: {}, main: {source: [a, b]}, b: {take: [0, 1/2]}}\n"
    step = trainer(pipelines.from_yaml(text + "terms: [{loss: multisimilarity, of: [main]}]"))
    views = step.pictures(batch(), 0, 0)
    assert torch.equal(views["main"].index, torch.cat([torch.arange(12), torch.arange(6)]))
    assert torch.equal(views["main"].images[12:], views["b"].images)


def test_an_ema_branch_is_embedded_by_the_averaged_weights_without_gradient() -> None:
    text = "branches: {main: {}, slow: {ema: true}}\n"
    terms = "terms: [{loss: distill, of: [main, slow], join: args}]"
    step = trainer(pipelines.from_yaml(text + terms), ema=True)
    with torch.no_grad():
        for parameter in step.ema.parameters():
            parameter.mul_(0.5)
    views = step.pictures(batch(), 0, 0)
    value = step.gradients(views, 0)["terms.0"]
    slow = step.ema(views["slow"].images).detach()
    main = step.model(views["main"].images)
    expected = step.parts.losses[0](main, slow, labels=views["main"].labels)
    assert value == pytest.approx(expected.item(), rel=1e-5)
    assert all(p.grad is None for p in step.ema.parameters())


def test_labels_may_come_from_the_batch() -> None:
    text = "branches: {main: {}}\nterms: [{loss: multisimilarity, of: [main], labels: style}]"
    step = trainer(pipelines.from_yaml(text))
    plain = trainer(pipelines.from_yaml(METHODS["st"]))
    styled = dataclasses.replace(batch(), extra={"style": batch().labels}, labels=None)
    value = step.gradients(step.pictures(styled, 0, 0), 0)["terms.0"]
    assert value == plain.gradients(plain.pictures(batch(), 0, 0), 0)["terms.0"]
    with pytest.raises(UserError, match="the batch has no 'style'"):
        step.gradients(step.pictures(batch(), 0, 0), 0)


def test_a_loss_that_is_not_finite_stops_with_step_and_term() -> None:
    class Bad(nn.Module):
        def forward(self, z: Tensor, *, labels: Tensor, index: Tensor | None = None) -> Tensor:
            return z.sum() * float("nan")

    step = trainer(pipelines.from_yaml(METHODS["st"]))
    step.parts.losses[0] = Bad()
    with pytest.raises(DmltkError, match=r"terms\.0 .* at step 7"):
        step.gradients(step.pictures(batch(), 0, 7), 7)


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("pgd:steps=2,goal=flee,select=last", "goal and an objective"),
        ("pgd:steps=2", "write select=last"),
        ("pgd:steps=2,select=last,restarts=2", "leave restarts out"),
    ],
)
def test_an_attack_that_cannot_climb_an_objective_is_refused(attack: str, said: str) -> None:
    text = METHODS["rocl"].replace("pgd:steps=2,select=last", attack)
    with pytest.raises(UserError, match=said):
        build_parts(pipelines.from_yaml(text), {"eps": EPS})


def test_seeds_differ_by_purpose_and_not_by_history() -> None:
    drawn = {seeds.derive(s, p, n) for s in range(5) for p in ("a", "b") for n in range(5)}
    assert len(drawn) == 50
    assert seeds.derive(3, "a", 12) != seeds.derive(3, "a", 1, 2)
    first = torch.rand(3, generator=seeds.generator(1, "x"))
    assert torch.equal(first, torch.rand(3, generator=seeds.generator(1, "x")))
