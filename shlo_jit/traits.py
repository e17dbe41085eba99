"""What fusion knows of a CPU: much less than its target says, as fused steps leave most decisions to schedules."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.caches import PLAIN, Caches


class Traits(NamedTuple):
    """Properties of a CPU that decide which ops are computed together."""

    caches: Caches = PLAIN
    sums_bytes: bool = False
    """An instruction multiplies four bytes in each lane and adds up the products."""


PLAIN_TRAITS = Traits()
"""Traits of a CPU that nothing is known of."""
