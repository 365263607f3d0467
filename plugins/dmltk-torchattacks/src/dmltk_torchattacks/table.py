"""How each class of torchattacks is given a goal on embeddings, or why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Way = Literal["exact", "callable", "bank", "noise", "refused"]


@dataclass(frozen=True)
class Row:
    """One class of torchattacks.

    Args:
        way: `exact`: it sees two columns of logits made of the goal's loss, and its steps are
            those it would take on the loss itself; `callable`: it takes the loss as a function;
            `bank`: it attacks the classifier by nearest class centre, and a goal only names the
            class that is aimed at; `noise`: it looks at no model; `refused`: not at all.
        reason: why it is this way.
        norm: of its threat; a class with an argument `norm` chooses between `linf` and `l2`.
        at_clean: it starts at the clean pictures (or has `random_start` to say so).
        gradient_free: it asks for values only.
        rows: where it shows a model several copies of the batch: `each` copies every picture
            before the next one, `tile` the whole batch before it begins anew.
        aims: for a bank: whether it can (`may`), has to (`must`) or cannot (`never`) aim at a
            class.
        classes: for a bank: how many columns it needs.
        single: it takes one picture at a time.
        float32: it computes in float32 only.
        contiguous: it takes contiguous pictures only.
        colour: it takes pictures of three channels only.
        clipped: its pictures leave [0, 1] and are cut there.
        choices: the words that arguments take, where they are not the same in all classes.
        least: the lowest values of counts that have to be above 1.
    """

    way: Way
    reason: str
    norm: Literal["linf", "l2", "none"] = "linf"
    at_clean: bool = False
    gradient_free: bool = False
    rows: Literal["each", "tile"] | None = None
    aims: Literal["may", "must", "never"] = "never"
    classes: int = 2
    single: bool = False
    float32: bool = False
    contiguous: bool = False
    colour: bool = False
    clipped: bool = False
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)


SIGNS = "a sign step, or a normalized one, down the cross-entropy"
MARGIN = "the margin between columns and a success test are inside"
TENTHS = {"max_iterations": 10}

TABLE: dict[str, Row] = {
    # one step, or steps of sign, along the cross-entropy's gradient
    "FGSM": Row("exact", SIGNS, at_clean=True),
    "BIM": Row("exact", SIGNS, at_clean=True),
    "RFGSM": Row("exact", SIGNS),
    "PGD": Row("exact", SIGNS),
    "EOTPGD": Row("exact", SIGNS),
    "FFGSM": Row("exact", SIGNS),
    "MIFGSM": Row("exact", SIGNS, at_clean=True),
    "NIFGSM": Row("exact", SIGNS, at_clean=True),
    "DIFGSM": Row("exact", SIGNS),
    "TIFGSM": Row("exact", SIGNS, float32=True, colour=True),
    "PIFGSM": Row("exact", SIGNS, at_clean=True, float32=True, colour=True),
    "PIFGSMPP": Row("exact", SIGNS, at_clean=True, float32=True, colour=True),
    "PGDL2": Row("exact", SIGNS, norm="l2", contiguous=True),
    "UPGD": Row("callable", "it takes the loss as a function"),
    # the gradients of several points are added: exact since the columns weigh them alike
    "SINIFGSM": Row("exact", "gradients of scaled copies, weighed alike", at_clean=True),
    "VMIFGSM": Row("exact", "gradients of neighbours, weighed alike", at_clean=True),
    "VNIFGSM": Row("exact", "gradients of neighbours, weighed alike", at_clean=True),
    "PGDRS": Row("exact", "gradients under noise, weighed alike", rows="each"),
    "PGDRSL2": Row(
        "exact", "gradients under noise, weighed alike", norm="l2", rows="each", contiguous=True
    ),
    "SPSA": Row("exact", "differences of the margin, linear", gradient_free=True, rows="tile"),
    # a classifier is needed
    "APGD": Row(
        "bank",
        "rows are dropped by a success test",
        choices={"loss": ("ce", "dlr")},
    ),
    "APGDT": Row("bank", "rows are dropped, three further columns looked at", classes=4),
    "AutoAttack": Row(
        "bank", "APGD, APGDT, FAB and Square by turns", classes=4, float32=True, contiguous=True
    ),
    "FAB": Row("bank", "it walks along boundaries of classes", float32=True, contiguous=True),
    "Square": Row(
        "bank",
        "rows are dropped by a success test",
        gradient_free=True,
        aims="may",
        choices={"loss": ("margin", "ce")},
    ),
    "Jitter": Row("bank", "a squared error of scaled probabilities", aims="may"),
    "TPGD": Row("bank", "divergence from the clean probabilities"),
    "CW": Row("bank", MARGIN, norm="none", aims="may"),
    # both write their first step into the clean pictures that they compare with
    "EADL1": Row("bank", MARGIN, norm="none", aims="may", float32=True, clipped=True, least=TENTHS),
    "EADEN": Row("bank", MARGIN, norm="none", aims="may", float32=True, clipped=True, least=TENTHS),
    "DeepFool": Row("bank", "it steps to the nearest boundary of classes", norm="none"),
    "SparseFool": Row(
        "bank", "it steps to the nearest boundary of classes", norm="none", contiguous=True
    ),
    "JSMA": Row(
        "bank", "it needs the Jacobian of all columns", norm="none", aims="must", contiguous=True
    ),
    "OnePixel": Row("bank", "probabilities", norm="none", aims="may", gradient_free=True),
    "Pixle": Row("bank", "probabilities", norm="none", aims="may", gradient_free=True, single=True),
    "GN": Row("noise", "it looks at no model", norm="none", gradient_free=True),
    "VANILA": Row("refused", "it returns the clean pictures: take any attack with eps=0"),
    "MultiAttack": Row(
        "refused",
        "it takes built attacks and stops at the first success: give dmltk several attacks, "
        "the worst case is judged",
    ),
    "LGV": Row(
        "refused",
        "it trains copies of the model by cross-entropy on a data loader: attack a surrogate "
        "model instead",
    ),
}
