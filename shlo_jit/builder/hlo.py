"""What the documents have from HLO, below XlaBuilder: mostly operations that mean nothing here beyond their
operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import TensorLike, integer, static_shape, tensor_of, text
from shlo_jit.builder.control import values_of
from shlo_jit.builder.data import bitcast_convert_type, reshape
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import frame
from shlo_jit.builder.shapes import ShapeLike, shape_text, static_type, type_of

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


def parameter(parameter_number: int, shape: ShapeLike, name: str = "") -> Value:
    """One more argument of the function that is open; they are added in the order of their numbers, 0 first (document:
    Parameter)."""
    function = frame().function
    if function is None:
        raise wrong("", "arguments are a function's; a region has those it is called with")
    number = integer(parameter_number, "parameter_number")
    if number != len(function.args):
        raise wrong("parameter_number", f"the next argument is number {len(function.args)}, not {number}")
    return function.add_argument(text(name, "name") or f"arg{number}", type_of(shape))


def bitcast(operand: TensorLike, shape: ShapeLike) -> Value:
    """The same bits, in row-major order, as a shape of as many (document: Bitcast)."""
    x, t = tensor_of(operand, "operand"), static_type(shape)
    before, after = x.element_type, t.storage
    count = static_shape(x, "operand")
    total = before.bits * x.size
    if total != after.bits * t.size:
        raise wrong("shape", f"{shape_text(t)} has not as many bits as {shape_text(x.type)}")
    if before == after:
        return reshape(x, t.extents)
    if before.bits < after.bits:
        ratio = after.bits // before.bits
        x = reshape(x, (x.size // ratio, ratio))
    elif not count:
        x = reshape(x, (1,))
    return reshape(bitcast_convert_type(x, after), t.extents)


def copy(operand: Any) -> Any:
    """The operand: values do not change, and where they lie is for the compiler to decide (document: Copy)."""
    values_of(operand, "operand")
    return operand


copy_start = copy_done = copy


def domain(operand: Any, entry: Any = None, exit: Any = None) -> Any:
    """The operand: what is said of both sides of a domain is for passes of XLA (document: Domain)."""
    values_of(operand, "operand")
    return operand
