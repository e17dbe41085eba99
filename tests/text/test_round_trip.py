"""Checks parse(print(m)) == m, and that printing is idempotent."""

from __future__ import annotations

import corpus
import jax
import jax.numpy as jnp
import pytest

from shlo_jit.errors import ParseError
from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.core import walk
from shlo_jit.ir.equality import difference
from shlo_jit.text.parser import parse_module
from shlo_jit.text.printer import print_module


def check_round_trip(text: str, name: str = "<text>") -> None:
    first = parse_module(text, name)
    printed = print_module(first)
    second = parse_module(printed, f"{name}, printed")
    assert difference(first, second) is None
    assert print_module(second) == printed


@pytest.mark.parametrize("text", corpus.own_texts())
def test_own_texts(text: str) -> None:
    check_round_trip(text)


@pytest.mark.parametrize("snippet", [s for s in corpus.SNIPPETS if "loc(" not in s and "foo.bar %" not in s])
def test_pretty_form_is_kept(snippet: str) -> None:
    """Pretty forms are printed as pretty forms, without additional text."""
    printed = print_module(parse_module(corpus.HEADER + snippet + corpus.FOOTER))
    name = snippet.rsplit(" = ", maxsplit=1)[-1] if "composite" in snippet else snippet
    op = next(op for op in walk(parse_module(corpus.HEADER + snippet + corpus.FOOTER).body) if op.name != "func.func")
    assert (f'"{op.name}"(' in printed) == (f'"{op.name}"(' in name)


@pytest.mark.parametrize("folder", corpus.FOLDERS)
@pytest.mark.sampled(3)
def test_shared_texts(folder: str) -> None:
    """Round trip of all texts in the shared folder; those marked as wrong may be rejected."""
    texts = corpus.shared_texts(folder)
    if not texts:
        pytest.skip("no shared folder next to the checkout")
    for name, text in texts:
        try:
            check_round_trip(text, name)
        except ParseError:
            if "expected-error" not in text:
                raise


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T / 8.0, axis=-1) @ v


def _loop(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 5, lambda i, a: jnp.where(a > i, jnp.sin(a), a * 2), x)


def _gathers(x: jax.Array, i: jax.Array) -> jax.Array:
    return jnp.sort(x[i].at[0].add(1.0), axis=0)[::-1] + jnp.argmax(x)


def _convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    y = jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")


F = jnp.zeros((8, 8), jnp.float32)
LOWERED = {
    "attention": (_attention, (F, F, F)),
    "gradient": (jax.grad(lambda *a: _attention(*a).sum()), (F, F, F)),
    "loop": (_loop, (F,)),
    "gather": (_gathers, (F, jnp.zeros((3,), jnp.int32))),
    "convolution": (_convolution, (jnp.zeros((1, 8, 8, 3)), jnp.zeros((3, 3, 3, 4)))),
    "cond": (lambda x: jax.lax.cond(x[0, 0] > 0, jnp.cos, jnp.tan, x), (F,)),
    "random": (lambda k: jax.random.normal(k, (4,)), (jax.random.key_data(jax.random.key(0)),)),
}


@pytest.mark.parametrize("name", LOWERED)
def test_lowered_by_jax(name: str) -> None:
    """Programs written by JAX, also with locations and in the generic form; both forms give the same program."""
    function, arguments = LOWERED[name]
    if name == "random":
        lowered = jax.jit(lambda k: jax.random.normal(jax.random.wrap_key_data(k), (4,))).lower(*arguments)
    else:
        lowered = jax.jit(function).lower(*arguments)
    pretty = lowered.as_text()
    check_round_trip(pretty)
    check_round_trip(lowered.as_text(debug_info=True))
    generic = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    assert difference(parse_module(pretty), parse_module(generic)) is None


def test_locations_are_kept() -> None:
    text = corpus.PROGRAMS[3]
    printed = print_module(parse_module(text))
    assert '%a: tensor<3xf32> {a.b = array<i64: 1, 2>} loc("x")' in printed
    assert "return %a : tensor<3xf32> loc(#loc)" in printed
    assert "#loc2 = loc(callsite(#loc at #loc))" in printed


def test_names_are_kept_or_made_unique() -> None:
    text = "func.func @f(%x: tensor<f32>) -> tensor<f32> {\n  %7 = stablehlo.abs %x : tensor<f32>\n"
    text += "  %cst = stablehlo.sqrt %7 : tensor<f32>\n  return %cst : tensor<f32>\n}\n"
    module = parse_module(text)
    function = next(module.functions())
    function.block().ops[0].result.name = "cst"
    printed = print_module(module)
    assert "%cst = stablehlo.abs %x" in printed
    assert "%cst_0 = stablehlo.sqrt %cst" in printed


def test_spans_cover_the_operation() -> None:
    text = "func.func @f(%x: tensor<f32>) {\n  %0 = stablehlo.abs %x : tensor<f32> // so\n  return\n}\n"
    op = next(parse_module(text).functions()).block().ops[0]
    assert text[op.start : op.end] == "stablehlo.abs %x : tensor<f32>"


def test_a_function_in_generic_form_returns_in_full() -> None:
    """The short form `return` is valid only in the pretty form of functions."""
    module = parse_module("func.func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x : tensor<f32>\n}")
    (function,) = module.functions()
    function.attributes["arg_attrs"] = (DictAttr(()),)  # which the pretty form does not preserve
    printed = print_module(module)
    assert '"func.func"' in printed
    assert "func.return %x : tensor<f32>" in printed
    check_round_trip(printed)
