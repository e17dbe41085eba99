"""Computation of the tables of `coefficients.py`: minimax fits (Remez exchange on a dense grid, mpmath arithmetic).

    python -m shlo_jit.kernels.math.fit            # all tables
    python -m shlo_jit.kernels.math.fit log sin    # these; the others are kept

Coefficients are rounded to the format one at a time, lowest order first, and the rest is fitted again after each, so
the stated error is that of the stored polynomial, evaluated exactly.
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path
from typing import Any, NamedTuple

import mpmath as mp

from shlo_jit.kernels.math.fit_tables import TABLES, Table

mp.mp.dps = 70
Number = Any
"""Type of mpmath's numbers."""


class Fitted(NamedTuple):
    coefficients: list[float]
    error: float


def round_to(value: Number, bits: int) -> float:
    """Returns the nearest f32 (or f64) number."""
    if bits == 64:
        return float(value)
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


def remez(xs: list[Number], target: list[Number], weight: list[Number], n: int) -> list[Number]:
    """Returns c of degree n-1 with the least maximum of |target - p(x)| * weight on the points xs (in order)."""
    m = len(xs)
    reference = [round((m - 1) * (k + 0.5) / (n + 1)) for k in range(n + 1)]
    c: list[Number] = []
    for _ in range(40):
        matrix = mp.matrix(n + 1, n + 1)
        rhs = mp.matrix(n + 1, 1)
        for row, j in enumerate(reference):
            for k in range(n):
                matrix[row, k] = xs[j] ** k * weight[j]
            matrix[row, n] = (-1) ** row
            rhs[row] = target[j] * weight[j]
        solution = mp.lu_solve(matrix, rhs)
        c = [solution[k] for k in range(n)]
        level = abs(solution[n])
        errors = [(t - value(c, x)) * w for x, t, w in zip(xs, target, weight, strict=True)]
        extremes = alternating(errors, n + 1)
        if extremes is None:
            raise ArithmeticError("the error does not alternate: more points or more digits are needed")
        worst = max(abs(e) for e in errors)
        reference = extremes
        if worst <= level * mp.mpf("1.001"):
            break
    return c


def value(c: list[Number], x: Number) -> Number:
    """Returns c0 + c1 x + ..."""
    result = mp.mpf(0)
    for k in reversed(c):
        result = result * x + k
    return result


def alternating(errors: list[Number], count: int) -> list[int] | None:
    """Returns the indices of `count` extremes of alternating sign, including the largest; None if there are fewer."""
    peaks: list[int] = []
    for j, e in enumerate(errors):
        if peaks and (e > 0) == (errors[peaks[-1]] > 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = j
        else:
            peaks.append(j)
    while len(peaks) > count:
        least = min(range(len(peaks)), key=lambda i: abs(errors[peaks[i]]))
        if len(peaks) - count >= 2 and 0 < least < len(peaks) - 1:
            other = min(least - 1, least + 1, key=lambda i: abs(errors[peaks[i]]))
            del peaks[min(least, other) : max(least, other) + 1]
        else:
            del peaks[min(0, len(peaks) - 1, key=lambda i: abs(errors[peaks[i]]))]
    return peaks if len(peaks) == count else None


def fit(table: Table, bits: int) -> Fitted:
    """Returns the coefficients of a table in a format, and the largest weighted error."""
    n, (low, high) = table.terms[bits], table.interval
    points = max(401, 30 * n + 1) | 1  # odd: the middle, where a variable may be zero, is not a point
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    # Points dense at the ends; moved off zero, where quotients such as (f(x) - x) / x^3 are undefined.
    xs = [middle - half * mp.cos(mp.pi * k / points) for k in range(points + 1)]
    xs = [x if abs(x) > mp.mpf("1e-7") else mp.mpf("1e-7") for x in xs]
    target = [mp.mpf(table.function(x)) for x in xs]
    weight = [abs(mp.mpf(table.weight(x))) for x in xs]
    variable = [mp.mpf(table.variable(x)) for x in xs]
    if variable[0] > variable[-1]:
        xs, target, weight, variable = xs[::-1], target[::-1], weight[::-1], variable[::-1]
    result: list[float] = []
    rest = target
    for k in range(n):
        scaled = [w * abs(v) ** k for w, v in zip(weight, variable, strict=True)]
        inverse = [r / v**k for r, v in zip(rest, variable, strict=True)] if k else rest
        c = round_to(remez(variable, inverse, scaled, n - k)[0], bits)
        result.append(c)
        rest = [r - c * v**k for r, v in zip(rest, variable, strict=True)]
    error = max(abs(r) * w for r, w in zip(rest, weight, strict=True))
    return Fitted(result, float(error))


HEADER = '''"""Polynomial coefficients, lowest order first. Written by `python -m shlo_jit.kernels.math.fit`.

The keys are (table, bits of the format); `fit_tables.py` describes what each polynomial approximates. The comment
above each gives formula, interval and the largest error as a power of two, weighted as in the table (mostly:
relative to the function's value).
"""

COEFFICIENTS: dict[tuple[str, int], tuple[float, ...]] = {
'''


def entry(table: Table, bits: int, fitted: Fitted) -> str:
    low, high = (float(mp.mpf(v)) for v in table.interval)
    cs = [f"{v!r}," for v in fitted.coefficients]
    values = "".join(f"        {' '.join(cs[k : k + 4])}\n" for k in range(0, len(cs), 4))
    error = f"error 2^{float(mp.log(fitted.error, 2)):.1f}"
    return (
        f"    # {table.formula}, {low:.6g} <= x <= {high:.6g}, {error}\n"
        f'    ("{table.name}", {bits}): (\n{values}    ),\n'
    )


def existing(path: Path) -> dict[tuple[str, int], str]:
    """Returns the entries of the file, as text."""
    entries: dict[tuple[str, int], str] = {}
    if not path.exists():
        return entries
    body = path.read_text().split("= {\n", 1)[1]
    for block in body.split("    # ")[1:]:
        key = block.split("\n", 2)[1].strip().removesuffix(": (")
        name, bits = key.strip("()").split(", ")
        entries[name.strip('"'), int(bits)] = "    # " + block.removesuffix("}\n")
    return entries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help="names of tables to fit (default: all)")
    wanted = parser.parse_args().tables
    path = Path(__file__).with_name("coefficients.py")
    entries = existing(path)
    for table in TABLES:
        for bits in table.terms:
            if wanted and table.name not in wanted and (table.name, bits) in entries:
                continue
            fitted = fit(table, bits)
            entries[table.name, bits] = entry(table, bits, fitted)
            write(path, entries)
            error = float(mp.log(fitted.error, 2))
            print(f"{table.name:20} f{bits}  {len(fitted.coefficients):2} terms  2^{error:.2f}", flush=True)


def write(path: Path, entries: dict[tuple[str, int], str]) -> None:
    """Writes all entries, in the order of the tables."""
    order = [(t.name, bits) for t in TABLES for bits in t.terms]
    path.write_text(HEADER + "".join(entries[k] for k in order if k in entries) + "}\n")


if __name__ == "__main__":
    main()
