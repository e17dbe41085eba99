"""Rewrite products with few columns as convolutions of single pixels, for which the convolution kernel has a strategy
that fills the lanes: rows are pixels, and columns their features. Examples are scores of two classes, and points by a 3
x 3 matrix.

Needs: static shapes. Guarantees: nothing; products with sizes that are known only at the call stay as they are.

    dot_general(x, w) : [m, k] by [k, 3]   ->   reshape(convolution(x, w)) : [1, m, k] by [1, k, 3]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_jit import tuning
from shlo_jit.ir.attributes import ConvDims, IntegerAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import F32, F64, tensor
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size

FLOATS = (F32, F64)
"""Element types that the strategy with lanes along the window takes in place."""
DIMENSIONS = ConvDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
"""Dimension numbers of images of one line, features last."""
ONE = IntegerAttr(1)
ATTRIBUTES: dict[str, Any] = {
    "dimension_numbers": DIMENSIONS,
    "feature_group_count": ONE,
    "batch_group_count": ONE,
}


def narrow_products(function: Op, context: Context) -> Op:
    """The function with the products that have few columns rewritten as convolutions. Reproducible ones stay: lanes
    along k would add up in another order."""
    if context.reproducible:
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.dot_general" or not _has_few_columns(op):
            return None
        lhs, rhs = operands
        (over,) = roles_of(op).rhs_contracting
        weights = mk.transpose(rw, rhs, (over, 1 - over))
        k, n = mk.shape_of(weights)
        m = lhs.tensor.size // k
        pixels = mk.reshape(rw, lhs, (1, m, k))
        kernel = mk.reshape(rw, weights, (1, k, n))
        t = tensor((1, m, n), op.result.tensor.dtype)
        found = rw.emit1("stablehlo.convolution", [pixels, kernel], t, ATTRIBUTES)
        return [mk.reshape(rw, found, op.result.tensor.extents)]

    return rewrite(function, visit)


def _has_few_columns(op: Op) -> bool:
    """Whether a product has few columns, but at least two: a product with a vector reads the matrix in order anyway.
    The elements of a row must be adjacent, and fill the lanes. There must be enough rows if the columns have to be
    packed first."""
    lhs, rhs = (o.tensor for o in op.operands)
    roles = roles_of(op)
    if len({lhs.dtype, rhs.dtype, op.result.tensor.dtype}) > 1 or lhs.dtype not in FLOATS:
        return False
    if any(isinstance(e, Size) for e in (*lhs.extents, *rhs.extents)):
        return False
    if roles.lhs_batch or rhs.rank != 2 or roles.lhs_contracting != (lhs.rank - 1,):
        return False
    k, n = rhs.extents[roles.rhs_contracting[0]], rhs.extents[roles.rhs_free[0]]
    columns = op.operands[1].op
    is_constant = columns is not None and columns.name == "stablehlo.constant"
    rows = tuning.NARROW_ROWS if is_constant else max(tuning.NARROW_ROWS, tuning.NARROW_PACKED_ROWS * n * n)
    return n > 1 and pays_along_k(k, n) and lhs.size >= k * rows


def pays_along_k(k: int, n: int) -> bool:
    """Whether a kernel with lanes along k is the best one for k terms and n features."""
    return n <= tuning.CONV_FEW_FEATURES and k >= max(tuning.NARROW_TERMS, tuning.CONV_FEW_STEPS * n)
