"""Limits of this machine: how fast registers multiply and add, and how fast arrays of several sizes are read.

Measured by loops in machine code, one in each of as many threads as a call may use; the best of several tries.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.codegen import processor
from shlo_jit.codegen.jit import Library, load
from shlo_jit.codegen.objects import generate
from shlo_jit.codegen.target import resolve
from shlo_jit.forking import compiling
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, bits, const, i64, lanes, scalar
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.cache import default_cache, limits_key

SUMS = 12
"""Number of independent sums: more than the latency of a multiply-add times the number that start per cycle, fewer than
registers."""


class Effort(NamedTuple):
    """Duration of a measurement: short tries, so that some are undisturbed."""

    sizes: tuple[int, ...]
    """Bytes that are read by all threads in total."""
    seconds: float
    """Minimum duration of a try."""
    tries: int


TIMES = 3
"""Number of measurements after which `limits` accepts the best: other processes may use the machine meanwhile."""
QUICK = Effort((1 << 21, 1 << 27), 0.003, 24)
"""Takes less than a second: one size that fits into caches, one that needs main memory."""


class Limits(NamedTuple):
    """Performance of a machine with a number of threads; sizes ascend."""

    threads: int
    peaks: Mapping[str, float]
    """Operations per second by element type. A type without its own instructions has the value of f32."""
    reads: Sequence[tuple[int, float]]
    """Sizes in bytes, and bytes per second."""

    def reading(self, nbytes: float) -> float:
        """Returns the bytes per second at which an array of `nbytes` is read."""
        return next((rate for size, rate in self.reads if size >= nbytes), self.reads[-1][1])


class Step(NamedTuple):
    """Operation of a loop on each of its sums."""

    sum: str
    """Type of the sum."""
    operand: str
    """Type of the operand."""
    run: Callable[[Builder, V, V], V]
    """Returns the next sum, given a sum and an operand."""
    operations: int


def limits(threads: int) -> Limits:
    """Returns the best of the values in the object cache for such a processor and, the first few times, of a new
    measurement."""
    said = processor.description()
    if said is None:
        return measure(threads, QUICK)
    cache, key = default_cache(), limits_key(said, threads)
    times, found = cache.read(key, _read) or (0, None)
    if found is None or times < TIMES:
        now = measure(threads, QUICK)
        found = now if found is None else better(found, now)
        made = {"threads": threads, "peaks": dict(found.peaks), "reads": [*map(list, found.reads)]}
        cache.store(key, {"kind": "limits", "times": times + 1, **made}, [])
    return found


def better(one: Limits, other: Limits) -> Limits:
    """Returns the higher figures of two measurements of the same sizes."""
    peaks = {kind: max(peak, other.peaks[kind]) for kind, peak in one.peaks.items()}
    reads = [(size, max(rate, again)) for (size, rate), (_, again) in zip(one.reads, other.reads, strict=True)]
    return Limits(one.threads, peaks, reads)


def _read(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> tuple[int, Limits]:
    """Returns the number of measurements, and the best."""
    if header["kind"] != "limits" or blobs:
        raise ValueError("no limits")
    peaks = {str(kind): float(rate) for kind, rate in header["peaks"].items()}
    reads = [(int(size), float(rate)) for size, rate in header["reads"]]
    if [size for size, _ in reads] != [*QUICK.sizes]:
        raise ValueError("other sizes")
    return int(header["times"]), Limits(int(header["threads"]), peaks, reads)


def measure(threads: int, effort: Effort) -> Limits:
    """Measures this machine."""
    target = resolve()
    peaks = {
        kind: _rate(_loop(step, target, is_reading=False), threads, 1, 1, SUMS * step.operations, effort)
        for kind, step in _products(target).items()
    }
    vector, group = f"<{target.lanes(32)} x float>", 4 * target.lanes(32) * SUMS
    adding = _loop(Step(vector, vector, lambda b, s, x: b.fadd(s, x), 0), target, is_reading=True)
    reads = [(size, _rate(adding, threads, size // threads // group, group, group, effort)) for size in effort.sizes]
    return Limits(threads, {"bf16": peaks["f32"], "i8": peaks["f32"]} | peaks, reads)


def _products(target: Target) -> dict[str, Step]:
    vector = f"<{target.lanes(32)} x float>"
    found = {"f32": Step(vector, vector, lambda b, s, x: b.fma(x, x, s), 2 * target.lanes(32))}
    if target.has_bf16_dot:
        found["bf16"] = _instruction("llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>", 64)
    if target.has_vnni:
        width, lanes = target.vector_bits, target.lanes(32)
        operand = f"<{4 * lanes} x i8>"
        found["i8"] = _instruction(f"llvm.x86.avx512.vpdpbusd.{width}", f"<{lanes} x i32>", operand, 8 * lanes)
    return found


def _instruction(name: str, sums: str, operand: str, operations: int) -> Step:
    return Step(sums, operand, lambda b, s, x: b.call(sums, name, [s, x, x]), operations)


@compiling()
def _loop(step: Step, target: Target, *, is_reading: bool) -> Library:
    """Builds `void run(ptr data, i64 groups, i64 repeats)`: `groups` groups of SUMS steps, in each repeat. Operands are
    read one after the other, or are all the first of the data."""
    module = ModuleText(target)
    b = module.function("run", [("ptr", "data"), ("i64", "groups"), ("i64", "repeats")], linkage="")
    data, groups, repeats = b.params
    first, nbytes = b.load(step.operand, data, 16), lanes(step.operand) * bits(scalar(step.operand)) // 8
    # LLVM would merge sums with equal start values
    starts = [const(step.sum, i) for i in range(SUMS)]
    with b.loop_carry(0, repeats, starts) as outer:
        with b.loop_carry(0, groups, outer.values) as inner:
            group = b.offset(data, b.mul(inner.index, i64(SUMS * nbytes)))
            operands = [
                b.load(step.operand, b.offset(group, i * nbytes), 16) if is_reading else first for i in range(SUMS)
            ]
            inner.next(*(step.run(b, s, x) for s, x in zip(inner.values, operands, strict=True)))
        outer.next(*inner.values)
    out = b.alloca(step.sum)
    for value in outer.values:
        b.line(f"store volatile {value.type} {value.text}, ptr {out.text}")
    b.ret()
    return load([generate(module.text(f'target triple = "{target.triple}"'), target, 1)], ["run"])


def _rate(library: Library, threads: int, groups: int, group_bytes: int, work: float, effort: Effort) -> float:
    """Returns the work per second. A group does `work` work, and each thread has `groups` groups in separate memory."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.addresses["run"])
    # Ones, not zeros: the system maps all pages that were never written to a single page of zeros.
    arrays = [np.ones(groups * group_bytes + 128, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def seconds(repeats: int) -> float:
            start = time.perf_counter()
            list(pool.map(lambda a: run((a.ctypes.data + 63) // 64 * 64, groups, repeats), arrays))
            return time.perf_counter() - start

        repeats = 1
        while min(seconds(repeats) for _ in range(3)) < effort.seconds:
            repeats *= 2
        return threads * groups * repeats * work / min(seconds(repeats) for _ in range(effort.tries))
