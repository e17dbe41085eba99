"""Ops that change shapes, static and computed ones."""

from __future__ import annotations

from cases_elementwise import axis
from table import call, rules

rules(
    "stablehlo.constant", '"stablehlo.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>',
    ("C1", "-> tensor<2x", "-> tensor<3x"),
)  # fmt: skip
rules(
    "stablehlo.iota", '"stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x3xi32>',
    ("C1", "= 1", "= 2"), ("C1", "= 1", "= -1"), ("C1", "tensor<2x3xi32>", "tensor<i32>", "= 1", "= 0"),
)  # fmt: skip
RESHAPE_AXIS = {
    "axis": call("stablehlo.reshape", 1, types=f"({axis()}) -> tensor<1x2x2x!quant.uniform<i8:f32:2, {{0.5:3, 0.25}}>>")
}
rules(
    "stablehlo.reshape",
    {"": call("stablehlo.reshape", 1, types="(tensor<2x3xf32>) -> tensor<6xf32>"), **RESHAPE_AXIS},
    ("C1", "-> tensor<6xf32>", "-> tensor<6xf64>"),
    ("C2", "-> tensor<6x", "-> tensor<7x"),
    ("C3 axis", "<1x2x2x!quant.uniform<i8:f32:2", "<1x2x2x!quant.uniform<i8:f32:1"),
)
rules(
    "stablehlo.transpose",
    {
        "": call("stablehlo.transpose", 1, "permutation = array<i64: 1, 0>", "(tensor<2x3xf32>) -> tensor<3x2xf32>"),
        "axis": call("stablehlo.transpose", 1, "permutation = array<i64: 1, 0>", f"({axis()}) -> {axis(dim=0)}"),
    },
    ("C1", "-> tensor<3x2xf32>", "-> tensor<3x2xf64>"),
    ("C2", "1, 0", "1, 1"),
    ("C2", "1, 0", "1, 2"),
    ("C2", "1, 0", "0"),
    ("C3", "-> tensor<3x2x", "-> tensor<2x3x"),
    ("C4 axis", f"-> {axis(dim=0)}", f"-> {axis()}"),
)
rules(
    "stablehlo.reverse",
    call("stablehlo.reverse", 1, "dimensions = array<i64: 1, 0>", "(tensor<2x3xf32>) -> tensor<2x3xf32>"),
    ("C1", "-> tensor<2x3", "-> tensor<3x3"),
    ("C2", "1, 0", "1, 1"),
    ("C3", "1, 0", "1, 2"),
    ("C3", "1, 0", "1, -1"),
)
rules(
    "stablehlo.slice",
    call("stablehlo.slice", 1, "start_indices = array<i64: 1>, limit_indices = array<i64: 4>, strides = array<i64: 2>",
         "(tensor<5xf32>) -> tensor<2xf32>"),
    ("C1", "-> tensor<2xf32>", "-> tensor<2xf64>"),
    ("C2", "start_indices = array<i64: 1>", "start_indices = array<i64: 1, 0>"),
    ("C2", "limit_indices = array<i64: 4>", "limit_indices = array<i64>"),
    ("C2", "strides = array<i64: 2>", "strides = array<i64: 2, 1>"),
    ("C3", "limit_indices = array<i64: 4>", "limit_indices = array<i64: 6>"),
    ("C3", "start_indices = array<i64: 1>", "start_indices = array<i64: 5>"),
    ("C3", "start_indices = array<i64: 1>", "start_indices = array<i64: -1>"),
    ("C4", "strides = array<i64: 2>", "strides = array<i64: 0>"),
    ("C5", "-> tensor<2x", "-> tensor<3x"),
)  # fmt: skip
rules(
    "stablehlo.pad",
    call("stablehlo.pad", 2, "edge_padding_low = array<i64: -1>, edge_padding_high = array<i64: 2>, "
         "interior_padding = array<i64: 1>", "(tensor<3xf32>, tensor<f32>) -> tensor<6xf32>"),
    ("C1", "tensor<f32>", "tensor<f64>"),
    ("C1", "-> tensor<6xf32>", "-> tensor<6xf64>"),
    ("C2", "low = array<i64: -1>", "low = array<i64: -1, 0>"),
    ("C2", "high = array<i64: 2>", "high = array<i64>"),
    ("C2", "interior_padding = array<i64: 1>", "interior_padding = array<i64: 1, 1>"),
    ("C3", "interior_padding = array<i64: 1>", "interior_padding = array<i64: -1>"),
    ("C4", "-> tensor<6x", "-> tensor<5x"),
    ("C4", "low = array<i64: -1>", "low = array<i64: -9>"),
)  # fmt: skip
rules(
    "stablehlo.concatenate",
    {
        "": call("stablehlo.concatenate", 2, "dimension = 1 : i64",
                 "(tensor<2x3xf32>, tensor<2x?xf32>) -> tensor<2x?xf32>"),
        "one": call("stablehlo.concatenate", 1, "dimension = 0 : i64", "(tensor<2xf32>) -> tensor<2xf32>"),
    },
    ("C1", "(tensor<2x3xf32>", "(tensor<2x3xf64>"),
    ("C2", "(tensor<2x3xf32>", "(tensor<3x3xf32>"),
    ("C2", "(tensor<2x3xf32>", "(tensor<2x3x1xf32>"),
    ("C3 one", "(%a)", "()", "(tensor<2xf32>)", "()"),
    ("C4", "= 1", "= 2"),
    ("C4", "= 1", "= -1"),
    ("C5", "-> tensor<2x?xf32>", "-> tensor<2x?xf64>"),
    ("C6", "-> tensor<2x", "-> tensor<3x"),
)  # fmt: skip
rules(
    "stablehlo.bitcast_convert",
    call("stablehlo.bitcast_convert", 1, types="(tensor<2xf32>) -> tensor<2x4xi8>"),
    ("C1", "-> tensor<2x4x", "-> tensor<2x3x"),
    ("C1", "-> tensor<2x4x", "-> tensor<8x"),
    ("C1", "-> tensor<2x4xi8>", "-> tensor<3xi32>"),
    ("C2", "-> tensor<2x4xi8>", "-> tensor<1xcomplex<f32>>"),
)
rules(
    "stablehlo.broadcast",
    call("stablehlo.broadcast", 1, "broadcast_sizes = array<i64: 2>", "(tensor<3xf32>) -> tensor<2x3xf32>"),
    ("C1", "i64: 2", "i64: -2"),
    ("C2", "-> tensor<2x3", "-> tensor<3x2"),
)

# broadcast_in_dim, dynamic_broadcast_in_dim

AXIS = (call("stablehlo.broadcast_in_dim", 1, "broadcast_dimensions = array<i64: 1, 2>",
             f"({axis()}) -> tensor<3x2x2x!quant.uniform<i8:f32:2, {{0.5:3, 0.25}}>>"))  # fmt: skip
BROADCAST = call("stablehlo.broadcast_in_dim", 1, "broadcast_dimensions = array<i64: 2, 0>",
                 "(tensor<1x3xf32>) -> tensor<3x5x4xf32>")  # fmt: skip
BROADCAST_RULES = (
    ("C1", "4xf32>", "4xf64>"),
    ("C2", "2, 0", "2"),
    ("C3", "2, 0", "3, 0"),
    ("C3", "2, 0", "-1, 0"),
    ("C4", "2, 0", "0, 0"),
    ("C5", "tensor<3x5x4xf32>", "tensor<2x5x4xf32>"),
    ("C6 axis", "f32:2", "f32:1"),
    ("C6 axis", "f32:2, {0.5:3, 0.25}", "f32:2, {0.5:3, 0.5}"),
)  # fmt: skip
rules("stablehlo.broadcast_in_dim", {"": BROADCAST, "axis": AXIS + "\n"}, *BROADCAST_RULES)


def dynamic(text: str, extents: str) -> str:
    """Returns the same op with an operand for the shape."""
    text = text.replace("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim").replace("(%a)", "(%a, %b)")
    return text.replace(") ->", ", tensor<3xi32>) ->") + "\n"


HINTS = "known_expanding_dimensions = array<i64: 0>, known_nonexpanding_dimensions = array<i64: 1>"
rules(
    "stablehlo.dynamic_broadcast_in_dim",
    {
        "": dynamic(BROADCAST, "3, 5, 4"),
        "axis": dynamic(AXIS, "3, 2, 2"),
        "hints": dynamic(BROADCAST.replace("2, 0>", f"2, 0>, {HINTS}"), "3, 5, 4"),
        "known": "%b = stablehlo.constant dense<[3, 5, 4]> : tensor<3xi32>\n;;" + dynamic(BROADCAST, ""),
    },
    *BROADCAST_RULES,
    ("C7", "tensor<3xi32>", "tensor<2xi32>"),
    ("C7 known", "[3, 5, 4]", "[3, 5, 3]"),
    ("C8 hints", "array<i64: 1>", "array<i64: 0>"),
    ("C9 hints", "array<i64: 0>", "array<i64: 2>"),
    ("C10 hints", "array<i64: 1>", "array<i64: -1>"),
)

# other ops whose shapes are computed

rules(
    "stablehlo.dynamic_iota",
    {
        "": call("stablehlo.dynamic_iota", 1, "iota_dimension = 1 : i64", "(tensor<2xi64>) -> tensor<?x?xf32>"),
        "known": "%a = stablehlo.constant dense<[2, 3]> : tensor<2xi64>\n;;"
        + call("stablehlo.dynamic_iota", 1, "iota_dimension = 1 : i64", "(tensor<2xi64>) -> tensor<?x3xf32>"),
    },
    ("C1", "= 1", "= 2"),
    ("C1", "= 1", "= -1"),
    ("C2", "tensor<2xi64>", "tensor<3xi64>"),
    ("C2 known", "[2, 3]", "[2, 4]"),
)
rules(
    "stablehlo.dynamic_reshape",
    {
        "": call("stablehlo.dynamic_reshape", 2, types="(tensor<2x3xf32>, tensor<1xi64>) -> tensor<6xf32>"),
        "axis": call("stablehlo.dynamic_reshape", 2, types=f"({axis()}, tensor<3xi64>) -> "
                     "tensor<1x2x2x!quant.uniform<i8:f32:2, {0.5:3, 0.25}>>"),
        "known": "%b = stablehlo.constant dense<[3, 2]> : tensor<2xi64>\n;;"
        + call("stablehlo.dynamic_reshape", 2, types="(tensor<2x3xf32>, tensor<2xi64>) -> tensor<?x2xf32>"),
    },
    ("C1", "-> tensor<6xf32>", "-> tensor<6xf64>"),
    ("C2", "-> tensor<6x", "-> tensor<7x"),
    ("C2 known", "[3, 2]", "[4, 2]"),
    ("C3 axis", "<1x2x2x!quant.uniform<i8:f32:2", "<1x2x2x!quant.uniform<i8:f32:1"),
    ("C4", "tensor<1xi64>", "tensor<2xi64>"),
    ("C4 known", "[3, 2]", "[2, 3]"),
)  # fmt: skip
AMOUNTS = ("%c = stablehlo.constant dense<-1> : tensor<1xi32>\n%d = stablehlo.constant dense<2> : tensor<1xi32>\n"
           "%e = stablehlo.constant dense<1> : tensor<1xi32>\n;;")  # fmt: skip
PAD = call("stablehlo.dynamic_pad", 5, types="(tensor<3xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>)"
           " -> tensor<?xf32>")  # fmt: skip
rules(
    "stablehlo.dynamic_pad",
    {"": PAD, "known": AMOUNTS + PAD.replace("<?x", "<6x"), "inner": AMOUNTS[AMOUNTS.index("%e") :] + PAD},
    ("C1", "tensor<f32>", "tensor<f64>"),
    ("C1", "-> tensor<?xf32>", "-> tensor<?xf64>"),
    ("C2", ", tensor<1xi32>)", ", tensor<2xi32>)"),
    ("C3 inner", "dense<1>", "dense<-1>"),
    ("C3 known", "dense<1>", "dense<-1>"),
    ("C4 known", "-> tensor<6x", "-> tensor<5x"),
    ("C4 known", "dense<-1>", "dense<-9>"),
)
VECTORS = ("%b = stablehlo.constant dense<1> : tensor<1xi32>\n%c = stablehlo.constant dense<4> : tensor<1xi32>\n"
           "%d = stablehlo.constant dense<2> : tensor<1xi32>\n;;")  # fmt: skip
SLICE = call("stablehlo.real_dynamic_slice", 4,
             types="(tensor<5xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>")  # fmt: skip
rules(
    "stablehlo.real_dynamic_slice",
    {"": SLICE, "known": VECTORS + SLICE},
    ("C1", "-> tensor<?xf32>", "-> tensor<?xf64>"),
    ("C2", ", tensor<1xi32>)", ", tensor<2xi32>)"),
    ("C3 known", "dense<4>", "dense<6>"),
    ("C3 known", "dense<1>", "dense<-1>"),
    ("C4 known", "dense<2>", "dense<0>"),
    ("C5 known", "-> tensor<?x", "-> tensor<3x"),
    ("C5", "-> tensor<?x", "-> tensor<?x?x"),
    ("same", ", tensor<1xi32>)", ", tensor<1xi64>)"),
)
rules(
    "stablehlo.get_dimension_size",
    call("stablehlo.get_dimension_size", 1, "dimension = 1 : i64", "(tensor<2x3xf32>) -> tensor<i32>"),
    ("C1", "= 1", "= 2"),
    ("C1", "= 1", "= -1"),
)
rules(
    "stablehlo.set_dimension_size",
    call("stablehlo.set_dimension_size", 2, "dimension = 1 : i64",
         "(tensor<2x3xf32>, tensor<i32>) -> tensor<2x?xf32, #stablehlo.bounds<?, 3>>"),
    ("C1", "= 1", "= 2"),
    ("C1", "= 1", "= -1"),
    ("C2", "-> tensor<2x?x", "-> tensor<3x?x"),
    ("C2", "-> tensor<2x?xf32, #stablehlo.bounds<?, 3>>", "-> tensor<2x4xf32>"),
)  # fmt: skip
rules(
    "stablehlo.compute_reshape_shape",
    call("stablehlo.compute_reshape_shape", 2, types="(index, tensor<2xi32>) -> tensor<2xi32>"),
    ("C1", "-> tensor<2x", "-> tensor<3x"),
)
rules(
    "chlo.dynamic_reshape",
    call("chlo.dynamic_reshape", 2, types="(tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>"),
    ("C1", "-> tensor<?x?xf32>", "-> tensor<?x?xf64>"),
    ("C2", "-> tensor<?x?x", "-> tensor<?x"),
)
