"""Loop nests: the variable along the lanes, width, unrolling, tasks, stashed and prefetched values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from decisions import AVX2, AVX512, SSE, decides, main, note, tensor, the_schedule

import shlo_jit
from shlo_jit import tuning
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.nest import NestSchedule


def nest(text: str, target: Target = AVX512) -> NestSchedule:
    found = the_schedule(text, target)
    assert isinstance(found, NestSchedule)
    return found


def chain(n: int, count: int, dtype: str = "f32", op: str = "negate") -> str:
    """Returns a program of `count` ops, one after the other, on n elements."""
    t = tensor(n, dtype=dtype)
    names = ["%x", *(f"%v{i}" for i in range(count - 1)), "%y"]
    return main(f"%x: {t}", t, *(f"{b} = stablehlo.{op} {a} : {t}" for a, b in itertools.pairwise(names)))


def reduction(shape: tuple[int, ...], dims: str, body: str = "add", before: int = 0) -> str:
    """Returns a reduction by one op; `before` ops are computed from the operand first."""
    t, out = tensor(*shape), tensor(*(n for d, n in enumerate(shape) if str(d) not in dims))
    names = ["%x", *(f"%v{i}" for i in range(before))]
    ops = [f"{b} = stablehlo.negate {a} : {t}" for a, b in itertools.pairwise(names)]
    zero = "%zero = stablehlo.constant dense<0.0> : tensor<f32>"
    last = (
        f"%y = stablehlo.reduce({names[-1]} init: %zero) applies stablehlo.{body} across dimensions = [{dims}]"
        f" : ({t}, tensor<f32>) -> {out}"
    )
    return main(f"%x: {t}", out, zero, *ops, last)


# ---------------------------------------------------------------------- lanes
def test_lanes_run_where_most_accesses_are_contiguous() -> None:
    rows, columns = nest(reduction((64, 96), "0")), nest(reduction((64, 96), "1"))
    assert rows.space.vector in rows.space.rows
    assert columns.space.vector in columns.space.inner
    decides(rows, "lanes", "16 along", "contiguous-accesses", "2 of 2")
    decides(columns, "lanes", "16 along", "contiguous-accesses", "1 of 2")


SELECT = """%zero = stablehlo.constant dense<0.0> : tensor<f32>
%none = stablehlo.constant dense<0> : tensor<i32>
%i = stablehlo.iota dim = {d} : {i}
%v:2 = stablehlo.reduce(%x init: %zero), (%i init: %none) across dimensions = [{d}]
  : ({x}, {i}, tensor<f32>, tensor<i32>) -> ({out}, {iout})
  reducer(%a: tensor<f32>, %b: tensor<f32>) (%k: tensor<i32>, %l: tensor<i32>) {{
    %g = stablehlo.compare {by}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %m = stablehlo.select %g, %a, %b : tensor<i1>, tensor<f32>
    %n = stablehlo.select %g, %k, %l : tensor<i1>, tensor<i32>
    stablehlo.return %m, %n : tensor<f32>, tensor<i32>
  }}
%y = stablehlo.negate %v#1 : {iout}"""


def select(shape: tuple[int, ...], by: str = "GT") -> str:
    """Returns a search for the last of the greatest elements of rows; with GE, for the first one."""
    rest = shape[:-1]
    parts = {
        "x": tensor(*shape),
        "i": tensor(*shape, dtype="i32"),
        "out": tensor(*rest),
        "iout": tensor(*rest, dtype="i32"),
    }
    return main(f"%x: {parts['x']}", parts["iout"], SELECT.format(by=by, d=len(shape) - 1, **parts))


def test_a_reducer_that_wants_its_elements_in_order_has_no_lanes_along_them() -> None:
    several, one = nest(select((64, 96))), nest(select((96,)))
    assert several.space.vector in several.space.rows
    assert one.space.vector is None
    decides(one, "lanes", "none", "ordered-reduction")


def test_lanes_run_along_rows_that_something_is_selected_from() -> None:
    long, whole = nest(select((64, 96), "GE")), nest(select((1 << 18,), "GE"))
    for found in (long, whole):
        assert found.space.vector in found.space.inner
        decides(found, "passes", "select")
    assert whole.split is not None  # no reducer needs the elements in order


def test_short_rows_combine_their_lanes_together() -> None:
    vectors, lanes = tuning.ROW_BATCH_VECTORS, 16
    decides(nest(select((64, 16), "GE")), "row batching", "16 rows", "short-rows", "v0")
    assert nest(select((64, tuning.STRIDED_LOAD + 1), "GE")).row_batching == 0
    assert nest(select((64, tuning.STRIDED_LOAD), "GE")).space.vector == 0
    assert nest(select((64, vectors * lanes), "GE")).row_batching == 0
    assert nest(select((64, vectors * lanes + 1), "GE")).row_batching is None
    assert nest(select((lanes, 16), "GE")).row_batching == 0
    assert nest(select((lanes - 1, 16), "GE")).row_batching is None


def test_rows_with_large_bodies_are_not_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nest(select((64, 16), "GE"))
    monkeypatch.setattr(tuning, "ROW_BATCH_OPS", len(found.nest.nodes) + len(found.nest.loads))
    assert nest(select((64, 16), "GE")).row_batching == 0
    monkeypatch.setattr(tuning, "ROW_BATCH_OPS", tuning.ROW_BATCH_OPS - 1)
    assert nest(select((64, 16), "GE")).row_batching is None


def test_lanes_run_across_many_short_rows_that_something_is_selected_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ROW_BATCH_OPS", 0)
    least = tuning.SHORT_SELECTION
    assert (found := nest(select((64, least - 1), "GE"))).space.vector in found.space.rows
    assert (found := nest(select((64, least), "GE"))).space.vector in found.space.inner
    assert (found := nest(select((2, least - 1), "GE"))).space.vector in found.space.inner


def counted(n: int, ops: int) -> str:
    """Returns a 64-bit iota, truncated to 32 bits and passed through `ops` ops."""
    wide, t = tensor(n, dtype="ui64"), tensor(n, dtype="ui32")
    names = ["%n", *(f"%v{i}" for i in range(ops - 1)), "%y"]
    lines = [f"%i = stablehlo.iota dim = 0 : {wide}", f"%n = stablehlo.convert %i : ({wide}) -> {t}"]
    return main(f"%x: {t}", t, *lines, *(f"{b} = stablehlo.add {a}, %x : {t}" for a, b in itertools.pairwise(names)))


def test_a_few_wide_elements_take_two_registers() -> None:
    decides(nest(counted(64, 20)), "lanes", "16 along", "mostly-narrow", "64 bits")
    decides(nest(counted(64, 20), AVX2), "lanes", "8 along", "mostly-narrow", "64 bits")
    decides(nest(counted(15, 20)), "lanes", "8 along", "full-register", "64 bits")
    decides(nest(chain(64, 20, "f64")), "lanes", "8 along", "full-register", "64 bits")
    decides(nest(chain(64, 20, "i8")), "lanes", "64 along", "full-register", "8 bits")


def test_one_element_has_no_lanes() -> None:
    found = nest(main("%x: tensor<f32>", "tensor<f32>", "%y = stablehlo.negate %x : tensor<f32>"))
    decides(found, "lanes", "none", "one-element")


def transposed(n: int, loads: int, m: int = 64, more: int = 1) -> str:
    """Returns a program that adds `loads` matrices n x m, transposes the sum, and applies `more` other ops."""
    t, out = tensor(n, m), tensor(m, n)
    lines = [f"%t{i} = stablehlo.transpose %x{i}, dims = [1, 0] : ({t}) -> {out}" for i in range(loads)]
    sums = ["%t0", *(f"%s{i}" for i in range(1, loads))]
    lines += [f"%s{i} = stablehlo.add {sums[i - 1]}, %t{i} : {out}" for i in range(1, loads)]
    arguments = ", ".join(f"%x{i}: {t}" for i in range(loads))
    rest = [sums[-1], *(f"%r{i}" for i in range(1, more)), "%y"]
    lines += [f"{b} = stablehlo.negate {a} : {out}" for a, b in itertools.pairwise(rest)]
    return main(arguments, out, *lines)


@pytest.mark.parametrize(
    ("n", "loads", "along"),
    [
        (tuning.SHORT_LANES, 2, "n"),
        (tuning.SHORT_LANES - 1, 2, "m"),
        (tuning.INTERLEAVED + 1, 1, "n"),
        (tuning.INTERLEAVED, 1, "m"),  # vectors of few columns are interleaved
    ],
)
def test_short_loops_are_no_good_for_lanes(n: int, loads: int, along: str) -> None:
    """Stores are contiguous along n, and so are as many accesses as along m."""
    space = nest(transposed(n, loads, m=80)).space
    assert space.vector is not None
    assert space.extents[space.vector] == (n if along == "n" else 80)


def centred(rows: int, k: int) -> str:
    """Returns a program that subtracts from rows of k elements the sum of their row."""
    t, r = tensor(rows, k), tensor(rows)
    return main(
        f"%x: {t}",
        t,
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        f"%s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]"
        f" : ({t}, tensor<f32>) -> {r}",
        f"%w = stablehlo.broadcast_in_dim %s, dims = [0] : ({r}) -> {t}",
        f"%y = stablehlo.subtract %x, %w : {t}",
    )


def test_lanes_run_across_very_short_rows_whose_results_are_interleaved() -> None:
    short, longer = nest(centred(64, tuning.SHORTER_LANES - 1)), nest(centred(64, tuning.SHORT_LANES))
    assert short.space.vector in short.space.rows
    assert short.interleaved in short.space.inner
    decides(short, "interleaves", "3 vectors", "interleaved-results")
    assert longer.space.vector in longer.space.inner
    assert longer.interleaved is None


def test_few_rows_are_not_interleaved() -> None:
    width = AVX512.lanes(32)
    assert nest(centred(2 * width, 3)).interleaved is not None
    assert nest(centred(2 * width - 1, 3)).interleaved is None


FAR = tuning.STRIDED_LOAD + 1


@pytest.mark.parametrize(("n", "along"), [(tuning.SMALL_TENSOR // FAR, "j"), (tuning.SMALL_TENSOR // FAR + 1, "i")])
def test_strided_walks_over_small_tensors_cost_little(n: int, along: str) -> None:
    """y[i, j] is the sum of five t[9 j]: the tables are strided along j, the result along i."""
    table, half, out = tensor(FAR * n), tensor(n), tensor(16, n)
    lines = [f"%s{i} = stablehlo.slice %t{i} [0:{FAR * n}:{FAR}] : ({table}) -> {half}" for i in range(5)]
    lines += [f"%b{i} = stablehlo.broadcast_in_dim %s{i}, dims = [1] : ({half}) -> {out}" for i in range(5)]
    lines.append(f"%v0 = stablehlo.add %b0, %b1 : {out}")
    lines += [f"%v{i} = stablehlo.add %v{i - 1}, %b{i + 1} : {out}" for i in (1, 2, 3)]
    arguments = ", ".join(f"%t{i}: {table}" for i in range(5))
    space = nest(main(arguments, out, *lines, f"%y = stablehlo.negate %v3 : {out}")).space
    assert space.vector is not None
    assert space.extents[space.vector] == {"i": 16, "j": n}[along]


@pytest.mark.parametrize(
    ("dtype", "target", "width", "bits"),
    [
        ("f32", AVX512, 16, "32 bits, a register 512"),
        ("f64", AVX512, 8, "64 bits, a register 512"),
        ("i8", AVX512, 64, "8 bits, a register 512"),
        ("bf16", AVX512, 16, "32 bits, a register 512"),
        ("complex<f64>", AVX512, 8, "64 bits, a register 512"),
        ("f32", AVX2, 8, "32 bits, a register 256"),
        ("f64", SSE, 2, "64 bits, a register 128"),
    ],
)
def test_lanes_fill_a_register(dtype: str, target: Target, width: int, bits: str) -> None:
    found = nest(chain(1000, 1, dtype), target)
    assert found.space.width == width
    decides(found, "lanes", f"{width} along v0", "full-register", bits)


@pytest.mark.parametrize(("n", "masked", "plain"), [(5, 8, 4), (8, 8, 8), (3, 4, 2)])
def test_short_loops_have_the_power_of_two_that_masks_allow(n: int, masked: int, plain: int) -> None:
    for target, width in ((AVX512, masked), (AVX2, plain)):
        found = nest(chain(n, tuning.FEW_ELEMENTS_COST + 1), target)
        assert found.space.width == width
        decides(found, "lanes", str(width), "short-loop" if width < target.lanes(32) else "full-register")


def test_few_elements_of_few_ops_have_no_lanes() -> None:
    few, ops = tuning.FEW_ELEMENTS, tuning.FEW_ELEMENTS_COST
    found = nest(chain(few, 1))
    assert found.space.vector is None and found.is_fully_unrolled
    decides(found, "lanes", "none", "few-elements")
    assert nest(chain(few, ops)).is_fully_unrolled
    for more in (chain(few + 1, 1), chain(few, ops + 1)):
        assert nest(more).space.vector == 0 and not nest(more).is_fully_unrolled


# ---------------------------------------------------------------------- unrolling
@pytest.mark.parametrize(
    ("text", "vectors", "code", "shows"),
    [
        (chain(1000, 7), 4, "body-size", "8 ops"),
        (chain(1000, 8), 2, "body-size", "9 ops"),
        (chain(1000, 15), 2, "body-size", "16 ops"),
        (chain(1000, 16), 1, "body-size", "17 ops"),
        (chain(1000, 9, op="sqrt"), 2, "body-size", "10 ops"),
        (chain(1000, 10, op="sqrt"), 1, "body-size", "11 ops"),
        (chain(3 * 16, 2), 2, "short-loop", "3 vectors"),
        (chain(16, 2), 1, "short-loop", "1 vector"),
        (reduction((8, 4096), "1", before=20), 4, "body-size", ""),
        (reduction((8, 4096), "1", before=24), 2, "body-size", ""),
        (reduction((4096, 512), "0"), AVX512.vector_registers // 2, "body-size", ""),
        (reduction((4096, 512), "0", before=3), 4, "body-size", ""),
        (reduction((4096, 512), "0", before=12), 1, "body-size", ""),
    ],
)
def test_small_bodies_handle_several_vectors_per_iteration(text: str, vectors: int, code: str, shows: str) -> None:
    found = nest(text)
    assert found.unroll.value == vectors, found.unroll
    decides(found, "unroll", f"{vectors} vector", code, shows)


def test_sums_of_rows_side_by_side_leave_half_of_the_registers() -> None:
    assert nest(reduction((4096, 512), "0"), AVX2).unroll.value == AVX2.vector_registers // 2


# ---------------------------------------------------------------------- tiles
def test_loads_across_the_lanes_are_transposed_in_registers() -> None:
    found = nest(transposed(96, 1))
    assert found.transposed_loads is not None
    assert found.transposed_loads.side == tuning.TILE_SIDE
    decides(found, "transposes", "16 x 16", "transposed-loads", "1 load contiguous along v0")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (transposed(96, 1, m=tuning.SHORT_LANES - 1), AVX512),
        (transposed(96, 1, more=tuning.TILE_OPS), AVX512),
        (transposed(96, 1).replace("f32", "f64"), SSE),
    ],
    ids=["few rows", "many ops", "few lanes"],
)
def test_no_tiles(text: str, target: Target) -> None:
    found = nest(text, target)
    assert found.transposed_loads is None
    assert "transposes" not in [n.what for n in found.notes]


def test_tiles_end_where_their_limits_do() -> None:
    assert nest(transposed(96, 1, m=tuning.SHORT_LANES)).transposed_loads is not None
    assert nest(transposed(96, 1, more=tuning.TILE_OPS - 1)).transposed_loads is not None
    assert nest(transposed(96, 1), SSE).transposed_loads is not None  # SHORTER_LANES lanes


def test_a_tiled_unit_is_a_stripe() -> None:
    n = 2048
    found = nest(transposed(n, 1, m=n))
    assert found.transposed_loads is not None
    assert found.tasks.units == n // found.transposed_loads.width
    assert "stripe" in note(found, "tasks").value


def test_stripes_are_a_tile_wide_where_lines_would_share_a_set_of_the_cache() -> None:
    n = tuning.TILE_COLLIDING // 4
    colliding, others = (nest(transposed(m, 1, m=m)).transposed_loads for m in (n, n + 16))
    assert colliding is not None
    assert others is not None
    assert (colliding.tiles, others.tiles) == (1, tuning.TILE_STRIPE)


# ---------------------------------------------------------------------- tasks
def test_little_work_stays_on_the_caller() -> None:
    """A chain of one op is three element operations: a load, the op, and the store."""
    least = -(-tuning.PARALLEL_WORK // 3)
    few, many = nest(chain(least - 1, 1)), nest(chain(least, 1))
    assert few.tasks.tasks == 1
    decides(few, "tasks", "1 task", "too-little-work", f"{tuning.PARALLEL_WORK:,}")
    assert many.tasks.tasks == many.tasks.units == 3  # chunks, each of which is enough for a task
    decides(many, "tasks", "3 tasks", "tasks-by-work", f"{tuning.TASK_WORK:,}")


def test_there_are_so_many_tasks_at_most() -> None:
    found = nest(chain(1 << 24, 1))
    assert found.tasks.tasks == tuning.MAX_TASKS
    decides(found, "tasks", f"{tuning.MAX_TASKS} tasks", "most-tasks", f"{tuning.MAX_TASKS}")


def test_one_unit_of_work_is_not_cut() -> None:
    """A row with an ordered reducer cannot be split."""
    found = nest(select((tuning.PARALLEL_WORK,)))
    decides(found, "tasks", "1 task", "one-unit")


def test_a_chunk_is_a_task_s_work() -> None:
    found = nest(chain(1 << 20, 1))
    step = found.space.width * found.unroll.value
    assert found.chunk == tuning.TASK_WORK // (step * 2) * step
    assert nest(transposed(96, 1)).chunk == 0  # rows are the units


def test_few_long_rows_are_split() -> None:
    split, whole = (
        nest(reduction((tuning.SPLIT_UNITS - 1, 1 << 16), "1")),
        nest(reduction((tuning.SPLIT_UNITS, 1 << 16), "1")),
    )
    assert split.split is not None
    assert split.scratch.shared == split.split.partials
    decides(split, "tasks", "chunk of the row", "row-cut", f"{tuning.SPLIT_UNITS - 1} rows")
    assert whole.split is None
    decides(whole, "tasks", "of 1 row", "tasks-by-work")


def test_rows_with_little_work_are_not_split() -> None:
    assert nest(reduction((1, tuning.PARALLEL_WORK // 8), "1")).split is None


# ---------------------------------------------------------------------- memory that is far
def test_large_operands_are_fetched_ahead() -> None:
    n = AVX512.bytes_of(tuning.PREFETCH_BYTES) // 4
    near, far = nest(chain(n - 1, 1)), nest(chain(n, 1))
    assert not near.prefetches
    assert list(far.prefetches.values()) == [tuning.PREFETCH_DISTANCE]
    decides(
        far,
        "prefetches",
        f"1 load, {tuning.PREFETCH_DISTANCE:,} bytes",
        "streams-from-memory",
        f"{AVX512.bytes_of(tuning.PREFETCH_BYTES):,} bytes",
    )


def test_of_a_stencil_the_foremost_load_is_fetched_ahead() -> None:
    n = AVX512.bytes_of(tuning.PREFETCH_BYTES) // 4
    t, part = tensor(n), tensor(n - 2)
    lines = [f"%s{i} = stablehlo.slice %x [{i}:{n - 2 + i}] : ({t}) -> {part}" for i in range(3)]
    lines += [f"%a = stablehlo.add %s0, %s1 : {part}", f"%y = stablehlo.add %a, %s2 : {part}"]
    found = nest(main(f"%x: {t}", part, *lines))
    assert len(found.nest.loads) == 3
    ((_, at),) = found.prefetches
    assert [e.const for e in at.index] == [2]


def test_runs_that_end_soon_are_not_fetched_ahead() -> None:
    """Columns [0:512] of rows of 1024: an address 2 KiB ahead is in the columns that are not read."""
    t, part = tensor(4096, 1024), tensor(4096, 512)
    text = main(f"%x: {t}", part, f"%s = stablehlo.slice %x [0:4096, 0:512] : ({t}) -> {part}",
                f"%y = stablehlo.negate %s : {part}")  # fmt: skip
    assert not nest(text).prefetches


def softmax(rows: int, n: int, op: str) -> str:
    """Returns a program that divides op(x) by its sum."""
    t, rest = tensor(rows, n), tensor(rows)
    return main(
        f"%x: {t}", t,
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        f"%e = stablehlo.{op} %x : {t}",
        f"%s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]"
        f" : ({t}, tensor<f32>) -> {rest}",
        f"%b = stablehlo.broadcast_in_dim %s, dims = [0] : ({rest}) -> {t}",
        f"%y = stablehlo.divide %e, %b : {t}",
    )  # fmt: skip


def test_expensive_values_are_kept_from_pass_to_pass() -> None:
    expensive, cheap = nest(softmax(32, 512, "exponential")), nest(softmax(32, 512, "sqrt"))
    assert list(expensive.stash.values()) == [4 * (512 + 16)]
    decides(
        expensive,
        "row buffer",
        "exponential: 2,112 bytes",
        "needed-by-several-passes",
        f"{tuning.ROW_BUFFER_COST} additions",
    )
    decides(expensive, "passes", "2 over the row")
    assert not cheap.stash


def test_rows_too_long_for_the_stash_are_computed_again() -> None:
    n = tuning.ROW_BUFFER_BYTES // 4
    assert nest(softmax(32, n - 16, "exponential")).stash
    assert not nest(softmax(32, n - 15, "exponential")).stash


def test_large_results_are_written_past_the_caches() -> None:
    n = AVX512.bytes_of(tuning.STREAM_BYTES) // 4
    small, large = nest(chain(n - 1, 1)), nest(chain(n, 1))
    assert not small.streams
    assert len(large.streams) == 1
    decides(large, "streams", "1 result", "exceeds-cache", f"{AVX512.bytes_of(tuning.STREAM_BYTES):,} bytes")


# ---------------------------------------------------------------------- few iterations of a reduction
def test_few_iterations_are_unrolled() -> None:
    decides(nest(reduction((64, 4, 96), "1")), "unrolls", "4 iterations")
    decides(nest(reduction((2, 64, 2, 96), "0, 2")), "unrolls", "2 x 2 iterations")
    assert not nest(reduction((64, 400, 96), "1")).unrolled
    assert not nest(reduction((64, 4, 96), "1", before=40)).unrolled


@pytest.mark.parametrize("shape, dims", [((5, 4, 33), "1"), ((3, 2, 3, 17), "1, 2"), ((40, 3), "1")])
def test_unrolled_iterations_sum_in_the_same_order(
    shape: tuple[int, ...], dims: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    written = shlo_jit.compile(reduction(shape, dims))(x)
    monkeypatch.setattr(tuning, "UNROLLED_OPS", 0)
    looped = shlo_jit.compile(reduction(shape, dims), cache=False)(x)
    assert written.tobytes() == looped.tobytes()
