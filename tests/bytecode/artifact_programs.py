"""Programs for the tests of artifacts, and the versions for which they are written."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
EVERY_OP = (HERE / "every_op.mlir").read_text(encoding="utf-8")
LATER_OPS = (HERE / "later_ops.mlir").read_text(encoding="utf-8")
VERSIONS = [f"0.{minor}.0" for minor in range(9, 21)] + [f"1.{minor}.0" for minor in range(21)]
SHARDED = """
sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func @main(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}p1], replicated={"y"}>}) -> tensor<8x4xf32> {
  %0 = stablehlo.negate %x : tensor<8x4xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{"x":(1)2}, {}]> : tensor<8x4xf32>
  %2 = sdy.manual_computation(%1) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%a: tensor<2x4xf32>) {
    %3 = stablehlo.add %a, %a : tensor<2x4xf32>
    sdy.return %3 : tensor<2x4xf32>
  } : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %4 = stablehlo.add %0, %2 : tensor<8x4xf32>
  %token = stablehlo.create_token : !stablehlo.token
  %later = sdy.manual_computation(%token) in_shardings=[<@mesh, []>] out_shardings=[<@mesh, []>] manual_axes={"x"} (%t: !stablehlo.token) {
    %7 = stablehlo.after_all %t : !stablehlo.token
    sdy.return %7 : !stablehlo.token
  } : (!stablehlo.token) -> !stablehlo.token
  %5 = stablehlo.custom_call @own(%4) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, jk])->([i, l]) {i=8, j=2, k=2, l=4} reduction={j, k}, custom>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %5 : tensor<8x4xf32>
}
"""
OWN_ATTRIBUTES = (
    "#stablehlo.channel_handle<handle = 1, type = 2>",
    "#stablehlo<comparison_direction LT>",
    "#stablehlo<comparison_type TOTALORDER>",
    "#stablehlo.conv<[b, 1, 0, f]x[0, 1, i, o]->[b, 0, 1, f]>",
    "#stablehlo.dot<lhs_batching_dimensions = [1], rhs_contracting_dimensions = [2]>",
    "#stablehlo<fft_type RFFT>",
    "#stablehlo.gather<offset_dims = [1], start_indices_batching_dims = [2, 3], index_vector_dim = 4>",
    "#stablehlo<precision HIGHEST>",
    "#stablehlo<rng_algorithm PHILOX>",
    "#stablehlo<rng_distribution NORMAL>",
    "#stablehlo.scatter<>",
    "#stablehlo.scatter<update_window_dims = [1], scatter_dims_to_operand_dims = [0, 2], index_vector_dim = 1>",
    "#stablehlo<transpose ADJOINT>",
    "#stablehlo.bounds<3, ?>",
    "#stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 2, operand_tuple_indices = [3]>",
    "#stablehlo.result_accuracy_mode<HIGHEST>",
    "#stablehlo.result_accuracy<atol = 1.0, rtol = 2.0, ulps = 3, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>",
    '#stablehlo.axis_ref<name = "x">',
    '#stablehlo.axis_ref<name = "x", sub_axis_info = (3)4>',
)
"""Attributes that modules may have and that use StableHLO's own encoding."""
QUANTIZED = """func.func @main(%x: tensor<2xf32>) -> tensor<2x!quant.uniform<ui8:f32, 2.0:3>> {
  %0 = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x!quant.uniform<ui8:f32, 2.0:3>>
  return %0 : tensor<2x!quant.uniform<ui8:f32, 2.0:3>>
}
"""
LOCATED = """
#loc1 = loc("model.py":3:4)
#loc2 = loc("model.py":7:2 to :9)
#loc3 = loc("layer"(#loc2))
func.func @main(%x: tensor<2xf32> loc("x"), %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32> loc(#loc1)
  %1 = stablehlo.add %0, %y : tensor<2xf32> loc(callsite(#loc3 at #loc1))
  %2 = stablehlo.add %1, %y : tensor<2xf32> loc(fused<"pass">["a", #loc2])
  return %2 : tensor<2xf32> loc(unknown)
}
"""


def functions(text: str) -> dict[str, str]:
    """Returns the functions of a text by name, each as a separate program with the private functions it may call."""
    parts = re.split(r"\n(?=func\.func)", text)[1:]
    private = [part for part in parts if part.startswith("func.func private")]
    names = [re.search(r"@(\w+)", part) for part in parts]
    return {
        name[1]: "\n".join(dict.fromkeys([part, *private]))
        for name, part in zip(names, parts, strict=True)
        if name is not None
    }
