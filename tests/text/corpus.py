"""Texts for the tests of the text front end.

`SNIPPETS` are op lines of every pretty form; each is inserted in a function with the arguments of `HEADER`.
`shared_texts` are those of a folder `shared` next to the checkout, if it exists.
"""

from __future__ import annotations

import re
from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared"
FOLDERS = ("conformance/dynamic", "conformance/interpret", "conformance/quantized", "conformance/testdata",
           "conformance/verify", "models/programs")  # fmt: skip
_SPLIT = re.compile(r"^// -----.*$\n?", re.MULTILINE)

ARGUMENTS = {
    "x": "tensor<3xf32>",
    "y": "tensor<3xf32>",
    "m": "tensor<3x3xf32>",
    "s": "tensor<f32>",
    "i": "tensor<i32>",
    "v": "tensor<3xi32>",
    "n": "tensor<1xi64>",
    "p": "tensor<3xi1>",
    "b": "tensor<i1>",
    "z": "tensor<3xcomplex<f32>>",
    "q": "tensor<3x!quant.uniform<i8:f32, 1.0:17>>",
    "t": "!stablehlo.token",
    "u": "tuple<tensor<3xf32>, tuple<tensor<i32>>>",
    "d": "tensor<?x3xf32>",
    "a": "tensor<1x4x4x2xf32>",
    "k": "tensor<3x3x2x5xf32>",
    "key": "tensor<2xui64>",
}
HEADER = "func.func @f(" + ", ".join(f"%{name}: {type}" for name, type in ARGUMENTS.items()) + ") {\n"
FOOTER = "\n  return\n}\n"

UNARY = """abs cbrt ceil convert cosine exponential exponential_minus_one floor log log_plus_one logistic negate
round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh""".split()
BINARY = "add atan2 divide maximum minimum multiply power remainder subtract".split()

SNIPPETS = [
    *(f"%0 = stablehlo.{name} %x : tensor<3xf32>" for name in UNARY),
    *(f"%0 = stablehlo.{name} %x, %y : tensor<3xf32>" for name in BINARY),
    *(f"%0 = stablehlo.{name} %v, %v : tensor<3xi32>" for name in ("and", "or", "xor", "shift_left")),
    "%0 = stablehlo.add %q, %q : (tensor<3x!quant.uniform<i8:f32, 1.0:17>>, tensor<3x!quant.uniform<i8:f32, 1.0:17>>)"
    " -> tensor<3x!quant.uniform<i8:f32, 2.0:17>>",
    "%0 = stablehlo.is_finite %x : (tensor<3xf32>) -> tensor<3xi1>",
    "%0 = stablehlo.real %z : (tensor<3xcomplex<f32>>) -> tensor<3xf32>",
    "%0 = stablehlo.abs %z : (tensor<3xcomplex<f32>>) -> tensor<3xf32>",
    "%0 = stablehlo.complex %x, %y : tensor<3xcomplex<f32>>",
    "%0 = stablehlo.exponential %x {result_accuracy = #stablehlo.result_accuracy<atol = 1.000000e+00, ulps = 4, "
    "mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<3xf32>",
    "%0 = stablehlo.uniform_quantize %x : (tensor<3xf32>)"
    " -> tensor<3x!quant.uniform<i8<-100:100>:f32:0, {1.0, 2.0:3}>>",
    "%0 = stablehlo.uniform_dequantize %q : (tensor<3x!quant.uniform<i8:f32, 1.0:17>>) -> tensor<3xf32>",
    "%0 = stablehlo.clamp %s, %x, %s : (tensor<f32>, tensor<3xf32>, tensor<f32>) -> tensor<3xf32>",
    "%0 = stablehlo.clamp %x, %x, %x : tensor<3xf32>",
    "%0 = stablehlo.iota dim = 1 : tensor<4x5xui8>",
    "%0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>",
    "%0 = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>",
    '%0 = stablehlo.constant {foo = [1, 2.5, "a\\22b", @g::@h, unit], bar} dense<true> : tensor<2x2xi1>',
    "%0 = stablehlo.constant() <{value = dense<3> : tensor<3xi8>}> : () -> tensor<3x!quant.uniform<i8:f32, 1.0:17>>",
    "%0 = stablehlo.constant dense<(1.0, 0x7FC00000)> : tensor<2xcomplex<f32>>",
    "%0 = stablehlo.constant dense<> : tensor<0x2xf32>",
    "%0 = stablehlo.create_token : !stablehlo.token",
    "%0 = stablehlo.after_all %t, %t : !stablehlo.token",
    "%0 = stablehlo.after_all : !stablehlo.token",
    "%0 = stablehlo.partition_id : tensor<ui32>",
    "%0 = stablehlo.replica_id : tensor<ui32>",
    "%0 = stablehlo.broadcast %x, sizes = [2, 1] : (tensor<3xf32>) -> tensor<2x1x3xf32>",
    "%0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>",
    "%0 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<2x3xf32>",
    "%0 = stablehlo.dynamic_broadcast_in_dim %s, %n, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>",
    "%0 = stablehlo.transpose %m, dims = [1, 0] {foo = 1 : i32} : (tensor<3x3xf32>) -> tensor<3x3xf32>",
    "%0 = stablehlo.reverse %m, dims = [0] : tensor<3x3xf32>",
    "%0 = stablehlo.pad %x, %s, low = [1], high = [-1], interior = [2] : (tensor<3xf32>, tensor<f32>) -> tensor<7xf32>",
    "%0 = stablehlo.concatenate %x, %y, %x, dim = 0 : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<9xf32>",
    "%0 = stablehlo.slice %m [0:2, 0:3:2] : (tensor<3x3xf32>) -> tensor<2x2xf32>",
    "%0 = stablehlo.slice %s [] : (tensor<f32>) -> tensor<f32>",
    "%0 = stablehlo.dynamic_slice %m, %i, %i, sizes = [1, 2] : (tensor<3x3xf32>, tensor<i32>, tensor<i32>)"
    " -> tensor<1x2xf32>",
    "%0 = stablehlo.dynamic_update_slice %x, %x, %i : (tensor<3xf32>, tensor<3xf32>, tensor<i32>) -> tensor<3xf32>",
    "%0 = stablehlo.get_dimension_size %d, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>",
    "%0 = stablehlo.set_dimension_size %x, %i, dim = 0 : (tensor<3xf32>, tensor<i32>)"
    " -> tensor<?xf32, #stablehlo.bounds<3>>",
    "%0 = stablehlo.reshape %m : (tensor<3x3xf32>) -> tensor<9xf32>",
    "%0 = stablehlo.dynamic_reshape %m, %n : (tensor<3x3xf32>, tensor<1xi64>) -> tensor<?xf32>",
    "%0 = stablehlo.bitcast_convert %x : (tensor<3xf32>) -> tensor<3xi32>",
    "%0 = stablehlo.cholesky %m : tensor<3x3xf32>",
    "%0 = stablehlo.cholesky %m, lower = true : tensor<3x3xf32>",
    '%0 = stablehlo.einsum %m, %m, config = "ab,bc->ac" : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>',
    '%0 = stablehlo.unary_einsum %m, config = "ab->a" : (tensor<3x3xf32>) -> tensor<3xf32>',
    "%0 = stablehlo.fft %z, type = FFT, length = [3] : (tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>",
    "%0 = stablehlo.rng %s, %s, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>)"
    " -> tensor<3xf32>",
    "%0, %1 = stablehlo.rng_bit_generator %key, algorithm = PHILOX : (tensor<2xui64>)"
    " -> (tensor<2xui64>, tensor<4xui32>)",
    "%0 = stablehlo.torch_index_select %m, %v, dim = 0, batch_dims = 0 : (tensor<3x3xf32>, tensor<3xi32>)"
    " -> tensor<3x3xf32>",
    "%0 = stablehlo.compare LT, %x, %y : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>",
    "%0 = stablehlo.compare  GE, %v, %v,  SIGNED : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>",
    "%0 = stablehlo.select %p, %x, %y : tensor<3xi1>, tensor<3xf32>",
    "%0 = stablehlo.select %b, %d, %x : (tensor<i1>, tensor<?x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>",
    "%0 = stablehlo.reduce_precision %x, format = e5m10 : tensor<3xf32>",
    "%0 = stablehlo.tuple %x, %i : tuple<tensor<3xf32>, tensor<i32>>",
    "%0 = stablehlo.get_tuple_element %u[1] : (tuple<tensor<3xf32>, tuple<tensor<i32>>>) -> tuple<tensor<i32>>",
    '%0 = stablehlo.custom_call @"odd name"(%x) {api_version = 4 : i32, backend_config = {a = 1 : i64},'
    " output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0,"
    " operand_tuple_indices = []>]} : (tensor<3xf32>) -> tensor<3xf32>",
    'stablehlo.composite "foo.bar" {decomposition = @g} : () -> ()',
    '%0 = stablehlo.composite "foo.bar" %x, %i {decomposition = @g, version = 1 : i32} : (tensor<3xf32>, tensor<i32>)'
    " -> tensor<3xf32>",
    'stablehlo.composite "foo.bar" ({\n    stablehlo.return %x : tensor<3xf32>\n  }) {decomposition = @g} : () -> ()',
    '%0 = stablehlo.composite "foo.bar" %x, %i ({\n    stablehlo.return %x : tensor<3xf32>\n  }, {\n  ^bb0(%e: tensor<f32>):'
    "\n    stablehlo.return %e : tensor<f32>\n  }) {decomposition = @g} : (tensor<3xf32>, tensor<i32>) -> tensor<3xf32>",
    '%0 = stablehlo.negate %x {axes = [#stablehlo.axis_ref<name = "x", sub_axis_info = (1)2>, #stablehlo.axis_ref<name ='
    ' "y">]} : tensor<3xf32>',
    "stablehlo.optimization_barrier()",
    "%0:2 = stablehlo.optimization_barrier %x, %i : tensor<3xf32>, tensor<i32>",
    "%0 = stablehlo.optimization_barrier {a = 1 : i32} %x : tensor<3xf32>",
    "%0 = stablehlo.dot %m, %m, precision = [HIGH, DEFAULT] : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>",
    "%0 = stablehlo.dot_general %m, %m, batching_dims = [0] x [0], contracting_dims = [1] x [1]"
    " : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3xf32>",
    "%0 = stablehlo.dot_general %m, %m, contracting_dims = [1] x [0], precision = [DEFAULT, HIGHEST], algorithm ="
    " <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1,"
    " rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false>"
    " : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>",
    "%0 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride ="
    " [2, 2], pad = [[1, 1], [0, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, true]}"
    " {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    " : (tensor<1x4x4x2xf32>, tensor<3x3x2x5xf32>) -> tensor<1x2x2x5xf32>",
    "%0 = stablehlo.convolution(%m, %m) dim_numbers = [b, f]x[i, o]->[b, f], window = {}"
    " {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    " : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>",
    "%0 = stablehlo.reduce(%m init: %s) applies stablehlo.add across dimensions = [0]"
    " : (tensor<3x3xf32>, tensor<f32>) -> tensor<3xf32>",
    "%0:2 = stablehlo.reduce(%x init: %s), (%v init: %i) across dimensions = [0]"
    " : (tensor<3xf32>, tensor<3xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)\n"
    "   reducer(%e: tensor<f32>, %f: tensor<f32>) (%g: tensor<i32>, %h: tensor<i32>) {\n"
    "    %1 = stablehlo.maximum %e, %f : tensor<f32>\n    stablehlo.return %1, %h : tensor<f32>, tensor<i32>\n  }",
    "%0:2 = stablehlo.while(%w = %x, %c = %i) : tensor<3xf32>, tensor<i32> attributes {foo = 1 : i32}\n  cond {\n"
    "    %1 = stablehlo.compare LT, %c, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "    stablehlo.return %1 : tensor<i1>\n  } do {\n    stablehlo.return %w, %c : tensor<3xf32>, tensor<i32>\n  }",
    '%0 = "stablehlo.case"(%i) ({\n    stablehlo.return %x : tensor<3xf32>\n  }, {\n    %1 = func.call @g(%x)'
    " : (tensor<3xf32>) -> tensor<3xf32>\n    stablehlo.return %1 : tensor<3xf32>\n  })"
    " : (tensor<i32>) -> tensor<3xf32>",
    '%0 = "stablehlo.gather"(%m, %v) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims ='
    " [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 3>}>"
    " : (tensor<3x3xf32>, tensor<3xi32>) -> tensor<3x3xf32>",
    '%0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,'
    " replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({\n  ^bb0(%e: tensor<f32>, %f:"
    " tensor<f32>):\n    %1 = stablehlo.add %e, %f : tensor<f32>\n    stablehlo.return %1 : tensor<f32>\n  })"
    " : (tensor<3xf32>) -> tensor<3xf32>",
    "%0 = chlo.erf %x : tensor<3xf32> -> tensor<3xf32>",
    "%0 = chlo.is_inf %x : tensor<3xf32> -> tensor<3xi1>",
    "%0 = chlo.next_after %x, %y : tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>",
    "%0 = chlo.broadcast_add %m, %x {broadcast_dimensions = array<i64: 1>} : (tensor<3x3xf32>, tensor<3xf32>)"
    " -> tensor<3x3xf32>",
    "%0 = chlo.broadcast_compare %m, %x {compare_type = #chlo<comparison_type FLOAT>, comparison_direction ="
    " #chlo<comparison_direction LT>} : (tensor<3x3xf32>, tensor<3xf32>) -> tensor<3x3xi1>",
    "%0 = chlo.broadcast_select %b, %m, %m : (tensor<i1>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>",
    "%0 = chlo.constant dense<1> : tensor<3xi32>",
    '%0 = "chlo.constant_like"(%x) <{value = 1.000000e+00 : f32}> : (tensor<3xf32>) -> tensor<3xf32>',
    "%0, %1 = chlo.top_k(%x, k = 2) : tensor<3xf32> -> (tensor<2xf32>, tensor<2xi32>)",
    "%0:2 = chlo.scan(%x) inits (%s) dimension=0 {\n  ^bb0(%e: tensor<f32>, %f: tensor<f32>):\n"
    "    stablehlo.return %e, %f : tensor<f32>, tensor<f32>\n  } : (tensor<3xf32>, tensor<f32>)"
    " -> (tensor<3xf32>, tensor<f32>)",
    "%0 = call @g(%x) : (tensor<3xf32>) -> tensor<3xf32>",
    '%0 = sdy.sharding_constraint %m <@mesh, [{"x"}, {}]> : tensor<3x3xf32>',
    '%0 = sdy.all_gather [{"x"}, {}] %m out_sharding=<@mesh, [{}, {}]> : tensor<3x3xf32>',
    '%0:2 = sdy.named_computation<"foo">(%x, %i) (%e: tensor<3xf32>, %f: tensor<i32>) {\n'
    "    sdy.return %e, %f : tensor<3xf32>, tensor<i32>\n  } : (tensor<3xf32>, tensor<i32>)"
    " -> (tensor<3xf32>, tensor<i32>)",
    "%0 = arith.constant 1 : i32",
    "%0 = shape.shape_of %d : tensor<?x3xf32> -> tensor<2xindex>",
    "%0 = foo.bar %x, %i {a = #foo.attr<[1, x] -> {y}>} : tensor<3xf32>, tensor<i32> -> tensor<3xf32>",
    '%0 = stablehlo.add %x, %y : tensor<3xf32> loc("a"("f.py":1:2))',
    "%0 = stablehlo.add %x, %y : tensor<3xf32> loc(#loc1)",
]

PROGRAMS = [
    "",
    "module {}",
    "module @m attributes {a = 1 : i32} {\n  module @inner {\n    func.func private @g(tensor<f32> {x.y})"
    " -> tensor<f32>\n"
    "  }\n}\n",
    '#map = array<i64: 1, 2>\n!t = tensor<3xf32>\nfunc.func @f(%a: !t {a.b = #map} loc("x")) -> (!t {c.d = "e"})'
    " attributes {k} {\n  return %a : !t loc(#loc)\n} loc(#loc2)\n#loc = loc(unknown)\n"
    "#loc2 = loc(callsite(#loc at #loc))\n",
    'sdy.mesh @mesh = <["d"=2]> {stablehlo.mesh = {axes = [{name = "d", size = 2 : i64}]}}\n'
    "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
    '  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"d"}]>] out_shardings=[<@mesh, [{"d"}]>]'
    ' manual_axes={"d"} (%a: tensor<2xf32>) {\n    sdy.return %a : tensor<2xf32>\n  } : (tensor<4xf32>)'
    " -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n",
    "func.func @f(%c: i1, %x: tensor<f32>) -> tensor<f32> {\n"
    '  "cf.cond_br"(%c, %x)[^a, ^b] {operandSegmentSizes = array<i32: 1, 1, 0>} : (i1, tensor<f32>) -> ()\n'
    "^a(%y: tensor<f32>):\n  return %y : tensor<f32>\n^b:\n  return %x : tensor<f32>\n}\n",
    'func.func @"a b"() -> tensor<3xf32> {\n  %0 = stablehlo.constant dense_resource<r> : tensor<3xf32>\n'
    "  return %0 : tensor<3xf32>\n}\n"
    '{-#\n  dialect_resources: {\n    builtin: {\n      r: "0x040000000000803F0000004000004040"\n    }\n  }\n#-}\n',
]


def own_texts() -> list[str]:
    """Returns the snippets, each as a program, and the programs."""
    return [HEADER + "  " + snippet + FOOTER for snippet in SNIPPETS] + PROGRAMS


def shared_texts(folder: str) -> list[tuple[str, str]]:
    """Returns (file name, text) of every program in a folder of `shared`."""
    found: list[tuple[str, str]] = []
    for path in sorted((SHARED / folder).glob("*.mlir")):
        parts = _SPLIT.split(path.read_text("utf-8"))
        found += [(path.name, part) for part in parts if part.strip()]
    return found
