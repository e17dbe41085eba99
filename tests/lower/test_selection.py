"""Reductions of pairs that select an element: argmax, argmin, with the bodies that frontends write."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import shlo_jit

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "i8": np.int8, "ui16": np.uint16, "i32": np.int32, "ui64": np.uint64,
}  # fmt: skip
BODIES = {
    # jnp.argmax and argmin
    "jax": """
      %1 = stablehlo.compare {strict}, %a, %b : (tensor<E>, tensor<E>) -> tensor<i1>
      %2 = stablehlo.compare NE, %a, %a : (tensor<E>, tensor<E>) -> tensor<i1>
      %3 = stablehlo.or %1, %2 : tensor<i1>
      %4 = stablehlo.compare EQ, %a, %b : (tensor<E>, tensor<E>) -> tensor<i1>
      %5 = stablehlo.compare LT, %i, %k : (tensor<I>, tensor<I>) -> tensor<i1>
      %6 = stablehlo.and %4, %5 : tensor<i1>
      %7 = stablehlo.or %3, %6 : tensor<i1>
      %v = stablehlo.select %3, %a, %b : tensor<i1>, tensor<E>
      %w = stablehlo.select %7, %i, %k : tensor<i1>, tensor<I>""",
    # tf.argmax, torch.max
    "tied": """
      %1 = stablehlo.compare {loose}, %a, %b : (tensor<E>, tensor<E>) -> tensor<i1>
      %v = stablehlo.select %1, %a, %b : tensor<i1>, tensor<E>
      %2 = stablehlo.compare EQ, %a, %b : (tensor<E>, tensor<E>) -> tensor<i1>
      %3 = stablehlo.minimum %i, %k : tensor<I>
      %4 = stablehlo.select %1, %i, %k : tensor<i1>, tensor<I>
      %w = stablehlo.select %2, %3, %4 : tensor<i1>, tensor<I>""",
    "plain": """
      %1 = stablehlo.compare {loose}, %a, %b : (tensor<E>, tensor<E>) -> tensor<i1>
      %v = stablehlo.select %1, %a, %b : tensor<i1>, tensor<E>
      %w = stablehlo.select %1, %i, %k : tensor<i1>, tensor<I>""",
    # the last of equal elements
    "last": """
      %1 = stablehlo.compare {strict}, %a, %b : (tensor<E>, tensor<E>) -> tensor<i1>
      %v = stablehlo.select %1, %a, %b : tensor<i1>, tensor<E>
      %w = stablehlo.select %1, %i, %k : tensor<i1>, tensor<I>""",
}


def program(
    shape: tuple[int, ...], dim: int, dtype: str, body: str, *, index: str = "i32", least: bool = False,
    results: str = "w", start: str = "0", count: int | None = None,
) -> str:  # fmt: skip
    """Returns a search for the greatest element along a dimension of a tensor. `results`: v, the values, and w, the
    indices."""
    kept = [n for d, n in enumerate(shape) if d != dim]

    def tensor(extents: list[int], of: str) -> str:
        return f"tensor<{'x'.join([*map(str, extents), of])}>"

    whole, out = list(shape), {"v": tensor(kept, dtype), "w": tensor(kept, index)}
    x, i = tensor(whole, dtype), tensor(whole, index)
    strict, loose = ("LT", "LE") if least else ("GT", "GE")
    low = initial(dtype, least)
    text = BODIES[body].format(strict=strict, loose=loose).replace("<E>", f"<{dtype}>").replace("<I>", f"<{index}>")
    types = ", ".join(out[r] for r in results)
    return f"""func.func @main(%x: {x}) -> ({types}) {{
    %n = stablehlo.iota dim = {dim} : {i}
    %low = stablehlo.constant dense<{low}> : tensor<{dtype}>
    %zero = stablehlo.constant dense<{start}> : tensor<{index}>
    %r:2 = stablehlo.reduce(%x init: %low), (%n init: %zero) across dimensions = [{dim}]
      : ({x}, {i}, tensor<{dtype}>, tensor<{index}>) -> ({out["v"]}, {out["w"]})
     reducer(%a: tensor<{dtype}>, %b: tensor<{dtype}>) (%i: tensor<{index}>, %k: tensor<{index}>) {{{text}
      stablehlo.return %v, %w : tensor<{dtype}>, tensor<{index}>
    }}
    return {", ".join(f"%r#{'vw'.index(r)}" for r in results)} : {types}
  }}"""


def initial(dtype: str, least: bool) -> str:
    """Returns an initial value that every element precedes or equals."""
    kind = np.dtype(DTYPES[dtype])
    if kind.kind in "iu":
        return str(np.iinfo(kind).max if least else np.iinfo(kind).min)
    greatest = ml_dtypes.finfo(kind).max
    bits = np.asarray(greatest if least else -greatest, kind).view(f"u{kind.itemsize}")
    infinite = {"f32": 0x7F800000, "f64": 0x7FF << 52, "f16": 0x7C00, "bf16": 0x7F80}.get(dtype, int(bits) & 0x7F)
    return hex(infinite if least else infinite | 1 << (8 * kind.itemsize - 1)).upper().replace("X", "x")


def elements(shape: tuple[int, ...], dtype: str, seed: int, *, nan: bool = False) -> np.ndarray:
    """Returns elements with few different values, so that many are equal; zeros of both signs and infinities, and NaN
    if asked for."""
    random, kind = np.random.default_rng(seed), np.dtype(DTYPES[dtype])
    if kind.kind in "iu":
        return random.integers(0, 7, shape).astype(kind)
    chosen = [-2.0, -0.0, 0.0, 1.0, 1.5] + [np.inf, -np.inf] * (dtype != "f8E4M3FN" and seed % 2) + [np.nan] * nan
    return random.choice(chosen, shape).astype(kind)


def first(x: np.ndarray, dim: int, *, least: bool = False, skip_nan: bool = False) -> np.ndarray:
    """Returns the expected result; with `skip_nan`, 0 for rows of only NaN."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    if skip_nan:
        wide = np.where(np.isnan(wide), np.inf if least else -np.inf, wide)
    return (np.argmin if least else np.argmax)(wide, dim)


def shapes() -> Iterator[tuple[tuple[int, ...], int]]:
    """Yields rows shorter and longer than vectors, than iterations of vectors, and than the minimum for threads; many
    and few."""
    yield from (((5, n), 1) for n in (1, 2, 7, 16, 17, 63, 64, 65, 130))
    yield from (((70, 9), 1), ((300, 67), 1), ((67, 33), 0), ((7, 33, 5), 1), ((1000,), 0), ((400_003,), 0))


@pytest.mark.parametrize(("shape", "dim"), list(shapes()))
@pytest.mark.parametrize("body", ["jax", "tied", "plain"])
def test_the_first_of_the_greatest_or_least(shape: tuple[int, ...], dim: int, body: str) -> None:
    for seed, least in enumerate([False, True]):
        exe = shlo_jit.compile(program(shape, dim, "f32", body, least=least), threads=2)
        x = elements(shape, "f32", seed)
        np.testing.assert_array_equal(exe(x), first(x, dim, least=least))


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("index", ["i32", "i64", "ui8"])
def test_types(dtype: str, index: str) -> None:
    for shape, dim in [((9, 100), 1), ((200, 19), 0), ((128,), 0)]:
        nan = dtype not in ("i8", "ui16", "i32", "ui64")
        x = elements(shape, dtype, 1, nan=nan)
        x[..., -1] = x.reshape(-1)[0]
        got = shlo_jit.compile(program(shape, dim, dtype, "jax", index=index))(x)
        np.testing.assert_array_equal(got, first(x, dim))


def test_a_nan_is_first_or_dropped() -> None:
    """JAX's body finds the first NaN; one that only compares skips it, in any position."""
    for shape, dim in [((40, 150), 1), ((150, 40), 0), ((3, 70_001), 1), ((33, 5), 1)]:
        rare = np.random.default_rng(0).random(shape) < 0.02
        x = np.where(rare, np.float32(np.nan), elements(shape, "f32", 4))
        x[(0,) if dim else (slice(None), 0)] = np.nan
        for least in (False, True):
            by_jax = shlo_jit.compile(program(shape, dim, "f32", "jax", least=least), threads=2)
            np.testing.assert_array_equal(by_jax(x), first(x, dim, least=least))
            for body in ("tied", "plain"):
                exe = shlo_jit.compile(program(shape, dim, "f32", body, least=least), threads=2)
                np.testing.assert_array_equal(exe(x), first(x, dim, least=least, skip_nan=True))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
def test_the_value_goes_with_the_index(dtype: str) -> None:
    """The value agrees bit for bit: of 0 and -0, the first one."""
    for shape in [(20, 131), (3, 90_007)]:
        exe = shlo_jit.compile(program(shape, 1, dtype, "tied", results="vw"), threads=2)
        x = elements(shape, dtype, 2)
        x[0] = np.random.default_rng(0).choice([0.0, -0.0], shape[1])
        value, index = exe(x)
        assert lanes_along_rows(exe)
        np.testing.assert_array_equal(index, first(x, 1))
        bits = f"u{x.dtype.itemsize}"
        np.testing.assert_array_equal(value.view(bits), np.take_along_axis(x, index[:, None], 1)[:, 0].view(bits))


def lanes_along_rows(exe: shlo_jit.Executable) -> bool:
    """Whether the last loop, that over the row, has lanes."""
    lines = exe.text("schedule").splitlines()
    loops, lanes = (next(line for line in lines if line.split()[0] == word) for word in ("loops", "lanes"))
    assert " over " in loops
    return lanes.split("along ")[1].split()[0] == loops.split(" over ")[1].split("=")[0].strip()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"body": "jax"}, ""),
        ({"body": "tied"}, ""),
        ({"body": "plain", "results": "vw"}, ""),
        ({"body": "jax", "results": "vw"}, "the value is the last of 0 and -0, the index that of the first"),
        ({"body": "last"}, "the last element"),
        ({"body": "jax", "start": "1"}, "the initial index lies behind the first element"),
        ({"body": "jax", "index": "i8"}, "indices that do not fit wrap around"),
    ],
)
def test_what_is_recognised(options: dict[str, str], why: str) -> None:
    shape = (40, 200)
    exe = shlo_jit.compile(program(shape, 1, "f32", **options))
    assert lanes_along_rows(exe) == (not why)
    x = elements(shape, "f32", 6)
    got = exe(x)
    index = got[-1] if isinstance(got, tuple) else got
    if options["body"] == "last":
        np.testing.assert_array_equal(index, 199 - first(x[:, ::-1], 1))
    elif "index" not in options:
        np.testing.assert_array_equal(index, first(x, 1))


def test_rows_in_which_nothing_is_in_front_of_the_initial_value() -> None:
    for body in ("jax", "tied", "plain"):
        exe = shlo_jit.compile(program((3, 100), 1, "f32", body, start="-3"))
        x = np.full((3, 100), -np.inf, np.float32)
        x[1, 99] = 0
        np.testing.assert_array_equal(exe(x), [-3, 99, -3])


def test_of_flattened_and_moved_tensors() -> None:
    """Indices are row-major numbers of all elements, even if memory is traversed in another order."""
    text = """func.func @main(%x: tensor<37x50xf32>) -> tensor<i32> {
    %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<37x50xf32>) -> tensor<50x37xf32>
    %f = stablehlo.reshape %t : (tensor<50x37xf32>) -> tensor<1850xf32>
    %n = stablehlo.iota dim = 0 : tensor<1850xi32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.reduce(%f init: %low), (%n init: %zero) across dimensions = [0]
      : (tensor<1850xf32>, tensor<1850xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
     reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %k: tensor<i32>) {BODY
      stablehlo.return %v, %w : tensor<f32>, tensor<i32>
    }
    return %r#1 : tensor<i32>
  }""".replace("BODY", BODIES["jax"].format(strict="GT", loose="GE").replace("<E>", "<f32>").replace("<I>", "<i32>"))
    exe = shlo_jit.compile(text)
    for seed in range(10):
        x = elements((37, 50), "f32", seed, nan=seed > 6)
        assert exe(x) == np.argmax(x.T)
