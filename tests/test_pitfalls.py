"""What users of the neighbouring projects complained of, line by line, and the test that holds.

Each entry: the complaint in short, and its tests: ``file::function``, or a file with tests that
carry the line's number in their docstring. Where there is none, why.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PITFALLS: dict[int, tuple[str, list[str] | str]] = {
    1: (
        "the model comes back in another mode",
        [
            "attacks/test_guard.py",
            "attacks/test_torchattacks.py::test_the_guard_undoes_what_their_attacks_leave_behind",
        ],
    ),
    2: (
        "which normalisers did the attack use, did it move statistics",
        [
            "training/test_step.py::test_all_attacks_come_before_the_first_training_pass",
            "training/test_step.py::test_an_attack_whose_backward_dies_leaves_every_route_as_it_was",
        ],
    ),
    3: (
        "routing by position in the batch",
        [
            "norms/test_routes.py::test_unknown_routes_are_refused",
            "cli/test_cli.py::test_bn_says_what_routes_share",
        ],
    ),
    4: ("how do I attack an embedding model?", ["test_readme.py::test_python_blocks_run"]),
    5: ("pictures outside [0, 1]", ["attacks/test_attack.py"]),
    6: ("eps=0 is not the clean figure", ["attacks/test_attack.py"]),
    7: ("NaN gradient of a distance at zero", ["attacks/test_goals.py"]),
    8: ("half and double precision", ["attacks/test_attack.py"]),
    9: ("the attack moves the model", ["attacks/test_attack.py"]),
    10: ("parameter gradients pile up", ["attacks/test_guard.py"]),
    11: ("returned tensors keep the graph", ["attacks/test_attack.py"]),
    12: ("the global generator is reseeded", ["attacks/test_guard.py"]),
    13: ("too few classes for a target", ["attacks/test_goals.py"]),
    14: (
        "mean over attacks or worst case",
        ["attacks/test_bounds.py"],
    ),
    15: (
        "success disagrees with re-evaluation",
        ["training/test_run.py::test_success_is_the_share_of_found_queries_that_are_lost"],
    ),
    16: ("the attack dies when saved as 8 bit", ["attacks/test_threat.py"]),
    17: (
        "one pin makes the environment unsolvable",
        ["attacks/test_torchattacks.py"],
    ),
    18: (
        "hidden switches; epochs halved by a name",
        [
            "training/test_run.py::test_a_saved_config_runs_again_to_the_same_figures",
            "training/test_run.py::test_a_config_round_trips_and_may_not_import",
        ],
    ),
    19: ("the model returns a dict or a tuple", ["attacks/test_probe.py"]),
    20: ("called under no_grad", ["attacks/test_attack.py"]),
    21: ("sizes 1, 2, 99; self by distance", ["attacks/test_goals.py"]),
    22: (
        "conversions drop an activation",
        [
            "norms/test_families.py::test_every_route_of_a_new_routed_embedder_is_the_plain_one",
            "norms/test_strategies.py::test_timms_synchronized_norms_get_routes",
            "norms/test_sync.py::test_a_conversion_that_lost_an_activation_is_refused",
        ],
    ),
    23: (
        "conversion changes modes, hooks, flags; twice nests",
        [
            "norms/test_strategies.py::test_modes_and_flags_of_sub_modules_are_kept",
            "norms/test_strategies.py::test_applying_twice_is_refused",
        ],
    ),
    24: (
        "activation checkpointing with a mutable branch",
        ["norms/test_families.py::test_checkpointing_changes_no_gradient_and_no_statistic"],
    ),
    25: ("an unused branch under DDP raises", "training on several devices is not built yet"),
    26: (
        "auxiliary keys do not load elsewhere",
        ["norms/test_families.py::test_merge_gives_what_timm_loads_strictly"],
    ),
    27: (
        "faiss missing or grabbing devices",
        ["evaluation/test_metrics.py::test_faiss_is_asked_for_by_name_and_missing_is_said"],
    ),
    28: (
        "memory blows up with the gallery",
        ["evaluation/test_metrics.py::test_chunks_change_nothing"],
    ),
    29: (
        "what does map@k mean",
        ["evaluation/test_metrics.py::test_map_at_r_is_that_of_sorted_neighbours"],
    ),
    30: (
        "fp16 overflow, dtype of proxies",
        ["losses/test_losses.py::test_half_precision_is_computed_in_float32_without_autocast"],
    ),
    31: (
        "triplets beyond INT_MAX",
        ["losses/test_room.py"],
    ),
    32: (
        "samplers that skip classes or yield ints",
        [
            "data/test_samplers.py::test_an_epoch_is_exact_and_batches_are_full_lists_of_python_ints",
            "data/test_samplers.py::test_classes_and_pictures_come_round_in_turn",
        ],
    ),
    33: (
        "private random state ignores the seed",
        ["losses/test_losses.py::test_proxies_follow_the_seed_and_leave_the_global_generator"],
    ),
    34: ("gathered loss off by the world size", "training on several devices is not built yet"),
    35: (
        "no active pair",
        [
            "losses/test_losses.py::test_no_active_pair_is_counted_and_connected",
            "losses/test_losses.py::test_a_poor_batch_gives_a_finite_connected_loss",
        ],
    ),
    36: (
        "loss weights are not saved",
        ["training/test_run.py::test_resuming_keeps_proxies_and_their_optimizer"],
    ),
    37: (
        "mistyped arguments are dropped",
        ["test_convert.py::test_unknown_and_missing_arguments_are_named"],
    ),
    38: (
        "odd labels",
        [
            "data/test_split.py::test_strings_gaps_and_one_based_labels_become_contiguous",
            "data/test_split.py::test_single_picture_classes_are_counted_in_the_card",
        ],
    ),
}


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_line_is_here() -> None:
    assert sorted(PITFALLS) == list(range(1, 39))


@pytest.mark.parametrize("line", PITFALLS)
def test_a_line_has_its_test_or_a_reason(line: int) -> None:
    _, tests = PITFALLS[line]
    for named in tests if isinstance(tests, list) else ():
        file, colons, function = named.partition("::")
        if colons:
            assert function in functions(HERE / file), named
        else:
            text = (HERE / file).read_text("utf-8")
            lists = re.findall(r"PITFALLS ((?:\d+(?:, | and )?)+)", text)
            assert str(line) in {number for part in lists for number in re.findall(r"\d+", part)}
