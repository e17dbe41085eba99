"""Outlining: decides which steps are written as separate functions, so that no function of a program becomes large.

LLVM's passes are superlinear in the size of a function. A block of more than PART_STEPS steps, including those inside
its control flow, is cut into runs of at most that many steps. Each run becomes a function that the enclosing one calls.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.plan import ControlStep, OpStep, PlanBlock, Step
from shlo_jit.ir.core import Op
from shlo_jit.memory.storage import Copy, MemoryPlan
from shlo_jit.ops import OPS
from shlo_jit.ops.known_calls import AMONG_PROCESSES
from shlo_jit.schedule.regions import NO_REGIONS, Regions


class Parts:
    """The cuts of a plan. `runs(block)` says how the function that has the block writes it. The steps of a parallel
    region stay together."""

    def __init__(self, plan: PlanBlock, memory: MemoryPlan, regions: Regions = NO_REGIONS):
        self.memory = memory
        self._regions = regions
        self._cut: dict[int, list[list[Step]]] = {}
        self._weigh(plan)

    def runs(self, block: PlanBlock) -> list[list[Step]] | None:
        """The runs of steps that a block is cut into; None if it is not cut."""
        return self._cut.get(id(block))

    @staticmethod
    def copy_runs(copies: list[Copy]) -> list[list[Copy]] | None:
        """The runs that copies at one place are cut into, each a function of its own; None if there are few."""
        most = tuning.PART_STEPS
        return None if len(copies) <= most else [copies[i : i + most] for i in range(0, len(copies), most)]

    @property
    def is_cut(self) -> bool:
        """Whether any block is cut."""
        return bool(self._cut)

    def _weigh(self, block: PlanBlock) -> int:
        """Number of steps that this block contributes to the enclosing function after splitting."""
        groups = [steps for _, steps in self._regions.grouped(block.steps)]
        weights = [sum(map(self._weigh_step, steps)) for steps in groups]
        if sum(weights) <= tuning.PART_STEPS:
            return sum(weights)
        runs: list[list[Step]] = []
        room = 0
        for steps, weight in zip(groups, weights, strict=True):
            if weight > room:
                runs.append([])
                room = tuning.PART_STEPS
            runs[-1] += steps
            room -= weight
        self._cut[id(block)] = runs
        return len(runs)

    def _weigh_step(self, step: Step) -> int:
        weight = 1 + self._copies(self.memory.before.get(id(step), []))
        if not isinstance(step, ControlStep):
            return weight + (_weigh_collective(step.op) if isinstance(step, OpStep) else 0)
        inner = [self._weigh(block) for block in step.blocks]
        if sum(inner) > tuning.PART_STEPS:
            for i, block in enumerate(step.blocks):
                if inner[i] > tuning.PART_REGION_STEPS:
                    self._cut.setdefault(id(block), [block.steps])
                    inner[i] = len(self._cut[id(block)])
        ends = sum(self._copies(self.memory.block_end.get(id(block), [])) for block in step.blocks)
        return weight + sum(inner) + ends

    def _copies(self, copies: list[Copy]) -> int:
        """Number of steps that copies count as: many copies become functions too."""
        runs = self.copy_runs(copies)
        return len(copies) if runs is None else len(runs)


def _weigh_collective(op: Op) -> int:
    """Weight of a collective op in addition to its step; 0 for any other op."""
    is_call = op.name == "stablehlo.custom_call"
    is_collective = op.attributes["call_target_name"] in AMONG_PROCESSES if is_call else OPS[op.name].has("collective")
    return tuning.COLLECTIVE_STEPS * (1 + len(op.operands)) if is_collective else 0
