"""Some elementary functions of f32 have the same bits with AVX2 as with AVX-512, but for those with tables in registers.

`tests/aot/test_reproducible_targets.py` has all types and machines.
"""

from __future__ import annotations

import numpy as np
import pytest
from elementary_programs import differing, program

import shlo_jit
from shlo_jit.codegen.target import check_runs_here, resolve

OF_AVX512 = {"tanh f32", "erf f32", "erfc f32"}
OTHERS = {"exp f32", "log f32", "sin f32", "logistic f32", "sqrt f32", "atan2 f32"}


def test_functions_of_f32() -> None:
    try:
        check_runs_here(resolve("x86-64-v4"))
    except ValueError as error:
        pytest.skip(str(error))
    text, given, names = program(["f32"], [*OF_AVX512, *OTHERS])

    def on(target: str) -> list[np.ndarray]:
        exe = shlo_jit.compile(text, target=target, threads=1, cache=False)
        return [np.asarray(x) for x in exe(*given)]

    assert set(differing(on("x86-64-v3"), on("x86-64-v4"), names)) == OF_AVX512
