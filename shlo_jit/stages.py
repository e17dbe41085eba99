"""Output of `exe.text(stage)` and `shlo-jit show`: a program at each stage of its compilation.

An executable does not keep its program: the stages run again on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shlo_jit.deep import deeply
from shlo_jit.forking import compiling
from shlo_jit.kernels.target import Target

if TYPE_CHECKING:
    from shlo_jit.ir.core import Op
    from shlo_jit.lower.planned import Lowered, PlannedFunction

STAGES = ("module", "core", "plan", "schedule", "moves", "memory", "lowered", "llvm", "asm")
"""Stages in order: the parsed text; core ops; steps; how each step runs; the moves of steps,
as JSON; the memory plan; LLVM text; the text after LLVM's passes; assembly."""


def texts(lower: Callable[[], Lowered], target: Target) -> dict[str, Callable[[], str]]:
    """Maps the name of a stage to a function that returns its text. `lower` compiles the program again."""

    def text_of(name: str) -> Callable[[], str]:
        @compiling()
        def text() -> str:
            return show(lower(), name, target)

        return text

    return {name: text_of(name) for name in STAGES}


@deeply
def show(lowered: Lowered, stage: str, target: Target) -> str:
    """The text of one stage. Called functions follow the entry function."""
    if stage == "module":
        return str(lowered.module)
    if stage in ("core", "plan", "schedule", "memory"):
        *callees, entry = [(f.name, _planned(f, stage, target)) for f in lowered.functions]
        separate = "\n\n" if stage == "core" else "\n\n@{}: "
        return "".join([entry[1], *(separate.format(name) + text for name, text in callees)])
    if stage == "moves":
        from shlo_jit.schedule.show import show_moves

        return show_moves([(f.name, f.plan, f.schedule) for f in lowered.functions])
    if stage == "lowered":
        return lowered.program.text
    from shlo_jit.codegen import optimize

    module = optimize.optimize(lowered.program.text, target)
    return str(module) if stage == "llvm" else optimize.emit_assembly(module, target)


ENDINGS = {"module": "mlir", "core": "mlir", "moves": "json", "lowered": "ll", "llvm": "ll", "asm": "s"}
"""Suffixes of the files that `files` names; the others are plain text."""


def files(lower: Callable[[Callable[[str, Op], None]], Lowered], target: Target) -> dict[str, str]:
    """Maps names of files to texts, for every stage and for every pass between `module` and `core`, numbered in order.

    `lower` compiles the program and reports every pass.
    """
    from shlo_jit.text.printer import print_op

    passes: dict[str, list[str]] = {}
    counts: dict[tuple[str, str], int] = {}

    def on_pass(name: str, function: Op) -> None:
        whose = function.attributes["sym_name"]
        counts[whose, name] = counts.get((whose, name), 0) + 1
        again = f"-{counts[whose, name]}" if counts[whose, name] > 1 else ""
        passes.setdefault(name + again, []).append(print_op(function))

    lowered = lower(on_pass)
    first, *others = STAGES
    texts = [(f"{first}.{ENDINGS[first]}", show(lowered, first, target))]
    texts += [(f"pass-{name}.mlir", "\n\n".join(functions)) for name, functions in passes.items()]
    texts += [(f"{stage}.{ENDINGS.get(stage, 'txt')}", show(lowered, stage, target)) for stage in others]
    return {f"{number:02}-{name}": text.rstrip("\n") + "\n" for number, (name, text) in enumerate(texts)}


def _planned(function: PlannedFunction, stage: str, target: Target) -> str:
    """A function in core ops, or its plan."""
    if stage == "core":
        from shlo_jit.text.printer import print_op

        return print_op(function.core)
    from shlo_jit.fuse.show import show_plan
    from shlo_jit.fuse.value_names import Names
    from shlo_jit.memory.show import show_memory
    from shlo_jit.schedule.show import show_schedule

    names = Names(function.core)
    if stage == "plan":
        return show_plan(function.plan, names)
    if stage == "schedule":
        return show_schedule(function.plan, function.schedule, target, names)
    return show_memory(function.plan, function.memory, names, function.stack)
