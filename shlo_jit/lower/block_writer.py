"""What control flow asks of the lowering that it is a part of."""

from __future__ import annotations

from typing import Protocol

from shlo_jit.fuse.plan import PlanBlock, Step


class BlockWriter(Protocol):
    """Writes the steps of regions at the current place."""

    def block(self, block: PlanBlock) -> None:
        """Writes the steps of a block."""
        ...

    def steps(self, steps: list[Step]) -> None:
        """Writes some steps of a block."""
        ...

    def finish(self, block: PlanBlock) -> None:
        """Writes the copies at the end of a block."""
        ...
