"""Factorizations of matrices by LAPACK, whose functions the machine code calls: the extra `lapack`."""

from __future__ import annotations

from shlo_jit import builder as b
from shlo_jit.builder import DotDimensionNumbers, Value
from shlo_jit.ir.types import tensor
from shlo_jit.torch.aten.lapack import lapack
from shlo_jit.torch.aten.linalg import conjugate_transpose, householder_product, identities, triangle_of
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import (
    F32,
    F64,
    I32,
    I64,
    broadcast_to,
    cast,
    common_shape,
    filled,
    iota,
    keep,
    number,
    sizes,
    slice_along,
)
from shlo_jit.torch.aten.views import diagonals, new_dimension, swapped


def lu_factor(x: Value) -> tuple[Value, Value, Value]:
    """Both triangular factors in one matrix, the rows that were exchanged (from 1), and LAPACK's status."""
    *batch, m, n = sizes(x)
    shapes = [tensor(sizes(x), x.element_type), tensor((*batch, min(m, n)), I32), tensor(tuple(batch), I32)]
    factors, pivots, info = lapack(x, "getrf", shapes, (1, 2))
    return factors, pivots, info


def permutation(pivots: Value, rows: int) -> Value:
    """The rows of the matrix in the order that exchanging them gives: the first one becomes row `result[0]`."""
    *batch, count = sizes(pivots)
    shape = (*batch, rows)
    columns = iota(shape, len(batch))
    if 0 in sizes(pivots):
        return columns
    targets = cast(pivots, I64) - number(1, I64)

    def at(on: Value, order: Value) -> Value:
        found = b.reduce_sum(b.select(on, order, filled(shape, 0, I64)), (len(batch),))
        return broadcast_to(keep(found, (len(batch),), len(shape)), shape)

    def exchanged(state: tuple[Value, Value]) -> tuple[Value, Value]:
        i, order = state
        starts = [number(0, I64)] * len(batch) + [i]
        j = b.dynamic_slice(targets, starts, [*batch, 1])
        is_first = columns == i
        is_second = columns == broadcast_to(j, shape)
        first, second = (at(on, order) for on in (is_first, is_second))
        return i + number(1, I64), b.select(is_first, second, b.select(is_second, first, order))

    start = number(0, I64), columns
    return b.while_(lambda state: state[0] < number(count, I64), exchanged, start)[1]


def rows_in_order(x: Value, order: Value) -> Value:
    """The rows of matrices in another order."""
    *batch, m, _ = sizes(x)
    return b.dot_general(one_hot(order, m, x), x, _plain(len(batch)))


def one_hot(order: Value, m: int, like: Value) -> Value:
    """Matrices whose row i has a one at place `order[i]`."""
    shape = (*sizes(order), m)
    spread = b.broadcast_in_dim(order, shape, range(order.ndim))
    return cast(spread == iota(shape, order.ndim), like.element_type)


def _plain(batch: int) -> DotDimensionNumbers:
    return DotDimensionNumbers((batch + 1,), (batch,), tuple(range(batch)), tuple(range(batch)))


def solve_by_factors(factors: Value, pivots: Value, right: Value, adjoint: bool = False) -> Value:
    """Solves a system by the factors of its matrix; with `adjoint`, that of the adjoint matrix."""
    batch = common_shape(sizes(factors)[:-2], sizes(right)[:-2])
    lu = broadcast_to(factors, (*batch, *sizes(factors)[-2:]))
    rest = broadcast_to(right, (*batch, *sizes(right)[-2:]))
    order = permutation(broadcast_to(pivots, (*batch, sizes(pivots)[-1])), sizes(factors)[-2])
    if 0 in sizes(rest):
        return rest
    if adjoint:
        first = b.triangular_solve(lu, rest, True, False, False, "ADJOINT")
        second = b.triangular_solve(lu, first, True, True, True, "ADJOINT")
        back = swapped(one_hot(order, sizes(lu)[-1], second), -1, -2)
        return b.dot_general(back, second, _plain(len(batch)))
    first = b.triangular_solve(lu, rows_in_order(rest, order), True, True, True, "NO_TRANSPOSE")
    return b.triangular_solve(lu, first, True, False, False, "NO_TRANSPOSE")


# ---------------------------------------------------------------------------- LU
@aten("linalg_lu_factor_ex")
def linalg_lu_factor_ex(
    call: Call, x: Value, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Value, Value, Value]:
    """Both triangular factors in one matrix, the rows that were exchanged, and LAPACK's status."""
    if not pivot:
        raise Unsupported("factors without pivots are not supported")
    return lu_factor(x)


@aten("linalg_lu_solve")
def linalg_lu_solve(
    call: Call, factors: Value, pivots: Value, right: Value, *, left: bool = True, adjoint: bool = False
) -> Value:
    """Solves a system by the triangular factors of its matrix."""
    if not left:
        found = solve_by_factors(factors, pivots, conjugate_transpose(right), not adjoint)
        return conjugate_transpose(found)
    return solve_by_factors(factors, pivots, right, adjoint)


def _unpacked(factors: Value, pivots: Value) -> tuple[Value, Value, Value]:
    """The matrices P, L and U of a factorization."""
    m, n = sizes(factors)[-2:]
    k = min(m, n)
    rank = factors.ndim
    low = triangle_of(slice_along(factors, rank - 1, 0, k), True)
    eye = broadcast_to(iota((m, k), 0) == iota((m, k), 1), sizes(low))
    low = b.select(eye, filled(sizes(low), 1, low.element_type), low)
    high = triangle_of(slice_along(factors, rank - 2, 0, k), False)
    return swapped(one_hot(permutation(pivots, m), m, factors), -1, -2), low, high


@aten("linalg_lu")
def linalg_lu(call: Call, x: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    """The matrices P, L and U with x = P @ L @ U."""
    if not pivot:
        raise Unsupported("factors without pivots are not supported")
    factors, pivots, _ = lu_factor(x)
    return _unpacked(factors, pivots)


@aten("lu_unpack")
def lu_unpack(
    call: Call, factors: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, ...]:
    """The matrices P, L and U of both triangular factors in one matrix."""
    found = _unpacked(factors, pivots)
    wanted = (unpack_pivots, unpack_data, unpack_data)
    shapes = call.shapes()
    return tuple(v if w else filled(s or (), 0, v.element_type) for v, w, s in zip(found, wanted, shapes, strict=True))


@aten("linalg_inv_ex")
def linalg_inv_ex(call: Call, x: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    """The inverse of matrices, and LAPACK's status."""
    factors, pivots, info = lu_factor(x)
    n = sizes(x)[-1]
    eye = cast(iota((n, n), 0) == iota((n, n), 1), x.element_type)
    return solve_by_factors(factors, pivots, broadcast_to(eye, sizes(x))), info


@aten("_linalg_solve_ex")
def linalg_solve_ex(
    call: Call, x: Value, right: Value, *, left: bool = True, check_errors: bool = False
) -> tuple[Value, Value, Value, Value]:
    """The solution of a system, the triangular factors of its matrix, their pivots, and LAPACK's status."""
    factors, pivots, info = lu_factor(x)
    is_vector = right.ndim == 1 or (right.ndim == x.ndim - 1 and sizes(right) == sizes(x)[:-1])
    rest = new_dimension(right, right.ndim) if is_vector else right
    found = linalg_lu_solve(call, factors, pivots, rest, left=left or is_vector)
    return b.reshape(found, call.shape), factors, pivots, info


def _sign_and_diagonal(factors: Value, pivots: Value) -> tuple[Value, Value]:
    """1 or -1 for an even or odd number of exchanges, and the diagonal of the upper factor."""
    n = sizes(factors)[-1]
    places = b.broadcast_in_dim(iota((n,), 0, I32) + number(1, I32), sizes(pivots), (pivots.ndim - 1,))
    exchanges = b.reduce_sum(cast(pivots != places, I32), (pivots.ndim - 1,))
    is_odd = b.rem(exchanges, filled(sizes(exchanges), 2, I32)) == number(1, I32)
    one = filled(sizes(exchanges), 1, factors.element_type)
    return b.select(is_odd, -one, one), diagonals(factors, 0, -2, -1)


@aten("_linalg_det")
def linalg_det(call: Call, x: Value) -> tuple[Value, Value, Value]:
    """The determinant, the triangular factors and their pivots."""
    factors, pivots, _ = lu_factor(x)
    sign, diagonal = _sign_and_diagonal(factors, pivots)
    return sign * b.reduce_prod(diagonal, (diagonal.ndim - 1,)), factors, pivots


@aten("_linalg_slogdet")
def linalg_slogdet(call: Call, x: Value) -> tuple[Value, Value, Value, Value]:
    """The sign and the logarithm of the determinant's absolute value, the triangular factors and their pivots."""
    factors, pivots, _ = lu_factor(x)
    sign, diagonal = _sign_and_diagonal(factors, pivots)
    last = (diagonal.ndim - 1,)
    sizes_of = b.abs(diagonal)
    if diagonal.element_type.kind == "c":
        part = b.select(
            sizes_of == number(0, sizes_of.element_type), filled(sizes(sizes_of), 1, sizes_of.element_type), sizes_of
        )
        signs = diagonal / b.complex(part, filled(sizes(part), 0, part.element_type))
    else:
        signs = b.sign(diagonal)
    return sign * b.reduce_prod(signs, last), b.reduce_sum(b.log(sizes_of), last), factors, pivots


# ---------------------------------------------------------------------------- QR, eigenvalues, singular values
@aten("geqrf")
def geqrf(call: Call, x: Value) -> tuple[Value, Value]:
    """The reflections of a factorization to orthogonal and triangular matrices, and their factors."""
    *batch, m, n = sizes(x)
    factors, tau = lapack(
        x, "geqrf", [tensor(sizes(x), x.element_type), tensor((*batch, min(m, n)), x.element_type)], (1,)
    )
    return factors, tau


@aten("linalg_qr")
def linalg_qr(call: Call, x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    """An orthogonal and an upper triangular matrix whose product is x."""
    *batch, m, n = sizes(x)
    factors, tau = geqrf(call, x)
    rows = m if mode == "complete" else min(m, n)
    high = triangle_of(slice_along(factors, x.ndim - 2, 0, rows), False)
    if mode == "r":
        return filled(call.shape, 0, x.element_type), high
    reflections = slice_along(factors, x.ndim - 1, 0, min(m, n))
    if mode == "complete" and m > n:
        zeros = filled((*batch, m, m - n), 0, x.element_type)
        reflections = b.concatenate([reflections, zeros], x.ndim - 1)
    return householder_product(call, reflections, tau), high


@aten("_linalg_eigh")
def linalg_eigh(call: Call, x: Value, UPLO: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    """The eigenvalues of symmetric matrices in ascending order, and the eigenvectors."""
    *batch, n, _ = sizes(x)
    part = {"f32": F32, "f64": F64, "complex<f32>": F32, "complex<f64>": F64}.get(x.element_type.name, F32)
    routine = "heevd" if x.element_type.kind == "c" else "syevd"
    shapes = [tensor(sizes(x), x.element_type), tensor((*batch, n), part), tensor(tuple(batch), I32)]
    mode, triangle = ord("V" if compute_v else "N"), ord(UPLO.upper())
    vectors, values, _info = lapack(x, routine, shapes, (1, 2), mode=mode, uplo=triangle)
    return values, vectors if compute_v else filled((0,), 0, x.element_type)


@aten("_linalg_svd")
def linalg_svd(
    call: Call, x: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Value, Value, Value]:
    """Orthogonal matrices and singular values whose product is x."""
    *batch, m, n = sizes(x)
    k = min(m, n)
    part = {"f32": F32, "f64": F64, "complex<f32>": F32, "complex<f64>": F64}.get(x.element_type.name, F32)
    rows, columns = (k, k) if compute_uv and not full_matrices else (m, n)
    mode = "N" if not compute_uv else "A" if full_matrices else "S"
    t = x.element_type
    shapes = [
        tensor(sizes(x), t), tensor((*batch, k), part), tensor((*batch, m, rows), t),
        tensor((*batch, columns, n), t), tensor(tuple(batch), I32),
    ]  # fmt: skip
    _, values, left, right, _ = lapack(x, "gesdd", shapes, (1, 4), mode=ord(mode))
    if not compute_uv:
        empty = filled((0,), 0, t)
        return empty, values, empty
    if not k:
        left, right = (identities(batch, extent, other, t) for extent, other in ((m, rows), (columns, n)))
    return left, values, right
