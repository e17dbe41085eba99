"""Computation of `piece_coefficients.py`: functions of f32 on 0 <= x <= limit, as 32 pieces with a polynomial each.

    python -m shlo_jit.kernels.math.fit_pieces

The exponent and the leading bits of the significand of u = scale x + offset select the piece of x. Pieces have equal
width within a binade of u, and twice that width in the next one, where the function is flatter. In a piece
f(x) = c0 + c1 t + ..., t = x - center. The center is searched near the middle, such that c0 and c1 are almost f32
numbers and lose almost nothing when they are rounded.

The first piece of an odd function has its center at 0, and f(x) = base + t (c1 + c2 t + ...). For tanh the base is 0
and c1 is exactly 1. For erf the base is t, so that c1 = 0.128... only has the small rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import mpmath as mp

from shlo_jit.kernels.math.fit import fit, round_to
from shlo_jit.kernels.math.fit_tables import Table

Number = Any
"""Type of mpmath's numbers."""
PIECES = 32
CANDIDATES = 1500
"""Number of centers tried on either side of the middle, over 1/80 of the piece."""


@dataclass(frozen=True)
class Function:
    name: str
    function: Callable[[Number], Number]
    derivative: Callable[[Number], Number]
    limit: Number
    degree: int
    known: int
    """Coefficients of the first piece that are not fitted: c0 = 0 and (2) c1 = 1; 0 for a function that is not odd."""
    leading: int
    """Number of leading bits of the significand that select the piece."""
    offset: Number
    """A multiple of 2^-leading, 1 <= offset < 2."""

    @property
    def bounds(self) -> list[Number]:
        """The bounds of the pieces, as u."""
        u, bounds = self.offset, [self.offset]
        for _ in range(PIECES):
            u += mp.mpf(2) ** (math.frexp(u)[1] - 1 - self.leading)
            bounds.append(u)
        return bounds

    @property
    def scale(self) -> float:
        """The factor such that the limit itself just belongs to the last piece."""
        return round_to((self.bounds[-1] - self.offset) * (1 - mp.mpf(2) ** -20) / self.limit, 32)


TWO_BY_ROOT = 2 / mp.sqrt(mp.pi)


def scaled_erfc(x: Number) -> Number:
    return mp.exp(x * x) * mp.erfc(x)


FUNCTIONS = (
    # At the limits tanh and erf differ from 1 by less than 2^-25, so that the result rounds to 1.
    Function("tanh", mp.tanh, lambda x: mp.sech(x) ** 2, mp.mpf("9.2"), 4, 2, leading=3, offset=mp.mpf("1.125")),
    Function("erf", mp.erf, lambda x: TWO_BY_ROOT * mp.exp(-x * x), mp.mpf("3.95"), 4, 1, 4, mp.mpf("1.5")),
    # erfc(x) = e^-x^2 times this, and less than 2^-150 from the limit on.
    Function(
        "scaled_erfc",
        scaled_erfc,
        lambda x: 2 * x * scaled_erfc(x) - TWO_BY_ROOT,
        mp.mpf("10.06"),
        5,
        known=0,
        leading=3,
        offset=mp.mpf(1),
    ),
)


def piece_table(s: Function, low: Number, high: Number, center: Number) -> Table:
    return Table(
        f"{s.name} near {float(center):g}",
        "f(x) = P(x - center)",
        (low, high),
        s.function,
        lambda x: 1 / s.function(x),
        {32: s.degree + 1, 64: s.degree + 1},
        lambda x: x - center,
    )


def rounding_error(value: Number) -> Number:
    return abs(value - round_to(value, 32))


def good_center(s: Function, low: Number, high: Number) -> float:
    """Returns an f32 number near the middle at which c0 and c1 are nearest to f32 numbers. Their differences from f and
    f' change slowly, so the differences in the middle serve for all candidates."""
    middle, half = (low + high) / 2, (high - low) / 2
    c0, c1 = fit(piece_table(s, low, high, middle), 64).coefficients[:2]
    d0, d1 = c0 - s.function(middle), c1 - s.derivative(middle)

    def loss(center: float) -> Number:
        return rounding_error(s.function(center) + d0) + half * rounding_error(s.derivative(center) + d1)

    step = half / 40 / CANDIDATES
    return min((round_to(middle + k * step, 32) for k in range(-CANDIDATES, CANDIDATES + 1)), key=loss)


class Piece(NamedTuple):
    center: float
    coefficients: list[float]
    error: float
    """The largest error, relative to f."""


def first_piece(s: Function, high: Number) -> Piece:
    """Returns the first piece of an odd function."""
    k = s.known
    table = Table(
        s.name,
        "",
        (0, high),
        lambda x: (s.function(x) - x) / x**k,
        lambda x: x**k / s.function(x),
        {32: s.degree + 1 - k},
    )
    fitted = fit(table, 32)
    return Piece(0.0, [0.0, 1.0][:k] + fitted.coefficients, fitted.error)


def other_piece(s: Function, low: Number, high: Number) -> Piece:
    center = good_center(s, low, high)
    return Piece(center, *fit(piece_table(s, low, high, mp.mpf(center)), 32))


def entry(s: Function) -> str:
    """Returns the text of a function's table; prints its error."""
    bounds = list(pairwise((u - s.offset) / s.scale for u in s.bounds))
    pieces = [first_piece(s, bounds[0][1]) if s.known else other_piece(s, *bounds[0])]
    pieces += [other_piece(s, *b) for b in bounds[1:]]
    # The order is that of the low bits of u's exponent and leading bits: the first piece need not come first.
    first = round((127 + float(s.offset) - 1) * 2**s.leading) % PIECES
    pieces = [pieces[(k - first) % PIECES] for k in range(PIECES)]
    centers, *columns = (row_text(c) for c in zip(*[(p.center, *p.coefficients) for p in pieces], strict=True))
    error = float(mp.log(max(p.error for p in pieces), 2))
    print(f"{s.name:8} {PIECES} pieces of degree {s.degree}  2^{error:.2f}", flush=True)
    numbers = f"{round_to(s.limit, 32)!r}, {s.scale!r}, {float(s.offset)!r}, {s.leading}, {s.known == 1}"
    return (
        f"    # {s.name}, largest relative error 2^{error:.1f}\n"
        f'    "{s.name}": Pieces(\n        {numbers},\n        {centers},\n        ({", ".join(columns)}),\n    ),\n'
    )


def row_text(values: tuple[float, ...]) -> str:
    texts = [f"{v!r}," for v in values]
    lines = "".join(f"            {' '.join(texts[k : k + 4])}\n" for k in range(0, len(texts), 4))
    return f"(\n{lines}        )"


HEADER = '''"""Tables of `piecewise.py`. Written by `python -m shlo_jit.kernels.math.fit_pieces`, which explains it."""

from __future__ import annotations

from typing import NamedTuple

Row = tuple[float, ...]
"""A number per piece."""


class Pieces(NamedTuple):
    limit: float
    """Maximum of x, to which it is clamped."""
    scale: float
    offset: float
    leading: int
    """The exponent and `leading` bits of the significand of scale x + offset, modulo 32, are the index of the piece."""
    plus_x: bool
    """Whether x is added in the first piece."""
    centers: Row
    coefficients: tuple[Row, ...]
    """Lowest order first."""


PIECES: dict[str, Pieces] = {
'''


def main() -> None:
    path = Path(__file__).with_name("piece_coefficients.py")
    path.write_text(HEADER + "".join(entry(s) for s in FUNCTIONS) + "}\n")


if __name__ == "__main__":
    main()
