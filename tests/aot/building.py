"""Helpers for tests of exported libraries: programs with every kind of step, and C programs that use libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import shlo_jit

HOST = Path(__file__).with_name("host.c")
STRICT = ("-Wall", "-Wextra", "-Werror", "-O1", "-g")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

AFFINE = """
func.func @main(%x: tensor<4xf32>, %w: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<i32>) {
  %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %d = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %y = stablehlo.add %c, %d : tensor<4xf32>
  %i = stablehlo.constant dense<7> : tensor<i32>
  return %y, %i : tensor<4xf32>, tensor<i32>
}
"""
AFFINE_HOST = """
#include "model.h"
#include <math.h>
#include <stdio.h>

int main(void) {
  model_instance *instance;
  int32_t status = model_create(&instance, NULL), i = 0;
  float x[4] = {1, 2, 3, 4}, w[16] = {0}, y[4] = {0};
  w[0] = w[5] = w[10] = w[15] = 2;
  if (status) return printf("%s\\n", model_status_text(status)), 1;
  status = model_main(instance, x, w, y, &i);
  model_destroy(instance);
  return status || i != 7 || y[0] != 3 || y[1] != 6 || y[2] != 9 || y[3] != 12;
}
"""

CUSTOM = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @"my.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.custom_call @"other"(%0) {mhlo.backend_config = {factor = 3.0 : f32}} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""
SQUARE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.multiply %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


def dense(*shape: int, seed: int = 0) -> str:
    """A literal of normally distributed f32."""
    return '"0x' + np.random.default_rng(seed).standard_normal(shape, np.float32).tobytes().hex().upper() + '"'


def chain(n: int) -> str:
    """Two matrices among the constants, products that run in several threads, and a reduction."""
    t = f"tensor<{n}x{n}xf32>"
    return f"""
func.func @main(%x: {t}) -> (tensor<{n}xf32>, {t}) {{
  %a = stablehlo.constant dense<{dense(n, n)}> : {t}
  %b = stablehlo.constant dense<{dense(n, n, seed=1)}> : {t}
  %0 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
  %1 = stablehlo.tanh %0 : {t}
  %2 = stablehlo.dot_general %1, %b, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1]
    : ({t}, tensor<f32>) -> tensor<{n}xf32>
  return %3, %2 : tensor<{n}xf32>, {t}
}}
"""


def exported(text: str | Path, folder: Path, ending: str = ".so", **options) -> Path:
    """Exports a library `model`, with its header."""
    path = folder / f"model{ending}"
    shlo_jit.export(text, path, header=folder / "model.h", **options)
    return path


def run(command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    """Output of a command. A failure fails the test, with the output."""
    env = {**os.environ, **environment}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def build(source: Path, output: Path, *extra: str | Path, compiler: str = "cc") -> Path:
    """Compiles a C or C++ program without a warning."""
    run([compiler, *STRICT, f"-I{output.parent}", source, "-o", output, *extra])
    return output


class Host:
    """The program `host.c`, which calls libraries that it was not compiled for."""

    def __init__(self, folder: Path, header: Path, compiler: str = "cc", *flags: str) -> None:
        self.folder = folder
        self.path = build(HOST, folder / "host", *flags, f'-DSHLO_HEADER="{header}"', "-ldl", compiler=compiler)

    def call(
        self,
        library: Path,
        name: str,
        arrays: Sequence[np.ndarray],
        outputs: Sequence,
        *,
        function: int = 0,
        threads: int = 2,
        calls: int = 1,
        under: Sequence[str] = (),
        **environment: str,
    ) -> list[np.ndarray]:
        """Runs the host. `outputs`: signatures. `under`: a command to run the host with."""
        files = []
        for i, array in enumerate(arrays):
            files.append(self.folder / f"in{i}")
            np.ascontiguousarray(array).tofile(files[-1])
        results = [self.folder / f"out{i}" for i in range(len(outputs))]
        words = [self.path, library, name, function, threads, calls, *files, *results]
        run([*under, *map(str, words)], **environment)
        return [np.fromfile(p, s.dtype).reshape(s.shape) for p, s in zip(results, outputs, strict=True)]


def same(x: object, y: object) -> bool:
    """Whether results have the same types and bits."""
    xs, ys = (v if isinstance(v, tuple | list) else (v,) for v in (x, y))
    pairs = list(zip(xs, ys, strict=True))
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def inputs(executable: shlo_jit.runtime.executable.Executable, seed: int = 0) -> list[np.ndarray]:
    """Random arguments: normally distributed floats, small integers."""
    generator = np.random.default_rng(seed)
    made = []
    for signature in executable.inputs:
        if signature.dtype.kind in "iub":
            made.append(generator.integers(0, 2 if signature.dtype.kind == "b" else 10, signature.shape))
        else:
            made.append(generator.standard_normal(signature.shape))
    return [np.asarray(a).astype(s.dtype) for a, s in zip(made, executable.inputs, strict=True)]


def affine_arguments() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(4, dtype=np.float32), np.eye(4, dtype=np.float32)
