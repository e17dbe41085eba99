"""Reduction of programs: the results, the validity of every tried program, and independence of parallelism."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import shlo_jit
from shlo_jit import examples
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.shrink.copies import clean, copied, ops_of
from shlo_jit.shrink.edits import EDITS
from shlo_jit.shrink.search import Search, edited, is_valid, size_of

CONTROL = """
func.func @main(%x: tensor<6x8xf32>, %n: tensor<i32>, %p: tensor<i1>) -> (tensor<6x8xf32>, tensor<8x6xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %table = stablehlo.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]> : tensor<1x8xf32>
  %0:3 = stablehlo.while(%a = %x, %i = %zero, %unused = %n) : tensor<6x8xf32>, tensor<i32>, tensor<i32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %b = func.call @layer(%a) : (tensor<6x8xf32>) -> tensor<6x8xf32>
    %t = stablehlo.broadcast_in_dim %table, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<6x8xf32>
    %d = stablehlo.multiply %b, %t : tensor<6x8xf32>
    stablehlo.return %d, %j, %unused : tensor<6x8xf32>, tensor<i32>, tensor<i32>
  }
  %1 = "stablehlo.if"(%p) ({
    %e = stablehlo.exponential %0#0 : tensor<6x8xf32>
    stablehlo.return %e : tensor<6x8xf32>
  }, {
    %f = stablehlo.negate %0#0 : tensor<6x8xf32>
    stablehlo.return %f : tensor<6x8xf32>
  }) : (tensor<i1>) -> tensor<6x8xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0] {mhlo.sharding = "{replicated}"} : (tensor<6x8xf32>) -> tensor<8x6xf32>
  return %1, %2, %0#1 : tensor<6x8xf32>, tensor<8x6xf32>, tensor<i32>
}
func.func private @layer(%x: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %0 = stablehlo.cosine %x : tensor<6x8xf32>
  %1 = func.call @inner(%0) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  return %1 : tensor<6x8xf32>
}
func.func private @inner(%x: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %0 = stablehlo.tanh %x : tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}
"""


def reduced(text: str, fails: Callable[[str], bool], jobs: int = 1) -> str:
    return str(Search(shlo_jit.parse(text), "main", fails, jobs).run())


@pytest.mark.parametrize(
    ("word", "ops"), [("cosine", 1), ("tanh", 1), ("exponential", 1), ("transpose", 1), ("while", 2), ("if", 1)]
)
def test_one_op_is_left(word: str, ops: int) -> None:
    def fails(text: str) -> bool:
        assert shlo_jit.verify(text) == []
        return f"stablehlo.{word}" in text

    found = reduced(CONTROL, fails)
    module = shlo_jit.parse(found)
    assert len(ops_of(module)) == ops, found
    assert sum(1 for _ in module.functions()) == 1
    assert "6x8" not in found and "sharding" not in found


def test_every_kind_of_edit_makes_a_program_smaller() -> None:
    """At least one edit of each kind gives a valid and smaller program."""
    module = shlo_jit.parse(CONTROL)
    before = size_of(module, "main")
    for edits in EDITS:
        made = [edited(module, "main", edit) for edit in edits(module, "main")]
        good = [m for m in made if m is not None and is_valid(m) and size_of(m, "main") < before]
        assert good, edits.__name__
        for found in good[:3]:
            assert shlo_jit.parse(str(found)) == found
    assert size_of(module, "main") == before  # edits change copies, not the program


def test_result_does_not_depend_on_jobs() -> None:
    """Programs are tested in any order, and some are slow."""

    def fails(text: str) -> bool:
        threading.Event().wait(0.001 * (len(text) % 5))
        return "stablehlo.multiply" in text and "dense<" in text

    found = {reduced(CONTROL, fails, jobs) for jobs in (1, 2, 5)}
    assert len(found) == 1


@pytest.mark.parametrize("name", examples.names())
@pytest.mark.sampled(3)
def test_copies_mean_the_same(name: str) -> None:
    module = shlo_jit.parse(examples.path(name))
    again = copied(module)
    clean(again, "main")
    assert is_valid(again) and size_of(again, "main") <= size_of(module, "main")
    main = module.function("main")
    assert main is not None
    generator = np.random.default_rng(0)
    small = [a.tensor for a in main.block().arguments]
    if sum(t.size for t in small) < 1 << 12:
        arguments = [generator.integers(0, 3, t.extents).astype(t.storage.numpy) for t in small]
        for a, b in zip(evaluate(module, *arguments), evaluate(again, *arguments), strict=True):
            np.testing.assert_array_equal(a, b)


def test_two_that_fail_together_both_stay() -> None:
    found = reduced(CONTROL, lambda text: "stablehlo.cosine" in text and "stablehlo.negate" in text)
    assert len(ops_of(shlo_jit.parse(found))) == 2


def test_constants_become_plain_and_are_kept_where_they_matter() -> None:
    text = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
      %0 = stablehlo.add %x, %c : tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    assert "dense<1.0" in reduced(text, lambda t: "stablehlo.constant" in t and "stablehlo.add" in t)
    assert "8.0" in reduced(text, lambda t: "8.0" in t)


def test_effects_can_go() -> None:
    call = "stablehlo.custom_call @log(%x) {has_side_effect = true} : (tensor<2xf32>) -> ()"
    text = f"""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
      {call}
      %0 = stablehlo.tanh %x : tensor<2xf32>
      return %0 : tensor<2xf32>
    }}"""
    assert "custom_call" not in reduced(text, lambda t: "stablehlo.tanh" in t)
    assert "tanh" not in reduced(text, lambda t: "custom_call" in t)
