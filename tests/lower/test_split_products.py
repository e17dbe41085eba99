"""Products of operands that are summed over a middle dimension, and results in another order of dimensions: NumPy's
results, and the same bits on any number of threads."""

from __future__ import annotations

import random

import guarded
import numpy as np
import pytest

NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32}


def t(dtype: str, extents: tuple[int, ...]) -> str:
    return "tensor<" + "".join(f"{n}x" for n in extents) + f"{dtype}>"


def case(seed: int) -> tuple[str, list[np.ndarray], np.ndarray]:
    """Returns a product over one dimension of each operand, wherever it is; then perhaps a bias; then a transpose."""
    rng, random_ = np.random.default_rng(seed), random.Random(seed)
    dtype = random_.choice(["f32", "f32", "f64", "i32"])
    k = random_.choice([1, 5, 32, 70])

    def operand(count: int) -> tuple[list[int], int]:
        extents = [random_.choice([1, 2, 3, 8, 17, 40]) for _ in range(count)]
        at = random_.randrange(count + 1)
        return [*extents[:at], k, *extents[at:]], at

    (a, at_a), (b, at_b) = operand(random_.randint(1, 3)), operand(random_.randint(1, 2))
    result = (*(n for i, n in enumerate(a) if i != at_a), *(n for i, n in enumerate(b) if i != at_b))
    order = random_.sample(range(len(result)), len(result))
    arrays = [(rng.standard_normal(x) * 8).astype(NUMPY[dtype]) for x in (tuple(a), tuple(b), result[-1:])]
    expected = np.tensordot(arrays[0].astype(np.float64), arrays[1].astype(np.float64), ([at_a], [at_b]))
    types = [t(dtype, x.shape) for x in arrays]
    lines = [
        f"%0 = stablehlo.dot_general %a, %b, contracting_dims = [{at_a}] x [{at_b}] "
        f": ({types[0]}, {types[1]}) -> {t(dtype, result)}"
    ]
    if random_.random() < 0.5:
        lines += [
            f"%c1 = stablehlo.broadcast_in_dim %c, dims = [{len(result) - 1}] : ({types[2]}) -> {t(dtype, result)}",
            f"%1 = stablehlo.add %0, %c1 : {t(dtype, result)}",
        ]
        expected = expected + arrays[2]
    last = "%1" if len(lines) > 1 else "%0"
    moved = t(dtype, tuple(result[d] for d in order))
    lines.append(f"%y = stablehlo.transpose {last}, dims = {order} : ({t(dtype, result)}) -> {moved}")
    signature = f"func.func @main(%a: {types[0]}, %b: {types[1]}, %c: {types[2]}) -> {moved}"
    text = signature + " {\n  " + "\n  ".join(lines) + f"\n  return %y : {moved}\n}}\n"
    return text, arrays, expected.transpose(order)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(4)
def test_as_numpy_and_the_same_on_any_number_of_threads(seed: int) -> None:
    text, arrays, expected = case(seed)
    one, three = (guarded.compile(text, cache=False, threads=n) for n in (1, 3))
    found = one(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(found, three(*arrays))


def test_heads_of_a_projection() -> None:
    """The columns are two loops, which tasks cut anywhere."""
    x, w, bias = (
        np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((70, 300), (300, 600), (600,))
    )
    text = """func.func @main(%x: tensor<70x300xf32>, %w: tensor<300x600xf32>, %b: tensor<600xf32>) -> tensor<2x12x35x50xf32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<70x300xf32>, tensor<300x600xf32>) -> tensor<70x600xf32>
      %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<600xf32>) -> tensor<70x600xf32>
      %2 = stablehlo.add %0, %1 : tensor<70x600xf32>
      %3 = stablehlo.reshape %2 : (tensor<70x600xf32>) -> tensor<2x35x12x50xf32>
      %4 = stablehlo.transpose %3, dims = [0, 2, 1, 3] : (tensor<2x35x12x50xf32>) -> tensor<2x12x35x50xf32>
      return %4 : tensor<2x12x35x50xf32>
    }"""
    expected = (x @ w + bias).reshape(2, 35, 12, 50).transpose(0, 2, 1, 3)
    for features in ("native", "x86-64-v3", "x86-64-v2"):
        exe = guarded.compile(text, cache=False, target=features)
        np.testing.assert_allclose(exe(x, w, bias), expected, rtol=1e-4, atol=1e-3)
