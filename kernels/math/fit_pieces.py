"""Derives `piece_coefficients.py`: odd functions of f32 that saturate, in 32 pieces with a polynomial each.

    python -m shlo_jit.kernels.math.fit_pieces

The pieces divide 0 <= x < limit evenly. In piece k > 0, f(x) = c0 + c1 t + ... with t = x - center. The center is not
the middle exactly: it is searched near it, so that c0 and c1 are almost numbers of f32 and lose next to nothing when
they are rounded. In piece 0 the center is 0 and f(x) = base + t (c1 + c2 t + ...), where base is 0, and c1 is exactly 1,
for tanh; for erf it is t, so that c1 = 0.128... carries the small rest alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath as mp
from shlo_jit.kernels.math.fit import fit, round_to
from shlo_jit.kernels.math.fit_tables import Table

Number = Any
"""mpmath's numbers."""
PIECES = 32
CANDIDATES = 1500
"""Centers tried on either side of the middle, over 1/80 of the piece."""


@dataclass(frozen=True)
class Saturating:
    """An odd function that is 1 in f32 from `limit` on."""

    name: str
    function: Callable[[Number], Number]
    derivative: Callable[[Number], Number]
    limit: Number
    degree: int
    known: int
    """Coefficients of piece 0 that are not fitted: c0 = 0 and (2) c1 = 1."""

    @property
    def width(self) -> Number:
        return self.limit / PIECES


FUNCTIONS = (
    # 1 - tanh(9.02) and 1 - erf(3.925) are below 2^-25.
    Saturating("tanh", mp.tanh, lambda x: mp.sech(x) ** 2, mp.mpf("9.02"), 5, known=2),
    Saturating("erf", mp.erf, lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x), mp.mpf("3.925"), 4, known=1),
)


def piece_table(s: Saturating, low: Number, high: Number, center: Number) -> Table:
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


def good_center(s: Saturating, low: Number, high: Number) -> float:
    """A number of f32 near the middle at which c0 and c1 are nearest to numbers of f32. What they differ from f and f'
    by changes slowly: the difference in the middle serves for all candidates."""
    middle, half = (low + high) / 2, (high - low) / 2
    c0, c1 = fit(piece_table(s, low, high, middle), 64).coefficients[:2]
    d0, d1 = c0 - s.function(middle), c1 - s.derivative(middle)

    def loss(center: float) -> Number:
        return rounding_error(s.function(center) + d0) + half * rounding_error(s.derivative(center) + d1)

    step = half / 40 / CANDIDATES
    return min((round_to(middle + k * step, 32) for k in range(-CANDIDATES, CANDIDATES + 1)), key=loss)


def first_piece(s: Saturating) -> tuple[list[float], float]:
    """Coefficients of piece 0, whose center is 0, and the largest error relative to f."""
    k = s.known
    table = Table(
        s.name,
        "",
        (0, s.width),
        lambda x: (s.function(x) - x) / x**k,
        lambda x: x**k / s.function(x),
        {32: s.degree + 1 - k},
    )
    fitted = fit(table, 32)
    return [0.0, 1.0][:k] + fitted.coefficients, fitted.error


def entry(s: Saturating) -> str:
    """The text of a function's table; prints its error."""
    with mp.workdps(40):
        centers = [0.0]
        coefficients, worst = first_piece(s)
        rows = [coefficients]
        for k in range(1, PIECES):
            low, high = k * s.width, (k + 1) * s.width
            centers.append(good_center(s, low, high))
            fitted = fit(piece_table(s, low, high, mp.mpf(centers[-1])), 32)
            rows.append(fitted.coefficients)
            worst = max(worst, fitted.error)
        limit = round_to(s.limit, 32)
        # Slightly less than 32 / limit: the limit itself belongs to the last piece.
        scale = round_to(PIECES * (1 - mp.mpf(2) ** -20) / s.limit, 32)
    error = float(mp.log(worst, 2))
    print(f"{s.name:8} {PIECES} pieces of degree {s.degree}  2^{error:.2f}", flush=True)
    columns = "".join(f"            {row_text(c)},\n" for c in zip(*rows, strict=True))
    return (
        f"    # {s.name}, largest relative error 2^{error:.1f}\n"
        f'    "{s.name}": Pieces(\n        {limit!r},\n        {scale!r},\n'
        f"        {row_text(centers)},\n        (\n{columns}        ),\n    ),\n"
    )


def row_text(values: tuple[float, ...] | list[float]) -> str:
    texts = [f"{v!r}," for v in values]
    lines = "".join(f"                {' '.join(texts[k : k + 4])}\n" for k in range(0, len(texts), 4))
    return f"(\n{lines}            )"


HEADER = '''"""Tables of `piecewise.py`. Written by `python -m shlo_jit.kernels.math.fit_pieces`, which says what they are."""

from __future__ import annotations

from typing import NamedTuple

Row = tuple[float, ...]
"""A number for each piece."""


class Pieces(NamedTuple):
    limit: float
    scale: float
    """x * scale, rounded down, is the piece of x."""
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
