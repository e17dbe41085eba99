"""Contractions: dot, dot_general, scaled and ragged products, and Python's @."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import (
    TensorLike,
    enum,
    integers,
    listed,
    same_elements,
    shape_of,
    static_shape,
    struct,
    tensor_of,
    word,
)
from shlo_jit.builder.binary import mul
from shlo_jit.builder.broadcasting import spread
from shlo_jit.builder.data import convert_element_type, reshape
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import DotDimensionNumbers, Precision, RaggedDotDimensionNumbers, record_of
from shlo_jit.builder.scope import emit1
from shlo_jit.builder.shapes import DTypeLike, element_of, shape_text
from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.dtypes import DType

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

PrecisionConfig = Precision | Sequence[Precision] | None
"""Precision of products: one word, or one for each operand."""
Record = Mapping[str, Any]
FIELDS = {
    "lhs_batching_dimensions": "dimension_numbers", "rhs_batching_dimensions": "dimension_numbers",
    "lhs_contracting_dimensions": "dimension_numbers", "rhs_contracting_dimensions": "dimension_numbers",
    "dot_dimension_numbers": "dimension_numbers", "ragged_dot_dimension_numbers": "dimension_numbers",
}  # fmt: skip
"""Fields of the op, mapped to the arguments that callers give them by."""


def precisions(precision_config: PrecisionConfig) -> tuple[EnumAttr, ...] | None:
    """Converts a precision to an attribute."""
    if precision_config is None:
        return None
    one = isinstance(precision_config, str)
    words = [precision_config] * 2 if one else listed(precision_config, "precision_config", "a word, or two in a list")
    if len(words) != 2:
        raise wrong("precision_config", f"expected a word, or one for each operand, got {words}")
    return tuple(enum("precision", word(w, Precision, "precision_config")) for w in words)


def preferred(preferred_element_type: DTypeLike | None) -> DType | None:
    """Element type of a product, if one is requested."""
    return None if preferred_element_type is None else element_of(preferred_element_type, "preferred_element_type")


def factors(lhs: TensorLike, rhs: TensorLike, wanted: DType | None) -> tuple[Value, Value]:
    """Converts both operands to values of one element type, unless the result's type is given."""
    if wanted is None:
        x, y = same_elements({"lhs": lhs, "rhs": rhs})
        return x, y
    return tensor_of(lhs, "lhs"), tensor_of(rhs, "rhs")


def dot(
    lhs: TensorLike,
    rhs: TensorLike,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """The product of vectors and matrices: sums over the last dimension of lhs and the first of rhs.

    `precision_config`: DEFAULT, HIGH or HIGHEST. `preferred_element_type`: the result's element type, by default the
    operands' (document: Dot).
    """
    wanted = preferred(preferred_element_type)
    x, y = factors(lhs, rhs, wanted)
    for name, v in (("lhs", x), ("rhs", y)):
        if len(shape_of(v)) not in (1, 2):
            raise wrong(
                name, f"expected a vector or a matrix, got {shape_text(v.type)}", hint="see builder.dot_general"
            )
    numbers = DotDimensionNumbers((len(shape_of(x)) - 1,), (0,))
    return _product(x, y, numbers, precision_config, wanted)


def dot_general(
    lhs: TensorLike,
    rhs: TensorLike,
    dimension_numbers: DotDimensionNumbers | Record,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """Sums of products over the contracting dimensions, for every index of the batch dimensions.

    The result has the batch dimensions, the remaining dimensions of lhs, and those of rhs (document: DotGeneral).
    """
    wanted = preferred(preferred_element_type)
    x, y = factors(lhs, rhs, wanted)
    numbers = record_of(dimension_numbers, DotDimensionNumbers, "dimension_numbers")
    return _product(x, y, numbers, precision_config, wanted, FIELDS)


def _product(
    x: Value,
    y: Value,
    numbers: DotDimensionNumbers,
    precision: PrecisionConfig = None,
    wanted: DType | None = None,
    names: Record | None = None,
) -> Value:
    attributes = {
        "dot_dimension_numbers": struct("stablehlo.dot", **_fields(numbers)),
        "precision_config": precisions(precision),
    }
    return emit1("stablehlo.dot_general", [x, y], attributes, elements=wanted, names=names)


def _fields(numbers: DotDimensionNumbers) -> dict[str, tuple[int, ...]]:
    def dims(given: Sequence[int]) -> tuple[int, ...]:
        return integers(given, "dimension_numbers")

    return {
        "lhs_batching_dimensions": dims(numbers.lhs_batch_dimensions),
        "rhs_batching_dimensions": dims(numbers.rhs_batch_dimensions),
        "lhs_contracting_dimensions": dims(numbers.lhs_contracting_dimensions),
        "rhs_contracting_dimensions": dims(numbers.rhs_contracting_dimensions),
    }


def ragged_dot(
    lhs: TensorLike,
    rhs: TensorLike,
    group_sizes: TensorLike,
    dimension_numbers: RaggedDotDimensionNumbers | Record | None = None,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """Multiplies each group of rows by a matrix of its own: f32[m,k], f32[g,k,n] and s32[g] to f32[m,n], by default.

    Rows beyond the last group are 0. Other `dimension_numbers` divide a contracting or a batch dimension into groups
    (document: RaggedDot).
    """
    wanted = preferred(preferred_element_type)
    x, y = factors(lhs, rhs, wanted)
    default = RaggedDotDimensionNumbers(DotDimensionNumbers((1,), (1,)), (0,), (0,))
    given = default if dimension_numbers is None else dimension_numbers
    numbers = record_of(given, RaggedDotDimensionNumbers, "dimension_numbers")
    product = record_of(numbers.dot_dimension_numbers, DotDimensionNumbers, "dimension_numbers")
    ragged = integers(numbers.lhs_ragged_dimensions, "dimension_numbers")
    groups = integers(numbers.rhs_group_dimensions, "dimension_numbers")
    fields = {**_fields(product), "lhs_ragged_dimensions": ragged, "rhs_group_dimensions": groups}
    attributes = {
        "ragged_dot_dimension_numbers": struct("chlo.ragged_dot", **fields),
        "precision_config": precisions(precision_config),
    }
    operands = [x, y, tensor_of(group_sizes, "group_sizes")]
    return emit1("chlo.ragged_dot", operands, attributes, elements=wanted, names=FIELDS)


def scaled_dot(
    lhs: TensorLike,
    lhs_scale: TensorLike,
    rhs: TensorLike,
    rhs_scale: TensorLike,
    dimension_numbers: DotDimensionNumbers | Record,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DTypeLike | None = None,
) -> Value:
    """`dot_general` of operands that are multiplied by scales first.

    A scale has its operand's rank. Each of its extents divides the operand's, and one scale applies to a block of
    elements. Operands and scales are first converted to the element type of the result, by default f32 (document:
    ScaledDot).
    """
    wanted = preferred(preferred_element_type) or element_of("f32")
    x = _scaled(tensor_of(lhs, "lhs"), tensor_of(lhs_scale, "lhs_scale"), "lhs_scale", wanted)
    y = _scaled(tensor_of(rhs, "rhs"), tensor_of(rhs_scale, "rhs_scale"), "rhs_scale", wanted)
    numbers = record_of(dimension_numbers, DotDimensionNumbers, "dimension_numbers")
    return _product(x, y, numbers, precision_config, wanted, FIELDS)


def _scaled(operand: Value, scale: Value, argument: str, wanted: DType) -> Value:
    """Multiplies every block of elements of the operand by its scale."""
    shape, blocks = static_shape(operand, argument), static_shape(scale, argument)
    x, s = (convert_element_type(v, wanted) for v in (operand, scale))
    if not blocks:
        return mul(x, s)
    if len(blocks) != len(shape) or any(not b or n % b for n, b in zip(shape, blocks, strict=True)):
        raise wrong(
            argument, f"the extents of {shape_text(scale.type)} do not divide those of {shape_text(operand.type)}"
        )
    split = [part for n, b in zip(shape, blocks, strict=True) for part in (b, n // b)]
    repeated = spread(s, split, range(0, 2 * len(blocks), 2))
    return mul(x, reshape(repeated, shape))


def matmul(lhs: TensorLike, rhs: TensorLike) -> Value:
    """NumPy's matrix product: of the last two dimensions, broadcast over the dimensions before them.

    A vector is a row on the left and a column on the right.
    """
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    a, b = static_shape(x, "lhs"), static_shape(y, "rhs")
    if not a or not b:
        raise wrong("lhs" if not a else "rhs", "expected a vector or a matrix, got a scalar", hint="write *")
    if len(a) <= 2 and len(b) <= 2:
        return dot(x, y)
    if len(b) == 1:
        return _product(x, y, DotDimensionNumbers((len(a) - 1,), (0,)))
    if len(a) == 1:
        return _product(x, y, DotDimensionNumbers((0,), (len(b) - 2,)))
    batch = _batch(a[:-2], b[:-2])
    x, y = (spread(v, (*batch, *s[-2:]), range(len(batch) + 2 - len(s), len(batch) + 2)) for v, s in ((x, a), (y, b)))
    leading = tuple(range(len(batch)))
    rank = len(batch) + 2
    return _product(x, y, DotDimensionNumbers((rank - 1,), (rank - 2,), leading, leading))


def _batch(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    wide = [(1,) * (rank - len(s)) + s for s in (a, b)]
    for m, n in zip(*wide, strict=True):
        if m != n and 1 not in (m, n):
            raise wrong("rhs", f"the batch dimensions {list(a)} and {list(b)} are incompatible")
    return tuple(n if m == 1 else m for m, n in zip(*wide, strict=True))
