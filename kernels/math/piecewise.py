"""Odd functions of f32 that saturate, piece by piece, for AVX-512.

`vpermi2ps` picks from 32 numbers that stand in two registers, which makes a table as cheap as an addition: a polynomial
of a low degree per piece (`fit_pieces.py`) takes fewer operations than a formula with an exponential, and no division.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_jit.kernels.builder import V, vector_literal
from shlo_jit.kernels.math.expr import X, at_most, copysign, fma
from shlo_jit.kernels.math.piece_coefficients import PIECES, Row

LANES = 16


def has_tables(x: X) -> bool:
    """Whether `piecewise` is available for the type of x and the target."""
    target = x.b.module.target
    return x.format.bits == 32 and target is not None and target.is_x86 and target.has_masks


def piecewise(name: str, x: X) -> X:
    """The odd function of a table in `PIECES`."""
    return in_full_registers(lambda part: evaluate(name, part), x)


def evaluate(name: str, x: X) -> X:
    """`piecewise` for 16 lanes. With a = |x|, clamped: base + t (c1 + c2 t + ...), t = a - center, which is exact.

    In the first piece, which holds 0, center and c0 are 0 and t is a; elsewhere t < c0. So max(c0, t), the base of
    functions whose c1 leaves out a leading 1, is t there and c0 elsewhere."""
    table = PIECES[name]
    a = at_most(x.abs(), table.limit)
    piece = fma(a, table.scale, table.offset).bits() >> (x.format.fraction - table.leading)
    t = a - pick(table.centers, piece)
    c0, *others = (pick(row, piece) for row in table.coefficients)
    q = others[-1]
    for c in reversed(others[:-1]):
        q = fma(q, t, c)
    base = where_first(c0, t) if name in LEADING_ONE else c0
    return copysign(fma(q, t, base), x)
