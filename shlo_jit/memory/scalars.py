"""Scalars that need no memory in the arena: values of a few bytes between the steps of one function.

Examples are a counter, a loop's condition, and the state of a scan over scalars. They live on the stack of the function
that runs the steps, into which their kernels are inlined, and LLVM promotes them to registers. It cannot do so with
bytes of the arena, which the holder of the instance may inspect whenever the function calls something.

    while i < n: i = i + 1; c = .9 * c + x[i]        i, c: registers; otherwise, each iteration writes and reads them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shlo_jit import tuning
from shlo_jit.fuse.plan import ControlStep, NestStep, PlanBlock, Step, ViewStep
from shlo_jit.ir.core import Value
from shlo_jit.memory.parts import Parts
from shlo_jit.memory.storage import Copy, MemoryPlan
from shlo_jit.sizes import Size

Use = tuple[Value, int | None]
"""A value, and the function that uses it: 0 for the one that is lowered, or a number for a part of it. None stands for
a kernel that is no nest, which may pass on its operands' addresses, or for several functions."""


def stack_scalars(plan: PlanBlock, memory: MemoryPlan, parts: Parts) -> set[int]:
    """The storages (by id) in the arena that live on the stack. Only nests, copies and conditions use them, all in one
    of the functions that `parts` makes from the plan."""
    functions: dict[int, set[int | None]] = {}
    small = {id(s) for s in memory.storage.values() if _is_small(s.kind, s.nbytes)}
    small -= {id(s) for pairs in memory.swaps.values() for pair in pairs for s in pair}
    for value, function in _Uses(memory, parts).of(plan, 0):
        storage = memory.storage.get(value)
        if storage is not None and id(storage) in small:
            functions.setdefault(id(storage), set()).add(function)
    return {s for s, found in functions.items() if len(found) == 1 and None not in found}


def _is_small(kind: str, nbytes: int) -> bool:
    return kind == "arena" and not isinstance(nbytes, Size) and 0 < nbytes <= tuning.SCALAR_BYTES


class _Uses:
    """Finds the users of each value."""

    def __init__(self, memory: MemoryPlan, parts: Parts) -> None:
        self.memory = memory
        self.parts = parts
        self.count = 0

    def of(self, block: PlanBlock, function: int) -> Iterator[Use]:
        """Yields the uses in a block of a function, which also reads the block's results."""
        runs = self.parts.runs(block)
        for steps in [block.steps] if runs is None else runs:
            inside = function if runs is None else self._part()
            for step in steps:
                yield from self._step(step, inside)
        yield from self._copies(self.memory.block_end.get(id(block), []), function)
        yield from ((v, function) for v in block.results)

    def _step(self, step: Step, function: int) -> Iterator[Use]:
        yield from self._copies(self.memory.before.get(id(step), []), function)
        is_here = isinstance(step, (NestStep, ControlStep, ViewStep))
        yield from ((v, function if is_here else None) for v in (*step.reads, *step.writes))
        if isinstance(step, ControlStep):
            yield from ((v, function) for v in (*step.op.operands, *step.op.results))
            for block in step.blocks:
                yield from ((v, function) for v in block.block.arguments)
                yield from self.of(block, function)

    def _copies(self, copies: Iterable[Copy], function: int) -> Iterator[Use]:
        copies = list(copies)
        if self.parts.copy_runs(copies) is not None:
            yield from ((v, None) for copy in copies for v in (copy.source, copy.target))
            return
        yield from ((v, function) for copy in copies for v in (copy.source, copy.target))

    def _part(self) -> int:
        self.count += 1
        return self.count
