"""Aliases of aliases: types and attributes with shared parts may double in size with every line.

Anything too large to be written out is rejected at its definition; the rest is handled like any other program.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.types import MAX_PARTS, TensorType, TupleType, parts_of

SECONDS = 10
"""Time limit: far more than rejecting takes, and far less than traversing a type of 2^60 parts."""


def tuples(depth: int) -> str:
    """Returns a program that packs a value in nested tuples, each of which contains one twice, and unpacks it."""
    aliases = ["!t0 = tensor<2xf32>", *(f"!t{k} = tuple<!t{k - 1}, !t{k - 1}>" for k in range(1, depth + 1))]
    ops = ["%v0 = stablehlo.negate %x : tensor<2xf32>"]
    ops += [f"%v{k} = stablehlo.tuple %v{k - 1}, %v{k - 1} : !t{k}" for k in range(1, depth + 1)]
    ops.append(f"%w{depth} = stablehlo.get_tuple_element %v{depth}[0] : (!t{depth}) -> !t{depth - 1}")
    ops += [f"%w{k} = stablehlo.get_tuple_element %w{k + 1}[1] : (!t{k}) -> !t{k - 1}" for k in range(depth - 1, 0, -1)]
    head = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {"
    return "\n".join([*aliases, head, *ops, "return %w1 : tensor<2xf32> }"])


def aliased(definition: str, depth: int) -> str:
    """Returns a program with attributes or types, each of which contains the previous one twice."""
    lines = [definition.format(k=k, before=k - 1) for k in range(1, depth + 1)]
    return "\n".join(["#a0 = 1", "!f0 = i32", *lines, "func.func @main() { return }"])


ALIASES = {
    "array": "#a{k} = [#a{before}, #a{before}]",
    "dictionary": "#a{k} = {{x = #a{before}, y = #a{before}}}",
    "function type": "!f{k} = (!f{before}) -> !f{before}",
    "future": "!f{k} = !stablehlo.future<!f{before}, !f{before}>",
    "tuple": "!f{k} = tuple<!f{before}, !f{before}>",
}


def test_what_is_small_enough_compiles() -> None:
    x = np.arange(2, dtype=np.float32)
    np.testing.assert_array_equal(shlo_jit.compile(tuples(8), cache=False)(x), -x)
    module = shlo_jit.parse(tuples(8))
    assert shlo_jit.parse(str(module)) == module


@pytest.mark.parametrize("depth", [17, 60, 1000])
def test_tuples_that_are_too_large_are_refused_at_once(depth: int) -> None:
    start = time.process_time()
    with pytest.raises(shlo_jit.ParseError, match=r"alias '!t17' has 262,143 parts") as refused:
        shlo_jit.compile(tuples(depth), cache=False)
    assert refused.value.line == 18
    assert [d.line for d in shlo_jit.verify(tuples(depth))] == [18]
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("kind", ALIASES)
def test_every_kind_of_alias(kind: str) -> None:
    start = time.process_time()
    with pytest.raises(shlo_jit.ParseError, match=r"at most 131,072"):
        shlo_jit.parse(aliased(ALIASES[kind], 60))
    shlo_jit.parse(aliased(ALIASES[kind], 10))
    assert time.process_time() - start < SECONDS


def test_a_tuple_of_values_is_refused_where_it_gets_too_large() -> None:
    """A tuple is rejected even if no text contains its type."""
    part = TensorType((2,), shlo_jit.ir.types.DTYPES["f32"])
    whole = TupleType((part, part))
    while 2 * parts_of(whole) + 1 <= MAX_PARTS:
        whole = TupleType((whole, whole))
    assert parts_of(whole) == MAX_PARTS - 1
    with pytest.raises(shlo_jit.VerifyError, match="at most 131,072 parts"):
        shlo_jit.infer("tuple", [whole, whole])


def test_aliases_of_locations_are_names() -> None:
    """Aliases of locations are never expanded."""
    lines = ['#loc0 = loc("a")', *(f"#loc{k} = loc(fused[#loc{k - 1}, #loc{k - 1}])" for k in range(1, 60))]
    text = "\n".join([*lines, "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {",
                      "%0 = stablehlo.negate %x : tensor<2xf32> loc(#loc59)", "return %0 : tensor<2xf32> }"])  # fmt: skip
    module = shlo_jit.parse(text)
    assert shlo_jit.parse(module.serialize()) == module
    assert str(module).count("fused") == 59
