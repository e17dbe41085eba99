"""Factorizations by Householder reflectors: QR, with column pivoting too, Hessenberg and tridiagonal form.

A reflector is H = I - tau v v^H, where v has a one as its first element that is not zero. As in LAPACK, column k of a
factored matrix holds the rest of v below the element that v begins with. Each step is one pass of sums over rows, and
one elementwise update of the matrix.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.ir.core import Value
from shlo_jit.passes import build as mk
from shlo_jit.passes.factorizations.matrices import (
    COLUMNS,
    ROWS,
    Matrices,
    complex_of,
    identity,
    steps,
    zeros,
)


class Reflector(NamedTuple):
    """H^H maps a column to beta times a unit vector."""

    v: Matrices
    tau: Matrices
    beta: Matrices


def number(like: Matrices, index: Value, offset: int = 0) -> Matrices:
    """An index of a loop, plus an offset, as [1, 1, 1]."""
    rw = like.rw
    value = mk.apply(rw, "add", index, mk.constant(rw, index.tensor, offset)) if offset else index
    return Matrices(rw, mk.reshape(rw, value, (1, 1, 1)))


def reflector(x: Matrices, k: Matrices, end: int) -> Reflector:
    """The reflector of a column [count, rows, 1] that leaves rows before `k`, and from `end` on, as they are."""
    rows = x.index(ROWS)
    x = x.where((rows >= k) & (rows < end), 0)
    power = x.size().largest(ROWS).scaling()
    x = x / power
    alpha = x.chosen(rows.equals(k), ROWS)
    rest = x.where(rows > k, 0).square().sum(ROWS)
    re, im = alpha.real(), alpha.imag()
    is_identity = rest.equals(0) & im.equals(0)
    norm = (re * re + im * im + rest).apply("sqrt")
    beta = norm.where(re < 0, -norm)
    safe = beta.like(1).where(is_identity, beta)
    tau = ((safe - re) / safe).where(~is_identity, 0)
    if x.is_complex:
        tau = complex_of(tau, (-im / safe).where(~is_identity, 0))
    divisor = (alpha - beta).where(~is_identity, 1)
    v = (x / divisor).where(rows > k, 0).where(~is_identity, 0)
    v = v.where(rows > k, v.like(1).where(rows.equals(k), 0))
    return Reflector(v, tau, re.where(is_identity, beta) * power)


def qr(a: Matrices) -> tuple[Matrices, Matrices]:
    """a = Q R. Returns R with the reflectors below its diagonal, and [count, 1, min(rows, columns)] factors tau."""
    _, m, n = a.shape
    small = min(m, n)

    def step(k: Value, a: Matrices, taus: Matrices) -> list[Matrices]:
        return _eliminate(k, a, taus)

    found = steps(a.rw, small, [a, zeros(a, 1, small)], step)
    return found[0], found[1]


def _eliminate(k: Value, a: Matrices, taus: Matrices) -> list[Matrices]:
    """One step of QR: column k below its diagonal is eliminated."""
    at, rows, columns = number(a, k), a.index(ROWS), a.index(COLUMNS)
    h = reflector(a.line(COLUMNS, k), at, a.shape[ROWS])
    along = (h.v.conj() * a).sum(ROWS)
    reduced = a - h.v * (h.tau.conj() * along)
    column = h.v.where(rows > at, _in_type(h.beta, a).where(rows.equals(at), a))
    a = reduced.where(columns > at, column.where(columns.equals(at), a))
    return [a, taus.with_line(COLUMNS, k, h.tau)]


def _in_type(x: Matrices, like: Matrices) -> Matrices:
    return x.as_complex() if like.is_complex and not x.is_complex else x


def pivoted_qr(a: Matrices, given: Matrices) -> tuple[Matrices, Matrices, Matrices]:
    """a P = Q R, with the column of the largest norm first. `given`: [count, 1, columns] integers, of which those that
    are not 0 mark columns that come first. Returns R, tau, and the columns' numbers, from 1 on."""
    _, m, n = a.shape
    small = min(m, n)

    def lead(j: Value, a: Matrices, order: Matrices, fixed: Matrices) -> list[Matrices]:
        marked = ~given.line(COLUMNS, j).equals(0)
        at = number(a, j).spread(fixed.shape)
        place = fixed.where(marked, at)
        return [_swapped(a, at, place), _swapped(order, at, place), fixed.where(~marked, fixed + 1)]

    order = (given.index(COLUMNS) + 1).spread(given.shape)
    a, order, fixed = steps(a.rw, n, [a, order, zeros(a, 1, 1, given.dtype)], lead)

    def step(k: Value, a: Matrices, taus: Matrices, order: Matrices) -> list[Matrices]:
        at, rows, columns = number(a, k), a.index(ROWS), a.index(COLUMNS)
        power = a.size().largest(ROWS, COLUMNS).scaling()
        norms = (a / power).where(rows >= at, 0).square().sum(ROWS).where(columns >= at, -1)
        best = norms.equals(norms.apply("maximum", 0).largest(COLUMNS)).first(COLUMNS)
        at = at.spread(fixed.shape)
        best = best.where((best < n) & (at >= fixed), at)
        return [*_eliminate(k, _swapped(a, at, best), taus), _swapped(order, at, best)]

    found = steps(a.rw, small, [a, zeros(a, 1, small), order], step)
    return found[0], found[1], found[2]


def _swapped(a: Matrices, x: Matrices, y: Matrices) -> Matrices:
    """The matrices with columns x and y, [count, 1, 1] indices, exchanged."""
    columns = a.index(COLUMNS)
    left, right = a.chosen(columns.equals(x), COLUMNS), a.chosen(columns.equals(y), COLUMNS)
    return right.where(columns.equals(x), left.where(columns.equals(y), a))


def apply_reflectors(
    a: Matrices, taus: Matrices, c: Matrices, *, adjoint: bool = False, offset: int = 0
) -> Matrices:
    """Q c, or Q^H c, for the product Q of the reflectors that are stored in the columns of `a`. The reflector of column
    k begins in row k + `offset`."""

    def step(k: Value, c: Matrices) -> list[Matrices]:
        at, rows = number(a, k, offset), a.index(ROWS)
        v = a.line(COLUMNS, k).where(rows > at, a.like(1).where(rows.equals(at), 0))
        tau = taus.line(COLUMNS, k)
        return [c - v * ((tau.conj() if adjoint else tau) * (v.conj() * c).sum(ROWS))]

    return steps(a.rw, taus.shape[COLUMNS], [c], step, down=not adjoint)[0]


def orthogonal(a: Matrices, taus: Matrices, columns: int) -> Matrices:
    """The first columns of the product of the reflectors."""
    return apply_reflectors(a, taus, identity(a, a.shape[ROWS], columns))


def hessenberg(a: Matrices, low: int, high: int) -> tuple[Matrices, Matrices]:
    """Q^H a Q, with zeros below the first subdiagonal, in place of which it holds the reflectors of Q, and their
    factors. As in LAPACK, rows and columns before `low` and after `high`, numbers from 1 on, have this form already."""
    n = a.shape[ROWS]

    def step(i: Value, a: Matrices, taus: Matrices) -> list[Matrices]:
        k = mk.apply(a.rw, "add", i, mk.constant(a.rw, i.tensor, low - 1))
        at, below = number(a, k), number(a, k, 1)
        rows, columns = a.index(ROWS), a.index(COLUMNS)
        h = reflector(a.line(COLUMNS, k), below, high)
        across = h.v.swapped_axes()
        right = a - ((a * across).sum(COLUMNS) * h.tau) * across.conj()
        right = right.where((rows < high) & (columns > at), a)
        left = right - h.v * (h.tau.conj() * (h.v.conj() * right).sum(ROWS))
        column = h.v.where((rows > below) & (rows < high), _in_type(h.beta, a).where(rows.equals(below), a))
        a = left.where(columns > at, column.where(columns.equals(at), a))
        return [a, taus.with_line(COLUMNS, k, h.tau)]

    found = steps(a.rw, max(high - low, 0), [a, zeros(a, 1, max(n - 1, 0))], step)
    return found[0], found[1]


def tridiagonal(a: Matrices) -> tuple[Matrices, Matrices, Matrices, Matrices]:
    """Q^H a Q of a Hermitian matrix, given whole. Returns the reflectors of Q below the subdiagonal, the diagonal, the
    subdiagonal, and the factors, all of them as rows."""
    n = a.shape[ROWS]
    form, taus = hessenberg(a, 1, n)
    rows, columns = form.index(ROWS), form.index(COLUMNS)
    diagonal = form.real().chosen(rows.equals(columns), ROWS)
    beside = form.real().chosen(rows.equals(columns + 1), ROWS).part(COLUMNS, 0, max(n - 1, 0))
    return form, diagonal, beside, taus
