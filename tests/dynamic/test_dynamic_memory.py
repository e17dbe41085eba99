"""Code for sizes that were not used for long is freed, with everything that it holds."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
from test_data_dependent import POSITIVE

import shlo_jit
from shlo_jit import tuning

NEGATE = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.negate %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
MANY_SIZES = """
import gc, pathlib, sys
import numpy as np
import shlo_jit
from shlo_jit import tuning

tuning.SPECIALIZATIONS = 20
dynamic = shlo_jit.compile(sys.argv[1], cache=False)
for n in range(1, 1101):
    dynamic(np.ones(n, np.float32))
    if n in (100, 1100):
        gc.collect()
        (line,) = (x for x in pathlib.Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
        print(int(line.split()[1]))
"""


def test_unused_code_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SPECIALIZATIONS", 2)
    dynamic = shlo_jit.compile(NEGATE)
    codes = [weakref.ref(dynamic.executable([(n,)])) for n in range(1, 6)]
    for n in range(1, 6):
        dynamic(np.ones(n, np.float32))
    gc.collect()
    assert [code() is not None for code in codes[:3]] == [False] * 3


def test_code_for_sizes_that_depend_on_data_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SPECIALIZATIONS", 2)
    dynamic = shlo_jit.compile(POSITIVE)
    codes = []
    for count in range(5):
        dynamic(np.where(np.arange(6) < count, 1, -1).astype(np.float32))
        codes.append(weakref.ref(dynamic.executable()._latest()))  # type: ignore[union-attr]
    gc.collect()
    assert [code() is not None for code in codes] == [False, False, False, True, True]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_sizes() -> None:
    """For a thousand more sizes, the memory of each (at least 20 KB) would add up to 20 MB."""
    command = [sys.executable, "-c", MANY_SIZES, NEGATE]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    before, after = map(int, done.stdout.split())
    assert after - before < 6 * 1024
