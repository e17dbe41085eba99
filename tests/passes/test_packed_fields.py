"""Fields of words as packed elements: which are found, in all spellings, and that results stay.

RANDOM_PROGRAMS=2000 pytest -m slow tests/passes/test_packed_fields.py
"""

from __future__ import annotations

import random
from collections.abc import Callable

import guarded
import numpy as np
import pytest
from random_runs import seeds

import shlo_jit
import shlo_jit.builder as b
from shlo_jit import tuning
from shlo_jit.builder import Value
from shlo_jit.ir.core import walk
from shlo_jit.passes import core_functions

WORDS = {"ui8": np.uint8, "i8": np.int8, "ui16": np.uint16, "ui32": np.uint32, "i32": np.int32, "ui64": np.uint64}
SHORT = {"ui8": "u8", "i8": "s8", "ui16": "u16", "ui32": "u32", "i32": "s32", "ui64": "u64", "f32": "f32"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a few bytes are large enough."""
    monkeypatch.setattr(tuning, "PACKED_FIELDS_BYTES", 0)


def views_of(module: shlo_jit.Module) -> list[str]:
    """The packed types of views after all passes."""
    entry = module.function("main")
    assert entry is not None
    ops = [op for f in core_functions(module, entry) for op in walk(f.block())]
    return [op.result.tensor.storage.name for op in ops if op.name == "stablehlo.bitcast_convert"]


def fields_of(w: np.ndarray, bits: int, is_signed: bool) -> np.ndarray:
    """The fields of each word, in a new last dimension, in the type of the words."""
    width = 8 * w.itemsize
    unsigned = w.view(f"u{w.itemsize}")
    parts = np.stack([unsigned >> unsigned.dtype.type(place) for place in range(0, width, bits)], -1)
    parts &= parts.dtype.type((1 << bits) - 1)
    if is_signed:
        top = parts.dtype.type(1 << bits - 1)
        parts = (parts ^ top) - top
    return parts.view(w.dtype)


def spread(w: Value, count: int, at: int) -> Value:
    """Words repeated along a new dimension."""
    shape = [int(n or 0) for n in w.shape]
    shape.insert(at, count)
    return b.broadcast_in_dim(w, shape, [d for d in range(len(shape)) if d != at])


def places(kind: str, shape: tuple[int, ...], at: int, numbers: list[int], is_iota: bool, bits: int) -> Value:
    """Numbers along a dimension: a constant, or multiples of a counter."""
    if is_iota:
        extents = ",".join(map(str, shape))
        counted = b.iota(f"{SHORT[kind]}[{extents}]", at)
        return b.mul(counted, bits)
    constant = b.constant(np.array(numbers, WORDS[kind]))
    return b.broadcast_in_dim(constant, shape, [at])


class Case:
    """A program whose result is all fields of words, and its result."""

    def __init__(self, seed: int):
        choose, rng = random.Random(seed), np.random.default_rng(seed)
        self.kind, self.bits = choose.choice(list(WORDS)), choose.choice((2, 4))
        dtype = np.dtype(WORDS[self.kind])
        self.width = 8 * dtype.itemsize
        count = self.count = self.width // self.bits
        rank = choose.choice((1, 2, 3))
        self.shape = (*(choose.choice((1, 2, 3, 5)) for _ in range(rank - 1)), choose.choice((4, 6, 16, 35)))
        self.is_signed = self.kind[0] == "i" and choose.random() < 0.5
        self.stacked = choose.choice((0, 0, 3))
        shape = (self.stacked, *self.shape) if self.stacked else self.shape
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        self.words = rng.integers(low, high, shape, dtype, endpoint=True)
        self.index = np.int32(choose.randrange(3))
        self.at = choose.randrange(rank + 1)
        own = self.words[self.index] if self.stacked else self.words
        fields = fields_of(own, self.bits, self.is_signed)
        order = list(range(count))
        self.is_iota = choose.random() < 0.4
        if not self.is_iota:
            how = choose.choice(("same", "reversed", "transposed", "any"))
            if how == "reversed":
                order.reverse()
            elif how == "transposed":
                inner = choose.choice([n for n in (2, 4, 8) if n <= count])
                order = np.arange(count).reshape(-1, inner).T.reshape(-1).tolist()
            elif how == "any":
                choose.shuffle(order)
        self.order = order
        self.concatenates = choose.random() < 0.4 and count <= 8 and not self.is_iota
        if self.concatenates and self.at == rank:
            self.at -= 1
        self.expected = np.moveaxis(fields[..., order], -1, self.at)
        if self.concatenates:
            merged = [*self.shape]
            merged[self.at] *= count
            self.expected = self.expected.reshape(merged)
        self.expected = self.expected.astype(np.float32)

    def program(self) -> shlo_jit.Module:
        shapes = [f"{SHORT[self.kind]}[{','.join(map(str, self.words.shape))}]", "s32[]"]
        with b.function("main", *shapes) as f:
            w, i = f
            if self.stacked:
                zero = b.constant(np.int32(0))
                w = b.dynamic_slice(w, [i, *[zero] * len(self.shape)], (1, *self.shape))
                w = b.reshape(w, self.shape)
            fields = self.concatenated(w) if self.concatenates else self.shifted(w)
            f.returns(b.convert_element_type(fields, "f32"))
        return f.module

    def field(self, w: Value, place: Callable[[list[int]], Value]) -> Value:
        """A field of words, which begins where `place` of the distances from these says."""
        if self.is_signed:
            left = [self.width - self.bits - self.bits * n for n in self.order]
            return b.shift_right_arithmetic(b.shift_left(w, place(left)), self.width - self.bits)
        shifted = b.shift_right_logical(w, place([self.bits * n for n in self.order]))
        return b.and_(shifted, (1 << self.bits) - 1)

    def shifted(self, w: Value) -> Value:
        wide = spread(w, self.count, self.at)
        shape = tuple(int(n or 0) for n in wide.shape)
        if self.is_iota and not self.is_signed:
            return self.field(wide, lambda _: places(self.kind, shape, self.at, [], True, self.bits))
        return self.field(wide, lambda numbers: places(self.kind, shape, self.at, numbers, False, self.bits))

    def concatenated(self, w: Value) -> Value:
        def place(n: int) -> Callable[[list[int]], Value]:
            dtype = WORDS[self.kind]
            return lambda numbers: b.broadcast_in_dim(b.constant(np.array(numbers[n], dtype)), self.shape, ())

        return b.concatenate([self.field(w, place(n)) for n in range(self.count)], self.at)


def is_known(order: list[int]) -> bool:
    """Whether fields in this order are those in their own order, reversed or transposed."""
    numbers = np.arange(len(order))
    transposed = [numbers.reshape(-1, n).T.reshape(-1) for n in (2, 4, 8) if n < len(order)]
    return any(np.array_equal(order, known) for known in (numbers, numbers[::-1], *transposed))


def check(seed: int) -> None:
    """Results are exact, and the fields are read as packed elements if their order is known."""
    case = Case(seed)
    module = case.program()
    got = np.asarray(guarded.compile(str(module))(case.words, case.index))
    np.testing.assert_array_equal(got, case.expected)
    packed = [f"{'i' if case.is_signed else 'ui'}{case.bits}"]
    is_reversed = case.concatenates and case.order == sorted(case.order, reverse=True)
    assert views_of(module) == (packed if is_known(case.order) and not is_reversed else [])


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_results_stay(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.slow
def test_results_of_many_programs_stay() -> None:
    for seed in seeds(500):
        check(seed)


def test_orders_that_no_transpose_gives_are_shifted() -> None:
    with b.function("main", "u8[6]") as f:
        (w,) = f
        wide = spread(w, 4, 1)
        by = b.broadcast_in_dim(b.constant(np.array([0, 6, 2, 4], np.uint8)), (6, 4), [1])
        f.returns(b.and_(b.shift_right_logical(wide, by), 3))
    assert views_of(f.module) == []


def test_words_that_are_computed_are_shifted() -> None:
    with b.function("main", "u8[6]") as f:
        (w,) = f
        wide = spread(b.add(w, w), 2, 1)
        by = b.broadcast_in_dim(b.constant(np.array([0, 4], np.uint8)), (6, 2), [1])
        f.returns(b.and_(b.shift_right_logical(wide, by), 15))
    assert views_of(f.module) == []
