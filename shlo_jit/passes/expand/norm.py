"""Expansions of batch_norm_inference, batch_norm_training and batch_norm_grad.

Floats narrower than f32 are computed in f32 and rounded at the end. Vectors have the dimension `feature_index`; means
and sums are over all other dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.attributes import FloatAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import F32, DType
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


class _Norm:
    """The operands of one op, widened, and the building blocks of its formulas."""

    def __init__(self, rw: Rewriter, op: Op, operands: list[Value]):
        self.rw = rw
        self.dtype: DType = operands[0].tensor.storage
        self.wide = self.dtype if self.dtype.name in ("f32", "f64") else F32
        self.shape = mk.shape_of(operands[0])
        self.feature = op.int("feature_index")
        self.axes = [d for d in range(len(self.shape)) if d != self.feature]
        self.count = int(np.prod([self.shape[d] for d in self.axes], dtype=np.int64))
        epsilon = op.attributes["epsilon"]
        assert isinstance(epsilon, FloatAttr)
        self.epsilon = epsilon.value
        self.operands = [mk.convert(rw, o, self.wide) for o in operands]

    def spread(self, vector: Value) -> Value:
        return mk.broadcast(self.rw, vector, self.shape, [self.feature])

    def sum(self, x: Value) -> Value:
        return mk.reduce_sum(self.rw, x, self.axes)

    def mean(self, x: Value) -> Value:
        total = self.sum(x)
        return mk.apply(self.rw, "divide", total, mk.splat_like(self.rw, total, self.count))

    def apply(self, name: str, *operands: Value) -> Value:
        return mk.apply(self.rw, name, *operands)

    def raised(self, variance: Value) -> Value:
        """variance + epsilon"""
        return self.apply("add", variance, mk.splat_like(self.rw, variance, self.epsilon))

    def normalize(self, x: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
        """(x - mean) * (scale / sqrt(variance + epsilon)) + offset"""
        factor = self.apply("divide", scale, self.apply("sqrt", self.raised(variance)))
        centered = self.apply("subtract", x, self.spread(mean))
        return self.apply("add", self.apply("multiply", centered, self.spread(factor)), self.spread(offset))

    def results(self, *values: Value) -> list[Value]:
        return [mk.convert(self.rw, v, self.dtype) for v in values]


def expand_inference(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """(x - mean) * (scale / sqrt(variance + epsilon)) + offset"""
    if not all(map(mk.is_static, operands)):
        return None
    n = _Norm(rw, op, operands)
    return n.results(n.normalize(*n.operands))  # type: ignore[call-arg]


def expand_training(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """mean = sum(x) / n, variance = sum((x - mean)^2) / n, and x normalized by them"""
    if not all(map(mk.is_static, operands)):
        return None
    n = _Norm(rw, op, operands)
    x, scale, offset = n.operands
    mean = n.mean(x)
    centered = n.apply("subtract", x, n.spread(mean))
    variance = n.mean(n.apply("multiply", centered, centered))
    return n.results(n.normalize(x, scale, offset, mean, variance), mean, variance)


def expand_grad(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """batch_norm_grad, where c = x - mean and r = 1 / sqrt(variance + epsilon):

    grad_scale = sum(g c) r, grad_offset = sum(g),
    grad_operand = scale r (g - sum(g) / n - c (sum(g c) / n) / (variance + epsilon))
    """
    if not all(map(mk.is_static, operands)):
        return None
    n = _Norm(rw, op, operands)
    x, scale, mean, variance, grad = n.operands
    raised = n.raised(variance)
    deviation = n.apply("sqrt", raised)
    centered = n.apply("subtract", x, n.spread(mean))
    product = n.apply("multiply", grad, centered)
    grad_offset, along = n.sum(grad), n.sum(product)
    count = mk.splat_like(rw, along, n.count)
    slope = n.apply("divide", n.apply("divide", along, count), raised)
    level = n.apply("divide", grad_offset, count)
    rest = n.apply(
        "subtract", n.apply("subtract", grad, n.spread(level)), n.apply("multiply", centered, n.spread(slope))
    )
    grad_operand = n.apply("multiply", n.spread(n.apply("divide", scale, deviation)), rest)
    return n.results(grad_operand, n.apply("divide", along, deviation), grad_offset)


RULES = {
    "stablehlo.batch_norm_inference": expand_inference,
    "stablehlo.batch_norm_training": expand_training,
    "stablehlo.batch_norm_grad": expand_grad,
}
