"""Piecewise polynomials for functions of f32, with AVX-512.

`vpermi2ps` selects from 32 numbers in two registers, which makes a table as cheap as an addition. A polynomial of a low
degree per piece (`fit_pieces.py`) takes fewer operations than a formula with an exponential, and no division.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.llvm_values import V, vector, vector_literal
from shlo_jit.kernels.math.expr import X, at_least, at_most, copysign, fma
from shlo_jit.kernels.math.piece_coefficients import PIECES, Pieces, Row

LANES = 16


def has_tables(x: X) -> bool:
    """Whether `piecewise` is available for the type of x and the target. Reproducible results need the formulas that
    every target has."""
    target = x.b.module.target
    if x.format.bits != 32 or target is None or target.reproducible:
        return False
    return target.is_x86 and target.has_masks


def odd_piecewise(name: str, x: X) -> X:
    """Evaluates an odd function of `PIECES` that is constant beyond its limit."""
    return copysign(piecewise(name, at_most(x.abs(), PIECES[name].limit)), x)


def piecewise(name: str, a: X) -> X:
    """Evaluates a function of `PIECES` for 0 <= a <= limit; NaN gives NaN."""
    return in_full_registers(lambda part: evaluate(PIECES[name], part), a)


def in_full_registers(function: Callable[[X], X], x: X) -> X:
    """Applies a function of 16 lanes to any number of lanes that is a power of two."""
    b, n = x.b, x.lanes
    if n == LANES:
        return function(x)
    if n > LANES:
        halves = (range(n // 2), range(n // 2, n))
        low, high = (in_full_registers(function, X(b, b.shuffle(x.v, None, half))) for half in halves)
        return X(b, b.shuffle(low.v, high.v, range(n)))
    if n == 1:
        wide = b.insert(V(vector(x.type, LANES), "poison"), x.v, 0)
        return X(b, b.extract(function(X(b, wide)).v, 0))
    wide = b.shuffle(x.v, None, [min(lane, n) for lane in range(LANES)])  # lane n is poison
    return X(b, b.shuffle(function(X(b, wide)).v, None, range(n)))


def evaluate(table: Pieces, a: X) -> X:
    """Returns base + t (c1 + c2 t + ...), where t = a - center is exact.

    The base is c0. In the first piece of an odd function center and c0 are 0, so t is a; elsewhere t < c0. If a is to
    be added in the first piece, max(c0, t) does that."""
    piece = fma(a, table.scale, table.offset).bits() >> (a.format.fraction - table.leading)
    t = a - pick(table.centers, piece)
    c0, *others = (pick(row, piece) for row in table.coefficients)
    q = others[-1]
    for c in reversed(others[:-1]):
        q = fma(q, t, c)
    return fma(q, t, at_least(t, c0) if table.plus_x else c0)


def pick(row: Row, piece: X) -> X:
    """Returns row[piece % 32]."""
    low, high = (vector_literal("float", half) for half in (row[:LANES], row[LANES:]))
    name = "llvm.x86.avx512.vpermi2var.ps.512"
    return X(piece.b, piece.b.call(low.type, name, [low, piece.v, high]))
