"""How elementwise ops are computed in machine code, in words that a record can say it in.

    machine=by_kind(f="fadd", i="add", b="or_", c="cadd")                          # a word for each kind of elements
    machine=by_kind(f=lambda m, x: m.fdiv(x, m.fadd(m.number(1), m.fabs(x))))      # several of them
    machine=elementary("exp")                                                      # a function of `kernels/math`

A word is a method of `Machine`. The code is the same for a scalar and for a register of lanes, and the lanes are no
business of the record's. `lower/elements/registers_machine.py` writes the words as LLVM text; this package knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Protocol

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType

Register = Any
"""A value in a register: opaque here."""


class Machine(Protocol):
    """What can be done with registers."""

    @property
    def dtype(self) -> DType:
        """Element type of the first operand."""
        ...

    @property
    def op(self) -> Op:
        """The op that is computed, for its attributes and the type of its result."""
        ...

    # ------------------------------------------------------------------ registers of any element type
    def number(self, value: float, /) -> Register:
        """A literal of the type that is computed in: the first operand's, f32 for narrower floats."""
        ...

    def select(self, p: Register, x: Register, y: Register, /) -> Register: ...
    def compare(self, direction: str, x: Register, y: Register, /, *, total_order: bool = False) -> Register:
        """StableHLO's `compare` of operands of `dtype`."""
        ...

    def convert(self, x: Register, to: DType, /) -> Register:
        """StableHLO's `convert` of an operand of `dtype`."""
        ...

    def bitcast(self, x: Register, to: DType, /) -> Register:
        """The bits of an operand of `dtype` as another type of as many."""
        ...

    def real(self, x: Register, /) -> Register: ...
    def imag(self, x: Register, /) -> Register: ...
    def pair(self, re: Register, im: Register, /) -> Register:
        """A complex number."""
        ...

    def function(self, name: str, /, *xs: Register) -> Register:
        """A function of `kernels/math`, of floats or of complex numbers."""
        ...

    # ------------------------------------------------------------------ floats (of a narrow type, in f32)
    def fadd(self, x: Register, y: Register, /) -> Register: ...
    def fsub(self, x: Register, y: Register, /) -> Register: ...
    def fmul(self, x: Register, y: Register, /) -> Register: ...
    def fdiv(self, x: Register, y: Register, /) -> Register: ...
    def fneg(self, x: Register, /) -> Register: ...
    def fabs(self, x: Register, /) -> Register: ...
    def fsign(self, x: Register, /) -> Register: ...
    def fmax(self, x: Register, y: Register, /) -> Register:
        """IEEE-754's maximum: a NaN wins, and +0 is above -0."""
        ...

    def fmin(self, x: Register, y: Register, /) -> Register: ...
    def fcmp(self, predicate: str, x: Register, y: Register, /) -> Register:
        """LLVM's: `olt` and its like are false where one is a NaN, `ult` and its like are true."""
        ...

    def reduce_precision(self, x: Register, exponent_bits: int, mantissa_bits: int, /) -> Register: ...

    # ------------------------------------------------------------------ floats in their own type
    def next_after(self, x: Register, y: Register, /) -> Register:
        """The neighbour of x on the way to y, of floats of `dtype`."""
        ...

    # ------------------------------------------------------------------ integers, which wrap, and booleans
    def add(self, x: Register, y: Register, /) -> Register: ...
    def sub(self, x: Register, y: Register, /) -> Register: ...
    def mul(self, x: Register, y: Register, /) -> Register: ...
    def idiv(self, x: Register, y: Register, /) -> Register:
        """x / 0 is -1 (all ones); the least number by -1 is itself."""
        ...

    def irem(self, x: Register, y: Register, /) -> Register:
        """x rem 0 is x."""
        ...

    def ipow(self, x: Register, y: Register, /) -> Register: ...
    def iabs(self, x: Register, /) -> Register: ...
    def isign(self, x: Register, /) -> Register: ...
    def imax(self, x: Register, y: Register, /) -> Register: ...
    def imin(self, x: Register, y: Register, /) -> Register: ...
    def mulhi(self, x: Register, y: Register, /) -> Register:
        """The upper half of the product."""
        ...

    def icmp(self, predicate: str, x: Register, y: Register, /) -> Register: ...
    def and_(self, x: Register, y: Register, /) -> Register: ...
    def or_(self, x: Register, y: Register, /) -> Register: ...
    def xor(self, x: Register, y: Register, /) -> Register: ...
    def not_(self, x: Register, /) -> Register: ...
    def shift_left(self, x: Register, count: Register, /) -> Register:
        """Counts of the width and more, or negative ones, leave zeros (or the sign, shifting right arithmetically)."""
        ...

    def shift_right(self, x: Register, count: Register, /) -> Register: ...
    def shift_sign(self, x: Register, count: Register, /) -> Register:
        """To the right, with copies of the sign."""
        ...

    def popcount(self, x: Register, /) -> Register: ...
    def leading_zeros(self, x: Register, /) -> Register: ...

    # ------------------------------------------------------------------ complex numbers
    def cadd(self, x: Register, y: Register, /) -> Register: ...
    def csub(self, x: Register, y: Register, /) -> Register: ...
    def cmul(self, x: Register, y: Register, /) -> Register: ...
    def cneg(self, x: Register, /) -> Register: ...
    def cmax(self, x: Register, y: Register, /) -> Register:
        """By the lexicographic order of (real, imaginary)."""
        ...

    def cmin(self, x: Register, y: Register, /) -> Register: ...


Computation = Callable[Concatenate[Machine, ...], Register]
"""computation(m, *operands), one register an operand."""


@dataclass(frozen=True)
class ByKind:
    """Computations by the kind of the first operand's elements; kinds that are missing cannot be computed.

    Floats narrower than f32 arrive in f32, and a result that is one is rounded, once.
    """

    computations: Mapping[str, str | Computation]


def by_kind(
    *,
    f: str | Computation | None = None,
    i: str | Computation | None = None,
    b: str | Computation | None = None,
    c: str | Computation | None = None,
) -> ByKind:
    """Of floats, integers (of either signedness), booleans, complex numbers: a word or a computation."""
    given = {"f": f, "i": i, "u": i, "b": b, "c": c}
    for word in given.values():
        assert not isinstance(word, str) or hasattr(Machine, word), word
    return ByKind({kind: computation for kind, computation in given.items() if computation is not None})


def call(name: str) -> Computation:
    """The function of `kernels/math` of that name."""
    return lambda m, *xs: m.function(name, *xs)


def elementary(name: str) -> ByKind:
    """A function of `kernels/math` that it has for floats and for complex numbers."""
    return by_kind(f=call(name), c=call(name))
