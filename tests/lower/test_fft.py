"""fft: every kind, length and rank against numpy's, in a wider type; and the error's growth."""

from __future__ import annotations

import math
import platform
from importlib.metadata import version
from types import ModuleType

import numpy as np
import pytest

import shlo_jit
from shlo_jit.codegen.objects import compile_routine, routine_text
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.fft.fft import MANY_ROOTS, PassCode, roots
from shlo_jit.kernels.fft.plan import Transform, in_blocks, plan, radices

COMPLEX = {"f32": np.complex64, "f64": np.complex128}
REAL = {"f32": np.float32, "f64": np.float64}
EPS = {"f32": 2.0**-24, "f64": 2.0**-53}


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def run(
    kind: str, part: str, x: np.ndarray, lengths: tuple[int, ...], threads: int | None = None, target: str = "native"
) -> np.ndarray:
    out = list(x.shape)
    if kind == "RFFT":
        out[-1] = lengths[-1] // 2 + 1
    elif kind == "IRFFT":
        out[-1] = lengths[-1]
    operand = tensor(x.shape, part if kind == "RFFT" else f"complex<{part}>")
    result = tensor(tuple(out), part if kind == "IRFFT" else f"complex<{part}>")
    text = f"""func.func @main(%x: {operand}) -> {result} {{
      %0 = stablehlo.fft %x, type = {kind}, length = {list(lengths)} : ({operand}) -> {result}
      return %0 : {result}
    }}"""
    return shlo_jit.compile(text, threads=threads, target=target)(x)


def expected(kind: str, x: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    function = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind]
    wide = x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)
    return function(wide, s=lengths, axes=range(-len(lengths), 0))


def sequences(kind: str, part: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Returns random sequences. `shape` is that of the complex or real sequences; for IRFFT, of the result."""
    rng = np.random.default_rng(seed)
    if kind == "RFFT":
        return rng.standard_normal(shape).astype(REAL[part])
    last = shape[-1] // 2 + 1 if kind == "IRFFT" else shape[-1]
    size = (*shape[:-1], last)
    return (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(COMPLEX[part])


def check(kind: str, part: str, shape: tuple[int, ...], rank: int, seed: int = 0, target: str = "native") -> None:
    lengths = shape[len(shape) - rank :]
    x = sequences(kind, part, shape, seed)
    got, want = run(kind, part, x, lengths, target=target), expected(kind, x, lengths)
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
@pytest.mark.parametrize("shape", [(1, 15), (5, 30), (17, 17), (20, 62), (20, 1000), (9, 240)])
def test_numbers_of_sequences(kind: str, shape: tuple[int, ...]) -> None:
    """Few and many sequences, and no multiples of a register's lanes."""
    check(kind, "f32", shape, 1)
    check(kind, "f64", shape, 1)


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("kind", KINDS)
def test_targets(kind: str, target: str) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("for x86")
    for n in (17, 60, 64, 509):
        check(kind, "f32", (20, n), 1, target=target)


@pytest.fixture(scope="module")
def scipy_fft() -> ModuleType:
    """Returns SciPy's transforms, if it is built without fused multiply-adds."""
    if platform.machine() != "x86_64":
        pytest.skip("compilers contract products elsewhere")
    return pytest.importorskip("scipy.fft")


@pytest.mark.parametrize("part", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(17,), (32,), (44,), (97,), (105,), (15, 16, 33)])
def test_the_bits_of_the_usual_order(kind: str, part: str, lengths: tuple[int, ...], scipy_fft: ModuleType) -> None:
    """FFTPACK's order of radices, axes and sums, and plain products, which many portable FFTs have in common."""
    if len(lengths) > 1 and kind in ("FFT", "IFFT") and int(version("scipy").split(".")[1]) >= 18:
        pytest.skip("SciPy 1.18 takes the axes of complex transforms in another order")
    x = sequences(kind, part, (20, *lengths))
    function = {"FFT": scipy_fft.fftn, "IFFT": scipy_fft.ifftn, "RFFT": scipy_fft.rfftn, "IRFFT": scipy_fft.irfftn}[
        kind
    ]
    want = function(x, s=lengths, axes=range(1, len(lengths) + 1))
    np.testing.assert_array_equal(run(kind, part, x, lengths), want)


def test_lengths_share_their_code() -> None:
    """A new length reuses the machine code of others: the routines depend on the radices only."""

    def symbols(n: int) -> set[str]:
        block = in_blocks("c2c", n, 64, 16)
        return {s.symbol for s in plan(Transform("c2c", "float", n, 1, 1, False, 16, 1.0, block))}

    assert symbols(4096) >= symbols(512)
    assert symbols(3 * 5 * 7 * 9) == symbols(3 * 5 * 7 * 3)
    assert symbols(2 * 17) == symbols(2 * 19)


def test_aarch64_compiles() -> None:
    target = resolve("aarch64:generic")
    for kind, n, block in (("c2c", 2048, False), ("c2c", 34, True), ("r2c", 60, True), ("c2r", 13, True)):
        for step in plan(Transform(kind, "float", n, 1, 1, kind == "c2r", 4, 1.0, block)):
            compile_routine(step.routine, target)


@pytest.mark.parametrize("n", [1, 2, 48, 97, 101, 360, 1024, 2**5 * 113, 10007])
def test_radices(n: int) -> None:
    factors = radices(n)
    if n == 10007:
        assert factors is None
    else:
        assert factors is not None
        assert math.prod(factors) == n


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


@pytest.mark.parametrize("shape", [(64, 4096), (1, 1 << 16), (256, 100), (1000, 17)])
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


@pytest.mark.parametrize("radix", [5, 8, 11])
def test_a_pass_writes_its_butterfly_once(radix: int) -> None:
    """Rows may have any length: most of a routine's time in LLVM is its butterfly's."""
    target = resolve("x86-64-v3")

    def lines(rows: str) -> int:
        code = PassCode("float", radix, 8, "split", "split", False, rows)
        return routine_text(code.routine(), target).count("\n")

    for rows in ("partial", "several", "overlapping"):
        assert lines(rows) < 1.35 * lines("one")


def test_rows_of_passes() -> None:
    """A single pass may go from an array to itself if no register overlaps the one before."""

    def rows(n: int, columns: int) -> list[str]:
        steps = plan(Transform("c2c", "float", n, columns, columns, False, 8, 1.0))
        return [step.routine.name.removesuffix("_last").split("_")[-1] for step in steps]

    assert rows(5, 20) == ["masked"]
    assert rows(15, 20) == ["overlapping", "overlapping"]
    assert rows(15, 16) == ["several", "several"]
    assert rows(15, 8) == ["one", "several"]
    assert rows(15, 7) == ["partial", "overlapping"]


@pytest.mark.parametrize("columns", [5, 11, 13, 20, 31])
@pytest.mark.parametrize("lengths", [(5, 7), (7, 11), (15, 7), (9, 5)])
def test_odd_numbers_of_columns(lengths: tuple[int, ...], columns: int) -> None:
    """Axes that are one pass, in place, and several passes, whose registers overlap."""
    for kind in ("FFT", "IFFT"):
        check(kind, "f32", (*lengths, columns), len(lengths) + 1)


def test_many_roots_are_those_of_few() -> None:
    n = 2 * MANY_ROOTS + 2
    k = np.arange(n, dtype=np.int64) * 7
    few = np.concatenate([roots(part, n) for part in np.array_split(k, 4)])
    assert np.abs(roots(k, n) - few).max() < 8 * np.finfo(np.longdouble).eps  # angles up to 2 pi are rounded
