"""Special values of complex functions, as C's Annex G (G.6) states them.

A row is (real part, imaginary part, real part of the result, imaginary part of the result). In the operands,

    N   every finite number
    M   every finite number but 0
    P   every positive finite number
    U   P and +0

denote several numbers; `inf`, `-inf`, `nan`, `0`, `-0` and `1` denote themselves. In a result, a number denotes itself,
`~` before it leaves its sign open, and C and S are cosine and sine of the imaginary part.

The rows have imaginary parts without a sign: f(conj z) = conj f(z). ODD and EVEN functions have rows with positive real
parts only.
"""

from __future__ import annotations

import itertools
import math

FINITE = (0.0, 2.0**-149, 0.5, 1.0, 3.0, 2.0**100)
ODD, EVEN = ("asinh", "atanh", "sinh", "tanh"), ("cosh",)

ROWS = {
    "exp": """
        0 0 1 0; -0 0 1 0; N inf nan nan; N nan nan nan; inf 0 inf 0; -inf U 0*C 0*S; inf P inf*C inf*S;
        -inf inf ~0 ~0; inf inf ~inf nan; -inf nan ~0 ~0; inf nan ~inf nan; nan 0 nan 0; nan P nan nan; nan inf nan nan;
        nan nan nan nan""",
    "log": """
        -0 0 -inf pi; 0 0 -inf 0; N inf inf pi/2; N nan nan nan; -inf U inf pi; inf U inf 0; -inf inf inf 3*pi/4;
        inf inf inf pi/4; inf nan inf nan; -inf nan inf nan; nan U nan nan; nan inf inf nan; nan nan nan nan""",
    "sqrt": """
        0 0 0 0; -0 0 0 0; N inf inf inf; inf inf inf inf; -inf inf inf inf; nan inf inf inf; N nan nan nan;
        -inf U 0 inf; inf U inf 0; -inf nan nan ~inf; inf nan inf nan; nan U nan nan; nan nan nan nan""",
    "acos": """
        0 0 pi/2 -0; -0 0 pi/2 -0; 0 nan pi/2 nan; -0 nan pi/2 nan; N inf pi/2 -inf; M nan nan nan; -inf U pi -inf;
        inf U 0 -inf; -inf inf 3*pi/4 -inf; inf inf pi/4 -inf; inf nan nan ~inf; -inf nan nan ~inf; nan U nan nan;
        nan inf nan -inf; nan nan nan nan""",
    "acosh": """
        0 0 0 pi/2; -0 0 0 pi/2; N inf inf pi/2; 0 nan nan ~pi/2; -0 nan nan ~pi/2; M nan nan nan; -inf U inf pi;
        inf U inf 0; -inf inf inf 3*pi/4; inf inf inf pi/4; inf nan inf nan; -inf nan inf nan; nan U nan nan;
        nan inf inf nan; nan nan nan nan""",
    "asinh": """
        0 0 0 0; U inf inf pi/2; U nan nan nan; inf U inf 0; inf inf inf pi/4; inf nan inf nan; nan 0 nan 0;
        nan P nan nan; nan inf ~inf nan; nan nan nan nan""",
    "atanh": """
        0 0 0 0; 0 nan 0 nan; 1 0 inf 0; U inf 0 pi/2; P nan nan nan; inf U 0 pi/2; inf inf 0 pi/2; inf nan 0 nan;
        nan U nan nan; nan inf ~0 pi/2; nan nan nan nan""",
    "sinh": """
        0 0 0 0; 0 inf ~0 nan; 0 nan ~0 nan; P inf nan nan; P nan nan nan; inf 0 inf 0; inf P inf*C inf*S;
        inf inf ~inf nan; inf nan ~inf nan; nan 0 nan 0; nan P nan nan; nan inf nan nan; nan nan nan nan""",
    "cosh": """
        0 0 1 0; 0 inf nan ~0; 0 nan nan ~0; P inf nan nan; P nan nan nan; inf 0 inf 0; inf P inf*C inf*S;
        inf inf ~inf nan; inf nan inf nan; nan 0 nan ~0; nan P nan nan; nan inf nan nan; nan nan nan nan""",
    "tanh": """
        0 0 0 0; 0 inf 0 nan; P inf nan nan; 0 nan 0 nan; P nan nan nan; inf U 1 0*C*S; inf inf 1 ~0; inf nan 1 ~0;
        nan 0 nan 0; nan P nan nan; nan inf nan nan; nan nan nan nan""",
}  # fmt: skip


class Want:
    """A part of a result: its value, and whether its sign is stated."""

    def __init__(self, text: str, imaginary: float) -> None:
        self.signed = not text.startswith("~")
        names = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
        if math.isfinite(imaginary):
            names |= {"C": math.cos(imaginary), "S": math.sin(imaginary)}
        self.value = float(eval(text.lstrip("~").replace("-0", "-0.0"), {}, names))

    def negated(self) -> Want:
        other = Want("0", 0.0)
        other.signed, other.value = self.signed, -self.value
        return other

    def holds(self, x: float, tolerance: float) -> bool:
        if math.isnan(self.value):
            return math.isnan(x)
        if self.signed and math.copysign(1, x) != math.copysign(1, self.value):
            return False
        a, b = abs(float(x)), abs(self.value)
        return a == b or abs(a - b) <= tolerance * b


Case = tuple[complex, Want, Want]


def numbers(word: str) -> list[float]:
    groups = {"U": FINITE, "P": FINITE[1:], "N": (*FINITE, *(-x for x in FINITE))}
    groups["M"] = tuple(x for x in groups["N"] if x)
    return list(groups[word]) if word in groups else [float(word)]


def cases(name: str) -> list[Case]:
    """Returns all rows of a function of ROWS, with their mirror images."""
    out: list[Case] = []
    for row in ROWS[name].split(";"):
        re, im, want_re, want_im = row.split()
        for a, b in itertools.product(numbers(re), numbers(im)):
            u, v = Want(want_re, b), Want(want_im, b)
            images = [(complex(a, b), u, v), (complex(a, -b), u, v.negated())]
            if name in ODD:
                images += [(-z, x.negated(), y.negated()) for z, x, y in images]
            if name in EVEN:
                images += [(-z, x, y) for z, x, y in images]
            out += images
    return out


def rotated(name: str) -> list[Case]:
    """Returns cases of sin, tan, asin or atan: f(z) = -i fh(iz), so that the parts are swapped."""
    return [(complex(z.imag, -z.real), v, u.negated()) for z, u, v in cases(f"{name}h")]


def cosine() -> list[Case]:
    """Returns cases of cos(z) = cosh(iz)."""
    return [(complex(z.imag, -z.real), u, v) for z, u, v in cases("cosh")]
