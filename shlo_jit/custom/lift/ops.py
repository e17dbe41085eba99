"""Helpers that write the ops of a lifted function. Values are scalars (rank 0) or have the shape of the call.

Integers are signed, whatever an instruction takes them for. An op on unsigned ones reads its operands' bits as
unsigned, and its result's bits become signed again. An operand that was unsigned before is reused as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_jit.custom.llvm_text import Refused
from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Value
from shlo_jit.ir.dtypes import DTYPES, DType
from shlo_jit.ir.types import I1, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter

_DTYPES = {
    "half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64",
    "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
}  # fmt: skip


def dtype_of(type: str) -> DType:
    """Returns the element type of an LLVM type. Raises Refused."""
    if type not in _DTYPES:
        raise Refused("unsupported-type", f"it computes with {type}")
    return DTYPES[_DTYPES[type]]


class Ops:
    """Appends ops to the block that a Rewriter builds."""

    def __init__(self, rw: Rewriter, shape: tuple[int, ...]) -> None:
        self.rw = rw
        self.shape = shape
        self.known: list[dict[Any, Value]] = [{}]
        """Values that have been written and can be reused: a dictionary for each region that is being written."""

    # ------------------------------------------------------------------ what is there already
    def once(self, key: Any, make: Any) -> Value:
        """Returns the value that was made for a key, or makes it."""
        for scope in reversed(self.known):
            if key in scope:
                return scope[key]
        made = self.known[-1][key] = make()
        return made

    # ------------------------------------------------------------------ shapes
    def is_wide(self, value: Value) -> bool:
        return value.tensor.rank == len(self.shape)

    def wide(self, value: Value) -> Value:
        """Returns the value, broadcast to all elements."""
        if self.is_wide(value):
            return value
        return self.once(("wide", value), lambda: mk.broadcast(self.rw, value, self.shape, ()))

    def same_rank(self, values: Sequence[Value]) -> list[Value]:
        """Returns the values as scalars, or all of them broadcast."""
        return [*map(self.wide, values)] if any(map(self.is_wide, values)) else list(values)

    def constant(self, dtype: DType, number: Any) -> Value:
        return self.once(("constant", dtype.name, repr(number)), lambda: self._constant(dtype, number))

    def _constant(self, dtype: DType, number: Any) -> Value:
        if dtype.kind == "i":
            number = (int(number) + (1 << (dtype.bits - 1))) % (1 << dtype.bits) - (1 << (dtype.bits - 1))
        return mk.constant(self.rw, tensor((), dtype), number)

    def like(self, value: Value, number: Any) -> Value:
        """Returns a constant of the value's type."""
        return self.constant(value.tensor.storage, number)

    # ------------------------------------------------------------------ ops
    def apply(self, name: str, *operands: Value, dialect: str = "stablehlo") -> Value:
        """Emits an elementwise op whose result has the operands' type."""
        given = self.same_rank(operands)
        return self.rw.emit1(f"{dialect}.{name}", given, given[-1].type)

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        x, y = self.same_rank((x, y))
        attributes = {"comparison_direction": EnumAttr("stablehlo", "comparison_direction", direction)}
        return self.rw.emit1("stablehlo.compare", [x, y], mk.with_dtype(x, I1), attributes)

    def select(self, predicate: Value, yes: Value, no: Value) -> Value:
        if yes is no:
            return yes
        if self.is_wide(predicate):
            yes, no = self.wide(yes), self.wide(no)
        yes, no = self.same_rank((yes, no))
        return self.rw.emit1("stablehlo.select", [predicate, yes, no], yes.type)

    def negation(self, x: Value) -> Value:
        """Returns the negation of a truth value."""
        return self.once(("not", x), lambda: self.rw.emit1("stablehlo.not", [x], x.type))

    def convert(self, x: Value, dtype: DType) -> Value:
        return mk.convert(self.rw, x, dtype)

    def bits(self, x: Value, dtype: DType) -> Value:
        """Returns the same bits as another type."""
        if x.tensor.storage == dtype:
            return x
        made = self.once((dtype.name, x), lambda: self._bits(x, dtype))
        self.known[-1].setdefault((x.tensor.storage.name, made), x)
        return made

    def _bits(self, x: Value, dtype: DType) -> Value:
        return self.rw.emit1("stablehlo.bitcast_convert", [x], mk.with_dtype(x, dtype))

    def unsigned(self, x: Value) -> Value:
        """Returns the bits of an integer as an unsigned one."""
        dtype = x.tensor.storage
        return self.bits(x, DTYPES[f"u{dtype.name}"]) if dtype.kind == "i" else x

    def signed(self, x: Value) -> Value:
        """Returns the bits of an unsigned integer as a signed one. Also does so for floats that LLVM has no type
        for."""
        dtype = x.tensor.storage
        if dtype.kind == "u" or (dtype.kind == "f" and dtype.bits < 16):
            return self.bits(x, DTYPES[f"i{dtype.bits}"])
        return x

    def as_unsigned(self, name: str, *operands: Value) -> Value:
        """Emits an op on unsigned integers."""
        return self.signed(self.apply(name, *map(self.unsigned, operands)))

    def is_nan(self, x: Value) -> Value:
        return self.once(("nan", x), lambda: self.compare("NE", x, x))
