"""Copies of modules that edits may change in place, and removal of unused parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shlo_jit.deep import deeply
from shlo_jit.ir.attributes import Dense, SymbolRef
from shlo_jit.ir.core import Block, Module, Op, Region, Value, is_declaration, walk
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.effects import acting
from shlo_jit.passes.rewriter import rebuilt


@deeply
def copied(module: Module) -> Module:
    """Returns the same program with new ops, without locations in a text."""
    values: dict[Value, Value] = {}
    return Module(_copied_op(module.op, values), locations=module.locations)


def _copied_op(op: Op, values: dict[Value, Value]) -> Op:
    regions = [Region([_copied_block(block, values) for block in region.blocks]) for region in op.regions]
    operands = [values[v] for v in op.operands]
    made = Op(op.name, operands, [r.type for r in op.results], dict(op.attributes), regions, location=op.location)
    for old, new in zip(op.results, made.results, strict=True):
        new.name = old.name
        values[old] = new
    return made


def _copied_block(block: Block, values: dict[Value, Value]) -> Block:
    made = Block([Value(a.type, name=a.name) for a in block.arguments], label=block.label)
    values.update(zip(block.arguments, made.arguments, strict=True))
    made.ops = [_copied_op(op, values) for op in block.ops]
    return made


def entry_of(module: Module, entry: str) -> Op:
    """The function that is compiled."""
    function = module.function(entry)
    assert function is not None
    return function


def ops_of(module: Module) -> list[Op]:
    """Every op that can be removed, in the order of the text: an op precedes those inside it."""
    kept = ("func.func", "builtin.module", "func.return", "stablehlo.return")
    return [op for op in walk(module.body) if op.name not in kept]


def replace(module: Module, values: Mapping[Value, Value]) -> None:
    """Replaces operands of ops. A replacement may be replaced in turn."""
    for op in walk(module.body):
        for i, operand in enumerate(op.operands):
            seen = operand
            while seen in values:
                seen = values[seen]
            op.operands[i] = seen


def zeros(type: TensorType) -> Op:
    """A constant of zeros."""
    return splat(type, np.zeros((), type.storage.numpy))


def splat(type: TensorType, value: np.ndarray) -> Op:
    """A constant with equal elements."""
    array = np.broadcast_to(value, type.extents)
    return Op("stablehlo.constant", [], [type], {"value": Dense(type, array)})


def has_zeros(type: Type) -> bool:
    """Whether a type has a constant of zeros."""
    return isinstance(type, TensorType) and type.is_fixed and type.storage is type.dtype


def clean(module: Module, entry: str) -> None:
    """Removes unused ops without effects, unused arguments of the entry, and uncalled functions.

    It also updates the types of functions to those of their bodies.
    """
    for function in [*module.functions()]:
        if not is_declaration(function):
            _drop_dead(function.block())
    _drop_unread_arguments(entry_of(module, entry).block())
    _drop_uncalled(module, entry)
    _retype(module)


def _drop_dead(block: Block) -> None:
    kept = acting(block)
    read: set[Value] = set()
    _sweep(block, kept, read)


def _sweep(block: Block, kept: set[Op], read: set[Value]) -> None:
    """Removes dead ops from last to first: values read by an op that is kept are live."""
    ops: list[Op] = []
    for op in reversed(block.ops):
        if op is not block.ops[-1] and op not in kept and not any(result in read for result in op.results):
            continue
        read.update(op.operands)
        for region in op.regions:
            for inner in region.blocks:
                _sweep(inner, kept, read)
        ops.append(op)
    block.ops = ops[::-1]


def _drop_unread_arguments(block: Block) -> None:
    read = {v for op in walk(block) for v in op.operands}
    block.arguments = [a for a in block.arguments if a in read]
    for i, argument in enumerate(block.arguments):
        argument.index = i


def _drop_uncalled(module: Module, entry: str) -> None:
    functions = {f.attributes["sym_name"]: f for f in module.functions()}
    reached, todo = {entry}, [entry]
    while todo:
        function = functions[todo.pop()]
        for name in _named(function) - reached:
            if name in functions:
                reached.add(name)
                todo.append(name)
    for holder in [module.op, *(op for op in walk(module.body) if op.name == "builtin.module")]:
        block = holder.block()
        block.ops = [op for op in block.ops if op.name != "func.func" or op.attributes["sym_name"] in reached]


def _named(function: Op) -> set[str]:
    """Symbols that a function's ops refer to."""
    if is_declaration(function):
        return set()
    return {ref.name for op in walk(function.block()) for ref in _references([*op.attributes.values()])}


def _references(attributes: Sequence[object]) -> list[SymbolRef]:
    found = []
    for attribute in attributes:
        if isinstance(attribute, SymbolRef):
            found.append(attribute)
        elif isinstance(attribute, tuple):
            found += _references(attribute)
    return found


def _retype(module: Module) -> None:
    for holder in [module.op, *(op for op in walk(module.body) if op.name == "builtin.module")]:
        block = holder.block()
        block.ops = [
            rebuilt(op, op.block()) if op.name == "func.func" and not is_declaration(op) else op for op in block.ops
        ]
