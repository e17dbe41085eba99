"""Each pass on one program: the ops before and after it, run once and twice, and that results stay the same."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from alone import main_of, module_of

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.equality import equal_modules
from shlo_jit.passes import PASSES, core_functions, run_passes
from shlo_jit.passes.build import apply
from shlo_jit.passes.context import Context
from shlo_jit.reference.interpreter import evaluate

ROOT = Path(shlo_jit.__file__).parent / "passes"
HELPERS = {
    *("build", "context", "rewriter", "pending", "identities", "weights"),
    *("grouped", "intervals", "magnitudes", "masked_weights", "pairs"),
}
RUNS = {step.name: step.run for step in PASSES}


@dataclass(frozen=True)
class Case:
    """`ops` of `@main`, without dialects and terminators, become `after`. `shape` is the shape of the f32 argument."""

    text: str
    ops: str
    after: str
    shape: tuple[int, ...] = (4,)
    meaning: bool = True
    """Whether the reference interpreter can run both sides."""
    given: tuple[str, int] | None = None
    """A number of `tuning` that makes the program large enough, and its value."""


def main(body: str, argument: str = "tensor<4xf32>", result: str = "tensor<4xf32>", more: str = "") -> str:
    return f"module {{\nfunc.func @main(%x: {argument}) -> ({result}) {{\n{body}\n}}\n{more}}}"


COMPARATOR = """func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
"""
Q = "tensor<4x!quant.uniform<i8:f32, 0.5>>"
DOT = "stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]"
CONVOLUTION = """%0 = stablehlo.convolution(%x, %x) dim_numbers = [b, f, 0]x[i, o, 0]->[{out}],
  window = {{pad = [[1, 1]]{window}}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
  : ({t}, {t}) -> {r}
return %0 : {r}"""
ALL_REDUCE = """%{r} = "stablehlo.all_reduce"(%{x}) ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
          }}) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<4xf32>) -> tensor<4xf32>"""
RETURN = "return %0 : tensor<4xf32>"


def dot(name: str, lhs: str, rhs: str, contracting: tuple[int, int], shape: str = "tensor<8x256x256xf32>") -> str:
    """A product of 8 matrices of one shape."""
    a, b = contracting
    numbers = f"batching_dims = [0] x [0], contracting_dims = [{a}] x [{b}]"
    return f"%{name} = stablehlo.dot_general %{lhs}, %{rhs}, {numbers} : ({shape}, {shape}) -> {shape}"


CASES = {
    "without_shape_operands": Case(
        main("""%s = stablehlo.constant dense<4> : tensor<1xi32>
          %0 = stablehlo.custom_call @AllocateBuffer(%s) {indices_of_shape_operands = dense<0> : tensor<1xi64>}
            : (tensor<1xi32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>"""),
        "constant custom_call", "constant custom_call", meaning=False,
    ),
    "exact_top_k": Case(
        main("""%i = stablehlo.iota dim = 0 : tensor<4xi32>
          %low = stablehlo.constant dense<0.0> : tensor<f32>
          %none = stablehlo.constant dense<-1> : tensor<i32>
          %0:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %low, %none) {called_computations = [@greater],
            mhlo.backend_config = {aggregate_to_topk = true, recall_target = 0.9 : f32, reduction_dim = 0 : i64,
            reduction_input_size_override = -1 : i64, top_k = 2 : i64}}
            : (tensor<4xf32>, tensor<4xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
          return %0#0 : tensor<2xf32>""", result="tensor<2xf32>", more=COMPARATOR),
        "iota constant constant custom_call", "iota constant constant sort compare slice slice", meaning=False,
    ),
    "dynamic_calls": Case(
        main("""%k = stablehlo.constant dense<2> : tensor<i32>
          %0:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %k)
            : (tensor<4xf32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
          return %0#0 : tensor<2xf32>""", result="tensor<2xf32>"),
        "constant custom_call", "constant top_k", meaning=False,
    ),
    "known_calls": Case(
        main(f"%0 = stablehlo.custom_call @Sharding(%x) : (tensor<4xf32>) -> tensor<4xf32>\n{RETURN}"),
        "custom_call", "", meaning=False,
    ),
    "require_addressable": Case(main("return %x : tensor<4xf32>"), "", ""),
    "first_platform": Case(
        "func.func @main(%x: tensor<4xf32>, %i: tensor<i32> {jax.global_constant = \"_platform_index\"}) -> tensor<i32>"
        " {\n  return %i : tensor<i32>\n}", "", "constant", meaning=False,
    ),
    "without_shardings": Case(
        "module {\nsdy.mesh @mesh = <[\"a\"=1]>\nfunc.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %0 = sdy.sharding_constraint %x <@mesh, [{\"a\"}]> : tensor<4xf32>\n"
        "  %1 = stablehlo.abs %0 : tensor<4xf32>\n  return %1 : tensor<4xf32>\n}\n}",
        "sharding_constraint abs", "abs", meaning=False,
    ),
    "host_calls": Case(
        main("""%t = stablehlo.create_token : !stablehlo.token
          %u = "stablehlo.outfeed"(%x, %t) : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
          return %x : tensor<4xf32>"""),
        "create_token outfeed", "create_token custom_call", meaning=False,
    ),
    "flatten": Case(
        main("""%0 = stablehlo.tuple %x, %x : tuple<tensor<4xf32>, tensor<4xf32>>
          %1 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<4xf32>, tensor<4xf32>>) -> tensor<4xf32>
          return %1 : tensor<4xf32>"""),
        "tuple get_tuple_element", "",
    ),
    "custom_code": Case(
        main(f"%0 = stablehlo.custom_call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>\n{RETURN}"),
        "custom_call", "add", meaning=False,
    ),
    "process_grid": Case(
        main("""%i = stablehlo.partition_id : tensor<ui32>
          %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}
            : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>"""),
        "partition_id all_gather", "constant", meaning=False,
    ),
    "lower_quantized": Case(
        main(f"""%0 = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> {Q}
          %1 = stablehlo.uniform_dequantize %0 : ({Q}) -> tensor<4xf32>
          return %1 : tensor<4xf32>"""),
        "uniform_quantize uniform_dequantize",
        "constant divide round_nearest_even constant constant clamp convert convert constant multiply",
    ),
    "promote": Case(
        main("""%z = stablehlo.constant dense<0.0> : tensor<f32>
          %0 = "stablehlo.reduce"(%x, %z) ({
          ^bb0(%a: tensor<f64>, %b: tensor<f64>):
            %s = stablehlo.add %a, %b : tensor<f64>
            stablehlo.return %s : tensor<f64>
          }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f64>
          return %0 : tensor<f64>""", result="tensor<f64>"),
        "constant reduce add", "constant convert convert reduce add",
    ),
    "simplify": Case(
        main("""%0 = stablehlo.negate %x : tensor<4xf32>
          %1 = stablehlo.negate %x : tensor<4xf32>
          %2 = stablehlo.abs %x : tensor<4xf32>
          %3 = stablehlo.add %0, %1 : tensor<4xf32>
          return %3 : tensor<4xf32>"""),
        "negate negate abs add", "negate add",
    ),
    "unroll": Case(
        main("""%i = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %n = stablehlo.constant dense<2> : tensor<i32>
          %0:2 = "stablehlo.while"(%i, %x) ({
          ^bb0(%k: tensor<i32>, %y: tensor<4xf32>):
            %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
          }, {
          ^bb0(%k: tensor<i32>, %y: tensor<4xf32>):
            %j = stablehlo.add %k, %one : tensor<i32>
            %z = stablehlo.abs %y : tensor<4xf32>
            stablehlo.return %j, %z : tensor<i32>, tensor<4xf32>
          }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
          return %0#1 : tensor<4xf32>"""),
        "constant constant constant while compare add abs", "constant constant constant add abs add abs",
    ),
    "elementwise_bodies": Case(
        main("""%p = stablehlo.constant dense<true> : tensor<i1>
          %0 = "stablehlo.map"(%x) ({
          ^bb0(%a: tensor<f32>):
            %r = "stablehlo.if"(%p) ({
              stablehlo.return %a : tensor<f32>
            }, {
              %n = stablehlo.negate %a : tensor<f32>
              stablehlo.return %n : tensor<f32>
            }) : (tensor<i1>) -> tensor<f32>
            stablehlo.return %r : tensor<f32>
          }) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>"""),
        "constant map if negate", "constant broadcast_in_dim not negate select",
    ),
    "expand": Case(main(f"%0 = chlo.square %x : tensor<4xf32> -> tensor<4xf32>\n{RETURN}"), "square", "multiply"),
    "refuse_contradictions": Case(main(f"%0 = stablehlo.abs %x : tensor<4xf32>\n{RETURN}"), "abs", "abs"),
    "require_static": Case(main(f"%0 = stablehlo.abs %x : tensor<4xf32>\n{RETURN}"), "abs", "abs"),
    "explicit_layouts": Case(
        main("""%0 = stablehlo.custom_call @own(%x) {operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
            result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<2x3xf32>) -> tensor<2x3xf32>
          return %0 : tensor<2x3xf32>""", "tensor<2x3xf32>", "tensor<2x3xf32>"),
        "custom_call", "transpose custom_call", meaning=False,
    ),
    "own_factorizations": Case(
        main("""%0 = stablehlo.custom_call @lapack_strsm_ffi(%x, %x) {mhlo.backend_config = {side = 76 : ui8,
            uplo = 76 : ui8, trans_x = 78 : ui8, diag = 78 : ui8}}
            : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
          return %0 : tensor<2x2xf32>""", "tensor<2x2xf32>", "tensor<2x2xf32>"),
        "custom_call", "reshape transpose reshape transpose triangular_solve transpose reshape", meaning=False,
    ),
    "canonical_linalg": Case(
        main("%0 = stablehlo.cholesky %x, lower = true : tensor<1x1xf32>\nreturn %0 : tensor<1x1xf32>",
             "tensor<1x1xf32>", "tensor<1x1xf32>"),
        "cholesky", "transpose cholesky transpose", shape=(1, 1),
    ),
    "features_last": Case(
        main("""%0 = stablehlo.convolution(%x, %x) dim_numbers = [b, f, 0]x[0, i, o]->[b, f, 0], window = {}
            {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
          return %0 : tensor<1x8x8xf32>""", "tensor<1x8x8xf32>", "tensor<1x8x8xf32>"),
        "convolution", "transpose convolution transpose", shape=(1, 8, 8), given=("FEATURES_LAST_WORK", 0),
    ),
    "moved_transposes": Case(
        main("""%0 = stablehlo.convolution(%x, %x) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
            window = {pad = [[0, 0], [3, 4]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x8x8x8xf32>, tensor<1x8x8x8xf32>) -> tensor<1x8x8x8xf32>
          %1 = stablehlo.transpose %0, dims = [0, 3, 1, 2] : (tensor<1x8x8x8xf32>) -> tensor<1x8x8x8xf32>
          %2 = stablehlo.negate %1 : tensor<1x8x8x8xf32>
          %3 = stablehlo.add %2, %x : tensor<1x8x8x8xf32>
          return %3 : tensor<1x8x8x8xf32>""", "tensor<1x8x8x8xf32>", "tensor<1x8x8x8xf32>"),
        "convolution transpose negate add", "convolution transpose negate transpose transpose add transpose",
        shape=(1, 8, 8, 8),
    ),
    "fold_scales": Case(
        main("""%w = stablehlo.constant dense<0.5> : tensor<16x4xf32>
          %s = stablehlo.constant dense<4.0> : tensor<8x4xf32>
          %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
          %1 = stablehlo.multiply %0, %s : tensor<8x4xf32>
          return %1 : tensor<8x4xf32>""", "tensor<8x16xf32>", "tensor<8x4xf32>"),
        "constant constant dot_general multiply", "constant dot_general", shape=(8, 16),
    ),
    "narrow_constants": Case(
        main(f"""%w = stablehlo.constant dense<"0x{(np.arange(256) % 13).astype("<f4").tobytes().hex()}">
            : tensor<32x8xf32>
          %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<2x32xf32>, tensor<32x8xf32>) -> tensor<2x8xf32>
          return %0 : tensor<2x8xf32>""", "tensor<2x32xf32>", "tensor<2x8xf32>"),
        "constant dot_general", "constant convert dot_general", shape=(2, 32), given=("NARROWED_BYTES", 0),
    ),
    "round_activations": Case(
        main("""%q = stablehlo.constant dense<3> : tensor<64x4xi8>
          %f = stablehlo.convert %q : (tensor<64x4xi8>) -> tensor<64x4xf32>
          %c = stablehlo.constant dense<[0.5, 1.0, 2.0, 3.0]> : tensor<4xf32>
          %s = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<4xf32>) -> tensor<64x4xf32>
          %w = stablehlo.multiply %f, %s : tensor<64x4xf32>
          %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<3x64xf32>, tensor<64x4xf32>) -> tensor<3x4xf32>
          return %0 : tensor<3x4xf32>""", "tensor<3x64xf32>", "tensor<3x4xf32>"),
        "constant convert constant broadcast_in_dim multiply dot_general",
        "constant convert constant broadcast_in_dim multiply abs constant reduce maximum constant constant compare divide "
        "constant select broadcast_in_dim multiply round_nearest_even convert constant multiply transpose dot_general convert "
        "broadcast_in_dim multiply constant multiply broadcast_in_dim multiply", meaning=False,
    ),
    "one_hot_products": Case(
        main("""%w = stablehlo.constant dense<0.5> : tensor<16x8xf32>
          %i = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi32>
          %0 = stablehlo.broadcast_in_dim %i, dims = [0] : (tensor<4xi32>) -> tensor<4x16xi32>
          %1 = stablehlo.iota dim = 1 : tensor<4x16xi32>
          %2 = stablehlo.compare EQ, %0, %1, SIGNED : (tensor<4x16xi32>, tensor<4x16xi32>) -> tensor<4x16xi1>
          %3 = stablehlo.convert %2 : (tensor<4x16xi1>) -> tensor<4x16xf32>
          %4 = stablehlo.dot_general %3, %w, contracting_dims = [1] x [0]
            : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
          return %4 : tensor<4x8xf32>""", "tensor<4xf32>", "tensor<4x8xf32>"),
        "constant convert broadcast_in_dim iota compare convert dot_general",
        "constant convert broadcast_in_dim slice reshape convert constant constant maximum minimum "
        "constant add convert constant constant compare compare and constant select reshape gather constant constant "
        "compare add broadcast_in_dim select",
    ),
    "masked_products": Case(
        main("""%w = stablehlo.constant dense<[[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]]]> : tensor<3x2x1xf32>
          %0 = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<6x2xf32>) -> tensor<3x6x2xf32>
          %1 = stablehlo.constant dense<0.0> : tensor<3x6x2xf32>
          %2 = stablehlo.constant dense<[1, 4, 5]> : tensor<3xi32>
          %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<3xi32>) -> tensor<3x6x2xi32>
          %4 = stablehlo.iota dim = 1 : tensor<3x6x2xi32>
          %5 = stablehlo.compare LT, %4, %3, SIGNED : (tensor<3x6x2xi32>, tensor<3x6x2xi32>) -> tensor<3x6x2xi1>
          %6 = stablehlo.select %5, %0, %1 : tensor<3x6x2xi1>, tensor<3x6x2xf32>
          %7 = stablehlo.dot_general %6, %w, contracting_dims = [2, 0] x [1, 0]
            : (tensor<3x6x2xf32>, tensor<3x2x1xf32>) -> tensor<6x1xf32>
          return %7 : tensor<6x1xf32>""", "tensor<6x2xf32>", "tensor<6x1xf32>"),
        "constant broadcast_in_dim constant constant broadcast_in_dim iota compare select dot_general",
        "constant broadcast_in_dim constant constant broadcast_in_dim iota compare select constant constant slice slice "
        "reshape convert constant constant maximum minimum constant add minimum custom_call", shape=(6, 2),
    ),
    "selected_products": Case(
        main("""%w = stablehlo.constant dense<[[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]]]> : tensor<3x2x1xf32>
          %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
            : (tensor<6x2xf32>, tensor<3x2x1xf32>) -> tensor<6x3x1xf32>
          %1 = stablehlo.constant dense<0.0> : tensor<6x3x1xf32>
          %2 = stablehlo.constant dense<[1, 4, 5]> : tensor<3xi32>
          %3 = stablehlo.broadcast_in_dim %2, dims = [1] : (tensor<3xi32>) -> tensor<6x3x1xi32>
          %4 = stablehlo.iota dim = 0 : tensor<6x3x1xi32>
          %5 = stablehlo.compare LT, %4, %3, SIGNED : (tensor<6x3x1xi32>, tensor<6x3x1xi32>) -> tensor<6x3x1xi1>
          %6 = stablehlo.select %5, %0, %1 : tensor<6x3x1xi1>, tensor<6x3x1xf32>
          %7 = stablehlo.constant dense<0.0> : tensor<f32>
          %8 = stablehlo.reduce(%6 init: %7) applies stablehlo.add across dimensions = [1]
            : (tensor<6x3x1xf32>, tensor<f32>) -> tensor<6x1xf32>
          return %8 : tensor<6x1xf32>""", "tensor<6x2xf32>", "tensor<6x1xf32>"),
        "constant dot_general constant constant broadcast_in_dim iota compare select constant reduce add",
        "constant dot_general constant constant broadcast_in_dim iota compare select constant constant constant slice "
        "reshape convert constant constant maximum minimum constant add minimum custom_call", shape=(6, 2),
    ),
    "gated_products": Case(
        main("""%r = stablehlo.iota dim = 1 : tensor<4x64xf32>
          %w = stablehlo.constant dense<0.25> : tensor<3x64x64xf32>
          %0 = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<4x3xf32>) -> tensor<4x3x64xf32>
          %1 = stablehlo.broadcast_in_dim %r, dims = [0, 2] : (tensor<4x64xf32>) -> tensor<4x3x64xf32>
          %2 = stablehlo.multiply %0, %1 : tensor<4x3x64xf32>
          %3 = stablehlo.dot_general %2, %w, contracting_dims = [1, 2] x [0, 1]
            : (tensor<4x3x64xf32>, tensor<3x64x64xf32>) -> tensor<4x64xf32>
          return %3 : tensor<4x64xf32>""", "tensor<4x3xf32>", "tensor<4x64xf32>"),
        "iota constant broadcast_in_dim broadcast_in_dim multiply dot_general",
        "iota constant broadcast_in_dim broadcast_in_dim slice transpose reshape constant compare convert "
        "constant reduce add convert broadcast_in_dim iota iota compare constant select constant reduce add "
        "subtract slice reshape constant compare if abs constant reduce maximum abs constant reduce maximum "
        "multiply constant compare constant constant compare and constant if convert constant reduce_window "
        "add convert broadcast_in_dim add constant subtract constant select constant reshape iota reshape "
        "scatter add constant remainder divide constant remainder reshape constant multiply add reshape "
        "gather slice slice transpose reshape broadcast_in_dim multiply custom_call convert broadcast_in_dim "
        "iota compare constant select constant reshape scatter add broadcast_in_dim broadcast_in_dim multiply "
        "dot_general", shape=(4, 3),
    ),
    "distant_windows": Case(
        main("""%w = stablehlo.constant dense<0.5> : tensor<1x1x3xf32>
          %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[i, o, 0]->[b, f, 0],
            window = {pad = [[1073741824, 1073741824]], rhs_dilate = [1073741824]}
            {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x1x4xf32>, tensor<1x1x3xf32>) -> tensor<1x1x4xf32>
          return %0 : tensor<1x1x4xf32>""", "tensor<1x1x4xf32>", "tensor<1x1x4xf32>"),
        "constant convolution",
        "constant constant constant gather constant broadcast_in_dim select convolution", meaning=False, shape=(1, 1, 4),
    ),
    "byte_products": Case(
        main("""%h = stablehlo.convert %x : (tensor<8x8xf32>) -> tensor<8x8xi8>
          %w = stablehlo.convert %h : (tensor<8x8xi8>) -> tensor<8x8xi32>
          %0 = stablehlo.dot_general %w, %h, contracting_dims = [1] x [0] :
            (tensor<8x8xi32>, tensor<8x8xi8>) -> tensor<8x8xi32>
          return %0 : tensor<8x8xi32>""", "tensor<8x8xf32>", "tensor<8x8xi32>"),
        "convert convert dot_general", "convert convert dot_general", shape=(8, 8),
    ),
    "byte_convolutions": Case(
        main("""%b = stablehlo.convert %x : (tensor<1x8x8xf32>) -> tensor<1x8x8xi8>
          %0 = stablehlo.convolution(%b, %b) dim_numbers = [b, f, 0]x[0, i, o]->[b, 0, f], window = {}
            {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x8x8xi8>, tensor<1x8x8xi8>) -> tensor<1x8x8xi32>
          return %0 : tensor<1x8x8xi32>""", "tensor<1x8x8xf32>", "tensor<1x8x8xi32>"),
        "convert convolution", "convert slice reshape dot_general", shape=(1, 8, 8),
    ),
    "dilated_convolutions": Case(
        main("""%w = stablehlo.constant dense<0.5> : tensor<2x2x2xf32>
          %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[i, o, 0]->[b, f, 0],
            window = {pad = [[1, 1]], lhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x4xf32>
          return %0 : tensor<2x2x4xf32>""", "tensor<2x2x2xf32>", "tensor<2x2x4xf32>"),
        "constant convolution",
        "constant slice convolution slice convolution reshape reshape concatenate reshape", shape=(2, 2, 2),
    ),
    "batch_blocking": Case(
        main("""%w = stablehlo.constant dense<0.5> : tensor<1x1x1x1xf32>
          %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
            {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (IMAGES, tensor<1x1x1x1xf32>) -> IMAGES
          %1 = stablehlo.convolution(%0, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
            window = {stride = [4, 8]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (IMAGES, tensor<1x1x1x1xf32>) -> tensor<8x128x128x1xf32>
          return %1 : tensor<8x128x128x1xf32>""".replace("IMAGES", "tensor<8x512x1024x1xf32>"),
             "tensor<8x512x1024x1xf32>", "tensor<8x128x128x1xf32>"),
        "constant convolution convolution",
        "constant constant constant while constant compare constant multiply constant dynamic_slice convolution "
        "convolution constant dynamic_update_slice constant add", shape=(8, 512, 1024, 1),
    ),
    "pointwise_convolutions": Case(
        main("""%0 = stablehlo.convolution(%x, %x) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
            {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
          return %0 : tensor<1x8x8xf32>""", "tensor<1x8x8xf32>", "tensor<1x8x8xf32>"),
        "convolution", "reshape dot_general", shape=(1, 8, 8),
    ),
    "flat_concatenates": Case(
        main("""%0 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
          %1 = stablehlo.concatenate %x, %0, dim = 0 : (tensor<2x2xf32>, tensor<4x2xf32>) -> tensor<6x2xf32>
          %2 = stablehlo.concatenate %1, %1, dim = 1 : (tensor<6x2xf32>, tensor<6x2xf32>) -> tensor<6x4xf32>
          return %2 : tensor<6x4xf32>""", "tensor<2x2xf32>", "tensor<6x4xf32>"),
        "concatenate concatenate concatenate", "concatenate concatenate concatenate", shape=(2, 2),
    ),
    "window_scatters": Case(
        main("""%i = stablehlo.constant dense<[1]> : tensor<1xi32>
          %y = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
          %0 = "stablehlo.scatter"(%x, %i, %y) <{scatter_dimension_numbers = #stablehlo.scatter<
              update_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %s = stablehlo.add %a, %b : tensor<f32>
              stablehlo.return %s : tensor<f32>
          }) : (tensor<4xf32>, tensor<1xi32>, tensor<2xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>""", "tensor<4xf32>", "tensor<4xf32>"),
        "constant constant scatter add", "constant constant slice add constant dynamic_update_slice", shape=(4,),
    ),
    "single_updates": Case(
        main("""%i = stablehlo.iota dim = 0 : tensor<1xi32>
          %y = stablehlo.constant dense<2.0> : tensor<f32>
          %0 = "stablehlo.scatter"(%x, %i, %y) <{scatter_dimension_numbers = #stablehlo.scatter<
              inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              stablehlo.return %b : tensor<f32>
          }) : (tensor<4xf32>, tensor<1xi32>, tensor<f32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>"""),
        "iota constant scatter",
        "iota constant reshape slice reshape constant constant compare constant compare and dynamic_slice select dynamic_update_slice",
    ),
    "known_comparisons": Case(
        main("""%i = stablehlo.constant dense<0> : tensor<i32>
          %r:2 = stablehlo.while(%k = %i, %s = %x) : tensor<i32>, tensor<4xf32> cond {
            %n = stablehlo.constant dense<3> : tensor<i32>
            %p = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          } do {
            %n = stablehlo.constant dense<3> : tensor<i32>
            %one = stablehlo.constant dense<1> : tensor<i32>
            %q = stablehlo.compare EQ, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %a = stablehlo.negate %s : tensor<4xf32>
            %b = stablehlo.abs %s : tensor<4xf32>
            %c = stablehlo.select %q, %a, %b : tensor<i1>, tensor<4xf32>
            %d = stablehlo.add %k, %one : tensor<i32>
            stablehlo.return %d, %c : tensor<i32>, tensor<4xf32>
          }
          return %r#1 : tensor<4xf32>"""),
        "constant while constant compare constant constant compare negate abs select add",
        "constant while constant compare abs constant add",
    ),
    "forwarded_reads": Case(
        main("""%i = stablehlo.constant dense<1> : tensor<i32>
          %y = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
          %0 = stablehlo.dynamic_update_slice %x, %y, %i : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
          %1 = stablehlo.dynamic_slice %0, %i, sizes = [2] : (tensor<4xf32>, tensor<i32>) -> tensor<2xf32>
          %2 = stablehlo.abs %1 : tensor<2xf32>
          %3 = stablehlo.dynamic_update_slice %0, %2, %i : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
          return %3 : tensor<4xf32>"""),
        "constant constant dynamic_update_slice dynamic_slice abs dynamic_update_slice",
        "constant constant dynamic_update_slice abs dynamic_update_slice",
    ),
    "masked_updates": Case(
        main("""%i = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.iota dim = 0 : tensor<1xi32>
          %k = stablehlo.reshape %j : (tensor<1xi32>) -> tensor<i32>
          %p = stablehlo.compare EQ, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
          %y = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
          %0 = stablehlo.dynamic_update_slice %x, %y, %i : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
          %1 = stablehlo.select %p, %0, %x : tensor<i1>, tensor<4xf32>
          return %1 : tensor<4xf32>"""),
        "constant iota reshape compare constant dynamic_update_slice select",
        "constant iota reshape compare constant dynamic_slice select dynamic_update_slice",
    ),
    "stacked_rows": Case(
        main("""%i = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.constant dense<2> : tensor<i32>
          %x2 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4xf32>) -> tensor<4x1024xf32>
          %0 = stablehlo.dynamic_slice %x2, %i, %j, sizes = [1, 1024] : (tensor<4x1024xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1024xf32>
          %y = stablehlo.constant dense<3.0> : tensor<1x2xf32>
          %1 = stablehlo.dynamic_update_slice %0, %y, %i, %j : (tensor<1x1024xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1024xf32>
          %2 = stablehlo.dynamic_update_slice %x2, %1, %i, %j : (tensor<4x1024xf32>, tensor<1x1024xf32>, tensor<i32>, tensor<i32>) -> tensor<4x1024xf32>
          %3 = stablehlo.slice %2 [1:2, 0:4] : (tensor<4x1024xf32>) -> tensor<1x4xf32>
          %4 = stablehlo.reshape %3 : (tensor<1x4xf32>) -> tensor<4xf32>
          return %4 : tensor<4xf32>"""),
        "constant constant broadcast_in_dim dynamic_slice constant dynamic_update_slice dynamic_update_slice slice reshape",
        "constant constant broadcast_in_dim constant dynamic_update_slice slice reshape",
    ),
    "added_slices": Case(
        main("""%i = stablehlo.constant dense<1> : tensor<i32>
          %z = stablehlo.constant dense<0.0> : tensor<4xf32>
          %y = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
          %0 = stablehlo.dynamic_update_slice %z, %y, %i : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
          %1 = stablehlo.abs %x : tensor<4xf32>
          %2 = stablehlo.add %1, %0 : tensor<4xf32>
          return %2 : tensor<4xf32>"""),
        "constant constant constant dynamic_update_slice abs add",
        "constant constant constant dynamic_update_slice abs dynamic_slice add dynamic_update_slice",
    ),
    "scalar_conjuncts": Case(
        main("""%i = stablehlo.constant dense<0> : tensor<i32>
          %r:2 = stablehlo.while(%k = %i, %s = %x) : tensor<i32>, tensor<600xf32> cond {
            %n = stablehlo.constant dense<3> : tensor<i32>
            %p = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          } do {
            %one = stablehlo.constant dense<1> : tensor<i32>
            %q = stablehlo.compare EQ, %k, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %w = stablehlo.broadcast_in_dim %q, dims = [] : (tensor<i1>) -> tensor<600xi1>
            %a = stablehlo.reverse %s, dims = [0] : tensor<600xf32>
            %g = stablehlo.compare GT, %a, %s : (tensor<600xf32>, tensor<600xf32>) -> tensor<600xi1>
            %m = stablehlo.and %w, %g : tensor<600xi1>
            %c = stablehlo.select %m, %a, %s : tensor<600xi1>, tensor<600xf32>
            %d = stablehlo.add %k, %one : tensor<i32>
            stablehlo.return %d, %c : tensor<i32>, tensor<600xf32>
          }
          return %r#1 : tensor<600xf32>""", "tensor<600xf32>", "tensor<600xf32>"),
        "constant while constant compare constant compare broadcast_in_dim reverse compare and select add",
        "constant while constant compare constant compare reverse compare select select add", shape=(600,),
    ),
    "uniform_conditions": Case(
        main("""%i = stablehlo.constant dense<0> : tensor<i32>
          %r:2 = stablehlo.while(%k = %i, %s = %x) : tensor<i32>, tensor<600xf32> cond {
            %n = stablehlo.constant dense<3> : tensor<i32>
            %p = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          } do {
            %one = stablehlo.constant dense<1> : tensor<i32>
            %q = stablehlo.compare EQ, %k, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %a = stablehlo.reverse %s, dims = [0] : tensor<600xf32>
            %b = stablehlo.negate %a : tensor<600xf32>
            %c = stablehlo.select %q, %b, %s : tensor<i1>, tensor<600xf32>
            %d = stablehlo.add %k, %one : tensor<i32>
            stablehlo.return %d, %c : tensor<i32>, tensor<600xf32>
          }
          return %r#1 : tensor<600xf32>""", "tensor<600xf32>", "tensor<600xf32>"),
        "constant while constant compare constant compare reverse negate select add",
        "constant while constant compare constant compare if reverse negate add", shape=(600,),
    ),
    "transposed_gathers": Case(
        main("""%i = stablehlo.constant dense<[0, 1, 0]> : tensor<3xi32>
          %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
            collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
            slice_sizes = array<i64: 1, 2>, indices_are_sorted = false}
            : (tensor<2x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>
          %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>
          return %1 : tensor<2x3xf32>""", "tensor<2x2xf32>", "tensor<2x3xf32>"),
        "constant gather transpose", "constant gather gather", shape=(2, 2),
    ),
    "grouped_products": Case(
        main("""%0 = stablehlo.broadcast_in_dim %x, dims = [0, 2, 3] : (tensor<2x5x4xf32>) -> tensor<2x3x5x4xf32>
          %1 = stablehlo.reshape %0 : (tensor<2x3x5x4xf32>) -> tensor<6x5x4xf32>
          %q = stablehlo.constant dense<2.0> : tensor<6x7x4xf32>
          %2 = stablehlo.dot_general %q, %1, batching_dims = [0] x [0], contracting_dims = [2] x [2]
            : (tensor<6x7x4xf32>, tensor<6x5x4xf32>) -> tensor<6x7x5xf32>
          return %2 : tensor<6x7x5xf32>""", "tensor<2x5x4xf32>", "tensor<6x7x5xf32>"),
        "broadcast_in_dim reshape constant dot_general",
        "broadcast_in_dim reshape constant reshape dot_general reshape", shape=(2, 5, 4),
    ),
    "hoist_products": Case(
        main("""%zero = stablehlo.constant dense<0> : tensor<i32>
          %w = stablehlo.constant dense<0.5> : tensor<16x1xf32>
          %h = stablehlo.constant dense<1.0> : tensor<1xf32>
          %0:2 = stablehlo.while(%k = %zero, %y = %h) : tensor<i32>, tensor<1xf32>
          cond {
            %n = stablehlo.constant dense<20> : tensor<i32>
            %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
          } do {
            %z = stablehlo.constant dense<0> : tensor<i32>
            %a = stablehlo.dynamic_slice %x, %k, %z, sizes = [1, 16]
              : (tensor<20x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1x16xf32>
            %b = stablehlo.reshape %a : (tensor<1x16xf32>) -> tensor<16xf32>
            %p = stablehlo.dot_general %b, %w, contracting_dims = [0] x [0]
              : (tensor<16xf32>, tensor<16x1xf32>) -> tensor<1xf32>
            %s = stablehlo.subtract %p, %y : tensor<1xf32>
            %one = stablehlo.constant dense<1> : tensor<i32>
            %j = stablehlo.add %k, %one : tensor<i32>
            stablehlo.return %j, %s : tensor<i32>, tensor<1xf32>
          }
          return %0#1 : tensor<1xf32>""", "tensor<20x16xf32>", "tensor<1xf32>"),
        "constant constant constant while constant compare constant dynamic_slice reshape dot_general subtract constant add",
        "constant constant constant dot_general while constant compare constant dynamic_slice reshape constant "
        "dynamic_slice reshape subtract constant add", (20, 16),
    ),
    "narrow_products": Case(
        main("""%w = stablehlo.constant dense<0.5> : tensor<16x3xf32>
          %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<64x16xf32>, tensor<16x3xf32>) -> tensor<64x3xf32>
          return %0 : tensor<64x3xf32>""", "tensor<64x16xf32>", "tensor<64x3xf32>"),
        "constant dot_general", "constant reshape reshape convolution reshape", shape=(64, 16),
    ),
    "canonical_dots": Case(
        main(f"""%h = stablehlo.convert %x : (tensor<16x16xf32>) -> tensor<16x16xbf16>
          %0 = {DOT.replace("%x", "%h")} : (tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<16x16xbf16>
          return %0 : tensor<16x16xbf16>""", "tensor<16x16xf32>", "tensor<16x16xbf16>"),
        "convert dot_general", "convert dot_general convert", shape=(16, 16),
    ),
    "long_products": Case(
        main("""%i = stablehlo.convert %x : (tensor<4096x32xf32>) -> tensor<4096x32xi32>
          %0 = stablehlo.dot_general %i, %i, contracting_dims = [0] x [0]
            : (tensor<4096x32xi32>, tensor<4096x32xi32>) -> tensor<32x32xi32>
          return %0 : tensor<32x32xi32>""", "tensor<4096x32xf32>", "tensor<32x32xi32>"),
        "convert dot_general", "convert reshape reshape dot_general constant reduce add", shape=(4096, 32),
    ),
    "canonical_convolutions": Case(
        main(CONVOLUTION.format(t="tensor<2x2x2xf32>", r="tensor<2x3x2xf32>", out="f, 0, b", window=""),
             "tensor<2x2x2xf32>", "tensor<2x3x2xf32>"),
        "convolution", "convolution transpose", shape=(2, 2, 2),
    ),
    "collective_layouts": Case(
        main("""%0:2 = "stablehlo.all_to_all"(%x, %x) {split_dimension = 1 : i64, concat_dimension = 0 : i64,
            split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
            : (tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
          return %0#0 : tensor<4x2xf32>""", "tensor<2x4xf32>", "tensor<4x2xf32>"),
        "all_to_all",
        "reshape transpose reshape transpose all_to_all reshape all_to_all reshape", meaning=False,
    ),
    "short_lanes": Case(
        main("""%z = stablehlo.constant dense<0.0> : tensor<f32>
          %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 2]
            : (tensor<32x8x4xf32>, tensor<f32>) -> tensor<8xf32>
          %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<8xf32>) -> tensor<32x8x4xf32>
          %2 = stablehlo.subtract %x, %1 : tensor<32x8x4xf32>
          return %2 : tensor<32x8x4xf32>""", "tensor<32x8x4xf32>", "tensor<32x8x4xf32>"),
        "constant reduce add broadcast_in_dim subtract",
        "constant constant reduce add constant reduce add broadcast_in_dim broadcast_in_dim subtract",
        shape=(32, 8, 4),
    ),
    "recompute_weights": Case(
        main("\n".join([
            dot("0", "x", "x", (2, 2)), "%1 = stablehlo.abs %0 : tensor<8x256x256xf32>", dot("2", "1", "x", (2, 1)),
            dot("3", "2", "x", (2, 2)), "%4 = stablehlo.multiply %3, %1 : tensor<8x256x256xf32>",
            dot("5", "1", "2", (1, 1)), dot("6", "4", "x", (1, 1)), dot("7", "4", "x", (2, 1)),
            *(f"%{i} = stablehlo.add %{a}, %{b} : tensor<8x256x256xf32>" for i, a, b in [(8, 5, 6), (9, 7, 8)]),
            "return %9 : tensor<8x256x256xf32>"]), "tensor<8x256x256xf32>", "tensor<8x256x256xf32>"),
        "dot_general abs dot_general dot_general multiply dot_general dot_general dot_general add add",
        "dot_general abs dot_general dot_general dot_general abs multiply dot_general dot_general dot_general add add",
        shape=(8, 256, 256),
    ),
    "own_operands": Case(
        main("""%w = stablehlo.iota dim = 0 : tensor<256x256xi8>
          %b = stablehlo.multiply %w, %w : tensor<256x256xi8>
          %d = stablehlo.convert %b : (tensor<256x256xi8>) -> tensor<256x256xf32>
          %y = stablehlo.dot_general %x, %d, contracting_dims = [1] x [0]
            : (tensor<4x256xf32>, tensor<256x256xf32>) -> tensor<4x256xf32>
          %0 = stablehlo.dot_general %y, %d, contracting_dims = [1] x [0]
            : (tensor<4x256xf32>, tensor<256x256xf32>) -> tensor<4x256xf32>
          return %0 : tensor<4x256xf32>""", "tensor<4x256xf32>", "tensor<4x256xf32>"),
        "iota multiply convert dot_general dot_general",
        "iota multiply convert dot_general multiply convert dot_general", shape=(4, 256),
    ),
    "key_ranges": Case(
        main("""%v = stablehlo.constant dense<2.0> : tensor<128x3xf32>
          %0 = stablehlo.iota dim = 1 : tensor<2x128xi32>
          %1 = stablehlo.constant dense<5> : tensor<2x128xi32>
          %2 = stablehlo.compare LT, %0, %1, SIGNED : (tensor<2x128xi32>, tensor<2x128xi32>) -> tensor<2x128xi1>
          %3 = stablehlo.constant dense<0xFF800000> : tensor<2x128xf32>
          %4 = stablehlo.select %2, %x, %3 : tensor<2x128xi1>, tensor<2x128xf32>
          %5 = stablehlo.exponential %4 : tensor<2x128xf32>
          %6 = stablehlo.dot_general %5, %v, contracting_dims = [1] x [0]
            : (tensor<2x128xf32>, tensor<128x3xf32>) -> tensor<2x3xf32>
          return %6 : tensor<2x3xf32>""", "tensor<2x128xf32>", "tensor<2x3xf32>"),
        "constant iota constant compare constant select exponential dot_general",
        "constant iota constant compare constant select exponential constant constant slice slice reshape convert "
        "constant constant maximum minimum constant add minimum broadcast_in_dim broadcast_in_dim custom_call",
        shape=(2, 128),
    ),
    "combine_collectives": Case(
        main(f"""{ALL_REDUCE.format(r=0, x="x")}
          %1 = stablehlo.negate %0 : tensor<4xf32>
          %2 = stablehlo.abs %x : tensor<4xf32>
          {ALL_REDUCE.format(r=3, x=2)}
          %4 = stablehlo.add %1, %3 : tensor<4xf32>
          return %4 : tensor<4xf32>"""),
        "all_reduce add negate abs all_reduce add add", "abs all_reduce add negate add", meaning=False,
    ),
    "packed_fields": Case(
        main(f"""%q = stablehlo.constant dense<"0x{"0123456789abcdef" * 512}"> : tensor<4096xui8>
          %m = stablehlo.constant dense<15> : tensor<4096x2xui8>
          %p = stablehlo.constant dense<[0, 4]> : tensor<2xui8>
          %w = stablehlo.broadcast_in_dim %q, dims = [0] : (tensor<4096xui8>) -> tensor<4096x2xui8>
          %by = stablehlo.broadcast_in_dim %p, dims = [1] : (tensor<2xui8>) -> tensor<4096x2xui8>
          %s = stablehlo.shift_right_logical %w, %by : tensor<4096x2xui8>
          %n = stablehlo.and %s, %m : tensor<4096x2xui8>
          %f = stablehlo.convert %n : (tensor<4096x2xui8>) -> tensor<4096x2xf32>
          %0 = stablehlo.multiply %x, %f : tensor<4096x2xf32>
          return %0 : tensor<4096x2xf32>""", "tensor<4096x2xf32>", "tensor<4096x2xf32>"),
        "constant constant constant broadcast_in_dim broadcast_in_dim shift_right_logical and convert multiply",
        "constant bitcast_convert reshape convert convert reshape convert multiply", shape=(4096, 2), meaning=False,
        given=("PACKED_FIELDS_BYTES", 0),
    ),
    "pack_constants": Case(
        main(f"""%c = stablehlo.constant dense<"0x{'0F' * 1500}12"> : tensor<1501xi4>
          %0 = stablehlo.convert %c : (tensor<1501xi4>) -> tensor<1501xf32>
          %1 = stablehlo.slice %0 [1497:1501] : (tensor<1501xf32>) -> tensor<4xf32>
          %2 = stablehlo.multiply %x, %1 : tensor<4xf32>
          return %2 : tensor<4xf32>"""),
        "constant convert slice multiply", "constant convert convert slice multiply",
    ),
}  # fmt: skip


def names(function: Op) -> str:
    ops = [op.name.partition(".")[2] for op in walk(function.block())]
    return " ".join(name for name in ops if name != "return")


def test_every_pass_has_a_case() -> None:
    assert list(CASES) == list(dict.fromkeys(RUNS))


@pytest.mark.parametrize("name", CASES)
def test_before_and_after(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    if case.given is not None:
        monkeypatch.setattr(tuning, *case.given)
    assert shlo_jit.verify(case.text) == []
    before, context = main_of(case.text)
    twice_as_much = {"twice": lambda rw, op, operands: [apply(rw, "add", *operands, *operands)]}
    context = context._replace(code=twice_as_much, fold_scales=True, round_activations="int8")
    context = context._replace(has_lapack=lambda: False)
    assert names(before) == case.ops
    printed = str(module_of(before))
    once = RUNS[name](before, context)
    assert names(once) == case.after
    assert str(module_of(before)) == printed, "a pass leaves its input alone"
    twice = RUNS[name](once, context)
    assert equal_modules(module_of(once), module_of(twice)), "twice is as once"
    if case.meaning:
        x = np.arange(1, 1 + np.prod(case.shape)).astype(np.float32).reshape(case.shape)
        for got, want in zip(evaluate(module_of(once), x), evaluate(module_of(before), x), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
def test_files_of_passes_have_their_name_and_state_their_guarantees(step) -> None:
    module = import_module(step.run.__module__)
    assert step.run.__module__.endswith(f".{step.name}")
    assert module.__doc__ and step.run.__doc__
    assert "Needs: " in module.__doc__ and "Guarantees: " in module.__doc__ and "->" in module.__doc__


def test_helpers_are_named() -> None:
    """A file that is not a pass is a helper, which the docstring of its folder names."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.stem
        if name == "__init__" or name in RUNS or name == "inline" or (path.parent == ROOT and name in HELPERS):
            continue
        text = (path.parent / "__init__.py").read_text(encoding="utf-8")
        assert f"`{name}" in text, path


def test_the_observer_is_called_for_every_pass() -> None:
    text = main("%0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>", more="""
      func.func private @f(%y: tensor<4xf32>) -> tensor<4xf32> {
        %0 = chlo.square %y : tensor<4xf32> -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }""")  # fmt: skip
    module = shlo_jit.parse(text)
    entry = module.function("main")
    assert entry is not None
    heard: list[tuple[str, str, str]] = []
    core_functions(module, entry, on_pass=lambda name, f: heard.append((name, f.attributes["sym_name"], names(f))))
    assert [name for name, _, _ in heard] == ["inline", *(step.name for step in PASSES)]
    assert {function for _, function, _ in heard} == {"main"}
    seen = {name: ops for name, _, ops in heard}
    assert seen["inline"] == "square" and seen["expand"] == "multiply"


def test_functions_are_verified_when_a_pass_changes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or promises something about them, and after the last pass."""
    checked: list[str] = []
    monkeypatch.setattr("shlo_jit.passes.check", lambda function, rules, after, _: checked.append(after))
    function, context = main_of(main(f"%0 = chlo.square %x : tensor<4xf32> -> tensor<4xf32>\n{RETURN}"))
    heard: list[tuple[str, Op]] = []
    run_passes(function, context, lambda name, function: heard.append((name, function)))
    changed = {name for (_, before), (name, after) in pairwise(heard) if after is not before}
    assert {*checked} == changed | {step.name for step in PASSES if step.establishes} | {PASSES[-1].name}
    assert "expand" in changed and len(checked) < len(PASSES)


def test_a_pass_that_breaks_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between passes with the environment variable, after the last one without it."""
    text = main("%0 = stablehlo.abs %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>")
    function, context = main_of(text)
    left, _ = main_of(main(f"%0 = chlo.square %x : tensor<4xf32> -> tensor<4xf32>\n{RETURN}"))

    def explicit_layouts(function: Op, _: Context) -> Op:
        return left

    steps = [p if p.name != "explicit_layouts" else type(p)(explicit_layouts, p.establishes) for p in PASSES]
    monkeypatch.setattr("shlo_jit.passes.PASSES", tuple(steps))
    with pytest.raises(
        shlo_jit.InternalError, match=r"3:\d+: .*after explicit_layouts: chlo.square .*'no compound op'"
    ):
        run_passes(function, context)
    monkeypatch.delenv("SHLO_JIT_CHECK_PASSES")
    with pytest.raises(shlo_jit.InternalError, match=r"pack_constants: chlo.square.*'no compound op'"):
        run_passes(function, context)
