"""Windows that are nearly all padding: the padding is counted, and results have the bits of folding it one by one."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

HUGE = 1 << 62
BODIES = {
    "add": "%v = stablehlo.add %l, %r : {t}",
    "multiply": "%v = stablehlo.multiply %l, %r : {t}",
    "maximum": "%v = stablehlo.maximum %l, %r : {t}",
    "minimum": "%v = stablehlo.minimum %l, %r : {t}",
    "xor": "%v = stablehlo.xor %l, %r : {t}",
    "last": "%v = stablehlo.reshape %r : ({t}) -> {t}",
    "turned": "%n = stablehlo.negate %l : {t}\n    %v = stablehlo.add %n, %r : {t}",
    "halved": "%n = stablehlo.divide %l, %r : {t}\n    %v = stablehlo.add %n, %r : {t}",
}


ASSOCIATIVE = ("add", "maximum", "xor")
"""Bodies that are associative on numbers as small as these, even in floats; the reference folds long windows in
parts."""
BITS = [
    ("add", "f32"), ("add", "bf16"), ("add", "complex<f32>"), ("add", "i32"), ("multiply", "ui8"), ("maximum", "f32"),
    ("minimum", "f16"), ("xor", "i32"), ("last", "f64"), ("turned", "f32"), ("turned", "bf16"), ("halved", "f64"),
]  # fmt: skip


def window(
    body: str,
    dtype: str,
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    padding: list[list[int]],
    out: tuple,
    **more: str,
) -> str:
    t = f"tensor<{dtype}>"
    x, y = ("tensor<" + "".join(f"{n}x" for n in s) + f"{dtype}>" for s in (shape, out))
    others = "".join(f", {k} = array<i64: {v}>" for k, v in more.items())
    return f"""
func.func @main(%x: {x}, %init: {t}) -> {y} {{
  %0 = "stablehlo.reduce_window"(%x, %init) <{{window_dimensions = array<i64: {", ".join(map(str, sizes))}>{others},
      padding = dense<{padding}> : tensor<{len(shape)}x2xi64>}}> ({{
  ^bb0(%l: {t}, %r: {t}):
    {BODIES[body].format(t=t)}
    stablehlo.return %v : {t}
  }}) : ({x}, {t}) -> {y}
  return %0 : {y}
}}"""


def run(text: str, x: np.ndarray, init: object) -> np.ndarray:
    return np.asarray(shlo_jit.compile(text, cache=False)(x, np.asarray(init, x.dtype)))


@pytest.mark.parametrize(
    "body, dtype, init, wanted",
    [
        ("add", "f32", 0.0, [1, 3, 6, 10]),
        ("multiply", "f32", 1.0, [1, 2, 6, 24]),
        ("maximum", "f32", -np.inf, [1, 2, 3, 4]),
        ("minimum", "f64", np.inf, [1, 1, 1, 1]),
        ("maximum", "bf16", 2.5, [2.5, 2.5, 3, 4]),
        ("add", "f32", np.nan, [np.nan] * 4),
        ("add", "f32", np.inf, [np.inf] * 4),
        # A sum of ones grows until one more changes nothing.
        ("add", "f32", 1.0, [2.0**24] * 3 + [2.0**24 + 8]),
        ("last", "f32", 7.0, [1, 2, 3, 4]),
    ],
)
def test_a_window_that_no_one_could_visit(body: str, dtype: str, init: float, wanted: list[float]) -> None:
    text = window(body, dtype, (4,), (HUGE,), [[HUGE - 1, 0]], (4,))
    x = np.array([1, 2, 3, 4]).astype(DTYPES[dtype].numpy)
    if (body, init) == ("add", 1.0):
        wanted = list(np.cumsum(np.array([2**24, 1, 2, 3, 4], np.float32), dtype=np.float32)[1:])
    np.testing.assert_array_equal(run(text, x, init).astype(np.float64), wanted)


@pytest.mark.parametrize("dtype", ["i32", "ui8", "i64"])
@pytest.mark.parametrize("body", ["add", "multiply", "xor", "turned"])
def test_integers_have_exact_sums_of_padding(body: str, dtype: str) -> None:
    """Output i has HUGE - 1 - i times the initial value, then the elements up to i, and the initial value first."""
    number = DTYPES[dtype].numpy
    modulus = 1 << DTYPES[dtype].bits
    x, init, wanted = [5, 6, 7, 9], 3, []
    for i in range(4):
        count = HUGE - 1 - i
        total = {
            "add": (count + 1) * init,
            "multiply": pow(init, count + 1, modulus),
            "xor": init if count % 2 == 0 else 0,
            "turned": init if count % 2 == 0 else 0,
        }[body]
        for v in x[: i + 1]:
            total = {"add": total + v, "multiply": total * v, "xor": total ^ v, "turned": v - total}[body]
        wanted.append(total % modulus)
    text = window(body, dtype, (4,), (HUGE,), [[HUGE - 1, 0]], (4,))
    got = run(text, np.array(x, number), init)
    assert [int(v) % modulus for v in got] == wanted


def test_dimensions_whose_product_is_beyond_all_numbers() -> None:
    text = window("add", "f32", (2, 3), (HUGE, HUGE), [[HUGE - 1, 0], [0, HUGE - 1]], (2, 3))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(text, x, 0), x.cumsum(0)[:, ::-1].cumsum(1)[:, ::-1])
    text = window("add", "ui8", (2, 3), (HUGE, HUGE - 1), [[HUGE - 1, 0], [0, HUGE - 2]], (2, 3))
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    counts = np.array([[HUGE * (HUGE - 1) - (i + 1) * (3 - j) + 1 for j in range(3)] for i in range(2)], object)
    wanted = (counts * 3 + x.cumsum(0)[:, ::-1].cumsum(1)[:, ::-1].astype(object)) % 256
    np.testing.assert_array_equal(run(text, x, 3), wanted.astype(np.uint8))


def test_holes_and_distances_that_no_one_could_visit() -> None:
    far = 1 << 60
    text = window(
        "add", "f32", (3,), (far + 1,), [[0, 0]], (far + 1,), base_dilations=str(far), window_strides=str(far)
    )
    text = text.replace(f"tensor<{far + 1}xf32>", "tensor<2xf32>")
    np.testing.assert_array_equal(run(text, np.array([1, 2, 4], np.float32), 0), [3, 6])
    text = window("add", "f32", (3,), (3,), [[far, far]], (3,), window_dilations=str(far))
    np.testing.assert_array_equal(run(text, np.array([1, 2, 4], np.float32), 0.5), [2.5, 3.5, 5.5])


@pytest.mark.parametrize("body, dtype", BITS)
def test_the_bits_of_folding_one_by_one(body: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(len(body))
    number = DTYPES[dtype].numpy
    x = rng.integers(1, 9, (3, 5, 2)).astype(number)
    sizes, padding = (1, 150, 1), [[0, 0], [140, 120], [0, 0]]
    cases = [(sizes, padding, (3, 116, 2)), ((30, 70, 1), [[29, 0], [0, 75], [0, 0]], (3, 11, 2))]
    for size, pads, out in cases:
        text = window(body, dtype, x.shape, size, pads, out)
        counted = shlo_jit.compile(text, cache=False)
        with monkeypatch.context() as patch:
            patch.setattr(tuning, "WINDOW_WIDE", 1 << 40)
            visited = shlo_jit.compile(text, cache=False)
        for init in (0, 1, 3) if body != "halved" else (1, 3):
            value = np.asarray(init, number)
            got = np.asarray(counted(x, value))
            assert got.tobytes() == np.asarray(visited(x, value)).tobytes()
            if body in ASSOCIATIVE and dtype in ("f32", "i32"):
                np.testing.assert_array_equal(got, evaluate(shlo_jit.parse(text), x, value)[0])


def test_a_selection_visits_elements_only() -> None:
    text = f"""
func.func @main(%x: tensor<4xf32>, %s: tensor<4xf32>, %init: tensor<f32>) -> tensor<4xf32> {{
  %0 = "stablehlo.select_and_scatter"(%x, %s, %init) <{{window_dimensions = array<i64: {HUGE}>,
      window_strides = array<i64: 1>, padding = dense<[[{HUGE - 1}, 0]]> : tensor<1x2xi64>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %r = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %r : tensor<i1>
  }}, {{
  ^bb1(%a: tensor<f32>, %b: tensor<f32>):
    %r = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }}) : (tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}"""
    x, s = np.array([2, 1, 5, 3], np.float32), np.array([1, 10, 100, 1000], np.float32)
    got = shlo_jit.compile(text, cache=False)(x, s, np.float32(0.5))
    np.testing.assert_array_equal(got, [11.5, 0.5, 1100.5, 0.5])
