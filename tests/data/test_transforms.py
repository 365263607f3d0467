from __future__ import annotations

import pytest
import torch
from dmltk import registry
from dmltk.data.augments import chain, crop, flip, shift
from dmltk.data.transforms import autoaugment, each, grey, jitter, randaugment, views
from dmltk.errors import UserError
from torchvision.transforms import v2

MAKERS = [
    autoaugment,
    lambda: autoaugment(policy="cifar10"),
    lambda: autoaugment(policy="svhn"),
    randaugment,
    jitter,
    shift,
    lambda: grey(p=0.5),
    views,
    lambda: chain(["crop", "flip", "randaugment(magnitude=9)"]),
]
MADE = [make() for make in MAKERS]


def images(count: int = 12, size: int = 12, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 256, (count, 3, size, size), generator=generator)
    return levels.to(dtype) / 255


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("augment", MADE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_generator_alone_decides_and_shape_range_and_input_are_kept(augment, dtype) -> None:
    before = images(dtype=dtype)
    given = before.clone()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = augment(given, seeded())
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert torch.equal(first, augment(given, seeded()))
    assert not torch.equal(first, augment(given, seeded(4)))
    assert torch.equal(given, before)
    assert (first.shape, first.dtype) == (before.shape, dtype)
    assert float(first.min()) >= 0
    assert float(first.max()) <= 1


@pytest.mark.parametrize("augment", MADE[:-2])
def test_a_picture_does_not_depend_on_its_batch_mates(augment) -> None:
    whole = augment(images(), seeded())
    others = images()
    others[1:4] = 0.25
    assert torch.equal(whole[4:], augment(others, seeded())[4:])
    assert torch.equal(whole[:3], augment(images()[:3], seeded()))


@pytest.mark.parametrize("augment", MADE)
def test_pictures_that_are_alike_get_draws_of_their_own(augment) -> None:
    same = images(1).expand(40, -1, -1, -1)
    assert len(augment(same, seeded()).flatten(1).unique(dim=0)) > 1


@pytest.mark.parametrize("augment", MADE[:-1])
def test_grey_pictures_and_an_empty_batch_are_taken(augment) -> None:
    one = images()[:, :1]
    assert augment(one, seeded()).shape == one.shape
    assert augment(images()[:0], seeded()).shape == (0, 3, 12, 12)


@pytest.mark.parametrize(
    ("augment", "stock"),
    [
        (autoaugment(), v2.AutoAugment()),
        (autoaugment(policy="svhn"), v2.AutoAugment(v2.AutoAugmentPolicy.SVHN)),
        (randaugment(ops=3, magnitude=20), v2.RandAugment(3, 20)),
    ],
)
def test_policies_are_torchvisions_on_8_bit_pictures(augment, stock) -> None:
    out = augment(images(), seeded())
    draws = torch.randint(2**62, (12,), generator=seeded()).tolist()
    with torch.random.fork_rng(devices=[]):
        for image, made, seed in zip(images(), out, draws, strict=True):
            torch.manual_seed(seed)
            expected = stock((image * 255).round().to(torch.uint8))
            assert torch.equal((made * 255).round().to(torch.uint8), expected)


def test_randaugment_of_no_operation_is_the_8_bit_picture() -> None:
    assert torch.equal(randaugment(ops=0)(images(), seeded()), images())


def test_jitter_of_brightness_alone_multiplies_each_picture_by_one_factor() -> None:
    given = images() * 0.5 + 0.05
    out = jitter(brightness=0.5, contrast=0, saturation=0, hue=0, p=1)(given, seeded())
    factor = (out / given).flatten(1)
    assert torch.allclose(factor.amin(1), factor.amax(1), atol=1e-4)
    assert float(factor.min()) > 0.5
    assert float(factor.max()) < 1.5
    assert float(factor[:, 0].std()) > 0.05
    assert torch.equal(jitter(p=0)(given, seeded()), given)


def test_grey_is_the_weighted_sum_in_every_channel_for_some_pictures() -> None:
    given = images(60)
    out = grey(p=0.5)(given, seeded())
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    shade = (given * weights).sum(1, keepdim=True).expand_as(given)
    turned = torch.isclose(out, shade, atol=2e-3).flatten(1).all(1)
    kept = (out == given).flatten(1).all(1)
    assert bool((turned ^ kept).all())
    assert 15 < int(turned.sum()) < 45
    assert torch.equal(grey(p=0)(given, seeded()), given)


def test_pictures_of_other_channel_counts_are_refused() -> None:
    with pytest.raises(UserError, match="1 or 3 channels, not of 6"):
        autoaugment()(torch.rand(2, 6, 8, 8), seeded())


def test_any_transform_that_draws_globally_can_be_used() -> None:
    augment = each(v2.RandomErasing(p=1))
    assert torch.equal(augment(images(), seeded()), augment(images(), seeded()))
    assert not torch.equal(augment(images(), seeded()), images())


def test_a_chain_is_its_parts_in_order_on_one_generator() -> None:
    made = registry.build("augments", "chain:[crop(scale_min=.3),'flip:p=1',grey]")
    generator = seeded()
    expected = images()
    for part in (crop(scale_min=0.3), flip(p=1), grey()):
        expected = part(expected, generator)
    assert torch.equal(made(images(), seeded()), expected)
    nested = registry.build("augments", "chain:[chain([flip(p=1)]),flip(p=1)]")
    assert torch.equal(nested(images(), seeded()), images())


def test_a_chain_refuses_what_is_no_list_of_augments() -> None:
    for spec, message in (
        ("chain:[]", "one augment at least"),
        ("chain:flip", "expected a list"),
        ("chain:[flp]", "did you mean 'flip'"),
        ("chain:[randaugment(magnitude=31)]", "magnitude=31"),
        ("randaugment:magnitude=-1", "magnitude=-1"),
        ("autoaugment:policy=cifar", "did you mean 'cifar10'"),
    ):
        with pytest.raises(UserError, match=message):
            registry.build("augments", spec)


def test_views_are_the_chain_of_their_parts_and_weaken_to_a_flip() -> None:
    whole = chain(["crop(scale_min=.3)", "flip", "jitter", "grey"])
    made = views(scale_min=0.3)
    assert torch.equal(made(images(), seeded()), whole(images(), seeded()))
    weak = made(images(), seeded(), strength=0.0)
    both = torch.stack([images(), images().flip(-1)])
    assert (both - weak).abs().amax((2, 3, 4)).min(0).values.max() < 1e-6
    half = chain(
        [
            f"crop(scale_min=.65,ratio={(4 / 3) ** 0.5})",
            "flip",
            "jitter(brightness=.2,contrast=.2,saturation=.2,hue=.05,p=.4)",
            "grey(p=.1)",
        ]
    )
    assert torch.allclose(made(images(), seeded(), strength=0.5), half(images(), seeded()))
