"""Schedule of ranges of keys in row blocks: how many keys are left out together, and in which stages.

For each block of rows, the keys are those that one of its rows needs, in whole steps. Steps are so large that vectors
and register tiles are full, and where panels are packed, a step has panels of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.plan import OpStep, RowBlocksStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.panels import panels_bytes
from shlo_jit.kernels.gemm.precision import gemm_plan
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.row_products import Product, Right

if TYPE_CHECKING:
    from shlo_jit.schedule.row_blocks import RowNest, RowProduct


class Ranged(NamedTuple):
    """The stages of row blocks that compute a range of keys, by the id() of their step."""

    starts: Value
    ends: Value
    keys: int
    step: int
    """Keys that are left out together."""
    terms: int
    """The product whose terms are the keys."""
    columns: frozenset[int]
    """Products whose columns are the keys."""
    nests: frozenset[int]
    """Row programs over the keys."""

    def has(self, step: OpStep) -> bool:
        """Whether a product computes a range of keys."""
        return id(step) == self.terms or id(step) in self.columns

    def key_of(self, stage: RowNest) -> int | None:
        """The variable of a row program that numbers the keys; None if it computes all keys."""
        return stage.schedule.space.inner[0] if id(stage.step) in self.nests else None


def keys_per_step(step: RowBlocksStep, rights: Mapping[OpStep, Right]) -> int:
    """Keys that are left out together."""
    packs = step.ranges is not None and any(rights.get(s) is Right.PACKED for s in _products(step))
    return tuning.RANGED_CHUNK if packs else tuning.RANGED_STEP


def _products(step: RowBlocksStep) -> Sequence[OpStep]:
    return () if step.ranges is None else (step.ranges.terms, *step.ranges.scores)


def packed_bytes(step: RowBlocksStep, s: OpStep, p: Product, target: Target) -> int:
    """Bytes of the panels of one step of keys of a right operand."""
    assert step.ranges is not None
    each = min(tuning.RANGED_CHUNK, step.ranges.keys)
    n, k = (p.n, each) if s is step.ranges.terms else (each, p.k)
    return panels_bytes(p.types, target, n, k)


def ranged_of(
    step: RowBlocksStep, stages: Sequence[RowProduct | RowNest], rights: Mapping[OpStep, Right], target: Target
) -> Ranged | None:
    """Returns the ranges of a step; None if a stage cannot leave out keys."""
    r = step.ranges
    if r is None or not allows(step, rights):
        return None
    size = keys_per_step(step, rights)
    nests = [s for s in stages if s.step is r.weights]
    if not all(_computes_steps(s.schedule, size) for s in nests):  # type: ignore[union-attr]
        nests = []
    columns = [s for s in r.scores if nests and size % gemm_plan_width(stages, s, target) == 0]
    return Ranged(
        r.starts, r.ends, r.keys, size, id(r.terms), frozenset(map(id, columns)), frozenset(id(s.step) for s in nests)
    )


def gemm_plan_width(stages: Sequence[RowProduct | RowNest], s: OpStep, target: Target) -> int:
    """Columns of the register tile of a stage."""
    product = next(stage.product for stage in stages if stage.step is s)  # type: ignore[union-attr]
    return gemm_plan(product.types, target).nr


def allows(step: RowBlocksStep, rights: Mapping[OpStep, Right]) -> bool:
    """Whether the right operands are read so that a part of the keys can be left out."""
    kinds = (Right.SKINNY, Right.IN_PLACE, Right.PACKED)
    return step.ranges is not None and all(rights[s] in kinds for s in _products(step))


def _computes_steps(schedule: NestSchedule, size: int) -> bool:
    """Whether the function of a row program can compute whole steps of its row."""
    is_plain = schedule.row_batching is None and schedule.transposed_loads is None and schedule.split is None
    is_plain = is_plain and schedule.interleaved is None and not schedule.is_fully_unrolled and not schedule.chunk
    width = schedule.space.width * schedule.unroll.value if schedule.space.vector is not None else 1
    return is_plain and len(schedule.space.inner) == 1 and size % width == 0
