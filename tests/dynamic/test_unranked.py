"""Arguments of unknown rank: code is compiled for the rank of a call's arrays."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit

ERF = """
func.func @main(%x: tensor<*xf32>, %y: tensor<*xf32>) -> tensor<*xf32> {
  %0 = chlo.broadcast_add %x, %y : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %1 = call @half(%0) : (tensor<*xf32>) -> tensor<*xf32>
  return %1 : tensor<*xf32>
}
func.func private @half(%x: tensor<*xf32>) -> tensor<*xf32> {
  %c = stablehlo.constant dense<0.5> : tensor<f32>
  %0 = chlo.broadcast_multiply %x, %c : (tensor<*xf32>, tensor<f32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}
"""


@pytest.mark.parametrize("shapes", [((), ()), ((3,), ()), ((2, 3), (3,)), ((0, 3), (1, 3)), ((2, 1, 3), (4, 3))])
def test_every_rank(shapes: tuple[tuple[int, ...], ...]) -> None:
    dynamic = shlo_jit.compile(ERF)
    x, y = (np.full(shape, value, np.float32) for shape, value in zip(shapes, (1, 2), strict=True))
    want = (x + y) / 2
    got = dynamic(x, y)
    assert (got.shape, got.tolist()) == (want.shape, want.tolist())
    assert dynamic(x, y).tolist() == want.tolist()
    assert shlo_jit.verify(shlo_jit.refine(ERF, shapes)) == []


def test_one_executable_for_several_ranks() -> None:
    dynamic = shlo_jit.compile(ERF)
    for shape in ((), (2,), (2, 2), (2,), ()):
        x = np.ones(shape, np.float32)
        assert dynamic(x, x).shape == shape
    assert dynamic(1.0, 3.0) == 2
    assert dynamic.specialisations == 3


def test_properties() -> None:
    dynamic = shlo_jit.compile(ERF)
    assert repr(dynamic) == "<DynamicExecutable (float32[*], float32[*]) -> (float32[*])>"
    assert dynamic.inputs[0].shape is None
    with pytest.raises(TypeError, match=r"argument 0 \(x\): .*float32\[\*\].*int64\[2\]"):
        dynamic(np.ones(2, int), np.ones(2, np.float32))
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        dynamic(np.ones(2, np.float32), np.ones(3, np.float32))
    assert refusal.value.line == 3
    assert refusal.value.diagnostics[0].message.endswith(
        "; argument 0 (%x) has 2 in dimension 0, argument 1 (%y) has 3 in dimension 0"
    )


def test_casts_to_a_rank() -> None:
    text = """
    func.func @main(%x: tensor<*xf32>) -> tensor<?x2xf32> {
      %0 = tensor.cast %x : tensor<*xf32> to tensor<?x2xf32>
      %1 = stablehlo.negate %0 : tensor<?x2xf32>
      return %1 : tensor<?x2xf32>
    }
    """
    dynamic = shlo_jit.compile(text)
    assert dynamic(np.ones((3, 2), np.float32)).tolist() == [[-1, -1]] * 3
    with pytest.raises(shlo_jit.VerifyError) as refusal:
        dynamic(np.ones((3, 3), np.float32))
    assert (refusal.value.line, refusal.value.diagnostics[0].message) == (
        3,
        "tensor.cast: the result cannot be 'tensor<?x2xf32>' and 'tensor<3x3xf32>' (dimension 1 is 2, and 3); "
        "argument 0 (%x) has 3 in dimension 0, argument 0 (%x) has 3 in dimension 1",
    )
