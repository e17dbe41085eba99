"""Factors of matrices and solutions of triangular systems."""

from __future__ import annotations

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.creation import triangle
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import broadcast_to, common_shape, filled, sizes
from shlo_jit.torch.aten.views import swapped


def _triangle_of(x: Value, lower: bool) -> Value:
    shape = sizes(x)
    inside = b.broadcast_in_dim(triangle(shape, 0, lower), shape, (len(shape) - 2, len(shape) - 1))
    return b.select(inside, x, filled(shape, 0, x.element_type))


@aten("cholesky")
def cholesky(call: Call, x: Value, upper: bool = False) -> Value:
    """The triangular factor of positive definite matrices."""
    return _triangle_of(b.cholesky(x, not upper), not upper) if 0 not in sizes(x) else x


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
