"""Programs that the tests of artifacts run on, and the versions they are written for."""

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
  %5 = stablehlo.custom_call @own(%4) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, jk])->([i, l]) {i=8, j=2, k=2, l=4} reduction={j, k}, custom>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %5 : tensor<8x4xf32>
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
    """The functions of a text by name, each with the private ones, which it may call, as a program of its own."""
    parts = re.split(r"\n(?=func\.func)", text)[1:]
    private = [part for part in parts if part.startswith("func.func private")]
    names = [re.search(r"@(\w+)", part) for part in parts]
    return {
        name[1]: "\n".join(dict.fromkeys([part, *private]))
        for name, part in zip(names, parts, strict=True)
        if name is not None
    }
