"""Functions of matrices: pseudoinverses, exponentials, roots, eigenvalues, products with orthogonal factors."""

from __future__ import annotations

import math

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import DotDimensionNumbers, Value
from shlo_jit.ir.types import tensor
from shlo_jit.torch.aten.lapack import lapack
from shlo_jit.torch.aten.linalg import conjugate_transpose, householder_product, identities
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import (
    C128,
    F64,
    I32,
    I64,
    broadcast_to,
    cast,
    complex_of,
    filled,
    keep,
    number,
    sizes,
    slice_along,
)


def product(x: Value, y: Value) -> Value:
    """The products of two batches of matrices."""
    batch = tuple(range(x.ndim - 2))
    return b.dot_general(x, y, DotDimensionNumbers((x.ndim - 1,), (y.ndim - 2,), batch, batch))


def _scaled_columns(x: Value, factors: Value) -> Value:
    """Matrices with columns times real factors."""
    shape = sizes(x)
    spread = b.broadcast_in_dim(factors, shape, (*range(x.ndim - 2), x.ndim - 1))
    return x * cast(spread, x.element_type)


# ---------------------------------------------------------------------------- by singular values and eigenvalues
@aten("linalg_pinv", "linalg_pinv.rcond_tensor", "linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_float")
def linalg_pinv(
    call: Call, x: Value, rcond: Value | float | None = None, hermitian: bool = False, *,
    atol: Value | float | None = None, rtol: Value | float | None = None,
) -> Value:  # fmt: skip
    """The pseudoinverse of matrices. Singular values up to a limit count as zero."""
    if 0 in sizes(x):
        return filled(call.shape, 0, call.dtype)
    if hermitian:
        values, right = call.lowered("aten._linalg_eigh.default", x)
        left = right
    else:
        left, values, high = call.lowered("aten._linalg_svd.default", x)
        right = conjugate_transpose(high)
    size = b.abs(values)
    dtype = size.element_type
    limits = sizes(size)[:-1]
    if rtol is None:
        rtol = rcond
    if rtol is None:
        rtol = np.finfo(dtype.numpy).eps * max(sizes(x)[-2:])
        if isinstance(atol, Value):
            relative = b.select(cast(atol, dtype) > number(0, dtype), number(0, dtype), number(rtol, dtype))
        else:
            relative = number(0 if atol else rtol, dtype)
    else:
        relative = cast(rtol, dtype)
    absolute = broadcast_to(cast(0.0 if atol is None else atol, dtype), limits)
    limit = b.max(absolute, broadcast_to(relative, limits) * b.reduce_max(size, (size.ndim - 1,)))
    is_zero = size <= broadcast_to(keep(limit, (size.ndim - 1,), size.ndim), sizes(size))
    inverse = b.select(is_zero, filled(sizes(size), 0, dtype), number(1, dtype) / values)
    return product(_scaled_columns(right, inverse), conjugate_transpose(left))


@aten("linalg_matrix_sqrth")
def linalg_matrix_sqrth(call: Call, x: Value) -> Value:
    """The square root of symmetric matrices that are not negative."""
    values, vectors = call.lowered("aten._linalg_eigh.default", x)
    root = b.sqrt(b.max(values, filled(sizes(values), 0, values.element_type)))
    return product(_scaled_columns(vectors, root), conjugate_transpose(vectors))


@aten("linalg_polar")
def linalg_polar(call: Call, x: Value) -> tuple[Value, Value]:
    """A matrix with orthogonal columns or rows and a symmetric one that is not negative, whose product is x."""
    left, values, high = call.lowered("aten._linalg_svd.default", x)
    return product(left, high), product(_scaled_columns(conjugate_transpose(high), values), high)


@aten("linalg_eig", "_linalg_eigvals", "linalg_eigvals")
def linalg_eig(call: Call, x: Value) -> Value | tuple[Value, Value]:
    """The eigenvalues of matrices, and the eigenvectors."""
    *batch, n, _ = sizes(x)
    pairs = complex_of(x.element_type)
    has_vectors = "eigvals" not in call.target
    is_real = x.element_type.kind != "c"
    values = [tensor((*batch, n), x.element_type)] * 2 if is_real else [tensor((*batch, n), pairs)]
    shapes = [*values, *[tensor(sizes(x), pairs)] * 2, tensor(tuple(batch), I32)]
    letters = {"compute_left": ord("N"), "compute_right": ord("V" if has_vectors else "N")}
    vectors = {len(values) + 2, *range(len(values))}
    *first, _, right, _ = lapack(x, "geev", shapes, sorted(vectors), **letters)
    found = b.complex(first[0], first[1]) if is_real and 0 not in sizes(x) else cast(first[0], pairs)
    return (found, right) if has_vectors else found


# ---------------------------------------------------------------------------- exponential
_EXPONENTIAL_DEGREE = 18
_EXPONENTIAL_NORM = 1.0
"""Matrices of a norm up to it need this degree of the series in f64."""
_MOST_SQUARES = 1100
"""More squares than any norm of finite numbers needs."""


@aten("linalg_matrix_exp", "matrix_exp")
def linalg_matrix_exp(call: Call, x: Value) -> Value:
    """The exponential of matrices: a series of the matrix divided by a power of two, and squares of its sum,
    in f64."""
    if 0 in sizes(x):
        return x
    *batch, n, _ = sizes(x)
    rank, dtype = x.ndim, C128 if x.element_type.kind == "c" else F64
    x = cast(x, dtype)
    size = b.abs(x)
    real = size.element_type
    norm = b.reduce_max(b.reduce_sum(size, (rank - 2,)), (rank - 2,))
    exponent = b.ceil(b.log(norm / number(_EXPONENTIAL_NORM, real)) / number(math.log(2), real))
    exponent = b.clamp(number(0, real), exponent, number(_MOST_SQUARES, real))
    exponent = b.select(norm < number(math.inf, real), exponent, filled(sizes(norm), 0, real))

    def spread(v: Value) -> Value:
        return b.broadcast_in_dim(v, sizes(x), range(len(batch)))

    half = b.floor(exponent / number(2, real))  # in two steps: a power of two may be too small for a float
    power = (b.pow(filled(sizes(norm), 0.5, real), p) for p in (half, exponent - half))
    scaled = x
    for factor in power:
        scaled = scaled * cast(spread(factor), dtype)
    eye = identities(batch, n, n, dtype)
    found = eye
    for k in range(_EXPONENTIAL_DEGREE, 0, -1):
        found = eye + product(scaled, found) * number(1 / k, dtype)
    squares = cast(exponent, I64)
    most = b.reduce(squares, number(0, I64), b.max, range(len(batch)))
    assert isinstance(most, Value)

    def body(state: tuple[Value, Value]) -> tuple[Value, Value]:
        index, y = state
        return index + number(1, I64), b.select(spread(index < squares), product(y, y), y)

    return cast(b.while_(lambda state: state[0] < most, body, (number(0, I64), found))[1], call.dtype)


# ---------------------------------------------------------------------------- orthogonal factors
@aten("ormqr")
def ormqr(call: Call, x: Value, tau: Value, other: Value, left: bool = True, transpose: bool = False) -> Value:
    """The product of a matrix and the orthogonal factor whose reflections are the columns of x, or its adjoint."""
    rows = sizes(x)[-2]
    if sizes(x)[:-2] != sizes(other)[:-2]:
        raise Unsupported("reflections and matrices of different batches are not supported")
    missing = rows - sizes(x)[-1]
    if missing > 0:
        x = b.concatenate([x, filled((*sizes(x)[:-1], missing), 0, x.element_type)], x.ndim - 1)
    square = slice_along(x, x.ndim - 1, 0, rows)
    whole = householder_product(call, square, tau)
    factor = conjugate_transpose(whole) if transpose else whole
    return product(factor, other) if left else product(other, factor)

