"""Constraints of elementwise, shape and dynamic ops, by the labels of the specification."""

from __future__ import annotations

import pytest

Q = "!quant.uniform<i8:f32, 0.5:3>"
Q2 = "!quant.uniform<i8:f32, 0.25:-1>"
AXIS = "!quant.uniform<i8:f32:1, {0.5:3, 0.25}>"

CASES = [
    ("", "%a: tensor<2x?xf32>\n%0 = stablehlo.abs %a : tensor<2x?xf32>"),
    ("", '%a: tensor<2x?xf32>\n%0 = "stablehlo.abs"(%a) : (tensor<2x?xf32>) -> tensor<?x3xf32>'),
    ("abs type", '%a: tensor<2xf32>\n%0 = "stablehlo.abs"(%a) : (tensor<2xf32>) -> tensor<3xf32>'),
    ("abs type", '%a: tensor<2xui8>\n%0 = "stablehlo.abs"(%a) : (tensor<2xui8>) -> tensor<2xui8>'),
    ("abs count", '%a: tensor<2xf32>\n%0 = "stablehlo.abs"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>'),
    ("", '%a: tensor<2xcomplex<f32>>\n%0 = "stablehlo.abs"(%a) : (tensor<2xcomplex<f32>>) -> tensor<2xf32>'),
    ("sine type", "%a: tensor<2xi32>\n%0 = stablehlo.sine %a : tensor<2xi32>"),
    ("and type", "%a: tensor<2xf32>\n%0 = stablehlo.and %a, %a : tensor<2xf32>"),
    ("multiply C1", "%a: tensor<2xf32>, %b: tensor<2xf64>\n"
     '%0 = "stablehlo.multiply"(%a, %b) : (tensor<2xf32>, tensor<2xf64>) -> tensor<2xf32>'),
    ("multiply C1", "%a: tensor<2xf32>, %b: tensor<3xf32>\n"
     '%0 = "stablehlo.multiply"(%a, %b) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>'),
    ("", f"%a: tensor<2x{Q}>, %b: tensor<2x{Q2}>\n"
     f'%0 = "stablehlo.add"(%a, %b) : (tensor<2x{Q}>, tensor<2x{Q2}>) -> tensor<2x{Q}>'),
    ("add C2", f'%a: tensor<2x{Q}>\n%0 = "stablehlo.add"(%a, %a) : (tensor<2x{Q}>, tensor<2x{Q}>) -> tensor<2xf32>'),
    ("multiply type", f"%a: tensor<2x2x{AXIS}>\n%0 = stablehlo.multiply %a, %a : tensor<2x2x{AXIS}>"),
    ("compare C1", "%a: tensor<2xf32>, %b: tensor<2xi32>\n"
     '%0 = "stablehlo.compare"(%a, %b) {comparison_direction = #stablehlo<comparison_direction LT>}'
     " : (tensor<2xf32>, tensor<2xi32>) -> tensor<2xi1>"),
    ("compare C3", "%a: tensor<2xf32>\n"
     "%0 = stablehlo.compare LT, %a, %a, SIGNED : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>"),
    ("compare attribute", "%a: tensor<2xf32>\n"
     '%0 = "stablehlo.compare"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>'),
    ("complex type", "%a: tensor<2xf16>\n"
     '%0 = "stablehlo.complex"(%a, %a) : (tensor<2xf16>, tensor<2xf16>) -> tensor<2xcomplex<f32>>'),
    ("select C1", "%p: tensor<3xi1>, %a: tensor<2xf32>\n"
     "%0 = stablehlo.select %p, %a, %a : tensor<3xi1>, tensor<2xf32>"),
    ("select C2", "%p: tensor<i1>, %a: tensor<2xf32>, %b: tensor<2xi32>\n"
     '%0 = "stablehlo.select"(%p, %a, %b) : (tensor<i1>, tensor<2xf32>, tensor<2xi32>) -> tensor<2xf32>'),
    ("clamp C1", "%a: tensor<3xf32>, %b: tensor<2xf32>\n"
     '%0 = "stablehlo.clamp"(%a, %b, %b) : (tensor<3xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>'),
    ("clamp C3", "%a: tensor<i32>, %b: tensor<2xf32>\n"
     '%0 = "stablehlo.clamp"(%a, %b, %b) : (tensor<i32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>'),
    ("reduce_precision attribute", "%a: tensor<2xf32>\n"
     "%0 = stablehlo.reduce_precision %a, format = e0m3 : tensor<2xf32>"),
    ("convert type", '%a: tensor<2xf32>\n%0 = "stablehlo.convert"(%a) : (tensor<2xf32>) -> tensor<3xi32>'),
    # shape
    ("iota C1", "\n%0 = stablehlo.iota dim = 2 : tensor<3x4xi32>"),
    ("iota C1", "\n%0 = stablehlo.iota dim = 0 : tensor<i32>"),
    ("", "%a: tensor<1x3xf32>\n"
     "%0 = stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<1x3xf32>) -> tensor<3x5x4xf32>"),
    ("broadcast_in_dim C2", "%a: tensor<3xf32>\n"
     "%0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<3xf32>) -> tensor<3x5xf32>"),
    ("broadcast_in_dim C3", "%a: tensor<3xf32>\n"
     "%0 = stablehlo.broadcast_in_dim %a, dims = [2] : (tensor<3xf32>) -> tensor<3x5xf32>"),
    ("broadcast_in_dim C4", "%a: tensor<3x3xf32>\n"
     "%0 = stablehlo.broadcast_in_dim %a, dims = [0, 0] : (tensor<3x3xf32>) -> tensor<3x5xf32>"),
    ("broadcast_in_dim C5", "%a: tensor<3xf32>\n"
     "%0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<3xf32>) -> tensor<3x5xf32>"),
    ("broadcast_in_dim type", "%a: tensor<3xf32>\n"
     "%0 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<3xf32>) -> tensor<?x5xf32>"),
    ("broadcast_in_dim C6", f"%a: tensor<1x2x{AXIS}>\n"
     f"%0 = stablehlo.broadcast_in_dim %a, dims = [1, 0] : (tensor<1x2x{AXIS}>) -> tensor<2x2x{AXIS}>"),
    ("reshape C2", "%a: tensor<2x3xf32>\n%0 = stablehlo.reshape %a : (tensor<2x3xf32>) -> tensor<7xf32>"),
    ("reshape C1", "%a: tensor<2x3xf32>\n%0 = stablehlo.reshape %a : (tensor<2x3xf32>) -> tensor<6xf64>"),
    ("transpose C2", "%a: tensor<2x3xf32>\n"
     "%0 = stablehlo.transpose %a, dims = [0, 0] : (tensor<2x3xf32>) -> tensor<2x2xf32>"),
    ("transpose type", "%a: tensor<2x3xf32>\n"
     "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<2x3xf32>"),
    ("reverse C2", "%a: tensor<2x3xf32>\n%0 = stablehlo.reverse %a, dims = [1, 1] : tensor<2x3xf32>"),
    ("reverse C3", "%a: tensor<2x3xf32>\n%0 = stablehlo.reverse %a, dims = [2] : tensor<2x3xf32>"),
    ("slice C3", "%a: tensor<4xf32>\n%0 = stablehlo.slice %a [1:5] : (tensor<4xf32>) -> tensor<4xf32>"),
    ("slice C3", "%a: tensor<4xf32>\n%0 = stablehlo.slice %a [3:2] : (tensor<4xf32>) -> tensor<0xf32>"),
    ("slice C4", "%a: tensor<4xf32>\n%0 = stablehlo.slice %a [1:2:0] : (tensor<4xf32>) -> tensor<1xf32>"),
    ("slice C2", "%a: tensor<4xf32>\n%0 = stablehlo.slice %a [1:2, 0:1] : (tensor<4xf32>) -> tensor<1xf32>"),
    ("pad C1", "%a: tensor<4xf32>, %v: tensor<f64>\n"
     "%0 = stablehlo.pad %a, %v, low = [0], high = [1], interior = [0] :"
     " (tensor<4xf32>, tensor<f64>) -> tensor<5xf32>"),
    ("pad C3", "%a: tensor<4xf32>, %v: tensor<f32>\n"
     "%0 = stablehlo.pad %a, %v, low = [0], high = [1], interior = [-1] :"
     " (tensor<4xf32>, tensor<f32>) -> tensor<2xf32>"),
    ("pad C4", "%a: tensor<4xf32>, %v: tensor<f32>\n"
     "%0 = stablehlo.pad %a, %v, low = [-5], high = [0], interior = [0] :"
     " (tensor<4xf32>, tensor<f32>) -> tensor<?xf32>"),
    ("concatenate C1", "%a: tensor<2xf32>, %b: tensor<2xi32>\n"
     "%0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<2xf32>, tensor<2xi32>) -> tensor<4xf32>"),
    ("concatenate C2", "%a: tensor<2x3xf32>, %b: tensor<2x4xf32>\n"
     "%0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<4x3xf32>"),
    ("concatenate C4", "%a: tensor<2xf32>\n%0 = stablehlo.concatenate %a, dim = 1 : (tensor<2xf32>) -> tensor<2xf32>"),
    ("bitcast_convert C1", "%a: tensor<2xf32>\n%0 = stablehlo.bitcast_convert %a : (tensor<2xf32>) -> tensor<2x3xi8>"),
    ("bitcast_convert C2", "%a: tensor<2xf64>\n"
     "%0 = stablehlo.bitcast_convert %a : (tensor<2xf64>) -> tensor<2xcomplex<f32>>"),
    ("get_dimension_size C1", "%a: tensor<2xf64>\n"
     "%0 = stablehlo.get_dimension_size %a, dim = 1 : (tensor<2xf64>) -> tensor<i32>"),
    ("uniform_quantize C2", f"%a: tensor<2xf64>\n%0 = stablehlo.uniform_quantize %a :"
     f" (tensor<2xf64>) -> tensor<2x{Q}>"),
    # dynamic shapes
    ("", "%a: tensor<?x4xf32>, %s: tensor<2xi64>\n"
     "%0 = stablehlo.dynamic_reshape %a, %s : (tensor<?x4xf32>, tensor<2xi64>) -> tensor<?x?xf32>"),
    ("dynamic_reshape shape", "%a: tensor<?x4xf32>, %s: tensor<3xi64>\n"
     "%0 = stablehlo.dynamic_reshape %a, %s : (tensor<?x4xf32>, tensor<3xi64>) -> tensor<?x?xf32>"),
    ("dynamic_reshape C2", "%a: tensor<2x4xf32>\n%s = stablehlo.constant dense<[3, 3]> : tensor<2xi64>\n"
     "%0 = stablehlo.dynamic_reshape %a, %s : (tensor<2x4xf32>, tensor<2xi64>) -> tensor<?x?xf32>"),
    ("dynamic_iota shape", "\n%s = stablehlo.constant dense<[4]> : tensor<1xi64>\n"
     "%0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi64>) -> tensor<5xf32>"),
    ("real_dynamic_slice C4", "%a: tensor<4xf32>, %s: tensor<1xi64>\n%z = stablehlo.constant dense<0> : tensor<1xi64>\n"
     "%0 = stablehlo.real_dynamic_slice %a, %s, %s, %z :"
     " (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "body"), CASES, ids=[label or "valid" for label, _ in CASES])
def test_constraint(case, expected, body):
    case(expected, body)
