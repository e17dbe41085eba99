"""Process grids: the strategies, ids, axes of meshes, pairs, and ops that do not fit the grid."""

from __future__ import annotations

import itertools
import math
import random
import re

import numpy as np
import pytest
from alone import main_of, module_of, on_grid
from grid_meaning import Grid
from refusing import refused

import shlo_jit
from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.equality import equal_modules
from shlo_jit.passes import core_functions
from shlo_jit.passes.context import NO_CHANNELS, Channels
from shlo_jit.passes.frontend.process_grid import process_grid

T = "tensor<4xi32>"
ADD = """({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  })"""
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
GLOBAL = f"{CHANNEL}, use_global_device_ids"


def program(op: str, types: str = f"({T}) -> {T}", arguments: str = f"%x: {T}", more: str = "") -> str:
    result = types.rpartition("-> ")[2]
    return f"{more}func.func @main({arguments}) -> {result} {{\n  %r = {op} : {types}\n  return %r : {result}\n}}"


def after(text: str, replicas: int, partitions: int, channels: Channels = NO_CHANNELS) -> Op:
    return on_grid(text, process_grid, replicas, partitions, channels)


def groups_text(groups: list[list[int]]) -> str:
    longest = max(map(len, groups), default=0)
    rows = [g + [-1] * (longest - len(g)) for g in groups]
    return f"dense<{rows if rows else ''}> : tensor<{len(rows)}x{longest}xi64>"


def named(function: Op) -> list[list[int]]:
    """Returns the groups or pairs of the one collective op of a function."""
    found = [
        op.attributes.get("replica_groups", op.attributes.get("source_target_pairs")) for op in walk(function.block())
    ]
    (dense,) = [f for f in found if f is not None]
    return dense.array.tolist()


def names(function: Op) -> list[str]:
    return [op.name.partition(".")[2] for op in walk(function.block()) if op.name != "func.return"]


REDUCE = f'"stablehlo.all_reduce"(%x) {ADD} {{replica_groups = GROUPS, MORE}}'
BROADCAST = '"stablehlo.collective_broadcast"(%x) {replica_groups = GROUPS, MORE}'
PERMUTE = '"stablehlo.collective_permute"(%x) {source_target_pairs = GROUPS, MORE}'


def op_text(op: str, groups: list[list[int]], more: str) -> str:
    return op.replace("GROUPS", groups_text(groups)).replace(", MORE", f", {more}" if more else "")


# The examples of the specification with 4 replicas and 2 partitions; (r, p) is the process 2 r + p
@pytest.mark.parametrize(
    ("op", "groups", "more", "expected"),
    [
        (REDUCE, [[0, 1], [2, 3]], "", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (BROADCAST, [[0, 1]], CHANNEL, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (REDUCE, [[0, 1], [2, 3]], CHANNEL, [[0, 2, 1, 3], [4, 6, 5, 7]]),
        (REDUCE, [[0, 1, 2, 3], [4, 5, 6, 7]], GLOBAL, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (REDUCE, [[0, 1, 2], [3]], "", [[0, 2, 4], [1, 3, 5], [6, -1, -1], [7, -1, -1]]),
        (REDUCE, [], "", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (REDUCE, [], CHANNEL, [[0, 2, 4, 6, 1, 3, 5, 7]]),
        (BROADCAST, [[2, 1]], "", [[4, 2], [5, 3]]),
        (PERMUTE, [[0, 1], [1, 2]], "", [[0, 2], [1, 3], [2, 4], [3, 5]]),
        (PERMUTE, [[0, 1]], CHANNEL, [[0, 1], [2, 3], [4, 5], [6, 7]]),
    ],
)  # fmt: skip
def test_strategies(op: str, groups: list[list[int]], more: str, expected: list[list[int]]) -> None:
    assert named(after(program(op_text(op, groups, more)), 4, 2)) == expected


def random_groups(rng: random.Random, count: int, uneven: bool, partial: bool) -> list[list[int]]:
    ids = rng.sample(range(count), count)
    if partial:
        ids = ids[: rng.randint(0, count)]
    if uneven:
        cuts = sorted({0, len(ids), *(rng.randint(0, len(ids)) for _ in range(2))})
        return [ids[a:b] for a, b in itertools.pairwise(cuts)]
    size = rng.choice([n for n in range(1, len(ids) + 1) if len(ids) % n == 0] or [1])
    return [ids[i : i + size] for i in range(0, len(ids), size)]


OPS = {
    "all_reduce": (f"(%x) {ADD}", ""),
    "collective_reduce": (f"(%x) {ADD}", ""),
    "collective_broadcast": ("(%x)", ""),
    "cross-replica-sum": ("(%x)", ""),
    "all_gather": ("(%x)", "all_gather_dim = 0 : i64, "),
    "reduce_scatter": (f"(%x) {ADD}", "scatter_dimension = 0 : i64, "),
    "all_to_all": ("(%x)", "split_dimension = 0 : i64, concat_dimension = 0 : i64, "),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_on_the_grid_equals_the_op_on_process_numbers(name: str) -> None:
    """Random grids and groups, compared with the text of the specification (`grid_meaning.py`)."""
    rng = random.Random(name)
    shared = name in ("all_reduce", "all_gather", "reduce_scatter", "collective_reduce")
    kept = 0
    for _ in range(40):
        replicas, partitions = rng.randint(1, 4), rng.randint(1, 4)
        channels = [""] if name == "cross-replica-sum" else ["", CHANNEL, *([GLOBAL] if shared else [])]
        channel = rng.choice(channels)
        count = replicas if not channel or (shared and channel == CHANNEL) else partitions
        count = replicas * partitions if channel == GLOBAL else count
        groups = random_groups(rng, count, name == "all_reduce", name in ("collective_broadcast", "collective_reduce"))
        if channel == GLOBAL and not groups:  # which the verifier refuses
            continue
        size = len(groups[0]) * (partitions if shared and channel == CHANNEL else 1) if groups else 1
        before = 12 * size if name in ("reduce_scatter", "all_to_all") else 12
        result = {"all_gather": 12 * size, "reduce_scatter": 12}.get(name, before)
        operands, extra = OPS[name]
        extra += f"split_count = {size} : i64, " if name == "all_to_all" else ""
        more = f", {channel}" if channel else ""
        op = f'"stablehlo.{name}"{operands} {{{extra}replica_groups = {groups_text(groups)}{more}}}'
        text = program(op, f"(tensor<{before}xi32>) -> tensor<{result}xi32>", f"%x: tensor<{before}xi32>")
        function = after(text, replicas, partitions)
        kept += any(n in OPS for n in names(function))
        n = replicas * partitions
        arguments = [[np.arange(p * 1000, p * 1000 + before, dtype=np.int32)] for p in range(n)]
        want = Grid(replicas, partitions).run(main_of(text)[0], arguments)
        got = Grid(n, 1).run(function, arguments)
        np.testing.assert_array_equal(got, want, err_msg=text)
        again = process_grid(function, main_of(text)[1]._replace(num_replicas=n))
        assert equal_modules(module_of(again), module_of(function)), "numbers are the ids of a grid of one partition"
    assert kept > 10


@pytest.mark.parametrize(("replicas", "partitions"), [(1, 1), (1, 3), (3, 1), (2, 3)])
def test_ids(replicas: int, partitions: int) -> None:
    body = "%p = stablehlo.partition_id : tensor<ui32>\n%q = stablehlo.replica_id : tensor<ui32>"
    text = (
        f"func.func @main() -> (tensor<ui32>, tensor<ui32>) {{\n{body}\nreturn %p, %q : tensor<ui32>, tensor<ui32>\n}}"
    )
    function = after(text, replicas, partitions)
    n = replicas * partitions
    got = Grid(n, 1).run(function, [[]] * n)
    assert [(int(r), int(p)) for p, r in got] == list(itertools.product(range(replicas), range(partitions)))
    assert names(function).count("divide") + names(function).count("remainder") == (
        2 if (replicas, partitions) == (2, 3) else 0
    )


def test_alone_or_left_out() -> None:
    """Groups of one member pass values on, as do processes that send to themselves; processes without a group get
    zeros."""
    assert names(after(program(op_text(REDUCE, [[1], [0]], "")), 2, 1)) == []
    assert names(after(program(op_text(REDUCE, [[1], [0]], CHANNEL)), 2, 2)) == ["all_reduce", "add", "return"]
    assert names(after(program(op_text(BROADCAST, [[1], [0]], "")), 2, 2)) == []
    assert names(after(program(op_text(BROADCAST, [[1]], "")), 2, 1)) == ["collective_broadcast"]
    assert names(after(program(op_text(BROADCAST, [], "")), 2, 1)) == ["constant"]
    assert names(after(program(op_text(PERMUTE, [[1, 1], [0, 0]], "")), 2, 1)) == []
    assert names(after(program(op_text(PERMUTE, [[1, 1]], "")), 2, 1)) == ["collective_permute"]
    assert names(
        after(program('"stablehlo.collective_permute"(%x) {source_target_pairs = dense<> : tensor<0x2xi64>}'), 2, 1)
    ) == ["constant"]


def test_attributes_that_are_kept() -> None:
    op = f'"stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, {GLOBAL}}}'
    (gather, _) = after(program(op, f"({T}) -> tensor<8xi32>"), 1, 2).block().ops
    assert list(gather.attributes) == ["all_gather_dim", "replica_groups"]
    promoted = REDUCE.replace("tensor<i32>", "tensor<i64>")
    function = after(program(op_text(promoted, [[0]], ""), f"({T}) -> tensor<4xi64>"), 1, 1)
    assert names(function) == ["convert"]


# ---------------------------------------------------------------------------- axes of meshes
def mesh_op(axes: str) -> str:
    groups = f"#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [{axes}]>"
    return f'"stablehlo.all_reduce"(%x) {ADD} {{replica_groups = {groups}, {GLOBAL}}}'


def axis(name: str, part: str = "") -> str:
    return f'#stablehlo.axis_ref<name = "{name}"{f", sub_axis_info = {part}" if part else ""}>'


@pytest.mark.parametrize(
    ("mesh", "axes", "expected"),
    [
        ('<["x"=2, "y"=3]>', [axis("y")], [[0, 1, 2], [3, 4, 5]]),
        ('<["x"=2, "y"=3]>', [axis("x")], [[0, 3], [1, 4], [2, 5]]),
        ('<["x"=2, "y"=3]>', [axis("y"), axis("x")], [[0, 3, 1, 4, 2, 5]]),
        ('<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>', [axis("y")], [[3, 2], [1, 0]]),
        ('<["x"=4]>', [axis("x", "(1)2")], [[0, 2], [1, 3]]),
        ('<["x"=4]>', [axis("x", "(2)2")], [[0, 1], [2, 3]]),
        ('<["x"=8]>', [axis("x", "(4)2"), axis("x", "(1)2")], [[0, 4, 1, 5], [2, 6, 3, 7]]),
        ('<["x"=8, "y"=1]>', [axis("x", "(1)4"), axis("y")], [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ],
)  # fmt: skip
def test_axes_of_meshes(mesh: str, axes: list[str], expected: list[list[int]]) -> None:
    text = program(mesh_op(", ".join(axes)), more=f"sdy.mesh @mesh = {mesh}\n")
    count = len(list(itertools.chain(*expected)))
    assert named(after(text, 1, count)) == expected
    entries = ", ".join(f'{{name = "{n}", size = {k} : i64}}' for n, k in re.findall(r'"(\w)"=(\d)', mesh))
    ids = re.search(r"device_ids=\[(.*)\]", mesh)
    given = f", device_ids = dense<[{ids[1]}]> : tensor<{count}xi64>" if ids else ""
    other = f'"test.mesh"() {{sym_name = "mesh", stablehlo.mesh = {{axes = [{entries}]{given}}}}} : () -> ()\n'
    function, context = main_of(text.replace(f"sdy.mesh @mesh = {mesh}\n", other))
    assert named(process_grid(function, context._replace(num_partitions=count))) == expected


def test_axes_of_random_meshes() -> None:
    """Members of a group differ along the axes named, in their order; compared with coordinates counted separately."""
    rng = random.Random(0)
    for _ in range(30):
        sizes = {name: rng.randint(1, 3) for name in "xyz"[: rng.randint(1, 3)]}
        chosen = rng.sample(list(sizes), rng.randint(1, len(sizes)))
        mesh = "<[" + ", ".join(f'"{n}"={k}' for n, k in sizes.items()) + "]>"
        count = math.prod(sizes.values())
        if math.prod(sizes[n] for n in chosen) == 1:
            continue
        text = program(mesh_op(", ".join(map(axis, chosen))), more=f"sdy.mesh @mesh = {mesh}\n")
        groups: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
        for number, place in enumerate(itertools.product(*map(range, sizes.values()))):
            at = dict(zip(sizes, place, strict=True))
            inside, outside = tuple(at[n] for n in chosen), tuple(at[n] for n in sizes if n not in chosen)
            groups.setdefault(outside, {})[inside] = number
        assert named(after(text, 1, count)) == [[g[k] for k in sorted(g)] for g in groups.values()]


def test_a_program_with_axes_of_a_mesh_is_valid_after_every_pass() -> None:
    """The passes before `process_grid` keep the name of the mesh, which stands in the module beside the function."""
    text = program(mesh_op(axis("x")), more='sdy.mesh @mesh = <["x"=2]>\n')
    module = shlo_jit.parse(text)
    seen = []
    core_functions(module, module.function("main"), num_partitions=2, on_pass=lambda name, _: seen.append(name))
    assert "without_shape_operands" in seen


def test_a_mesh_of_partitions_is_repeated_in_every_replica() -> None:
    text = program(mesh_op(axis("x")), more='sdy.mesh @mesh = <["x"=2]>\n')
    assert named(after(text, 2, 2)) == [[0, 1], [2, 3]]
    text = program(mesh_op(axis("x")), more='sdy.mesh @mesh = <["x"=2, "y"=2]>\n')
    assert named(after(text, 2, 2)) == [[0, 2], [1, 3]]


# ---------------------------------------------------------------------------- send, recv
def transfers(more: str, kind: tuple[int, int] = (1, 1)) -> str:
    channel = "channel_handle = #stablehlo.channel_handle<handle = 5, type = {}>"
    return f"""func.func @main(%x: {T}) -> {T} {{
      %t = stablehlo.create_token : !stablehlo.token
      %u = "stablehlo.send"(%x, %t) {{{channel.format(kind[0])}{more}}} : ({T}, !stablehlo.token) -> !stablehlo.token
      %y, %v = "stablehlo.recv"(%u) {{{channel.format(kind[1])}{more}}} : (!stablehlo.token) -> ({T}, !stablehlo.token)
      return %y : {T}
    }}"""


def calls(function: Op) -> list[tuple[str, dict[str, object]]]:
    found = []
    for op in function.block().ops[:-1]:
        config = op.attributes["backend_config"]
        assert isinstance(config, DictAttr) and op.attributes["has_side_effect"]
        pairs = config.get("source_target_pairs")
        found.append((op.attributes["call_target_name"], None if pairs is None else pairs.array.tolist()))
    return found


def test_transfers() -> None:
    pairs = ", source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>"
    both = [[0, 1], [2, 3]]
    assert calls(after(transfers(pairs), 2, 2)) == [("shlo_jit.send", both), ("shlo_jit.recv", both)]
    channels = {5: ((0, 3), (1, 2))}
    both = [[0, 3], [1, 2]]
    assert calls(after(transfers(""), 4, 1, channels)) == [("shlo_jit.send", both), ("shlo_jit.recv", both)]
    host = transfers(", is_host_transfer = true", (2, 3))
    assert calls(after(host, 4, 1, channels)) == [("shlo_jit.send", both), ("shlo_jit.recv", both)]
    assert calls(after(host, 4, 1)) == [("stablehlo.send", None), ("stablehlo.recv", None)]


# ---------------------------------------------------------------------------- refusals
GATHER = '"stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = GROUPS, MORE}'
SCATTER = f'"stablehlo.reduce_scatter"(%x) {ADD} {{scatter_dimension = 0 : i64, replica_groups = GROUPS, MORE}}'
ALL_TO_ALL = """"stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64,
  split_count = 2 : i64, replica_groups = GROUPS, MORE}"""
SAME = f"({T}) -> {T}"


@pytest.mark.parametrize(
    ("grid", "op", "groups", "more", "types", "shows"),
    [
        ((1, 1), REDUCE, [[0, 1]], "", SAME, "process 1"),
        ((2, 2), BROADCAST, [[1, 2]], "", SAME, "replica 2"),
        ((2, 1), BROADCAST, [[0, 1]], CHANNEL, SAME, "partition 1"),
        ((2, 2), REDUCE, [[0, 1, 2, 3, 4]], GLOBAL, SAME, "process 4"),
        ((2, 2), PERMUTE, [[0, 2]], "", SAME, "replica 2"),
        ((3, 1), REDUCE, [[0, 1]], "", SAME, "replica 2"),
        ((1, 4), REDUCE, [[0, 1]], GLOBAL, SAME, "process 2"),
        ((2, 1), GATHER, [[0, 1]], "", f"({T}) -> tensor<12xi32>",
         "group of 2 processes"),
        ((1, 1), GATHER, [[0]], "", f"({T}) -> tensor<8xi32>", "group of one process"),
        ((2, 2), GATHER, [[0, 1]], CHANNEL, f"({T}) -> tensor<8xi32>", "group of 4 processes"),
        ((3, 1), SCATTER, [[0, 1, 2]], "", f"({T}) -> tensor<2xi32>",
         "group of 3 processes"),
        ((2, 1), ALL_TO_ALL, [[0, 1]], CHANNEL, SAME, "partition 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_grid(grid, op, groups, more, types, shows) -> None:
    with refused(shlo_jit.UnsupportedError, "process-groups", (2, 8), shows):
        after(program(op_text(op, groups, more), types), *grid)


@pytest.mark.parametrize(
    ("mesh", "axes", "shows"),
    [
        ('sdy.mesh @mesh = <["x"=3]>', axis("x"), "3 devices"),
        ('sdy.mesh @mesh = <["x"=4]>', axis("y"), "got y"),
        ('sdy.mesh @mesh = <["x"=4]>', "0 : i64", "@mesh"),
        ('sdy.mesh @mesh = <["x"=4]>', axis("x", "(1)3"), "(1)3"),
        ('sdy.mesh @mesh = <["x"=4]>', axis("x", "(1)8"), "(1)8"),
        ('sdy.mesh @mesh = <["x"=4]>', f"{axis('x')}, {axis('x', '(2)2')}", "@mesh"),
        ('sdy.mesh @mesh = <["x"=4], device_ids=[0, 1, 2, 7]>', axis("x"), "partition 7"),
        ('sdy.mesh @mesh = <["x"=4], device_ids=[0, 1]>', axis("x"), "@mesh"),
        ("func.func private @mesh()", axis("x"), "@mesh"),
    ],
)  # fmt: skip
def test_axes_that_do_not_fit_the_mesh(mesh: str, axes: str, shows: str) -> None:
    with refused(shlo_jit.UnsupportedError, "process-groups", (3, 8), shows):
        after(program(mesh_op(axes), more=mesh + "\n"), 1, 4)
    if shows == "3 devices":
        with refused(shlo_jit.UnsupportedError, "process-groups", (3, 8), shows):
            after(program(mesh_op(axes), more=mesh + "\n"), 1, 1)


def test_transfers_without_an_other_end() -> None:
    with refused(shlo_jit.UnsupportedError, "process-groups", shows="send") as caught:
        after(transfers(""), 2, 1)
    assert "channel 5" in caught.value.diagnostics[0].hint and caught.value.line == 3
    with refused(shlo_jit.UnsupportedError, "process-groups", shows="process 2"):
        after(transfers(""), 2, 1, {5: ((0, 2),)})
    with refused(shlo_jit.UnsupportedError, "process-groups", shows="one process"):
        after(transfers(""), 1, 1)


# ---------------------------------------------------------------------------- ragged_all_to_all
TABLES = "%i: tensor<{n}xi32>, %s: tensor<{n}xi32>, %o: tensor<{n}xi32>, %q: tensor<{n}xi32>"


def ragged(n: str, groups: str, rows: int, more: str = "channel_id = 1 : i64, ", out: str = "tensor<4x2xf32>") -> str:
    given = ", ".join([f"tensor<{rows}x2xf32>", out, *[f"tensor<{n}xi32>"] * 4])
    arguments = f"%x: tensor<{rows}x2xf32>, %y: {out}, " + TABLES.format(n=n)
    config = f"backend_config = {{{more}replica_groups = dense<{groups}>}}"
    op = f"stablehlo.custom_call @ragged_all_to_all(%x, %y, %i, %s, %o, %q) {{api_version = 4 : i32, {config}}}"
    return program(op, f"({given}) -> {out}", arguments)


def test_ragged_all_to_all_of_one() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2) + 1, -np.ones((4, 2), np.float32)
    cases = [([0], [3], [1]), ([1], [2], [0]), ([2], [0], [3]), ([0], [0], [0])]
    cases += [([0, 2, 1], [2, 1, 0], [0, 3, 2]), ([2, 1], [1, 2], [1, 1]), ([], [], [])]
    for starts, sizes, targets in cases:
        text = ragged(str(len(starts)), "[[0]]> : tensor<1x1xi64", 3)
        tables = [np.array(t, np.int32) for t in (starts, sizes, targets, sizes)]
        want = y.copy()
        for a, n, b in zip(starts, sizes, targets, strict=True):
            want[b : b + n] = x[a : a + n]
        np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x, y, *tables), want)


def test_ragged_all_to_all_of_two() -> None:
    """The example of XLA's documentation, with rows of two numbers."""
    text = ragged("2", "[[0, 1]]> : tensor<1x2xi64", 3)
    own = [
        ([1, 2, 2], [0, 1], [1, 2], [0, 0], [1, 1]),
        ([3, 4, 0], [0, 1], [1, 1], [1, 2], [2, 1]),
    ]
    arguments = [
        [np.repeat(np.array(x, np.float32)[:, None], 2, 1), np.zeros((4, 2), np.float32), *np.array(t, np.int32)]
        for x, *t in own
    ]
    function = after(text, 1, 2)
    got = Grid(2, 1).run(function, arguments)
    assert [out[0][:, 0].tolist() for out in got] == [[1, 3, 0, 0], [2, 2, 4, 0]]
    call = next(op for op in function.block().ops if op.name == "stablehlo.custom_call")
    config = call.attributes["backend_config"]
    assert [k for k, _ in config.items] == ["replica_groups"] and call.attributes["has_side_effect"] is True
    assert [str(v.tensor.dtype) for v in call.operands[2:]] == ["i64"] * 4


@pytest.mark.parametrize("n", ["2x3", "6"])
def test_several_updates_to_each_member(n: str) -> None:
    rng = np.random.default_rng(1)
    text = ragged(n, "[[1, 0]]> : tensor<1x2xi64", 5, "")
    shape = tuple(map(int, n.split("x")))
    arguments = [
        [rng.random((5, 2), np.float32), np.zeros((4, 2), np.float32), *rng.integers(0, 2, (4, *shape), np.int32)]
        for _ in range(4)
    ]
    want = Grid(2, 2).run(main_of(text)[0], arguments)
    got = Grid(4, 1).run(after(text, 2, 2), arguments)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("text", "grid", "shows"),
    [
        (ragged("2", "[[0, 1]]> : tensor<1x2xi64", 3), (1, 1), "process 1"),
        (ragged("2", "[[0, 1]]> : tensor<1x2xi64", 3), (1, 3), "partition 2"),
        (ragged("3", "[[0, 1]]> : tensor<1x2xi64", 3), (1, 2), "3 offsets"),
        (ragged("3", "[[0, 1], [2, -1]]> : tensor<2x2xi64", 3), (1, 3), "sizes"),
    ],
)  # fmt: skip
def test_ragged_all_to_all_that_does_not_fit(text: str, grid: tuple[int, int], shows: str) -> None:
    with refused(shlo_jit.UnsupportedError, "process-groups", (2, 8), shows):
        after(text, *grid)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ragged("2", "[0, 1]> : tensor<2xi64", 3), "needs 'replica_groups', a matrix of integers"),
        (ragged("2", "[[0, 1]]> : tensor<1x2xi64", 3, 'channel_id = "a", '), "'channel_id' of the backend_config must be int"),
        (ragged("2", "[[0, 1]]> : tensor<1x2xi64", 3, out="tensor<4x3xf32>"), "expected input and output of rows of one"),
        (ragged("2", "[[0, 1]]> : tensor<1x2xi64", 3).replace("%s: tensor<2xi32>", "%s: tensor<3xi32>").replace(
            "tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)", "tensor<2xi32>, tensor<3xi32>, tensor<2xi32>, "
            "tensor<2xi32>)"), "expected offsets and sizes of one shape"),
        (re.sub("(->|return %r :) tensor<4x2xf32>", r"\1 tensor<5x2xf32>", ragged("2", "[[0, 1]]> : tensor<1x2xi64", 3)),
         "expected the result 'tensor<4x2xf32>', got 'tensor<5x2xf32>'"),
    ],
)  # fmt: skip
def test_ragged_all_to_all_that_is_no_call(text: str, message: str) -> None:
    (found,) = shlo_jit.verify(text)
    assert message in found.message and (found.line, found.column) == (2, 8)
