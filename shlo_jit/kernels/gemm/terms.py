"""Loops of a register tile over its terms: in one chain of additions, or in blocks that are added to C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64


class Window(NamedTuple):
    """What a tile multiplies; see `KERNEL_PARAMS` of `micro.py`."""

    a: V
    a_cs: V
    b: V
    later: V
    k: V
    runs: V
    run_stride: V
    skipped: V
    before: V


def all_terms(b: Builder, w: Window, sums: list[V], part: Callable[..., list[V]]) -> list[V]:
    """Returns the sums over all runs."""
    with b.loop_carry(0, w.runs, [*sums, w.a, w.b, w.later], hint="run") as run:
        *acc, first, row_b, soon = run.values
        *acc, row_b, soon = part(acc, first, w.k, row_b, soon)
        run.next(*acc, b.offset(first, w.run_stride), b.offset(row_b, w.skipped), soon)
    return run.values[: len(sums)]


def blocks_of_terms(
    b: Builder,
    w: Window,
    zeros: list[V],
    part: Callable[..., list[V]],
    store: Callable[[Sequence[V], tuple[V, V]], None],
    start: tuple[V, V],
    c: tuple[V, V],
) -> None:
    """Emits sums over blocks of `GEMM_SUM_TERMS` steps, each of which is added to C: the error of a sum in one chain
    grows with the square root of its length. Blocks end at multiples of their length in k, whatever the runs are, so
    pixels that are read in place and those that are gathered have the same bits."""
    most, below = i64(tuning.GEMM_SUM_TERMS), i64(tuning.GEMM_SUM_TERMS - 1)
    with b.repeat([w.runs, i64(0), w.a, w.a, w.b, w.later, w.before, *start], "block") as block:
        *place, c_before, stride_before = block.values
        with b.repeat([*place, *zeros], "run") as run:
            left, done, run_start, first, row_b, soon, at, *sums = run.values
            room = b.sub(most, b.and_(at, below))
            count = b.select(b.icmp("sgt", left, 0), b.min_(b.sub(w.k, done), room), i64(0))
            *sums, row_b, soon = part(sums, first, count, row_b, soon)
            done, at = b.add(done, count), b.add(at, count)
            ended = b.icmp("sge", done, w.k)
            following = b.offset(run_start, w.run_stride)
            left = b.select(ended, b.sub(left, 1), left)
            first = b.select(ended, following, b.offset(first, b.mul(count, w.a_cs)))
            run_start = b.select(ended, following, run_start)
            row_b = b.offset(row_b, b.select(ended, w.skipped, i64(0)))
            done = b.select(ended, i64(0), done)
            run.next(left, done, run_start, first, row_b, soon, at, *sums)
            run.again = b.and_(b.icmp("sgt", left, 0), b.icmp("ne", b.and_(at, below), 0))
        store(run.values[7:], (c_before, stride_before))
        block.next(*run.values[:7], *c)
        block.again = b.icmp("sgt", run.values[0], 0)
