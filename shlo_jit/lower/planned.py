"""A program with everything decided: what lowering writes, and what it then is."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.codegen.program import Program
from shlo_jit.fuse.plan import PlanBlock
from shlo_jit.ir.core import Module, Op, Value
from shlo_jit.memory.storage import MemoryPlan
from shlo_jit.schedule.schedule import Schedule


class PlannedFunction(NamedTuple):
    """The entry function, or one that is called and not written out."""

    core: Op
    """In core ops."""
    plan: PlanBlock
    """In steps."""
    schedule: Schedule
    """How each step runs."""
    memory: MemoryPlan
    """Where the values live."""

    @property
    def name(self) -> str:
        return self.core.attributes["sym_name"]

    @property
    def arguments(self) -> list[Value]:
        return self.plan.block.arguments


class Lowered(NamedTuple):
    """A program at every stage before machine code."""

    module: Module
    """As parsed and verified."""
    functions: list[PlannedFunction]
    """Those that are called and not written out, callees first, and the entry function."""
    program: Program

    @property
    def entry(self) -> PlannedFunction:
        return self.functions[-1]

    @property
    def plan(self) -> PlanBlock:
        """The steps of the entry function."""
        return self.entry.plan

    @property
    def memory(self) -> MemoryPlan:
        """Where the values of the entry function live."""
        return self.entry.memory
