"""Batch blocking of convolutions of large images: the chains that are blocked, and their results."""

from __future__ import annotations

import numpy as np
import pytest
from alone import main_of

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.core import Op
from shlo_jit.passes.canonical.batch_blocking import batch_blocking

IMAGES, SIDE = 6, 12


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    image = SIDE * SIDE * 8 * 4
    monkeypatch.setattr(tuning, "BATCH_BLOCK_LARGEST", IMAGES * image)
    monkeypatch.setattr(tuning, "BATCH_BLOCK_BYTES", 2 * image)


def t(*extents: int) -> str:
    return f"tensor<{'x'.join([*map(str, extents), 'f32'])}>"


def convolution(result: str, x: str, kernel: str, ci: int, co: int, side: int = SIDE, size: int = 3) -> str:
    p, shapes = size // 2, (t(IMAGES, side, side, ci), t(size, size, ci, co), t(IMAGES, side, side, co))
    return (
        f"{result} = stablehlo.convolution({x}, {kernel}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        f"window = {{pad = [[{p}, {p}], [{p}, {p}]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} "
        f": ({shapes[0]}, {shapes[1]}) -> {shapes[2]}\n"
    )


WIDE, SMALL = t(IMAGES, SIDE, SIDE, 8), t(IMAGES, SIDE // 2, SIDE // 2, 8)
POOL = f"""%p = "stablehlo.reduce_window"(%{{x}}, %low) ({{{{
  ^bb0(%a: {t()}, %b: {t()}):
    %m = stablehlo.maximum %a, %b : {t()}
    stablehlo.return %m : {t()}
  }}}}) {{{{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}}}}
  : ({WIDE}, {t()}) -> {SMALL}
"""
HEAD = f"""%low = stablehlo.constant dense<0xFF800000> : {t()}
  %zero = stablehlo.constant dense<0.0> : {WIDE}
  %scales = stablehlo.reshape %s : ({t(8)}) -> {t(1, 1, 1, 8)}
  %along = stablehlo.broadcast_in_dim %scales, dims = [0, 1, 2, 3] : ({t(1, 1, 1, 8)}) -> {WIDE}
  %once = stablehlo.broadcast_in_dim %s, dims = [3] : ({t(8)}) -> {WIDE}
"""


def network(returned: str = "%p", types: str = SMALL) -> str:
    """Two convolutions with typical surroundings in networks: scales, sums with another batch, windows."""
    arguments = f"%x: {t(IMAGES, SIDE, SIDE, 3)}, %r: {WIDE}, %v: {t(3, 3, 3, 8)}, %w: {t(3, 3, 8, 8)}, %s: {t(8)}"
    body = HEAD + convolution("%0", "%x", "%v", 3, 8) + f"""%1 = stablehlo.multiply %0, %along : {WIDE}
      %2 = stablehlo.add %1, %r : {WIDE}
      %3 = stablehlo.maximum %2, %zero : {WIDE}
      """ + convolution("%4", "%3", "%w", 8, 8) + f"""%5 = stablehlo.multiply %once, %4 : {WIDE}
      %6 = stablehlo.add %5, %3 : {WIDE}
      """ + POOL.format(x="6")  # fmt: skip
    return f"func.func @main({arguments}) -> ({types}) {{\n{body} return {returned} : {types}\n}}"


def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = (IMAGES, SIDE, SIDE, 3), (IMAGES, SIDE, SIDE, 8), (3, 3, 3, 8), (3, 3, 8, 8), (8,)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def loops(text: str) -> list[Op]:
    assert shlo_jit.verify(text) == []
    return [op for op in batch_blocking(*main_of(text)).block().ops if op.name == "stablehlo.while"]


def test_images_go_through_a_chain_one_after_the_other() -> None:
    (loop,) = loops(network())
    inside = [op.name.partition(".")[2] for op in loop.block(1).ops]
    assert inside.count("convolution") == 2 and "reduce_window" in inside
    assert inside.count("dynamic_slice") == 2, (
        "of the images and of what is added; nothing else differs from image to image"
    )
    (part,) = {op.result.tensor.extents[0] for op in loop.block(1).ops if op.name == "stablehlo.convolution"}
    assert part == 2, "as many images as there is room for, in equal parts"


def test_the_bits_are_those_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [shlo_jit.compile(network(), threads=n, cache=False)(*inputs()) for n in (1, 2)]
    monkeypatch.setattr(tuning, "BATCH_BLOCK_LARGEST", 1 << 60)
    assert not loops(network())
    whole = shlo_jit.compile(network(), cache=False)(*inputs())
    for part in found:
        np.testing.assert_array_equal(part, whole)


def test_a_value_that_is_read_later_is_materialized() -> None:
    text = network("%p, %3", f"{SMALL}, {WIDE}")
    assert not loops(text), "half of what the convolutions make would be written twice"
    one = network("%p, %q", f"{SMALL}, {t(IMAGES, 8)}").replace(" return", f"""
      %c = stablehlo.constant dense<0.0> : {t()}
      %q = stablehlo.reduce(%p init: %c) applies stablehlo.add across dimensions = [1, 2]
        : ({SMALL}, {t()}) -> {t(IMAGES, 8)}
      return""")  # fmt: skip
    (loop,) = loops(one)
    assert [v.tensor.extents for v in loop.results[1:]] == [(IMAGES, SIDE // 2, SIDE // 2, 8)]
    sums = shlo_jit.compile(one, cache=False)(*inputs())
    np.testing.assert_allclose(sums[0].sum((1, 2)), sums[1], rtol=1e-5)


def test_small_values_and_large_kernels_are_not_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "BATCH_BLOCK_KERNELS", (9 * 3 * 8 + 9 * 8 * 8) * 4)
    assert loops(network())
    monkeypatch.setattr(tuning, "BATCH_BLOCK_KERNELS", (9 * 3 * 8 + 9 * 8 * 8) * 4 - 1)
    assert not loops(network()), "the second one's kernel is one too many"


def test_an_op_that_mixes_images_ends_a_chain() -> None:
    text = network().replace(f"%2 = stablehlo.add %1, %r : {WIDE}", f"""
      %t = stablehlo.reverse %1, dims = [0] : {WIDE}
      %2 = stablehlo.add %t, %r : {WIDE}""")  # fmt: skip
    assert not loops(text)
