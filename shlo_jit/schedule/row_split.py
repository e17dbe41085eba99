"""Reductions of few rows that are split along the row: chunks of it are units of work, and leave partial results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shlo_jit.ir.core import Op
from shlo_jit.ops import OpDef
from shlo_jit.schedule.passes import Passes
from shlo_jit.schedule.reducers import accumulator
from shlo_jit.schedule.scratch import Field


class Split(NamedTuple):
    """A reduction split along its row. Units are chunks of the outermost reduced variable, and each leaves partial
    results in scratch memory. A second function, called once, combines them in order and finishes the rows."""

    chunk: int
    """Elements of the variable per chunk."""
    partials: tuple[Field, ...]
    """The scratch memory: an array for every part of every accumulator (two for a complex one)."""


def row_split(passes: Passes, simple: Mapping[Op, OpDef | None], chunk: int, chunks: int) -> Split:
    """The split with the fields of the accumulators' parts: each is an array of chunks x rows. `simple`: the op that
    each reduction combines by, if it is one op."""
    partials: list[Field] = []
    for r in passes.reductions(0):
        selection = r.selection
        dtypes = [accumulator(r.op, simple[r.op])] if selection is None else selection.accumulators
        for part in [p for d in dtypes for p in ([d.part] * 2 if d.is_complex else [d])]:
            nbytes = max(1, part.bits // 8) * chunks * passes.nest.rows
            partials.append(Field(f"partial {len(partials)}", nbytes))
    return Split(chunk, tuple(partials))
