"""Bring convolution into the form that its kernel takes.

Needs: nothing. Guarantees: every convolution has operands of one element type, a result of its accumulator type, and a
result laid out [b, spatial..., f] or [b, f, spatial...].

    convolution(x, w) -> [f, 0, 1, b]   ->   transpose(convolution(x, w) -> [b, 0, 1, f])

Kernels may leave out products with padding, or begin with a product instead of adding it to 0. Both may change the sign
of a result that is zero. So reproducible results have 0 added, which makes a zero positive:

    convolution(x, w), pad = [[1, 1]]   ->   convolution(x, w) + 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import DType, TensorType, tensor
from shlo_jit.ops.product_types import accumulator, operand_type
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.canonical_dots import in_kind_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def canonical_convolutions(function: Op, context: Context) -> Op:
    """The function with every convolution in its kernel's form."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.convolution":
            return None
        result = tensor(op.result.tensor.extents, op.result.tensor.storage)
        signs = context.reproducible and _has_open_signs(op)
        return [_convolution(rw, operands, result, op.attributes, signs)]

    return rewrite(function, visit)


def _has_open_signs(op: Op) -> bool:
    """Whether the sign of a zero may depend on the kernel that computes a convolution."""
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    spatial = len(d.input_spatial_dimensions)
    is_padded = any(n != 0 for n in op.ints("padding", (0, 0) * spatial))
    has_one_channel = op.operands[1].tensor.extents[d.kernel_input_feature_dimension] == 1
    return is_padded or has_one_channel or any(n != 1 for n in op.ints("lhs_dilation", (1,) * spatial))


def _convolution(
    rw: Rewriter, operands: list[Value], result: TensorType, old: dict[str, Any], has_open_signs: bool
) -> Value:
    d = old["dimension_numbers"]
    assert isinstance(d, ConvDims)
    operands = [in_kind_of(rw, o, result.storage) for o in operands]
    lhs, rhs = (o.tensor.storage for o in operands)
    acc = accumulator(lhs, result.storage)
    kind = operand_type(lhs, rhs, acc)
    spatial = d.output_spatial_dimensions
    last = (d.output_batch_dimension, *spatial, d.output_feature_dimension)
    first = (d.output_batch_dimension, d.output_feature_dimension, *spatial)
    straight = tuple(range(result.rank))
    order = straight if straight in (last, first) else last
    shape = tuple(result.extents[i] for i in order)
    place = {dim: i for i, dim in enumerate(order)}
    numbers = replace(
        d,
        output_batch_dimension=place[d.output_batch_dimension],
        output_feature_dimension=place[d.output_feature_dimension],
        output_spatial_dimensions=tuple(place[i] for i in spatial),
    )
    attributes = {**old, "dimension_numbers": numbers}
    values = [mk.convert(rw, o, kind) for o in operands]
    if acc.is_complex:
        product = _complex(rw, values, shape, acc, attributes)
    else:
        product = rw.emit1("stablehlo.convolution", values, tensor(shape, acc), attributes)
    if has_open_signs and (acc.is_float or acc.is_complex):
        product = rw.emit1("stablehlo.add", [product, mk.constant(rw, product.tensor, 0)], product.tensor)
    product = mk.convert(rw, product, result.storage)
    if order == straight:
        return product
    back = tuple(place[i] for i in range(result.rank))
    return mk.transpose(rw, product, back)


def _complex(
    rw: Rewriter, values: list[Value], shape: tuple[int, ...], acc: DType, attributes: dict[str, Any]
) -> Value:
    """(a + bi) * (c + di) = (a*c - b*d) + (a*d + b*c)i, with a convolution for each product"""
    part, t = acc.part, tensor(shape, acc.part)
    (a, b), (c, d) = (
        tuple(rw.emit1(f"stablehlo.{half}", [v], tensor(v.tensor.extents, part)) for half in ("real", "imag"))
        for v in values
    )

    def product(x: Value, w: Value) -> Value:
        return rw.emit1("stablehlo.convolution", [x, w], t, attributes)

    real = rw.emit1("stablehlo.subtract", [product(a, c), product(b, d)], t)
    imag = rw.emit1("stablehlo.add", [product(a, d), product(b, c)], t)
    return rw.emit1("stablehlo.complex", [real, imag], tensor(shape, acc))
