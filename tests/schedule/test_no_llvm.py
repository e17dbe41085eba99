"""Scheduling does not depend on LLVM: it runs if llvmlite and the code writers cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from decisions import main, tensor

import shlo_jit

T = tensor(64, 64)
PROGRAM = main(
    f"%a: {T}, %b: {T}, %c: tensor<8x64xcomplex<f32>>",
    T,
    f"%d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}",
    f"%f = stablehlo.cholesky %d, lower = true : {T}",
    '%s = "stablehlo.sort"(%f) <{dimension = 1 : i64}> ({',
    "^bb0(%l: tensor<f32>, %r: tensor<f32>):",
    "%lt = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>",
    "stablehlo.return %lt : tensor<i1>",
    f"}}) : ({T}) -> {T}",
    "%e = stablehlo.fft %c, type = FFT, length = [64] : (tensor<8x64xcomplex<f32>>) -> tensor<8x64xcomplex<f32>>",
    "%g = stablehlo.real %e : (tensor<8x64xcomplex<f32>>) -> tensor<8x64xf32>",
    f"%h = stablehlo.reshape %g : (tensor<8x64xf32>) -> {tensor(512)}",
    f"%i = stablehlo.slice %h [0:64] : ({tensor(512)}) -> {tensor(64)}",
    f"%j = stablehlo.broadcast_in_dim %i, dims = [1] : ({tensor(64)}) -> {T}",
    f"%y = stablehlo.add %s, %j : {T}",
)
SCRIPT = """
import sys, types

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "llvmlite" or name.startswith("shlo_jit.lower"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refused())
package = types.ModuleType("shlo_jit")
package.__path__ = [sys.argv[1]]
sys.modules["shlo_jit"] = package  # without what `import shlo_jit` loads for everyone
sys.path.insert(0, sys.argv[2])
import decisions
for found in decisions.schedules(sys.stdin.read()):
    print(type(found).__name__)
"""


def test_scheduling_imports_neither_llvm_nor_what_writes_code() -> None:
    folders = [str(Path(shlo_jit.__file__).parent), str(Path(__file__).parent)]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *folders],
        input=PROGRAM,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    kinds = {"ProductSchedule", "CholeskySchedule", "SortSchedule", "FftSchedule", "NestSchedule"}
    assert kinds <= set(run.stdout.split())
