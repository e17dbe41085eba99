"""Strategies of a product: register tiles, vectors, or skinny tiles."""

from __future__ import annotations

from enum import Enum

from shlo_jit.kernels.gemm import known_sizes, policy
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.gemm.staged_numbers import Ints


class GemmStrategy(Enum):
    """Strategy of a product; the value is the end of its symbol."""

    TILES = ""
    """Register tiles."""
    VECTORS = "_vectors"
    """A matrix with vectors."""
    FEW = "_few"
    """Register tiles of few rows, which read B in place."""
    ANY = "_any"
    """Tiles or vectors, chosen at the call by extents and strides."""


def strategy_of(plan: GemmPlan, m: int, n: int, k: int, strides: Layout, *, is_near: bool = True) -> GemmStrategy:
    """Returns the strategy of a product whose sizes are known. `is_near`: B is expected to be in a cache."""
    s = known_sizes.extents_of(plan, 1, m, n, k, strides)
    if is_near and policy.has_skinny_path(plan) and policy.is_skinny(Ints(), plan, s):
        return GemmStrategy.FEW
    return strategy_of_any(plan, m, n, k, strides)


def strategy_of_any(plan: GemmPlan, m: int, n: int, k: int, strides: Layout) -> GemmStrategy:
    """Returns which of its two strategies `GemmStrategy.ANY` chooses."""
    return GemmStrategy.TILES if known_sizes.vectors_of(plan, m, n, k, strides) is None else GemmStrategy.VECTORS
