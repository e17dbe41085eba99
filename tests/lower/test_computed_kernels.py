"""Convolutions that compute their kernel while they pack it: the reference's results, in guarded memory, with the same
bits for any number of threads.

    RANDOM_PROGRAMS=2000 pytest -m slow tests/lower/test_computed_kernels.py
"""

from __future__ import annotations

import guarded
import numpy as np
import pytest
import random_check
from random_kernels import random_kernel
from random_runs import seeds

import shlo_jit
from shlo_jit import tuning

SPREAD = {"PARALLEL_WORK": 1, "TASK_WORK": 64, "GEMM_SERIAL": 1, "GEMM_TASK": 1 << 12, "CONV_COPY_BYTES": 1 << 10}
"""Thresholds for which small convolutions have several tasks."""
COMPUTED = "computed while it is packed"


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are computed however small they are, and whatever that saves."""
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_BYTES", 0)
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_SHARE", 1e9)
    monkeypatch.setattr(tuning, "COMPUTED_KERNEL_FEATURES", 4)


def run(numbers: range) -> int:
    """Checks programs; returns how many of them computed the kernel while it was packed."""
    found = 0
    for seed in numbers:
        text, arguments = random_kernel(seed)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in SPREAD.items() if seed % 2 else ():
                patch.setattr(tuning, name, value)
            try:
                random_check.check(text, arguments, "x86-64-v3" if seed % 3 == 0 else "native")
                threads = (1, 2, 3, 8) if seed % 10 == 1 else (1,)
                outs = [shlo_jit.compile(text, threads=n, cache=False) for n in threads]
                bits = {guarded.outputs(exe(*arguments))[0].tobytes() for exe in outs}
                assert len(bits) == 1, "the bits depend on the number of threads"
            except Exception as e:
                e.add_note(f"program {seed}:\n{text}")
                raise
        found += COMPUTED in outs[0].text("schedule")
    return found


@pytest.mark.parametrize("first", range(0, 80, 10))
def test_random_programs(first: int) -> None:
    assert run(range(first, first + 10)) > 0


@pytest.mark.slow
def test_many_random_programs() -> None:
    assert run(numbers := seeds(200)) > 0.3 * len(numbers)


PROGRAM = """
func.func @main(%x: tensor<{image}xf32>, %w: tensor<{kernel}xi8>, %s: tensor<96xf32>) -> tensor<{image}xf32> {{
  %f = stablehlo.convert %w : (tensor<{kernel}xi8>) -> tensor<{kernel}xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [{co}] : (tensor<96xf32>) -> tensor<{kernel}xf32>
  %d = stablehlo.multiply %f, %t : tensor<{kernel}xf32>
  %y = stablehlo.convolution(%x, %d) dim_numbers = {numbers}, window = {{pad = [[1, 1], [1, 1]]{more}}}
      {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
      : (tensor<{image}xf32>, tensor<{kernel}xf32>) -> tensor<{image}xf32>
  return %y : tensor<{image}xf32>
}}"""
HWIO = {"image": "1x9x9x96", "kernel": "3x3x96x96", "co": 3, "numbers": "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"}
OIHW = {"image": "1x96x9x9", "kernel": "96x96x3x3", "co": 0, "numbers": "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"}
OHWI = {"image": "1x9x9x96", "kernel": "96x3x3x96", "co": 0, "numbers": "[b, 0, 1, f]x[o, 0, 1, i]->[b, 0, 1, f]"}


@pytest.mark.parametrize("layout", [HWIO, OIHW, OHWI], ids=["hwio", "oihw", "ohwi"])
@pytest.mark.parametrize("are_constant", [False, True])
def test_the_kernel_is_never_in_memory(layout: dict[str, object], are_constant: bool) -> None:
    """The arena has no room for the kernel beside its panels, whether weights are arguments or constants."""
    text, rng = PROGRAM.format(more="", **layout), np.random.default_rng(0)
    shapes = [[int(n) for n in str(layout[name]).split("x")] for name in ("image", "kernel")]
    x, w = rng.standard_normal(shapes[0], np.float32), rng.integers(-127, 128, shapes[1]).astype(np.int8)
    s = rng.random(96, np.float32)
    given = {1: w, 2: s} if are_constant else {}
    exe = shlo_jit.compile(text, threads=2, cache=False, constants=given)
    assert COMPUTED in exe.text("schedule")
    kernel = 4 * w.size
    assert kernel <= exe.memory.arena < 1.8 * kernel
    scaled = [96 if layout["co"] == d else 1 for d in range(4)]
    wide = w.astype(np.float32) * s.reshape(scaled)
    plain = shlo_jit.compile(PLAIN.format(**layout), threads=2, cache=False)
    arrays = (x,) if are_constant else (x, w, s)
    assert exe(*arrays).tobytes() == plain(x, wide).tobytes()


PLAIN = """
func.func @main(%x: tensor<{image}xf32>, %w: tensor<{kernel}xf32>) -> tensor<{image}xf32> {{
  %y = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{pad = [[1, 1], [1, 1]]}}
      {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
      : (tensor<{image}xf32>, tensor<{kernel}xf32>) -> tensor<{image}xf32>
  return %y : tensor<{image}xf32>
}}"""


def test_narrow_panels_are_not_overwritten() -> None:
    """Rows of OIHW kernels are transposed in vectors, which are wider than the panels of a few output features."""
    text, arguments = random_kernel(354)
    random_check.check(text, arguments, "x86-64-v3")
    assert COMPUTED in shlo_jit.compile(text, target="x86-64-v3", cache=False).text("schedule")


def test_a_kernel_of_a_reversed_window_is_in_memory() -> None:
    text = PROGRAM.format(more=", reverse = [true, true]", **HWIO)
    plan = shlo_jit.compile(text, cache=False).text("plan")
    assert "[reversed-window]" in plan and COMPUTED not in plan
