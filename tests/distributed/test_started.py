"""async_start and async_done: the operands are posted when the op starts, and ops in between do not wait."""

import json

import numpy as np
import pytest
from printed_codes import codes

import shlo_jit

TEXT = """
func.func @main(%a: tensor<Nxf32>, %w: tensor<64x64xf32>) -> (tensor<Nxf32>, tensor<64x64xf32>) {
  %f = "stablehlo.async_start"(%a) ({
  ^bb0(%x: tensor<Nxf32>):
    %0 = "stablehlo.all_reduce"(%x) ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %s = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<Nxf32>) -> tensor<Nxf32>
    stablehlo.return %0 : tensor<Nxf32>
  }) : (tensor<Nxf32>) -> !stablehlo.future<tensor<Nxf32>>
  %1 = stablehlo.dot_general %w, %w, contracting_dims = [1] x [0]
       : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<Nxf32>>) -> tensor<Nxf32>
  return %2, %1 : tensor<Nxf32>, tensor<64x64xf32>
}"""


@pytest.mark.parametrize("n", [3, 100_001], ids=["inline", "in place"])
def test_what_is_between_start_and_done_runs_between(n: int, transport: str, tmp_path) -> None:
    given = [np.arange(n, dtype=np.float32) * (rank + 1) for rank in range(2)]
    w = np.eye(64, dtype=np.float32) * 2
    with shlo_jit.compile(TEXT.replace("N", str(n)), num_replicas=2, transport=transport) as exe:
        for _ in range(3):
            for total, square in exe([(x, w) for x in given]):
                np.testing.assert_array_equal(total, given[0] + given[1])
                np.testing.assert_array_equal(square, w @ w)
        with exe.trace(tmp_path / "t.json"):
            exe([(x, w) for x in given])
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    for rank in range(2):
        steps = [e["name"] for e in events if e["ph"] == "X" and e["pid"] == rank and e["cat"] == "step"]
        assert steps == ["start", "dot_general", "all_reduce"]
        (whole,) = [e for e in events if e["ph"] == "X" and e["pid"] == rank and e["name"] == "all_reduce"]
        waits = [e for e in events if e["ph"] == "X" and e["pid"] == rank and e["name"] == "waiting"]
        assert waits and all(whole["ts"] <= e["ts"] for e in waits), "only the end waits"


def test_a_started_op_matches_a_synchronous_one(transport: str) -> None:
    """Programs that differ do not write into each other's memory: their posts are the same, started or not."""
    n = 100_001
    started = TEXT.replace("N", str(n)).replace("@main", "@started")
    plain = f"""
func.func @plain(%a: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %0 = "stablehlo.all_reduce"(%a) ({{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }}) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<{n}xf32>) -> tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}"""
    x, w = np.arange(n, dtype=np.float32), np.eye(64, dtype=np.float32)
    with shlo_jit.compile(started + plain, programs=[["started"], ["plain"]], transport=transport) as exe:
        assert codes(exe.text("schedule", 1), "strategy") == ["large-message"]
        for _ in range(3):
            (one, _), two = exe([(x, w), (2 * x,)])
            np.testing.assert_array_equal(one, 3 * x)
            np.testing.assert_array_equal(two, 3 * x)
