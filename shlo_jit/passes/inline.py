"""Inline calls and composites: the entry function alone remains.

Needs: a verified module (callees exist, no recursion). Guarantees: no `func.call`, `call` or `composite` in the result.

    %0 = call @f(%x)          ->      %0 = stablehlo.add %x, %x
    func @f(%a) { return %a + %a }
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.attributes import SymbolRef
from shlo_jit.ir.core import Module, Op, Value, is_declaration
from shlo_jit.passes.rewriter import Rewriter, rebuilt

CALLS = {"func.call": "callee", "call": "callee", "stablehlo.composite": "decomposition"}


def inline(module: Module, entry: Op) -> Op:
    """The entry function with every call replaced by its callee's body."""
    functions = {f.attributes["sym_name"]: f for f in module.functions()}
    active: list[str] = [entry.attributes["sym_name"]]

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        attribute = CALLS.get(op.name)
        if attribute is None:
            return None
        symbol = op.attributes[attribute]
        name = symbol.name if isinstance(symbol, SymbolRef) else str(symbol)
        callee = functions.get(name)
        if callee is None or is_declaration(callee):
            raise VerifyError(diagnose(f"{op.name}: no function @{name} with a body", op.span))
        if name in active:
            raise UnsupportedError(diagnose(f"recursion: @{name} calls itself", op.span))
        body = callee.block()
        saved = {v: rw.values.get(v) for v in body.arguments}
        rw.values.update(zip(body.arguments, operands, strict=True))
        active.append(name)
        rw.run(body.ops[:-1])
        active.pop()
        results = [rw.get(o) for o in body.terminator.operands]
        rw.values.update({v: old for v, old in saved.items() if old is not None})
        return results

    rewriter = Rewriter(visit)
    return rebuilt(entry, rewriter.sweep(entry.block()))
