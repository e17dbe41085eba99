"""Kernels of every family are generated and compiled for every kind of machine, with any lanes and pointers."""

from __future__ import annotations

import pytest

from shlo_jit.codegen import optimize
from shlo_jit.codegen.objects import compile_routine
from shlo_jit.codegen.target import resolve
from shlo_jit.pipeline import program_of

FORMATS = {
    "x86_64-linux:x86-64": b"\x7fELF",
    "x86_64-linux:x86-64-v2": b"\x7fELF",
    "x86_64-none:x86-64-v3": b"\x7fELF",
    "x86_64-macos:x86-64-v4": b"\xcf\xfa\xed\xfe",
    "x86_64-windows:znver4": b"\x64\x86",
    "aarch64-linux": b"\x7fELF",
    "aarch64-linux:neoverse-v2": b"\x7fELF",
    "aarch64-macos:apple-m1": b"\xcf\xfa\xed\xfe",
    "riscv64-linux": b"\x7fELF",
    "riscv64-none+v": b"\x7fELF",
    "wasm32": b"\0asm",
    "wasm32+simd128": b"\0asm",
}
"""Maps a target to the first bytes of its objects."""

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
COMPUTED = """
func.func @main(%x: tensor<{0}x211xf32>, %w: tensor<{1}x{2}>, %s: tensor<101xf32>) -> tensor<{0}x101xf32> {{
  %0 = stablehlo.convert %w : (tensor<{1}x{2}>) -> tensor<{1}xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [{3}] : (tensor<101xf32>) -> tensor<{1}xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<{1}xf32>
  %3 = stablehlo.dot_general %x, %2, contracting_dims = [1] x [{4}]
    : (tensor<{0}x211xf32>, tensor<{1}xf32>) -> tensor<{0}x101xf32>
  return %3 : tensor<{0}x101xf32>
}}"""
BYTES = """
func.func @main(%x: tensor<{0}x511xi8>, %w: tensor<{1}x{2}>) -> tensor<{0}x301xi32> {{
  %0 = stablehlo.convert %w : (tensor<{1}x{2}>) -> tensor<{1}xi8>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [{3}]
    : (tensor<{0}x511xi8>, tensor<{1}xi8>) -> tensor<{0}x301xi32>
  return %1 : tensor<{0}x301xi32>
}}"""
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
    "outputs from i4": COMPUTED.format(3, "211x101", "i4", 1, 0),
    "terms from f8": COMPUTED.format(8, "101x211", "f8E4M3FN", 0, 1),
    "panels from i8": COMPUTED.format(70, "211x101", "i8", 1, 0),
    "bytes by outputs": BYTES.format(1, "511x301", "i8", 0),
    "bytes by terms": BYTES.format(2, "301x511", "i8", 1),
    "nibbles by outputs": BYTES.format(3, "511x301", "i4", 0),
    "nibbles by terms": BYTES.format(8, "301x511", "ui4", 1),
    "panels from nibbles": BYTES.format(70, "511x301", "i4", 0),
    "panels from f8": COMPUTED.format(70, "101x211", "f8E5M2", 0, 1),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.sampled(4)
def test_kernels_compile(name: str) -> None:
    target = resolve(name)
    for title, text in PROGRAMS.items():
        program = program_of(text, title, target)
        module = optimize.optimize(program.text, target)
        assert optimize.emit_object(module, target).startswith(FORMATS[name]), title
        for routine in program.routines:
            for code in compile_routine(routine, target).objects:
                assert code.startswith(FORMATS[name]), routine.name
