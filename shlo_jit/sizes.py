"""Sizes that are known only at the call, as numbers for computations of the compiler.

A `Size` replaces an extent, a stride or a number of bytes. It is a polynomial over a `Symbol`, the unknown dimension,
and over quotients and remainders of such polynomials. Sums, products, `//` and `%` are exact. A comparison is answered
if the answer is the same for every value of the symbol. Everything else that needs the number raises `NotSymbolic`, and
the program is compiled for fixed sizes instead. So code written for numbers either works for sizes or refuses them; it
is never silently wrong. Decisions that only affect speed use `hint_of`.

In machine code a size is a register named after it (`register_name`), which the builder defines where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, cast


class NotSymbolic(Exception):
    """Raised if a fact about a size that is known only at the call is required."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code
        """A reason code (see `reasons.py`)."""
        self.where = ""
        """The op that required it, and its line, if known."""

    def asked_by(self, where: str) -> None:
        """Records the op that required it; the innermost one is the most precise."""
        self.where = self.where or where

    def __str__(self) -> str:
        what = f"{super().__str__()} [{self.code}]"
        return f"{self.where}: {what}" if self.where else what


class Symbol(NamedTuple):
    """A dimension that is known only at the call, in the range `low` to `high`; `hint` is a typical value."""

    low: int
    high: int
    hint: int
    name: str = "n"

    def __str__(self) -> str:
        return self.name


class Quotient(NamedTuple):
    """dividend // divisor, or their remainder, of a size that is not negative."""

    dividend: Size
    divisor: int
    is_remainder: bool

    @property
    def low(self) -> int:
        return 0 if self.is_remainder else self.dividend.low // self.divisor

    @property
    def high(self) -> int:
        return min(self.divisor - 1, self.dividend.high) if self.is_remainder else self.dividend.high // self.divisor

    def __str__(self) -> str:
        return f"({self.dividend}) {'%' if self.is_remainder else '//'} {self.divisor}"


Atom = Symbol | Quotient
Terms = Mapping[tuple[Atom, ...], int]
"""Maps products of atoms (in a fixed order) to their coefficients, none of them zero; () is the constant."""


class Size:
    """A number that is known only at the call, created by arithmetic on `size_of(symbol)`."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._key = frozenset(terms.items())

    # ------------------------------------------------------------------ what is known
    @cached_property
    def low(self) -> int:
        """Lower bound."""
        return self._end(False)

    @cached_property
    def high(self) -> int:
        """Upper bound."""
        return self._end(True)

    def _end(self, upper: bool) -> int:
        total = 0
        for atoms, c in self.terms.items():
            total += c * math.prod(a.high if upper == (c > 0) else a.low for a in atoms)
        return total

    @cached_property
    def symbol(self) -> Symbol:
        """The symbol that it is computed from."""
        atom = next(atom for atoms in self.terms for atom in atoms)
        return atom if isinstance(atom, Symbol) else atom.dividend.symbol

    def at(self, value: int) -> int:
        """Its value for a value of the symbol."""
        return sum(c * math.prod(_atom_at(a, value) for a in atoms) for atoms, c in self.terms.items())

    # ------------------------------------------------------------------ arithmetic
    def __add__(self, other: object) -> int:
        if not isinstance(other, Size | int):
            return NotImplemented
        terms = dict(self.terms)
        for atoms, c in _terms(other).items():
            terms[atoms] = terms.get(atoms, 0) + c
        return _made(terms)

    __radd__ = __add__

    def __neg__(self) -> int:
        return _made({atoms: -c for atoms, c in self.terms.items()})

    def __pos__(self) -> Size:
        return self

    def __sub__(self, other: object) -> int:
        return self + -other if isinstance(other, Size | int) else NotImplemented

    def __rsub__(self, other: object) -> int:
        return -self + other if isinstance(other, Size | int) else NotImplemented

    def __mul__(self, other: object) -> int:
        if not isinstance(other, Size | int):
            return NotImplemented
        terms: dict[tuple[Atom, ...], int] = {}
        for a, c in self.terms.items():
            for b, d in _terms(other).items():
                atoms = tuple(sorted((*a, *b), key=str))
                terms[atoms] = terms.get(atoms, 0) + c * d
        return _made(terms)

    __rmul__ = __mul__

    def __divmod__(self, other: object) -> tuple[int, int]:
        if isinstance(other, Size):
            return self._divide_by_size(other)
        if not isinstance(other, int) or isinstance(other, bool) or other <= 0:
            raise NotSymbolic("division-unknown", f"{self} cannot be divided by {other}")
        if all(c < 0 for atoms, c in self.terms.items() if atoms):
            quotient = -((-self + (other - 1)) // other)  # rounded up, so that the dividend is not negative
            return quotient, self - quotient * other
        quotient = {atoms: c // other for atoms, c in self.terms.items()}
        rest = _made({atoms: c % other for atoms, c in self.terms.items()})
        sure = _made(quotient)
        if not isinstance(rest, Size):
            return sure, rest
        if rest.high < other:
            return sure, cast(int, rest)
        parts = (_made({(Quotient(rest, other, is_remainder),): 1}) for is_remainder in (False, True))
        return sure + next(parts), next(parts)

    def _divide_by_size(self, other: Size) -> tuple[int, int]:
        """Divides polynomials, if the divisor is a single product that divides every term."""
        if self._key == other._key:
            return 1, 0
        if len(other.terms) == 1:
            ((atoms, c),) = other.terms.items()
            quotient: dict[tuple[Atom, ...], int] = {}
            for mine, d in self.terms.items():
                left = list(mine)
                if d % c or not all(_removed(left, a) for a in atoms):
                    raise NotSymbolic("division-unknown", f"{self} cannot be divided by {other}")
                quotient[tuple(left)] = d // c
            return _made(quotient), 0
        raise NotSymbolic("division-unknown", f"{self} cannot be divided by {other}")

    def __rdivmod__(self, other: object) -> tuple[int, int]:
        if isinstance(other, int) and 0 <= other < self.low:
            return 0, other
        raise NotSymbolic("division-unknown", f"{other} cannot be divided by {self}")

    def __floordiv__(self, other: object) -> int:
        return divmod(self, other)[0]

    def __mod__(self, other: object) -> int:
        return divmod(self, other)[1]

    def __rfloordiv__(self, other: object) -> int:
        return self.__rdivmod__(other)[0]

    def __rmod__(self, other: object) -> int:
        return self.__rdivmod__(other)[1]

    def __abs__(self) -> int:
        return cast(int, self) if self >= 0 else -self

    # ------------------------------------------------------------------ questions
    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size) and self._key == other._key:
            return True
        if not isinstance(other, Size | int):
            return NotImplemented
        difference = self - other
        if not isinstance(difference, Size):
            return difference == 0
        if difference.low > 0 or difference.high < 0:
            return False
        raise NotSymbolic("comparison-unknown", f"it is not known whether {self} is {other}")

    def __hash__(self) -> int:
        return hash(("a size", self._key))

    def __bool__(self) -> bool:
        return self != 0

    def __lt__(self, other: object) -> bool:
        return self._compared(other, lambda a, b: a < b, "less than")

    def __le__(self, other: object) -> bool:
        return self._compared(other, lambda a, b: a <= b, "at most")

    def __gt__(self, other: object) -> bool:
        return self._compared(other, lambda a, b: a > b, "more than")

    def __ge__(self, other: object) -> bool:
        return self._compared(other, lambda a, b: a >= b, "at least")

    def _compared(self, other: object, holds: Callable[[int, int], bool], words: str) -> bool:
        if not isinstance(other, Size | int):
            return NotImplemented
        difference = self - other
        ends = (difference.low, difference.high) if isinstance(difference, Size) else (difference, difference)
        low, high = (holds(end, 0) for end in ends)
        if low == high:
            return low
        raise NotSymbolic("comparison-unknown", f"it is not known whether {self} is {words} {other}")

    def __index__(self) -> NoReturn:
        raise NotSymbolic("number-unknown", f"the number {self} is not known")

    __int__ = __float__ = __complex__ = __round__ = __index__

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotSymbolic("number-unknown", f"{name} of {self} is not known")

    def __str__(self) -> str:
        return " + ".join(_term_text(atoms, c) for atoms, c in sorted(self.terms.items(), key=str, reverse=True))

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)


def size_of(symbol: Symbol) -> int:
    """The symbol as a number. (Types say `int`, because sizes replace ints.)"""
    return _made({(symbol,): 1})


def whole(number: Any) -> int:
    """Converts a number to int; a size stays a size."""
    return cast(int, number) if isinstance(number, Size) else int(number)


def hint_of(number: int) -> int:
    """Value of a number, for a size at the symbol's hint: for decisions that only affect speed."""
    return value_at(number, number.symbol.hint) if isinstance(number, Size) else number


def upper_bound_of(number: int) -> int:
    """Upper bound of a number."""
    return number.high if isinstance(number, Size) else number


def equal(a: int | tuple[int, ...], b: int | tuple[int, ...]) -> bool:
    """Whether two numbers, or shapes, are equal for every value of the symbol; False if that depends on it."""
    return surely(lambda: a == b)


def at_most(number: int, limit: int) -> int:
    """The smaller of the two, or an upper bound of it."""
    return number if surely(lambda: number <= limit) else limit


def bound_of(numbers: Iterable[int]) -> int:
    """The largest of some numbers, none negative, or a slightly larger bound if the largest depends on the symbol.

    The bound has the largest coefficient of each product of atoms.
    """
    most = 0
    for number in numbers:
        if surely(lambda a=most, b=number: a >= b):
            continue
        if surely(lambda a=most, b=number: a <= b):
            most = number
            continue
        a, b = _terms(most), _terms(number)
        most = _made({atoms: max(a.get(atoms, 0), b.get(atoms, 0)) for atoms in {**a, **b}})
    return most


def degree_of(number: int) -> int:
    """The power of the symbol that a number grows with; 0 for a known number."""
    return max(map(_degree, number.terms)) if isinstance(number, Size) else 0


def per_unit(number: int) -> int:
    """A bound c so that `number` is at most c times the symbol's value to the power of its degree."""
    if not isinstance(number, Size):
        return number
    return math.ceil(_growth(number))


def value_at(number: int, value: int) -> int:
    """Value of a number for a value of the symbol."""
    return number.at(value) if isinstance(number, Size) else number


def surely(holds: Callable[[], bool]) -> bool:
    """Whether a condition holds for every value of the symbol."""
    try:
        return holds()
    except NotSymbolic:
        return False


# ---------------------------------------------------------------------- registers
def word_of(number: int) -> str:
    """A number as part of a name in LLVM text; different numbers give different words."""
    return str(number).translate(_LETTERS)


_LETTERS = {ord(a): b for a, b in {"*": "x", "+": "p", "-": "m", "/": "d", "%": "r", "(": "L", ")": "R"}.items()}
_LETTERS[ord(" ")] = ""


def register_name(size: Size) -> str:
    """LLVM name of the register that holds a size: the size itself, in quotes. `Builder.done` defines it."""
    return f'%"{size}"'


# ---------------------------------------------------------------------- parts
def _terms(number: object) -> Terms:
    return number.terms if isinstance(number, Size) else {(): int(cast(int, number))} if number else {}


def _made(terms: Terms) -> int:
    """The number with these terms: an int if it is constant."""
    left = {atoms: c for atoms, c in terms.items() if c}
    if not left or (len(left) == 1 and () in left):
        return left.get((), 0)
    return cast(int, Size(left))


def _atom_at(atom: Atom, value: int) -> int:
    if isinstance(atom, Symbol):
        return value
    dividend = atom.dividend.at(value)
    return dividend % atom.divisor if atom.is_remainder else dividend // atom.divisor


def _degree(atoms: tuple[Atom, ...]) -> int:
    return sum(1 if isinstance(a, Symbol) else 0 if a.is_remainder else degree_of(cast(int, a.dividend)) for a in atoms)


def _growth(size: Size) -> float:
    """`per_unit`, before rounding. Subtracted terms count if they grow as fast as the whole."""
    degree, total = degree_of(cast(int, size)), 0.0
    for atoms, c in size.terms.items():
        if c > 0:
            total += c * math.prod(map(_atom_growth, atoms))
        elif len(atoms) == degree and all(isinstance(a, Symbol) for a in atoms):
            total += c
    return total


def _atom_growth(atom: Atom) -> float:
    if isinstance(atom, Symbol):
        return 1
    return atom.divisor - 1 if atom.is_remainder else _growth(atom.dividend) / atom.divisor


def _removed(atoms: list[Atom], atom: Atom) -> bool:
    """Removes an atom from a list; returns whether it was there."""
    if atom not in atoms:
        return False
    atoms.remove(atom)
    return True


def _term_text(atoms: tuple[Atom, ...], coefficient: int) -> str:
    factors = [str(a) if isinstance(a, Symbol) else f"({a})" for a in atoms]
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return "*".join(factors)
