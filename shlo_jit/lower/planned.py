"""A planned program: the functions with all decisions made, and the result of lowering."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from shlo_jit.codegen.program import Program
from shlo_jit.fuse.plan import PlanBlock
from shlo_jit.ir.core import Module, Op, Value
from shlo_jit.memory.parts import Parts
from shlo_jit.memory.storage import MemoryPlan
from shlo_jit.schedule.schedule import Schedule


class PlannedFunction(NamedTuple):
    """The entry function, or a function that is called and not inlined."""

    core: Op
    """The function in core ops."""
    plan: PlanBlock
    """The function in steps."""
    schedule: Schedule
    """The schedule of each step."""
    memory: MemoryPlan
    """The memory of the values."""
    parts: Parts
    """The steps that become functions of their own."""
    stack: Set[int]
    """The storages (by id) in the arena that live on the stack."""

    @property
    def name(self) -> str:
        return self.core.attributes["sym_name"]

    @property
    def arguments(self) -> list[Value]:
        return self.plan.block.arguments


class Lowered(NamedTuple):
    """A program at every stage before machine code."""

    module: Module
    """The module as parsed and verified."""
    functions: list[PlannedFunction]
    """The functions that are called and not inlined, callees first, followed by the entry function."""
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
        """The memory of the entry function's values."""
        return self.entry.memory
