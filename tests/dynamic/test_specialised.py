"""Compiled programs with unknown dimensions: code for the shapes of their calls."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from refusing import refused
from test_data_dependent import POSITIVE
from test_refine import MLP

import shlo_jit
from shlo_jit import specialize, tuning

SIZES = [0, 1, 2, 3, 17, 1000]


def arguments(n: int, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(np.float32) for shape in ((n, 16), (16, 8), (8,))]


@pytest.mark.parametrize("n", SIZES)
def test_the_same_bits_as_the_static_program(n: int) -> None:
    dynamic = shlo_jit.compile(MLP)
    static = shlo_jit.compile(shlo_jit.refine(MLP, [(n, 16), (16, 8), (8,)]))
    got, want = dynamic(*arguments(n)), static(*arguments(n))
    assert got.shape == want.shape == (n, 8)
    assert got.tobytes() == want.tobytes()


def test_properties() -> None:
    dynamic = shlo_jit.compile(MLP)
    assert [p.shape for p in dynamic.inputs] == [(None, 16), (16, 8), (8,)]
    assert repr(dynamic) == "<DynamicExecutable (float32[?,16], float32[16,8], float32[8]) -> (float32[?,8])>"


def count_of_compilations(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    made: list[object] = []
    compiled = specialize._compiled

    def counting(source, options):
        made.append(source)
        return compiled(source, options)

    monkeypatch.setattr(specialize, "_compiled", counting)
    return made


def test_a_shape_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_of_compilations(monkeypatch)
    dynamic = shlo_jit.compile(MLP)
    assert not made
    for n in (3, 4, 3, 4, 3):
        dynamic(*arguments(n))
    assert len(made) == 2


def test_threads_that_need_the_same_shape_compile_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_of_compilations(monkeypatch)
    dynamic = shlo_jit.compile(MLP)
    results = []
    workers = [threading.Thread(target=lambda: results.append(dynamic(*arguments(5)))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(made) == 1
    assert len({r.tobytes() for r in results}) == 1


def test_specialize(monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_of_compilations(monkeypatch)
    dynamic = shlo_jit.compile(MLP)
    dynamic.specialize(*([(n, 16), (16, 8), (8,)] for n in (1, 2, 3)))
    assert len(made) == dynamic.specialisations == 3
    dynamic(*arguments(2))
    assert len(made) == 3
    with pytest.raises(ValueError, match=r"argument 0 \(x\): .*float32\[\?,16\].*float32\[2,15\]"):
        dynamic.specialize([(2, 15), (16, 8), (8,)])


def test_the_most_recently_used_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SPECIALIZATIONS", 3)
    made = count_of_compilations(monkeypatch)
    dynamic = shlo_jit.compile(MLP)
    for n in (1, 2, 3, 1, 4, 1):
        dynamic(*arguments(n))
    assert dynamic.specialisations == 3
    assert len(made) == 4
    dynamic(*arguments(2))
    assert len(made) == 5


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, w, b: (x[:, :15], w, b), ValueError, r"argument 0 \(x\): .*float32\[\?,16\].*float32\[3,15\]"),
        (lambda x, w, b: (x[0], w, b), ValueError, r"argument 0 \(x\): .*float32\[\?,16\].*float32\[16\]"),
        (lambda x, w, b: (x.astype(int), w, b), TypeError, r"argument 0 \(x\): .*float32\[\?,16\].*int64\[3,16\]"),
        (lambda x, w, b: (x, w), TypeError, r"3 arguments .*got 2"),
        (lambda x, w, b: (x, w, w), ValueError, r"argument 2 \(b\): .*float32\[8\].*float32\[16,8\]"),
        (lambda x, w, b: (3.0, w, b), ValueError, r"argument 0 \(x\): .*float32\[\?,16\].*3.0"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(change, error: type[Exception], message: str) -> None:
    dynamic = shlo_jit.compile(MLP)
    with pytest.raises(error, match=message):
        dynamic(*change(*arguments(3)))
    assert dynamic(*arguments(3)).shape == (3, 8)


def test_a_failure_is_not_kept() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.add %x, %y : tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    """
    dynamic = shlo_jit.compile(text)
    x, y = np.ones(3, np.float32), np.ones(4, np.float32)
    for _ in range(2):
        with refused(shlo_jit.VerifyError, "C1", (3, 12), shows="tensor<4xf32>"):
            dynamic(x, y)
    assert dynamic.specialisations == 0
    assert dynamic(x, x).tolist() == [2, 2, 2]


COUNTED = """
func.func @main(%n: tensor<i64>, %x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi64>) {
  %0 = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
  %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi64>) -> tensor<?xi64>
  %2 = stablehlo.add %x, %x : tensor<?xf32>
  return %2, %1 : tensor<?xf32>, tensor<?xi64>
}
"""


def test_sizes_among_the_arguments() -> None:
    dynamic = shlo_jit.compile(COUNTED)
    for n in (3, 0, 1, 7, 3):
        doubled, counted = dynamic(np.int64(n), np.ones(2, np.float32))
        assert counted.tolist() == list(range(n))
        assert doubled.tolist() == [2, 2]


def test_sizes_among_the_arguments_of_a_program_with_known_types() -> None:
    text = COUNTED.replace("%x: tensor<?xf32>", "%x: tensor<2xf32>").replace("?xf32", "2xf32")
    dynamic = shlo_jit.compile(text)
    assert [dynamic(np.int64(n), np.ones(2, np.float32))[1].size for n in (4, 2, 4)] == [4, 2, 4]


def compilations_that_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes two compilations wait until both have started."""
    both = threading.Barrier(2)
    compiled = specialize._compiled

    def meeting(source, options):
        both.wait(20)
        return compiled(source, options)

    monkeypatch.setattr(specialize, "_compiled", meeting)


def at_the_same_time(calls) -> list[object]:
    results: list[object] = [None] * len(calls)

    def work(i: int) -> None:
        try:
            results[i] = calls[i]()
        except BaseException as error:
            results[i] = error

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(calls))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    return results


def test_different_shapes_are_compiled_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    dynamic = shlo_jit.compile(MLP)
    compilations_that_meet(monkeypatch)
    results = at_the_same_time([lambda n=n: dynamic(*arguments(n)).shape for n in (2, 3)])
    assert results == [(2, 8), (3, 8)]


def test_different_sizes_that_follow_from_data_are_compiled_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    dynamic = shlo_jit.compile(POSITIVE)
    dynamic(-np.ones(6, np.float32))  # compiles the part that computes the sizes
    compilations_that_meet(monkeypatch)
    xs = [np.where(np.arange(6) < n, 1, -1).astype(np.float32) for n in (2, 3)]
    assert at_the_same_time([lambda x=x: dynamic(x)[0].size for x in xs]) == [2, 3]


def test_code_depends_only_on_values_that_shapes_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter next to a size does not require other code, and sizes may depend on several arguments."""
    text = """
    func.func @main(%step: tensor<i32>, %n: tensor<i32>, %k: tensor<1xi32>) -> (tensor<?xi32>, tensor<i32>, tensor<?xi32>) {
      %0 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      %2 = stablehlo.get_dimension_size %1, dim = 0 : (tensor<?xi32>) -> tensor<i32>
      %3 = stablehlo.reshape %2 : (tensor<i32>) -> tensor<1xi32>
      %4 = stablehlo.add %3, %k : tensor<1xi32>
      %5 = stablehlo.dynamic_iota %4, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %6 = stablehlo.add %step, %one : tensor<i32>
      return %1, %6, %5 : tensor<?xi32>, tensor<i32>, tensor<?xi32>
    }
    """
    dynamic = shlo_jit.compile(text)
    made = count_of_compilations(monkeypatch)
    for step in range(5):
        first, after, second = dynamic(np.int32(step), np.int32(3), np.array([2], np.int32))
        assert (first.size, int(after), second.size) == (3, step + 1, 5)
    assert dynamic.specialisations == len(made) == 1
