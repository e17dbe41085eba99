"""Origins of contradictory sizes: the arguments that a refused op depends on.

add C1: ... got 'tensor<3xf32>', 'tensor<4xf32>'; argument 0 (%x) has 3 in dimension 0, argument 1 (%y) has 4 in ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from shlo_jit.errors import Diagnostic, StableHLOError, VerifyError, diagnose
from shlo_jit.ir.attributes import SymbolRef
from shlo_jit.ir.core import Block, Module, Op, Value, walk
from shlo_jit.ir.types import TensorType, Type

SHOWN = 6
"""Maximum number of arguments that are named."""


def with_origins(
    error: StableHLOError, module: Module, entry: str, types: Sequence[Type], values: Mapping[int, np.ndarray]
) -> StableHLOError:
    """Returns the error, with the unknown dimensions of the arguments that the refused ops depend on, if it is about
    sizes: a VerifyError, or one labelled `size`. `types` are the types of the arguments of `entry`, `values` the values
    of those that shapes are computed from."""
    program = _Program(module)
    function = module.function(entry)
    assert function is not None
    arguments = function.block().arguments

    def noted(diagnostic: Diagnostic) -> Diagnostic:
        if not isinstance(error, VerifyError) and diagnostic.label != "size":
            return diagnostic
        origins = program.origins_of(program.at(diagnostic), function)
        notes = [note for i in origins for note in _sizes(i, arguments[i], types[i], values.get(i))]
        return replace(diagnostic, message="; ".join([diagnostic.message, *_shown(notes)]))

    return type(error)([noted(d) for d in error.diagnostics])


def _shown(notes: Sequence[tuple[str, object]]) -> list[str]:
    """Returns the notes as one text, or none. If there are too many, those with distinct numbers are preferred."""
    firsts = {number: i for i, (_, number) in reversed(list(enumerate(notes)))}
    order = sorted(range(len(notes)), key=lambda i: (firsts[notes[i][1]] != i, i))
    shown = [notes[i][0] for i in sorted(order[:SHOWN])]
    more = [f"{len(notes) - SHOWN} more"] if len(notes) > SHOWN else []
    return [", ".join([*shown, *more])] if shown else []


def _sizes(index: int, argument: Value, type: Type, value: np.ndarray | None) -> Iterator[tuple[str, object]]:
    """Yields the sizes of an argument, as text and as a number."""
    what = f"argument {index} (%{argument.name})" if argument.name else f"argument {index}"
    if value is not None:
        yield f"{what} is {value.tolist()}", value.tobytes()
    if not isinstance(argument.type, TensorType) or not isinstance(type, TensorType) or argument.type.is_static:
        return
    for d, extent in enumerate(type.extents):
        if argument.type.shape is None or argument.type.shape[d] is None:
            yield f"{what} has {extent} in dimension {d}", extent


class _Program:
    """Uses of values and callers of functions in a module."""

    def __init__(self, module: Module) -> None:
        self.owners: dict[Block, Op] = {}
        """Block in a function -> the op that owns it."""
        self.calls: dict[str, list[Op]] = {}
        self.places: dict[tuple[str, int, int], list[Op]] = {}
        for function in module.functions():
            for op in [function, *(walk(function.block()) if function.regions and function.regions[0].blocks else ())]:
                self._note(op)

    def _note(self, op: Op) -> None:
        self.owners.update((block, op) for region in op.regions for block in region.blocks)
        for name in ("callee", "decomposition"):
            symbol = op.attributes.get(name)
            if symbol is not None:
                self.calls.setdefault(symbol.name if isinstance(symbol, SymbolRef) else str(symbol), []).append(op)
        if op.span is not None and op.name != "func.func":
            place = diagnose("", op.span)
            self.places.setdefault((place.file, place.line, place.column), []).append(op)

    def at(self, diagnostic: Diagnostic) -> list[Op]:
        """Returns the ops at the location of a diagnostic."""
        return self.places.get((diagnostic.file, diagnostic.line, diagnostic.column), [])

    def origins_of(self, ops: Sequence[Op], entry: Op) -> list[int]:
        """Returns the indices of the arguments of `entry` that the ops depend on."""
        found: set[int] = set()
        seen: set[Value] = set()
        todo = [v for op in ops for v in _uses(op)]
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            if isinstance(value.owner, Op):
                todo += _uses(value.owner)
                continue
            owner = self.owners.get(value.owner) if value.owner is not None else None
            if owner is entry:
                found.add(value.index)
            elif owner is not None and owner.name == "func.func":
                calls = self.calls.get(owner.attributes["sym_name"], [])
                todo += [call.operands[value.index] for call in calls if value.index < len(call.operands)]
            elif owner is not None:
                todo += owner.operands
        return sorted(found)


def _uses(op: Op) -> list[Value]:
    """Returns the values that an op and its regions read."""
    return [*op.operands, *(v for r in op.regions for b in r.blocks for inner in walk(b) for v in inner.operands)]
