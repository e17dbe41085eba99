"""Ops that multiply and sum."""

from __future__ import annotations

from cases_elementwise import Q
from table import call, rules

PER_AXIS = "!quant.uniform<i8:f32:1, {0.5, 0.25}>"
ZERO = "!quant.uniform<i8:f32, 0.5>"
"""Quantized type of an rhs, whose zero point is 0."""


def dot_general(types: str, batching: str = "", extra: str = "") -> str:
    numbers = f"{batching}lhs_contracting_dimensions = [{2 if batching else 1}], "
    numbers += f"rhs_contracting_dimensions = [{1 if batching else 0}]"
    return call("stablehlo.dot_general", 2, f"dot_dimension_numbers = #stablehlo.dot<{numbers}>{extra}", types)


BATCHING = "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
PLAIN = "(tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>"
ALGORITHM = (
    ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, rhs_precision_type = tf32, "
    "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, "
    "allow_imprecise_accumulation = false>"
)
HIGH = "#stablehlo<precision HIGH>"
QUANTIZED = f"(tensor<2x3x{Q}>, tensor<3x2x{ZERO}>) -> tensor<2x2x{Q}>"
QUANTIZED_AXIS = f"(tensor<2x3x{Q}>, tensor<3x2x{PER_AXIS}>) -> tensor<2x2x{PER_AXIS}>"
HYBRID = f"(tensor<2x3xf32>, tensor<3x2x{ZERO}>) -> tensor<2x2xf32>"
PRODUCTS = {"which": "C14", "storage": "C17", "expressed": "C18", "axis": "C19", "hybrid": "C20"}


def product_rules(labels: dict[str, str], lhs: str, result: str) -> tuple[tuple[str, ...], ...]:
    """Returns the rules on combinations of quantized types; `lhs` and `result` begin and end the signatures."""
    return (
        (f"{labels['which']} quantized", f"-> {result}x{Q}>", f"-> {result}xf32>"),
        (f"{labels['storage']} quantized", f"({lhs}x{Q}>", f"({lhs}x!quant.uniform<i4:f32, 0.5:3>>"),
        (f"{labels['expressed']} quantized", f"({lhs}x{Q}>", f"({lhs}x!quant.uniform<i8:f16, 0.5:3>>"),
        (f"{labels['axis']} quantized", f"-> {result}x{Q}>", f"-> {result}x{PER_AXIS}>"),
        (f"{labels['hybrid']} hybrid", f"({lhs}xf32>", f"({lhs}xf64>"),
    )


rules(
    "stablehlo.dot_general",
    {
        "": dot_general("(tensor<5x2x3xf32>, tensor<5x3x4xf32>) -> tensor<5x2x4xf32>", BATCHING),
        "precision": dot_general(PLAIN, extra=f", precision_config = [{HIGH}, {HIGH}]"),
        "algorithm": dot_general(PLAIN, extra=ALGORITHM),
        "default": dot_general(PLAIN, extra=ALGORITHM + ", precision_config = [#stablehlo<precision DEFAULT>]"),
        "quantized": dot_general(QUANTIZED),
        "axis": dot_general(QUANTIZED_AXIS),
        "hybrid": dot_general(HYBRID),
    },
    ("C1", "lhs_batching_dimensions = [0]", "lhs_batching_dimensions = []"),
    ("C2", "lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = []"),
    ("C3", "lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = [0]"),
    ("C4", "rhs_contracting_dimensions = [1]", "rhs_contracting_dimensions = [0]"),
    ("C5", "lhs_batching_dimensions = [0]", "lhs_batching_dimensions = [3]"),
    ("C5", "lhs_batching_dimensions = [0]", "lhs_batching_dimensions = [-1]"),
    ("C6", "lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = [3]"),
    ("C7", "rhs_batching_dimensions = [0]", "rhs_batching_dimensions = [3]"),
    ("C8", "rhs_contracting_dimensions = [1]", "rhs_contracting_dimensions = [3]"),
    ("C9", "(tensor<5x", "(tensor<4x"),
    ("C10", "tensor<5x3x4", "tensor<5x2x4"),
    ("C11 precision", f"{HIGH}]", f"{HIGH}, {HIGH}]"),
    ("C12", "-> tensor<5x2x4", "-> tensor<5x2x3"),
    ("C15 quantized", "f32, 0.5>", "f32, 0.5:1>"),
    ("C16 axis", "f32:1, {0.5, 0.25}>>)", "f32:0, {0.5, 0.25, 0.5}>>)"),
    ("C21 default", "precision DEFAULT", "precision HIGH"),
    ("C22 algorithm", "lhs_component_count = 1", "lhs_component_count = 0"),
    ("C23 algorithm", "rhs_component_count = 1", "rhs_component_count = 0"),
    ("C24 algorithm", "num_primitive_operations = 3", "num_primitive_operations = -1"),
    ("algorithm algorithm", "num_primitive_operations = 3", "num_primitive_operations = 2"),
    *product_rules(PRODUCTS, "tensor<2x3", "tensor<2x2"),
)
rules(
    "stablehlo.dot",
    {
        "": call("stablehlo.dot", 2, types=PLAIN),
        "precision": call("stablehlo.dot", 2, f"precision_config = [{HIGH}, {HIGH}]", PLAIN),
        "quantized": call("stablehlo.dot", 2, types=QUANTIZED),
        "hybrid": call("stablehlo.dot", 2, types=HYBRID),
    },
    ("C1", "(tensor<2x3x", "(tensor<1x2x3x"),
    ("C2", "(tensor<2x3x", "(tensor<2x4x"),
    ("C3", "-> tensor<2x4", "-> tensor<4x2"),
    ("C11 precision", f"{HIGH}]", f"{HIGH}, {HIGH}]"),
    *product_rules(PRODUCTS, "tensor<2x3", "tensor<2x2"),
)
for _op, _count, _equation, _types in (
    ("stablehlo.einsum", 2, "ij,jk->ik", PLAIN),
    ("stablehlo.unary_einsum", 1, "ij->i", "(tensor<2x3xf32>) -> tensor<2xf32>"),
):
    _terms, _, _output = _equation.partition("->")
    rules(
        _op,
        {
            "": call(_op, _count, f'einsum_config = "{_equation}"', _types),
            "square": call(_op, _count, f'einsum_config = "{_equation.replace("ij", "ii").replace("jk", "ik")}"',
                           _types.replace("2x3", "2x2").replace("3x4", "2x4")),
        },
        ("C1", f"{_terms}->", f"{_terms},k->"),
        ("C2", "ij", "ijk"),
        ("C3 square", "(tensor<2x2x", "(tensor<2x5x"),
        ("C4", f"->{_output}", "->iz"),
        ("C5", "-> tensor<2x", "-> tensor<7x"),
    )  # fmt: skip

# convolution, dynamic_conv

CONV_NUMBERS = (
    "dimension_numbers = #stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 3, "
    "input_spatial_dimensions = [1, 2], kernel_input_feature_dimension = 2, kernel_output_feature_dimension = 3, "
    "kernel_spatial_dimensions = [0, 1], output_batch_dimension = 0, output_feature_dimension = 3, "
    "output_spatial_dimensions = [1, 2]>"
)
PADDING = "padding = dense<0> : tensor<2x2xi64>"


def conv(lhs: str, rhs: str, result: str, *, features: int = 1, batches: int = 1, extra: str = "") -> str:
    attributes = f"{CONV_NUMBERS}, feature_group_count = {features} : i64, batch_group_count = {batches} : i64"
    return call("stablehlo.convolution", 2, f"{attributes}, {PADDING}{extra}", f"({lhs}, {rhs}) -> {result}")


def dynamic_conv(text: str) -> str:
    """Returns the same op with an operand for the padding."""
    text = text.replace("stablehlo.convolution", "stablehlo.dynamic_conv").replace(f", {PADDING}", "")
    text = text.replace("%a, %b", "%a, %b, %c").replace(") ->", ", tensor<2x2xi64>) ->")
    return "%c = stablehlo.constant dense<0> : tensor<2x2xi64>\n;;" + text


WINDOW = (", window_strides = array<i64: 1, 1>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, "
          "window_reversal = array<i1: false, true>")  # fmt: skip
CONV_AXIS = "!quant.uniform<i8:f32:3, {0.5, 0.25}>"
CONV_TEXTS = {
    "": conv("tensor<2x8x8x4xf32>", "tensor<3x3x4x6xf32>", "tensor<2x6x6x6xf32>", extra=WINDOW),
    "features": conv("tensor<2x8x8x4xf32>", "tensor<3x3x2x6xf32>", "tensor<2x6x6x6xf32>", features=2),
    "batches": conv("tensor<2x8x8x4xf32>", "tensor<3x3x4x6xf32>", "tensor<1x6x6x6xf32>", batches=2),
    "precision": conv("tensor<2x8x8x4xf32>", "tensor<3x3x4x6xf32>", "tensor<2x6x6x6xf32>",
                      extra=f", precision_config = [{HIGH}, {HIGH}]"),
    "quantized": conv(f"tensor<2x8x8x4x{Q}>", f"tensor<3x3x4x2x{ZERO}>", f"tensor<2x6x6x2x{Q}>"),
    "axis": conv(f"tensor<2x8x8x4x{Q}>", f"tensor<3x3x4x2x{CONV_AXIS}>", f"tensor<2x6x6x2x{CONV_AXIS}>"),
    "hybrid": conv("tensor<2x8x8x4xf32>", f"tensor<3x3x4x2x{ZERO}>", "tensor<2x6x6x2xf32>"),
}  # fmt: skip
CONV_RULES = (
    ("C1", "(tensor<2x8x8x4x", "(tensor<2x8x8x8x4x"),
    ("C2", "window_strides = array<i64: 1, 1>", "window_strides = array<i64: 1>"),
    ("C3", "window_strides = array<i64: 1, 1>", "window_strides = array<i64: 1, 0>"),
    ("C5", "lhs_dilation = array<i64: 1, 1>", "lhs_dilation = array<i64: 1>"),
    ("C6", "lhs_dilation = array<i64: 1, 1>", "lhs_dilation = array<i64: 0, 1>"),
    ("C7", "rhs_dilation = array<i64: 1, 1>", "rhs_dilation = array<i64: 1>"),
    ("C8", "rhs_dilation = array<i64: 1, 1>", "rhs_dilation = array<i64: -1, 1>"),
    ("C9", "array<i1: false, true>", "array<i1: false>"),
    ("C10 batches", "(tensor<2x8", "(tensor<3x8"),
    ("C11 features", "(tensor<2x8x8x4x", "(tensor<2x8x8x5x"),
    ("C12", "input_spatial_dimensions = [1, 2]", "input_spatial_dimensions = [1]"),
    ("C13", "input_spatial_dimensions = [1, 2]", "input_spatial_dimensions = [1, 3]"),
    ("C13", "input_spatial_dimensions = [1, 2]", "input_spatial_dimensions = [1, 4]"),
    ("C14", "tensor<3x3x4x6x", "tensor<3x3x2x6x"),
    ("C15 batches", "tensor<3x3x4x6x", "tensor<3x3x4x5x"),
    ("C16 features", "tensor<3x3x2x6x", "tensor<3x3x2x5x"),
    ("C17", "kernel_spatial_dimensions = [0, 1]", "kernel_spatial_dimensions = [0]"),
    ("C18", "kernel_spatial_dimensions = [0, 1]", "kernel_spatial_dimensions = [0, 2]"),
    ("C18", "kernel_spatial_dimensions = [0, 1]", "kernel_spatial_dimensions = [-1, 1]"),
    ("C19", "output_spatial_dimensions = [1, 2]", "output_spatial_dimensions = [1, 2, 3]"),
    ("C20", "output_spatial_dimensions = [1, 2]", "output_spatial_dimensions = [0, 2]"),
    ("C20", "output_spatial_dimensions = [1, 2]", "output_spatial_dimensions = [1, 4]"),
    ("C21", "feature_group_count = 1", "feature_group_count = 0"),
    ("C22", "batch_group_count = 1", "batch_group_count = 0"),
    ("C23 features", "batch_group_count = 1", "batch_group_count = 2"),
    ("C24 precision", f"{HIGH}]", f"{HIGH}, {HIGH}]"),
    ("C25", "-> tensor<2x6x6", "-> tensor<2x6x5"),
    ("C25", "-> tensor<2x6x6x6x", "-> tensor<2x6x6x5x"),
    ("C26", "-> tensor<2x6x6x6x", "-> tensor<2x6x36x"),
    ("C27", "(tensor<2x8x8x4xf32>", "(tensor<2x8x8x4xf64>"),
    ("C29 axis", f"tensor<3x3x4x2x{CONV_AXIS}>", "tensor<3x3x4x2x!quant.uniform<i8:f32:0, {0.5, 0.25, 0.5}>>"),
    ("C30 axis", f"-> tensor<2x6x6x2x{CONV_AXIS}>", "-> tensor<2x6x6x2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>"),
    ("C28 quantized", f"-> tensor<2x6x6x2x{Q}>", "-> tensor<2x6x6x2xf32>"),
    ("C31 quantized", f"(tensor<2x8x8x4x{Q}>", "(tensor<2x8x8x4x!quant.uniform<i4:f32, 0.5:3>>"),
    ("C32 quantized", f"(tensor<2x8x8x4x{Q}>", "(tensor<2x8x8x4x!quant.uniform<i8:f16, 0.5:3>>"),
    ("C33 quantized", f"-> tensor<2x6x6x2x{Q}>", f"-> tensor<2x6x6x2x{CONV_AXIS}>"),
    ("C34 hybrid", "(tensor<2x8x8x4xf32>", "(tensor<2x8x8x4xf64>"),
)
rules(
    "stablehlo.convolution", CONV_TEXTS, *CONV_RULES,
    ("C4", "tensor<2x2xi64>", "tensor<3x2xi64>"), ("C4", "tensor<2x2xi64>", "tensor<2x3xi64>"),
)  # fmt: skip
rules(
    "stablehlo.dynamic_conv", {name: dynamic_conv(text) for name, text in CONV_TEXTS.items()}, *CONV_RULES,
    ("C4", "tensor<2x2xi64>", "tensor<3x2xi64>"), ("C4", "tensor<2x2xi64>", "tensor<2x3xi64>"),
)  # fmt: skip
COMPUTED = dynamic_conv(CONV_TEXTS[""]).partition(";;")[2]
"""A dynamic_conv whose padding is known only at run time."""
rules(
    "stablehlo.dynamic_conv", COMPUTED,
    ("C3", "window_strides = array<i64: 1, 1>", "window_strides = array<i64: 0, 1>"),
    ("C4", "tensor<2x2xi64>", "tensor<3x2xi64>"),
    ("C6", "lhs_dilation = array<i64: 1, 1>", "lhs_dilation = array<i64: 0, 1>"),
    ("C8", "rhs_dilation = array<i64: 1, 1>", "rhs_dilation = array<i64: -1, 1>"),
    ("C25", "(tensor<2x8x8x4xf32>, tensor<3x3x4x6xf32>", "(tensor<2x8x8x4xf32>, tensor<0x3x4x6xf32>"),
)  # fmt: skip

# ragged_dot


def ragged(types: str, numbers: str, extra: str = "") -> str:
    return call("chlo.ragged_dot", 3, f"ragged_dot_dimension_numbers = #chlo.ragged_dot<{numbers}>{extra}", types)


FREE = ("lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], "
        "rhs_group_dimensions = [0]")  # fmt: skip
rules(
    "chlo.ragged_dot",
    {
        "": ragged("(tensor<9x3xf32>, tensor<5x3x4xf32>, tensor<5xi64>) -> tensor<9x4xf32>", FREE),
        "precision": ragged("(tensor<9x3xf32>, tensor<5x3x4xf32>, tensor<5xi64>) -> tensor<9x4xf32>", FREE,
                            f", precision_config = [{HIGH}, {HIGH}]"),
        "sum": ragged("(tensor<9x3xf32>, tensor<3x4xf32>, tensor<5xi64>) -> tensor<5x9x4xf32>",
                      "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], "
                      "lhs_ragged_dimensions = [1]"),
    },
    ("C1", "lhs_ragged_dimensions = [0]", "lhs_ragged_dimensions = []"),
    ("C2", "lhs_contracting_dimensions = [1]", "lhs_contracting_dimensions = [2]"),
    ("C2", "lhs_contracting_dimensions = [1]", "lhs_contracting_dimensions = [1, 1]"),
    ("C3", "rhs_group_dimensions = [0]", "rhs_group_dimensions = [1]"),
    ("C4", "(tensor<9x3x", "(tensor<9x2x"),
    ("C4", "lhs_contracting_dimensions = [1]", "lhs_contracting_dimensions = []"),
    ("C5", "tensor<5x3x4x", "tensor<6x3x4x"),
    ("C5", ", rhs_group_dimensions = [0]", ""),
    ("C6", "tensor<5xi64>", "tensor<2x5xi64>"),
    ("C7", "-> tensor<9x4x", "-> tensor<4x9x"),
    ("C7 sum", "-> tensor<5x9x4x", "-> tensor<9x4x"),
    ("C8 precision", f"{HIGH}]", f"{HIGH}, {HIGH}]"),
)  # fmt: skip
