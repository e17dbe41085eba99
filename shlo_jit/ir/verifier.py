"""Is a module a valid program? `verify_module` reports everything that is wrong, each finding at its op.

Checked for every op, in this order; the first failure of an op is reported and the next op is looked at:
- its name is known (an unknown StableHLO or CHLO op is an error, ops of other dialects are if the caller says so);
- values are defined before they are used, in this function, and in a scope that is still open;
- number and kinds of operands, kinds of attributes, number of regions, terminators, number and kinds of results;
- the constraints of its record, by label, and the stated result types against the inferred ones.
For the module as a whole:
- symbols are unique, callees exist and have the types of the call, calls are not recursive.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from shlo_jit.errors import Diagnostic, diagnose
from shlo_jit.ir.attributes import Dense, SymbolRef
from shlo_jit.ir.core import Block, Module, Op, Value, function_type, is_declaration
from shlo_jit.ir.types import Type
from shlo_jit.ops import OPS, OpDef, Violation
from shlo_jit.ops.attribute_kinds import check_attribute
from shlo_jit.ops.collective import mesh_symbol
from shlo_jit.ops.kinds import TypeKind
from shlo_jit.ops.shapes import compatible_lists, type_text, types_text

OWN_DIALECTS = ("stablehlo", "chlo", "func", "builtin")


def verify_module(module: Module, *, foreign: bool = False) -> list[Diagnostic]:
    """All errors of a module, in the order of the text. `foreign`: ops of other dialects are errors too."""
    verifier = _Verifier(module, foreign)
    verifier.block(module.body, set())
    verifier.symbols()
    return verifier.found


def label_text(op: Op, label: str, message: str) -> str:
    """`dot_general C5: ...`"""
    return f"{op.name.removeprefix('stablehlo.')} {label}: {message}"


class _Verifier:
    def __init__(self, module: Module, foreign: bool):
        self.module = module
        self.foreign = foreign
        self.found: list[Diagnostic] = []
        self.known_good: set[Any] = set()
        """Keys of ops that hold: an op that is equal but for its values need not be looked at again."""
        self.func = ""
        self.users: list[tuple[str, Op]] = []
        """Ops that name symbols, with the function they are in."""

    def error(self, op: Op, label: str, message: str) -> None:
        self.found.append(diagnose(label_text(op, label, message), op.span))

    # Ops

    def block(self, block: Block, visible: set[Value]) -> None:
        """All ops of a block. `visible` has the values of the blocks around it; it is the same afterwards."""
        opened = list(block.arguments)
        visible.update(opened)
        known_good = self.known_good
        for op in block.ops:
            for v in op.operands:
                if v not in visible:
                    self.error(op, "dominance", f"operand {v!r} is not defined before its use, or not in this scope")
            if op.name in _NAMES_SYMBOLS:
                self.users.append((self.func, op))
            key = _key(op)
            if key is None or key not in known_good:
                if self.op(op) and key is not None:
                    known_good.add(key)
                if op.regions:
                    self.regions(op, visible)
            results = op.results
            visible.update(results)
            opened += results
        visible.difference_update(opened)

    def regions(self, op: Op, visible: set[Value]) -> None:
        """What is inside of an op; functions and modules do not see the values around them."""
        if op.name == "func.func":
            self.func = _symbol(op, "sym_name") or ""
        isolated = op.name in ("func.func", "builtin.module")
        for region in op.regions:
            for block in region.blocks:
                self.block(block, set() if isolated else visible)

    def op(self, op: Op) -> bool:
        """One op without what is inside of its regions; says whether it holds."""
        record = OPS.get(op.name)
        if record is None:
            return self.unknown(op)
        try:
            check_op(op, record)
        except Violation as violation:
            self.error(op, violation.label, violation.message)
            return False
        return True

    def unknown(self, op: Op) -> bool:
        if op.dialect in OWN_DIALECTS:
            close = difflib.get_close_matches(op.name, OPS, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            self.found.append(diagnose(f"unknown op {op.name}{hint}", op.span))
            return False
        if self.foreign:
            self.found.append(diagnose(f"op {op.name} is of a dialect that is not known here", op.span))
            return False
        return True

    # Symbols

    def symbols(self) -> None:
        table = self.unique_symbols()
        calls: dict[str, list[tuple[str, Op]]] = {}
        for func in self.module.functions():
            self.function(func)
            calls[_symbol(func, "sym_name") or ""] = []
        for func_name, op in self.users:
            callee = self.user(op, table)
            if callee is not None:
                calls.setdefault(func_name, []).append((callee, op))
        self.recursion(calls)

    def unique_symbols(self) -> dict[str, Op]:
        table: dict[str, Op] = {}
        todo = [self.module.op]
        while todo:
            own: set[str] = set()
            for op in todo.pop().block().ops:
                name = _symbol(op, "sym_name")
                if op.name == "builtin.module":
                    todo.append(op)
                if name is None:
                    continue
                if name in own:
                    self.error(op, "symbol", f"redefinition of symbol '{name}'")
                own.add(name)
                table.setdefault(name, op)
        return table

    def function(self, func: Op) -> None:
        """A function's block arguments and what it returns are those of its type."""
        if is_declaration(func):
            return
        try:
            stated = function_type(func)
        except (AssertionError, KeyError):
            return  # reported as a missing attribute
        block = func.block()
        given = [a.type for a in block.arguments]
        if not compatible_lists(given, stated.inputs):
            self.error(func, "type", f"arguments are {types_text(given)}, its type says {types_text(stated.inputs)}")
        if not block.ops or block.terminator.name not in ("func.return", "stablehlo.return"):  # jax writes the second
            self.error(block.ops[-1] if block.ops else func, "terminator", "a function must end with func.return")
            return
        end = block.terminator
        returned = [v.type for v in end.operands]
        if len(returned) != len(stated.results):
            self.error(
                end, "type", f"has {len(returned)} operands, but enclosing function returns {len(stated.results)}"
            )
            return
        for i, (a, b) in enumerate(zip(returned, stated.results, strict=True)):
            if a != b:
                self.error(
                    end,
                    "type",
                    f"type of return operand {i} ('{type_text(a)}') doesn't match function result type "
                    f"('{type_text(b)}')",
                )

    def user(self, op: Op, table: dict[str, Op]) -> str | None:
        """An op that names a symbol: gives the function it calls."""
        mesh = mesh_symbol(op) if op.name.startswith("stablehlo.") else None
        if mesh is not None and mesh not in table:
            self.error(op, "symbol", f"replica_groups: mesh symbol '{mesh}' not found")
        attribute = {"func.call": "callee", "stablehlo.composite": "decomposition"}.get(op.name)
        name = _symbol(op, attribute) if attribute else None
        if name is None:
            return None
        callee = table.get(name)
        if callee is None or callee.name != "func.func":
            close = difflib.get_close_matches(name, table, 1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            self.error(op, "symbol", f"'{name}' does not reference a valid function{hint}")
            return None
        stated = function_type(callee)
        for what, given, wanted in (
            ("operand", [v.type for v in op.operands], stated.inputs),
            ("result", [v.type for v in op.results], stated.results),
        ):
            if not compatible_lists(given, wanted):
                self.error(
                    op,
                    "type",
                    f"{what} types {types_text(given)} are not those of function '{name}': {types_text(wanted)}",
                )
        return name

    def recursion(self, calls: dict[str, list[tuple[str, Op]]]) -> None:
        """Report each call that closes a cycle."""
        done: set[str] = set()
        for root, own in calls.items():
            if root in done:
                continue
            path: list[str] = [root]
            stack: list[Iterator[tuple[str, Op]]] = [iter(own)]
            while stack:
                step = next(stack[-1], None)
                if step is None:
                    stack.pop()
                    done.add(path.pop())
                    continue
                name, op = step
                if name in path:
                    self.error(op, "recursion", f"call of '{name}' is recursive, which is not supported")
                elif name not in done:
                    path.append(name)
                    stack.append(iter(calls.get(name, [])))


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


_COLLECTIVES = {name for name, record in OPS.items() if "replica_groups" in record.attributes}
_NAMES_SYMBOLS = frozenset(_COLLECTIVES | {"func.call", "stablehlo.composite"})


def _symbol(op: Op, attribute: str) -> str | None:
    attr = op.attributes.get(attribute)
    return attr.path[-1] if isinstance(attr, SymbolRef) else attr if isinstance(attr, str) else None


# One op against its record


def check_op(op: Op, record: OpDef) -> None:
    """Everything its record says about an op; raises Violation."""
    check_values("operand", record.operands, record.operand_kinds, op.operands)
    for name, spec in record.attributes.items():
        check_attribute(name, spec, op.attributes.get(name))
    check_regions(op, record)
    check_values("result", record.results, record.result_kinds, op.results)
    if record.infer is not None:
        inferred = record.infer(op)
        stated: list[Type] = [v.type for v in op.results]
        if not compatible_lists(inferred, stated):
            raise Violation(
                "type",
                f"inferred type(s) {types_text(inferred)} are incompatible with return type(s) of operation "
                f"{types_text(stated)}",
            )
    if record.verify is not None:
        record.verify(op)


@functools.cache
def _arity(names: tuple[str, ...]) -> tuple[int, tuple[int, ...]]:
    """How many values there are at least, and which groups are variadic."""
    variadic = tuple(i for i, name in enumerate(names) if name[-1] in "*?")
    return len(names) - len(variadic), variadic


def check_values(what: str, names: tuple[str, ...], kinds: Sequence[TypeKind], values: list[Value]) -> None:
    """The number of operands or results, and the kind of each."""
    least, variadic = _arity(names)
    if variadic:
        if len(values) < least:
            raise Violation("count", f"expected {least} or more {what}s, but found {len(values)}")
        each = (len(values) - least) // len(variadic)  # several variadic groups are of one size
        kinds = [kind for i, kind in enumerate(kinds) for _ in range(each if i in variadic else 1)]
    elif len(values) != least:
        raise Violation("count", f"expected {least} {what}s, but found {len(values)}")
    for kind, v in zip(kinds, values, strict=False):
        if not kind.accepts(v.type):
            many = "variadic of " if variadic else ""
            raise Violation(
                "type",
                f"{what} #{v_index(values, v)} must be {many}{kind.describe()}, but got '{type_text(v.type)}'",
            )


def v_index(values: list[Value], v: Value) -> int:
    return next(i for i, other in enumerate(values) if other is v)


def check_regions(op: Op, record: OpDef) -> None:
    """The number of regions, and that each has one block with a terminator."""
    names, regions = record.regions, op.regions
    many = bool(names) and names[-1].endswith("*")
    if len(regions) != len(names) and not (many and len(regions) >= len(names) - 1):
        words = {0: "no regions", 1: "one region"}.get(len(names), f"{len(names)} regions")
        raise Violation("region", f"op requires {words}, but has {len(regions)}")
    if op.name in ("builtin.module", "func.func"):
        return
    for region in regions:
        if len(region.blocks) > 1:
            raise Violation("region", f"op requires regions of one block, but one has {len(region.blocks)}")
        for block in region.blocks:
            if not block.ops or block.terminator.name != "stablehlo.return":
                raise Violation("region", "op requires regions that end with stablehlo.return")
