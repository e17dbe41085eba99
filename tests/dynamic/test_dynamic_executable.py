"""Properties of a DynamicExecutable, and queries about its code for certain shapes."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from test_data_dependent import BOUNDED, POSITIVE
from test_refine import MLP

import shlo_jit
from shlo_jit.stages import STAGES

SHAPES = [(3, 16), (16, 8), (8,)]
COUNT = """
func.func @main(%n: tensor<i32>) -> tensor<?xi32> {
  %0 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %1 : tensor<?xi32>
}
"""


def arrays(n: int) -> list[np.ndarray]:
    return [np.ones(shape, np.float32) for shape in ((n, 16), (16, 8), (8,))]


def test_inputs_show_unknown_sizes_and_their_bounds() -> None:
    dynamic = shlo_jit.compile(BOUNDED)
    (x,) = dynamic.inputs
    assert (x.name, x.shape, x.dtype, x.bounds) == ("x", (None, 3), np.float32, (4, None))
    assert repr(dynamic) == "<DynamicExecutable (float32[<=4,3]) -> (float32[<=4,3], float32[3])>"
    assert shlo_jit.compile(MLP).inputs[0].bounds is None


@pytest.mark.parametrize("stage", STAGES)
def test_texts(stage: str) -> None:
    dynamic = shlo_jit.compile(MLP)
    static = shlo_jit.compile(shlo_jit.refine(MLP, SHAPES))
    want = static.text(stage)
    assert dynamic.text(stage, SHAPES) == want
    dynamic(*arrays(5))
    assert dynamic.text("module") != static.text("module")
    dynamic(*arrays(3))
    assert dynamic.text(stage) == want


def test_queries_without_shapes() -> None:
    dynamic = shlo_jit.compile(MLP)
    for ask in (lambda: dynamic.text("plan"), dynamic.profile, lambda: dynamic.memory):
        with pytest.raises(ValueError) as refusal:
            ask()
        assert "shapes=" in str(refusal.value)
        assert str(refusal.value).endswith("(float32[?,16], float32[16,8], float32[8])")


@pytest.mark.parametrize("given", [SHAPES, ["3x16xf32", "tensor<16x8xf32>", [8]], arrays(3)])
def test_forms_of_shapes_that_an_executable_accepts(given) -> None:
    dynamic = shlo_jit.compile(MLP)
    executable = dynamic.executable(given)
    assert executable is dynamic.executable(SHAPES)
    assert [p.shape for p in executable.inputs] == SHAPES
    assert dynamic.specialisations == 1


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["3x16xf64", (16, 8), (8,)], TypeError, "argument 0 (x): expected float32[?,16], got '3x16xf64'"),
        (["3x?xf32", (16, 8), (8,)], ValueError,
         "argument 0 (x): expected extents and an element type, such as 8x16xf32; got '3x?xf32'"),
        ([np.ones((3, 16)), (16, 8), (8,)], TypeError,
         "argument 0 (x): expected an array of float32, got float64[3,16]"),
        ([3, (16, 8), (8,)], TypeError, "argument 0 (x): expected extents, a type's text or an array, got 3"),
        ([(-3, 16), (16, 8), (8,)], TypeError, "argument 0 (x): expected extents, a type's text or an array, got (-3, 16)"),
    ],
)  # fmt: skip
def test_invalid_shapes(given, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as refusal:
        shlo_jit.compile(MLP).text("plan", given)
    assert str(refusal.value) == f"shape of {message}"


def test_shapes_that_do_not_fit_the_program() -> None:
    dynamic = shlo_jit.compile(MLP)
    with pytest.raises(ValueError, match=r"argument 1 \(w\): .*float32\[16,8\].*float32\[8,16\]"):
        dynamic.executable([(3, 16), (8, 16), (8,)])
    with pytest.raises(TypeError, match=r"3 arguments \(float32\[\?,16\].*got 1"):
        dynamic.executable([(3, 16)])
    with pytest.raises(TypeError, match="shapes: .*'3x16xf32'"):
        dynamic.executable("3x16xf32")


def test_values_that_shapes_depend_on() -> None:
    dynamic = shlo_jit.compile(COUNT)
    with pytest.raises(ValueError) as refusal:
        dynamic.text("module", [()])
    assert str(refusal.value).startswith("argument 0 (n): ") and "value" in str(refusal.value)
    assert "tensor<5xi32>" in dynamic.text("module", [np.int32(5)])
    dynamic.specialize([np.int32(6)])
    assert dynamic.specialisations == 2
    assert dynamic(np.int32(6)).size == 6
    assert dynamic.specialisations == 2


def test_memory_and_threads() -> None:
    dynamic = shlo_jit.compile(MLP, threads=2)
    assert dynamic.threads == 2
    dynamic(*arrays(3))
    assert dynamic.memory.outputs == 3 * 8 * 4
    assert dynamic.executable([(7, 16), *SHAPES[1:]]).memory.outputs == 7 * 8 * 4


def test_profile() -> None:
    dynamic = shlo_jit.compile(MLP)
    with dynamic.profile(SHAPES) as profile:
        for _ in range(3):
            dynamic(*arrays(3))
        dynamic(*arrays(4))  # other code
    assert {step.calls for step in profile.steps} == {3}
    dynamic(*arrays(3))
    assert {step.calls for step in profile.steps} == {3}


def test_trace(tmp_path: Path) -> None:
    dynamic, path = shlo_jit.compile(MLP), tmp_path / "t.json"
    with dynamic.trace(path, SHAPES):
        dynamic(*arrays(3))
        dynamic(*arrays(4))  # other code
    (call,) = (e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "call")
    with pytest.raises(ValueError, match="no call"), dynamic.trace(path, SHAPES):
        dynamic(*arrays(4))
    assert str(call["ts"]) in path.read_text()


def test_infeed_is_the_same_for_all_shapes() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %t = stablehlo.create_token : !stablehlo.token
      %0:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[]]}
        : (!stablehlo.token) -> (tensor<f32>, !stablehlo.token)
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %1 = stablehlo.dynamic_broadcast_in_dim %0#0, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      %2 = stablehlo.add %x, %1 : tensor<?xf32>
      return %2 : tensor<?xf32>
    }
    """
    dynamic = shlo_jit.compile(text)
    dynamic.infeed.put(np.float32(1))
    dynamic.infeed.put(np.float32(2))
    assert [dynamic(np.zeros(n, np.float32)).tolist() for n in (1, 2)] == [[1], [2, 2]]
    assert len(dynamic.infeed) == len(dynamic.outfeed) == len(dynamic.channel(1)) == 0


def test_copies_and_signatures() -> None:
    dynamic = shlo_jit.compile(MLP)
    assert copy.copy(dynamic) is copy.deepcopy(dynamic) is dynamic
    with pytest.raises(TypeError, match="DynamicExecutable.*pickled"):
        pickle.dumps(dynamic)
    assert str(inspect.signature(dynamic)) == (
        "(x: 'float32[?,16]', w: 'float32[16,8]', b: 'float32[8]') -> 'float32[?,8]'"
    )


# ---------------------------------------------------------------------- sizes that follow from data
def test_before_sizes_are_known() -> None:
    staged = shlo_jit.compile(POSITIVE).executable([(6,)])
    assert repr(staged) == "<StagedExecutable (float32[6]) -> (int32[?], float32[?])>"
    assert "dynamic_iota" not in staged.text("module")
    for ask in (staged.profile, lambda: staged.trace("t.json"), lambda: staged.memory):
        with pytest.raises(ValueError, match="call it first"):
            ask()


@pytest.mark.parametrize("stage", STAGES)
def test_texts_of_both_parts(stage: str) -> None:
    dynamic = shlo_jit.compile(POSITIVE)
    dynamic(np.ones(6, np.float32))
    rest, comment, first = dynamic.text(stage).partition(" computation of sizes\n")
    assert comment
    assert first == dynamic.executable()._prelude.text(stage)  # type: ignore[union-attr]
    if stage == "module":
        assert "tensor<6xi32>" in rest


def test_profile_of_both_parts() -> None:
    text = POSITIVE.replace("return %a, %f", "%g = stablehlo.exponential %f : tensor<?xf32>\n  return %a, %g")
    dynamic = shlo_jit.compile(text)
    x = np.arange(6, dtype=np.float32)
    dynamic(x)
    assert dynamic.memory.outputs == 5 * (4 + 4)
    assert dynamic.threads == dynamic.executable().threads
    with dynamic.profile() as profile:
        dynamic(x)
        dynamic(x)
    assert {step.calls for step in profile.steps} == {2}
    assert {step.label.startswith("sizes ") for step in profile.steps} == {True, False}


def test_trace_of_both_parts(tmp_path: Path) -> None:
    """A call of the program consists of a call of each part."""
    dynamic, path = shlo_jit.compile(POSITIVE), tmp_path / "t.json"
    x = np.arange(6, dtype=np.float32)
    dynamic(x)
    with dynamic.trace(path):
        dynamic(x)
        dynamic(x)
    events = json.loads(path.read_text())["traceEvents"]
    calls = [e for e in events if e.get("cat") == "call"]
    assert [e["args"].get("step") for e in sorted(calls, key=lambda e: e["ts"])] == ["sizes", None] * 2
    assert len({e["tid"] for e in events if e["ph"] == "X"}) == 1
    assert any(e["args"].get("step", "").startswith("sizes 0") for e in events)
