"""Refuse contradictions that the verifier could not see: of unknown extents and computed shapes, once both are known.

A call may pass `tensor<3xf32>` to a function of `tensor<?xf32>`, which passes it to one of `tensor<5xf32>`: each step
is valid. A shape computed as a sum of constants is not a constant to the verifier either, but is one after folding. So
such programs are verified again after their calls are inlined, their constants folded and their dynamic ops expanded.

Needs: expanded ops. Guarantees: a function that `may_contradict` itself is valid, and returns the types that it
declared.

    func @main(%x: tensor<3xf32>) -> tensor<5xf32> { return %x through functions of tensor<?xf32> }   ->   VerifyError
"""

from __future__ import annotations

from shlo_jit.errors import VerifyError, diagnose
from shlo_jit.ir.core import Module, Op, function_type, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.ops import OPS
from shlo_jit.ops.type_algebra import compatible_shapes, type_text
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.flatten import leaves
from shlo_jit.verify.verifier import verify_function


def may_contradict(module: Module) -> bool:
    """Whether a verified module has anything that the verifier could not check."""
    return any(_is_open(op) for op in walk(module.body))


def _is_open(op: Op) -> bool:
    """Whether an op has unknown extents, or rules that need the values of its operands."""
    values = [*op.results, *(a for r in op.regions for b in r.blocks for a in b.arguments)]
    if any(isinstance(t, TensorType) and not t.is_static for v in values for t in leaves(v.type)):
        return True
    record = OPS.get(op.name)
    return record is not None and bool(op.operands) and record.has("looks_at_operands")


def refuse_contradictions(function: Op, context: Context) -> Op:
    """Returns the function unchanged. Raises VerifyError if it contradicts itself."""
    entry = context.as_written
    if entry is None:
        return function
    found = verify_function(function, is_registered=lambda target: True)
    if found:
        raise VerifyError(found)
    stated = [leaf for t in function_type(entry).results for leaf in leaves(t)]
    for a, b in zip(stated, function_type(function).results, strict=True):
        if isinstance(a, TensorType) and isinstance(b, TensorType) and not compatible_shapes(a.shape, b.shape):
            message = f"the function returns '{type_text(b)}', but its type says '{type_text(a)}'"
            raise VerifyError(diagnose(message, entry.span, op=entry.name, label="type"))
    return function
