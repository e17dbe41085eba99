"""Products of repeated matrices: which matrices are read only once, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import walk

REPEATED = {
    # the matrix, the dims of its broadcast, that broadcast, its shape, rows, dimensions of the product, its shape
    "inside": ("2x15x40", "[0, 2, 3]", "2x3x15x40", "6x15x40", "6x7x40", "[0] x [0]", "[2] x [2]", "6x7x15"),
    "one on the way": ("2x1x15x40", "[0, 1, 2, 3]", "2x3x15x40", "6x15x40", "6x7x40", "[0] x [0]", "[2] x [2]", "6x7x15"),
    "batch before": ("2x3x15x40", "[0, 1, 3, 4]", "2x3x2x15x40", "2x6x15x40", "2x6x7x40", "[0, 1] x [0, 1]", "[3] x [3]",
                     "2x6x7x15"),
    "heads behind rows": ("2x15x3x40", "[0, 1, 2, 4]", "2x15x3x2x40", "2x15x6x40", "2x7x6x40", "[0, 2] x [0, 2]", "[3] x [3]",
                          "2x6x7x15"),
    "one row": ("2x50x40", "[0, 2, 3]", "2x4x50x40", "8x50x40", "8x1x40", "[0] x [0]", "[2] x [2]", "8x1x50"),
}  # fmt: skip
NOT_REPEATED = {
    "matrix after matrix": (
        "2x15x40",
        "[1, 2, 3]",
        "3x2x15x40",
        "6x15x40",
        "6x7x40",
        "[0] x [0]",
        "[2] x [2]",
        "6x7x15",
    ),
    "columns": ("6x15x40", "[0, 1, 3]", "6x15x2x40", "6x30x40", "6x7x40", "[0] x [0]", "[2] x [2]", "6x7x30"),
}


def t(shape: str) -> str:
    return f"tensor<{shape}xf32>"


def program(
    matrix: str, dims: str, spread: str, whole: str, rows: str, batch: str, sums: str, result: str, left: bool
) -> str:
    """Whether the matrix is the left operand."""
    sides = [("%r", t(rows), 0), ("%m", t(whole), 1)]
    batches, contracting = ([x.split(" x ")[i] for i in (0, 1)] for x in (batch, sums))
    out = [int(n) for n in result.split("x")]
    if left:
        sides, batches, contracting = sides[::-1], batches[::-1], contracting[::-1]
        out[-2:] = out[:-3:-1]
    product = t("x".join(map(str, out)))
    numbers = f"batching_dims = {' x '.join(batches)}, contracting_dims = {' x '.join(contracting)}"
    return f"""func.func @main(%x: {t(matrix)}, %r: {t(rows)}) -> {product} {{
      %b = stablehlo.broadcast_in_dim %x, dims = {dims} : ({t(matrix)}) -> {t(spread)}
      %m = stablehlo.reshape %b : ({t(spread)}) -> {t(whole)}
      %y = stablehlo.dot_general {sides[0][0]}, {sides[1][0]}, {numbers} : ({sides[0][1]}, {sides[1][1]}) -> {product}
      return %y : {product}
    }}"""


def values(shape: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, [int(n) for n in shape.split("x")]).astype(np.float32)


def expected(case: tuple[str, ...], x: np.ndarray, r: np.ndarray) -> np.ndarray:
    _, dims, spread, whole, _, batch, *_ = case
    shape = [int(n) for n in spread.split("x")]
    kept = [int(d) for d in dims.strip("[]").split(",")]
    x = x.reshape([dict(zip(kept, x.shape, strict=True)).get(d, 1) for d in range(len(shape))])
    m = np.broadcast_to(x, shape).reshape([int(n) for n in whole.split("x")])
    return np.einsum("bqhd,bkhd->bhqk", r, m) if batch == "[0, 2] x [0, 2]" else r @ m.swapaxes(-1, -2)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", [*REPEATED, *NOT_REPEATED])
def test_read_once(name: str, left: bool) -> None:
    """Sums of whole numbers are the same in any order."""
    case = (REPEATED | NOT_REPEATED)[name]
    text = program(*case, left)
    ops = {op.name.partition(".")[2] for op in walk(canonical(text).block())}
    assert ("broadcast_in_dim" in ops) is (name in NOT_REPEATED)
    x, r = values(case[0], 0), values(case[4], 1)
    found = np.asarray(shlo_jit.compile(text, cache=False)(x, r))
    wanted = expected(case, x, r)
    np.testing.assert_array_equal(found, wanted.swapaxes(-1, -2) if left else wanted)
