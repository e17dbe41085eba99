"""Reads of exactly what an update has written become what it has written, and no others."""

from __future__ import annotations

import pytest
from looped import T, check, looped, names, whole

from shlo_jit.passes.states.forwarded_reads import forwarded_reads
from shlo_jit.passes.states.masked_updates import masked_updates

WRITE = f"%a = stablehlo.dynamic_update_slice %s, %u, %j : ({T}, tensor<4xf32>, tensor<i32>) -> {T}\n    "
BACK = f"\n    %c = stablehlo.dynamic_update_slice %a, %w, %i : ({T}, tensor<4xf32>, tensor<i32>) -> {T}"
OTHER = """%v = stablehlo.reshape %j : (tensor<i32>) -> tensor<1xi32>
    %l = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<1xi32>) -> tensor<1x1xi32>
    %m = stablehlo.slice %l [0:1, 0:1] : (tensor<1x1xi32>) -> tensor<1x1xi32>
    %q = stablehlo.reshape %m : (tensor<1x1xi32>) -> tensor<i32>
    """
"""The same index, as frontends write it for a scatter."""


def read(start: str, size: int = 4) -> str:
    return f"%w = stablehlo.dynamic_slice %a, {start}, sizes = [{size}] : ({T}, tensor<i32>) -> tensor<{size}xf32>"


@pytest.mark.parametrize("body", [WRITE + read("%j"), OTHER + WRITE + read("%q")], ids=["same", "reshaped"])
def test_the_same_part(body: str) -> None:
    """Starts that are clamped are included: `check` runs with indices outside of the tensor."""
    function, changed = check(looped(body + BACK, "%c"), forwarded_reads)
    assert changed and names(function)["dynamic_slice"] == 0


def test_equal_constants() -> None:
    numbers = "".join(f"%{n} = stablehlo.constant dense<3> : tensor<i32>\n    " for n in "hk")
    body = numbers + WRITE.replace("%j", "%h") + read("%k")
    assert names(check(looped(body + BACK, "%c"), forwarded_reads)[0])["dynamic_slice"] == 0


@pytest.mark.parametrize("start", ["%i", "%one"])
def test_other_starts(start: str) -> None:
    assert not check(looped(WRITE + read(start) + BACK, "%c"), forwarded_reads)[1]


def test_other_sizes() -> None:
    """A smaller part at the same start is clamped to another one."""
    assert not check(looped(WRITE + read("%j", 3) + BACK.replace("4xf32", "3xf32"), "%c"), forwarded_reads)[1]


def test_a_proposal_that_is_read_before_it_is_accepted() -> None:
    body = f"""{WRITE}{read("%j")}
    %f = stablehlo.slice %w [0:1] : (tensor<4xf32>) -> tensor<1xf32>
    %e = stablehlo.reshape %f : (tensor<1xf32>) -> tensor<f32>
    %h = stablehlo.slice %u [1:2] : (tensor<4xf32>) -> tensor<1xf32>
    %g = stablehlo.reshape %h : (tensor<1xf32>) -> tensor<f32>
    %better = stablehlo.compare LT, %g, %e : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %c = stablehlo.select %better, %a, %s : tensor<i1>, {T}"""
    function, _ = check(looped(body, "%c"), lambda f, context: masked_updates(forwarded_reads(f, context), context))
    assert whole(function, "select") == 0
