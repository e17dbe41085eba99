"""Verifier: `verify_module` reports all errors of a module, each at its op.

The checks of every op are, in this order (only the first failure of an op is reported):
- its name is known (an unknown StableHLO or CHLO op is an error, ops of other dialects are errors on request);
- values are defined before they are used, in this function, and in a scope that is still open;
- number and kinds of operands, kinds of attributes, number of regions, terminators, number and kinds of results;
- the constraints of its record, by label, and the stated result types against the inferred ones.
For the module as a whole (`verify/symbols.py`):
- symbols are unique, callees exist and have the types of the call, calls are not recursive.

`warnings_of` reports what is valid but probably a mistake: unknown attributes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from typing import Any

from shlo_jit.deep import deeply
from shlo_jit.errors import Diagnostic, Span, diagnose, rule_code
from shlo_jit.ir.attributes import ConvDims, Dense, StructAttr, SymbolRef, TypeAttr
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Block, Module, Op, Region, Value, walk
from shlo_jit.ir.types import FunctionType
from shlo_jit.ops import OPS, Violation
from shlo_jit.ops.attribute_kinds import short_text
from shlo_jit.ops.constraints import GENERAL
from shlo_jit.ops.families import FAMILY_OF
from shlo_jit.ops.name_hints import hint_for
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.suggest import did_you_mean
from shlo_jit.verify.check_op import check_op
from shlo_jit.verify.symbols import MOST_HINTS, NAMES_SYMBOLS, Finding, check_symbols, symbol

OWN_DIALECTS = ("stablehlo", "chlo", "func", "builtin")


@deeply
@paused_collector()
def verify_module(
    module: Module, *, foreign: bool = False, is_registered: Callable[[str], bool] = lambda target: False
) -> list[Diagnostic]:
    """Returns all errors of a module, in the order of the text.

    With `foreign`, ops of other dialects are errors, too. `is_registered` tells which custom calls the user implements:
    those are not checked against our records.
    """
    verifier = _Verifier(foreign, is_registered)
    verifier.op(module.op)
    verifier.block(module.body)
    if not module.scoped:
        verifier.found += check_scopes(module.body, set())
    found = [*verifier.found, *check_symbols(module, verifier.users)]
    return [diagnostic_of(*finding) for finding in _in_order(found)] if found else []


def verify_function(function: Op, *, is_registered: Callable[[str], bool] = lambda target: False) -> list[Diagnostic]:
    """Returns all errors of a function outside its module: the functions that it calls are assumed to have the types of
    its calls, and the meshes that it names are assumed to exist."""
    from shlo_jit.ops.collective import mesh_symbol

    callees: dict[str, Op] = {}
    for op in walk(function.block()):
        if FAMILY_OF.get(op.name) == "collective" and (mesh := mesh_symbol(op)) is not None:
            callees[mesh] = Op("sdy.mesh", [], [], {"sym_name": mesh}, [])
        if op.name == "func.call":
            name = op.attributes["callee"].name
            type = FunctionType(tuple(v.type for v in op.operands), tuple(r.type for r in op.results))
            attributes = {"sym_name": name, "function_type": TypeAttr(type), "sym_visibility": "private"}
            callees[name] = Op("func.func", [], [], attributes, [Region([])])
    body = Block([], [*callees.values(), function])
    module = Module(Op("builtin.module", [], [], {}, [Region([body])]), function.source)
    return verify_module(module, is_registered=is_registered)


def warnings_of(module: Module) -> list[Diagnostic]:
    """Returns warnings about attributes that an op's record does not declare and that have no dialect prefix (`jax.`,
    `mhlo.`)."""
    found: list[Diagnostic] = []
    for op in walk(module.body):
        record = OPS.get(op.name)
        if record is None or op.dialect not in ("stablehlo", "chlo"):
            continue
        for name in op.attributes:
            if name in record.attributes or "." in name or name in _EVERYWHERE:
                continue
            hint = did_you_mean(name, record.attributes)
            message = f"{op.name} has no attribute '{name}'" + (f"; {hint}" if hint else "")
            about = {"op": op.name, "label": "attribute", "hint": hint, "found": name}
            found.append(diagnose(message, op.span, severity="warning", code="verify.unknown_attribute", **about))
    return found


_EVERYWHERE = frozenset({"successors"})
"""Attribute names that the parser itself assigns to parts of the generic form."""


def diagnostic_of(op: Op, violation: Violation) -> Diagnostic:
    """Returns the diagnostic `dot_general C5: 'stablehlo.dot_general' op ...`: our label, then MLIR's wording."""
    label = violation.label
    name = op.name.removeprefix("stablehlo.")
    message = violation.message
    if label not in ("unknown", "terminator"):
        message = f"{name} {label}: '{op.name}' op {message}"
    if violation.hint and (label == "unknown" or violation.hint.startswith("did you mean")):
        message += f"; {violation.hint}"
    record = OPS.get(op.name)
    rule = record.constraints.get(label, "") if record is not None else ""
    found = violation.found or _what_there_is(op, rule)
    expected = violation.expected or rule or GENERAL.get(label, "")
    return diagnose(
        message, _place(op, violation.at), op=op.name, label=label, rule=rule, hint=violation.hint,
        found=found, expected=expected, code=violation.code or rule_code("verify", op.name, label),
    )  # fmt: skip


def _what_there_is(op: Op, rule: str) -> str:
    """Returns the attributes that a rule mentions, and the types:
    `dimensions = array<i64: 5>, (tensor<i8>) -> (tensor<i8>)`."""
    words = set(_WORD.findall(rule))
    found = []
    for name, attr in op.attributes.items():
        fields = _fields(attr) or {name: attr}
        found += [f"{key} = {short_text(value)}" for key, value in fields.items() if key in words]
    types = FunctionType(tuple(v.type for v in op.operands), tuple(v.type for v in op.results))
    return ", ".join([*found, type_text(types)])


def _fields(attr: Any) -> dict[str, Any]:
    """Returns the fields of a struct attribute; empty for others."""
    if isinstance(attr, StructAttr):
        return dict(attr.fields)
    return {f.name: getattr(attr, f.name) for f in dataclasses.fields(attr)} if isinstance(attr, ConvDims) else {}


_WORD = re.compile(r"\w+")


def _place(op: Op, part: str) -> Span | None:
    """Returns the span of an op, or of the part of its text that is wrong."""
    span = op.span
    if span is None or not part:
        return span
    at = span.source.text.find(part, span.start, span.end)
    return Span(span.source, at, at + len(part)) if at >= 0 else span


def _in_order(found: list[Finding]) -> list[Finding]:
    """Sorts findings by position in the text; the order of findings without a position stays."""
    return [f for _, _, f in sorted(((f[0].start, i, f) for i, f in enumerate(found)), key=itemgetter(0, 1))]


class _Verifier:
    """Walks over all ops. State: the findings, the ops known to be valid, and the current position."""

    def __init__(self, foreign: bool, is_registered: Callable[[str], bool]):
        self.foreign = foreign
        self.is_registered = is_registered
        self.found: list[Finding] = []
        self.hints = MOST_HINTS
        self.known_good: set[Any] = set()
        """Keys of valid ops: an op that differs only in its values need not be checked again."""
        self.func = ""
        self.users: list[tuple[str, Op]] = []
        """Ops that name symbols, with their enclosing function."""

    def block(self, block: Block) -> None:
        """Checks all ops of a block and of nested regions."""
        known_good = self.known_good
        for op in block.ops:
            if op.name in NAMES_SYMBOLS and not self.is_users_own(op):
                self.users.append((self.func, op))
            key = _key(op)
            if (key is None or key not in known_good) and self.op(op) and key is not None:
                known_good.add(key)
            if op.regions:
                if op.name == "func.func":
                    self.func = symbol(op, "sym_name") or ""
                for region in op.regions:
                    for inner in region.blocks:
                        self.block(inner)

    def is_users_own(self, op: Op) -> bool:
        """Whether an op is a custom call that the user implements."""
        return op.name == "stablehlo.custom_call" and self.is_registered(str(op.attributes.get("call_target_name")))

    def op(self, op: Op) -> bool:
        """Checks one op, except the contents of its regions. Returns whether ops with the same key are valid, too."""
        record = OPS.get(op.name)
        try:
            if record is None:
                self.hints -= 1
                check_unknown(op, self.foreign, hint_for if self.hints >= 0 else None)
            else:
                check_op(op, record)
            if (op.name == "stablehlo.custom_call" and not self.is_users_own(op)) or op.dialect == "mhlo":
                check_known_call(op)
        except Violation as violation:
            self.found.append((op, violation))
            return False
        return record is None or not record.has("looks_at_operands")


def check_scopes(block: Block, visible: set[Value]) -> Iterator[Finding]:
    """Checks that values are defined before they are used, in a block that is still open.

    `visible` has the values of the enclosing blocks; functions and modules see none of them.
    """
    opened = list(block.arguments)
    visible.update(opened)
    for op in block.ops:
        for i, v in enumerate(op.operands):
            if v not in visible:
                message = f"operand #{i} ({v!r}) does not dominate this use: not defined before it, or in another scope"
                yield op, Violation("dominance", message)
        isolated = op.name in ("func.func", "builtin.module")
        for region in op.regions:
            for inner in region.blocks:
                yield from check_scopes(inner, set() if isolated else visible)
        visible.update(op.results)
        opened += op.results
    visible.difference_update(opened)


def check_known_call(op: Op) -> None:
    """Checks a known custom call (or MHLO op) against the record of its meaning."""
    from shlo_jit.ops.call_record import check_call
    from shlo_jit.ops.known_calls import call_record, equivalent_op

    record = call_record(op) if op.name == "stablehlo.custom_call" else None
    if record is not None:
        check_call(record, op)
    meant = equivalent_op(op)
    if meant is not None:
        check_op(meant, OPS[meant.name])


def check_unknown(op: Op, foreign: bool, hint: Callable[[str], str] | None) -> None:
    """Rejects an op without a record; one of another dialect only if `foreign`. `hint` suggests what was meant."""
    if op.dialect in OWN_DIALECTS:
        raise Violation("unknown", f"unknown op {op.name}", hint=hint(op.name) if hint else "")
    if foreign:
        raise Violation("unknown", f"op {op.name} is of an unknown dialect")


_type = attrgetter("type")


def _key(op: Op) -> Any:
    """Returns a key that is equal for ops with the same verification result; None for ops whose verification depends on
    more than types and attributes.

    Types and attributes are compared by identity. That is cheap, and safe within one module, which keeps them alive.
    The parser creates one object for equal ones wherever that matters.
    """
    if op.regions:
        return _region_key(op)
    name, operands, results, attributes = op.name, op.operands, op.results, op.attributes
    count = len(operands)
    if len(results) == 1 and count < 3 and len(attributes) < 2:  # unrolled, since it is what most ops have
        first = id(operands[0].type) if count else 0
        second = id(operands[1].type) if count == 2 else 0
        if not attributes:
            return (name, first, second, id(results[0].type))
        for key, value in attributes.items():
            if type(value) is SymbolRef:
                return (name, first, second, id(results[0].type), key, value.path)
            what = value.type if type(value) is Dense and name == "stablehlo.constant" else value
            return (name, first, second, id(results[0].type), key, id(what))
    types = (name, count, *[id(v.type) for v in operands], *[id(v.type) for v in results])
    if not attributes:
        return types
    return (*types, *attributes, *[v.path if type(v) is SymbolRef else id(v) for v in attributes.values()])


def _region_key(op: Op) -> Any:
    """Returns the key of an op with regions. The op itself depends only on their argument and result types."""
    if op.name in ("func.func", "builtin.module") or any(len(region.blocks) != 1 for region in op.regions):
        return None
    key: list[Any] = [op.name, len(op.operands), *op.attributes, *map(id, op.attributes.values())]
    key += map(id, map(_type, op.operands))
    key += map(id, map(_type, op.results))
    for region in op.regions:
        block = region.blocks[0]
        if not block.ops:
            return None
        key += ("(", *map(id, map(_type, block.arguments)), block.ops[-1].name)
        key += map(id, map(_type, block.ops[-1].operands))
    return tuple(key)
