"""Static programs with unknown dimensions: of some arguments, and of everything that depends on these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.attributes import TypeAttr
from shlo_jit.ir.core import Block, Module, Op, Region, Value
from shlo_jit.ir.types import FunctionType, TensorType, Type, tensor
from shlo_jit.ops import OPS
from shlo_jit.ops.record import Violation
from shlo_jit.passes.rewriter import Rewriter


def with_unknown(module: Module, generator: np.random.Generator, share: float = 0.5) -> Module:
    """Returns the module with about a share of the dimensions of the arguments of `main` unknown."""
    function = module.function("main")
    assert function is not None
    old = function.block()
    arguments = [Value(_relaxed(a.type, generator, share), name=a.name) for a in old.arguments]
    rw = Rewriter(visit)
    rw.blocks.append(Block(arguments))
    rw.values.update(zip(old.arguments, arguments, strict=True))
    rw.run(old.ops)
    results = tuple(v.type for v in rw.block.terminator.operands)
    signature = TypeAttr(FunctionType(tuple(a.type for a in arguments), results))
    attributes = {**function.attributes, "function_type": signature}
    new = Op(function.name, [], [], attributes, [Region([rw.block])])
    ops = [new if op is function else op for op in module.body.ops]
    return Module(Op(module.op.name, [], [], module.op.attributes, [Region([Block(ops=ops)])]))


def _relaxed(type: Type, generator: np.random.Generator, share: float) -> Type:
    if not isinstance(type, TensorType):
        return type
    return tensor(tuple(None if generator.random() < share else n for n in type.extents), type.dtype)


def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Returns an op with the types that are inferred from its operands, if they are inferred."""
    record = OPS.get(op.name)
    if op.regions or record is None or record.infer is None or not op.operands:
        return None
    stated = [_unknown_like(v.type) if record.has("elementwise") else v.type for v in op.results]
    new = Op(op.name, operands, stated, op.attributes, [], op.source, op.start, op.end)
    try:
        types = record.infer(new)
    except Violation:
        return None
    for value, found, was in zip(new.results, types, op.results, strict=True):
        keeps = not isinstance(found, TensorType) or found.shape is None or not record.has("elementwise")
        value.type = was.type if keeps and not _fits(found, was.type) else found
    rw.block.ops.append(new)
    return new.results


def _unknown_like(type: Type) -> Type:
    return tensor((None,) * type.rank, type.dtype) if isinstance(type, TensorType) else type


def _fits(found: Type, stated: Type) -> bool:
    return isinstance(found, TensorType) and isinstance(stated, TensorType) and found.dtype == stated.dtype
