"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import DotDimensionNumbers, RaggedDotDimensionNumbers, Value
from shlo_jit.torch.aten.reductions import total
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import (
    BOOL,
    I32,
    I64,
    broadcast_to,
    cast,
    number,
    pair,
    promoted,
    sizes,
    together,
    wide,
)
from shlo_jit.torch.aten.views import new_dimension


def product(x: Value, y: Value, dims: DotDimensionNumbers, wanted: object = None) -> Value:
    """A general product; truth values are not multiplied."""
    if x.element_type == BOOL:
        raise Unsupported("products of truth values are not defined")
    return b.dot_general(x, y, dims, preferred_element_type=wanted)  # type: ignore[arg-type]  an element type


def matrix_product(x: Value, y: Value, wanted: object = None) -> Value:
    """x @ y of matrices, or of batches of matrices."""
    rank = x.ndim
    batch = tuple(range(rank - 2))
    return product(x, y, DotDimensionNumbers((rank - 1,), (rank - 2,), batch, batch), wanted)


@aten("mm")
def mm(call: Call, x: Value, y: Value) -> Value:
    """The product of two matrices."""
    return matrix_product(x, y)


@aten("bmm")
def bmm(call: Call, x: Value, y: Value) -> Value:
    """The products of the matrices of two batches."""
    return matrix_product(x, y)


@aten("_int_mm")
def int_mm(call: Call, x: Value, y: Value) -> Value:
    """The product of two matrices of 8-bit integers, as 32-bit integers."""
    return matrix_product(x, y, I32)


@aten("mv")
def mv(call: Call, x: Value, y: Value) -> Value:
    """The product of a matrix and a vector."""
    return product(x, y, DotDimensionNumbers((1,), (0,)))


@aten("dot")
def dot(call: Call, x: Value, y: Value) -> Value:
    """The product of two vectors."""
    return product(x, y, DotDimensionNumbers((0,), (0,)))


@aten("vdot")
def vdot(call: Call, x: Value, y: Value) -> Value:
    """The product of two vectors, the first conjugated."""
    return product(b.conj(x) if x.element_type.kind == "c" else x, y, DotDimensionNumbers((0,), (0,)))


def _added(call: Call, x: Value, found: Value, beta: float, alpha: float) -> Value:
    """beta * x + alpha * found; x is not read if beta is 0."""
    dtype = wide(call.dtype)
    y = found if alpha == 1 else cast(cast(found, dtype) * number(alpha, dtype), call.dtype)
    if beta == 0:
        return y
    left, right = pair(dtype, x, y)
    return cast((left if beta == 1 else left * number(beta, dtype)) + right, call.dtype)


@aten("addmm")
def addmm(call: Call, x: Value, y: Value, z: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta * x + alpha * y @ z of matrices."""
    return _with_sum(call, x, y, z, DotDimensionNumbers((1,), (0,)), beta, alpha)


@aten("baddbmm")
def baddbmm(call: Call, x: Value, y: Value, z: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta * x + alpha * y @ z of the matrices of batches."""
    return _with_sum(call, x, y, z, DotDimensionNumbers((2,), (1,), (0,), (0,)), beta, alpha)


@aten("addmv")
def addmv(call: Call, x: Value, y: Value, z: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta * x + alpha * y @ z of a matrix and a vector."""
    return _with_sum(call, x, y, z, DotDimensionNumbers((1,), (0,)), beta, alpha)


def _with_sum(call: Call, x: Value, y: Value, z: Value, dims: DotDimensionNumbers, beta: float, alpha: float) -> Value:
    found = product(y, z, dims)
    return _added(call, broadcast_to(x, sizes(found)), found, beta, alpha)


@aten("addbmm")
def addbmm(call: Call, x: Value, y: Value, z: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta * x + alpha times the sum of the products of a batch."""
    found = product(y, z, DotDimensionNumbers((0, 2), (0, 1)))
    return _added(call, broadcast_to(x, sizes(found)), found, beta, alpha)


@aten("linear")
def linear(call: Call, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x @ weight.T + bias."""
    last = weight.ndim - 1
    found = product(x, weight, DotDimensionNumbers((x.ndim - 1,), (last,)))
    return found if bias is None else cast(b.add(*pair(wide(call.dtype), found, bias)), call.dtype)


@aten("matmul")
def matmul(call: Call, x: Value, y: Value) -> Value:
    """The product of vectors, matrices, or batches of matrices."""
    dtype = promoted(x, y)
    return b.matmul(cast(x, dtype), cast(y, dtype))


@aten("_trilinear")
def trilinear(
    call: Call, x: Value, y: Value, z: Value, expand_x: Sequence[int], expand_y: Sequence[int],
    expand_z: Sequence[int], summed: Sequence[int], unroll_dim: int = 1,
) -> Value:  # fmt: skip
    """The sum along some dimensions of x * y * z, each of which is repeated along dimensions of its own."""
    dtype = wide(call.dtype)
    given = []
    for value, dims in ((x, expand_x), (y, expand_y), (z, expand_z)):
        for d in sorted(dims):
            value = new_dimension(value, d)
        given.append(cast(value, dtype))
    left, middle, right = together(dtype, *given)
    return cast(total(left * middle * right, tuple(summed), dtype), call.dtype)


@aten("_weight_int8pack_mm")
def weight_int8(call: Call, x: Value, weight: Value, scales: Value) -> Value:
    """x @ weight.T, whose rows of 8-bit integers have scales."""
    dtype = wide(x.element_type)
    found = product(cast(x, dtype), cast(weight, dtype), DotDimensionNumbers((1,), (1,)))
    return cast(b.mul(*pair(dtype, found, scales)), x.element_type)


def _group_sizes(offsets: Value) -> Value:
    """Sizes of the groups that end at offsets."""
    n = sizes(offsets)[0]
    ends = cast(offsets, I64)
    starts = b.pad(ends, number(0, I64), [(1, -1, 0)]) if n > 1 else b.broadcast_in_dim(number(0, I64), (1,), ())
    return ends - starts


def _grouped_rows(x: Value, y: Value, offsets: Value, dtype: object, summed: tuple[int, int] = (1, 1)) -> Value:
    """Multiplies each group of rows of x[m,k] by a matrix of y[g,k,n] to [m,n]; `summed` are the dimensions of k."""
    dims = DotDimensionNumbers((summed[0],), (summed[1],))
    numbers = RaggedDotDimensionNumbers(dims, (1 - summed[0],), (0,))
    return b.ragged_dot(x, y, _group_sizes(offsets), numbers, preferred_element_type=dtype)  # type: ignore[arg-type]


def _grouped_sums(x: Value, y: Value, offsets: Value, dtype: object, summed: tuple[int, int]) -> Value:
    """Multiplies two matrices and adds the products of each group separately, to [g,m,n]."""
    dims = DotDimensionNumbers((summed[0],), (summed[1],))
    numbers = RaggedDotDimensionNumbers(dims, (summed[0],), ())
    return b.ragged_dot(x, y, _group_sizes(offsets), numbers, preferred_element_type=dtype)  # type: ignore[arg-type]


@aten("_grouped_mm")
def grouped_mm(
    call: Call, x: Value, y: Value, offsets: Value | None = None, bias: Value | None = None, out_dtype: object = None
) -> Value:
    """Products of groups of rows or columns, which end at offsets, with a matrix for each group, or of such groups."""
    if bias is not None:
        raise Unsupported("grouped products with a bias are not supported")
    if offsets is None:
        return matrix_product(x, y, call.dtype)
    if x.ndim == 2 and y.ndim == 3:
        return _grouped_rows(x, y, offsets, call.dtype)
    if x.ndim == 3:  # groups of columns of y
        return b.transpose(_grouped_rows(y, x, offsets, call.dtype, summed=(0, 2)), (1, 0))
    return _grouped_sums(x, y, offsets, call.dtype, summed=(1, 0))


@aten("transformers::grouped_mm_fallback")
def grouped_mm_of_transformers(call: Call, input: Value, weight: Value, offs: Value) -> Value:
    """The operator by which transformers multiplies the rows of each expert where `_grouped_mm` takes no such types."""
    return _grouped_rows(input, weight, offs, call.dtype)


@aten("transformers::grouped_mm_fallback_backward")
def grouped_mm_of_transformers_backward(
    call: Call, input: Value, weight: Value, offs: Value, grad_output: Value
) -> tuple[Value, Value]:
    """Gradients of `transformers.grouped_mm_fallback` by the rows and by the matrices."""
    by_rows = _grouped_rows(grad_output, weight, offs, call.dtypes[0], summed=(1, 2))
    return by_rows, _grouped_sums(input, grad_output, offs, call.dtypes[1], summed=(0, 0))
