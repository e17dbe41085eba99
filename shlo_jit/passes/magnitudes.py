"""Bounds of the elements of a value, computed at run time from the arrays that it depends on.

    |x @ w| <= k * max |x| * max |w|

So a value need not be computed to know that it is finite. A bound is an f32. It is NaN or infinite if an element may
be, or if it is too large for f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.finite import LARGE, MOVES, is_known_finite
from shlo_jit.ir.types import F32, tensor
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.intervals import splat
from shlo_jit.passes.rewriter import Rewriter

ROUNDING = 2.0
"""More than what rounding adds to the sum of a product."""
WIDE = ("bf16", "f32", "f64")
"""Types of floating-point numbers that hold what f32 holds."""
NEVER_LARGE = ("tanh", "logistic", "sine", "cosine")
"""Functions whose values are between -1 and 1 for finite arguments."""


class Magnitudes:
    """Emits bounds. `is_read` says of a value whether the largest of its elements may be looked for; others are
    followed to what they are computed from."""

    def __init__(self, rw: Rewriter, is_read: Callable[[Value], bool]) -> None:
        self.rw = rw
        self.is_read = is_read
        self.known: dict[Value, Value | None] = {}

    def of(self, value: Value) -> Value | None:
        """Emits a bound of a value's elements; returns None if there is none."""
        if value not in self.known:
            self.known[value] = self._by_op(value)
        return self.known[value]

    def _number(self, x: float) -> Value:
        return mk.constant(self.rw, tensor((), F32), x)

    def _by_op(self, value: Value) -> Value | None:
        op, dtype = value.op, value.tensor.storage
        if not dtype.is_float:
            return self._number(2.0 ** min(dtype.bits, 100)) if dtype.kind in "biu" else None
        if is_known_finite(value):
            return self._number(LARGE)
        name = "" if op is None else op.name.removeprefix("stablehlo.")
        if op is not None and (op.name in MOVES or name == "convert") and not self._may_overflow(op):
            return self.of(op.operands[0])
        if self.is_read(value):
            size = mk.apply(self.rw, "abs", mk.convert(self.rw, self.rw.get(value), F32))
            return mk.reduce(self.rw, "maximum", size, 0, range(value.tensor.rank))
        if op is None or dtype.name not in WIDE:
            return None
        return self._of_product(op) if name == "dot_general" else self._of_elements(op, name)

    def _may_overflow(self, op: Op) -> bool:
        """Whether a conversion may make finite numbers infinite, other than those that f32 does not hold."""
        return op.name == "stablehlo.convert" and op.result.tensor.storage.name not in WIDE

    def _combined(self, name: str, *bounds: Value | None) -> Value | None:
        known = [b for b in bounds if b is not None]
        return mk.apply(self.rw, name, *known) if len(known) == len(bounds) else None

    def _of_product(self, op: Op) -> Value | None:
        terms = math.prod(op.operands[0].tensor.extents[d] for d in roles_of(op).lhs_contracting)
        found = self._combined("multiply", *map(self.of, op.operands))
        return self._combined("multiply", found, self._number(ROUNDING * terms))

    def _of_elements(self, op: Op, name: str) -> Value | None:
        """The bound of an elementwise op."""
        if name in ("negate", "abs"):
            return self.of(op.operands[0])
        if name in NEVER_LARGE:
            return self._if_finite(op.operands[0], self._number(1))
        if name in ("add", "subtract", "multiply"):
            how = "multiply" if name == "multiply" else "add"
            return self._combined(how, *map(self.of, op.operands))
        if name in ("maximum", "minimum"):
            return self._combined("maximum", *map(self.of, op.operands))
        if name == "select":
            return self._combined("maximum", *map(self.of, op.operands[1:]))
        if name == "divide" and (argument := _of_exponential(op.operands[1])) is not None:
            return self._if_finite(argument, self.of(op.operands[0]))
        return None

    def _if_finite(self, argument: Value, bound: Value | None) -> Value | None:
        """A bound, or NaN if the argument of a function may not be finite."""
        found = self.of(argument)
        zero = None if found is None else mk.apply(self.rw, "multiply", found, self._number(0))
        return self._combined("add", bound, zero)


def _of_exponential(divisor: Value) -> Value | None:
    """Returns the argument of the exponential that is added to 1 or more, as in the logistic function. The divisor is
    then at least 1, or infinite."""
    if divisor.op is None or divisor.op.name != "stablehlo.add":
        return None
    for x, y in (divisor.op.operands, divisor.op.operands[::-1]):
        number = splat(x)
        is_large = isinstance(number, float) and 1 <= number < math.inf
        if is_large and y.op is not None and y.op.name == "stablehlo.exponential":
            return y.op.operands[0]
    return None
