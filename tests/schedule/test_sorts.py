"""sort, top_k and scatter: algorithm, number of digits, what is moved, what runs along lanes and what is cut."""

from __future__ import annotations

import pytest
from decisions import AVX2, AVX512, decides, main, note, schedules, tensor, the_schedule

from shlo_jit import tuning
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.scatter import ScatterSchedule
from shlo_jit.schedule.sort import SortSchedule, TopKSchedule

LESS = "%c = stablehlo.compare LT, %l0, %r0, {kind} : (tensor<{t}>, tensor<{t}>) -> tensor<i1>"
SQUARES = """%s = stablehlo.multiply %l0, %r0 : tensor<{t}>
%c = stablehlo.compare LT, %s, %r0, {kind} : (tensor<{t}>, tensor<{t}>) -> tensor<i1>"""


def sort(
    shape: tuple[int, ...], *dtypes: str, comparator: str = LESS, dim: int = -1, target: Target = AVX2
) -> SortSchedule:
    """Schedules a sort of operands of these types by the first; all results are read."""
    types = [tensor(*shape, dtype=t) for t in dtypes]
    kind = "FLOAT" if "f" in dtypes[0] else "SIGNED"
    blocks = ", ".join(f"%l{i}: tensor<{t}>, %r{i}: tensor<{t}>" for i, t in enumerate(dtypes))
    results = ", ".join(types)
    names = ", ".join(f"%x{i}" for i in range(len(types)))
    returned = "%y" if len(types) == 1 else ", ".join(f"%y#{i}" for i in range(len(types)))
    text = "\n".join([
        f"func.func @main({', '.join(f'%x{i}: {t}' for i, t in enumerate(types))}) -> ({results}) {{",
        f'%y{f":{len(types)}" if len(types) > 1 else ""} = "stablehlo.sort"({names})'
        f" <{{dimension = {dim % len(shape)} : i64}}> ({{",
        f"^bb0({blocks}):", comparator.format(t=dtypes[0], kind=kind), "stablehlo.return %c : tensor<i1>",
        f"}}) : ({results}) -> ({results})", f"return {returned} : {results}", "}",
    ])  # fmt: skip
    found = the_schedule(text, target)
    assert isinstance(found, SortSchedule)
    return found


# ---------------------------------------------------------------------- sort
@pytest.mark.parametrize(("dtype", "limit"), [("f32", 128), ("f64", 32)])
def test_short_lines_are_ranked(dtype: str, limit: int) -> None:
    decides(sort((8, limit), dtype), "sort", "by rank", "line-length", f"up to {limit}")
    decides(sort((8, limit + 1), dtype), "sort", "digit", "line-length", f"{limit + 1} elements")


@pytest.mark.parametrize(
    ("n", "dtype", "digits"),
    [
        (1000, "f32", 4),
        (1 << 13, "f32", 3),
        ((1 << 13) - 1, "f32", 4),
        (1000, "i8", 1),
        (1000, "f64", 8),
        (9000, "f64", 6),
    ],
)
def test_digits(n: int, dtype: str, digits: int) -> None:
    """Digits have 8 bits, or 11 in long lines."""
    decides(sort((2, n), dtype), "sort", f"by {digits} digit")


@pytest.mark.parametrize("n", [3, 1000, tuning.SORT_LONG_LINE])
def test_where_lanes_can_be_packed_records_go_by_partition(n: int) -> None:
    """Records of 64 bits are partitioned; for one operand, keys alone if they determine the element."""
    for dtype, alone in (("f32", 32), ("f16", 32), ("f64", 64), ("i64", 64), ("i8", 32)):
        found = sort((2, n), dtype, target=AVX512)
        decides(found, "keys only", f"{alone} bits", "keys-tell-all")
        records = "digit" if n > 32 else "by rank"
        decides(found, "sort", records if dtype in ("f64", "i64") else "by partition", "line-length")
        assert {r.name for r in found.routines} == {f"quicksort{alone}"} | ({"quicksort64"} if alone == 32 else set())
    two = sort((2, n), "f32", "f64", target=AVX512)
    decides(two, "sort", "by partition", "line-length")
    assert not any(what.what == "keys only" for what in two.notes)
    assert not sort((2, n), "f64", "f64", target=AVX512).routines


def test_long_lines_are_sorted_in_chunks_where_they_are_few() -> None:
    n, few = tuning.SORT_LONG_LINE, tuning.SORT_CHUNKS - 1
    chunked = sort((few, n), "f32")
    decides(chunked, "tasks", f"{tuning.SORT_CHUNKS} chunks", "few-long-lines", f"{n:,} elements")
    assert chunked.scratch.per_thread == 0
    for found in (sort((few, n - 1), "f32"), sort((few + 1, n), "f32")):
        assert found.records is not None
        assert not found.records.chunks
        assert found.scratch.fixed == 0
        assert "line" in note(found, "tasks").value


def test_a_comparator_without_keys_merges() -> None:
    found = sort((8, 1000), "f32", comparator=SQUARES)
    assert found.records is None
    decides(found, "sort", "merge sort", "comparator-not-keys")


@pytest.mark.parametrize(
    ("dtypes", "n", "moved"),
    [
        (("f32",), 1000, "the values themselves"),
        (("f32",), 100, "indices"),
        (("f64",), 1000, "indices"),
        (("f32", "f32"), 1000, "indices"),
    ],
    ids=["narrow", "ranked", "wide", "two operands"],
)
def test_records_hold_values_where_those_fit(dtypes: tuple[str, ...], n: int, moved: str) -> None:
    decides(sort((8, n), *dtypes), "records", f"hold {moved}")


def test_unread_results_are_not_moved_and_a_count_needs_no_memory() -> None:
    t, index = tensor(8, 1000), tensor(8, 1000, dtype="i32")
    text = main(
        f"%x: {t}", index, f"%i = stablehlo.iota dim = 1 : {index}",
        '%s:2 = "stablehlo.sort"(%x, %i) <{dimension = 1 : i64}> ({',
        "^bb0(%l0: tensor<f32>, %r0: tensor<f32>, %l1: tensor<i32>, %r1: tensor<i32>):",
        LESS.format(t="f32", kind="FLOAT"), "stablehlo.return %c : tensor<i1>",
        f"}}) : ({t}, {index}) -> ({t}, {index})", f"%y = stablehlo.negate %s#1 : {index}",
    )  # fmt: skip
    found = next(s for s in schedules(text) if isinstance(s, SortSchedule))
    assert found.kept == ("", "index")


# ---------------------------------------------------------------------- top_k
def top_k(n: int, k: int, dtype: str = "f32") -> TopKSchedule:
    t, out, index = tensor(16, n, dtype=dtype), tensor(16, k, dtype=dtype), tensor(16, k, dtype="i32")
    text = f"""func.func @main(%x: {t}) -> ({out}, {index}) {{
      %v, %i = chlo.top_k(%x, k = {k}) : {t} -> ({out}, {index})
      return %v, %i : {out}, {index}
    }}"""
    (found,) = [s for s in schedules(text) if isinstance(s, TopKSchedule)]
    return found


@pytest.mark.parametrize(
    ("found", "inserts", "code"),
    [
        (top_k(1 << 14, tuning.TOP_K_INSERTED), True, "small-k"),
        (top_k(1 << 14, tuning.TOP_K_INSERTED + 1), False, "large-k"),
        (top_k(8 * 20, 20), True, "small-k"),
        (top_k(8 * 20 - 1, 20), False, "large-k"),
        (top_k(20, 16), True, "small-k"),
        (top_k(1 << 14, 8, "f64"), False, "wide-records"),
    ],
)
def test_the_best_are_inserted_where_they_are_few(found: TopKSchedule, inserts: bool, code: str) -> None:
    assert found.inserts.value == inserts
    decides(found, "top_k", "insert" if inserts else "sort", code)


# ---------------------------------------------------------------------- scatter
def scatter(
    operand: tuple[int, ...], count: int, window: tuple[int, ...], unique: bool = False, dtype: str = "f32"
) -> ScatterSchedule:
    """Schedules a scatter that adds rows at `count` places of the first dimension."""
    update, dims = (count, *window), ", ".join(str(d + 1) for d in range(len(window)))
    x, i, u = tensor(*operand, dtype=dtype), tensor(count, 1, dtype="i32"), tensor(*update, dtype=dtype)
    scalar = tensor(dtype=dtype)
    numbers = f"update_window_dims = [{dims}], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
    text = main(
        f"%x: {x}, %i: {i}, %u: {u}", x,
        f'%y = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers},'
        f" index_vector_dim = 1>, unique_indices = {str(unique).lower()}}}> ({{",
        f"^bb0(%a: {scalar}, %b: {scalar}):", f"%c = stablehlo.add %a, %b : {scalar}",
        f"stablehlo.return %c : {scalar}", f"}}) : ({x}, {i}, {u}) -> {x}",
    )  # fmt: skip
    found = the_schedule(text)
    assert isinstance(found, ScatterSchedule)
    return found


def test_lanes_of_a_scatter_run_along_a_contiguous_window() -> None:
    rows, elements = scatter((5000, 256), 900, (256,)), scatter((5000,), 900, ())
    decides(rows, "lanes", "16, along", "contiguous-window")
    assert rows.block == 16 * tuning.SCATTER_VECTORS
    decides(elements, "lanes", "none", "no-contiguous-window")
    assert scatter((5000, 5), 900, (5,)).block == 5


def test_a_scatter_is_cut_where_iterations_update_different_elements() -> None:
    """Cuts along the window while indices may repeat, along the positions if they are unique, otherwise not at all."""
    repeated, unique, ordered = (
        scatter((5000, 256), 900, (256,)),
        scatter((5000, 256), 900, (256,), unique=True),
        scatter((50000,), 40000, ()),
    )
    assert repeated.split is repeated.shape.lanes
    assert repeated.tasks.units == 256 // repeated.block
    decides(repeated, "tasks", "4 tasks", "disjoint-updates")
    assert unique.split is unique.shape.scatter[0]
    assert unique.tasks.units == 900
    assert ordered.split is None
    decides(ordered, "tasks", "1 task", "ordered-updates")


@pytest.mark.parametrize(("extent", "outermost"), [(tuning.SCATTER_UNITS, True), (tuning.SCATTER_UNITS - 1, False)])
def test_the_outermost_loop_with_enough_iterations_is_cut(extent: int, outermost: bool) -> None:
    """The window is a part of each row, so that its dimensions are not merged."""
    found = scatter((50, extent, 4097), 30, (extent, 4096))
    assert found.split is not None
    assert (found.split is found.shape.window[0]) == outermost


def test_work_of_a_scatter_counts_its_accesses() -> None:
    """An addition is a body of cost 2."""
    per_element = 2 + tuning.SCATTER_ACCESS_COST
    count = -(-tuning.PARALLEL_WORK // per_element)
    few, many = scatter((1 << 20,), count - 1, (), unique=True), scatter((1 << 20,), count, (), unique=True)
    assert few.tasks.tasks == 1
    assert many.tasks.tasks > 1


def test_without_lanes_window_loops_with_long_strides_go_outside() -> None:
    """Columns of one element: the window dimension of the rows is hoisted out of the positions, unless an index moves
    it."""
    x, i, u = tensor(64, 300), tensor(100, 1, dtype="i32"), tensor(64, 100)
    text = main(
        f"%x: {x}, %i: {i}, %u: {u}", x,
        '%y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],'
        " inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}> ({",
        "^bb0(%a: tensor<f32>, %b: tensor<f32>):", "%c = stablehlo.add %a, %b : tensor<f32>",
        "stablehlo.return %c : tensor<f32>", f"}}) : ({x}, {i}, {u}) -> {x}",
    )  # fmt: skip
    found = the_schedule(text)
    assert isinstance(found, ScatterSchedule)
    decides(found, "loops", "hoisted 64, positions 100")
    assert found.split is found.shape.outer[0]
