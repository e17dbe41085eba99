"""Which weights a step fetches for the one after it.

Weights of a model of some size come from memory in every call. A step whose own weights are panels has the time to
fetch those that come next: beside its last tiles it fetches the first block of the panels of the next step that has
some; the blocks after the first are fetched by that step itself.
"""

from __future__ import annotations

from dataclasses import replace

from shlo_jit.fuse.plan import PlanBlock, all_blocks
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.panels import PanelsSchedule, Region


def link(plan: PlanBlock, steps: dict[int, KernelSchedule]) -> None:
    """Give every step of `steps`, by id() of the plan's steps, what follows it in its block."""
    for block in all_blocks(plan):
        following: Region | None = None
        for step in reversed(block.steps):
            found = steps.get(id(step))
            if isinstance(found, PanelsSchedule) and found.prepacked is not None:
                steps[id(step)] = replace(found, following=following)
                following = Region(found.prepacked, found.first_block)
