"""What the verifier could not see in a program with unknown extents or computed shapes, once both are known.

A call may give `tensor<3xf32>` to a function of `tensor<?xf32>`, which gives it to one of `tensor<5xf32>`: each step is
valid. A shape that is a sum of constants is no constant to the verifier either, but is one after folding. So such
programs are verified again when their calls are inlined, their constants folded and their dynamic ops expanded.
"""

from __future__ import annotations

from shlo_jit.errors import VerifyError, diagnose
from shlo_jit.ir.attributes import TypeAttr
from shlo_jit.ir.core import Block, Module, Op, Region, function_type, walk
from shlo_jit.ir.types import FunctionType, TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.shapes import compatible_shapes, type_text
from shlo_jit.passes.frontend.flatten import leaves
from shlo_jit.verify.verifier import verify_module


def may_contradict(module: Module) -> bool:
    """Whether there is anything in a verified module that the verifier could not see."""
    return any(_is_open(op) for op in walk(module.body))


def _is_open(op: Op) -> bool:
    """An op with unknown extents, or one whose rules ask for the values of its operands."""
    values = [*op.results, *(a for r in op.regions for b in r.blocks for a in b.arguments)]
    if any(isinstance(t, TensorType) and not t.is_static for v in values for t in leaves(v.type)):
        return True
    record = OPS.get(op.name)
    return record is not None and bool(op.operands) and record.has("looks_at_operands")


def module_of(function: Op) -> Module:
    """A module of the function and declarations of those it calls."""
    callees: dict[str, Op] = {}
    for op in walk(function.block()):
        if op.name == "func.call":
            name = op.attributes["callee"].name
            type = FunctionType(tuple(v.type for v in op.operands), tuple(r.type for r in op.results))
            attributes = {"sym_name": name, "function_type": TypeAttr(type), "sym_visibility": "private"}
            callees[name] = Op("func.func", [], [], attributes, [Region([])])
    ops = [*callees.values(), function]
    return Module(Op("builtin.module", [], [], {}, [Region([Block([], ops)])]), function.source)


def refuse_contradictions(entry: Op, function: Op) -> None:
    """Raise VerifyError unless the function, by itself, is valid, and gives what the entry function says."""
    found = verify_module(module_of(function), is_registered=lambda target: True)
    if found:
        raise VerifyError(found)
    stated = [leaf for t in function_type(entry).results for leaf in leaves(t)]
    for a, b in zip(stated, function_type(function).results, strict=True):
        if isinstance(a, TensorType) and isinstance(b, TensorType) and not compatible_shapes(a.shape, b.shape):
            message = f"the function returns '{type_text(b)}' where its type says '{type_text(a)}'"
            raise VerifyError(diagnose(message, entry.span, op=entry.name, label="type"))
