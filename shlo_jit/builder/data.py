"""Functions that create tensors, and that move, repeat and convert the contents of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shlo_jit.builder.arguments import (
    TensorLike,
    array_of,
    axes,
    axis,
    constant_of,
    exact,
    extents,
    integer,
    integers,
    is_number,
    listed,
    same_elements,
    shape_of,
    static_shape,
    tensor_of,
)
from shlo_jit.builder.broadcasting import spread
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import PaddingConfigDimension, record_of
from shlo_jit.builder.scope import Handle, emit1
from shlo_jit.builder.shapes import DTypeLike, ShapeLike, element_of, shape_text, static_type
from shlo_jit.ir.dtypes import DType
from shlo_jit.ir.types import QuantizedType, TensorType, tensor

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


# ---------------------------------------------------------------------------- creation
def constant(literal: Any, dtype: DTypeLike | None = None) -> Value:
    """A constant tensor from an array, a number or nested lists of numbers.

    `dtype`: its element type, which Python numbers need (document: Constant).
    """
    if isinstance(literal, Handle):
        raise wrong("literal", "expected a literal, got a value of the program")
    if dtype is None:
        if is_number(literal) or isinstance(literal, list | tuple):
            raise wrong("dtype", "numbers and lists of them need an element type", hint="constant(2.5, 'f32')")
        return tensor_of(literal, "literal")
    element = element_of(dtype)
    if is_number(literal):
        return constant_of(exact(literal, element, "literal"), element)
    return constant_of(_cast(literal, element), element)


_FITS = {"b": "b", "i": "iuV", "u": "iuV", "x": "iu", "f": "iufV", "c": "iufcV"}
"""Kinds of NumPy that a literal may have, by the kind of the element type."""


def _cast(literal: Any, element: DType) -> np.ndarray:
    """Converts an array or nested lists to an element type, with the rules of `exact`."""
    try:
        found = None if isinstance(literal, list | tuple | np.ndarray) else array_of(literal, "literal")
        given = np.asarray(literal) if found is None else found
        if given.dtype == element.numpy:
            return given
        with np.errstate(all="ignore"):
            cast = given.astype(element.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong("literal", f"cannot convert it to an array of {element}: {error}") from None
    if given.dtype.kind not in _FITS[element.kind] and given.size:
        raise wrong(
            "literal", f"{given.dtype} is not converted to {element} implicitly", hint="convert the array first"
        )
    if given.dtype.kind in "iu" and not _same_integers(given, cast, element):
        raise wrong("literal", f"some of the integers are not exact in {element}")
    if element.kind == "f" and given.dtype.kind == "f":
        wide, near = given.astype(np.float64), cast.astype(np.float64)
        if (np.isfinite(wide) & (~np.isfinite(near) | ((near == 0) != (wide == 0)))).any():
            raise wrong("literal", f"some of the numbers are out of the range of {element}")
    return cast


def _same_integers(given: np.ndarray, cast: np.ndarray, element: DType) -> bool:
    """Whether both arrays have the same integers. They are compared as Python numbers if NumPy would round one of
    them."""
    if element.kind == "f":
        return bool((cast.astype(np.float64).astype(object) == given.astype(object)).all())
    return element.kind == "c" or np.array_equal(cast, given)


def full(shape: ShapeLike | Sequence[int], value: TensorLike, dtype: DTypeLike | None = None) -> Value:
    """A tensor with all elements `value`, of a shape such as "f32[2,3]", or of extents and a dtype."""
    if isinstance(shape, list | tuple):
        if dtype is None and is_number(value):
            raise wrong("dtype", "expected an element type beside extents", hint="full((2, 3), 0, 'f32')")
        like = None if dtype is None else element_of(dtype)
        return broadcast(tensor_of(value, "value", like), extents(shape, "shape"))
    t = static_type(shape)
    element = _element(t)
    if is_number(value):
        return constant_of(exact(value, element, "value"), element, t.extents)
    filled = tensor_of(value, "value")
    if filled.element_type != element:
        raise wrong("value", f"{shape_text(filled.type)} and {shape_text(t)} have different element types")
    return broadcast(filled, t.extents)


def iota(shape: ShapeLike, iota_dimension: int = 0) -> Value:
    """A tensor of integers, floats or complex numbers whose elements are 0, 1, 2 ... along a dimension (document:
    Iota)."""
    t = static_type(shape)
    d = axis(iota_dimension, t.rank, "iota_dimension")
    return emit1("stablehlo.iota", (), {"iota_dimension": d}, results=[t], names={"result": "shape"})


def _element(t: TensorType) -> DType:
    if isinstance(t.dtype, QuantizedType):
        raise wrong("shape", "expected elements that are not quantized")
    return t.dtype


# ---------------------------------------------------------------------------- conversions
def convert_element_type(operand: TensorLike, new_element_type: DTypeLike) -> Value:
    """Converts elements to the nearest numbers of another element type.

    Floats are truncated to integers, which saturate. The real part of complex numbers is used. Everything but 0 is true
    (document: ConvertElementType).
    """
    x = tensor_of(operand, "operand")
    element = element_of(new_element_type, "new_element_type")
    if x.element_type == element:
        return x
    return emit1("stablehlo.convert", [x], results=[tensor(shape_of(x), element)])


def bitcast_convert_type(operand: TensorLike, new_element_type: DTypeLike) -> Value:
    """Reinterprets the bits as another element type.

    If its elements are smaller, the result has one more dimension, for the parts. If they are larger, the last
    dimension of the operand is consumed by them (document: BitcastConvertType).
    """
    x = tensor_of(operand, "operand")
    element = element_of(new_element_type, "new_element_type")
    shape, before, after = list(shape_of(x)), x.element_type.bits, element.bits
    if before > after:
        shape.append(before // after)
    elif before < after:
        if not shape or shape[-1] != after // before:
            what = f"the last dimension of {shape_text(x.type)} must be {after // before}, the parts of one {element}"
            raise wrong("operand", what)
        shape.pop()
    types = [tensor(tuple(shape), element)]
    return emit1("stablehlo.bitcast_convert", [x], results=types, names={"result": "new_element_type"})


def reduce_precision(operand: TensorLike, exponent_bits: int, mantissa_bits: int) -> Value:
    """Rounds floats to a format with these numbers of bits, and back.

    The older document has the two numbers in the opposite order (document: ReducePrecision).
    """
    bits = {
        "exponent_bits": integer(exponent_bits, "exponent_bits"),
        "mantissa_bits": integer(mantissa_bits, "mantissa_bits"),
    }
    for name, n in bits.items():
        if not 0 <= n < 2**31:
            raise wrong(name, f"expected a number of bits, got {n}")
    return emit1("stablehlo.reduce_precision", [tensor_of(operand, "operand")], bits, names={"output": "operand"})


# ---------------------------------------------------------------------------- repeating
def broadcast(operand: TensorLike, broadcast_sizes: Sequence[int]) -> Value:
    """Copies of the operand along new leading dimensions of these sizes (document: Broadcast)."""
    x = tensor_of(operand, "operand")
    sizes = extents(broadcast_sizes, "broadcast_sizes")
    return spread(x, (*sizes, *shape_of(x)), range(len(sizes), len(sizes) + len(shape_of(x))))


def broadcast_in_dim(operand: TensorLike, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> Value:
    """Broadcasts the operand to a shape.

    `broadcast_dimensions` maps each dimension of the operand to one of the result; each extent of the operand is that
    of the result's dimension, or 1 (document: BroadcastInDim).
    """
    x = tensor_of(operand, "operand")
    sizes = extents(out_dim_size, "out_dim_size")
    where = integers(broadcast_dimensions, "broadcast_dimensions")
    types = [tensor(sizes, x.raw.tensor.dtype)]
    names = {"result": "out_dim_size"}
    attributes = {"broadcast_dimensions": list(where)}
    return emit1("stablehlo.broadcast_in_dim", [x], attributes, results=types, names=names)


# ---------------------------------------------------------------------------- moving
def reshape(operand: TensorLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Value:
    """The elements in another shape, in row-major order.

    One of the sizes may be -1, which is inferred. `dimensions`: the order in which the operand's dimensions are
    traversed, as in the older document (documents: Reshape).
    """
    x = tensor_of(operand, "operand")
    if dimensions is not None:
        x = transpose(x, axes(dimensions, len(shape_of(x)), "dimensions"))
    before = static_shape(x, "operand")
    sizes = list(integers(new_sizes, "new_sizes"))
    count = math.prod(before)
    if sizes.count(-1) == 1:
        rest = math.prod(n for n in sizes if n != -1)
        if not rest or count % rest:
            raise wrong("new_sizes", f"cannot reshape the {count} elements of {shape_text(x.type)} to {sizes}")
        sizes[sizes.index(-1)] = count // rest
    if tuple(sizes) == before:
        return x
    if any(n < 0 for n in sizes) or math.prod(sizes) != count:
        raise wrong("new_sizes", f"cannot reshape the {count} elements of {shape_text(x.type)} to {sizes}")
    return emit1("stablehlo.reshape", [x], results=[tensor(tuple(sizes), x.raw.tensor.dtype)])


def reshape_explicit(shape: ShapeLike, operand: TensorLike) -> Value:
    """`reshape` to the extents of a shape, which must have the operand's element type (document: Reshape
    (explicit))."""
    t, x = static_type(shape), tensor_of(operand, "operand")
    if t.dtype != x.raw.tensor.dtype:
        raise wrong("shape", f"{shape_text(t)} and {shape_text(x.type)} have different element types")
    return reshape(x, t.extents)


def collapse(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """Collapses consecutive dimensions of the operand into one, in row-major order (document: Collapse)."""
    x = tensor_of(operand, "operand")
    shape = static_shape(x, "operand")
    where = axes(dimensions, len(shape), "dimensions")
    if not where:
        return x
    if list(where) != list(range(where[0], where[0] + len(where))):
        raise wrong("dimensions", f"expected dimensions that follow each other, got {list(where)}")
    joined = math.prod(shape[d] for d in where)
    return reshape(x, (*shape[: where[0]], joined, *shape[where[-1] + 1 :]))


def transpose(operand: TensorLike, permutation: Sequence[int] | None = None) -> Value:
    """Permutes the dimensions of the operand: dimension i of the result is `permutation[i]` of the operand.

    By default the order is reversed (document: Transpose).
    """
    x = tensor_of(operand, "operand")
    rank = len(shape_of(x))
    if permutation is None:
        order = tuple(reversed(range(rank)))
    else:
        order = axes(permutation, rank, "permutation")
        if len(order) != rank:
            raise wrong("permutation", f"expected all {rank} dimensions of {shape_text(x.type)}, got {list(order)}")
    return x if list(order) == list(range(rank)) else emit1("stablehlo.transpose", [x], {"permutation": list(order)})


def rev(operand: TensorLike, dimensions: Sequence[int]) -> Value:
    """Reverses the elements of the operand along some dimensions (document: Rev)."""
    x = tensor_of(operand, "operand")
    return emit1("stablehlo.reverse", [x], {"dimensions": list(axes(dimensions, len(shape_of(x)), "dimensions"))})


def concatenate(operands: Sequence[TensorLike], dimension: int) -> Value:
    """Concatenates the operands along a dimension; their other extents are equal (document: ConcatInDim
    (Concatenate))."""
    if not listed(operands, "operands", "a list of tensors"):
        raise wrong("operands", "expected a list of at least one tensor")
    xs = same_elements({f"operands[{i}]": x for i, x in enumerate(operands)})
    d = axis(dimension, len(shape_of(xs[0])), "dimension")
    return emit1("stablehlo.concatenate", xs, {"dimension": d}, names={"inputs": "operands"})


concat_in_dim = concatenate
"""XlaBuilder's name of `concatenate`."""


def pad(
    operand: TensorLike,
    padding_value: TensorLike,
    padding_config: Sequence[PaddingConfigDimension | Sequence[int] | dict[str, int]],
) -> Value:
    """Pads the operand with a scalar around it and between its elements.

    `padding_config`: for each dimension a `PaddingConfigDimension`, or (low, high, interior). Negative edges remove
    elements (document: Pad).
    """
    x, value = same_elements({"operand": operand, "padding_value": padding_value})
    amounts = [_padding(entry) for entry in listed(padding_config, "padding_config", "an entry for each dimension")]
    if len(amounts) != len(shape_of(x)):
        raise wrong(
            "padding_config", f"expected {len(shape_of(x))} entries, one for each dimension, got {len(amounts)}"
        )
    low, high, interior = ([amount[i] for amount in amounts] for i in range(3))
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": interior}
    return emit1("stablehlo.pad", [x, value], attributes, names=dict.fromkeys(attributes, "padding_config"))


def _padding(entry: Any) -> tuple[int, int, int]:
    if isinstance(entry, list | tuple):
        numbers = integers(entry, "padding_config")
        if len(numbers) not in (2, 3):
            raise wrong("padding_config", f"expected (low, high) or (low, high, interior), got {entry!r}")
        return numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 0
    found = record_of(entry, PaddingConfigDimension, "padding_config")
    low, high, interior = integers(
        (found.edge_padding_low, found.edge_padding_high, found.interior_padding), "padding_config"
    )
    return low, high, interior


# ---------------------------------------------------------------------------- parts
def slice(
    operand: TensorLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Value:
    """The part of the operand from `start_indices` up to `limit_indices` (exclusive), with steps `strides` (document:
    Slice)."""
    x = tensor_of(operand, "operand")
    attributes = {"start_indices": list(integers(start_indices, "start_indices"))}
    attributes["limit_indices"] = list(integers(limit_indices, "limit_indices"))
    attributes["strides"] = [1] * len(shape_of(x)) if strides is None else list(integers(strides, "strides"))
    return emit1("stablehlo.slice", [x], attributes)


def dynamic_slice(operand: TensorLike, start_indices: Sequence[TensorLike], slice_sizes: Sequence[int]) -> Value:
    """A part of the operand of these sizes, whose start is given by scalars of the program.

    The start is clamped so that the part is within the operand (document: DynamicSlice).
    """
    x = tensor_of(operand, "operand")
    starts = scalars(start_indices, "start_indices")
    attributes = {"slice_sizes": list(integers(slice_sizes, "slice_sizes"))}
    return emit1("stablehlo.dynamic_slice", [x, *starts], attributes)


def dynamic_update_slice(operand: TensorLike, update: TensorLike, start_indices: Sequence[TensorLike]) -> Value:
    """The operand with a part, whose start is given by scalars of the program, replaced by `update`.

    The start is clamped so that the part is within the operand (document: DynamicUpdateSlice).
    """
    x, y = same_elements({"operand": operand, "update": update})
    return emit1("stablehlo.dynamic_update_slice", [x, y, *scalars(start_indices, "start_indices")])


def scalars(given: object, argument: str) -> list[Value]:
    """Converts a list of values and numbers, or a vector, to scalar integers of one type."""
    if isinstance(given, Handle | np.ndarray):
        vector = tensor_of(given, argument)
        if len(shape_of(vector)) != 1:
            raise wrong(argument, f"expected a list of scalars or a vector, got {shape_text(vector.type)}")
        (count,) = static_shape(vector, argument)
        return [reshape(slice(vector, [i], [i + 1]), ()) for i in range(count)]
    scalars = listed(given, argument, "a list of scalars")
    known = [x for x in scalars if not is_number(x)]
    like = tensor_of(known[0], argument).element_type if known else element_of("i32")
    return [tensor_of(x, f"{argument}[{i}]", like) for i, x in enumerate(scalars)]
