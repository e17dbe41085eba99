"""Inline calls and composites: the entry function alone remains.

Needs: a verified module (callees exist, no recursion). Guarantees: no call and no `composite` in the result.
A composite that the user has an implementation of becomes a custom call of the target `composite <its name>`.

    %0 = call @f(%x)          ->      %0 = stablehlo.add %x, %x
    func @f(%a) { return %a + %a }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.attributes import DictAttr, IntegerAttr, SymbolRef
from shlo_jit.ir.core import Module, Op, Value, function_type, is_declaration
from shlo_jit.passes.rewriter import Rewriter, rebuilt

CALLS = {
    "func.call": "callee", "call": "callee", "func.call_indirect": "value", "stablehlo.composite": "decomposition",
}  # fmt: skip
"""Ops that call a function, and the attribute with its name; call_indirect finds it in the constant it calls."""

COMPOSITE = "composite "
"""What the targets of calls that stand for composites begin with."""


def inline(module: Module, entry: Op, is_registered: Callable[[str], bool] = lambda target: False) -> Op:
    """The entry function with every call replaced by its callee's body."""
    functions = {f.attributes["sym_name"]: f for f in module.functions()}
    active: list[str] = [entry.attributes["sym_name"]]

    def defined(op: Op, attribute: str) -> tuple[str, Op]:
        """The function that an op's attribute names."""
        symbol = op.attributes[attribute]
        name = symbol.name if isinstance(symbol, SymbolRef) else str(symbol)
        callee = functions.get(name)
        if callee is None or is_declaration(callee):
            raise VerifyError(diagnose(f"{op.name}: no function @{name} with a body", op.span))
        return name, callee

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == "func.constant":
            _, named = defined(op, "value")
            if function_type(named) != op.result.type:
                raise VerifyError(diagnose(f"{op.name}: the function has another type", op.span))
            return None
        attribute = CALLS.get(op.name)
        if attribute is None:
            return None
        if op.name == "stablehlo.composite" and is_registered(COMPOSITE + op.attributes["name"]):
            return _user_composite(rw, op, operands)
        source = op
        if op.name == "func.call_indirect":
            source, operands = _known_function(op, operands[0]), operands[1:]
        name, callee = defined(source, attribute)
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


def _known_function(call: Op, callee: Value) -> Op:
    """The func.constant that a call_indirect calls."""
    if callee.op is None or callee.op.name != "func.constant":
        raise UnsupportedError(diagnose(f"{call.name} of a function that is not known at compile time", call.span))
    return callee.op


def _user_composite(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """A call of the user's implementation, with the composite's attributes."""
    config = op.attributes.get("composite_attributes", DictAttr(()))
    attributes = {"call_target_name": COMPOSITE + op.attributes["name"], "backend_config": config}
    attributes["api_version"] = IntegerAttr(4, "i32")  # whose backend_config is a dictionary
    return rw.emit("stablehlo.custom_call", operands, [r.type for r in op.results], attributes)
