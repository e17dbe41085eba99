"""Derives, from a program on global arrays with computations on parts, the program that each process runs.

Every process computes the ops outside of the computations on parts, on whole arrays. Before such a computation, each
process takes its parts of the operands; after it, the parts of the results are assembled. Both are avoided where they
are unnecessary. An argument of the program, or of a function, that is only split arrives as a part. A result that is
assembled at the end leaves as a part.

    func @main(%x: 8x4)                                       func @main(%x: 4x4)
      %0 = manual_computation(%x) in [{"d"}] out [{"d"}]  ->    %0 = negate %x
             (%y: 4x4) { return negate %y }                     return %0
      return %0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shlo_jit.deep import deeply
from shlo_jit.distributed.manual import ManualOps, is_manual, refuse_call
from shlo_jit.distributed.parts import PART, WHOLE, assignment, emit_part, emit_whole, written_out
from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.errors import VerifyError, diagnose
from shlo_jit.ir.attributes import DictAttr, IntegerAttr, SymbolRef
from shlo_jit.ir.core import Block, Module, Op, Region, Value, is_declaration, walk
from shlo_jit.passes.rewriter import Rewriter, rebuilt, rewrite

CALLS = ("func.call", "call")
SHARDINGS = ("sdy.sharding", "mhlo.sharding")
Cuts = tuple[TileAssignment | None, ...]


@dataclass(frozen=True)
class LocalProgram:
    """A program as each process of a grid runs it, and how the caller's arrays are split."""

    module: Module
    """Program in ordinary ops. A process differs from the others only by its `partition_id`."""
    inputs: Cuts
    """Tile assignment of each argument of the entry; None if every process takes the whole array."""
    outputs: Cuts
    """Tile assignment of each result; None if every process returns the whole array."""


def grid_of(module: Module) -> tuple[int, int]:
    """Returns `mhlo.num_replicas` and `mhlo.num_partitions` of a module; 1 if an attribute is missing. Raises
    VerifyError if one is not a positive number."""
    return _count(module, "mhlo.num_replicas"), _count(module, "mhlo.num_partitions")


def _count(module: Module, name: str) -> int:
    value = module.op.attributes.get(name, IntegerAttr(1))
    if not isinstance(value, IntegerAttr) or value.value < 1:
        got = value.value if isinstance(value, IntegerAttr) else value
        what = f"{name} should be a positive number, got {got}"
        raise VerifyError(diagnose(what, module.op.span, op=module.op.name, label="attribute"))
    return value.value


@deeply
def local_program(module: Module, entry: str, num_partitions: int) -> LocalProgram | None:
    """Returns the program as each of `num_partitions` processes runs it; None if it has no computations on parts.

    The module is valid. Raises StableHLOError at an op whose shardings are inconsistent (VerifyError, ParseError), or
    whose meaning is not supported (UnsupportedError).
    """
    functions = [f for f in module.functions() if not is_declaration(f)]
    if not any(is_manual(op) for f in functions for op in walk(f.block())):
        return None
    maker = _Maker(module, functions, entry, num_partitions)
    for function in functions:
        maker.function(function.attributes["sym_name"])
    inside = {id(maker.functions[name]): written_out(made.op) for name, made in maker.made.items()}
    main = maker.made.get(entry)
    inputs, outputs = (main.inputs, main.outputs) if main is not None else ((), ())
    op = with_functions(module.op, inside)
    return LocalProgram(Module(op, module.source, module.locations), inputs, outputs)


def with_functions(module: Op, functions: dict[int, Op]) -> Op:
    """Returns the module with functions replaced (by the id of the old one)."""
    ops: list[Op] = []
    for op in module.block().ops:
        if op.name == "builtin.module":
            op = with_functions(op, functions)
        ops.append(functions.get(id(op), op))
    return Op(
        module.name, [], [], module.attributes, [Region([Block([], ops)])], module.source, module.start, module.end
    )


@dataclass
class _Function:
    """A function made local, with the facts that its callers need."""

    op: Op
    inputs: Cuts
    outputs: Cuts
    axes: set[str] = field(default_factory=set)
    """Axes along which the function, or one that it calls, computes on parts."""


class _Maker:
    """Makes functions local, callees before callers."""

    def __init__(self, module: Module, functions: Sequence[Op], entry: str, devices: int):
        self.functions = {f.attributes["sym_name"]: f for f in functions}
        self.meshes = {op.attributes["sym_name"]: op for op in walk(module.body) if op.name == "sdy.mesh"}
        self.devices = devices
        self.made: dict[str, _Function] = {}
        calls, self.named = Counter[str](), set[str]()
        for op in walk(module.body):
            calls[callee_of(op) or ""] += 1
            self.named |= set(_names(op))
        if calls[entry]:  # its arguments come both from the caller and from calls
            self.named.add(entry)

    def function(self, name: str) -> _Function:
        if name not in self.made:
            self.made[name] = self.local(self.functions[name], name in self.named)
        return self.made[name]

    def local(self, function: Op, is_named: bool) -> _Function:
        """Makes a function local. An argument becomes a part if all its uses take the same part; a result becomes a
        part if it is assembled at the end. Neither happens if other ops than calls name the function, since its type
        must not change."""
        manual = ManualOps(function, self.meshes, self.devices)

        def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
            name = callee_of(op)
            if name is None or name not in self.functions:
                return manual.visit(rw, op, operands)
            callee = self.function(name)
            twice = next((axis for axis in manual.bound if axis in callee.axes), None)
            if twice is not None:
                refuse_call(op, name, twice)
            manual.axes.update(callee.axes)
            return _call(rw, op, operands, callee)

        new = rewrite(function, visit)
        inputs: Cuts = (None,) * len(new.block().arguments)
        outputs: Cuts = (None,) * len(new.block().terminator.operands)
        if not is_named:
            inputs, outputs = _parts_of_arguments(new.block()), _parts_of_results(new.block())
        return _Function(_trimmed(new, inputs, outputs), inputs, outputs, manual.axes)


def callee_of(op: Op) -> str | None:
    """Returns the name of the function that an op calls."""
    callee = op.attributes.get("callee") if op.name in CALLS else None
    return callee.name if isinstance(callee, SymbolRef) else None


def _names(op: Op) -> Iterator[str]:
    """Yields the functions that an op refers to, except the one that it calls."""
    todo: list[Any] = [value for key, value in op.attributes.items() if key not in ("callee", "sym_name")]
    while todo:
        value = todo.pop()
        if isinstance(value, SymbolRef):
            yield value.name
        elif isinstance(value, tuple):
            todo += value
        elif isinstance(value, str) and op.name == "stablehlo.composite":
            yield value


def _call(rw: Rewriter, op: Op, operands: list[Value], callee: _Function) -> list[Value]:
    """Emits the call, with parts of operands and whole results where the callee takes and returns parts."""
    arguments, results = callee.op.block().arguments, callee.op.block().terminator.operands
    given = [
        value if tiles is None else emit_part(rw, value, tiles, argument.type)
        for value, tiles, argument in zip(operands, callee.inputs, arguments, strict=True)
    ]
    made = rw.emit(op.name, given, [v.type for v in results], op.attributes)
    return [
        value if tiles is None else emit_whole(rw, value, tiles, result.type)
        for value, tiles, result in zip(made, callee.outputs, op.results, strict=True)
    ]


# ---------------------------------------------------------------------------- the edge of a function
def _parts_of_arguments(block: Block) -> Cuts:
    """Returns the tile assignments of the arguments of which only parts are read. Such an argument is replaced by its
    part."""
    uses: dict[Value, list[Op]] = {argument: [] for argument in block.arguments}
    for op in walk(block):
        for value in op.operands:
            if value in uses:
                uses[value].append(op)
    found: list[TileAssignment | None] = []
    for argument, ops in uses.items():
        first = ops[0] if ops and all(op.name == PART for op in ops) else None
        if first is None or not all(assignment(op).same_parts(assignment(first)) for op in ops):
            found.append(None)
            continue
        argument.type = first.result.type
        found.append(assignment(first))
    return tuple(found)


def _parts_of_results(block: Block) -> Cuts:
    """Returns the tile assignments of the results that are assembled at the end. The part is returned instead."""
    found: list[TileAssignment | None] = []
    returned = block.terminator.operands
    for i, value in enumerate(returned):
        is_whole = value.op is not None and value.op.name == WHOLE
        found.append(assignment(value.op) if is_whole and value.op is not None else None)
        if is_whole and value.op is not None:
            returned[i] = value.op.operands[0]
    return tuple(found)


def _trimmed(function: Op, inputs: Cuts, outputs: Cuts) -> Op:
    """Removes `part` ops of arguments that are parts already, and unused ops."""
    used: set[Value] = set()
    for op in reversed(list(walk(function.block()))):
        if op.name not in (PART, WHOLE) or op.result in used:
            used.update(op.operands)
    parts = {argument for argument, tiles in zip(function.block().arguments, inputs, strict=True) if tiles is not None}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name not in (PART, WHOLE):
            return None
        is_done = op.name == PART and op.operands[0] in parts
        return operands if is_done or op.result not in used else None

    new = rebuilt(function, Rewriter(visit).sweep(function.block()))
    for which, cuts in (("arg_attrs", inputs), ("res_attrs", outputs)):
        rows = new.attributes.get(which)
        if rows:
            kept = zip(rows, cuts, strict=True)
            new.attributes[which] = tuple(row if tiles is None else _without_sharding(row) for row, tiles in kept)
    return new


def _without_sharding(attributes: DictAttr) -> DictAttr:
    """Returns the attributes of an argument or result that has become a part."""
    return DictAttr(tuple((key, value) for key, value in attributes.items if key not in SHARDINGS))
