"""Minimum arithmetic and memory traffic of a program, per step and in total, under JAX's names.

Each step counts once, including those of a loop, of a branch, and of a function that is called. For a program with a
dynamic batch size, figures are for the size it was tuned for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from shlo_jit.fuse.plan import ControlStep, OpStep, Step, all_blocks, all_steps, labels_of
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.memory.storage import Copy, nbytes
from shlo_jit.schedule.traffic import Operations, step_operations, step_traffic
from shlo_jit.sizes import hint_of


class Read(NamedTuple):
    """Part of a value that a step reads."""

    nbytes: int
    of: int
    """Size of the value, in bytes."""
    argument: int
    """Number of the program's argument that the value is, or is a view of; -1 for other values."""


class StepCost(NamedTuple):
    """Arithmetic and memory traffic of a step."""

    label: str
    """Label as in the printed plan, preceded by the function's name unless it is the entry."""
    title: str
    operations: Operations | None
    """None if the number depends on values or is unknown."""
    reads: tuple[Read, ...]
    written: int
    """Bytes written."""

    @property
    def nbytes(self) -> int:
        return sum(read.nbytes for read in self.reads) + self.written

    @property
    def intensity(self) -> float | None:
        """Arithmetic intensity in operations per byte, including elementary functions: the horizontal axis of
        rooflines. None if the number of operations is unknown."""
        if self.operations is None or not self.nbytes:
            return None
        return self.operations.total / self.nbytes


def cost_analysis(functions: Sequence[PlannedFunction]) -> dict[str, float]:
    """Costs of a program, given as its functions (callees first). `flops` excludes `transcendentals`, and `bytes
    accessed` is the total. `bytes accessed0{}` are the bytes read of the first argument, `utilization0{}` is how often
    it is read (1 is all of it once), and `bytes accessedout{}` are the bytes written."""
    costs = [*program_costs(functions)]
    found = _figures(costs)
    reads = [read for cost in costs for read in cost.reads]
    for number in sorted({read.argument for read in reads} - {-1}):
        found |= _read(number, [read for read in reads if read.argument == number])
    return found


def added(analyses: Sequence[dict[str, float]]) -> dict[str, float]:
    """Sums the costs of programs that run one after the other."""
    names = dict.fromkeys(name for analysis in analyses for name in analysis)
    return {name: sum(analysis.get(name, 0.0) for analysis in analyses) for name in names}


def step_analysis(functions: Sequence[PlannedFunction], prefix: str = "") -> list[dict[str, Any]]:
    """Costs of each step, numbered and titled as in the printed plan (`step`, `title`). Operands are numbered in the
    order in which the plan lists its reads. `intensity` is flops and transcendentals per byte, as on the page of
    `profile`; None if their number is unknown. Labels begin with `prefix`."""
    return [
        {
            "step": prefix + cost.label,
            "title": cost.title,
            "intensity": cost.intensity,
            **_figures([cost]),
            **_operands(cost),
        }
        for cost in program_costs(functions)
    ]


def program_costs(functions: Sequence[PlannedFunction]) -> Iterator[StepCost]:
    """Yields the cost of each step that computes or moves something: first those of the entry function, then those of
    the callees."""
    *callees, entry = functions
    for function in (entry, *callees):
        yield from _function_costs(function, "" if function is entry else f"@{function.name} ")


def _function_costs(function: PlannedFunction, prefix: str) -> Iterator[StepCost]:
    plan, memory = function.plan, function.memory
    labels = labels_of(plan)
    for step in all_steps(plan):
        yield from _copies(f"{prefix}before {labels[id(step)]}", memory.before.get(id(step), []))
        if _runs(step):
            yield _step_cost(prefix + labels[id(step)], step, function, is_entry=not prefix)
    for block in all_blocks(plan):
        yield from _copies(f"{prefix}end", memory.block_end.get(id(block), []))


def _runs(step: Step) -> bool:
    """Whether a step does something itself; control flow, views and calls of functions do not."""
    is_call = isinstance(step, OpStep) and step.op.name == "func.call"
    return step.title != "view" and not isinstance(step, ControlStep) and not is_call


def _step_cost(label: str, step: Step, function: PlannedFunction, *, is_entry: bool) -> StepCost:
    moved, operations = step_traffic(step), step_operations(step)
    storages = function.memory.storage
    reads = []
    for value, read in moved.reads.items():
        storage = storages.get(value)
        number = storage.number if is_entry and storage is not None and storage.kind == "argument" else -1
        reads.append(Read(hint_of(read), hint_of(nbytes(value)), number))
    counted = None if operations is None else Operations(*map(hint_of, operations))
    return StepCost(label, step.title, counted, tuple(reads), hint_of(moved.written))


def _copies(label: str, copies: Iterable[Copy]) -> Iterator[StepCost]:
    for copy in copies:
        size = hint_of(nbytes(copy.source))
        if size:
            yield StepCost(label, "copy", Operations(0, 0), (Read(size, size, -1),), size)


def _figures(costs: Iterable[StepCost]) -> dict[str, float]:
    simple = functions = moved = written = 0
    for cost in costs:
        operations = cost.operations or Operations(0, 0)
        simple, functions = simple + operations.simple, functions + operations.functions
        moved, written = moved + cost.nbytes, written + cost.written
    figures = {"flops": simple, "transcendentals": functions, "bytes accessed": moved, "bytes accessedout{}": written}
    return {name: float(figure) for name, figure in figures.items()}


def _operands(cost: StepCost) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, read in enumerate(cost.reads):
        found |= _read(number, [read])
    return found


def _read(number: int, reads: Sequence[Read]) -> dict[str, float]:
    """The cost entries of one operand."""
    shares = sum(read.nbytes / read.of for read in reads if read.of)
    total = float(sum(read.nbytes for read in reads))
    return {f"bytes accessed{number}{{}}": total, f"utilization{number}{{}}": shares}
