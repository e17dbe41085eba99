"""Abstract machine operations, in which records describe the code of elementwise ops.

    machine=by_kind(f="fadd", i="add", b="or_", c="cadd")                          # an operation per kind of elements
    machine=by_kind(f=lambda m, x: m.fdiv(x, m.fadd(m.number(1), m.fabs(x))))      # several operations
    machine=elementary("exp")                                                      # a function of `kernels/math`

An operation is a method of `Machine`. The code is the same for scalars and vector registers, so records do not deal
with lanes. `lower/elements/registers_machine.py` emits the operations as LLVM text; this package does not know LLVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Protocol

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType

Register = Any
"""A value in a register, opaque to this package."""


class Machine(Protocol):
    """Operations on registers."""

    @property
    def dtype(self) -> DType:
        """The element type of the first operand."""
        ...

    @property
    def op(self) -> Op:
        """The op being computed, for its attributes and result type."""
        ...

    # ------------------------------------------------------------------ registers of any element type
    def number(self, value: float, /) -> Register:
        """Returns a literal of the computation type: that of the first operand, f32 for narrower floats."""
        ...

    def select(self, p: Register, x: Register, y: Register, /) -> Register: ...
    def compare(self, direction: str, x: Register, y: Register, /, *, total_order: bool = False) -> Register:
        """Returns StableHLO's `compare` of operands of `dtype`."""
        ...

    def convert(self, x: Register, to: DType, /) -> Register:
        """Returns StableHLO's `convert` of an operand of `dtype`."""
        ...

    def bitcast(self, x: Register, to: DType, /) -> Register:
        """Reinterprets the bits of an operand of `dtype` as another type of the same width."""
        ...

    def real(self, x: Register, /) -> Register: ...
    def imag(self, x: Register, /) -> Register: ...
    def pair(self, re: Register, im: Register, /) -> Register:
        """Returns a complex number."""
        ...

    def function(self, name: str, /, *xs: Register) -> Register:
        """Calls a function of `kernels/math` on floats or complex numbers."""
        ...

    # ------------------------------------------------------------------ floats (narrow types in f32)
    def fadd(self, x: Register, y: Register, /) -> Register: ...
    def fsub(self, x: Register, y: Register, /) -> Register: ...
    def fmul(self, x: Register, y: Register, /) -> Register: ...
    def fdiv(self, x: Register, y: Register, /) -> Register: ...
    def fneg(self, x: Register, /) -> Register: ...
    def fabs(self, x: Register, /) -> Register: ...
    def fsign(self, x: Register, /) -> Register: ...
    def fmax(self, x: Register, y: Register, /) -> Register:
        """Returns the IEEE-754 maximum: NaN propagates, and +0 is greater than -0."""
        ...

    def fmin(self, x: Register, y: Register, /) -> Register: ...
    def fcmp(self, predicate: str, x: Register, y: Register, /) -> Register:
        """Compares with an LLVM predicate: ordered ones (`olt`) are false if an operand is NaN, unordered ones (`ult`)
        are true."""
        ...

    def reduce_precision(self, x: Register, exponent_bits: int, mantissa_bits: int, /) -> Register: ...

    # ------------------------------------------------------------------ floats in their own type
    def next_after(self, x: Register, y: Register, /) -> Register:
        """Returns the neighbor of x in the direction of y, for floats of `dtype`."""
        ...

    # ------------------------------------------------------------------ integers, which wrap, and booleans
    def add(self, x: Register, y: Register, /) -> Register: ...
    def sub(self, x: Register, y: Register, /) -> Register: ...
    def mul(self, x: Register, y: Register, /) -> Register: ...
    def idiv(self, x: Register, y: Register, /) -> Register:
        """Divides integers. x / 0 is -1 (all ones); the smallest number divided by -1 is itself."""
        ...

    def irem(self, x: Register, y: Register, /) -> Register:
        """Returns the remainder; x rem 0 is x."""
        ...

    def ipow(self, x: Register, y: Register, /) -> Register: ...
    def iabs(self, x: Register, /) -> Register: ...
    def isign(self, x: Register, /) -> Register: ...
    def imax(self, x: Register, y: Register, /) -> Register: ...
    def imin(self, x: Register, y: Register, /) -> Register: ...
    def mulhi(self, x: Register, y: Register, /) -> Register:
        """Returns the upper half of the product."""
        ...

    def icmp(self, predicate: str, x: Register, y: Register, /) -> Register: ...
    def and_(self, x: Register, y: Register, /) -> Register: ...
    def or_(self, x: Register, y: Register, /) -> Register: ...
    def xor(self, x: Register, y: Register, /) -> Register: ...
    def not_(self, x: Register, /) -> Register: ...
    def shift_left(self, x: Register, count: Register, /) -> Register:
        """Shifts left. For all shifts, a negative count or one of at least the width gives zeros, or copies of the sign
        if shifting right arithmetically."""
        ...

    def shift_right(self, x: Register, count: Register, /) -> Register: ...
    def shift_sign(self, x: Register, count: Register, /) -> Register:
        """Shifts right arithmetically."""
        ...

    def popcount(self, x: Register, /) -> Register: ...
    def leading_zeros(self, x: Register, /) -> Register: ...

    # ------------------------------------------------------------------ complex numbers
    def cadd(self, x: Register, y: Register, /) -> Register: ...
    def csub(self, x: Register, y: Register, /) -> Register: ...
    def cmul(self, x: Register, y: Register, /) -> Register: ...
    def cneg(self, x: Register, /) -> Register: ...
    def cmax(self, x: Register, y: Register, /) -> Register:
        """Returns the maximum in the lexicographic order of (real, imaginary)."""
        ...

    def cmin(self, x: Register, y: Register, /) -> Register: ...


Computation = Callable[Concatenate[Machine, ...], Register]
"""computation(m, *operands), with one register per operand."""


@dataclass(frozen=True)
class ByKind:
    """Computations by the kind of the first operand's elements; missing kinds are not supported.

    Floats narrower than f32 arrive in f32, and a result of such a type is rounded once.
    """

    computations: Mapping[str, str | Computation]


def by_kind(
    *,
    f: str | Computation | None = None,
    i: str | Computation | None = None,
    b: str | Computation | None = None,
    c: str | Computation | None = None,
) -> ByKind:
    """Returns a `ByKind` for floats, integers (of either signedness), booleans and complex numbers. Each is given as a
    method of `Machine` or a computation."""
    given = {"f": f, "i": i, "u": i, "b": b, "c": c}
    for word in given.values():
        assert not isinstance(word, str) or hasattr(Machine, word), word
    return ByKind({kind: computation for kind, computation in given.items() if computation is not None})


def call(name: str) -> Computation:
    """Returns a computation that calls the function `name` of `kernels/math`."""
    return lambda m, *xs: m.function(name, *xs)


def elementary(name: str) -> ByKind:
    """Returns a `ByKind` that calls a function of `kernels/math`, which exists for floats and complex numbers."""
    return by_kind(f=call(name), c=call(name))
