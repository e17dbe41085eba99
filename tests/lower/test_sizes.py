"""Every kind of kernel on every element type, at sizes around those of vectors, between inaccessible pages.

The values in the arena are apart as well, so that a step that writes beyond its result ends the process. Elements next
to a row that is written must not change.
"""

from __future__ import annotations

import guarded
import numpy as np
import pytest
from element_cases import Case, program, types
from sized_cases import sized
from test_every_type import NAMES, same, values

import shlo_jit
from shlo_jit.ir.types import DTYPES, DType
from shlo_jit.reference.interpreter import evaluate

SUMS = ("sum", "dot", "convolution")
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 129)


def inputs(chosen: list[Case], dtype: DType) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    found = []
    for case in chosen:
        exact = any(word in case.name for word in SUMS)
        for word, (_, shape, d) in zip(case.parameters.split(), types(case.parameters, dtype), strict=True):
            indices = case.name == "scattered" and word == "3x1xi32"
            found.append(
                np.array([[4], [0], [2]], np.int32) if indices else values(rng, shape, d, exact and d is dtype)
            )
    return found


def agree(n: int, name: str, target: str, apart: bool | None, threads: int = 2) -> None:
    dtype = DTYPES[name]
    chosen = sized(n, dtype)
    text, arrays = program(chosen, dtype), inputs(chosen, dtype)
    with np.errstate(all="ignore"):
        want = evaluate(shlo_jit.parse(text), *arrays)
    exe = guarded.compile(text, cache=False, threads=threads, target=target, apart=apart)
    got = exe(*arrays)
    assert not [c.name for c, g, w in zip(chosen, got, want, strict=True) if not same(g, w)]


@pytest.mark.parametrize("n", [17, 33])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(8)
def test_one_lane_after_vectors(name: str, n: int) -> None:
    agree(n, name, "native", apart=n == 33)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["native", "x86-64-v4", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("name", NAMES)
def test_every_size(name: str, target: str) -> None:
    for n in SIZES:
        agree(n, name, target, apart=True)
        agree(n, name, target, apart=False)
        agree(n, name, target, apart=None, threads=1)


@pytest.mark.parametrize("name", ["bf16", "i8", "f8E4M3FN", "ui16"])
def test_rows_of_several_threads(name: str) -> None:
    """A row that is written too far would change the first element of the next, which another thread has written."""
    dtype, rows = DTYPES[name], 6001
    text = f"""func.func @main(%a: tensor<{rows}x17xi32>) -> tensor<{rows}x17x{name}> {{
      %0 = stablehlo.convert %a : (tensor<{rows}x17xi32>) -> tensor<{rows}x17x{name}>
      %1 = stablehlo.reverse %0, dims = [1] : tensor<{rows}x17x{name}>
      return %1 : tensor<{rows}x17x{name}>
    }}"""
    x = np.random.default_rng(5).integers(0, 6, (rows, 17), np.int32)
    want = x[:, ::-1].astype(dtype.numpy).tobytes()
    exe = shlo_jit.compile(text, cache=False, threads=8)
    for _ in range(20):
        assert exe(x).tobytes() == want
