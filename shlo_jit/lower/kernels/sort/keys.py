"""Sort keys in registers, as unsigned integers with the comparator's order (see `schedule/sort_keys.py`)."""

from __future__ import annotations

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import F32, DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, lanes, vector
from shlo_jit.lower.elements import elementwise
from shlo_jit.lower.elements.registers import Reg, constant, lanes_of, register_type, to_f32, widen
from shlo_jit.schedule.sort_keys import Key


def emit_key(b: Builder, key: Key, elements: list[Reg]) -> V:
    """The key of an element (or of lanes of elements) as an unsigned integer. `elements` has one register per operand
    of the sort."""
    x = _value(b, key.value, elements, {})
    assert isinstance(x, V)
    return emit_order(b, key.dtype, x, key.total, key.descending)


def _value(b: Builder, value: Value, elements: list[Reg], known: dict[Value, Reg]) -> Reg:
    found = known.get(value)
    if found is not None:
        return found
    op = value.op
    if op is None:
        found = elements[value.index // 2]
    elif op.name == "stablehlo.constant":
        found = constant(value.tensor.storage, op.constant.array.reshape(-1)[0])
    else:
        args = [_value(b, o, elements, known) for o in op.operands]
        n = max(lanes_of(a) for a in args)
        found = elementwise.emit(b, op, [widen(b, a, n) for a in args])
    known[value] = found
    return found


def emit_order(b: Builder, dtype: DType, x: V, total: bool, descending: bool) -> V:
    """x as an unsigned integer, of `Key.bits` bits, with the same order."""
    if dtype.is_float:
        bits = _float_order(b, dtype, x, total)
    elif dtype.kind in "ix":
        bits = b.xor(x, const(x.type, 1 << (dtype.bits - 1)))
    else:
        bits = x
    return b.not_(bits) if descending else bits


def invert_order(b: Builder, key: Key, x: V) -> V:
    """The bits of the element that has this key, if only one element does."""
    width, t = key.bits, x.type
    x = b.not_(x) if key.descending else x
    sign = const(t, 1 << (width - 1))
    if key.dtype.is_float:
        return b.xor(x, b.or_(b.not_(b.ashr(x, width - 1)), sign))
    return b.xor(x, sign) if key.dtype.kind in "ix" else x


def _float_order(b: Builder, dtype: DType, x: V, total: bool) -> V:
    """Orders floats as unsigned integers: flips all bits of negative numbers, and only the sign of others."""
    if dtype.bits < 16:
        dtype, x = F32, to_f32(b, dtype, x)
    width = 8 * dtype.itemsize
    t = vector(f"i{width}", lanes(x.type))
    bits = x if register_type(dtype)[0] == "i" else b.bitcast(x, t)
    if not total:
        number = x if dtype.name == "f64" else to_f32(b, dtype, x)
        bits = b.select(b.fcmp("oeq", number, const(number.type, 0.0)), const(t, 0), bits)
        bits = b.select(b.fcmp("uno", number, number), const(t, (1 << (width - 1)) - 1), bits)
    flip = b.or_(b.ashr(bits, width - 1), const(t, 1 << (width - 1)))
    return b.xor(bits, flip)
