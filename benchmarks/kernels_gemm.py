"""GF/s of the matrix product routine and of NumPy's, with one thread each, measured alternately.

OPENBLAS_NUM_THREADS=1 taskset -c 0 python benchmarks/kernels_gemm.py [f32|f64]
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.gemm.gemm import GEMM_PARAMS, GemmTypes, gemm_routine, gemm_symbol, scratch_bytes
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "kernels"))
from loader import Loaded  # pyright: ignore[reportMissingImports]

SHAPES = [
    (1, 1, 16, 16),
    (1, 16, 16, 16),
    (1, 64, 64, 64),
    (1, 128, 128, 128),
    (1, 256, 256, 256),
    (1, 512, 512, 512),
    (1, 1024, 1024, 1024),
    (1, 2048, 2048, 2048),
    (1, 64, 3072, 768),
    (1, 1, 4096, 4096),
    (1000, 16, 16, 16),
    (12, 512, 512, 64),
]


def repeating(routine: Routine) -> Routine:
    """A function `void (ptr arguments, i64 times)` that calls a routine repeatedly, to exclude Python's overhead."""

    def build(module: ModuleText, _: Target) -> None:
        b = module.function("repeat", [("ptr", "arguments"), ("i64", "times")], linkage="")
        arguments, times = b.params
        values = [b.load(t, b.offset(arguments, 8 * i), align=8) for i, (t, _) in enumerate(GEMM_PARAMS)]
        with b.loop(0, times):
            b.call("void", routine.symbols[0], values)
        b.ret()

    return Routine("repeat", ("repeat",), build, (routine,))


def seconds(run: Callable[[int], object]) -> float:
    """Seconds per run: the best of three measurements of some 20 ms each."""
    times = 1
    while True:
        start = time.perf_counter()
        run(times)
        spent = time.perf_counter() - start
        if spent > 0.02:
            break
        times *= 2
    best = spent
    for _ in range(2):
        start = time.perf_counter()
        run(times)
        best = min(best, time.perf_counter() - start)
    return best / times


def main(dtype: str = "f32") -> None:
    target, types = resolve(), GemmTypes(dtype, dtype, dtype)
    number = {"f32": np.float32, "f64": np.float64}[dtype]
    loaded = Loaded((repeating(gemm_routine(dtype, dtype, dtype, target)),), target)
    repeat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address["repeat"])
    print(f"{gemm_symbol(types)}: batch x m x n x k; 'nt' has B stored transposed")
    rng = np.random.default_rng(0)
    for batch, m, n, k in SHAPES:
        row = f"{f'{batch}x{m}x{n}x{k}':18s}"
        for layout in ("nn", "nt"):
            a = rng.standard_normal((batch, m, k)).astype(number)
            b = rng.standard_normal((batch, k, n)).astype(number)
            if layout == "nt":
                b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
            c = np.empty((batch, m, n), number)
            memory = np.zeros(scratch_bytes(types, target, batch, m, n, k, 1) + 64, np.uint8)
            scratch = (memory.ctypes.data + 63) // 64 * 64
            (ab, ar, ac), (bb, br, bc), (cb, cr, _) = ([s // x.itemsize for s in x.strides] for x in (a, b, c))
            values = (a.ctypes.data, ar, ac, ab, b.ctypes.data, br, bc, bb, 0, c.ctypes.data, cr, cb)
            arguments = np.array([*values, batch, m, n, k, 0, scratch, 0, 0, 0, 0, 0, 1], np.int64)

            def ours(times: int, arguments: np.ndarray = arguments) -> None:
                repeat(arguments.ctypes.data, times)

            def numpys(times: int, a: np.ndarray = a, b: np.ndarray = b, c: np.ndarray = c) -> None:
                for _ in range(times):
                    np.matmul(a, b, out=c)

            pairs = [(seconds(ours), seconds(numpys)) for _ in range(3)]
            flops = 2e-9 * batch * m * n * k
            mine, theirs = (flops / min(x) for x in zip(*pairs, strict=True))
            row += f"  {layout} {mine:7.1f} GF/s, numpy {theirs:7.1f}, ratio {mine / theirs:5.2f}"
        print(row, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
