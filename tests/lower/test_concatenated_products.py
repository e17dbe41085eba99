"""Loops that write a part of a concatenation run on the tiles of the products they finish."""

from __future__ import annotations

import guarded
import numpy as np
import pytest

import shlo_jit


def shape(*extents: int) -> str:
    return "tensor<" + "".join(f"{n}x" for n in extents) + "f32>"


def program(m: int, k: int, widths: tuple[int, ...], axis: int, kept: int) -> str:
    """Returns the products of %a with %b0, %b1, ..., or of %a0, %a1, ... with %b, each clamped to 0, side by side; also
    twice the product `kept`."""
    rows, columns = ((m,) * len(widths), widths) if axis else (widths, (m,) * len(widths))
    lines, parts = [], []
    for i, (r, c) in enumerate(zip(rows, columns, strict=True)):
        t = shape(r, c)
        lines += [
            f"%p{i} = stablehlo.dot_general %a{i}, %b{i}, contracting_dims = [1] x [0] "
            f": ({shape(r, k)}, {shape(k, c)}) -> {t}",
            f"%z{i} = stablehlo.constant dense<0.0> : {t}",
            f"%r{i} = stablehlo.maximum %p{i}, %z{i} : {t}",
        ]
        parts.append((f"%r{i}", t))
    whole = shape(m, sum(widths)) if axis else shape(sum(widths), m)
    names, types = (", ".join(x) for x in zip(*parts, strict=True))
    of_kept = parts[kept][1]
    arguments = [
        f"%a{i}: {shape(r, k)}, %b{i}: {shape(k, c)}" for i, (r, c) in enumerate(zip(rows, columns, strict=True))
    ]
    return f"""func.func @main({", ".join(arguments)}) -> ({whole}, {of_kept}) {{
      {chr(10).join(lines)}
      %y = stablehlo.concatenate {names}, dim = {axis} : ({types}) -> {whole}
      %s = stablehlo.add %r{kept}, %r{kept} : {of_kept}
      return %y, %s : {whole}, {of_kept}
    }}"""


def operands(m: int, k: int, widths: tuple[int, ...], axis: int) -> list[np.ndarray]:
    random = np.random.default_rng(m)
    out = []
    for n in widths:
        out += [random.standard_normal((m if axis else n, k), np.float32)]
        out += [random.standard_normal((k, n if axis else m), np.float32)]
    return out


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("m", "k", "widths"), [(70, 40, (32, 48)), (200, 300, (33, 64, 7)), (50, 64, (100, 100))])
def test_products_side_by_side(m: int, k: int, widths: tuple[int, ...], axis: int) -> None:
    text, given = program(m, k, widths, axis, kept=1), operands(m, k, widths, axis)
    parts = [np.maximum(a.astype(np.float64) @ b, 0) for a, b in zip(given[::2], given[1::2], strict=True)]
    exe = guarded.compile(text)
    whole, kept = exe(*given)
    np.testing.assert_allclose(whole, np.concatenate(parts, axis), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(kept, 2 * parts[1], rtol=1e-4, atol=1e-4)
    for threads in (2, 3):
        found = shlo_jit.compile(text, threads=threads)(*given)
        for one, other in zip(found, (whole, kept), strict=True):
            np.testing.assert_array_equal(one, other)


def convolutions(side: int, given: int, made: int) -> str:
    """Returns a convolution, batch normalization and relu concatenated with its input, and their greatest over
    pixels."""
    x, k, y, w = shape(1, side, side, given), shape(3, 3, given, made), shape(1, side, side, made), shape(made)
    whole = shape(1, side, side, given + made)
    return f"""func.func @main(%x: {x}, %k: {k}, %b: {w}) -> {whole} {{
      %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : ({x}, {k}) -> {y}
      %1 = stablehlo.broadcast_in_dim %b, dims = [3] : ({w}) -> {y}
      %2 = stablehlo.add %0, %1 : {y}
      %z = stablehlo.constant dense<0.0> : {y}
      %3 = stablehlo.maximum %2, %z : {y}
      %4 = stablehlo.concatenate %x, %3, dim = 3 : ({x}, {y}) -> {whole}
      return %4 : {whole}
    }}"""


def test_only_the_input_is_copied() -> None:
    plan = shlo_jit.compile(convolutions(14, 16, 32)).text("plan")
    assert plan.startswith("2 steps: 1 convolution, 1 loop"), plan
    assert "convolution and on its tiles broadcast_in_dim add maximum" in plan, plan


@pytest.mark.parametrize(("side", "given", "made"), [(14, 16, 32), (17, 5, 20), (9, 24, 24)])
def test_a_convolution_beside_its_input(side: int, given: int, made: int) -> None:
    text = convolutions(side, given, made)
    random = np.random.default_rng(side)
    x = random.standard_normal((1, side, side, given), np.float32)
    k, b = random.standard_normal((3, 3, given, made), np.float32), random.standard_normal(made, np.float32)
    wide = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [wide[:, i : i + side, j : j + side] @ k[i, j] for i in range(3) for j in range(3)]
    wanted = np.concatenate([x, np.maximum(sum(taps) + b, 0)], 3)
    for threads in (1, 3):
        np.testing.assert_allclose(guarded.compile(text, threads=threads)(x, k, b), wanted, rtol=1e-4, atol=1e-4)
