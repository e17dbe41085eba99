"""Operations of the documents that come from HLO, below XlaBuilder. Most have no effect here."""

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
    """Adds an argument to the open function. Arguments are added in the order of their numbers, from 0 (document:
    Parameter)."""
    function = frame().function
    if function is None:
        raise wrong("", "expected a function to be open: a region has the arguments it is called with")
    number = integer(parameter_number, "parameter_number")
    if number != len(function.args):
        raise wrong("parameter_number", f"the next argument is number {len(function.args)}, not {number}")
    return function.add_argument(text(name, "name") or f"arg{number}", type_of(shape))


def bitcast(operand: TensorLike, shape: ShapeLike) -> Value:
    """Reinterprets the bits, in row-major order, as a shape with as many bits (document: Bitcast)."""
    x, t = tensor_of(operand, "operand"), static_type(shape)
    before, after = x.element_type, t.storage
    count = static_shape(x, "operand")
    total = before.bits * x.size
    if total != after.bits * t.size:
        raise wrong("shape", f"{shape_text(t)} and {shape_text(x.type)} have different numbers of bits")
    if before == after:
        return reshape(x, t.extents)
    if before.bits < after.bits:
        ratio = after.bits // before.bits
        x = reshape(x, (x.size // ratio, ratio))
    elif not count:
        x = reshape(x, (1,))
    return reshape(bitcast_convert_type(x, after), t.extents)


def copy(operand: Any) -> Any:
    """Returns the operand: values do not change, and the compiler plans memory (document: Copy)."""
    values_of(operand, "operand")
    return operand


copy_start = copy_done = copy


def domain(operand: Any, entry: Any = None, exit: Any = None) -> Any:
    """Returns the operand: domains only matter to passes of XLA (document: Domain)."""
    values_of(operand, "operand")
    return operand
