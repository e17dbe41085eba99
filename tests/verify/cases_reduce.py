"""Ops that apply a region to elements."""

from __future__ import annotations

from table import call, rules


def body(*, arguments: str = "%x: tensor<f32>, %y: tensor<f32>", result: str = "%x : tensor<f32>") -> str:
    return f"({{\n^bb0({arguments}):\nstablehlo.return {result}\n}})"


LESS = "({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n%p = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> "
LESS += "tensor<i1>\nstablehlo.return %p : tensor<i1>\n})"
TWO = body(arguments="%x: tensor<f32>, %i: tensor<i32>, %y: tensor<f32>, %j: tensor<i32>",
           result="%x, %i : tensor<f32>, tensor<i32>")  # fmt: skip
WIDE = body(arguments="%x: tensor<f64>, %y: tensor<f64>", result="%x : tensor<f64>")

rules(
    "stablehlo.reduce",
    {
        "": call("stablehlo.reduce", 2, "dimensions = array<i64: 1, 0>", "(tensor<2x3x4xf32>, tensor<f32>) -> tensor<4xf32>",
                 body()),
        "two": call("stablehlo.reduce", 4, "dimensions = array<i64: 0>",
                    "(tensor<2xf32>, tensor<2xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)", TWO),
        "wide": call("stablehlo.reduce", 2, "dimensions = array<i64: 0>", "(tensor<2xf32>, tensor<f32>) -> tensor<f64>",
                     WIDE),
    },
    ("C1 two", "(tensor<2xf32>, tensor<2xi32>", "(tensor<2xf32>, tensor<3xi32>"),
    ("C2 wide", ", tensor<f32>)", ", tensor<f64>)"),
    ("C3", "(%a, %b)", "()", "(tensor<2x3x4xf32>, tensor<f32>)", "()"),
    ("C4", "1, 0", "1, 3"),
    ("C4", "1, 0", "1, -1"),
    ("C5", "1, 0", "1, 1"),
    ("C6", ", %y: tensor<f32>", ""),
    ("C6", "return %x : tensor<f32>", "return"),
    ("C6", "return %x : tensor<f32>", "return %x, %y : tensor<f32>, tensor<f32>"),
    ("C6", "%y: tensor<f32>", "%y: tensor<f64>"),
    ("C6", "tensor<f32>\n})", "tensor<f16>\n})", ": tensor<f32>, %y: tensor<f32>", ": tensor<f16>, %y: tensor<f16>"),
    ("C7", "-> tensor<4x", "-> tensor<2x"),
    ("C8 wide", "-> tensor<f64>", "-> tensor<f32>"),
)  # fmt: skip
rules(
    "stablehlo.reduce_window",
    {
        "": call("stablehlo.reduce_window", 2, "window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 3, 1>, "
                 "base_dilations = array<i64: 2, 1>, window_dilations = array<i64: 3, 1>, "
                 "padding = dense<[[2, 1], [0, 0]]> : tensor<2x2xi64>",
                 "(tensor<3x2xf32>, tensor<f32>) -> tensor<2x2xf32>", body()),
        "two": call("stablehlo.reduce_window", 4, "window_dimensions = array<i64: 2>",
                    "(tensor<2xf32>, tensor<2xi32>, tensor<f32>, tensor<i32>) -> (tensor<1xf32>, tensor<1xi32>)", TWO),
        "wide": call("stablehlo.reduce_window", 2, "window_dimensions = array<i64: 2>",
                     "(tensor<2xf32>, tensor<f32>) -> tensor<1xf64>", WIDE),
    },
    ("C1", "(%a, %b)", "()", "(tensor<3x2xf32>, tensor<f32>)", "()"),
    ("C1", "(%a, %b)", "(%a)", "(tensor<3x2xf32>, tensor<f32>)", "(tensor<3x2xf32>)"),
    ("C2 two", "(tensor<2xf32>, tensor<2xi32>", "(tensor<2xf32>, tensor<3xi32>"),
    ("C3 wide", ", tensor<f32>)", ", tensor<f64>)"),
    ("C4", "window_dimensions = array<i64: 2, 1>", "window_dimensions = array<i64: 2>"),
    ("C5", "window_dimensions = array<i64: 2, 1>", "window_dimensions = array<i64: 2, 0>"),
    ("C6", "window_strides = array<i64: 3, 1>", "window_strides = array<i64: 3>"),
    ("C7", "window_strides = array<i64: 3, 1>", "window_strides = array<i64: 0, 1>"),
    ("C8", "base_dilations = array<i64: 2, 1>", "base_dilations = array<i64: 2>"),
    ("C9", "base_dilations = array<i64: 2, 1>", "base_dilations = array<i64: 0, 1>"),
    ("C10", "window_dilations = array<i64: 3, 1>", "window_dilations = array<i64: 3>"),
    ("C11", "window_dilations = array<i64: 3, 1>", "window_dilations = array<i64: 3, -1>"),
    ("C12", "dense<[[2, 1], [0, 0]]> : tensor<2x2xi64>", "dense<0> : tensor<1x2xi64>"),
    ("C12", "dense<[[2, 1], [0, 0]]> : tensor<2x2xi64>", "dense<0> : tensor<2x3xi64>"),
    ("C13", ", %y: tensor<f32>", ""),
    ("C13", "%y: tensor<f32>", "%y: tensor<f64>"),
    ("C15", "-> tensor<2x2x", "-> tensor<3x2x"),
    ("C16 wide", "-> tensor<1xf64>", "-> tensor<1xf32>"),
)  # fmt: skip
rules(
    "stablehlo.select_and_scatter",
    {
        "": call("stablehlo.select_and_scatter", 3, "window_dimensions = array<i64: 3>, window_strides = array<i64: 2>, "
                 "padding = dense<[[0, 1]]> : tensor<1x2xi64>",
                 "(tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>", LESS[:-1] + ", " + body()[1:]),
        "wide": call("stablehlo.select_and_scatter", 3, "window_dimensions = array<i64: 2>",
                     "(tensor<4xf32>, tensor<3xf32>, tensor<f32>) -> tensor<4xf64>", LESS[:-1] + ", " + WIDE[1:]),
    },
    ("C1", "tensor<2xf32>", "tensor<2xf16>"),
    ("C2", "tensor<2xf32>", "tensor<3xf32>"),
    ("C3 wide", ", tensor<f32>) -> tensor<4", ", tensor<f64>) -> tensor<4"),
    ("C4", "array<i64: 3>", "array<i64: 3, 1>"),
    ("C5", "array<i64: 3>", "array<i64: 0>"),
    ("C6", "array<i64: 2>", "array<i64: 2, 1>"),
    ("C7", "array<i64: 2>", "array<i64: 0>"),
    ("C8", "dense<[[0, 1]]> : tensor<1x2xi64>", "dense<0> : tensor<2x2xi64>"),
    ("C9", "return %p : tensor<i1>", "return %p, %p : tensor<i1>, tensor<i1>"),
    ("C9", "return %p : tensor<i1>", "return %x : tensor<f32>"),
    ("C10", "return %x : tensor<f32>", "return %x, %y : tensor<f32>, tensor<f32>"),
    ("C11", "-> tensor<4x", "-> tensor<5x"),
    ("C12 wide", "-> tensor<4xf64>", "-> tensor<4xf32>"),
)  # fmt: skip
rules(
    "stablehlo.sort",
    {
        "": call("stablehlo.sort", 1, "dimension = -1 : i64", "(tensor<2x3xf32>) -> tensor<2x3xf32>", LESS),
        "two": call("stablehlo.sort", 2, "dimension = 0 : i64", "(tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)",
                    LESS.replace("%y: tensor<f32>", "%y: tensor<f32>, %k: tensor<f32>, %l: tensor<f32>")),
    },
    ("C1", "(%a)", "()", "(tensor<2x3xf32>) -> tensor<2x3xf32>", "() -> ()"),
    ("C2", "-> tensor<2x3xf32>", "-> tensor<2x3xf64>"),
    ("C3 two", "(tensor<2xf32>, tensor<2xf32>) ->", "(tensor<2xf32>, tensor<3xf32>) ->"),
    ("C4", "= -1", "= -3"),
    ("C4", "= -1", "= 2"),
    ("C5", "return %p : tensor<i1>", "return %p, %p : tensor<i1>, tensor<i1>"),
    ("C5", "return %p : tensor<i1>", "return %x : tensor<f32>"),
    ("C5", ", %y: tensor<f32>):", ", %y: tensor<f32>, %z: tensor<f32>):"),
    ("C5", "(tensor<2x3xf32>)", "(tensor<2x3xf64>)"),
)  # fmt: skip
rules(
    "stablehlo.map",
    {
        "": call("stablehlo.map", 2, "dimensions = array<i64: 0, 1>",
                 "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>", body()),
        "none": call("stablehlo.map", 1, "dimensions = array<i64: 0, 1>", "(tensor<2x3xf32>) -> tensor<2x3xf32>",
                     body(arguments="%x: tensor<f32>")),
    },
    ("C1", "(tensor<2x3xf32>, tensor<2x3", "(tensor<2x3xf32>, tensor<3x3"),
    ("C1", "-> tensor<2x3x", "-> tensor<3x3x"),
    ("C2 none", "(%a)", "()", "(tensor<2x3xf32>) ->", "() ->"),
    ("C3", "0, 1", "1, 0"),
    ("C3", "0, 1", "0"),
    ("C4", ", %y: tensor<f32>", ""),
    ("C4", "%y: tensor<f32>", "%y: tensor<1xf32>"),
    ("C4", "%y: tensor<f32>", "%y: tensor<f64>"),
    ("C4", "return %x : tensor<f32>", "return %x, %x : tensor<f32>, tensor<f32>"),
    ("C4", "-> tensor<2x3xf32>", "-> tensor<2x3xf64>"),
)  # fmt: skip
