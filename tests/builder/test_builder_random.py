"""Random programs of the builder: printing and parsing are inverse, and compiled results equal the interpreter's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shlo_jit
import shlo_jit.builder as b
from shlo_jit.ir.core import walk
from shlo_jit.reference.interpreter import evaluate


class Writer:
    """Adds random operations to the open function.

    All values stay small: floats are multiples of 1/8 unless they are results of elementary functions.
    """

    def __init__(self, seed: int, values: list[Any]) -> None:
        self.rng = np.random.default_rng(seed)
        self.values = values

    def pick(self, kinds: str = "fi", rank: int = 0) -> Any:
        found = [v for v in self.values if v.element_type.kind in kinds and v.ndim >= rank]
        return found[self.rng.integers(len(found))] if found else None

    def axis(self, v: Any) -> int:
        return int(self.rng.integers(v.ndim))

    def step(self) -> None:
        choices: list[Callable[[], Any]] = [
            self.unary, self.binary, self.compare, self.convert, self.index, self.transpose, self.reshape, self.broadcast,
            self.reduce, self.variadic, self.window, self.dot, self.loop, self.branch, self.sort, self.gather, self.scatter,
            self.pad, self.concatenate, self.update, self.call, self.select, self.map, self.scan,
        ]  # fmt: skip
        found = choices[self.rng.integers(len(choices))]()
        for v in found if isinstance(found, tuple) else (found,):
            if v is not None and v.size <= 400:
                self.values.append(v)

    def unary(self) -> Any:
        v = self.pick("f")
        f = [b.tanh, b.floor, b.abs, b.neg, b.logistic, b.sign, b.cos, b.round_nearest_even][self.rng.integers(8)]
        return f(v)

    def binary(self) -> Any:
        v = self.pick()
        f = [b.add, b.sub, b.max, b.min, b.atan2 if v.element_type.kind == "f" else b.xor][self.rng.integers(5)]
        same = [w for w in self.values if w.type == v.type]
        if self.rng.integers(3) == 0:
            return f(v, self.number(v))
        if v.ndim and self.rng.integers(3) == 0:
            d = self.axis(v)
            return f(v, v.max([e for e in range(v.ndim) if e != d]), broadcast_dimensions=(d,))
        if v.ndim and self.rng.integers(3) == 0:
            return f(v, v.min(self.axis(v), keepdims=True))
        return f(v, same[self.rng.integers(len(same))])

    def number(self, v: Any) -> float | int:
        n = int(self.rng.integers(-3, 4))
        return n / 8 if v.element_type.kind == "f" else n

    def compare(self) -> Any:
        v = self.pick()
        return [b.eq, b.lt, b.ge, b.gt_total_order][self.rng.integers(4)](v, self.number(v))

    def convert(self) -> Any:
        v = self.pick("fib")
        return b.clamp(-9, v.astype("s32"), 9) if v.element_type.kind != "i" else v.astype("f32") / 8.0

    def index(self) -> Any:
        v = self.pick("fib", 1)
        entries: list[Any] = []
        for n in v.shape:
            i = int(self.rng.integers(n)) if n else 0
            entries.append(
                [slice(None), slice(i, None), slice(None, None, -1), slice(None, None, 2)][self.rng.integers(4)]
            )
        return v[tuple(entries)]

    def transpose(self) -> Any:
        v = self.pick("fib", 1)
        return v.transpose(*(int(d) for d in self.rng.permutation(v.ndim)))

    def reshape(self) -> Any:
        v = self.pick("fib", 2)
        return b.collapse(v, (0, 1))

    def broadcast(self) -> Any:
        v = self.pick("fib")
        return b.broadcast(v, (int(self.rng.integers(1, 4)),)) if v.ndim < 4 else None

    def reduce(self) -> Any:
        v = self.pick("fi", 1)
        f = [b.max, b.min, lambda x, y: b.max(x, y + y)][self.rng.integers(3)]
        return b.reduce(v, self.number(v), f, (self.axis(v),))

    def variadic(self) -> Any:
        v = self.pick("f", 1)
        d = self.axis(v)
        places = b.iota(f"s32[{','.join(map(str, v.shape))}]", d)

        def least(x: Any, i: Any, y: Any, j: Any) -> Any:
            first = (x < y) | ((x == y) & (i < j))
            return b.select(first, x, y), b.select(first, i, j)

        return b.reduce([v, places], [np.inf, 2**30], least, (d,))

    def window(self) -> Any:
        v = self.pick("fi", 1)
        sizes = [int(self.rng.integers(1, 3)) for _ in range(v.ndim)]
        start = -np.inf if v.element_type.kind == "f" else -(2**31)
        found = b.reduce_window(v, start, b.max, sizes, padding="SAME")
        return b.max(found, self.number(v))

    def dot(self) -> Any:
        v = self.pick("i", 1)
        if v is None:
            return None
        small = b.clamp(-9, v, 9)
        d = self.axis(small)
        return b.clamp(-999, b.dot_general(small, small, b.DotDimensionNumbers((d,), (d,))), 999)

    def loop(self) -> Any:
        v, n = self.pick(), int(self.rng.integers(0, 4))
        change = self.number(v)
        state = b.while_(
            lambda s: s["i"] < n, lambda s: {"i": s["i"] + 1, "v": b.max(s["v"] + change, -50)},
            {"i": b.constant(0, "s32"), "v": v},
        ) if v.element_type.kind == "i" else b.while_(lambda s: s[0] < n, lambda s: (s[0] + 1, b.tanh(s[1])), (b.constant(0, "s32"), v))  # fmt: skip
        return state["v"] if isinstance(state, dict) else state[1]

    def branch(self) -> Any:
        v = self.pick()
        test = b.reduce_max(v, range(v.ndim)) > self.number(v)
        return b.conditional(test, v, lambda x: x + x, v, lambda x: -x)

    def sort(self) -> Any:
        v, w = self.pick("fi", 1), None
        same = [x for x in self.values if x.shape == v.shape and x.ndim]
        w = same[self.rng.integers(len(same))]
        d = self.axis(v)
        return b.sort([v, w], lambda x, y, *_: x < y, d, is_stable=True)

    def gather(self) -> Any:
        v = self.pick("fi", 1)
        at = np.asarray(self.rng.integers(0, max(v.shape[0], 1), (3, 1)), np.int32)
        numbers = b.GatherDimensionNumbers(tuple(range(1, v.ndim)), (0,), (0,), 1)
        return b.gather(v, at, numbers, (1, *v.shape[1:])) if v.shape[0] else None

    def scatter(self) -> Any:
        v = self.pick("i", 1)
        if v is None:
            return None
        at = np.asarray(self.rng.integers(-1, v.shape[0] + 1, (3, 1)), np.int32)
        numbers = b.ScatterDimensionNumbers(tuple(range(1, v.ndim)), (0,), (0,), 1)
        return b.scatter(v, at, np.ones((3, *v.shape[1:]), np.int32), b.max, numbers)

    def pad(self) -> Any:
        v = self.pick("fi", 1)
        config = [tuple(int(n) for n in self.rng.integers(0, 2, 3)) for _ in range(v.ndim)]
        return b.pad(v, self.number(v), config)

    def concatenate(self) -> Any:
        v = self.pick("fib", 1)
        return b.concatenate([v, v], self.axis(v))

    def update(self) -> Any:
        v = self.pick("fi", 1)
        first = v[:1]
        index = self.pick("i")
        start = b.reduce_max(index, range(index.ndim)) if index is not None else 0
        return b.dynamic_update_slice(v, first, [start, *[b.constant(0, "s32")] * (v.ndim - 1)])

    def call(self) -> Any:
        v = self.pick()
        return b.call(lambda x: {"x": x + x}, v)["x"]

    def select(self) -> Any:
        v = self.pick()
        return b.select(v > self.number(v), v, self.number(v))

    def map(self) -> Any:
        v = self.pick()
        return b.map(v, lambda x: b.min(x, x + x))

    def scan(self) -> Any:
        v = self.pick("f", 1)
        return b.top_k(v, 1, largest=bool(self.rng.integers(2))) if v.shape[-1] else None


def built(seed: int, size: int) -> tuple[Any, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    arrays = [
        (rng.integers(-16, 17, (2, 3)) / 8).astype(np.float32), rng.integers(-4, 5, (3,)).astype(np.int32),
        (rng.integers(-16, 17, (2, 2, 3)) / 8).astype(np.float32), np.array(rng.integers(-4, 5), np.int32),
    ]  # fmt: skip
    with b.function("main", *arrays) as f:
        writer = Writer(seed, list(f))
        for _ in range(size):
            writer.step()
        f.returns(*writer.values[4:][-6:])
    return f.module, arrays


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.sampled(4)
def test_programs_are_printed_and_read_again(seed: int) -> None:
    module, _ = built(seed, 25)
    text = str(module)
    read = shlo_jit.parse(text)
    assert str(read) == text and read == module and shlo_jit.verify(text, warnings=True) == []
    if not any(op.dialect == "chlo" for op in walk(module.body)):  # artifacts do not have them
        assert shlo_jit.parse(module.serialize("1.20.0")) == module


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sampled(4)
def test_programs_give_what_the_reference_interpreter_gives(seed: int) -> None:
    module, arrays = built(1000 + seed, 15)
    exe = shlo_jit.compile(module)
    got = exe(*arrays)
    for a, c in zip(got if isinstance(got, tuple) else (got,), evaluate(module, *arrays), strict=True):
        assert a.dtype == c.dtype
        np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-5)
