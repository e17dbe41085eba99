"""The function that a custom call names, as a region of the op that replaces the call."""

from __future__ import annotations

from shlo_jit.ir.core import Module, Op, Region
from shlo_jit.passes.frontend.inline import inline_all
from shlo_jit.passes.rewriter import Rewriter


def named_region(rw: Rewriter, call: Op, module: Module) -> Region:
    """Returns the body of the one function in a call's `called_computations`, with its calls inlined."""
    named = module.function(call.attributes["called_computations"][0].name)
    assert named is not None  # the verifier has checked it
    body = rw.sweep(inline_all(module, named).block())
    end = body.ops.pop()
    body.ops.append(Op("stablehlo.return", end.operands, []))
    return Region([body])
