"""Schedule of the loop that computes a kernel of a convolution while it is packed (`kernels/convolution/
computed_kernel.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.kernels.convolution.computed_kernel import kernel_box, panel_width
from shlo_jit.kernels.convolution.description import BY_POSITION, BY_ROWS, Description
from shlo_jit.kernels.convolution.geometry import Geometry
from shlo_jit.reasons import Reason
from shlo_jit.schedule.boxes import Boxes, BoxSize, Parts, boxes_of

COMPUTED = Reason("computed-operand", "the convolution computes its elements where it packs them")


def order_of(step: ComputedOperandStep) -> str:
    """Returns how the kernel is best computed: by rows if it is stored as OIHW, with adjacent window positions."""
    dims, extents = _dims(step), step.product.op.operands[1].tensor.extents
    spatial = dims.kernel_spatial_dimensions
    order = (dims.kernel_output_feature_dimension, dims.kernel_input_feature_dimension, *spatial)
    is_oihw = order == tuple(range(len(extents)))
    return BY_ROWS if is_oihw and any(extents[d] != 1 for d in spatial) else BY_POSITION


def boxes_of_kernel(step: ComputedOperandStep, g: Geometry, d: Description) -> Boxes:
    """Returns the schedule of the loop that computes the kernel."""
    widths, terms = kernel_box(g.plan, d.variant, d.computes, g.window_size)
    # By rows, boxes begin at any vector of a panel, and by position at a panel of any group.
    begin = 1 if d.computes == BY_ROWS else panel_width(g.plan, d.variant)
    if g.shape.groups > 1:
        begin = gcd(begin, g.shape.co)
    size = BoxSize(widths, terms, (begin, terms))
    by_terms = True if d.computes == BY_ROWS else None
    return boxes_of(step.producer.nest, _parts(step, d.computes), size, g.target, by_terms=by_terms)


def _parts(step: ComputedOperandStep, computes: str) -> Parts:
    """The variables that number window positions, terms and output features; by rows, positions are part of terms."""
    dims = _dims(step)
    spatial, ci = dims.kernel_spatial_dimensions, dims.kernel_input_feature_dimension
    free = _number(step, [dims.kernel_output_feature_dimension])
    if computes == BY_ROWS:
        return {}, _number(step, [ci, *spatial]), free
    return _number(step, spatial), _number(step, [ci]), free


def _number(step: ComputedOperandStep, dims: Sequence[int]) -> dict[int, int]:
    """The variables that run through some dimensions of the kernel, outermost first, with their coefficients in the
    number of an element along these."""
    extents, found, inner = step.product.op.operands[1].tensor.extents, dict[int, int](), 1
    for d in reversed(dims):
        found |= {v: n * inner for v, n in step.operand.parts[d].items()}
        inner *= extents[d]
    return found


def _dims(step: ComputedOperandStep) -> ConvDims:
    dims = step.product.op.attributes["dimension_numbers"]
    assert isinstance(dims, ConvDims)
    return dims
