"""Factorizations by elimination: LU with partial pivoting, and systems of tridiagonal matrices."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import I32
from shlo_jit.passes import build as mk
from shlo_jit.passes.factorizations.matrices import COLUMNS, ROWS, Matrices, epsilon, steps, tiny, zeros
from shlo_jit.passes.factorizations.reflectors import number


def _pivot_size(x: Matrices) -> Matrices:
    """The size by which LAPACK compares pivots: |re| + |im|."""
    return x.real().apply("abs") + x.imag().apply("abs") if x.is_complex else x.apply("abs")


def lu(a: Matrices) -> tuple[Matrices, Matrices, Matrices]:
    """P a = L U. Returns both factors in one matrix, [count, 1, min(rows, columns)] numbers, from 1 on, of the rows
    that were exchanged with rows 1, 2, ..., and the number of the first pivot that is zero, or 0."""
    _, m, n = a.shape
    small = min(m, n)

    def step(k: Value, a: Matrices, pivots: Matrices, info: Matrices) -> list[Matrices]:
        at, rows, columns = number(a, k), a.index(ROWS), a.index(COLUMNS)
        size = _pivot_size(a.line(COLUMNS, k)).where(rows >= at, 0)
        best = (size.equals(size.largest(ROWS)) & (rows >= at)).first(ROWS)
        best = best.where(best < m, at)  # numbers that are NaN have no maximum
        upper, lower = a.chosen(rows.equals(best), ROWS), a.line(ROWS, k)
        a = upper.where(rows.equals(at), lower.where(rows.equals(best), a))
        pivot = upper.line(COLUMNS, k)
        is_zero = pivot.equals(0)
        factors = (a.line(COLUMNS, k) / pivot.where(~is_zero, 1)).where(rows > at, 0)
        reduced = (a - factors * upper).where(columns > at, factors.where(columns.equals(at), a))
        info = (at + 1).where(is_zero & info.equals(0), info)
        return [reduced.where(rows > at, a), pivots.with_line(COLUMNS, k, best + 1), info]

    state = [a, zeros(a, 1, small, I32), zeros(a, 1, 1, I32)]
    a, pivots, info = steps(a.rw, small, state, step)
    return a, pivots, info


class Tridiagonal(NamedTuple):
    """A factored tridiagonal matrix: its three upper diagonals, as columns; what the right sides became."""

    diagonal: Matrices
    above: Matrices
    second: Matrices
    sides: Matrices


def factor_tridiagonal(below: Matrices, diagonal: Matrices, above: Matrices, sides: Matrices) -> Tridiagonal:
    """Eliminates the lower diagonal, with exchanges of adjacent rows. Diagonals are columns [count, n, 1], of which
    `below` and `above` end with a zero."""
    n = diagonal.shape[ROWS]

    def step(k: Value, d: Matrices, du: Matrices, second: Matrices, b: Matrices) -> list[Matrices]:
        after = mk.apply(d.rw, "add", k, mk.constant(d.rw, k.tensor, 1))
        low, pivot, upper = below.line(ROWS, k), d.line(ROWS, k), du.line(ROWS, k)
        next_d, next_u = d.line(ROWS, after), du.line(ROWS, after)
        first, other = b.line(ROWS, k), b.line(ROWS, after)
        keeps = _pivot_size(pivot) >= _pivot_size(low)
        divisor = pivot.where(keeps, low)
        factor = low.where(keeps, pivot) / divisor.where(~divisor.equals(0), 1)
        top = (divisor, upper.where(keeps, next_d), next_u.where(~keeps, 0), first.where(keeps, other))
        remaining = (next_d.where(keeps, upper), next_u.where(keeps, 0), other.where(keeps, first))
        d = d.with_line(ROWS, k, top[0]).with_line(ROWS, after, remaining[0] - factor * top[1])
        du = du.with_line(ROWS, k, top[1]).with_line(ROWS, after, remaining[1] - factor * top[2])
        b = b.with_line(ROWS, k, top[3]).with_line(ROWS, after, remaining[2] - factor * top[3])
        return [d, du, second.with_line(ROWS, k, top[2]), b]

    state = [diagonal, above, zeros(diagonal, n, 1), sides]
    return Tridiagonal(*steps(diagonal.rw, n - 1, state, step))


def solve_factored(t: Tridiagonal) -> Matrices:
    """Solves from the last row to the first."""
    n, columns = t.sides.shape[ROWS:]

    def step(k: Value, x: Matrices, following: Matrices, second: Matrices) -> list[Matrices]:
        known = t.above.line(ROWS, k) * following + t.second.line(ROWS, k) * second
        solved = (t.sides.line(ROWS, k) - known) / t.diagonal.line(ROWS, k)
        return [x.with_line(ROWS, k, solved), solved, following]

    nothing = zeros(t.sides, 1, columns)
    return steps(t.sides.rw, n, [t.sides, nothing, nothing], step, down=True)[0]


def away_from_zero(t: Tridiagonal, given: tuple[Matrices, ...]) -> Tridiagonal:
    """Pivots below the least normal number are replaced by the precision times the largest element of the matrix."""
    d = t.diagonal
    least = tiny(d.dtype)
    size = given[0].size().largest(ROWS)
    for x in given[1:]:
        size = size.apply("maximum", x.size().largest(ROWS))
    small = (size * epsilon(d.dtype)).apply("maximum", least)
    replaced = small if d.is_complex else small.where(d >= 0, -small)
    return t._replace(diagonal=d.where(d.size() >= least, replaced.as_complex() if d.is_complex else replaced))
