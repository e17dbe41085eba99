"""Results of every collective op, by the specification, over element types, sizes, dimensions and groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from collective_programs import CROSS_PARTITION, GLOBAL, Writer, arguments_of_ranks, check

PAIRS = [[0, 2], [2, 3]]
"""Pairs from which neither 0 nor 1 receives."""
GROUPS = [[2, 0], [3, 1]]
FLOATS = ["f32", "f64", "bf16", "f16", "f8E4M3FN", "f8E5M2"]
DTYPES = [*FLOATS, "i8", "i32", "ui64", "i1", "c64", "i4"]


def words_for(dtype: str) -> list[str]:
    """Returns the ops that reduce a dtype."""
    if dtype == "i1":
        return ["and", "or", "add", "xor"]
    return {"c64": ["add", "multiply"]}.get(dtype) or [
        *("add", "maximum", "minimum", "multiply"),
        *([] if dtype in FLOATS else ["and", "or"]),
    ]


def every_op(shape: tuple[int, ...], dtype: str) -> Writer:
    """Writes every op, of a shape whose first extent two ranks can share."""
    p = Writer()
    x, y, roots = p.argument(shape, dtype), p.argument(shape, dtype), p.argument((2,), "i32")
    words = words_for(dtype)
    for word in words:
        p.give(*p.all_reduce([x], word, GROUPS))
    p.give(*p.all_reduce([x, y], words[0], [[0, 1, 2, 3]]))
    p.give(p.all_gather(x, 0, GROUPS))
    p.give(p.reduce_scatter(x, words[0], 0, GROUPS))
    p.give(*p.all_to_all([x, y], 0, 0, GROUPS))
    p.give(*p.broadcast([x], [[2, 0, 1]]), *p.broadcast([x, y], GROUPS, roots=roots))
    p.give(*p.reduce([x], words[0], [[1, 3]]), *p.reduce([x, y], words[-1], GROUPS, roots=roots))
    p.give(*p.permute([x, y], PAIRS), *p.permute([x], [[0, 0], [1, 3], [3, 1]]), *p.permute([x], []))
    p.give(p.all_reduce([x], "first_then_half", GROUPS)[0] if dtype in ("f32", "i32", "bf16") else x)
    p.give(p.cross_replica_sum(x, GROUPS) if dtype != "i1" else x, p.id("replica"), p.id("partition"))
    return p


def with_roots(seed: int, p: Writer, groups: list[list[int]]) -> list[tuple[np.ndarray, ...]]:
    """Returns arguments, the last of which are roots: the same in a group."""
    rng = np.random.default_rng(seed)
    arguments = arguments_of_ranks(seed, sum(map(len, groups)), p.arguments[:-1])
    roots = {r: rng.integers(0, len(g), p.arguments[-1].shape).astype(np.int32) for g in groups for r in g}
    roots |= {r: roots[g[0]] for g in groups for r in g}
    return [(*own, roots[r]) for r, own in enumerate(arguments)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_of_every_dtype(dtype: str) -> None:
    p = every_op((6, 5), dtype)
    check(p.text(), with_roots(0, p, GROUPS), 4, 1, "threads")


SIZES = {
    "no element": (2, 0),
    "an element each": (2, 1),
    "odd": (2 * 1009,),
    "inline": (2048,),
    "one row too much": (2, 1025),
    "in place, in rows": (2, 3, 1001),
}


@pytest.mark.parametrize("size", SIZES)
def test_every_op_of_every_size(size: str) -> None:
    p = every_op(SIZES[size], "f32")
    check(p.text(), with_roots(1, p, GROUPS), 4, 1, "threads")


@pytest.mark.parametrize(
    ("dtype", "shape"), [("f32", (6, 5)), ("bf16", (2, 5003)), ("i4", (2, 20001)), ("c64", (2, 3))]
)
def test_every_op_over_processes(dtype: str, shape: tuple[int, ...]) -> None:
    p = every_op(shape, dtype)
    check(p.text(), with_roots(2, p, GROUPS), 4, 1, "processes")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2,), (2, 4095), (2, 8193), (2, 3, 333), (2, 131072), (2, 1 << 17, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_of_every_dtype_and_size(dtype: str, shape: tuple[int, ...], transport: str) -> None:
    p = every_op(shape, dtype)
    check(p.text(), with_roots(3, p, GROUPS), 4, 1, transport)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_sizes_that_no_count_of_ranks_divides(ranks: int) -> None:
    """Parts of ranks are uneven, or empty."""
    p = Writer()
    xs = [p.argument((n,), "f32") for n in (1, 7, 2048, 2049, 4111, 70001)]
    everybody = [list(range(ranks))]
    for x in xs:
        p.give(*p.all_reduce([x], "add", everybody), p.all_gather(x, 0, everybody))
    p.give(*p.all_reduce(xs, "maximum", everybody))
    check(p.text(), arguments_of_ranks(4, ranks, xs), ranks, 1, "threads")


def test_every_pair_of_dimensions(transport: str) -> None:
    p = Writer()
    x = p.argument((4, 2, 6), "f32")
    for split, concat in itertools.product(range(3), repeat=2):
        p.give(*p.all_to_all([x], split, concat, GROUPS))
    for d in range(3):
        p.give(p.all_gather(x, d, GROUPS), p.reduce_scatter(x, "add", d, GROUPS))
        p.give(p.reduce_scatter(p.all_gather(x, d, [[3, 1, 0, 2]]), "maximum", d, [[1, 0, 3, 2]]))
    check(p.text(), arguments_of_ranks(5, 4, [x]), 4, 1, transport)


@pytest.mark.parametrize("extent", [5, 1500])
def test_strategies(transport: str, extent: int) -> None:
    """Groups of replicas, of partitions, of both, and of flattened ids, on a grid of 2 x 2; inline and in place."""
    p = Writer()
    x = p.argument((4, extent), "f32")
    for word, more, groups in (
        ("add", "", [[1, 0]]),
        ("add", "", [[0], [1]]),
        ("maximum", CROSS_PARTITION, [[1, 0]]),
        ("add", CROSS_PARTITION, [[0], [1]]),
        ("add", GLOBAL, [[3, 0, 1, 2]]),
        ("minimum", GLOBAL, [[2], [0, 3, 1]]),
    ):
        p.give(*p.all_reduce([x], word, groups, more))
    for more, groups, size in (
        ("", [[1, 0]], 2),
        (CROSS_PARTITION, [[1, 0]], 4),
        (CROSS_PARTITION, [[1], [0]], 2),
        (GLOBAL, [[3, 0], [1, 2]], 2),
    ):
        p.give(p.all_gather(x, 1, groups, more, size), p.reduce_scatter(x, "add", 0, groups, more, size))
    for more in ("", CROSS_PARTITION):
        p.give(*p.all_to_all([x], 0, 1, [[1, 0]], more), *p.permute([x], [[0, 1]], more))
        p.give(*p.broadcast([x], [[1, 0]], more), *p.broadcast([x], [[1]], more), *p.broadcast([x], [], more))
    for more in ("", CROSS_PARTITION):
        p.give(*p.reduce([x], "add", [[1, 0]], more), *p.reduce([x], "add", [[0]], more))
    p.give(*p.reduce([x], "add", [[1, 2, 0]], GLOBAL), p.id("replica"), p.id("partition"))
    check(p.text(), arguments_of_ranks(6, 4, [x]), 2, 2, transport)


@pytest.mark.parametrize("extent", [3, 3000])
def test_uneven_groups_and_subsets(transport: str, extent: int) -> None:
    p = Writer()
    x, y = p.argument((extent,), "f32"), p.argument((extent,), "f32")
    for groups in ([[3], [1, 0, 2]], [[2, 1], [3], [0]], [[0, 1, 2, 3]], []):
        p.give(*p.all_reduce([x, y], "add", groups))
    for groups in ([[3, 1]], [[0, 3, 1]], [[1]], [[0, 1], [3, 2]], []):
        p.give(*p.broadcast([x, y], groups), *p.reduce([x, y], "add", groups))
    for pairs in ([[0, 1], [1, 2], [2, 3], [3, 0]], [[3, 3]], [[0, 3], [2, 2]], [[1, 0]]):
        p.give(*p.permute([x, y], pairs))
    check(p.text(), arguments_of_ranks(7, 4, [x, y]), 4, 1, transport)


def test_roots_outside_a_group_are_kept_within_it() -> None:
    p = Writer()
    x, roots = p.argument((3,), "f32"), p.argument((1,), "i32")
    p.give(*p.broadcast([x], [[0, 1, 2]], roots=roots), *p.reduce([x], "add", [[0, 1, 2]], roots=roots))
    arguments = arguments_of_ranks(8, 3, [x])
    for given, kept in ((-7, 0), (99, 2)):
        check_arguments = [(own[0], np.full(1, given, np.int32)) for own in arguments]
        meant = [(own[0], np.full(1, kept, np.int32)) for own in arguments]
        check(p.text(), check_arguments, 3, 1, "threads", meant=meant)


@pytest.mark.parametrize("row", [1, 700])
def test_ragged_all_to_all(transport: str, row: int) -> None:
    """Sends two updates to each member; one row is not sent, and rows of the output stay as they were."""
    p = Writer()
    x, out = p.argument((9, row), "f32"), p.argument((16, row), "f32")
    tables = [p.argument((6,), "i32") for _ in range(4)]
    p.give(p.ragged(x, out, tables, [[2, 0, 1]]))
    sizes = np.array([[1, 2, 0, 3, 2, 1], [2, 0, 1, 1, 1, 4], [0, 0, 3, 1, 4, 1]])
    order = [2, 0, 1]
    arguments = []
    for rank, own in enumerate(arguments_of_ranks(9, 3, [x, out])):
        i = order.index(rank)
        starts = np.concatenate([[0], np.cumsum(sizes[i])[:-1]])
        before = sizes[:i].reshape(-1, 3, 2).sum((0, 2))  # rows that earlier ranks send to each member
        targets = (before[:, None] + np.stack([np.zeros(3, int), sizes[i].reshape(3, 2)[:, 0]], 1)).reshape(-1)
        received = sizes.reshape(3, 3, 2)[:, i].reshape(-1)
        arguments.append((*own, *(np.array(t, np.int32) for t in (starts, sizes[i], targets, received))))
    check(p.text(), arguments, 3, 1, transport)


@pytest.mark.parametrize("word", ["larger_or_half", "doubled_up_to", "placed_in_a_tensor"])
@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_regions_of_more_than_arithmetic(word: str, dtype: str) -> None:
    """Conditions, loops and tensors in the region: parts are combined in the order of the group."""
    p = Writer()
    x, y = p.argument((4, 6), dtype), p.argument((5,), dtype)
    p.give(*p.all_reduce([x, y], word, GROUPS), *p.all_reduce([x], word, [[3, 1, 0, 2]]))
    p.give(p.reduce_scatter(x, word, 0, GROUPS), p.reduce_scatter(x, word, 1, [[2], [0], [3], [1]]))
    p.give(p.reduce_scatter(x, word, 1, GROUPS))
    check(p.text(), arguments_of_ranks(3, 4, p.arguments), 4, 1, "threads")
