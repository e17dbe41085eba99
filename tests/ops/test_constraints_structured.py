"""Constraints of contractions, reductions, indexing, control flow and the rest, by the specification's labels."""

from __future__ import annotations

import pytest

ADD = """({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
})"""
GREATER = """({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
})"""


def dot(lhs, rhs, result, batch="[] x []", contract="[1] x [0]"):
    return (
        f"%a: tensor<{lhs}xf32>, %b: tensor<{rhs}xf32>\n"
        f"%0 = stablehlo.dot_general %a, %b, batching_dims = {batch}, contracting_dims = {contract} : "
        f"(tensor<{lhs}xf32>, tensor<{rhs}xf32>) -> tensor<{result}xf32>"
    )


def conv(*, window="", groups="feature_group_count = 1 : i64, batch_group_count = 1 : i64", lhs="2x8x8x4",
         rhs="3x3x4x6",
         result="2x6x6x6", dims="[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"):  # fmt: skip
    return (
        f"%a: tensor<{lhs}xf32>, %b: tensor<{rhs}xf32>\n"
        f"%0 = stablehlo.convolution(%a, %b) dim_numbers = {dims}, window = {{{window}}} {{{groups}}} : "
        f"(tensor<{lhs}xf32>, tensor<{rhs}xf32>) -> tensor<{result}xf32>"
    )


def gather(*, offset="[1]", collapsed="[0]", index_map="[0]", vector_dim=1, sizes="1, 5", result="4x5"):
    return (
        "%a: tensor<3x5xf32>, %i: tensor<4x1xi32>\n"
        f'%0 = "stablehlo.gather"(%a, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = {offset}, '
        f"collapsed_slice_dims = {collapsed}, start_index_map = {index_map}, index_vector_dim = {vector_dim}>, "
        f"slice_sizes = array<i64: {sizes}>}} : (tensor<3x5xf32>, tensor<4x1xi32>) -> tensor<{result}xf32>"
    )


def scatter(window="[1]", inserted="[0]", to="[0]", vector_dim=1, update="4x5"):
    return (
        f"%a: tensor<3x5xf32>, %i: tensor<4x1xi32>, %u: tensor<{update}xf32>\n"
        f'%0 = "stablehlo.scatter"(%a, %i, %u) {ADD} {{scatter_dimension_numbers = #stablehlo.scatter<'
        f"update_window_dims = {window}, inserted_window_dims = {inserted}, scatter_dims_to_operand_dims = {to}, "
        f"index_vector_dim = {vector_dim}>}} :"
     f" (tensor<3x5xf32>, tensor<4x1xi32>, tensor<{update}xf32>) -> tensor<3x5xf32>"
    )


def reduce(dims="1", body=ADD, result="2xf32", init="f32"):
    return (
        f"%a: tensor<2x3xf32>, %v: tensor<{init}>\n"
        f'%0 = "stablehlo.reduce"(%a, %v) {body} {{dimensions = array<i64: {dims}>}} : '
        f"(tensor<2x3xf32>, tensor<{init}>) -> tensor<{result}>"
    )


def window(attributes, result="2x2xf32"):
    return (
        "%a: tensor<3x4xf32>, %v: tensor<f32>\n"
        f'%0 = "stablehlo.reduce_window"(%a, %v) {ADD} {{{attributes}}} : '
        f"(tensor<3x4xf32>, tensor<f32>) -> tensor<{result}>"
    )


CASES = [
    ("", dot("2x3", "3x4", "2x4")),
    ("", dot("2x?", "3x?", "2x?")),
    ("dot_general C1", dot("2x3", "3x4", "2x4", batch="[0] x []")),
    ("dot_general C2", dot("2x3", "3x4", "2x4", contract="[1] x []")),
    ("dot_general C3", dot("2x3", "3x4", "2x4", contract="[1, 1] x [0, 1]")),
    ("dot_general C4", dot("3x3", "3x4", "4", contract="[0, 1] x [0, 0]")),
    ("dot_general C5", dot("2x3", "3x4", "2x4", batch="[3] x [1]")),
    ("dot_general C6", dot("2x3", "3x4", "2x4", contract="[2] x [0]")),
    ("dot_general C7", dot("2x3", "3x4", "2x4", batch="[0] x [-1]")),
    ("dot_general C8", dot("2x3", "3x4", "2x4", contract="[1] x [2]")),
    ("dot_general C9", dot("2x3", "4x3", "2", batch="[0] x [0]", contract="[1] x [1]")),
    ("dot_general C10", dot("2x3", "4x4", "2x4")),
    ("dot_general type", dot("2x3", "3x4", "2x5")),
    ("", conv()),
    ("convolution C2", conv(window="stride = [1]")),
    ("convolution C3", conv(window="stride = [1, 0]")),
    ("convolution C5", conv(window="lhs_dilate = [1]")),
    ("convolution C6", conv(window="lhs_dilate = [1, 0]")),
    ("convolution C7", conv(window="rhs_dilate = [2]")),
    ("convolution C8", conv(window="rhs_dilate = [2, -1]")),
    ("convolution C10", conv(groups="feature_group_count = 1 : i64, batch_group_count = 4 : i64")),
    ("convolution C11", conv(groups="feature_group_count = 3 : i64, batch_group_count = 1 : i64")),
    ("convolution C14", conv(groups="feature_group_count = 2 : i64, batch_group_count = 1 : i64")),
    ("convolution C16", conv(groups="feature_group_count = 4 : i64, batch_group_count = 1 : i64", rhs="3x3x1x6")),
    ("convolution C23", conv(groups="feature_group_count = 2 : i64, batch_group_count = 2 : i64")),
    ("convolution C25", conv(result="2x6x5x6")),
    ("convolution attribute", conv(groups="feature_group_count = 0 : i64, batch_group_count = 1 : i64")),
    # gather, scatter, slices
    ("", gather()),
    ("gather C1", gather(collapsed="[]")),
    ("gather C2", gather(vector_dim=3)),
    ("gather C3", gather(index_map="[0, 1]")),
    ("gather C4", gather(offset="[2]")),
    ("gather C7", gather(collapsed="[2]")),
    ("gather C8", gather(sizes="2, 5")),
    ("gather C18", gather(index_map="[2]")),
    ("gather C20", gather(sizes="1")),
    ("gather C21", gather(sizes="1, 6")),
    ("gather type", gather(result="4x4")),
    ("", scatter()),
    ("scatter C2", scatter(inserted="[0, 1]")),
    ("scatter C4", scatter(update="4x6")),
    ("scatter C4", scatter(update="3x5")),
    ("scatter C4", scatter(update="4x5x1")),
    ("scatter C7", scatter(window="[2]")),
    ("scatter C11", scatter(to="[0, 1]")),
    ("scatter C12", scatter(to="[2]")),
    ("scatter C14", scatter(vector_dim=-1)),
    ("dynamic_slice C2", "%a: tensor<4xf32>, %i: tensor<i32>\n"
     "%0 = stablehlo.dynamic_slice %a, %i, %i, sizes = [2] :"
     " (tensor<4xf32>, tensor<i32>, tensor<i32>) -> tensor<2xf32>"),
    ("dynamic_slice C3", "%a: tensor<4x4xf32>, %i: tensor<i32>, %j: tensor<i64>\n"
     "%0 = stablehlo.dynamic_slice %a, %i, %j, sizes = [2, 2] :"
     " (tensor<4x4xf32>, tensor<i32>, tensor<i64>) -> tensor<2x2xf32>"),
    ("dynamic_slice C4", "%a: tensor<4xf32>, %i: tensor<i32>\n"
     "%0 = stablehlo.dynamic_slice %a, %i, sizes = [5] : (tensor<4xf32>, tensor<i32>) -> tensor<5xf32>"),
    ("dynamic_update_slice C6", "%a: tensor<4xf32>, %u: tensor<5xf32>, %i: tensor<i32>\n"
     "%0 = stablehlo.dynamic_update_slice %a, %u, %i : (tensor<4xf32>, tensor<5xf32>, tensor<i32>) -> tensor<4xf32>"),
    # reductions
    ("", reduce()),
    ("reduce C4", reduce(dims="2")),
    ("reduce C5", reduce(dims="1, 1")),
    ("reduce C6", reduce(body=GREATER)),
    ("reduce C6", reduce(init="i32")),
    ("reduce type", reduce(result="3xf32")),
    ("", window("window_dimensions = array<i64: 2, 3>")),
    ("reduce_window C4", window("window_dimensions = array<i64: 2>")),
    ("reduce_window C5", window("window_dimensions = array<i64: 2, 0>")),
    ("reduce_window C6", window("window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 1>")),
    ("reduce_window C7", window("window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 1, 0>")),
    ("reduce_window C9", window("window_dimensions = array<i64: 2, 3>, base_dilations = array<i64: 1, 0>")),
    ("reduce_window C11", window("window_dimensions = array<i64: 2, 3>, window_dilations = array<i64: 0, 1>")),
    ("reduce_window C12", window("window_dimensions = array<i64: 2, 3>, padding = dense<0> : tensor<3x2xi64>")),
    ("sort C4", '%a: tensor<4xf32>\n%0 = "stablehlo.sort"(%a) ' + GREATER +
     " {dimension = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>"),
    ("sort C5", '%a: tensor<4xf32>\n%0 = "stablehlo.sort"(%a) ' + ADD +
     " {dimension = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>"),
    ("map C3", '%a: tensor<2x2xf32>\n%0 = "stablehlo.map"(%a, %a) ' + ADD +
     " {dimensions = array<i64: 1, 0>} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>"),
    # linear algebra
    ("cholesky C2", "%a: tensor<4xf32>\n%0 = stablehlo.cholesky %a, lower = true : tensor<4xf32>"),
    ("cholesky C3", "%a: tensor<4x3xf32>\n%0 = stablehlo.cholesky %a, lower = true : tensor<4x3xf32>"),
    ("fft C3", "%a: tensor<2x2x2x2xcomplex<f32>>\n%0 = stablehlo.fft %a, type = FFT, length = [2, 2, 2, 2] :"
     " (tensor<2x2x2x2xcomplex<f32>>) -> tensor<2x2x2x2xcomplex<f32>>"),
    ("fft C4", "%a: tensor<4xcomplex<f32>>\n%0 = stablehlo.fft %a, type = FFT, length = [5] :"
     " (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>"),
    ("rng_bit_generator C2", "%a: tensor<3xui64>\n%0:2 = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY :"
     " (tensor<3xui64>) -> (tensor<3xui64>, tensor<2xui32>)"),
    # control flow
    ("if C1", '%p: tensor<i1>, %a: tensor<f32>\n%0 = "stablehlo.if"(%p) ({\n ^b(%x: tensor<f32>):\n'
     " stablehlo.return %x : tensor<f32>\n}, {\n stablehlo.return %a : tensor<f32>\n}) : (tensor<i1>) -> tensor<f32>"),
    ("if C2", '%p: tensor<i1>, %a: tensor<f32>, %b: tensor<i32>\n%0 = "stablehlo.if"(%p) ({\n'
     " stablehlo.return %b : tensor<i32>\n}, {\n stablehlo.return %a : tensor<f32>\n}) : (tensor<i1>) -> tensor<f32>"),
    ("case C1", '%p: tensor<i32>\n%0 = "stablehlo.case"(%p) : (tensor<i32>) -> tensor<f32>'),
    ("get_tuple_element C1", "%t: tuple<tensor<f32>>\n"
     "%0 = stablehlo.get_tuple_element %t[1] : (tuple<tensor<f32>>) -> tensor<f32>"),
    ("all_gather C1", '%a: tensor<2x2xf32>\n%0 = "stablehlo.all_gather"(%a) {all_gather_dim = 2 : i64,'
     " replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2x2xf32>) -> tensor<2x4xf32>"),
    ("all_gather C2", '%a: tensor<2x2xf32>\n%0 = "stablehlo.all_gather"(%a) {all_gather_dim = 1 : i64,'
     " replica_groups = dense<[[0, 0]]> : tensor<1x2xi64>} : (tensor<2x2xf32>) -> tensor<2x4xf32>"),
    ("collective_permute C3", '%a: tensor<2xf32>\n%0 = "stablehlo.collective_permute"(%a) {'
     "source_target_pairs = dense<[[0, 1], [1, 1]]> : tensor<2x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>"),
    # CHLO
    ("chlo.top_k C2", "%a: tensor<4xf32>\n%0:2 = chlo.top_k(%a, k = 5) :"
     " tensor<4xf32> -> (tensor<5xf32>, tensor<5xi32>)"),
    ("chlo.broadcast_add type", "%a: tensor<4xf32>, %b: tensor<3xf32>\n"
     "%0 = chlo.broadcast_add %a, %b : (tensor<4xf32>, tensor<3xf32>) -> tensor<4xf32>"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "body"), CASES, ids=[label or "valid" for label, _ in CASES])
def test_constraint(case, expected, body):
    case(expected, body)
