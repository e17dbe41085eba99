"""fft: every kind, length and rank against numpy's, in a wider type; and the error's growth."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_jit

COMPLEX = {"f32": np.complex64, "f64": np.complex128}
REAL = {"f32": np.float32, "f64": np.float64}
EPS = {"f32": 2.0**-24, "f64": 2.0**-53}


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def run(kind: str, part: str, x: np.ndarray, lengths: tuple[int, ...], threads: int | None = None) -> np.ndarray:
    out = list(x.shape)
    if kind == "RFFT":
        out[-1] = lengths[-1] // 2 + 1
    elif kind == "IRFFT":
        out[-1] = lengths[-1]
    source = tensor(x.shape, part if kind == "RFFT" else f"complex<{part}>")
    target = tensor(tuple(out), part if kind == "IRFFT" else f"complex<{part}>")
    text = f"""func.func @main(%x: {source}) -> {target} {{
      %0 = stablehlo.fft %x, type = {kind}, length = {list(lengths)} : ({source}) -> {target}
      return %0 : {target}
    }}"""
    return shlo_jit.compile(text, threads=threads)(x)


def expected(kind: str, x: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    function = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind]
    wide = x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)
    return function(wide, s=lengths, axes=range(-len(lengths), 0))


def check(kind: str, part: str, shape: tuple[int, ...], rank: int, seed: int = 0) -> None:
    """`shape` is that of the complex or real sequences; for IRFFT, of the result."""
    rng = np.random.default_rng(seed)
    lengths = shape[len(shape) - rank :]
    if kind == "RFFT":
        x = rng.standard_normal(shape).astype(REAL[part])
    else:
        last = shape[-1] // 2 + 1 if kind == "IRFFT" else shape[-1]
        size = (*shape[:-1], last)
        x = (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(COMPLEX[part])
    got, want = run(kind, part, x, lengths), expected(kind, x, lengths)
    assert got.shape == want.shape
    assert got.dtype == (REAL[part] if kind == "IRFFT" else COMPLEX[part])
    error = np.sqrt(np.mean(np.abs(got - want) ** 2) / np.mean(np.abs(want) ** 2))
    assert error < 2 * EPS[part] * (1 + np.log2(np.prod(lengths)))


KINDS = ["FFT", "IFFT", "RFFT", "IRFFT"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 23, 32, 64, 96, 97, 100, 128, 360, 512, 1001])
def test_lengths(kind: str, n: int) -> None:
    check(kind, "f32", (3, n), 1, n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [6, 46, 256, 1000, 4096, 4099])
def test_double(kind: str, n: int) -> None:
    check(kind, "f64", (2, n), 1, n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape,rank", [((4, 6), 2), ((2, 5, 8, 16), 2), ((3, 4, 23, 10), 3), ((64, 48), 2), ((7, 9, 5), 3)]
)
def test_ranks(kind: str, shape: tuple[int, ...], rank: int) -> None:
    check(kind, "f32", shape, rank)
    check(kind, "f64", shape, rank)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape,rank", [((1 << 17,), 1), ((300, 500), 2), ((3, 50021), 1), ((1, 65537), 1), ((512, 512), 2)]
)
def test_large(kind: str, shape: tuple[int, ...], rank: int) -> None:
    check(kind, "f32", shape, rank)


@pytest.mark.parametrize("shape", [(64, 4096), (1, 1 << 16), (256, 100)])
def test_same_bits_for_any_number_of_threads(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    one, two, five = (run("FFT", "f32", x, shape[-1:], threads) for threads in (1, 2, 5))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, five)


def test_no_batch_at_all() -> None:
    assert run("FFT", "f32", np.zeros((0, 8), np.complex64), (8,)).shape == (0, 8)


def test_imaginary_parts_of_the_ends_do_not_count() -> None:
    x = np.array([1 + 5j, 2 - 1j, 3 + 7j], np.complex64)
    np.testing.assert_allclose(run("IRFFT", "f32", x, (4,)), np.fft.irfft(x), rtol=1e-6)
    np.testing.assert_allclose(run("IRFFT", "f32", x, (5,)), np.fft.irfft(x, 5), rtol=1e-6)
