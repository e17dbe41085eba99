"""A small program for every kind of kernel, to be run without a framework.

Results on other machines are compared with those of this machine.
"""

from __future__ import annotations

_MATH = "exponential log tanh logistic sine cosine sqrt rsqrt cbrt log_plus_one exponential_minus_one".split()


def _elementwise() -> str:
    t = "tensor<5x37xf32>"
    lines = [f"%a = stablehlo.abs %x : {t}", f"%v0 = stablehlo.add %a, %a : {t}"]
    for n, op in enumerate(_MATH):
        lines += [f"%m{n} = stablehlo.{op} %a : {t}", f"%v{n + 1} = stablehlo.add %v{n}, %m{n} : {t}"]
    body = "\n  ".join(lines)
    return f"func.func @main(%x: {t}) -> {t} {{\n  {body}\n  return %v{len(_MATH)} : {t}\n}}"


def _through(dtype: str) -> str:
    t, s = f"tensor<300x{dtype}>", "tensor<300xf32>"
    return f"""
func.func @main(%x: {s}) -> {s} {{
  %0 = stablehlo.convert %x : ({s}) -> {t}
  %1 = stablehlo.multiply %0, %0 : {t}
  %2 = stablehlo.convert %1 : ({t}) -> {s}
  return %2 : {s}
}}"""


def _dot(dtype: str, out: str, m: int, k: int, n: int) -> str:
    a, b, c = f"tensor<{m}x{k}x{dtype}>", f"tensor<{k}x{n}x{dtype}>", f"tensor<{m}x{n}x{out}>"
    return f"""
func.func @main(%x: {a}, %y: {b}) -> {c} {{
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}
  return %0 : {c}
}}"""


KINDS = {
    "elementwise": _elementwise(),
    "f64": """
func.func @main(%x: tensor<77xf64>, %y: tensor<77xf64>) -> tensor<77xf64> {
  %0 = stablehlo.power %x, %y : tensor<77xf64>
  %1 = stablehlo.atan2 %x, %y : tensor<77xf64>
  %2 = stablehlo.exponential %x : tensor<77xf64>
  %3 = stablehlo.select %4, %1, %2 : tensor<77xi1>, tensor<77xf64>
  return %3 : tensor<77xf64>
}""".replace("%3 = ", "%4 = stablehlo.compare LT, %0, %y : (tensor<77xf64>, tensor<77xf64>) -> tensor<77xi1>\n  %3 = "),
    "complex": """
func.func @main(%x: tensor<50xf32>, %y: tensor<50xf32>) -> (tensor<50xf32>, tensor<50xf32>) {
  %0 = stablehlo.complex %x, %y : tensor<50xcomplex<f32>>
  %1 = stablehlo.exponential %0 : tensor<50xcomplex<f32>>
  %2 = stablehlo.multiply %1, %0 : tensor<50xcomplex<f32>>
  %3 = stablehlo.real %2 : (tensor<50xcomplex<f32>>) -> tensor<50xf32>
  %4 = stablehlo.imag %2 : (tensor<50xcomplex<f32>>) -> tensor<50xf32>
  return %3, %4 : tensor<50xf32>, tensor<50xf32>
}""",
    "f16": _through("f16"),
    "bf16": _through("bf16"),
    "f8": _through("f8E4M3FN"),
    "integers": """
func.func @main(%x: tensor<97xi64>, %y: tensor<97xi32>) -> (tensor<97xi64>, tensor<97xi32>, tensor<97xi8>) {
  %c = stablehlo.constant dense<7> : tensor<97xi64>
  %0 = stablehlo.remainder %x, %c : tensor<97xi64>
  %1 = stablehlo.popcnt %y : tensor<97xi32>
  %2 = stablehlo.shift_left %y, %1 : tensor<97xi32>
  %3 = stablehlo.convert %2 : (tensor<97xi32>) -> tensor<97xi8>
  return %0, %2, %3 : tensor<97xi64>, tensor<97xi32>, tensor<97xi8>
}""",
    "reduce": """
func.func @main(%x: tensor<33x70xf32>) -> (tensor<33xf32>, tensor<70xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<33x70xf32>, tensor<f32>) -> tensor<33xf32>
  %1 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0]
    : (tensor<33x70xf32>, tensor<f32>) -> tensor<70xf32>
  %2 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<33x70xf32>, tensor<f32>) -> tensor<f32>
  return %0, %1, %2 : tensor<33xf32>, tensor<70xf32>, tensor<f32>
}""",
    "dot": _dot("f32", "f32", 65, 130, 75),
    "dot of one row": _dot("f32", "f32", 1, 300, 70),
    "dot of f64": _dot("f64", "f64", 20, 30, 40),
    "dot of bf16": _dot("bf16", "f32", 33, 64, 48),
    "dot of i8": _dot("i8", "i32", 33, 64, 48),
    "dot of ui8": _dot("ui8", "i32", 21, 70, 50),
    "dot of few rows of i8": _dot("i8", "i32", 3, 301, 270),
    "dot of one row of ui8": _dot("ui8", "i32", 1, 512, 256),
    "convolution": """
func.func @main(%x: tensor<1x14x14x8xf32>, %w: tensor<3x3x8x16xf32>) -> tensor<1x14x14x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x14x14x8xf32>, tensor<3x3x8x16xf32>) -> tensor<1x14x14x16xf32>
  return %0 : tensor<1x14x14x16xf32>
}""",
    "convolution of f64": """
func.func @main(%x: tensor<1x9x9x5xf64>, %w: tensor<3x3x5x7xf64>) -> tensor<1x4x4x7xf64> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x9x9x5xf64>, tensor<3x3x5x7xf64>) -> tensor<1x4x4x7xf64>
  return %0 : tensor<1x4x4x7xf64>
}""",
    "complex dot": """
func.func @main(%x: tensor<9x20xf64>, %y: tensor<20x11xf64>) -> (tensor<9x11xf64>, tensor<9x11xf64>) {
  %0 = stablehlo.complex %x, %x : tensor<9x20xcomplex<f64>>
  %1 = stablehlo.complex %y, %y : tensor<20x11xcomplex<f64>>
  %2 = stablehlo.multiply %1, %1 : tensor<20x11xcomplex<f64>>
  %3 = stablehlo.dot_general %0, %2, contracting_dims = [1] x [0]
    : (tensor<9x20xcomplex<f64>>, tensor<20x11xcomplex<f64>>) -> tensor<9x11xcomplex<f64>>
  %4 = stablehlo.real %3 : (tensor<9x11xcomplex<f64>>) -> tensor<9x11xf64>
  %5 = stablehlo.imag %3 : (tensor<9x11xcomplex<f64>>) -> tensor<9x11xf64>
  return %4, %5 : tensor<9x11xf64>, tensor<9x11xf64>
}""",
    "depthwise convolution": """
func.func @main(%x: tensor<1x14x14x16xf32>, %w: tensor<3x3x1x16xf32>) -> tensor<1x12x12x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 16 : i64}
    : (tensor<1x14x14x16xf32>, tensor<3x3x1x16xf32>) -> tensor<1x12x12x16xf32>
  return %0 : tensor<1x12x12x16xf32>
}""",
    "window": """
func.func @main(%x: tensor<1x16x16x4xf32>) -> tensor<1x8x8x4xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %low) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}
    : (tensor<1x16x16x4xf32>, tensor<f32>) -> tensor<1x8x8x4xf32>
  return %0 : tensor<1x8x8x4xf32>
}""",
    "running sum": """
func.func @main(%x: tensor<4x100xf32>) -> tensor<4x100xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 1, 100>, padding = dense<[[0, 0], [99, 0]]> : tensor<2x2xi64>}
    : (tensor<4x100xf32>, tensor<f32>) -> tensor<4x100xf32>
  return %0 : tensor<4x100xf32>
}""",
    "sort": """
func.func @main(%x: tensor<3x200xf32>) -> tensor<3x200xf32> {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<3x200xf32>) -> tensor<3x200xf32>
  return %0 : tensor<3x200xf32>
}""",
    "top_k": """
func.func @main(%x: tensor<3x200xf32>) -> (tensor<3x7xf32>, tensor<3x7xi32>) {
  %0, %1 = chlo.top_k(%x, k = 7) : tensor<3x200xf32> -> (tensor<3x7xf32>, tensor<3x7xi32>)
  return %0, %1 : tensor<3x7xf32>, tensor<3x7xi32>
}""",
    "gather": """
func.func @main(%x: tensor<10x16xf32>, %i: tensor<6x1xi32>) -> tensor<6x16xf32> {
  %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 16>}
    : (tensor<10x16xf32>, tensor<6x1xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}""",
    "scatter": """
func.func @main(%x: tensor<10x16xf32>, %i: tensor<6x1xi32>, %u: tensor<6x16xf32>) -> tensor<10x16xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<10x16xf32>, tensor<6x1xi32>, tensor<6x16xf32>) -> tensor<10x16xf32>
  return %0 : tensor<10x16xf32>
}""",
    "fft": """
func.func @main(%x: tensor<3x60xf32>) -> (tensor<3x31xf32>, tensor<3x31xf32>) {
  %0 = stablehlo.fft %x, type = RFFT, length = [60] : (tensor<3x60xf32>) -> tensor<3x31xcomplex<f32>>
  %1 = stablehlo.real %0 : (tensor<3x31xcomplex<f32>>) -> tensor<3x31xf32>
  %2 = stablehlo.imag %0 : (tensor<3x31xcomplex<f32>>) -> tensor<3x31xf32>
  return %1, %2 : tensor<3x31xf32>, tensor<3x31xf32>
}""",
    "data movement": """
func.func @main(%x: tensor<6x7x8xf32>) -> tensor<8x16x6xf32> {
  %c = stablehlo.constant dense<3.0> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [2, 1, 0] : (tensor<6x7x8xf32>) -> tensor<8x7x6xf32>
  %1 = stablehlo.reverse %0, dims = [1] : tensor<8x7x6xf32>
  %2 = stablehlo.pad %1, %c, low = [0, 1, 0], high = [0, 1, 0], interior = [0, 0, 0]
    : (tensor<8x7x6xf32>, tensor<f32>) -> tensor<8x9x6xf32>
  %3 = stablehlo.concatenate %2, %0, dim = 1 : (tensor<8x9x6xf32>, tensor<8x7x6xf32>) -> tensor<8x16x6xf32>
  return %3 : tensor<8x16x6xf32>
}""",
    "loop": """
func.func @main(%x: tensor<16x16xf32>) -> (tensor<i32>, tensor<16x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<16x16xf32>
  cond {
    %three = stablehlo.constant dense<3> : tensor<i32>
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    %3 = stablehlo.dot_general %y, %x, contracting_dims = [1] x [0]
      : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %4 = stablehlo.tanh %3 : tensor<16x16xf32>
    stablehlo.return %2, %4 : tensor<i32>, tensor<16x16xf32>
  }
  return %0#0, %0#1 : tensor<i32>, tensor<16x16xf32>
}""",
    "random bits": """
func.func @main(%s: tensor<2xui64>) -> (tensor<2xui64>, tensor<50xui32>) {
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<50xui32>)
  return %0, %1 : tensor<2xui64>, tensor<50xui32>
}""",
    "cholesky": """
func.func @main(%x: tensor<9x9xf32>) -> tensor<9x9xf32> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
    : (tensor<9x9xf32>, tensor<9x9xf32>) -> tensor<9x9xf32>
  %1 = stablehlo.iota dim = 0 : tensor<9x9xi32>
  %2 = stablehlo.iota dim = 1 : tensor<9x9xi32>
  %3 = stablehlo.compare EQ, %1, %2 : (tensor<9x9xi32>, tensor<9x9xi32>) -> tensor<9x9xi1>
  %4 = stablehlo.convert %3 : (tensor<9x9xi1>) -> tensor<9x9xf32>
  %5 = stablehlo.add %0, %4 : tensor<9x9xf32>
  %6 = stablehlo.cholesky %5, lower = true : tensor<9x9xf32>
  return %6 : tensor<9x9xf32>
}""",
    "case": """
func.func @main(%i: tensor<i32>, %x: tensor<40xf32>) -> tensor<40xf32> {
  %0 = "stablehlo.case"(%i) ({
    %1 = stablehlo.sine %x : tensor<40xf32>
    stablehlo.return %1 : tensor<40xf32>
  }, {
    %1 = stablehlo.cosine %x : tensor<40xf32>
    stablehlo.return %1 : tensor<40xf32>
  }) : (tensor<i32>) -> tensor<40xf32>
  return %0 : tensor<40xf32>
}""",
}
"""Programs by name."""
TOLERANCE = {"f2": 2e-3, "bfloat16": 2e-2, "f4": 2e-5, "f8": 1e-12}
"""Tolerances relative to the largest result: lanes determine the order of sums, and not all machines have a fused
multiply-add."""
