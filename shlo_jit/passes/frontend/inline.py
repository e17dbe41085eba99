"""Inline calls and composites. The entry function remains, and so do functions that are too large or called too often
to be inlined everywhere (`call_graph.py` decides).

Needs: a verified module (callees exist). Guarantees: no `composite` and no indirect call remains. The result of
`inline_all` has no calls at all. A call that `inline` leaves is a `func.call` of another function it returns. It is in
no regions but those of control flow, and says whether it has an effect. A composite that the user has implemented
becomes a custom call with the target `composite <its name>`; one that represents a CHLO op becomes that op.

    %0 = call @f(%x)          ->      %0 = stablehlo.add %x, %x
    func @f(%a) { return %a + %a }
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from shlo_jit.errors import UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.attributes import DictAttr, IntegerAttr, SymbolRef
from shlo_jit.ir.core import Block, Module, Op, Region, Value, function_type, is_declaration
from shlo_jit.passes.context import Registered, nothing_registered
from shlo_jit.passes.frontend.call_graph import Function, call_graph, decide
from shlo_jit.passes.frontend.replacement import composed
from shlo_jit.passes.rewriter import rebuilt

CALLS = {
    "func.call": "callee", "call": "callee", "func.call_indirect": "value", "stablehlo.composite": "decomposition",
}  # fmt: skip
"""Ops that call a function, and the attribute with its name; a call_indirect finds it in the constant that it calls."""

COMPOSITE = "composite "
"""Prefix of the targets of custom calls that represent composites."""

Task = Generator["Task", Any, Any]
"""Work that yields the work it waits for: nothing here recurses, however deeply calls and regions nest."""


def inline_all(module: Module, entry: Op, is_registered: Registered = nothing_registered) -> Op:
    """Returns the function with every call replaced by its callee's body."""
    inliner = _Inliner(module, is_registered)
    name = entry.attributes["sym_name"]
    call_graph(name, entry, inliner.called)  # refuses recursion
    return inliner.written(entry)


def inline(module: Module, entry: Op, is_registered: Registered = nothing_registered) -> list[Op]:
    """Returns the functions that are still called, callees first, and the entry function last."""
    inliner = _Inliner(module, is_registered)
    functions = call_graph(entry.attributes["sym_name"], entry, inliner.called)
    decide(functions)
    inliner.kept = {id(s.op): functions[s.callee] for f in functions.values() for s in f.sites if not s.inlined}
    wanted = {id(f) for f in inliner.kept.values()}
    callees = [inliner.written(f.op, is_entry=False) for f in functions.values() if id(f) in wanted]
    return [*callees, inliner.written(entry)]


class _Inliner:
    def __init__(self, module: Module, is_registered: Registered) -> None:
        self.functions = {f.attributes["sym_name"]: f for f in module.functions()}
        self.is_registered = is_registered
        self.kept: dict[int, Function] = {}
        """Call sites that stay calls (by id), and their callees."""
        self.values: dict[Value, Value] = {}

    def called(self, op: Op) -> tuple[str, Op] | None:
        """Returns the name and the function that an op calls or takes the address of, or None. The callee of a
        call_indirect is resolved when it is inlined."""
        attribute = "value" if op.name == "func.constant" else CALLS.get(op.name)
        if attribute is None or op.name == "func.call_indirect" or self.is_users(op) or composed(op) is not None:
            return None
        return self.defined(op, attribute)

    def is_users(self, op: Op) -> bool:
        """Whether an op is a composite that the user has implemented."""
        return op.name == "stablehlo.composite" and self.is_registered(COMPOSITE + op.attributes["name"])

    def defined(self, op: Op, attribute: str) -> tuple[str, Op]:
        """Returns the name and the function that an op's attribute names. Raises VerifyError if there is none with a
        body."""
        symbol = op.attributes[attribute]
        name = symbol.name if isinstance(symbol, SymbolRef) else str(symbol)
        callee = self.functions.get(name)
        if callee is None or is_declaration(callee):
            raise VerifyError(diagnose(f"{op.name}: no function @{name} with a body", op.span, label="symbol"))
        return name, callee

    def written(self, function: Op, is_entry: bool = True) -> Op:
        """Returns a function with its calls inlined."""
        self.values = {}
        new = rebuilt(function, run_task(self.block(function.block())))
        if not is_entry:  # attributes of arguments are for the caller of a program
            new.attributes = {k: v for k, v in new.attributes.items() if k not in ("arg_attrs", "res_attrs")}
        return new

    # ------------------------------------------------------------------ tasks
    def block(self, old: Block) -> Task:
        new = Block([Value(a.type, name=a.name) for a in old.arguments])
        self.values.update(zip(old.arguments, new.arguments, strict=True))
        yield self.ops(old.ops, new)
        return new

    def ops(self, ops: Iterable[Op], into: Block) -> Task:
        for op in ops:
            operands = [self.values.get(o, o) for o in op.operands]
            if op.name in CALLS:
                results = yield self.call(op, operands, into)
            else:
                results = yield from self.keep(op, operands, into)
            for old, value in zip(op.results, results, strict=True):
                self.values[old] = value
                value.name = value.name or old.name

    def keep(self, op: Op, operands: list[Value], into: Block) -> Task:
        if op.name == "func.constant" and function_type(self.defined(op, "value")[1]) != op.result.type:
            raise VerifyError(diagnose(f"{op.name}: the function has another type", op.span, label="type"))
        regions = []
        for region in op.regions:
            regions.append(Region([]))
            for block in region.blocks:
                regions[-1].blocks.append((yield self.block(block)))
        return _emit(into, op, op.name, operands, op.attributes, regions)

    def call(self, op: Op, operands: list[Value], into: Block) -> Task:
        if self.is_users(op):
            return _emit(into, op, "stablehlo.custom_call", operands, _user_composite(op))
        meant = composed(op)
        if meant is not None:
            return _emit(into, op, meant.name, operands, meant.attributes)
        if id(op) in self.kept:
            callee = self.kept[id(op)]
            name = SymbolRef((callee.op.attributes["sym_name"],))
            return _emit(into, op, "func.call", operands, {"callee": name, "has_side_effect": callee.has_effect})
        source = op
        if op.name == "func.call_indirect":
            source, operands = _known_function(op, operands[0]), operands[1:]
        _, callee = self.defined(source, CALLS[op.name])
        body = callee.block()
        self.values.update(zip(body.arguments, operands, strict=True))
        yield self.ops(body.ops[:-1], into)
        return [self.values.get(o, o) for o in body.terminator.operands]


def run_task(task: Task) -> Any:
    """Runs a task and the tasks it waits for. Returns its result."""
    stack, value = [task], None
    while stack:
        try:
            waited_for = stack[-1].send(value)
        except StopIteration as end:
            stack.pop()
            value = end.value
        else:
            stack.append(waited_for)
            value = None
    return value


def _emit(into: Block, op: Op, name: str, operands: list[Value], attributes: dict[str, Any],
          regions: list[Region] | None = None) -> list[Value]:  # fmt: skip
    """Appends an op with the source location of another one. Returns its results."""
    new = Op(name, operands, [r.type for r in op.results], attributes, regions, op.source, op.start, op.end)
    into.ops.append(new)
    return new.results


def _known_function(call: Op, callee: Value) -> Op:
    """Returns the func.constant that a call_indirect calls."""
    if callee.op is None or callee.op.name != "func.constant":
        raise UnsupportedError(
            diagnose(
                f"{call.name}: the called function is not known at compile time", call.span, label="unknown-function"
            )
        )
    return callee.op


def _user_composite(op: Op) -> dict[str, Any]:
    """Returns the attributes of a call of the user's implementation, including those of the composite."""
    config = op.attributes.get("composite_attributes", DictAttr(()))
    attributes = {"call_target_name": COMPOSITE + op.attributes["name"], "backend_config": config}
    attributes["api_version"] = IntegerAttr(4, "i32")  # in this version, backend_config is a dictionary
    return attributes
