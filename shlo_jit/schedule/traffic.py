"""Minimum memory traffic and arithmetic of a step, to compare its time with the machine's limits.

Bytes: every element that is read or written counts once, whatever the caches do. Operations: each arithmetic op on an
element is one, a multiply-add two. So is an elementary function, which takes more and is counted separately.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import NestStep, OpStep, StagedStep, Step
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At, variables
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS
from shlo_jit.schedule.window import Dim, absorbs_initial, dims_of_window, scan_dim


class Operations(NamedTuple):
    """Arithmetic operations of a step."""

    simple: int
    functions: int
    """Elements of ops that are `transcendental`."""

    @property
    def total(self) -> int:
        return self.simple + self.functions


class Traffic(NamedTuple):
    """Bytes that a step moves."""

    reads: Mapping[Value, int]
    """For each value, the bytes of the elements that are read."""
    written: int

    @property
    def total(self) -> int:
        return sum(self.reads.values()) + self.written


def step_traffic(step: Step) -> Traffic:
    """Bytes that a step reads and writes; zero for control flow and views."""
    if isinstance(step, NestStep):
        return _nest_traffic(step.nest)
    if isinstance(step, StagedStep):
        product = None if step.host is None else step.host.op.result
        return Traffic({v: _nbytes(v) for v in step.reads}, sum(_nbytes(v) for v in step.writes if v is not product))
    if not isinstance(step, OpStep):
        return Traffic({}, 0)
    reads = {value: _nbytes(value) for value in step.operands}
    if step.epilogue is None:
        return Traffic(reads, sum(map(_nbytes, step.op.results)))
    more, written = _nest_traffic(step.epilogue.nest)
    for value, nbytes in more.items():
        if value is not step.op.result:  # the product is in the cache
            reads[value] = reads.get(value, 0) + nbytes
    return Traffic(reads, written)


def _nest_traffic(nest: Nest) -> Traffic:
    reads: dict[Value, int] = {}
    for value, at in nest.loads:
        reads[value] = reads.get(value, 0) + _visits(nest, at) * value.tensor.storage.itemsize
    reads = {value: min(nbytes, _nbytes(value)) for value, nbytes in reads.items()}
    return Traffic(reads, sum(_visits(nest, At(s.index)) * s.target.tensor.storage.itemsize for s in nest.stores))


def _visits(nest: Nest, at: At) -> int:
    """Number of different places that `at` denotes over the nest's loops."""
    return math.prod(nest.extents[v] for v in variables(at))


def _nbytes(value: Value) -> int:
    return value.type.nbytes if isinstance(value.type, TensorType) else 0


def step_operations(step: Step) -> Operations | None:
    """Arithmetic operations of a step; None if their number is unknown or depends on values."""
    if isinstance(step, NestStep):
        return _nest_operations(step.nest) if step.nest.interchange is None else None
    if not isinstance(step, OpStep | StagedStep):
        return None
    own = _op_operations(step.op) if isinstance(step, OpStep) else 0
    if own is None:
        return own
    inside = [step_operations(part) for part in step.parts]
    counted = [Operations(own, 0), *(found for found in inside if found is not None)]
    return Operations(sum(o.simple for o in counted), sum(o.functions for o in counted))


def _nest_operations(nest: Nest) -> Operations:
    simple = functions = 0
    for (_, at), node in nest.nodes.items():
        is_reduce = node.op.name == "stablehlo.reduce"
        times = node.op.operands[0].tensor.size if is_reduce else _visits(nest, at)
        for op in node.op.block().ops[:-1] if is_reduce else [node.op]:
            if OPS[op.name].has("transcendental"):
                functions += times
            elif cost(op):
                simple += times
    return Operations(simple, functions)


def _op_operations(op: Op) -> int | None:
    operands, result = op.operands, op.results[0] if op.results else None
    if op.name == "stablehlo.dot_general":
        lhs, numbers = operands[0].tensor, op.attributes["dot_dimension_numbers"]
        return 2 * op.result.tensor.size * math.prod(lhs.extents[int(d)] for d in _contracting(numbers))
    if op.name == "stablehlo.convolution":
        return 2 * _products(op)
    if op.name == "stablehlo.reduce_window":
        if result is None:
            return None
        is_scan = scan_dim(dims_of_window(op)) is not None and absorbs_initial(op) is not False
        return result.tensor.size * (1 if is_scan else math.prod(op.ints("window_dimensions")))
    if op.name == "stablehlo.fft":
        n = math.prod(op.ints("fft_length"))
        return int(5 * max(o.tensor.size for o in (operands[0], op.result)) * math.log2(max(2, n)))
    if op.name == "stablehlo.cholesky":
        n = op.result.tensor.extents[-1]
        return op.result.tensor.size * n // 3
    if op.name == "stablehlo.triangular_solve":
        return op.result.tensor.size * op.operands[0].tensor.extents[-1]
    return None


def _products(op: Op) -> int:
    """Multiply-adds of a convolution, excluding those with padding and with the gaps of a dilated input."""
    d = op.attributes["dimension_numbers"]
    x, w, y = (v.tensor.extents for v in (*op.operands, op.result))
    ones = (1,) * len(d.input_spatial_dimensions)
    dims = zip(
        (x[i] for i in d.input_spatial_dimensions),
        (y[i] for i in d.output_spatial_dimensions),
        (w[i] for i in d.kernel_spatial_dimensions),
        op.ints("window_strides", ones),
        op.ints("padding", (0, 0) * len(ones))[0::2],
        op.ints("lhs_dilation", ones),
        op.ints("rhs_dilation", ones),
        strict=True,
    )
    pixels = math.prod(
        _places(Dim(n, out, size, stride, low, 0, base, by)) for n, out, size, stride, low, base, by in dims
    )
    features = y[d.output_feature_dimension] * w[d.kernel_input_feature_dimension]
    return y[d.output_batch_dimension] * features * pixels


def _places(d: Dim) -> int:
    """Pairs of an output and a window position that read an element of the input."""
    count = 0
    for place in range(d.size):
        shift = place * d.dilation - d.low
        first = max(0, -(shift // d.stride))
        last = min(d.out - 1, ((d.extent - 1) * d.base - shift) // d.stride)
        for rest in range(d.base):  # either all outputs with this remainder read elements, or none does
            if (rest * d.stride + shift) % d.base == 0:
                count += max(0, (last - rest) // d.base - (first - 1 - rest) // d.base)
    return count


def _contracting(numbers: object) -> Iterable[int]:
    return numbers.get("lhs_contracting_dimensions", ())  # type: ignore[attr-defined]
