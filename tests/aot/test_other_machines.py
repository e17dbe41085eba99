"""Libraries for other processors, run by an emulator: kernels of every family give what they give here, up to rounding
(lanes choose the order of sums, so not the same bits)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from building import Host, inputs

import shlo_jit

MACHINES = {
    "x86_64-linux:x86-64": ("cc", ("qemu-x86_64", "-cpu", "qemu64")),
    "x86_64-linux:x86-64-v2": ("cc", ("qemu-x86_64", "-cpu", "Nehalem")),
    "x86_64-linux:x86-64-v3": ("cc", ("qemu-x86_64", "-cpu", "Haswell")),
    "aarch64-linux": ("aarch64-linux-gnu-gcc", ("qemu-aarch64", "-cpu", "cortex-a57", "-L", "/usr/aarch64-linux-gnu")),
    "aarch64-linux:neoverse-v1": (
        "aarch64-linux-gnu-gcc",
        ("qemu-aarch64", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"),
    ),
    "riscv64-linux": (
        "riscv64-linux-gnu-gcc",
        ("qemu-riscv64", "-cpu", "rv64,v=false", "-L", "/usr/riscv64-linux-gnu"),
    ),
    "riscv64-linux+v": (
        "riscv64-linux-gnu-gcc",
        ("qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0", "-L", "/usr/riscv64-linux-gnu"),
    ),
}

PRODUCT = """
func.func @main(%x: tensor<70x131x{0}>, %w: tensor<131x53x{0}>) -> tensor<70x53x{1}> {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<70x131x{0}>, tensor<131x53x{0}>) -> tensor<70x53x{1}>
  return %0 : tensor<70x53x{1}>
}}"""
CONVOLUTION = """
func.func @main(%x: tensor<2x19x21x5x{0}>, %w: tensor<3x3x5x18x{0}>) -> tensor<2x19x21x18x{0}> {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<2x19x21x5x{0}>, tensor<3x3x5x18x{0}>) -> tensor<2x19x21x18x{0}>
  return %0 : tensor<2x19x21x18x{0}>
}}"""
TRANSFORM = """
func.func @main(%x: tensor<9x{0}x{1}>) -> (tensor<9x{0}xcomplex<{1}>>, tensor<9x{0}x{1}>) {{
  %c = stablehlo.complex %x, %x : tensor<9x{0}xcomplex<{1}>>
  %0 = stablehlo.fft %c, type = FFT, length = [{0}] : (tensor<9x{0}xcomplex<{1}>>) -> tensor<9x{0}xcomplex<{1}>>
  %1 = stablehlo.fft %x, type = RFFT, length = [{0}] : (tensor<9x{0}x{1}>) -> tensor<9x{2}xcomplex<{1}>>
  %2 = stablehlo.fft %1, type = IRFFT, length = [{0}] : (tensor<9x{2}xcomplex<{1}>>) -> tensor<9x{0}x{1}>
  return %0, %2 : tensor<9x{0}xcomplex<{1}>>, tensor<9x{0}x{1}>
}}"""
SORT = """
func.func @main(%x: tensor<4x3000x{0}>) -> (tensor<4x3000x{0}>) {{
  %0 = "stablehlo.sort"(%x) ({{
  ^bb0(%a: tensor<{0}>, %b: tensor<{0}>):
    %1 = stablehlo.compare LT, %a, %b, {1} : (tensor<{0}>, tensor<{0}>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }}) {{dimension = 1 : i64, is_stable = true}} : (tensor<4x3000x{0}>) -> tensor<4x3000x{0}>
  return %0 : tensor<4x3000x{0}>
}}"""
ELEMENTWISE = """
func.func @main(%x: tensor<33x517x{0}>, %y: tensor<33x517x{0}>) -> (tensor<33x517x{0}>, tensor<33x{0}>, tensor<517x{0}>) {{
  %0 = stablehlo.tanh %x : tensor<33x517x{0}>
  %1 = stablehlo.exponential %y : tensor<33x517x{0}>
  %2 = stablehlo.power %1, %0 : tensor<33x517x{0}>
  %3 = stablehlo.floor %y : tensor<33x517x{0}>
  %4 = stablehlo.round_nearest_even %y : tensor<33x517x{0}>
  %5 = stablehlo.add %3, %4 : tensor<33x517x{0}>
  %6 = stablehlo.sine %5 : tensor<33x517x{0}>
  %7 = stablehlo.divide %2, %1 : tensor<33x517x{0}>
  %8 = stablehlo.add %6, %7 : tensor<33x517x{0}>
  %z = stablehlo.constant dense<0.0> : tensor<{0}>
  %r = stablehlo.reduce(%8 init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<33x517x{0}>, tensor<{0}>) -> tensor<33x{0}>
  %s = stablehlo.reduce(%8 init: %z) applies stablehlo.maximum across dimensions = [0]
    : (tensor<33x517x{0}>, tensor<{0}>) -> tensor<517x{0}>
  return %8, %r, %s : tensor<33x517x{0}>, tensor<33x{0}>, tensor<517x{0}>
}}"""
INTEGERS = """
func.func @main(%x: tensor<513xi64>, %y: tensor<513xi8>, %k: tensor<20xi32>) -> (tensor<513xi64>, tensor<20xi8>) {
  %c = stablehlo.constant dense<7> : tensor<513xi64>
  %0 = stablehlo.divide %x, %c : tensor<513xi64>
  %1 = stablehlo.popcnt %0 : tensor<513xi64>
  %2 = stablehlo.multiply %1, %x : tensor<513xi64>
  %i = stablehlo.reshape %k : (tensor<20xi32>) -> tensor<20x1xi32>
  %3 = "stablehlo.gather"(%y, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>, indices_are_sorted = false}
    : (tensor<513xi8>, tensor<20x1xi32>) -> tensor<20xi8>
  return %2, %3 : tensor<513xi64>, tensor<20xi8>
}
"""
PROGRAMS = {
    "product f32": PRODUCT.format("f32", "f32"),
    "product f64": PRODUCT.format("f64", "f64"),
    "product f16": PRODUCT.format("f16", "f32"),
    "product bf16": PRODUCT.format("bf16", "f32"),
    "product i8": PRODUCT.format("i8", "i32"),
    "product complex": PRODUCT.format("complex<f64>", "complex<f64>"),
    "convolution f32": CONVOLUTION.format("f32"),
    "convolution f64": CONVOLUTION.format("f64"),
    "convolution f16": CONVOLUTION.format("f16"),
    "transform 60": TRANSFORM.format(60, "f32", 31),
    "transform 101": TRANSFORM.format(101, "f64", 51),
    "transform 1024": TRANSFORM.format(1024, "f64", 513),
    "sort f32": SORT.format("f32", "FLOAT"),
    "sort i8": SORT.format("i8", "SIGNED"),
    "elementwise f32": ELEMENTWISE.format("f32"),
    "elementwise f64": ELEMENTWISE.format("f64"),
    "elementwise f16": ELEMENTWISE.format("f16"),
    "integers": INTEGERS,
}
TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-2}


@pytest.mark.parametrize("target", MACHINES)
def test_results(target: str, tmp_path: Path) -> None:
    compiler, emulator = MACHINES[target]
    if shutil.which(compiler) is None or shutil.which(emulator[0]) is None:
        pytest.skip(f"needs {compiler} and {emulator[0]}")
    for number, (title, text) in enumerate(PROGRAMS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        here = shlo_jit.compile(text, threads=1)
        arguments = inputs(here)
        expected = here(*arguments)
        library = folder / "model.so"
        shlo_jit.export(text, library, header=folder / "model.h", name="model", target=target)
        host = Host(folder, folder / "model.h", compiler)
        found = host.call(library, "model", arguments, here.outputs, under=emulator)
        for got, wanted in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert_close(got, wanted, title)


def assert_close(got: np.ndarray, wanted: np.ndarray, title: str) -> None:
    if got.dtype.kind in "iu":
        assert (got == wanted).all(), title
        return
    kind = {2: "f16", 4: "f32", 8: "f64"}[got.real.dtype.itemsize]
    largest = np.abs(wanted.astype(np.complex128 if wanted.dtype.kind == "c" else np.float64)).max()
    np.testing.assert_allclose(got, wanted, TOLERANCE[kind], TOLERANCE[kind] * largest, err_msg=title)
