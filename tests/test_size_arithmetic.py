"""Sizes that are known only at the call: their arithmetic equals that of the numbers they represent."""

from __future__ import annotations

import ctypes
import operator

import numpy as np
import pytest

from shlo_jit.codegen import jit
from shlo_jit.codegen.objects import generate
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import i64, vector_literal
from shlo_jit.sizes import (
    NotSymbolic,
    Size,
    Symbol,
    at_most,
    bound_of,
    degree_of,
    equal,
    hint_of,
    per_unit,
    register_name,
    size_of,
    surely,
    value_at,
    word_of,
)

SYMBOL = Symbol(2, 1000, 64)
VALUES = (2, 3, 5, 16, 63, 64, 999, 1000)
N = size_of(SYMBOL)
WITH_NUMBERS = (operator.add, operator.mul, operator.floordiv, operator.mod, lambda x, k: -(-x // k))


def random_sizes(generator: np.random.Generator, steps: int) -> list[tuple[int, list[int]]]:
    """Numbers computed from the symbol and from each other, and their values for each of VALUES."""
    found: list[tuple[int, list[int]]] = [(N, list(VALUES))]
    for _ in range(steps):
        (a, xs), (b, ys) = (found[int(i)] for i in generator.integers(len(found), size=2))
        k = int(generator.integers(1, 20))
        kind = int(generator.integers(len(WITH_NUMBERS) + 2))
        try:
            if kind < len(WITH_NUMBERS):
                found.append((WITH_NUMBERS[kind](a, k), [WITH_NUMBERS[kind](x, k) for x in xs]))
            else:
                binary = (operator.add, operator.sub)[kind - len(WITH_NUMBERS)]
                found.append((binary(a, b), [binary(x, y) for x, y in zip(xs, ys, strict=True)]))
        except NotSymbolic:
            continue
    return found


def test_arithmetic_is_that_of_numbers() -> None:
    generator = np.random.default_rng(1)
    sizes = 0
    for size, numbers in (pair for _ in range(500) for pair in random_sizes(generator, 6)):
        assert [value_at(size, v) for v in VALUES] == numbers
        if not isinstance(size, Size):
            continue
        sizes += 1
        assert all(size.low <= x <= size.high for x in numbers)
        for question in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            other = int(generator.choice(numbers)) + int(generator.integers(-2, 3))
            try:
                answer = question(size, other)
            except NotSymbolic:
                continue
            assert all(question(x, other) == answer for x in numbers)
    assert sizes > 2000


def test_registers_hold_the_numbers() -> None:
    generator = np.random.default_rng(2)
    pairs = [pair for _ in range(40) for pair in random_sizes(generator, 6)]
    target = resolve()
    module = ModuleText(target)
    b = module.function("f", [("ptr", "out"), ("ptr", "dims")], linkage="")
    for i, (size, _) in enumerate(pairs):
        b.store(i64(size), b.element(b.params[0], "i64", i))
    b.ret()
    library = jit.load([generate(module.text(f'target triple = "{target.triple}"'), target, 1)], ["f"])
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.addresses["f"])
    for k, value in enumerate(VALUES):
        out, dims = np.zeros(len(pairs), np.int64), np.array([value], np.int64)
        function(out.ctypes.data, dims.ctypes.data)
        assert out.tolist() == [numbers[k] for _, numbers in pairs]


def test_sums_and_products_of_sizes() -> None:
    assert N + N == 2 * N
    assert N * 4 - N * 4 == 0
    assert (N * N * 6) // (2 * N) == 3 * N
    assert (12 * N + 8) % 4 == 0
    assert (12 * N + 8) // 4 == 3 * N + 2
    assert value_at(-(-N // 24), 25) == 2
    assert hint_of(N * 2 + 1) == 129
    assert 5 - N == -(N - 5)


def test_what_depends_on_the_size_is_not_answered() -> None:
    for ask in (
        lambda: N == 64,
        lambda: N > 3,
        lambda: bool(N - 2),
        lambda: range(N),
        lambda: int(N),
    ):
        with pytest.raises(NotSymbolic):
            ask()
    assert N != 1
    assert N > 1
    assert N <= 1000
    assert surely(lambda: N >= 2)
    assert not surely(lambda: N >= 3)
    assert not equal(N, 64)
    assert equal((N, 4), (N, 4))
    assert not equal((N, 4), (N, 5))
    with pytest.raises(NotSymbolic, match="bit_length of n"):
        N.bit_length()
    with pytest.raises(NotSymbolic):
        np.zeros((N, 2))


@pytest.mark.parametrize(
    ("size", "degree"),
    [
        (N, 1), (4 * N + 60, 1), (80 * N - 80, 1), ((12 * N + 681) // 682 * 64, 1), (-(-N // 7) + N % 7, 1),
        (5 * (N // 3), 1), (N % 5, 0), (4 * N * N - 4 * N + 7, 2), ((N * N - N) // 2, 2), ((N // 2) * (N % 3), 1),
        (3 * (N * N - N) // 7, 2),
    ],
)  # fmt: skip
def test_per_unit_is_a_bound(size: int, degree: int) -> None:
    unit = per_unit(size)
    assert degree_of(size) == degree
    assert all(value_at(size, v) <= unit * v**degree for v in VALUES)


@pytest.mark.parametrize(
    "sizes", [[], [3, 7], [N, 4 * N, 64], [14 * N + 40, 8 * N + 90], [4 * N - 8, 12], [N * N, 9 * N, 4 * N + 1000]]
)
def test_room_for_is_a_bound(sizes: list[int]) -> None:
    room = bound_of(sizes)
    for v in VALUES:
        assert value_at(room, v) >= max((value_at(s, v) for s in sizes), default=0)
    if all(isinstance(s, int) for s in sizes):
        assert room == max(sizes, default=0)


def test_at_most() -> None:
    assert at_most(N, 2000) is N
    assert at_most(N, 10) == 10
    assert at_most(3, 10) == 3


def test_registers_are_named_after_what_they_hold() -> None:
    size = 4 * N + 3
    assert isinstance(size, Size)
    assert register_name(size) == '%"4*n + 3"'
    assert i64(size).text == '%"4*n + 3"'
    assert word_of(size).isalnum()
    assert word_of(4 * N - 3) != word_of(size)
    with pytest.raises(NotSymbolic):
        vector_literal("i64", [0, N])


def test_a_function_without_the_sizes_is_refused() -> None:
    b = ModuleText().function("f", [("ptr", "x")])
    b.store(i64(N + 1), b.params[0])
    with pytest.raises(NotSymbolic, match="in f"):
        b.ret()


def test_a_function_computes_the_sizes_it_uses_once() -> None:
    module = ModuleText()
    b = module.function("f", [("ptr", "x"), ("ptr", "dims")])
    for i in range(2):
        b.store(i64(3 * N + 1), b.element(b.params[0], "i64", i))
    b.ret()
    assert module.functions["f"].count("mul i64") == 1
