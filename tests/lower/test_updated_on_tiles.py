"""The epilogue on a product's tiles writes its results over dying operands: every tile is finished once."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit


def shape(*extents: int) -> str:
    return "tensor<" + "".join(f"{n}x" for n in extents) + "f32>"


def dot(m: int, n: int, k: int) -> tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    a, b, c = (k, m), (k, n), (m, n)
    text = f"stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : ({shape(*a)}, {shape(*b)}) -> {shape(*c)}"
    return text, a, b, c


def convolution(
    images: int, side: int, ci: int, co: int, window: int, first: bool = False, groups: int = 1
) -> tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    out = side - window + 1
    a, c = (images, side, side, ci), (images, out, out, co)
    layout = "b, 0, 1, f"
    if first:
        a, c, layout = (images, ci, side, side), (images, co, out, out), "b, f, 0, 1"
    b = (window, window, ci // groups, co)
    text = (
        f"stablehlo.convolution(%a, %b) dim_numbers = [{layout}]x[0, 1, i, o]->[{layout}], window = {{}} "
        f"{{feature_group_count = {groups} : i64, batch_group_count = 1 : i64}} "
        f": ({shape(*a)}, {shape(*b)}) -> {shape(*c)}"
    )
    return text, a, b, c


PRODUCTS = {
    "rows that fill tiles": dot(784, 512, 128),
    "few rows": dot(128, 200, 300),
    "odd extents": dot(77, 33, 600),
    "one row": dot(1, 300, 400),
    "one column": dot(300, 1, 400),
    "pixels in place": convolution(3, 30, 8, 24, 3),
    "pixels gathered": convolution(9, 7, 8, 24, 3),
    "features first": convolution(3, 19, 8, 24, 3, first=True),
    "depthwise": convolution(3, 21, 12, 12, 3, groups=12),
    "depthwise planes": convolution(3, 21, 12, 12, 3, first=True, groups=12),
    "one tap": convolution(2, 12, 40, 24, 1),
}


def momentum(product: str, a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> str:
    """Returns a step of gradient descent: the product is the gradient of %w, %m its momentum."""
    t = shape(*c)
    return f"""func.func @main(%a: {shape(*a)}, %b: {shape(*b)}, %w: {t}, %m: {t}) -> ({t}, {t}) {{
      %g = {product}
      %f = stablehlo.constant dense<0.9> : {t}
      %r = stablehlo.constant dense<0.05> : {t}
      %0 = stablehlo.multiply %m, %f : {t}
      %1 = stablehlo.add %0, %g : {t}
      %2 = stablehlo.multiply %1, %r : {t}
      %3 = stablehlo.subtract %w, %2 : {t}
      return %3, %1 : {t}, {t}
    }}"""


@pytest.mark.parametrize("case", PRODUCTS)
def test_donated_operands_are_updated_where_they_lie(case: str) -> None:
    product, *shapes = PRODUCTS[case]
    text = momentum(product, *shapes)
    random = np.random.default_rng(0)
    a, b, w, m = (random.standard_normal(s, np.float32) for s in (*shapes, shapes[-1]))
    expected = shlo_jit.compile(text, cache=False)(a, b, w, m)
    for threads in (1, 3):
        exe = shlo_jit.compile(text, cache=False, donate=(2, 3), threads=threads)
        mine = w.copy(), m.copy()
        found = exe(a, b, *mine)
        for new, old, wanted in zip(found, mine, expected, strict=True):
            assert np.shares_memory(new, old)
            np.testing.assert_array_equal(new, wanted)


def test_an_operand_of_the_product_is_not_overwritten() -> None:
    t = shape(96, 96)
    text = f"""func.func @main(%a: {t}) -> {t} {{
      %g = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
      %0 = stablehlo.add %g, %a : {t}
      return %0 : {t}
    }}"""
    a = np.random.default_rng(0).standard_normal((96, 96), np.float32)
    expected = shlo_jit.compile(text, cache=False)(a)
    mine = a.copy()
    found = shlo_jit.compile(text, cache=False, donate=(0,))(mine)
    assert not np.shares_memory(found, mine)
    np.testing.assert_array_equal(found, expected)


def test_an_operand_that_is_read_at_other_places_is_not_overwritten() -> None:
    t = shape(64, 64)
    text = f"""func.func @main(%a: {t}, %b: {t}, %w: {t}) -> {t} {{
      %g = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
      %v = stablehlo.transpose %w, dims = [1, 0] : ({t}) -> {t}
      %0 = stablehlo.add %g, %v : {t}
      return %0 : {t}
    }}"""
    a, b, w = np.random.default_rng(0).standard_normal((3, 64, 64), np.float32)
    found = shlo_jit.compile(text, cache=False, donate=(2,))(a, b, w.copy())
    np.testing.assert_array_equal(found, shlo_jit.compile(text, cache=False)(a, b, w))
