"""No program touches memory outside of its arguments: each argument is next to an inaccessible page.

The programs run in a process of their own, which a stray access would end.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import jax, numpy as np, shlo_jit
from guarded import guarded
from test_programs import PROGRAMS, outputs
for name, (function, *arguments) in PROGRAMS.items():
    print(name, flush=True)
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    for target in ("native", "x86-64-v3"):
        exe = shlo_jit.compile(text, target=target)
        want = [o.tobytes() for o in outputs(exe(*arguments))]
        for at_end in (True, False):
            got = exe(*(guarded(a, at_end) for a in arguments))
            assert [o.tobytes() for o in outputs(got)] == want, name
print("done")
"""

OUT_OF_BOUNDS = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np, shlo_jit
from guarded import guarded
INDICES = np.array([-5, 0, 3, 7, 2**31 - 1, -2**31], np.int32)
TEXT = '''
func.func @main(%x: tensor<5x7xf32>, %i: tensor<6x1xi32>, %u: tensor<6x7xf32>, %s: tensor<i32>, %w: tensor<2x3xf32>)
    -> (tensor<6x7xf32>, tensor<5x7xf32>, tensor<2x3xf32>, tensor<5x7xf32>) {{
  %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 7>}}>
      : (tensor<5x7xf32>, tensor<6x1xi32>) -> tensor<6x7xf32>
  %1 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }}) : (tensor<5x7xf32>, tensor<6x1xi32>, tensor<6x7xf32>) -> tensor<5x7xf32>
  %2 = stablehlo.dynamic_slice %x, %s, %s, sizes = [2, 3] : (tensor<5x7xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  %3 = stablehlo.dynamic_update_slice %x, %w, %s, %s
      : (tensor<5x7xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<5x7xf32>
  return %0, %1, %2, %3 : tensor<6x7xf32>, tensor<5x7xf32>, tensor<2x3xf32>, tensor<5x7xf32>
}}'''
x = np.arange(35, dtype=np.float32).reshape(5, 7)
u = np.ones((6, 7), np.float32)
w = np.full((2, 3), -1, np.float32)
for target in ("native", "x86-64-v3"):
    exe = shlo_jit.compile(TEXT, target=target)
    for start in (-2**31, -1, 2, 100, 2**31 - 1):
        row, column = min(max(start, 0), 3), min(max(start, 0), 4)
        updated = x.copy()
        updated[row : row + 2, column : column + 3] = -1
        scattered = x.copy()
        for i in INDICES:
            if 0 <= i < 5:
                scattered[i] += 1
        for at_end in (True, False):
            args = [guarded(a, at_end) for a in (x, INDICES.reshape(6, 1), u, np.int32(start), w)]
            taken, added, part, changed = exe(*args)
            assert np.array_equal(taken, x[np.clip(INDICES, 0, 4)])
            assert np.array_equal(added, scattered)
            assert np.array_equal(part, x[row : row + 2, column : column + 3])
            assert np.array_equal(changed, updated)
print("done")
"""


def run(script: str) -> None:
    text = script.format(folder=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=600)
    lines = done.stdout.splitlines() or ["nothing"]
    assert lines[-1] == "done", f"exit {done.returncode} in {lines[-1]}\n{done.stderr[-2000:]}"


def test_arguments_against_guard_pages() -> None:
    pytest.importorskip("jax")
    run(SCRIPT)


def test_indices_out_of_bounds() -> None:
    run(OUT_OF_BOUNDS)
