"""Eigenvalues of Hermitian matrices and singular values, by Jacobi rotations.

A sweep annihilates every pair (p, q) once, in n - 1 steps of n / 2 pairs that have no row in common (R. P. Brent, F. T.
Luk, "The solution of singular-value and symmetric eigenvalue problems on multiprocessor arrays", 1985): row k is paired
with row k + n / 2, and rows move on between steps like players of a tournament. A step is elementwise, with reductions
that are exact or along adjacent elements. Sweeps converge quadratically. Each matrix of a batch stops on its own.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import I1, I32
from shlo_jit.passes.factorizations.matrices import (
    COLUMNS,
    ROWS,
    Matrices,
    epsilon,
    identity,
    joined,
    repeated,
    sorted_rows,
    steps,
    zeros,
)
from shlo_jit.passes.factorizations.reflectors import apply_reflectors, orthogonal, qr

SWEEPS = 60
"""Sweeps after which a matrix has not converged. Chosen: f64 needs at most some 15."""


class Rotations(NamedTuple):
    """The rotations of all pairs of a step: row k becomes row k + (`other` * its partner - `lost` * row k). Columns
    [count, n, 1]. Small rotations so lose less than with the cosine, 1 - `lost`, which is rounded to about 1."""

    lost: Matrices
    other: Matrices
    shift: Matrices
    """What the first element of the diagonal loses, and the second gains: [count, n / 2, 1]."""


def _rotations(p: Matrices, q: Matrices, beside: Matrices) -> Rotations:
    """The rotations that diagonalize [[p, beside], [conj(beside), q]], given as columns [count, n / 2, 1]."""
    size = beside.size()
    if beside.is_complex:  # scaled, so that squares neither overflow nor underflow
        unit = size.where(size > 0, 1)
        size = (beside / unit).square().apply("sqrt") * unit
    none = size.equals(0)
    safe = size.where(~none, 1) if beside.is_complex else beside.where(~none, 1)
    ratio = (q - p) / (safe * 2)
    root = ratio.apply("abs") + (ratio * ratio + 1).apply("sqrt")
    tangent = (root.like(1) / root.where(ratio >= 0, -root)).where(~none, 0)
    cosine = tangent.like(1) / (tangent * tangent + 1).apply("sqrt")
    sine = tangent * cosine
    lost = sine * sine / (cosine + 1)
    lost = joined([lost, lost], ROWS)
    if not beside.is_complex:
        return Rotations(lost, joined([-sine, sine], ROWS), tangent * beside)
    turned = (beside / safe).where(~none, 1) * sine
    return Rotations(lost, joined([-turned, turned.conj()], ROWS), tangent * size)


def _partners(a: Matrices, dimension: int) -> Matrices:
    half = a.shape[dimension] // 2
    return joined([a.part(dimension, half, 2 * half), a.part(dimension, 0, half)], dimension)


def _next_pairs(a: Matrices, dimension: int) -> Matrices:
    """The order of the next step: the first line stays, the others move around by one."""
    n = a.shape[dimension]
    half = n // 2
    if n <= 2:
        return a
    edges = ((0, 1), (half, half + 1), (1, half - 1), (half + 1, n), (half - 1, half))
    return joined([a.part(dimension, start, limit) for start, limit in edges if start < limit], dimension)


def _rotated(a: Matrices, r: Rotations) -> Matrices:
    return a + (_partners(a, ROWS) * r.other - a * r.lost)


def hermitian_eigen(a: Matrices, vectors: bool) -> tuple[Matrices, Matrices | None, Matrices]:
    """Returns the eigenvalues of Hermitian matrices in ascending order, as [count, n, 1], their eigenvectors as columns
    if they are wanted, and [count, 1, 1] flags: whether sweeps have converged."""
    n = a.shape[ROWS]
    even = n + n % 2
    power = a.size().largest(ROWS, COLUMNS).scaling()
    is_finite = a.size().largest(ROWS, COLUMNS) < float("inf")
    a = (a / power).padded(even, even)
    rows, columns = a.index(ROWS), a.index(COLUMNS)
    diagonal = a.real().chosen(rows.equals(columns), COLUMNS)
    rest = a.where(~rows.equals(columns), 0)
    tolerance = epsilon(a.dtype) / (8 * max(even, 1))
    basis = [identity(a, even, even)] if vectors else []

    def step(_: Value, rest: Matrices, diagonal: Matrices, *basis: Matrices) -> list[Matrices]:
        half = even // 2
        pair = rows.equals(columns) | rows.equals(columns + half) | columns.equals(rows + half)
        beside = rest.part(ROWS, 0, half).chosen(columns.equals(rows.part(ROWS, 0, half) + half), COLUMNS)
        r = _rotations(diagonal.part(ROWS, 0, half), diagonal.part(ROWS, half, even), beside)
        diagonal = diagonal + joined([-r.shift, r.shift], ROWS)
        half_way = _rotated(rest, r)
        lost, other = r.lost.swapped_axes(), r.other.swapped_axes().conj()
        rest = half_way + (_partners(half_way, COLUMNS) * other - half_way * lost)
        rest = rest.where(~pair, 0)
        moved = [_next_pairs(_next_pairs(rest, ROWS), COLUMNS), _next_pairs(diagonal, ROWS)]
        return [*moved, *(_next_pairs(_rotated(v, r), ROWS) for v in basis)]

    def sweep(*state: Matrices) -> list[Matrices]:
        after = steps(a.rw, even - 1, state, step)
        return [after[0].size().largest(ROWS, COLUMNS) > tolerance, *after]

    active = rest.size().largest(ROWS, COLUMNS) > tolerance
    active, _, diagonal, *basis = repeated(a.rw, SWEEPS, active, [rest, diagonal, *basis], sweep)
    key = diagonal.where(rows < n, float("inf"))
    key, *basis = sorted_rows(key, *basis)
    values = key.part(ROWS, 0, n) * power
    found = [v.part(ROWS, 0, n).part(COLUMNS, 0, n).adjoint() for v in basis]
    return values, found[0] if found else None, is_finite & ~active


class Svd(NamedTuple):
    """x = u diag(s) vt. `s` is [count, n, 1]; `converged` [count, 1, 1]."""

    s: Matrices
    u: Matrices | None
    vt: Matrices | None
    converged: Matrices


def svd(x: Matrices, vectors: bool, full: bool) -> Svd:
    """Singular values in descending order, and vectors, if they are wanted: with `full`, complete bases."""
    _, m, n = x.shape
    if m < n:
        turned = svd(x.adjoint(), vectors, full)
        if turned.u is None or turned.vt is None:
            return turned
        return turned._replace(u=turned.vt.adjoint(), vt=turned.u.adjoint())
    power = x.size().largest(ROWS, COLUMNS).scaling()
    is_finite = x.size().largest(ROWS, COLUMNS) < float("inf")
    factored, taus = qr(x / power)
    triangle = factored.part(ROWS, 0, n)
    triangle = triangle.where(triangle.index(ROWS) <= triangle.index(COLUMNS), 0)
    s, rows, basis, active = _orthogonal_rows(triangle, vectors)
    found = Svd(s * power, None, None, is_finite & ~active)
    if basis is None:
        return found
    counts = s > s.part(ROWS, 0, min(n, 1)).spread(s.shape) * _negligible(x) * 4 if n else s > 0
    unit = (rows / s.where(counts, 1)).where(counts, 0)
    p = m if full else n
    corner = identity(x, m, p)
    inner = basis.adjoint().padded(m, p)
    corner = corner.where((corner.index(ROWS) >= n) & (corner.index(COLUMNS) >= n), inner)
    return found._replace(u=apply_reflectors(factored, taus, corner), vt=_completed(unit.adjoint()).adjoint())


def _negligible(a: Matrices) -> float:
    """Norms of rows, relative to the largest one, that count as zero. Rows that depend on others exactly would become
    smaller in each sweep, without end."""
    return epsilon(a.dtype) / 1024


def _orthogonal_rows(a: Matrices, vectors: bool) -> tuple[Matrices, Matrices, Matrices | None, Matrices]:
    """Rotates the rows of square matrices until they are orthogonal, and sorts them by their norms. Returns the norms
    as [count, n, 1], the rows, the unitary matrix that maps the rows of `a` to them, if it is wanted, and the flags of
    matrices that have not converged."""
    n = a.shape[ROWS]
    even = n + n % 2
    half = even // 2
    tolerance = epsilon(a.dtype) * max(n**0.5, 4)
    basis = [identity(a, even, even)] if vectors else []
    least = a.square().sum(COLUMNS).largest(ROWS) * _negligible(a) ** 2

    def step(_: Value, turned: Matrices, a: Matrices, *basis: Matrices) -> list[Matrices]:
        top, bottom = a.part(ROWS, 0, half), a.part(ROWS, half, even)
        beside = (top * bottom.conj()).sum(COLUMNS)
        p, q = top.square().sum(COLUMNS), bottom.square().sum(COLUMNS)
        rotates = beside.size() > p.apply("sqrt") * q.apply("sqrt") * tolerance
        rotates = rotates & (p > least) & (q > least)
        r = _rotations(p, q, beside.where(rotates, 0))
        rotates = joined([rotates, rotates], ROWS)
        rotated = [_next_pairs(_rotated(v, r).where(rotates, v), ROWS) for v in (a, *basis)]
        return [turned | rotates.any(), *rotated]

    def sweep(*state: Matrices) -> list[Matrices]:
        return steps(a.rw, even - 1, [zeros(a, 1, 1, I1), *state], step)

    start = zeros(a, 1, 1, I32).equals(0)
    active, turned, *basis = repeated(a.rw, SWEEPS, start, [a.padded(even, n), *basis], sweep)
    norms = turned.square().sum(COLUMNS).apply("sqrt")
    key = (-norms).where(norms.index(ROWS) < n, float("inf"))
    key, turned, *basis = sorted_rows(key, turned, *basis)
    basis = [v.part(ROWS, 0, n).part(COLUMNS, 0, n) for v in basis]
    return -key.part(ROWS, 0, n), turned.part(ROWS, 0, n), basis[0] if basis else None, active


def _completed(a: Matrices) -> Matrices:
    """Orthonormal columns that are those of `a`, which are orthonormal or zero, with others in place of zeros."""
    factored, taus = qr(a)
    corner = factored.chosen(factored.index(ROWS).equals(factored.index(COLUMNS)), ROWS)
    size = corner.square().apply("sqrt")
    phase = (corner / size.where(size > 0, 1)).where(size > 0, 1)
    return orthogonal(factored, taus, a.shape[COLUMNS]) * phase
