"""Bodies of regions, one for each op that may be in one: they compute %o from the scalars %l and %r.

A body may use PAIR and MATRIX (tensors of %l and %r that its `needs` name) and `%k`, an index that is 0 or 1.
"""

from __future__ import annotations

import re

PAIR = """%l1 = stablehlo.reshape %l : (tensor<f32>) -> tensor<1xf32>
%r1 = stablehlo.reshape %r : (tensor<f32>) -> tensor<1xf32>
%pair = stablehlo.concatenate %l1, %r1, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
%zero = stablehlo.constant dense<0.0> : tensor<f32>
%two = stablehlo.constant dense<2.0> : tensor<f32>
%less = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
%k = stablehlo.convert %less : (tensor<i1>) -> tensor<i32>
%k1 = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
%k2 = stablehlo.constant dense<2> : tensor<1xi32>
%k0 = stablehlo.constant dense<0> : tensor<1xi32>
%ones = stablehlo.constant dense<1> : tensor<1xi32>
%wide = stablehlo.broadcast_in_dim %pair, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
%eye = stablehlo.constant dense<[[3.0, 0.0], [1.0, 2.0]]> : tensor<2x2xf32>
%turned = stablehlo.transpose %wide, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
%matrix = stablehlo.add %turned, %eye : tensor<2x2xf32>
"""
"""Values that all bodies may read; dead ops are removed."""

FIRST = "%o0 = stablehlo.slice {0} [0:1] : ({1}) -> tensor<1xf32>\n%o = stablehlo.reshape %o0 : (tensor<1xf32>) -> tensor<f32>"
CORNER = "%o0 = stablehlo.slice {0} [0:1, 0:1] : ({1}) -> tensor<1x1xf32>\n%o = stablehlo.reshape %o0 : (tensor<1x1xf32>) -> tensor<f32>"
ADD = """({
  ^bb0(%in1: tensor<f32>, %in2: tensor<f32>):
    %sum = stablehlo.add %in1, %in2 : tensor<f32>
    stablehlo.return %sum : tensor<f32>
})"""
T2, M = "tensor<2xf32>", "tensor<2x2xf32>"


def first(value: str, t: str = T2) -> str:
    return FIRST.format(value, t)


def corner(value: str, t: str = M) -> str:
    return CORNER.format(value, t)


BODIES: dict[str, str] = {
    "stablehlo.broadcast": "%b = stablehlo.broadcast %pair, sizes = [3] : (tensor<2xf32>) -> tensor<3x2xf32>\n" + corner("%b", "tensor<3x2xf32>"),
    "stablehlo.broadcast_in_dim": corner("%wide"),
    "stablehlo.concatenate": first("%pair"),
    "stablehlo.iota": f"%i = stablehlo.iota dim = 0 : {T2}\n%b = stablehlo.add %i, %pair : {T2}\n" + first("%b"),
    "stablehlo.reverse": f"%b = stablehlo.reverse %pair, dims = [0] : {T2}\n" + first("%b"),
    "stablehlo.transpose": "%b = stablehlo.transpose %matrix, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>\n" + corner("%b"),
    "stablehlo.pad": f"%b = stablehlo.pad %pair, %l, low = [-1], high = [2], interior = [1] : ({T2}, tensor<f32>) -> tensor<4xf32>\n" + first("%b", "tensor<4xf32>"),
    "stablehlo.dynamic_slice": f"%o1 = stablehlo.dynamic_slice %pair, %k, sizes = [1] : ({T2}, tensor<i32>) -> tensor<1xf32>\n%o = stablehlo.reshape %o1 : (tensor<1xf32>) -> tensor<f32>",
    "stablehlo.dynamic_update_slice": f"%u = stablehlo.dynamic_update_slice %pair, %r1, %k : ({T2}, tensor<1xf32>, tensor<i32>) -> {T2}\n" + first("%u"),
    "stablehlo.gather": f"""%g = "stablehlo.gather"(%matrix, %k1) <{{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0],
  start_index_map = [0], index_vector_dim = 0>, slice_sizes = array<i64: 1, 2>}}> : ({M}, tensor<1xi32>) -> {T2}\n""" + first("%g"),
    "stablehlo.dynamic_gather": f"""%sizes = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
%g = "stablehlo.dynamic_gather"(%matrix, %k1, %sizes) <{{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0],
  start_index_map = [0], index_vector_dim = 0>}}> : ({M}, tensor<1xi32>, tensor<2xi32>) -> {T2}\n""" + first("%g"),
    "stablehlo.scatter": f"""%s = "stablehlo.scatter"(%pair, %k1, %two) <{{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
  scatter_dims_to_operand_dims = [0], index_vector_dim = 0>}}> {ADD} : ({T2}, tensor<1xi32>, tensor<f32>) -> {T2}\n""" + first("%s"),
    "stablehlo.sort": f"""%s = "stablehlo.sort"(%pair) ({{
  ^bb0(%in1: tensor<f32>, %in2: tensor<f32>):
    %before = stablehlo.compare GT, %in1, %in2 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
}}) {{dimension = 0 : i64}} : ({T2}) -> {T2}\n""" + first("%s"),
    "chlo.top_k": f"%t, %at = chlo.top_k(%pair, k = 1) : {T2} -> (tensor<1xf32>, tensor<1xi32>)\n%o = stablehlo.reshape %t : (tensor<1xf32>) -> tensor<f32>",
    "stablehlo.map": f"""%m = "stablehlo.map"(%pair, %pair) <{{dimensions = array<i64: 0>}}> {ADD} : ({T2}, {T2}) -> {T2}\n""" + first("%m"),
    "stablehlo.reduce": f"""%o = "stablehlo.reduce"(%pair, %r) <{{dimensions = array<i64: 0>}}> {ADD} : ({T2}, tensor<f32>) -> tensor<f32>""",
    "stablehlo.reduce_window": f"""%w = "stablehlo.reduce_window"(%pair, %zero) <{{window_dimensions = array<i64: 2>}}> {ADD} : ({T2}, tensor<f32>) -> tensor<1xf32>
%o = stablehlo.reshape %w : (tensor<1xf32>) -> tensor<f32>""",
    "stablehlo.select_and_scatter": f"""%w = "stablehlo.select_and_scatter"(%pair, %r1, %zero) <{{window_dimensions = array<i64: 2>}}> ({{
  ^bb0(%in3: tensor<f32>, %in4: tensor<f32>):
    %keep = stablehlo.compare GE, %in3, %in4 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %keep : tensor<i1>
}}, {{
  ^bb0(%in1: tensor<f32>, %in2: tensor<f32>):
    %sum = stablehlo.add %in1, %in2 : tensor<f32>
    stablehlo.return %sum : tensor<f32>
}}) : ({T2}, tensor<1xf32>, tensor<f32>) -> {T2}\n""" + first("%w"),
    "stablehlo.while": """%lim = stablehlo.constant dense<4.0> : tensor<f32>
%o = stablehlo.while(%it = %l) : tensor<f32>
  cond {
    %more = stablehlo.compare LT, %it, %lim : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %it, %two : tensor<f32>
    stablehlo.return %next : tensor<f32>
  }""",
    "stablehlo.if": """%o = "stablehlo.if"(%less) ({
    %yes = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %yes : tensor<f32>
  }, {
    stablehlo.return %r : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>""",
    "stablehlo.case": """%o = "stablehlo.case"(%k) ({
    %yes = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %yes : tensor<f32>
  }, {
    stablehlo.return %r : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>""",
    "stablehlo.dot": f"%d = stablehlo.dot %matrix, %pair : ({M}, {T2}) -> {T2}\n" + first("%d"),
    "stablehlo.dot_general": f"%d = stablehlo.dot_general %matrix, %wide, contracting_dims = [1] x [0] : ({M}, {M}) -> {M}\n" + corner("%d"),
    "stablehlo.einsum": f'%d = "stablehlo.einsum"(%matrix, %pair) <{{einsum_config = "ab,b->a"}}> : ({M}, {T2}) -> {T2}\n' + first("%d"),
    "stablehlo.unary_einsum": f'%d = "stablehlo.unary_einsum"(%matrix) <{{einsum_config = "ab->b"}}> : ({M}) -> {T2}\n' + first("%d"),
    "chlo.ragged_dot": f"""%left = stablehlo.reshape %pair : ({T2}) -> tensor<1x2xf32>
%experts = stablehlo.broadcast_in_dim %matrix, dims = [1, 2] : ({M}) -> tensor<2x2x2xf32>
%group = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
%d = "chlo.ragged_dot"(%left, %experts, %group) <{{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [],
  lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}}>
  : (tensor<1x2xf32>, tensor<2x2x2xf32>, tensor<2xi64>) -> tensor<1x2xf32>\n""" + corner("%d", "tensor<1x2xf32>"),
    "stablehlo.convolution": """%image = stablehlo.reshape %pair : (tensor<2xf32>) -> tensor<1x2x1xf32>
%kernel = stablehlo.reshape %pair : (tensor<2xf32>) -> tensor<2x1x1xf32>
%c = stablehlo.convolution(%image, %kernel) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 0]]}
  {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x2x1xf32>, tensor<2x1x1xf32>) -> tensor<1x2x1xf32>
%c1 = stablehlo.reshape %c : (tensor<1x2x1xf32>) -> tensor<2xf32>\n""" + first("%c1"),
    "stablehlo.dynamic_conv": """%image = stablehlo.reshape %pair : (tensor<2xf32>) -> tensor<1x2x1xf32>
%kernel = stablehlo.reshape %pair : (tensor<2xf32>) -> tensor<2x1x1xf32>
%edges = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi32>
%c = "stablehlo.dynamic_conv"(%image, %kernel, %edges) <{dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>,
  batch_group_count = 1 : i64, feature_group_count = 1 : i64}> : (tensor<1x2x1xf32>, tensor<2x1x1xf32>, tensor<1x2xi32>) -> tensor<1x2x1xf32>
%c1 = stablehlo.reshape %c : (tensor<1x2x1xf32>) -> tensor<2xf32>\n""" + first("%c1"),
    "stablehlo.cholesky": f"""%spd = stablehlo.dot_general %matrix, %matrix, contracting_dims = [1] x [1] : ({M}, {M}) -> {M}
%grow = stablehlo.constant dense<[[4.0, 0.0], [0.0, 4.0]]> : {M}
%full = stablehlo.add %spd, %grow : {M}
%d = stablehlo.cholesky %full, lower = true : {M}\n""" + corner("%d"),
    "stablehlo.triangular_solve": f"""%d = "stablehlo.triangular_solve"(%eye, %wide) <{{left_side = true, lower = true, unit_diagonal = false,
  transpose_a = #stablehlo<transpose NO_TRANSPOSE>}}> : ({M}, {M}) -> {M}\n""" + corner("%d"),
    "stablehlo.fft": """%z = stablehlo.fft %pair, type = RFFT, length = [2] : (tensor<2xf32>) -> tensor<2xcomplex<f32>>
%re = stablehlo.real %z : (tensor<2xcomplex<f32>>) -> tensor<2xf32>\n""" + first("%re"),
    "stablehlo.batch_norm_inference": f"""%c = stablehlo.constant dense<[1.0, 2.0]> : {T2}
%n = "stablehlo.batch_norm_inference"(%matrix, %c, %pair, %pair, %c) <{{epsilon = 0.001 : f32, feature_index = 1 : i64}}> : ({M}, {T2}, {T2}, {T2}, {T2}) -> {M}\n""" + corner("%n"),
    "stablehlo.batch_norm_training": f"""%c = stablehlo.constant dense<[1.0, 2.0]> : {T2}
%n:3 = "stablehlo.batch_norm_training"(%matrix, %c, %pair) <{{epsilon = 0.1 : f32, feature_index = 1 : i64}}> : ({M}, {T2}, {T2}) -> ({M}, {T2}, {T2})\n""" + corner("%n#0"),
    "stablehlo.batch_norm_grad": f"""%c = stablehlo.constant dense<[1.0, 2.0]> : {T2}
%n:3 = "stablehlo.batch_norm_grad"(%matrix, %c, %pair, %c, %wide) <{{epsilon = 0.1 : f32, feature_index = 1 : i64}}> : ({M}, {T2}, {T2}, {T2}, {M}) -> ({M}, {T2}, {T2})\n""" + corner("%n#0"),
    "stablehlo.rng_bit_generator": """%seed = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<i32>) -> tensor<2xi32>
%key = stablehlo.convert %seed : (tensor<2xi32>) -> tensor<2xui64>
%after, %bits = stablehlo.rng_bit_generator %key, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2xui32>)
%eight = stablehlo.constant dense<8> : tensor<2xui32>
%short = stablehlo.shift_right_logical %bits, %eight : tensor<2xui32>
%f = stablehlo.convert %short : (tensor<2xui32>) -> tensor<2xf32>
%scale = stablehlo.constant dense<1.0e-7> : tensor<2xf32>
%g = stablehlo.multiply %f, %scale : tensor<2xf32>\n""" + first("%g"),
    "stablehlo.get_dimension_size": """%n = stablehlo.get_dimension_size %pair, dim = 0 : (tensor<2xf32>) -> tensor<i32>
%f = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
%o = stablehlo.multiply %f, %l : tensor<f32>""",
    "stablehlo.dynamic_reshape": f"%sh = stablehlo.constant dense<[2, 1]> : tensor<2xi32>\n%d = stablehlo.dynamic_reshape %pair, %sh : ({T2}, tensor<2xi32>) -> tensor<2x1xf32>\n" + corner("%d", "tensor<2x1xf32>"),
    "chlo.dynamic_reshape": f'%sh = stablehlo.constant dense<[2, 1]> : tensor<2xi32>\n%d = "chlo.dynamic_reshape"(%pair, %sh) : ({T2}, tensor<2xi32>) -> tensor<2x1xf32>\n' + corner("%d", "tensor<2x1xf32>"),
    "stablehlo.dynamic_broadcast_in_dim": f"%sh = stablehlo.constant dense<[3, 2]> : tensor<2xi32>\n%d = stablehlo.dynamic_broadcast_in_dim %pair, %sh, dims = [1] : ({T2}, tensor<2xi32>) -> tensor<3x2xf32>\n" + corner("%d", "tensor<3x2xf32>"),
    "stablehlo.dynamic_iota": f"%i = stablehlo.dynamic_iota %k2, dim = 0 : (tensor<1xi32>) -> {T2}\n%b = stablehlo.add %i, %pair : {T2}\n" + first("%b"),
    "stablehlo.dynamic_pad": f"%d = stablehlo.dynamic_pad %pair, %r, %ones, %k0, %k0 : ({T2}, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xf32>\n" + first("%d", "tensor<3xf32>"),
    "stablehlo.real_dynamic_slice": f"%d = stablehlo.real_dynamic_slice %pair, %ones, %k2, %ones : ({T2}, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<1xf32>\n" + first("%d", "tensor<1xf32>"),
    "stablehlo.torch_index_select": f'%d = "stablehlo.torch_index_select"(%pair, %k1) <{{dim = 0 : i64, batch_dims = 0 : i64}}> : ({T2}, tensor<1xi32>) -> tensor<1xf32>\n' + first("%d", "tensor<1xf32>"),
    "stablehlo.tuple": f"%t = stablehlo.tuple %pair, %l : tuple<{T2}, tensor<f32>>\n%d = stablehlo.get_tuple_element %t[0] : (tuple<{T2}, tensor<f32>>) -> {T2}\n" + first("%d"),
    "stablehlo.optimization_barrier": "%o = stablehlo.optimization_barrier %l : tensor<f32>",
    "stablehlo.bitcast_convert": f"""%d = stablehlo.bitcast_convert %pair : ({T2}) -> tensor<2x2xui16>
%e = stablehlo.bitcast_convert %d : (tensor<2x2xui16>) -> {T2}\n""" + first("%e"),
    "stablehlo.composite": '%o = stablehlo.composite "made.up" %l, %r {decomposition = @both} : (tensor<f32>, tensor<f32>) -> tensor<f32>',
    "func.call": "%o = func.call @both(%l, %r) : (tensor<f32>, tensor<f32>) -> tensor<f32>",
    "chlo.constant": "%c = chlo.constant dense<2.0> : tensor<f32>\n%o = stablehlo.multiply %c, %l : tensor<f32>",
    "chlo.constant_like": '%c = "chlo.constant_like"(%l) <{value = 2.0 : f32}> : (tensor<f32>) -> tensor<f32>\n%o = stablehlo.multiply %c, %l : tensor<f32>',
    "chlo.scan": f"""%s:2 = chlo.scan(%pair) inits(%r) dimension=0 {{
  ^bb0(%in1: tensor<f32>, %in2: tensor<f32>):
    %sum = stablehlo.add %in1, %in2 : tensor<f32>
    stablehlo.return %sum, %sum : tensor<f32>, tensor<f32>
}} : ({T2}, tensor<f32>) -> ({T2}, tensor<f32>)\n""" + first("%s#0"),
    "chlo.broadcast_add": f"%d = chlo.broadcast_add %pair, %l : ({T2}, tensor<f32>) -> {T2}\n" + first("%d"),
    "chlo.erf": f"%d = chlo.erf %pair : {T2} -> {T2}\n" + first("%d"),
}  # fmt: skip

FUNCTIONS = """func.func private @both(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.reshape %x : (tensor<f32>) -> tensor<1xf32>
  %1 = stablehlo.reshape %y : (tensor<f32>) -> tensor<1xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %3 = stablehlo.reverse %2, dims = [0] : tensor<2xf32>
  %4 = stablehlo.slice %3 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %5 = stablehlo.reshape %4 : (tensor<1xf32>) -> tensor<f32>
  return %5 : tensor<f32>
}"""
"""Functions that bodies may call."""


def body(name: str, left: str, right: str, prefix: str) -> str:
    """Returns the lines that compute `%{prefix}_o` by an op from two scalars."""
    text = f"{PAIR}{BODIES[name]}"
    lines = text.replace("%o ", "%raw ").replace("%o:", "%raw:") + "\n%o = stablehlo.tanh %raw : tensor<f32>"
    given = {"%l": left, "%r": right}
    return re.sub(r"%\w+", lambda m: given.get(m[0], f"%{prefix}_{m[0][1:]}"), lines)
