"""The worked examples of XLA's documents, with the results that the documents print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shlo_jit
import shlo_jit.builder as b


def f32(x: Any) -> np.ndarray:
    return np.array(x, np.float32)


def i32(x: Any) -> np.ndarray:
    return np.array(x, np.int32)


def check(got: Any, wanted: Any) -> None:
    assert isinstance(got, np.ndarray) and got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def check_eval(f: Any, wanted: Any, *arrays: np.ndarray) -> None:
    check(shlo_jit.jit(f)(*arrays), wanted)


TWENTY_FOUR = f32(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ]
)
TABLE = f32([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])


# ---------------------------------------------------------------------------- data
def test_clamp() -> None:
    check_eval(lambda x: b.clamp(0, x, 6), i32([0, 5, 6]), i32([-1, 5, 9]))


@pytest.mark.parametrize(("dimensions", "shape"), [((0, 1, 2), (24,)), ((0, 1), (8, 3)), ((1, 2), (4, 6))])
def test_collapse(dimensions: tuple[int, ...], shape: tuple[int, ...]) -> None:
    check_eval(lambda v: b.collapse(v, dimensions), TWENTY_FOUR.reshape(shape), TWENTY_FOUR)


@pytest.mark.parametrize(
    ("dimensions", "sizes", "wanted"),
    [
        ((0, 1, 2), (24,), [10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47]),
        ((0, 1, 2), (8, 3), [[10, 11, 12], [15, 16, 17], [20, 21, 22], [25, 26, 27],
                             [30, 31, 32], [35, 36, 37], [40, 41, 42], [45, 46, 47]]),
        ((1, 2, 0), (24,), [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47]),
        ((1, 2, 0), (8, 3), [[10, 20, 30], [40, 11, 21], [31, 41, 12], [22, 32, 42],
                             [15, 25, 35], [45, 16, 26], [36, 46, 17], [27, 37, 47]]),
        ((1, 2, 0), (2, 6, 2), [[[10, 20], [30, 40], [11, 21], [31, 41], [12, 22], [32, 42]],
                                [[15, 25], [35, 45], [16, 26], [36, 46], [17, 27], [37, 47]]]),
    ],
)  # fmt: skip
def test_reshape_in_an_order(dimensions: tuple[int, ...], sizes: tuple[int, ...], wanted: Any) -> None:
    """The older document's examples; today's has only those in row-major order."""
    check_eval(lambda v: b.reshape(v, sizes, dimensions), f32(wanted), TWENTY_FOUR)


def test_reshape_of_one_element() -> None:
    check_eval(lambda v: b.reshape(v, ()), f32(5), f32([[5]]))
    check_eval(lambda v: b.reshape(v, (1, 1)), f32([[5]]), f32(5))


def test_concatenate() -> None:
    check_eval(
        lambda x, y, z: b.concat_in_dim([x, y, z], 0), i32([2, 3, 4, 5, 6, 7]), i32([2, 3]), i32([4, 5]), i32([6, 7])
    )
    check_eval(
        lambda x, y: b.concatenate([x, y], 0),
        i32([[1, 2], [3, 4], [5, 6], [7, 8]]),
        i32([[1, 2], [3, 4], [5, 6]]),
        i32([[7, 8]]),
    )


def test_convert_element_type() -> None:
    check_eval(lambda a: b.convert_element_type(a, "f32"), f32([0, 1, 2]), i32([0, 1, 2]))


def test_broadcast_of_a_scalar() -> None:
    check_eval(lambda x: b.broadcast(x, (2, 3)), np.full((2, 3), 2, np.float32), f32(2))


@pytest.mark.parametrize(
    ("given", "dtype", "shape"),
    [("f32[10]", "f16", (10, 2)), ("f32[]", "f16", (2,)), ("f16[10,2]", "f32", (10,))],
)
def test_shapes_of_bitcasts(given: str, dtype: str, shape: tuple[int, ...]) -> None:
    with b.function("main", given) as f:
        found = b.bitcast_convert_type(f.arg0, dtype)
        f.returns(found)
    assert found.shape == shape


def test_iota() -> None:
    check_eval(lambda: b.iota("s32[4, 8]", 0), np.repeat(i32([0, 1, 2, 3]), 8).reshape(4, 8))
    check_eval(lambda: b.iota("s32[4, 8]", 1), np.tile(np.arange(8, dtype=np.int32), (4, 1)))


def test_an_integer_becomes_four_bytes() -> None:
    x = i32([0x01020304, -1])
    check_eval(lambda x: b.bitcast_convert_type(x, "s8"), x.view(np.int8).reshape(2, 4), x)


def test_transpose_is_reshape_in_another_order() -> None:
    """Transpose is the same as Reshape(operand, permutation, Permute(permutation, operand.shape.dimensions))."""
    check_eval(lambda v: b.reshape(v, (3, 4, 2), (2, 0, 1)), TWENTY_FOUR.transpose(2, 0, 1), TWENTY_FOUR)


def test_sign() -> None:
    got = shlo_jit.jit(b.sign)(f32([-2.5, -0.0, np.nan, 0.0, 7.0]))
    assert str(got.tolist()) == "[-1.0, -0.0, nan, 0.0, 1.0]"


def test_slice() -> None:
    check_eval(lambda a: b.slice(a, (2,), (4,)), f32([2, 3]), f32([0, 1, 2, 3, 4]))
    check_eval(lambda a: b.slice(a, (2, 1), (4, 3)), f32([[7, 8], [10, 11]]), TABLE)


def test_dynamic_slice() -> None:
    check_eval(lambda a, s: b.dynamic_slice(a, s, (2,)), f32([2, 3]), f32([0, 1, 2, 3, 4]), i32([2]))
    check_eval(lambda a, s: b.dynamic_slice(a, s, (2, 2)), f32([[7, 8], [10, 11]]), TABLE, i32([2, 1]))


def test_dynamic_update_slice() -> None:
    a, u = f32([0, 1, 2, 3, 4]), f32([5, 6])
    check_eval(b.dynamic_update_slice, f32([0, 1, 5, 6, 4]), a, u, i32([2]))
    update = f32([[12, 13], [14, 15], [16, 17]])
    wanted = f32([[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]])
    check_eval(b.dynamic_update_slice, wanted, TABLE, update, i32([1, 1]))


@pytest.mark.parametrize(("pred", "wanted"), [([True, False, False, True], [1, 200, 300, 4]), (True, [1, 2, 3, 4])])
def test_select(pred: Any, wanted: list[int]) -> None:
    check_eval(b.select, i32(wanted), np.array(pred), i32([1, 2, 3, 4]), i32([100, 200, 300, 400]))


@pytest.mark.parametrize("pair", [lambda *xs: xs, lambda *xs: b.tuple(xs)])
def test_select_of_tuples(pair: Any) -> None:
    f = shlo_jit.jit(lambda p, x, y: b.select(p, pair(x, y), pair(y, x)))
    assert [a.tolist() for a in f(np.array(False), i32([1]), i32([2]))] == [[2], [1]]


def test_set_dimension_size() -> None:
    """Padded values are ignored by subsequent reductions."""
    v = np.arange(1, 11, dtype=np.float32)

    def reduced(v: Any, n: Any) -> Any:
        padded = b.set_dimension_size(v, n, 0)
        return b.reduce(padded, 0.0, b.add, (0,)), b.reduce(padded, 1.0, b.mul, (0,))

    f = shlo_jit.jit(reduced)
    for n in (5, 6):
        total, product = f(v, i32(n))
        assert (total, product) == (v[:n].sum(), v[:n].prod())


def test_tuples() -> None:
    v = np.arange(10, dtype=np.float32)
    check_eval(lambda v: b.get_tuple_element(b.tuple([v, b.constant(5, "s32")]), 1), i32(5), v)


# ---------------------------------------------------------------------------- products
def test_dot_general_with_contracting_dimensions() -> None:
    lhs, rhs = f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 1], [2, 2, 2]])
    numbers = b.DotDimensionNumbers(lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[1])
    check_eval(lambda x, y: b.dot_general(x, y, numbers), f32([[6, 12], [15, 30]]), lhs, rhs)


def test_dot_general_with_batch_dimensions() -> None:
    lhs, rhs = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), f32([[[1, 0], [0, 1]], [[1, 0], [0, 1]]])
    numbers = b.DotDimensionNumbers([2], [1], [0], [0])
    check_eval(lambda x, y: b.dot_general(x, y, numbers), lhs, lhs, rhs)


def test_dot_general_with_two_batch_dimensions() -> None:
    """Computes [b0, b1, m, k] dot [b0, b1, k, n]."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 3, 4, 5), (2, 3, 5, 6)))
    numbers = b.DotDimensionNumbers((3,), (2,), (0, 1), (0, 1))
    check_eval(lambda x, y: b.dot_general(x, y, numbers), x @ y, x, y)


def test_ragged_dots_of_three_kinds() -> None:
    """Groups of rows, of the contracting dimension, and of batches."""
    rng = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return rng.integers(-3, 4, shape).astype(np.float32)

    x, y = some(5, 4), some(3, 4, 2)
    check_eval(b.ragged_dot, np.concatenate([x[:2] @ y[0], x[2:] @ y[2]]), x, y, i32([2, 0, 3]))
    y = some(4, 2)
    summed = b.RaggedDotDimensionNumbers(b.DotDimensionNumbers((1,), (0,)), (1,))
    wanted = np.stack([x[:, :1] @ y[:1], x[:, 1:] @ y[1:]])
    check_eval(lambda x, y, n: b.ragged_dot(x, y, n, summed), wanted, x, y, i32([1, 3]))
    x, y = some(3, 5, 4), some(3, 4, 2)
    batch = b.RaggedDotDimensionNumbers(b.DotDimensionNumbers((2,), (1,), (0,), (0,)), (0,))
    check_eval(lambda x, y, n: b.ragged_dot(x, y, n, batch), x @ y, x, y, i32([1, 2]))


@pytest.mark.parametrize(("a", "c", "wanted"), [("n", "n", ()), ("mk", "k", (2,)), ("mk", "kn", (2, 4))])
def test_shapes_of_dot(a: str, c: str, wanted: tuple[int, ...]) -> None:
    sizes = {"m": 2, "k": 3, "n": 4}
    shapes = ["f32[" + ",".join(str(sizes[d]) for d in dims) + "]" for dims in (a, c)]
    with b.function("main", *shapes) as f:
        found = b.dot(*f)
        f.returns(found)
    assert found.shape == wanted


def test_the_loops_of_a_convolution() -> None:
    """Implements the pseudo-code of both documents, with strides and padding."""
    rng = np.random.default_rng(1)
    x, k = rng.integers(-3, 4, (2, 3, 6, 5)).astype(np.float32), rng.integers(-3, 4, (4, 3, 3, 2)).astype(np.float32)
    (stride_y, stride_x), (pad_y, pad_x) = (2, 1), ((1, 2), (0, 1))
    got = shlo_jit.jit(lambda x, k: b.conv_with_general_padding(x, k, (stride_y, stride_x), (pad_y, pad_x)))(x, k)
    wanted = np.zeros_like(got)
    for place in np.ndindex(wanted.shape):
        n, oz, oy, ox = place
        for iz, ky, kx in np.ndindex(k.shape[1:]):
            iy, ix = oy * stride_y + ky - pad_y[0], ox * stride_x + kx - pad_x[0]
            if 0 <= iy < x.shape[2] and 0 <= ix < x.shape[3]:
                wanted[place] += x[n, iz, iy, ix] * k[oz, iz, ky, kx]
    check(got, wanted)


# ---------------------------------------------------------------------------- reductions
MATRIX3D = np.broadcast_to(f32([[1, 2, 3], [4, 5, 6]]), (4, 2, 3)).copy()


@pytest.mark.parametrize(
    ("dimensions", "wanted"),
    [((0,), [[4, 8, 12], [16, 20, 24]]), ((2,), [[6, 15]] * 4), ((0, 1), [20, 28, 36]), ((0, 1, 2), 84)],
)
def test_reduce(dimensions: tuple[int, ...], wanted: Any) -> None:
    check_eval(lambda x: b.reduce(x, 0.0, b.add, dimensions), f32(wanted), MATRIX3D)


def test_reduce_of_a_vector() -> None:
    """Computes f(10, f(11, f(12, f(init_value, 13))))."""
    check_eval(lambda x: b.reduce(x, 0, lambda a, c: a + c, (0,)), i32(46), i32([10, 11, 12, 13]))


def test_a_variadic_reduction_finds_the_maximum_and_its_place() -> None:
    def larger(m: Any, at: Any, x: Any, i: Any) -> Any:
        later = x >= m
        return b.select(later, x, m), b.select(later, i, at)

    values = f32([3, 9, -1, 9, 2])
    f = shlo_jit.jit(lambda v, k: b.reduce([v, k], [-np.inf, 0], larger, (0,)))
    assert [a.tolist() for a in f(values, np.arange(5, dtype=np.int32))] == [9.0, 3]


@pytest.mark.parametrize(("padding", "wanted"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_reduce_window_with_strides(padding: Any, wanted: list[int]) -> None:
    """Minimums over windows of 3 at every second position."""
    largest = float(np.finfo(np.float32).max)
    check_eval(
        lambda x: b.reduce_window(x, largest, b.min, (3,), (2,), padding), f32(wanted), f32([10000, 1000, 100, 10, 1])
    )


def test_reduce_window_of_a_matrix() -> None:
    x = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    wanted = x.reshape(2, 2, 2, 3).max((1, 3))
    check_eval(lambda x: b.reduce_window(x, -np.inf, b.max, (2, 3), (2, 3), "VALID"), wanted, x)


def test_reduce_window_with_dilations() -> None:
    f = shlo_jit.jit(lambda x: b.reduce_window(x, 0, b.add, (2, 1), (4, 1), [(2, 1), (0, 0)], (2, 1), (3, 1)))
    check(f(i32([[1, 2], [3, 4], [5, 6]])), i32([[0, 0], [3, 4]]))


@pytest.mark.parametrize(
    ("x", "strides", "wanted"),
    [
        (
            [[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]], (2, 3),
            [[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]],
        ),
        (
            [[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]], (2, 2),
            [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]],
        ),
    ],
    ids=["apart", "overlapping"],
)  # fmt: skip
def test_select_and_scatter(x: Any, strides: tuple[int, int], wanted: Any) -> None:
    """Windows of 2x3; where they overlap, the 9 is selected by both windows at the top: 8 is 2 + 6."""

    def scattered(x: Any, source: Any) -> Any:
        return b.select_and_scatter(x, b.ge, (2, 3), strides, "VALID", source, 0.0, b.add)

    check_eval(scattered, f32(wanted), f32(x), f32([[2, 6], [3, 1]]))


@pytest.mark.parametrize(
    ("largest", "values", "indices"), [(True, [9, 9, 7], [1, 3, 0]), (False, [-1, 2, 2], [5, 2, 4])]
)
def test_top_k_of_equal_elements(largest: bool, values: list[int], indices: list[int]) -> None:
    """If two elements are equal, the lower index comes first; other dimensions are kept."""
    x = i32([[7, 9, 2, 9, 2, -1]] * 2)
    got = shlo_jit.jit(lambda x: b.top_k(x, 3, largest))(x)
    check(got[0], i32([values] * 2))
    check(got[1], i32([indices] * 2))


def test_sort_of_three_operands() -> None:
    f = shlo_jit.jit(lambda *xs: b.sort(xs, lambda x, y, *_: x < y))
    got = f(i32([3, 1]), i32([42, 50]), f32([-3.0, 1.1]))
    assert [a.tolist() for a in got] == [[1, 3], [50, 42], f32([1.1, -3.0]).tolist()]


def test_map_with_an_operand_of_its_own() -> None:
    """Map(op1, op2, op3, computation, par1)."""
    xs = [f32([1, 2]), f32([3, 4]), f32([5, 6])]
    f = shlo_jit.jit(lambda x, y, z, p: b.map([x, y, z], lambda a, c, d, p: a * c + d * p, static_operands=[p]))
    check(f(*xs, f32(10)), f32([1 * 3 + 50, 2 * 4 + 60]))


# ---------------------------------------------------------------------------- gather
def test_gather_of_slices_at_index_vectors() -> None:
    """Five slices of [8,6] of a [16,11] array."""
    x = np.arange(16 * 11, dtype=np.int32).reshape(16, 11)
    at = i32([[0, 0], [3, 5], [8, 2], [1, 1], [7, 4]])
    numbers = b.GatherDimensionNumbers(offset_dims=(1, 2), start_index_map=(0, 1), index_vector_dim=1)
    wanted = np.stack([x[r : r + 8, c : c + 6] for r, c in at])
    check_eval(lambda x, at: b.gather(x, at, numbers, (8, 6)), wanted, x, at)


def test_gather_at_a_matrix_of_index_vectors() -> None:
    x = np.arange(16 * 11, dtype=np.int32).reshape(16, 11)
    at = np.random.default_rng(3).integers(0, [9, 6], (4, 5, 2)).astype(np.int32)
    numbers = b.GatherDimensionNumbers(offset_dims=(2, 3), start_index_map=(0, 1), index_vector_dim=2)
    wanted = np.stack([[x[r : r + 8, c : c + 6] for r, c in row] for row in at])
    check_eval(lambda x, at: b.gather(x, at, numbers, (8, 6)), wanted, x, at)


def test_gather_nd() -> None:
    """Whole rows: slice_sizes is [1,11]."""
    x = np.arange(16 * 11, dtype=np.int32).reshape(16, 11)
    at = i32([[3], [15], [0]])
    numbers = b.GatherDimensionNumbers((1,), (0,), (0,), 1)
    check_eval(lambda x, at: b.gather(x, at, numbers, (1, 11)), x[at[:, 0]], x, at)


def test_scatter_with_batching_dimensions() -> None:
    """Shapes and numbers of the document; slices that are out of range are skipped."""
    rng = np.random.default_rng(4)
    x, updates = rng.integers(0, 9, (2, 3, 4, 2)).astype(np.int32), rng.integers(0, 9, (2, 2, 3, 1, 2)).astype(np.int32)
    at = rng.integers(0, 5, (2, 2, 3, 2))
    numbers = b.ScatterDimensionNumbers(
        update_window_dims=(3, 4), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(2, 1), index_vector_dim=3,
        input_batching_dims=(0,), scatter_indices_batching_dims=(1,),
    )  # fmt: skip
    wanted = x.copy()
    for g in np.ndindex(2, 2, 3):
        second, first = at[g]
        if first < 3 and second < 4:
            wanted[g[1], first, second] += updates[g][0]
    check_eval(lambda x, at, u: b.scatter(x, at, u, b.add, numbers), wanted, x, at, updates)


# ---------------------------------------------------------------------------- control flow
def test_while_counts_to_1000() -> None:
    """init = {0, zero_vector[10]}; result = {iteration, new_vector}."""
    constant_vector = np.arange(10, dtype=np.float32)

    def program() -> Any:
        init = b.constant(0, "s32"), b.full("f32[10]", 0.0)
        return b.while_(lambda r: r[0] < 1000, lambda r: (r[0] + 1, r[1] + constant_vector), init)

    iteration, vector = shlo_jit.jit(program)()
    assert iteration == 1000
    check(vector, 1000 * constant_vector)


@pytest.mark.parametrize(("index", "wanted"), [(0, 5), (1, 50), (2, 500), (3, 500), (-1, 500)])
def test_a_branch_that_there_is_not_is_the_last(index: int, wanted: int) -> None:
    def program(n: Any, x: Any) -> Any:
        return b.conditional(n, [lambda v: v, lambda v: v * 10, lambda v: v * 100], [x, x, x])

    check_eval(program, i32(wanted), i32(index), i32(5))


def test_conditional_by_the_names_of_the_document() -> None:
    def program(p: Any, x: Any) -> Any:
        return b.conditional(
            predicate=p, true_operand=x, true_computation=b.neg, false_operand=x, false_computation=b.abs
        )

    check_eval(program, i32(5), np.array(True), i32(-5))
    by_index = shlo_jit.jit(
        lambda n, x: b.conditional(branch_index=n, branch_computations=[b.neg, b.abs], branch_operands=[x, x])
    )
    assert by_index(i32(0), i32(3)) == -3


def test_infeeds_of_two_loops_have_an_order() -> None:
    """result1 = while (condition, init = init_value) { Infeed(shape) }, and another with init = result1."""

    def read(times: int, number: Any) -> Any:
        def body(s: Any) -> Any:
            return s[0] + 1, s[1] * 10 + b.infeed("s32[]")

        return b.while_(lambda s: s[0] < times, body, (b.constant(0, "s32"), number))[1]

    exe = shlo_jit.jit(lambda x: read(2, read(3, x)) * 10 + b.infeed("s32[]")).compile("s32[]")
    for n in range(1, 7):
        exe.infeed.put(i32(n))
    assert exe(i32(0)) == 123456


def test_an_infeed_of_an_empty_tuple_reads_nothing() -> None:
    check_eval(lambda x: (b.infeed("()"), x)[1], i32(5), i32(5))


def test_custom_call() -> None:
    """CustomCall("myfunc", {x, y}, f32[3x3])."""
    x, y = f32([1, 2]), f32([[10, 20, 30], [40, 50, 60]])

    def myfunc(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = np.zeros((3, 3), np.float32)
        z[0, 0] = x[1] + y[1, 0]
        return z

    f = shlo_jit.jit(lambda x, y: b.custom_call("myfunc", [x, y], "f32[3,3]"), custom_calls={"myfunc": myfunc})
    assert f(x, y)[0, 0] == 42


def test_composite_call() -> None:
    with b.function("main", c="f32[]") as f:
        attributes = {"n": np.int32(1), "tensor": i32(1)}
        f.returns(b.composite_call(lambda c: c + 1.0, [f.c], "foo.bar", attributes, 1))
    text = str(f.module)
    assert 'stablehlo.composite "foo.bar"' in text and "n = 1 : i32, tensor = dense<1> : tensor<i32>" in text
    assert "version = 1" in text
    assert shlo_jit.compile(f.module)(f32(2)) == 3


# ---------------------------------------------------------------------------- several processes
def on_replicas(program: Any, *arguments: tuple[np.ndarray, ...], grid: str = "num_replicas") -> list[Any]:
    """Results of each replica (or partition) for the arguments of each."""
    options: dict[str, Any] = {grid: len(arguments)}
    with b.function("main", *arguments[0]) as f:
        f.returns(program(*f))
    with shlo_jit.compile(f.module, transport="threads", **options) as exe:
        return [np.array(found) for found in exe(list(arguments))]


def test_all_gather() -> None:
    got = on_replicas(lambda x: b.all_gather(x, 0, 2), (f32([1.0, 2.5]),), (f32([3.0, 5.25]),))
    assert [x.tolist() for x in got] == [[1.0, 2.5, 3.0, 5.25]] * 2


def test_all_reduce() -> None:
    arguments = (f32([1.0, 2.5]),), (f32([3.0, 5.25]),)
    for program in (lambda x: b.all_reduce(x, b.add, [[0, 1]]), b.cross_replica_sum):
        assert [x.tolist() for x in on_replicas(program, *arguments)] == [[4.0, 7.75]] * 2


def test_reduce_scatter() -> None:
    got = on_replicas(lambda x: b.reduce_scatter(x, b.add, 0, 2), (f32([1.0, 2.25]),), (f32([3.0, 5.25]),))
    assert [x.tolist() for x in got] == [[4.0], [7.5]]


def test_all_to_all() -> None:
    """Four cores: f32[4,16] is split along dimension 1, and received parts are concatenated along dimension 0."""
    xs = [np.arange(64, dtype=np.float32).reshape(4, 16) + 100 * r for r in range(4)]
    got = on_replicas(
        lambda x: b.all_to_all(x, split_dimension=1, concat_dimension=0, split_count=4), *[(x,) for x in xs]
    )
    for r, found in enumerate(got):
        check(found, np.concatenate([x[:, 4 * r : 4 * r + 4] for x in xs]))


def test_all_to_all_of_two_replicas() -> None:
    """f32[2,4] is split along dimension 1 into f32[2,2], and becomes f32[4,2]."""
    xs = [f32([[1, 2, 3, 4], [5, 6, 7, 8]]), f32([[9, 10, 11, 12], [13, 14, 15, 16]])]
    got = on_replicas(lambda x: b.all_to_all(x, 1, 0, 2), *[(x,) for x in xs])
    check(got[0], f32([[1, 2], [5, 6], [9, 10], [13, 14]]))
    check(got[1], f32([[3, 4], [7, 8], [11, 12], [15, 16]]))


@pytest.mark.parametrize("several", [lambda *xs: list(xs), lambda *xs: b.tuple(xs)])
def test_reduce_scatter_of_a_tuple(several: Any) -> None:
    """f32[2,4] on two replicas: each has half of the sum along dimension 1, of each element of the tuple."""
    x, y = f32([[1, 2, 3, 4], [5, 6, 7, 8]]), i32([[1, 2], [3, 4]])
    for part in range(2):
        found = on_replicas(
            lambda x, y, n=part: b.reduce_scatter(several(x, y), b.add, 1, 2)[n], (x, y), (2 * x, 2 * y)
        )
        for r, got in enumerate(found):
            whole = (x, y)[part] * 3
            check(got, np.split(whole, 2, 1)[r])


def test_global_device_ids() -> None:
    """2 replicas of 4 partitions: {0,1,4,5} are (0,0), (0,1), (1,0), (1,1) of (replica, partition)."""
    groups = [[0, 1, 4, 5], [2, 3, 6, 7]]
    with b.function("main", "s32[4]") as f:
        f.returns(b.reduce_scatter(f.arg0, b.add, 0, 4, groups, channel_id=1, use_global_device_ids=True))
    arguments = [(np.full(4, 10**device, np.int32),) for device in range(8)]
    with shlo_jit.compile(f.module, num_replicas=2, num_partitions=4, transport="threads") as exe:
        got = [int(np.array(x)[0]) for x in exe(arguments)]
    assert got == [110011, 110011, 11001100, 11001100] * 2


def test_ragged_all_to_all_with_several_updates() -> None:
    """[num_devices, num_updates]: each device sends two rows to each other, to different positions."""
    sizes, offsets = i32([[1, 1], [1, 1]]), i32([[0, 1], [2, 3]])
    got = on_replicas(
        lambda x, to: b.ragged_all_to_all(x, offsets, sizes, np.zeros(6, np.int32), to, sizes, [[0, 1]]),
        (i32([1, 2, 3, 4]), i32([[0, 2], [0, 2]])),
        (i32([5, 6, 7, 8]), i32([[1, 3], [1, 3]])),
    )
    assert [x.tolist() for x in got] == [[1, 5, 2, 6, 0, 0], [3, 7, 4, 8, 0, 0]]


def test_ragged_all_to_all() -> None:
    def replica(*arrays: list[int]) -> tuple[np.ndarray, ...]:
        return tuple(map(i32, arrays))

    got = on_replicas(
        lambda x, out, offsets, sizes, targets, received: b.ragged_all_to_all(
            x, offsets, sizes, out, targets, received, [[0, 1]]
        ),
        replica([1, 2, 2], [0, 0, 0, 0], [0, 1], [1, 2], [0, 0], [1, 1]),
        replica([3, 4, 0], [0, 0, 0, 0], [0, 1], [1, 1], [1, 2], [2, 1]),
    )
    assert [x.tolist() for x in got] == [[1, 3, 0, 0], [2, 2, 4, 0]]


def test_collective_permute_and_broadcast() -> None:
    arguments = (f32([1, 2]),), (f32([3, 4]),)
    swapped = on_replicas(lambda x: b.collective_permute(x, [(0, 1)]), *arguments)
    assert [x.tolist() for x in swapped] == [[0, 0], [1, 2]]
    spread = on_replicas(lambda x: b.collective_broadcast(x, [[1, 0]]), *arguments)
    assert [x.tolist() for x in spread] == [[3, 4], [3, 4]]


def test_replica_ids() -> None:
    got = on_replicas(lambda x: x + b.replica_id(), (np.uint32(10),), (np.uint32(20),))
    assert [int(x) for x in got] == [10, 21]


def test_send_and_recv_between_processes() -> None:
    def program(x: Any) -> Any:
        b.send(x, 3, [(0, 1)])
        return b.recv_done(b.recv("f32[2]", 3, [(0, 1)]))

    got = on_replicas(program, (f32([1, 2]),), (f32([3, 4]),), grid="num_partitions")
    assert got[1].tolist() == [1, 2]
