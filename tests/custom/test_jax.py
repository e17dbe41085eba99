"""JAX custom calls by name, compiled by us and on JAX's platform."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("numba")


def wave(a, b):
    return math.sin(a) * b if a > b else a - b


def function(x, y):
    call = jax.ffi.ffi_call("brought_wave", jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(x + y, y) * x


X, Y = np.linspace(-2, 2, 100, dtype=np.float32), np.linspace(3, 4, 100, dtype=np.float32)


def test_functions_of_jax():
    import shlo_jit.jax

    f = shlo_jit.jax.jit(function, custom_calls={"brought_wave": shlo_jit.elementwise(wave)})
    np.testing.assert_allclose(f(X, Y), [wave(a + b, b) * a for a, b in zip(X, Y, strict=True)], rtol=1e-5)


PLATFORM = """
import jax, numpy as np, shlo_jit, sys
sys.path.insert(0, FOLDER)
from test_jax import X, Y, function, wave
shlo_jit.register_custom_call("brought_wave", shlo_jit.elementwise(wave))
found = jax.jit(function)(X, Y)
print(np.allclose(found, [wave(a + b, b) * a for a, b in zip(X, Y)], rtol=1e-5))
"""


def test_the_platform():
    code = PLATFORM.replace("FOLDER", repr(__file__.rpartition("/")[0]))
    environment = {**os.environ, "JAX_PLATFORMS": "shlo"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "True\n", done.stderr[-2000:]
