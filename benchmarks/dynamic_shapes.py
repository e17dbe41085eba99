"""Programs with unknown dimensions: overhead of a call with a known size over the static program, time of a new size,
and growth of memory with the number of sizes.

    python -m benchmarks.dynamic_shapes
    python -m benchmarks.dynamic_shapes --sizes 300,600,1000     numbers of sizes after which memory is measured
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_jit
from benchmarks.timing import interleave
from shlo_jit import tuning

ADD = """
func.func @main(%x: tensor<?x8xf32>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = stablehlo.add %x, %y : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
"""
COUNT = """
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> (tensor<?xi32>, tensor<4xf32>) {
  %0 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %1, %x : tensor<?xi32>, tensor<4xf32>
}
"""
WIDTHS = (784, 512, 512, 10)
NEW_SIZES = range(33, 44)


def negate(arguments: int = 1) -> str:
    """A program of one argument with an unknown dimension, and others without."""
    others = "".join(f", %w{i}: tensor<4xf32>" for i in range(arguments - 1))
    return f"""
func.func @main(%x: tensor<?x8xf32>{others}) -> tensor<?x8xf32> {{
  %0 = stablehlo.negate %x : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}}
"""


def mlp() -> str:
    """Three layers with weights and biases in the text; the batch is unknown."""
    generator = np.random.default_rng(0)
    lines, x = [], "%x"
    for i, (n, m) in enumerate(itertools.pairwise(WIDTHS)):
        weights = (generator.standard_normal((n, m)) / n**0.5).astype(np.float32)
        bias = generator.standard_normal(m).astype(np.float32)
        wide, out = f"tensor<?x{n}xf32>", f"tensor<?x{m}xf32>"
        lines += [
            f'%w{i} = stablehlo.constant dense<"0x{weights.tobytes().hex().upper()}"> : tensor<{n}x{m}xf32>',
            f'%b{i} = stablehlo.constant dense<"0x{bias.tobytes().hex().upper()}"> : tensor<{m}xf32>',
            f"%d{i} = stablehlo.dot_general {x}, %w{i}, contracting_dims = [1] x [0]"
            f" : ({wide}, tensor<{n}x{m}xf32>) -> {out}",
            f"%n{i} = stablehlo.get_dimension_size %d{i}, dim = 0 : ({out}) -> tensor<i32>",
            f"%r{i} = stablehlo.reshape %n{i} : (tensor<i32>) -> tensor<1xi32>",
            f"%m{i} = stablehlo.constant dense<{m}> : tensor<1xi32>",
            f"%s{i} = stablehlo.concatenate %r{i}, %m{i}, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>",
            f"%c{i} = stablehlo.dynamic_broadcast_in_dim %b{i}, %s{i}, dims = [1]"
            f" : (tensor<{m}xf32>, tensor<2xi32>) -> {out}",
            f"%a{i} = stablehlo.add %d{i}, %c{i} : {out}",
            f"%t{i} = stablehlo.tanh %a{i} : {out}",
        ]
        x = f"%t{i}"
    body = "\n  ".join(lines)
    return f"""
func.func @main(%x: tensor<?x{WIDTHS[0]}xf32>) -> tensor<?x{WIDTHS[-1]}xf32> {{
  {body}
  return {x} : tensor<?x{WIDTHS[-1]}xf32>
}}
"""


def seen(name: str, text: str, arguments: Sequence[np.ndarray]) -> tuple[str, ...]:
    """Nanoseconds of a call with a size that was used before, and of the static program."""
    dynamic = shlo_jit.compile(text, cache=False)
    static = shlo_jit.compile(shlo_jit.refine(text, arguments), cache=False)
    times = interleave({"dynamic": lambda: dynamic(*arguments), "static": lambda: static(*arguments)}, 1.0)
    a, b = (times[which].median * 1e9 for which in ("dynamic", "static"))
    return name, f"{a:,.0f}", f"{b:,.0f}", f"{a - b:,.0f}"


def new() -> list[float]:
    """Milliseconds of each of some new batch sizes of the MLP, after the first ones."""
    dynamic = shlo_jit.compile(mlp(), cache=False)
    times = []
    for n in (1, 32, *NEW_SIZES):
        x = np.ones((n, WIDTHS[0]), np.float32)
        start = time.perf_counter()
        dynamic(x)
        times.append((time.perf_counter() - start) * 1e3)
    return times[2:]


def memory(counts: Sequence[int]) -> list[tuple[int, float]]:
    """Megabytes of this process after these numbers of batch sizes of a small program."""
    dynamic = shlo_jit.compile(ADD, cache=False)
    found = []
    for n in range(1, max(counts) + 1):
        x = np.ones((n, 8), np.float32)
        dynamic(x, x)
        if n in counts:
            del x
            gc.collect()
            found.append((n, resident()))
    return found


def resident() -> float:
    """Megabytes of resident memory of this process."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="100,300,600,1000", metavar="N,N", help="default: %(default)s")
    counts = [int(n) for n in parser.parse_args(arguments).sizes.split(",")]
    console = Console()

    x, w = np.ones((4, 8), np.float32), np.ones(4, np.float32)
    table = Table("a call with a seen size", "dynamic ns", "static ns", "more ns")
    table.add_row(*seen("one argument", negate(), [x]))
    table.add_row(*seen("six, one of them with an unknown dimension", negate(6), [x, *[w] * 5]))
    table.add_row(*seen("two with an unknown dimension", ADD, [x, x]))
    table.add_row(*seen("a size among the arguments", COUNT, [np.asarray(3, np.int32), w]))
    console.print(table)

    times = new()
    table = Table("a new size of an MLP", "ms")
    table.add_row("median", f"{statistics.median(times):.1f}")
    table.add_row("worst", f"{max(times):.1f}")
    console.print(table)

    table = Table("sizes called", f"resident MB (code of {tuning.SPECIALIZATIONS} is kept)")
    for n, megabytes in memory(counts):
        table.add_row(f"{n:,}", f"{megabytes:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
