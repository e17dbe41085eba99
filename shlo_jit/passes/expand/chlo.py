"""Expansions of CHLO: square, conj, constant_like, the broadcasting ops, cosh and sinh, scan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import F32, I1, I64, tensor
from shlo_jit.ops import OPS
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter


def expand_square(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """square(x) = x * x; square(a + bi) = (a - b)(a + b) + 2ab i, whose real part is 0 for |a| = |b|"""
    x, dtype = operands[0], operands[0].tensor.storage
    if dtype.is_complex:
        part = mk.with_dtype(x, dtype.part)
        a, b = (rw.emit1(f"stablehlo.{name}", [x], part) for name in ("real", "imag"))
        product = mk.apply(rw, "multiply", mk.apply(rw, "subtract", a, b), mk.apply(rw, "add", a, b))
        finite = rw.emit1("stablehlo.is_finite", [a], mk.with_dtype(a, I1))
        even = mk.compare(rw, "EQ", mk.apply(rw, "abs", a), mk.apply(rw, "abs", b))
        even = mk.apply(rw, "and", finite, even)
        real = rw.emit1("stablehlo.select", [even, mk.splat_like(rw, a, 0), product], part)
        half = mk.apply(rw, "multiply", a, b)
        return rw.emit("stablehlo.complex", [real, mk.apply(rw, "add", half, half)], [op.result.type])
    return rw.emit("stablehlo.multiply", [operands[0], operands[0]], [op.result.type])


def expand_conj(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """conj(a + bi) = a - bi; conj(x) = x for real numbers"""
    x = operands[0]
    dtype = x.tensor.storage
    if not dtype.is_complex:
        return [x]
    part = mk.with_dtype(x, dtype.part)
    real, imag = (rw.emit1(f"stablehlo.{name}", [x], part) for name in ("real", "imag"))
    return rw.emit("stablehlo.complex", [real, mk.apply(rw, "negate", imag)], [op.result.type])


def expand_constant_like(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """constant_like(x) = a constant of x's shape"""
    if not mk.is_static(op.result):
        return None
    reference = OPS[op.name].reference
    assert reference is not None
    one = reference(op, np.zeros((), operands[0].tensor.storage.numpy))
    return [mk.constant(rw, op.result.tensor, one)]


def expand_broadcasting(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """broadcast_add(x, y) = add(broadcast_in_dim(x), broadcast_in_dim(y)), and likewise for the others"""
    if not (mk.is_static(op.result) and all(map(mk.is_static, operands))):
        return None
    shape = op.result.tensor.extents
    given = op.ints("broadcast_dimensions", ())
    wide = []
    for x in operands:
        rank = x.tensor.rank
        along = given if given and rank < len(shape) else range(len(shape) - rank, len(shape))
        wide.append(mk.broadcast(rw, x, shape, along))
    name = op.name.removeprefix("chlo.broadcast_")
    inner = f"stablehlo.{name}" if f"stablehlo.{name}" in OPS else f"chlo.{name}"
    attributes = {k: v for k, v in op.attributes.items() if k != "broadcast_dimensions"}
    return rw.emit(inner, wide, [op.result.type], attributes)


def _halved_exponentials(rw: Rewriter, x: Value) -> tuple[Value, Value]:
    """Returns e^x / 2 and e^-x / 2, computed as e^(x + log 1/2) and e^(log 1/2 - x): no overflow before the result
    itself overflows."""
    half = mk.splat_like(rw, x, np.log(0.5))
    up, down = mk.apply(rw, "add", x, half), mk.apply(rw, "subtract", half, x)
    return mk.apply(rw, "exponential", up), mk.apply(rw, "exponential", down)


def expand_cosh(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """cosh(x) = e^(x + log 1/2) + e^(log 1/2 - x), in f32, as CHLO and XLA define it

    The sum x + log 1/2 is rounded, which costs several ulps; other types have a more accurate kernel.
    """
    x = operands[0]
    if x.tensor.dtype != F32 or not mk.is_static(x):
        return None
    return [mk.apply(rw, "add", *_halved_exponentials(rw, x))]


def expand_sinh(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """sinh(x) = e^(x + log 1/2) - e^(log 1/2 - x); for |x| < 1, (m + m / (m + 1)) / 2 with m = e^x - 1

    In f32 only, like `expand_cosh`.
    """
    x = operands[0]
    if x.tensor.dtype != F32 or not mk.is_static(x):
        return None
    one, half = mk.splat_like(rw, x, 1.0), mk.splat_like(rw, x, 0.5)
    large = mk.apply(rw, "subtract", *_halved_exponentials(rw, x))
    m = mk.apply(rw, "exponential_minus_one", x)
    rest = mk.apply(rw, "divide", m, mk.apply(rw, "add", m, one))
    small = mk.apply(rw, "multiply", mk.apply(rw, "add", m, rest), half)
    near = mk.compare(rw, "LT", mk.apply(rw, "abs", x), one)
    return [mk.apply(rw, "select", near, small, large)]


# ---------------------------------------------------------------------------- scan
def expand_scan(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Expands scan to a while loop over the scanned dimension, which carries its counter, the outputs so far, and the
    carries.

    while (i < n) { row = body(x[i], carries); y[i] = row; i = i + 1 }
    """
    body = op.block()
    returned = body.terminator.operands
    carries = _carries(op)
    count = len(op.results) - carries
    if not all(map(mk.is_static, [*operands, *op.results])):
        return None
    axis, reverse = op.int("dimension"), bool(op.attributes.get("is_reverse", False))
    inputs, state = operands[: len(operands) - carries], operands[len(operands) - carries :]
    n = mk.shape_of(inputs[0])[axis] if inputs else op.int("scan_dim_size")
    counter = mk.constant(rw, tensor((), I64), 0)
    empty = [mk.constant(rw, o.tensor, 0) for o in op.results[:count]]
    start = [counter, *empty, *state]

    def condition(args: list[Value]) -> list[Value]:
        last = mk.constant(rw, tensor((), I64), n)
        return [mk.compare(rw, "LT", args[0], last)]

    def step(args: list[Value]) -> list[Value]:
        i, made, held = args[0], args[1 : 1 + count], args[1 + count :]
        at = mk.apply(rw, "subtract", mk.constant(rw, tensor((), I64), n - 1), i) if reverse else i
        rows = [_take(rw, x, axis, at) for x in inputs]
        rw.values.update(zip(body.arguments, [*rows, *held], strict=True))
        rw.run(body.ops[:-1])
        results = [rw.get(v) for v in returned]
        put = [_put(rw, y, row, axis, at) for y, row in zip(made, results[:count], strict=True)]
        return [mk.apply(rw, "add", i, mk.constant(rw, tensor((), I64), 1)), *put, *results[count:]]

    regions = [_region(rw, start, condition), _region(rw, start, step)]
    return rw.emit("stablehlo.while", start, [v.type for v in start], None, regions)[1:]


def _carries(op: Op) -> int:
    segments = op.attributes.get("operandSegmentSizes")
    if segments is not None:
        return op.ints("operandSegmentSizes")[1]
    return sum(1 for v in op.operands if any(v.type == r.type for r in op.results[len(op.results) // 2 :]))


def _region(rw: Rewriter, like: list[Value], write) -> Region:
    """Returns a region with arguments of the types of `like`; `write` emits its ops and returns the region's
    results."""
    block = Block([Value(v.type) for v in like])
    rw.blocks.append(block)
    rw.emit("stablehlo.return", write(block.arguments), [])
    rw.blocks.pop()
    return Region([block])


def _corner(rw: Rewriter, rank: int, axis: int, at: Value) -> list[Value]:
    zero = mk.constant(rw, tensor((), I64), 0)
    return [at if d == axis else zero for d in range(rank)]


def _take(rw: Rewriter, x: Value, axis: int, at: Value) -> Value:
    """x[..., at, ...] without that dimension"""
    shape = mk.shape_of(x)
    sizes = [1 if d == axis else k for d, k in enumerate(shape)]
    t = tensor(tuple(sizes), x.tensor.dtype)
    corner = _corner(rw, len(shape), axis, at)
    row = rw.emit1("stablehlo.dynamic_slice", [x, *corner], t, {"slice_sizes": mk.dims(sizes)})
    return mk.reshape(rw, row, mk.drop_dim(shape, axis))


def _put(rw: Rewriter, y: Value, row: Value, axis: int, at: Value) -> Value:
    shape = mk.shape_of(row)
    row = mk.reshape(rw, row, (*shape[:axis], 1, *shape[axis:]))
    corner = _corner(rw, y.tensor.rank, axis, at)
    return rw.emit1("stablehlo.dynamic_update_slice", [y, row, *corner], y.type)


RULES = {
    "chlo.square": expand_square,
    "chlo.conj": expand_conj,
    "chlo.constant_like": expand_constant_like,
    "chlo.cosh": expand_cosh,
    "chlo.sinh": expand_sinh,
    "chlo.scan": expand_scan,
    **{name: expand_broadcasting for name in OPS if name.startswith("chlo.broadcast_")},
}
