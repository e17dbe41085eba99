"""Weight prefetch: the weights that a step fetches for the next one.

A large model's weights come from memory in every call. A step whose weights are panels has the time to fetch those
that come next. During its last tiles it fetches the first block of the next step's panels; that step itself fetches the
blocks after the first.
"""

from __future__ import annotations

from dataclasses import replace

from shlo_jit.fuse.plan import PlanBlock, all_blocks
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.panels import PanelsSchedule, Region


def link(plan: PlanBlock, steps: dict[int, KernelSchedule]) -> None:
    """Links every step of `steps`, by id() of the plan's steps, to the panels that follow it in its block."""
    for block in all_blocks(plan):
        following: Region | None = None
        for step in reversed(block.steps):
            found = steps.get(id(step))
            if isinstance(found, PanelsSchedule) and found.prepacked is not None:
                steps[id(step)] = replace(found, prefetched=following)
                following = Region(found.prepacked, found.first_block)
