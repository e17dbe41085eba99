"""Copies of whole buffers, and swaps of two buffers, as `schedule/copies.py` has decided."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.lower.services import Services
from shlo_jit.schedule.copies import LINE, UNROLL, CopySchedule
from shlo_jit.sizes import word_of


def copy(low: Services, target: V, source: V, how: CopySchedule) -> None:
    b = low.b

    def serial() -> list[V]:
        b.memcpy(target, source, how.nbytes)
        return []

    def in_tasks() -> list[V]:
        low.parallel(_task(low, how), [target, source], how.tasks)
        return []

    if not how.chunk:
        serial()
    elif how.least:
        b.if_else(b.icmp("slt", i64(how.nbytes), how.least), serial, in_tasks)
    else:
        in_tasks()


def _task(low: Services, how: CopySchedule) -> str:
    name = f"copy.{word_of(how.nbytes)}"
    if name in low.module.functions:
        return name
    b = low.task(name, 2)
    frame, index, _ = b.params
    target, source = (b.load("ptr", b.element(frame, "ptr", k)) for k in (0, 1))
    first = b.mul(index, how.chunk)
    count = b.sub(b.min_(b.add(first, how.chunk), how.nbytes), first)
    target, source = b.offset(target, first), b.offset(source, first)
    if how.streams:
        aligned = b.icmp("eq", b.and_(b.cast("ptrtoint", target, "i64"), i64(LINE - 1)), 0)
        b.if_else(aligned, lambda: _stream(b, target, source, count), lambda: _plain(b, target, source, count))
    else:
        b.memcpy(target, source, count)
    b.ret()
    return name


def swap(low: Services, left: V, right: V, how: CopySchedule) -> None:
    """Swaps the contents of two buffers."""
    name = f"swap.{how.nbytes}"
    if name not in low.module.functions:
        b = low.task(name, 2)
        frame, index, _ = b.params
        pair = [b.load("ptr", b.element(frame, "ptr", k)) for k in (0, 1)]
        first = b.mul(index, how.chunk)
        last = b.min_(b.add(first, how.chunk), how.nbytes)
        whole = b.sub(last, b.and_(b.sub(last, first), i64(LINE - 1)))
        for start, stop, step, kind in ((first, whole, LINE, vector("i64", LINE // 8)), (whole, last, 1, "i8")):
            with b.loop(start, stop, step, "lines") as i:
                places = [b.offset(p, i) for p in pair]
                x, y = (b.load(kind, p, align=1) for p in places)
                b.store(y, places[0], align=1)
                b.store(x, places[1], align=1)
        b.ret()
    low.parallel(name, [left, right], how.tasks)


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
