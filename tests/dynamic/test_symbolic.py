"""compile(dynamic="symbolic"): one code for all batch sizes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from printed_codes import codes
from refusing import refused

import shlo_jit
from shlo_jit import tuning
from shlo_jit.runtime.dynamic import DynamicExecutable
from shlo_jit.runtime.executable import Executable
from shlo_jit.stages import STAGES

ROWS = """
func.func @main(%x: tensor<?x5xf32>, %w: tensor<5x3xf32>) -> (tensor<?x3xf32>, tensor<5xf32>) {
  %0 = stablehlo.tanh %x : tensor<?x5xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<?x5xf32>, tensor<5x3xf32>) -> tensor<?x3xf32>
  %2 = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%0 init: %2) applies stablehlo.add across dimensions = [0] : (tensor<?x5xf32>, tensor<f32>) -> tensor<5xf32>
  return %1, %3 : tensor<?x3xf32>, tensor<5xf32>
}
"""
SORTED = """
func.func @main(%x: tensor<?xi32>) -> tensor<?xi32> {
  %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xi32>) -> tensor<i32>
  %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
  %2 = stablehlo.dynamic_iota %1, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %c = stablehlo.constant dense<4> : tensor<1xi32>
  %3 = stablehlo.minimum %1, %c : tensor<1xi32>
  %4 = stablehlo.dynamic_iota %3, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %4 : tensor<?xi32>
}
"""
"""As many numbers as the batch has elements, at most 4: which one is smaller depends on the batch."""


def symbolic(text: str, **options: object) -> DynamicExecutable:
    exe = shlo_jit.compile(text, dynamic="symbolic", **options)  # type: ignore[arg-type]
    assert isinstance(exe, DynamicExecutable)
    return exe


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(n)
    return generator.standard_normal((n, 5)).astype(np.float32), generator.standard_normal((5, 3)).astype(np.float32)


def expect(exe: DynamicExecutable, n: int) -> None:
    x, w = rows(n)
    y, total = exe(x, w)
    np.testing.assert_allclose(y, np.tanh(x) @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, np.tanh(x).sum(0), rtol=1e-4, atol=1e-4)


def test_all_sizes() -> None:
    exe = symbolic(ROWS)
    for n in (7, 2, 300, 5000, 3, 1, 0, 40, 1):
        expect(exe, n)
    assert exe.specialisations == 2  # 1 and 0


def test_no_code_is_made_for_a_new_size(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = symbolic(ROWS)
    monkeypatch.setattr("shlo_jit.pipeline.lower", None)  # so any attempt to compile fails
    for n in range(2, 200):
        expect(exe, n)


def test_inputs_show_what_is_unknown() -> None:
    exe = symbolic(ROWS)
    assert [p.shape for p in exe.inputs] == [(None, 5), (5, 3)]
    code = exe.executable([(9, 5), (5, 3)])
    assert isinstance(code, Executable)
    assert code.symbol == tuning.SYMBOLIC_SIZES[0]
    assert repr(code) == "<Executable (float32[?,5], float32[5,3]) -> (float32[?,3], float32[5])>"
    assert code.memory.outputs == 4 * (3 * tuning.SYMBOLIC_SIZES[0].hint + 5)


def test_the_plan_states_the_sizes_of_the_code() -> None:
    exe = symbolic(ROWS)
    given = [(9, 5), (5, 3)]
    assert exe.text("plan", given).startswith("code for any n, 2 to 1,048,576; figures are for 64\n")
    assert exe.text("plan", [(1, 5), (5, 3)]).startswith(
        "code for these shapes alone: code for any size is not made for size 1\n"
    )
    assert "nx5xf32" in exe.text("core", given)
    for stage in STAGES:
        assert exe.text(stage, given)


def test_the_plan_names_the_op_that_prevents_it() -> None:
    exe = symbolic(SORTED)
    for n in (2, 3, 9):
        assert exe(np.zeros(n, np.int32)).tolist() == list(range(min(n, 4)))
    first = exe.text("plan", [(9,)]).splitlines()[0]
    assert "minimum in line 7" in first and codes(first) == ["comparison-unknown"]


def test_refusals_are_like_those_of_other_programs() -> None:
    exe = symbolic(ROWS)
    x, w = rows(6)
    with pytest.raises(ValueError, match=r"argument 0 \(x\): .*float32\[\?,5\].*float32\[6,4\]"):
        exe(np.zeros((6, 4), np.float32), w)
    with pytest.raises(TypeError, match=r"argument 0 \(x\): .*float32\[\?,5\].*float64\[6,5\]"):
        exe(x.astype(np.float64), w)
    with pytest.raises(TypeError, match="expected 2 arguments"):
        exe(x)
    expect(exe, 6)


@pytest.mark.parametrize("given", ["always", "", None, 1])
def test_other_options_are_refused(given: object) -> None:
    with pytest.raises((TypeError, ValueError), match="dynamic: expected"):
        shlo_jit.compile(ROWS, dynamic=given)  # type: ignore[arg-type]


def test_a_static_program_takes_the_option() -> None:
    text = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n return %x : tensor<3xf32>\n}"
    exe = shlo_jit.compile(text, dynamic="symbolic")
    assert isinstance(exe, Executable)
    assert exe.symbol is None


def test_arrays_that_are_not_contiguous() -> None:
    exe = symbolic(ROWS)
    x, w = rows(20)
    y, _ = exe(np.asfortranarray(x), w[:, ::-1])
    np.testing.assert_allclose(y, np.tanh(x) @ w[:, ::-1], rtol=1e-5, atol=1e-5)


def test_the_arena_grows_with_the_largest_call() -> None:
    def sort(operand: str) -> str:
        return f"""
      "stablehlo.sort"({operand}) <{{dimension = 1 : i64}}> ({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }}) : (tensor<?x64xf32>) -> tensor<?x64xf32>"""

    exe = symbolic(f"""
    func.func @main(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {{
      %0 = {sort("%x")}
      %1 = stablehlo.negate %0 : tensor<?x64xf32>
      %2 = {sort("%1")}
      return %2 : tensor<?x64xf32>
    }}
    """)
    for n in (2, 3000, 5, 20000, 70, 3000):
        x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
        np.testing.assert_array_equal(exe(x), np.sort(-np.sort(x, 1), 1))


def test_threads_call_with_different_sizes() -> None:
    exe = symbolic(ROWS, threads=2)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in np.random.default_rng(seed).integers(0, 3000, 60):
                expect(exe, int(n))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_two_batches() -> None:
    """Leading dimensions of different sizes: one is symbolic, code is specialized for the other."""
    text = """
    func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
      %0 = stablehlo.tanh %x : tensor<?x4xf32>
      %1 = stablehlo.negate %y : tensor<?x4xf32>
      return %0, %1 : tensor<?x4xf32>, tensor<?x4xf32>
    }
    """
    exe = symbolic(text)
    for n, m in ((3, 3), (3, 5), (8, 5), (8, 8), (5, 3)):
        x, y = np.ones((n, 4), np.float32), np.ones((m, 4), np.float32)
        a, b = exe(x, y)
        assert (a.shape, b.shape) == (x.shape, y.shape)
        np.testing.assert_array_max_ulp(a[0, 0], np.tanh(x)[0, 0], 2)  # the error bound of tanh; NumPy's differs by CPU
        assert b[0, 0] == -1
    assert exe.specialisations == 0


def test_inner_dimensions_are_part_of_what_code_is_made_for() -> None:
    exe = symbolic("func.func @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {\n"
                   " %0 = stablehlo.negate %x : tensor<?x?xf32>\n return %0 : tensor<?x?xf32>\n}")  # fmt: skip
    for shape in ((3, 4), (9, 4), (9, 5), (3, 5), (1, 5)):
        assert (exe(np.ones(shape, np.float32)) == -np.ones(shape)).all()
    assert exe.specialisations == 1


def test_results_of_fixed_size_that_come_from_the_pool() -> None:
    text = """
    func.func @main(%x: tensor<?x300xf32>) -> tensor<300x300xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0]
        : (tensor<?x300xf32>, tensor<?x300xf32>) -> tensor<300x300xf32>
      return %0 : tensor<300x300xf32>
    }
    """
    exe = symbolic(text)
    for n in (2, 50):
        x = np.random.default_rng(n).standard_normal((n, 300)).astype(np.float32)
        for _ in range(2):
            np.testing.assert_allclose(exe(x), x.T @ x, rtol=1e-4, atol=1e-4)


def test_donated_arguments_are_reused() -> None:
    text = ("func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {\n"
            " %0 = stablehlo.negate %x : tensor<?x4xf32>\n return %0 : tensor<?x4xf32>\n}")  # fmt: skip
    exe = symbolic(text, donate=[0])
    for n in (3, 50):
        x = np.ones((n, 4), np.float32)
        y = exe(x)
        assert np.shares_memory(x, y)
        assert (y == -1).all()


def test_sizes_as_data() -> None:
    text = """
    func.func @main(%x: tensor<?x4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [0] : (tensor<?x4xf32>, tensor<f32>) -> tensor<4xf32>
      %2 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
      %3 = stablehlo.convert %2 : (tensor<i32>) -> tensor<f32>
      %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %5 = stablehlo.divide %1, %4 : tensor<4xf32>
      return %5 : tensor<4xf32>
    }
    """
    exe = symbolic(text)
    for n in (2, 3, 1000):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        np.testing.assert_allclose(exe(x), x.mean(0), rtol=1e-4, atol=1e-5)


def test_an_internal_call_cannot_be_written(tmp_path: Path) -> None:
    text = ("func.func @main() -> tensor<i32> {\n %0 = stablehlo.custom_call @shlo_jit.size() : () -> tensor<i32>\n"
            " return %0 : tensor<i32>\n}")  # fmt: skip
    with refused(shlo_jit.VerifyError, "target", (2, 7), shows="@shlo_jit.size"):
        shlo_jit.compile(text)


def test_from_the_object_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    expect(symbolic(ROWS), 8)
    monkeypatch.setattr("shlo_jit.pipeline.lower", None)
    for n in (8, 9, 500):
        expect(symbolic(ROWS), n)


def test_profile() -> None:
    exe = symbolic(ROWS)
    x, w = rows(30)
    exe(x, w)
    with exe.profile([x.shape, w.shape]) as found:
        for n in (30, 40, 50):
            expect(exe, n)
    assert {step.calls for step in found.steps} == {3}
    assert "dot_general" in str(found)
    assert {step.gigabytes_per_second for step in found.steps} == {None}  # it may be another size in each call
    expect(exe, 30)
    assert {step.calls for step in found.steps} == {3}


def test_trace(tmp_path: Path) -> None:
    """A trace of calls with any size; quantities that depend on the size are not shown."""
    exe, path = symbolic(ROWS), tmp_path / "t.json"
    x, w = rows(30)
    exe(x, w)
    with exe.trace(path, [x.shape, w.shape]):
        for n in (30, 40, 50):
            expect(exe, n)
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert sum(e["cat"] == "call" for e in events) == 3
    assert sum(e["name"] == "dot_general" for e in events) == 3
    assert not any("GB/s" in e["args"] or "GFLOP/s" in e["args"] for e in events)


def test_factors_of_channels_are_folded_for_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SMALL_PRODUCT", "SMALL_PRODUCT_STRIDED", "SMALL_VECTOR_PRODUCT"):
        monkeypatch.setattr(tuning, name, 0)  # products stay products
    text = """func.func @main(%x: tensor<?x8xf32>) -> tensor<?x3xf32> {
      %w = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [1.5, 2.5, 3.5],
        [1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0], [4.0, 4.0, 5.0]]> : tensor<8x3xf32>
      %s = stablehlo.constant dense<[2.0, 4.0, 0.5]> : tensor<3xf32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x8xf32>) -> tensor<i32>
      %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %three = stablehlo.constant dense<3> : tensor<1xi32>
      %shape = stablehlo.concatenate %n1, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<?x8xf32>, tensor<8x3xf32>) -> tensor<?x3xf32>
      %1 = stablehlo.dynamic_broadcast_in_dim %s, %shape, dims = [1]
        : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32>
      %2 = stablehlo.multiply %0, %1 : tensor<?x3xf32>
      return %2 : tensor<?x3xf32>
    }"""
    usual, folded = (symbolic(text, fold_scales=f) for f in (False, True))
    for rows in (1, 2, 40, 200):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        np.testing.assert_allclose(folded(x), usual(x), rtol=1e-5, atol=1e-5)
    shapes = [(40, 8)]
    assert "multiply" in usual.text("core", shapes) and "multiply" not in folded.text("core", shapes)
