"""Copies of whole buffers, and swaps of two buffers. A copy is a memcpy or, for large buffers, tasks with streaming
stores if the data exceeds the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.sizes import Size, hint_of, surely, word_of

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

LINE, UNROLL = 64, 4
"""Bytes of a cache line, and lines per iteration."""


def copy(low: ProgramLowering, target: V, source: V, nbytes: int) -> None:
    b = low.b

    def serial() -> list[V]:
        b.memcpy(target, source, nbytes)
        return []

    def in_tasks() -> list[V]:
        most = max(tuning.COPY_PARALLEL_BYTES // 4, -(-hint_of(nbytes) // tuning.MAX_TASKS))
        chunk = -(-most // (LINE * UNROLL)) * LINE * UNROLL
        low.parallel(_task(low, nbytes, chunk), [target, source], -(-nbytes // chunk))
        return []

    if surely(lambda: nbytes < tuning.COPY_PARALLEL_BYTES):
        serial()
    elif isinstance(nbytes, Size):
        b.if_else(b.icmp("slt", i64(nbytes), tuning.COPY_PARALLEL_BYTES), serial, in_tasks)
    else:
        in_tasks()


def _task(low: ProgramLowering, nbytes: int, chunk: int) -> str:
    name = f"copy.{word_of(nbytes)}"
    if name in low.module.functions:
        return name
    b = low.task(name, 2)
    frame, index, _ = b.params
    target, source = (b.load("ptr", b.element(frame, "ptr", k)) for k in (0, 1))
    first = b.mul(index, chunk)
    count = b.sub(b.min_(b.add(first, chunk), nbytes), first)
    target, source = b.offset(target, first), b.offset(source, first)
    if hint_of(nbytes) < low.target.bytes_of(tuning.COPY_STREAM_BYTES):
        b.memcpy(target, source, count)
    else:
        aligned = b.icmp("eq", b.and_(b.cast("ptrtoint", target, "i64"), i64(LINE - 1)), 0)
        b.if_else(aligned, lambda: _stream(b, target, source, count), lambda: _plain(b, target, source, count))
    b.ret()
    return name


def swap(low: ProgramLowering, left: V, right: V, nbytes: int) -> None:
    """Swaps the contents of two buffers."""
    chunk = max(tuning.COPY_PARALLEL_BYTES // 4, -(-nbytes // tuning.MAX_TASKS))
    chunk = -(-chunk // LINE) * LINE
    name = f"swap.{nbytes}"
    if name not in low.module.functions:
        b = low.task(name, 2)
        frame, index, _ = b.params
        pair = [b.load("ptr", b.element(frame, "ptr", k)) for k in (0, 1)]
        first = b.mul(index, chunk)
        last = b.min_(b.add(first, chunk), nbytes)
        whole = b.sub(last, b.and_(b.sub(last, first), i64(LINE - 1)))
        for start, stop, step, kind in ((first, whole, LINE, vector("i64", LINE // 8)), (whole, last, 1, "i8")):
            with b.loop(start, stop, step, "lines") as i:
                places = [b.offset(p, i) for p in pair]
                x, y = (b.load(kind, p, align=1) for p in places)
                b.store(y, places[0], align=1)
                b.store(x, places[1], align=1)
        b.ret()
    low.parallel(name, [left, right], -(-nbytes // chunk))


def _plain(b: Builder, target: V, source: V, count: V) -> list[V]:
    b.memcpy(target, source, count)
    return []


def _stream(b: Builder, target: V, source: V, count: V) -> list[V]:
    """Copies whole lines with non-temporal stores to an aligned target, the rest with a memcpy."""
    line = vector("i64", LINE // 8)
    whole = b.and_(count, i64(-LINE * UNROLL))
    with b.loop(0, whole, LINE * UNROLL, "lines") as i:
        x = [b.load(line, b.offset(source, b.add(i, k * LINE)), align=1) for k in range(UNROLL)]
        for k in range(UNROLL):
            b.store(x[k], b.offset(target, b.add(i, k * LINE)), LINE, ", !nontemporal !{i32 1}")
    return _plain(b, b.offset(target, whole), b.offset(source, whole), b.sub(count, whole))
