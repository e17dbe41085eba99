"""Prints the schedule: how every step runs, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence

from shlo_jit.fuse.plan import PlanBlock, Step, all_steps, labels_of
from shlo_jit.fuse.value_names import Names
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.kernel import HasMoves, KernelSchedule
from shlo_jit.schedule.moves import to_json
from shlo_jit.schedule.schedule import Schedule, schedules_with_moves


def show_schedule(plan: PlanBlock, schedule: Schedule, target: Target, names: Names) -> str:
    """Returns the schedule of a plan as text, with steps numbered as in the plan."""
    lines, labels = [_machine(target)], labels_of(plan)
    for step in all_steps(plan):
        lines += _step(step, labels[id(step)], schedule[step], names, schedule.regions.note(step, labels))
    return "\n".join(lines)


def show_moves(functions: Sequence[tuple[str, PlanBlock, Schedule]]) -> str:
    """The moves of all loop nests, products, convolutions, row blocks and line tiles as JSON, by the label of the step:
    `2` in the entry function, which is the last one, `@name:2` in another, `2/0` for the first stage of step 2."""
    found = {}
    for i, (name, plan, schedule) in enumerate(functions):
        prefix = "" if i == len(functions) - 1 else f"@{name}:"
        for label, _, scheduled in schedules_with_moves(plan, schedule):
            if isinstance(scheduled, HasMoves):
                found[prefix + label] = to_json(scheduled.moves)
    lines = []
    for label, moves in found.items():
        texts = ",\n    ".join(json.dumps(move) for move in moves)
        lines.append(f"  {json.dumps(label)}: [\n    {texts}\n  ]" if moves else f"  {json.dumps(label)}: []")
    return "{\n" + ",\n".join(lines) + "\n}" if lines else "{}"


def _machine(target: Target) -> str:
    extras = [word for word, has in (("masks", target.has_masks), ("bf16 dot", target.has_bf16_dot)) if has]
    registers = f"{target.vector_registers} registers of {target.vector_bits} bits"
    return f"for {target.cpu}: {', '.join([registers, *extras])}"


def _step(step: Step, label: str, found: KernelSchedule, names: Names, shared: Sequence[Note]) -> list[str]:
    pad = "    " * (label.count(".") // 2)
    writes = ", ".join(names(v) for v in step.writes)
    lines = [f"{pad}{label:>3} {step.title:<10} {writes}".rstrip()]
    lines += [f"{pad}      {note}" for note in (*found.notes, *shared)]
    if any(found.scratch.bytes):
        s = found.scratch
        lines.append(f"{pad}      {'scratch':<15} {s.fixed:,} bytes and {s.per_thread:,} per thread")
    return lines
