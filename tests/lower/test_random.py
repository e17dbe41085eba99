"""rng_bit_generator: XLA's bits, as the reference interpreter has them too. rng: intervals, moments, repetition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shlo_jit
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

STATEFUL = True


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def bits_text(algorithm: str, size: int, shape: tuple[int, ...], dtype: str, word: str = "ui64") -> str:
    state, out = tensor((size,), word), tensor(shape, dtype)
    return f"""func.func @main(%s: {state}) -> ({state}, {out}) {{
      %0, %1 = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : ({state}) -> ({state}, {out})
      return %0, %1 : {state}, {out}
    }}"""


SHAPES = [(), (1,), (7,), (8,), (3, 5), (4, 6), (5, 4), (3, 3, 2), (1001,), (0,), (2, 0)]
STATE = np.array([0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFD, 5], np.uint64)


@pytest.mark.parametrize("dtype", ["ui8", "i16", "ui32", "i32", "ui64", "i64"])
@pytest.mark.parametrize("algorithm,size", [("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2)])
@pytest.mark.sampled(8)
def test_bits(algorithm: str, size: int, dtype: str) -> None:
    for shape in SHAPES:
        text = bits_text(algorithm, size, shape, dtype)
        state = STATE[:size]
        got = shlo_jit.compile(text)(state)
        want = evaluate(shlo_jit.parse(text), state)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)


WORDS = ["i64", "f64", "ui32", "i32", "f32", "ui16", "bf16", "i8", "f8E4M3FN", "i4", "i1"]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("algorithm", ["DEFAULT", "THREE_FRY", "PHILOX"])
@pytest.mark.sampled(4)
def test_states_of_other_elements_are_the_same_bits_or_are_refused(algorithm: str, word: str) -> None:
    """Whatever the verifier accepts is compiled; a state has the bits of two words of 64, or of three."""
    dtype = DTYPES[word]
    taken = []
    for size in range(1, 33):
        text = bits_text(algorithm, size, (3, 5), "ui16", word)
        found = shlo_jit.verify(text)
        if found:
            assert [(d.op, d.label) for d in found] == [("stablehlo.rng_bit_generator", found[0].label)]
            continue
        taken.append(size)
        state = np.arange(size * dtype.itemsize, dtype=np.uint8).view(dtype.numpy)
        got = shlo_jit.compile(text, cache=False)(state)
        for g, w in zip(got, evaluate(shlo_jit.parse(text), state), strict=True):
            assert g.tobytes() == w.tobytes()
        counters = state.view(np.uint64)
        whole = evaluate(shlo_jit.parse(bits_text(algorithm, len(counters), (3, 5), "ui16")), counters)
        assert [g.tobytes() for g in got] == [w.tobytes() for w in whole]
    words = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}[algorithm]
    is_taken = dtype.bits == 64 or (algorithm == "DEFAULT" and dtype.bits >= 8)
    assert taken == ([n * 64 // dtype.bits for n in words if n * 64 // dtype.bits < 33] if is_taken else [])


@pytest.mark.xla
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("algorithm", ["RNG_THREE_FRY", "RNG_PHILOX", "RNG_DEFAULT"])
@pytest.mark.sampled(8)
def test_bits_are_those_of_xla(algorithm: str, dtype: str) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        key = np.array([1, 2, 0xFFFFFFFF, 0xFFFFFFFF], np.uint32)

        def function(key):
            kind = getattr(jax.lax.RandomAlgorithm, algorithm)
            return [jax.lax.rng_bit_generator(key, shape, dtype, algorithm=kind) for shape in SHAPES]

        got = shlo_jit.compile(jax.jit(function).lower(key).as_text())(key)
        want = jax.tree_util.tree_leaves(jax.jit(function)(key))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)


def draw(distribution: str, shape: tuple[int, ...], dtype: str):
    number, out = tensor((), dtype), tensor(shape, dtype)
    dims = f"dense<{list(shape)}>" if shape else "dense<>"
    text = f"""func.func @main(%a: {number}, %b: {number}) -> {out} {{
      %shape = stablehlo.constant {dims} : tensor<{len(shape)}xi64>
      %0 = stablehlo.rng %a, %b, %shape, distribution = {distribution}
        : ({number}, {number}, tensor<{len(shape)}xi64>) -> {out}
      return %0 : {out}
    }}"""
    function = shlo_jit.compile(text, cache=False)
    kind = DTYPES[dtype].numpy
    return lambda a, b: function(np.asarray(a, kind), np.asarray(b, kind))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_uniform_floats(dtype: str) -> None:
    x = draw("UNIFORM", (200, 500), dtype)(-3, 5)
    assert x.dtype == DTYPES[dtype].numpy
    wide = x.astype(np.float64)
    assert wide.min() >= -3 and wide.max() < 5
    assert abs(wide.mean() - 1) < 0.05
    assert abs(wide.var() - 64 / 12) < 0.1
    counts, _ = np.histogram(wide, 8, (-3, 5))
    assert np.all(np.abs(counts / 12500 - 1) < 0.1)


@pytest.mark.parametrize("dtype", ["i8", "ui8", "i32", "ui32", "i64", "ui64"])
def test_uniform_integers(dtype: str) -> None:
    low = 3 if dtype[0] == "u" else -3
    function = draw("UNIFORM", (40000,), dtype)
    x = function(low, low + 7).astype(np.int64)
    counts = np.bincount(x - low)
    assert len(counts) == 7
    assert np.all(np.abs(counts / (40000 / 7) - 1) < 0.1)
    limits = np.iinfo(DTYPES[dtype].numpy)
    x = function(limits.min, limits.max)
    assert x.min() < limits.max * 0.01 + limits.min * 0.99 + 1 and x.max() > limits.max * 0.97 + limits.min * 0.03
    np.testing.assert_array_equal(function(5, 5), 5)


def test_bools() -> None:
    x = draw("UNIFORM", (10000,), "i1")(False, True)
    assert x.dtype == np.bool_ and 0.45 < x.mean() < 0.55


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_normal(dtype: str) -> None:
    x = draw("NORMAL", (100001,), dtype)(2, 3).astype(np.float64)
    z = (x - 2) / 3
    assert np.isfinite(z).all()
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02
    assert abs((z**4).mean() - 3) < 0.15
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.02


def test_every_draw_is_new_and_every_program_starts_alike() -> None:
    first, second = draw("UNIFORM", (50,), "f32"), draw("UNIFORM", (50,), "f32")
    a, b = first(0, 1), first(0, 1)
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(second(0, 1), a)
    np.testing.assert_array_equal(second(0, 1), b)


def test_no_two_calls_in_threads_draw_the_same() -> None:
    """Words of 64 bits in the widest interval are nearly all the generator's bits: those of each call's key."""
    function, one_by_one = draw("UNIFORM", (4,), "ui64"), draw("UNIFORM", (4,), "ui64")
    top = 2**64 - 1
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda _: tuple(function(0, top)), range(400)))
    assert sorted(together) == sorted(tuple(one_by_one(0, top)) for _ in range(400))
    assert len(set(together)) == 400


def test_empty() -> None:
    assert draw("NORMAL", (3, 0), "f32")(0, 1).shape == (3, 0)
