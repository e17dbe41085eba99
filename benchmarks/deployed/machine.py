"""The limits of this machine: how fast registers multiply and add, and how fast arrays of several sizes are read.

    python -m benchmarks.deployed.machine

Loops in LLVM's language, one in each of as many threads as a call may use; the best of several tries.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.codegen.jit import Library, load
from shlo_jit.codegen.objects import generate
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.target import Target

SUMS = 12
"""Independent ones: more than the latency of a multiply-add times how many begin in a cycle, fewer than registers."""
SIZES = tuple(1 << k for k in range(17, 30))
"""Bytes that are read, of all threads together."""
SECONDS, TRIES = 0.004, 60
"""Of a try, at least: short ones, of which some are not disturbed."""


class Step(NamedTuple):
    """What a loop does with each of its sums."""

    sum: str
    """Its type."""
    operand: str
    """The type of what goes into it."""
    line: str
    """LLVM's, of the sum {s} and the operand {x}."""
    operations: int


def measure(threads: int) -> dict[str, Any]:
    """`peaks`: operations a second by element type, those of f32 where a type has no instructions of its own; `reads`:
    pairs of sizes and bytes a second."""
    target = resolve()
    peaks = {kind: _rate(_loop(step, target, is_reading=False), threads, 1, 1, SUMS * step.operations)
             for kind, step in _products(target).items()}  # fmt: skip
    vector, group = f"<{target.lanes(32)} x float>", 4 * target.lanes(32) * SUMS
    adding = _loop(Step(vector, vector, f"fadd {vector} {{s}}, {{x}}", 0), target, is_reading=True)
    reads = [[size, _rate(adding, threads, size // threads // group, group, group)] for size in SIZES]
    return {"threads": threads, "peaks": {"bf16": peaks["f32"], "i8": peaks["f32"]} | peaks, "reads": reads}


def better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The higher figures of two measurements."""
    peaks = {kind: max(peak, other["peaks"][kind]) for kind, peak in one["peaks"].items()}
    reads = [[size, max(rate, again)] for (size, rate), (_, again) in zip(one["reads"], other["reads"], strict=True)]
    return one | {"peaks": peaks, "reads": reads}


def _products(target: Target) -> dict[str, Step]:
    lanes = target.lanes(32)
    vector = f"<{lanes} x float>"
    line = f"call {vector} @llvm.fma.v{lanes}f32({vector} {{x}}, {vector} {{x}}, {vector} {{s}})"
    found = {"f32": Step(vector, vector, line, 2 * lanes)}
    sums, pairs, fours = "<16 x float>", "<32 x bfloat>", "<64 x i8>"
    if target.has_bf16_dot:
        line = f"call {sums} @llvm.x86.avx512bf16.dpbf16ps.512({sums} {{s}}, {pairs} {{x}}, {pairs} {{x}})"
        found["bf16"] = Step(sums, pairs, line, 64)
    if target.has_vnni:
        line = f"call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> {{s}}, {fours} {{x}}, {fours} {{x}})"
        found["i8"] = Step("<16 x i32>", fours, line, 128)
    return found


def _loop(step: Step, target: Target, *, is_reading: bool) -> Library:
    """`void run(ptr data, i64 groups, i64 turns)`: so many groups of SUMS steps, in each turn. Operands are read one
    after the other, or are the first of the data."""
    operand, sums = step.operand, step.sum
    starts, phis, reads, steps = [], [], [], []
    for i in range(SUMS):
        # Sums that began alike would be one, to LLVM.
        start = f"float {i}.0" if "float" in sums else f"i32 {i}"
        starts.append(f"  %z{i} = insertelement {sums} zeroinitializer, {start}, i64 0")
        phis.append(f"  %s{i} = phi {sums} [ %z{i}, %entry ], [ %t{i}, %inner ], [ %t{i}, %outer ]")
        if is_reading:
            reads.append(f"  %p{i} = getelementptr {operand}, ptr %group, i64 {i}")
            reads.append(f"  %x{i} = load {operand}, ptr %p{i}, align 16")
        steps.append(f"  %t{i} = {step.line.format(s=f'%s{i}', x=f'%x{i}' if is_reading else '%x')}")
    stores = [f"  store volatile {sums} %t{i}, ptr %out" for i in range(SUMS)]
    declared = step.line.partition("@")[2].partition("(")[0]
    arguments = ", ".join([operand, operand, sums] if declared.startswith("llvm.fma") else [sums, operand, operand])
    lines = [
        f'target triple = "{target.triple}"',
        f"declare {sums} @{declared}({arguments})" if declared else "",
        "define void @run(ptr %data, i64 %groups, i64 %turns) {",
        "entry:",
        f"  %out = alloca {sums}, align 64",
        f"  %x = load {operand}, ptr %data, align 16",
        *starts,
        "  br label %inner",
        "inner:",
        "  %i = phi i64 [ 0, %entry ], [ %i1, %inner ], [ 0, %outer ]",
        "  %turn = phi i64 [ 0, %entry ], [ %turn, %inner ], [ %turn1, %outer ]",
        *phis,
        f"  %at = mul i64 %i, {SUMS}",
        f"  %group = getelementptr {operand}, ptr %data, i64 %at",
        *reads,
        *steps,
        "  %i1 = add i64 %i, 1",
        "  %more = icmp ult i64 %i1, %groups",
        "  br i1 %more, label %inner, label %outer",
        "outer:",
        "  %turn1 = add i64 %turn, 1",
        "  %again = icmp ult i64 %turn1, %turns",
        "  br i1 %again, label %inner, label %end",
        "end:",
        *stores,
        "  ret void",
        "}",
    ]
    return load([generate("\n".join(lines), target, 1)], ["run"])


def _rate(library: Library, threads: int, groups: int, group_bytes: int, work: float) -> float:
    """Work a second, where a group is so much work, and each thread has `groups` in memory of its own."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.addresses["run"])
    # Ones, not zeros: those would all be in the one page that the system has for memory nobody has written.
    arrays = [np.ones(groups * group_bytes + 128, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def seconds(turns: int) -> float:
            start = time.perf_counter()
            list(pool.map(lambda a: run((a.ctypes.data + 63) // 64 * 64, groups, turns), arrays))
            return time.perf_counter() - start

        turns = 1
        while min(seconds(turns) for _ in range(5)) < SECONDS:
            turns *= 2
        return threads * groups * turns * work / min(seconds(turns) for _ in range(TRIES))


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.deployed.machine", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    print(json.dumps(measure(parser.parse_args().threads), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
