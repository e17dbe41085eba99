"""Is a module a valid program? `verify_module` reports everything that is wrong, each finding at its op.

Checked for every op, in this order; the first failure of an op is reported and the next op is looked at:
- its name is known (an unknown StableHLO or CHLO op is an error, ops of other dialects are if the caller says so);
- values are defined before they are used, in this function, and in a scope that is still open;
- number and kinds of operands, kinds of attributes, number of regions, terminators, number and kinds of results;
- the constraints of its record, by label, and the stated result types against the inferred ones.
For the module as a whole (`ir/symbols.py`):
- symbols are unique, callees exist and have the types of the call, calls are not recursive.

`warnings_of` reports what a valid program may have, but hardly on purpose: attributes that no one knows.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from shlo_jit.errors import Diagnostic, Span, diagnose
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.check_op import check_op
from shlo_jit.ir.core import Block, Module, Op, Value, walk
from shlo_jit.ir.symbols import Finding, check_symbols, names_symbols, symbol
from shlo_jit.ops import OPS, Violation
from shlo_jit.ops.record import did_you_mean

OWN_DIALECTS = ("stablehlo", "chlo", "func", "builtin")


def verify_module(module: Module, *, foreign: bool = False) -> list[Diagnostic]:
    """All errors of a module, in the order of the text. `foreign`: ops of other dialects are errors too."""
    verifier = _Verifier(foreign)
    verifier.op(module.op)
    verifier.block(module.body, set())
    found = [*verifier.found, *check_symbols(module, verifier.users)]
    return [_diagnostic(finding) for finding in _in_order(found)]


def warnings_of(module: Module) -> list[Diagnostic]:
    """Attributes that an op's record does not know and no dialect's prefix (`jax.`, `mhlo.`) explains."""
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
            found.append(
                diagnose(message, op.span, severity="warning", op=op.name, label="attribute", hint=hint)
            )
    return found


_EVERYWHERE = frozenset({"successors"})
"""Names the parser itself gives to what a generic op may have."""


def _diagnostic(finding: Finding) -> Diagnostic:
    """`dot_general C5: 'stablehlo.dot_general' op ...`: our label, and the rest in the words of MLIR."""
    op, violation = finding
    label = violation.label
    name = op.name.removeprefix("stablehlo.")
    message = violation.message
    if label != "unknown":
        message = f"{name} {label}: '{op.name}' op {message}"
    if violation.hint.startswith("did you mean"):
        message += f"; {violation.hint}"
    record = OPS.get(op.name)
    rule = record.constraints.get(label, "") if record is not None else ""
    return diagnose(message, _place(op, violation.at), op=op.name, label=label, rule=rule, hint=violation.hint)


def _place(op: Op, part: str) -> Span | None:
    """Where an op is, or the part of its text that is to blame."""
    span = op.span
    if span is None or not part:
        return span
    at = span.source.text.find(part, span.start, span.end)
    return Span(span.source, at, at + len(part)) if at >= 0 else span


def _in_order(found: list[Finding]) -> list[Finding]:
    """By place in the text; what has no place stays as it was found."""
    return [f for _, _, f in sorted(((f[0].start, i, f) for i, f in enumerate(found)), key=itemgetter(0, 1))]


class _Verifier:
    """The walk over all ops. Its state: what was found, what is known to hold, and where it is."""

    def __init__(self, foreign: bool):
        self.foreign = foreign
        self.found: list[Finding] = []
        self.known_good: set[Any] = set()
        """Keys of ops that hold: an op that is equal but for its values need not be looked at again."""
        self.func = ""
        self.users: list[tuple[str, Op]] = []
        """Ops that name symbols, with the function they are in."""

    def block(self, block: Block, visible: set[Value]) -> None:
        """All ops of a block. `visible` has the values of the blocks around it; it is the same afterwards."""
        opened = list(block.arguments)
        visible.update(opened)
        known_good = self.known_good
        for op in block.ops:
            if not visible.issuperset(op.operands):
                self.dominance(op, visible)
            key = _key(op)
            if key is None or key not in known_good:
                if names_symbols(op):
                    self.users.append((self.func, op))
                    key = None
                if self.op(op) and key is not None:
                    known_good.add(key)
                if op.regions:
                    self.regions(op, visible)
            results = op.results
            visible.update(results)
            opened += results
        visible.difference_update(opened)

    def dominance(self, op: Op, visible: set[Value]) -> None:
        for i, v in enumerate(op.operands):
            if v not in visible:
                message = f"operand #{i} ({v!r}) does not dominate this use: not defined before it, or in another scope"
                self.found.append((op, Violation("dominance", message)))

    def regions(self, op: Op, visible: set[Value]) -> None:
        """What is inside of an op; functions and modules do not see the values around them."""
        if op.name == "func.func":
            self.func = symbol(op, "sym_name") or ""
        isolated = op.name in ("func.func", "builtin.module")
        for region in op.regions:
            for block in region.blocks:
                self.block(block, set() if isolated else visible)

    def op(self, op: Op) -> bool:
        """One op without what is inside of its regions; says whether it holds."""
        record = OPS.get(op.name)
        try:
            if record is None:
                check_unknown(op, self.foreign)
            else:
                check_op(op, record)
        except Violation as violation:
            self.found.append((op, violation))
            return False
        return True


def check_unknown(op: Op, foreign: bool) -> None:
    """An op without a record: one of another dialect is the business of others, unless `foreign` says no."""
    if op.dialect in OWN_DIALECTS:
        raise Violation("unknown", f"unknown op {op.name}", hint=did_you_mean(op.name, OPS))
    if foreign:
        raise Violation("unknown", f"op {op.name} is of a dialect that is not known here")


def _key(op: Op) -> Any:
    """Equal for ops that verify alike; None for ops that depend on more than types and small attributes.

    Types are told apart by identity, which is cheap and good for one module: it keeps them alive.
    """
    name = op.name
    if op.regions or name in _LOOKS_AT_OPERANDS:
        return None
    key: list[Any] = [id(v.type) for v in op.operands]
    key.append(name)
    for v in op.results:
        key.append(id(v.type))
    for word, attr in op.attributes.items():
        key.append(word)
        if type(attr) is Dense:
            if name != "stablehlo.constant":
                return None
            key.append(id(attr.type))
        else:
            key.append(attr)
    return tuple(key)


_LOOKS_AT_OPERANDS = frozenset(name for name, record in OPS.items() if record.has("looks_at_operands"))
