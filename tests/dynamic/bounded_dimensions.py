"""Static programs with bounded dimensions of arguments, whose sizes are known only at run time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from unknown_dimensions import visit

from shlo_jit.ir.attributes import TypeAttr
from shlo_jit.ir.core import Block, Module, Op, Region, Value
from shlo_jit.ir.types import F32, I1, I32, FunctionType, TensorType, tensor
from shlo_jit.ops.type_algebra import with_bounds
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter

MORE = 3
"""Largest excess of a bounded dimension over its size."""


def with_bounded(module: Module, generator: np.random.Generator, share: float = 0.5) -> Module:
    """Returns the module with about a share of the dimensions of the arguments of `main` bounded and set to their
    original sizes; the arguments are larger (see `padded`). Sizes are computed from an additional last argument, a
    one."""
    function = module.function("main")
    assert function is not None
    old = function.block()
    more = [_more(a.tensor, generator, share) for a in old.arguments]
    types = [tensor(tuple(n + m for n, m in zip(a.tensor.extents, ms, strict=True)), a.tensor.dtype)
             for a, ms in zip(old.arguments, more, strict=True)]  # fmt: skip
    arguments = [
        Value(t, name=a.name)
        for t, a in zip([*types, tensor((), F32)], [*old.arguments, Value(tensor((), F32))], strict=True)
    ]
    rw = Rewriter(visit)
    rw.blocks.append(Block(arguments))
    for before, after, ms in zip(old.arguments, arguments, more, strict=False):
        rw.values[before] = _cut(rw, after, before.tensor.extents, ms, arguments[-1])
    rw.run(old.ops)
    results = tuple(v.type for v in rw.block.terminator.operands)
    signature = TypeAttr(FunctionType(tuple(a.type for a in arguments), results))
    attributes = {k: v for k, v in function.attributes.items() if k not in ("arg_attrs", "res_attrs")}
    new = Op(function.name, [], [], {**attributes, "function_type": signature}, [Region([rw.block])])
    ops = [new if op is function else op for op in module.body.ops]
    return Module(Op(module.op.name, [], [], module.op.attributes, [Region([Block(ops=ops)])]))


def _more(t: TensorType, generator: np.random.Generator, share: float) -> list[int]:
    return [int(generator.integers(1, MORE + 1)) if generator.random() < share else 0 for _ in t.extents]


def _cut(rw: Rewriter, x: Value, sizes: Sequence[int], more: Sequence[int], one: Value) -> Value:
    """Slices the first elements of x; a branch computes their number."""
    if not any(more):
        return x
    end = x.tensor.extents
    t = with_bounds(tuple(None if m else n for n, m in zip(end, more, strict=True)), x.tensor.dtype,
                    [n if m else None for n, m in zip(end, more, strict=True)])  # fmt: skip
    zero = mk.constant(rw, tensor((), F32), 0)
    branches = []
    for cut in (True, False):
        rw.blocks.append(Block())
        value = x
        for d, (n, m) in enumerate(zip(sizes, more, strict=True)):
            if m and cut:
                size = mk.convert(rw, mk.apply(rw, "multiply", one, mk.constant(rw, tensor((), F32), n)), I32)
                value = _set_size(rw, value, size, d)
        if not cut:
            value = rw.emit1("stablehlo.convert", [value], t)
        rw.emit("stablehlo.return", [value], [])
        branches.append(Region([rw.blocks.pop()]))
    pred = mk.compare(rw, "GT", one, zero)
    assert pred.tensor == tensor((), I1)
    return rw.emit("stablehlo.if", [pred], [t], {}, branches)[0]


def _set_size(rw: Rewriter, x: Value, size: Value, d: int) -> Value:
    t = x.tensor
    assert t.shape is not None
    shape = (*t.shape[:d], None, *t.shape[d + 1 :])
    bounds = list(t.bounds or [None] * t.rank)
    bounds[d] = t.shape[d]
    new = with_bounds(shape, t.dtype, bounds)
    return rw.emit1("stablehlo.set_dimension_size", [x, size], new, {"dimension": mk.IntegerAttr(d)})


def padded(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Returns a larger array that starts with the given one; the rest is filled with values that would be noticed."""
    poison = np.nan if array.dtype.kind in "fc" or array.dtype.name == "bfloat16" else array.dtype.type(77)
    found = np.full(shape, poison, array.dtype) if array.dtype.kind != "b" else np.ones(shape, bool)
    found[tuple(slice(n) for n in array.shape)] = array
    return found
