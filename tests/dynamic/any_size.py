"""Checks of code for any batch size: it is compared with the reference for some sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from guarded import call, outputs

import shlo_jit
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.runtime.dynamic import DynamicExecutable
from shlo_jit.runtime.executable import Executable

SIZES = (2, 3, 17)


def check(text: str, target: str = "native", sizes: tuple[int, ...] = SIZES, high: int = 5) -> None:
    """Compares code for any size with the reference, also in guarded memory, on small whole numbers, whose sums are
    exact."""
    exe = shlo_jit.compile(text, dynamic="symbolic", target=target, threads=2, cache=False)
    assert isinstance(exe, DynamicExecutable)
    codes = set()
    for n in sizes:
        arrays = arguments(exe, n, high)
        shapes = [a.shape for a in arrays]
        code = exe.executable(shapes)
        assert isinstance(code, Executable)
        assert code.symbol is not None, exe.text("plan", shapes).splitlines()[0]
        codes.add(id(code))
        wanted = evaluate(shlo_jit.refine(text, shapes), *arrays)
        found = [call(code, arrays, at_end) for at_end in (True, False)]
        for results in (outputs(exe(*arrays)), *found):
            for got, want in zip(results, wanted, strict=True):
                assert got.dtype == want.dtype
                wide = np.complex128 if got.dtype.kind == "c" else np.float64
                np.testing.assert_array_equal(got.astype(wide), want.astype(wide), f"for {n}", strict=True)
    assert len(codes) == 1


def arguments(exe: DynamicExecutable, n: int, high: int) -> list[np.ndarray]:
    """Returns whole numbers below `high` for a batch of n, including negative ones for floats."""
    generator = np.random.default_rng(n)
    found = []
    for port in exe.inputs:
        dtype = np.dtype(port.dtype)
        low = -high if dtype.kind == "f" or dtype == ml_dtypes.bfloat16 else 0
        shape = tuple(n if extent is None else extent for extent in port.shape or ())
        found.append(generator.integers(low, high, shape).astype(dtype))
    return found
