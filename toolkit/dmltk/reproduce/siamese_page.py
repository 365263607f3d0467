"""The Siamese page: small networks on drawn shapes, and what nearest neighbours say of them."""

from __future__ import annotations

import torch

from dmltk import registry
from dmltk.data.shapes import KINDS
from dmltk.evaluation.neighbours import shares, tightness
from dmltk.reproduce.siamese import Page, Space
from dmltk.reproduce.table import Row, claim

STALLS = {0.5: 0.0870, 2.0: 1.3913, 4.0: 5.5652}
"""The value at which a margin's loss stands when all meet: (192 / 276) · margin² / 2."""


def rows(page: Page) -> list[Row]:
    """The page's table, ours beside it."""
    pairs, named, pixels = page.siamese(), page.classifier(), page.pixels()
    return [
        *_exact(),
        *_pairs_seen(pairs),
        *_pixels(pixels),
        *_neighbours(pairs, named, pixels),
        *_distractors(pairs),
        *_tightness(pairs, named),
        *_held_out(page, pairs, named),
        *_margins(page, pixels),
        *_pulls(page, pairs),
    ]


def _exact() -> list[Row]:
    loss = registry.build("losses", "hadsell")
    z = torch.tensor([[0.0, 0.0], [0.36, 0.48]], dtype=torch.float64)
    like, unlike = (loss(z, labels=torch.tensor(labels)).item() for labels in ([0, 0], [0, 1]))
    labels = registry.build("datasets", "shapes").train.labels
    same = int((labels[:, None] == labels).sum() - len(labels)) // 2
    pairs = len(labels) * (len(labels) - 1) // 2
    counted = f"{pairs} = {same} + {pairs - same}"
    return [
        Row("worked pair: like, unlike", ".18, .08", (f"{like:.4g}, {unlike:.4g}",), "exact"),
        Row("pairs of 180 pictures", "16110 = 5310 + 10800", (counted,), "exact"),
    ]


def _pairs_seen(pairs: list[Space]) -> list[Row]:
    losses = [(space.log[0]["loss"], space.log[-1]["loss"]) for space in pairs]
    return [
        claim(
            "loss of the first and last epoch",
            ".1351, .0122",
            losses,
            lambda value: value[1] < value[0] / 5,
            lambda value: f"{value[0]:.4f}, {value[1]:.4f}",
        ),
        claim(
            "unlike pairs past the margin in the last epoch",
            ".7909",
            [space.last["past_margin"] for space in pairs],
            lambda value: value > 0.5,
            lambda value: f"{value:.4f}",
            "most pushes are dead",
        ),
    ]


def _pixels(pixels: Space) -> list[Row]:
    counts = ", ".join(str(count) for count in pixels.counts.values())
    return [
        Row("pixels: nearest of 300 is of its kind", "45, 38, 50, 54, 44", (counts,), "weights"),
        Row(
            "pixels: among the three known kinds, of 180",
            "144",
            (str(sum(pixels.counts_known.values())),),
            "weights",
        ),
    ]


def _neighbours(pairs: list[Space], named: list[Space], pixels: Space) -> list[Row]:
    known = [
        (sum(p.counts_known.values()), sum(c.counts_known.values()))
        for p, c in zip(pairs, named, strict=True)
    ]
    found = [
        claim(
            "three known kinds, of 180: pairs / classifier",
            "171/157/178 and 179/174/176",
            known,
            lambda value: abs(value[0] - value[1]) <= 0.12 * 180,
            lambda value: f"{value[0]} / {value[1]}",
            "about alike",
        )
    ]
    for kind, published in (("bar", "33/27/34 and 52/51/53"), ("ring", "33/33/39 and 46/51/43")):
        values = [(p.counts[kind], c.counts[kind]) for p, c in zip(pairs, named, strict=True)]
        found.append(
            claim(
                f"unseen {kind}, of 60: pairs / classifier",
                published,
                values,
                lambda value: value[0] < value[1],
                lambda value: f"{value[0]} / {value[1]}",
                f"fewer by pairs; pixels find {pixels.counts[kind]}",
            )
        )
    return found


def _distractors(pairs: list[Space]) -> list[Row]:
    values = [(space.counts_known["cross"], space.counts["cross"]) for space in pairs]
    return [
        claim(
            "crosses, of 60: without / with unseen kinds beside them",
            "56 / 39",
            values,
            lambda value: value[1] < value[0],
            lambda value: f"{value[0]} / {value[1]}",
            "unseen kinds spoil seen ones",
        )
    ]


def _tightness(pairs: list[Space], named: list[Space]) -> list[Row]:
    ring = KINDS.index("ring")
    values = [
        tuple(tightness(space.positions, space.labels)[ring] for space in both)
        for both in zip(pairs, named, strict=True)
    ]
    return [
        claim(
            "ring: mean distance inside / to others, pairs / classifier",
            ".5230/.5984 .4431/.6945 .3532/.7923",
            values,
            lambda value: value[0] < value[1],
            lambda value: f"{value[0]:.3f} / {value[1]:.3f}",
            "pairs look tighter where nearest neighbours say the opposite: a margin enlarges all",
        )
    ]


def _held_out(page: Page, pairs: list[Space], named: list[Space]) -> list[Row]:
    """Each kind held out in turn; and answers of sixteen numbers, as wide as the classifier's."""
    wide = page.siamese(dim=16)
    found = [
        claim(
            "answers of 16 numbers: unseen bar and ring, pairs / classifier",
            "31 and 43 of 60, beside 33 of each by 8 numbers",
            [
                tuple(space.counts[kind] for space in both for kind in ("bar", "ring"))
                for both in zip(wide, named, strict=True)
            ],
            lambda value: value[0] < value[2],
            lambda value: f"{value[0]}, {value[1]} / {value[2]}, {value[3]}",
            "the width changes nothing for the bar",
        )
    ]
    for kind in KINDS[:4]:
        mine = pairs if kind == "bar" else page.siamese(held=kind)
        other = named if kind == "bar" else page.classifier(held=kind)
        values = [(p.counts[kind], c.counts[kind]) for p, c in zip(mine, other, strict=True)]
        total = sum(value[0] for value in values), sum(value[1] for value in values)
        found.append(
            Row(
                f"{kind} held out, of 60: pairs / classifier",
                "31 and 33 (bar)" if kind == "bar" else "below",
                tuple(f"{value[0]} / {value[1]}" for value in values),
                "claim",
                (total[0] < total[1],),
                "by the sum over seeds",
            )
        )
    return found


def _margins(page: Page, pixels: Space) -> list[Row]:
    found = []
    for margin in (1.0, 2.0, 4.0):
        spaces = page.siamese() if margin == 1 else page.scaled(margin)
        found.append(
            claim(
                f"margin {margin:g} at lr/m²: loss/m², rings of 60",
                "every margin trains",
                [(space.log[-1]["loss"], space.counts["ring"]) for space in spaces],
                lambda value: value[0] < 0.1 and value[1] <= pixels.counts["ring"],
                lambda value: f"{value[0]:.4f}, {value[1]}",
                f"and none finds more rings than pixels, {pixels.counts['ring']}",
            )
        )
    for margin, rate in ((2.0, 1.0), (4.0, 1.0), (0.5, 4.0)):
        stall = STALLS[margin]
        found.append(
            claim(
                f"margin {margin:g} at {rate:g} times the learning rate: last loss",
                f"stands at {stall:.4f}" + (" for one seed of three" if margin < 1 else ""),
                [space.log[-1]["loss"] for space in page.siamese(margin, lr=rate)],
                lambda value, stall=stall: abs(value - stall) < 0.02 * stall,  # type: ignore[misc]
                lambda value: f"{value:.4f}",
                "a matter of step size: from calm weights it does not collapse",
            )
        )
    return found


def _pulls(page: Page, pairs: list[Space]) -> list[Row]:
    pulled = page.pulled()
    losses = [(p.log[-1]["loss"], o.log[-1]["loss"]) for p, o in zip(pulled, pairs, strict=True)]
    apart = [space.last["mean_distance"] for space in pulled]
    share = [sum(shares(s.positions, s.labels, 10).values()) / len(KINDS) for s in pulled]
    return [
        claim(
            "pulls alone: mean distance",
            ".7325 falls to .0018",
            apart,
            lambda value: value < 0.1,
            lambda value: f"{value:.4f}",
            "all positions meet",
        ),
        claim(
            "pulls alone: loss beside the ordinary one",
            "7.8e-6 and .0122",
            losses,
            lambda value: value[0] < value[1],
            lambda value: f"{value[0]:.2g} and {value[1]:.2g}",
            "better all the time",
        ),
        claim(
            "pulls alone: share of own kind among the ten nearest",
            ".29 .30 .26; chance is .2",
            share,
            lambda value: value < 0.5,
            lambda value: f"{value:.2f}",
        ),
    ]
