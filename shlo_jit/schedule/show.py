"""Prints the schedule: how every step runs, and why."""

from __future__ import annotations

from shlo_jit.fuse.plan import PlanBlock, Step, all_steps, labels_of
from shlo_jit.fuse.value_names import Names
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.schedule import Schedule


def show_schedule(plan: PlanBlock, schedule: Schedule, target: Target, names: Names) -> str:
    """Returns the schedule of a plan as text, with steps numbered as in the plan."""
    lines, labels = [_machine(target)], labels_of(plan)
    for step in all_steps(plan):
        lines += _step(step, labels[id(step)], schedule[step], names)
    return "\n".join(lines)


def _machine(target: Target) -> str:
    extras = [word for word, has in (("masks", target.has_masks), ("bf16 dot", target.has_bf16_dot)) if has]
    registers = f"{target.vector_registers} registers of {target.vector_bits} bits"
    return f"for {target.cpu}: {', '.join([registers, *extras])}"


def _step(step: Step, label: str, found: KernelSchedule, names: Names) -> list[str]:
    pad = "    " * (label.count(".") // 2)
    writes = ", ".join(names(v) for v in step.writes)
    lines = [f"{pad}{label:>3} {step.title:<10} {writes}".rstrip()]
    lines += [f"{pad}      {note}" for note in found.notes]
    if any(found.scratch.bytes):
        s = found.scratch
        lines.append(f"{pad}      {'scratch':<15} {s.fixed:,} bytes and {s.per_thread:,} per thread")
    return lines
