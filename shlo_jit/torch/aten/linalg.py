"""Factors of matrices and solutions of triangular systems."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import DotDimensionNumbers, Value
from shlo_jit.ir.dtypes import DType
from shlo_jit.torch.aten.creation import triangle
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import I32, broadcast_to, cast, common_shape, filled, iota, is_nan, sizes, slice_along
from shlo_jit.torch.aten.views import swapped


def triangle_of(x: Value, lower: bool) -> Value:
    """The lower or upper triangle of matrices, with zeros elsewhere."""
    shape = sizes(x)
    inside = b.broadcast_in_dim(triangle(shape, 0, lower), shape, (len(shape) - 2, len(shape) - 1))
    return b.select(inside, x, filled(shape, 0, x.element_type))


def conjugate_transpose(x: Value) -> Value:
    """The conjugate transposes of matrices."""
    y = swapped(x, -1, -2)
    return b.conj(y) if y.element_type.kind == "c" else y


def identities(batch: Sequence[int], rows: int, columns: int, dtype: DType) -> Value:
    """Matrices with ones on the diagonal."""
    one = iota((rows, columns), 0) == iota((rows, columns), 1)
    return broadcast_to(cast(one, dtype), (*batch, rows, columns))


@aten("cholesky")
def cholesky(call: Call, x: Value, upper: bool = False) -> Value:
    """The triangular factor of positive definite matrices."""
    return triangle_of(b.cholesky(x, not upper), not upper) if 0 not in sizes(x) else x


@aten("triangular_solve")
def triangular_solve(
    call: Call, right: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    """Solves a @ x = right for triangular matrices."""
    batch = common_shape(sizes(a)[:-2], sizes(right)[:-2])
    matrix = broadcast_to(a, (*batch, *sizes(a)[-2:]))
    rest = broadcast_to(right, (*batch, *sizes(right)[-2:]))
    return b.triangular_solve(matrix, rest, True, not upper, unitriangular,
                              "TRANSPOSE" if transpose else "NO_TRANSPOSE"), matrix  # fmt: skip


@aten("linalg_solve_triangular")
def linalg_solve_triangular(
    call: Call, a: Value, right: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    """Solves a @ x = right, or x @ a = right, for triangular matrices."""
    batch = common_shape(sizes(a)[:-2], sizes(right)[:-2])
    matrix = broadcast_to(a, (*batch, *sizes(a)[-2:]))
    rest = broadcast_to(right, (*batch, *sizes(right)[-2:]))
    if 0 in sizes(rest) or 0 in sizes(matrix):
        return rest
    return b.triangular_solve(matrix, rest, left, not upper, unitriangular, "NO_TRANSPOSE")


@aten("cholesky_solve")
def cholesky_solve(call: Call, right: Value, a: Value, upper: bool = False) -> Value:
    """Solves a system by the triangular factor of its matrix."""
    batch = common_shape(sizes(a)[:-2], sizes(right)[:-2])
    matrix = broadcast_to(a, (*batch, *sizes(a)[-2:]))
    rest = broadcast_to(right, (*batch, *sizes(right)[-2:]))
    if upper:
        matrix = swapped(matrix, -1, -2)
        matrix = b.conj(matrix) if matrix.element_type.kind == "c" else matrix
    first = b.triangular_solve(matrix, rest, True, True, False, "NO_TRANSPOSE")
    return b.triangular_solve(matrix, first, True, True, False, "ADJOINT")


@aten("cholesky_inverse")
def cholesky_inverse(call: Call, a: Value, upper: bool = False) -> Value:
    """The inverse of a matrix by its triangular factor."""
    shape = sizes(a)
    identity = cast(iota(shape[-2:], 0) == iota(shape[-2:], 1), a.element_type)
    return cholesky_solve(call, broadcast_to(identity, shape), a, upper)


@aten("linalg_cholesky_ex")
def linalg_cholesky_ex(call: Call, x: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    """The triangular factor of positive definite matrices, and whether they were not (1, or 0)."""
    found = cholesky(call, x, upper)
    where = tuple(range(x.ndim - 2, x.ndim))
    parts = b.real(found) if found.element_type.kind == "c" else found
    failed = b.reduce_or(is_nan(parts), where)
    return found, cast(failed, I32)


@aten("linalg_householder_product")
def householder_product(call: Call, x: Value, tau: Value) -> Value:
    """The product of the reflections that are the columns of a matrix."""
    rows, columns = sizes(x)[-2:]
    batch = sizes(x)[:-2]
    rank = len(batch) + 2
    eye = cast(iota((rows, rows), 0) == iota((rows, rows), 1), x.element_type)
    found = broadcast_to(eye, (*batch, rows, rows))
    numbers = DotDimensionNumbers((rank - 1,), (rank - 2,), tuple(range(rank - 2)), tuple(range(rank - 2)))
    below = triangle_of(x, True) if 0 not in sizes(x) else x
    for i in range(sizes(tau)[-1]):
        column = slice_along(below, rank - 1, i, i + 1)
        unit = broadcast_to(cast(iota((rows, 1), 0) == i, x.element_type), sizes(column))
        is_above = broadcast_to(iota((rows, 1), 0) <= i, sizes(column))
        reflected = b.select(is_above, unit, column)
        row = swapped(b.conj(reflected) if x.element_type.kind == "c" else reflected, -1, -2)
        factor = b.reshape(slice_along(tau, tau.ndim - 1, i, i + 1), (*batch, 1, 1))
        change = b.dot_general(b.dot_general(found, reflected, numbers), row, numbers)
        found = found - broadcast_to(factor, sizes(change)) * change
    return slice_along(found, rank - 1, 0, columns)
