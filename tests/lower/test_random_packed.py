"""Random chains of ops that move elements of packed constants: the elements of the reference interpreter, in guarded
memory. `SHLO_JIT_PACKED_PROGRAMS=1000 pytest -m slow tests/lower/test_random_packed.py` runs that many."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from test_every_type import any_bits, same

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.types import DTYPES, DType
from shlo_jit.reference.interpreter import evaluate

PROGRAMS = int(os.environ.get("SHLO_JIT_PACKED_PROGRAMS", "300"))
"""Number of programs of the slow test."""
NAMES = ["i2", "ui2", "i4", "ui4", "f4E2M1FN"]
Shape = tuple[int, ...]


def listed(numbers: list[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


class Writer:
    """Writes a chain of ops: each method emits one op on the last value and returns the shape of its result."""

    def __init__(self, rng: np.random.Generator, dtype: DType) -> None:
        self.rng, self.dtype = rng, dtype
        self.lines: list[str] = []
        self.count = 0

    def type(self, shape: Shape) -> str:
        return f"tensor<{''.join(f'{n}x' for n in shape)}{self.dtype.name}>"

    def emit(self, text: str, before: Shape, after: Shape) -> Shape:
        name = f"%v{self.count}"
        self.count += 1
        text = text.format(x=name, a=self.type(before), b=self.type(after))
        self.lines.append(f"%v{self.count} = {text}")
        return after

    def some(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def slice(self, shape: Shape) -> Shape:
        parts, after = [], []
        for n in shape:
            start = self.some(0, n - 1) if self.some(0, 1) else 0
            stop = self.some(start + 1, n) if self.some(0, 1) else n
            step = self.some(1, 4) if self.some(0, 2) == 0 else 1
            parts.append(f"{start}:{stop}:{step}")
            after.append(-(-(stop - start) // step))
        return self.emit(f"stablehlo.slice {{x}} [{', '.join(parts)}] : ({{a}}) -> {{b}}", shape, tuple(after))

    def reverse(self, shape: Shape) -> Shape:
        dims = [d for d in range(len(shape)) if self.some(0, 1)]
        return self.emit(f"stablehlo.reverse {{x}}, dims = {listed(dims)} : {{a}}", shape, shape)

    def transpose(self, shape: Shape) -> Shape:
        order = [int(d) for d in self.rng.permutation(len(shape))]
        after = tuple(shape[d] for d in order)
        return self.emit(f"stablehlo.transpose {{x}}, dims = {listed(order)} : ({{a}}) -> {{b}}", shape, after)

    def reshape(self, shape: Shape) -> Shape:
        size = int(np.prod(shape))
        rows = int(self.rng.choice([n for n in range(1, 40) if size % n == 0]))
        after = (rows, size // rows) if self.some(0, 3) else (size,)
        return self.emit("stablehlo.reshape {x} : ({a}) -> {b}", shape, after)

    def pad(self, shape: Shape) -> Shape:
        low, high = ([self.some(-1 if n > 4 else 0, 3) for n in shape] for _ in range(2))
        inner = [self.some(0, 1) if self.some(0, 2) == 0 else 0 for _ in shape]
        after = tuple(n + a + b + (n - 1) * i for n, a, b, i in zip(shape, low, high, inner, strict=True))
        edges = f"low = {listed(low)}, high = {listed(high)}, interior = {listed(inner)}"
        return self.emit(f"stablehlo.pad {{x}}, %edge, {edges} : ({{a}}, {self.type(())}) -> {{b}}", shape, after)

    def concatenate(self, shape: Shape) -> Shape:
        d = self.some(0, len(shape) - 1)
        after = tuple(2 * n if k == d else n for k, n in enumerate(shape))
        return self.emit(f"stablehlo.concatenate {{x}}, {{x}}, dim = {d} : ({{a}}, {{a}}) -> {{b}}", shape, after)

    def broadcast(self, shape: Shape) -> Shape:
        times, at = self.some(1, 3), self.some(0, len(shape))
        after = (*shape[:at], times, *shape[at:])
        dims = [d for d in range(len(after)) if d != at]
        text = f"stablehlo.broadcast_in_dim {{x}}, dims = {listed(dims)} : ({{a}}) -> {{b}}"
        return self.emit(text, shape, after)

    def window(self, shape: Shape) -> Shape:
        after = tuple(self.some(1, n) for n in shape)
        starts = ", ".join("%i" for _ in shape)
        types = ", ".join("tensor<i32>" for _ in shape)
        text = f"stablehlo.dynamic_slice {{x}}, {starts}, sizes = {listed(list(after))} : ({{a}}, {types}) -> {{b}}"
        return self.emit(text, shape, after)


MOVES: list[Callable[[Writer, Shape], Shape]] = [
    Writer.slice, Writer.reverse, Writer.transpose, Writer.reshape, Writer.pad, Writer.concatenate, Writer.broadcast,
    Writer.window, Writer.slice, Writer.reverse,
]  # fmt: skip


def program(seed: int) -> str:
    """A program whose results are the moved elements, as they are and converted, and their sums along a dimension."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[NAMES[seed % len(NAMES)]]
    shape: Shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 8, 17, 33, 64, 70], int(rng.integers(1, 4))))
    data = any_bits(rng, shape, dtype)
    writer = Writer(rng, dtype)
    first = writer.type(shape)
    for _ in range(int(rng.integers(1, 6))):
        if np.prod(shape) < 60_000:
            shape = MOVES[int(rng.integers(len(MOVES)))](writer, shape)
    last, to = f"%v{writer.count}", str(rng.choice(["f32", "i8", "i32", "f64"]))
    dims, wide = "".join(f"{n}x" for n in shape), str(rng.choice(["f32", "i32"]))
    ops = "\n      ".join(writer.lines)
    d = int(rng.integers(len(shape)))
    left = "".join(f"{n}x" for k, n in enumerate(shape) if k != d)
    types = f"{writer.type(shape)}, tensor<{dims}{to}>, tensor<{left}{wide}>"
    return f"""func.func @main(%i: tensor<i32>) -> ({types}) {{
      %v0 = stablehlo.constant dense<"0x{data.tobytes().hex()}"> : {first}
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %edge = stablehlo.convert %one : (tensor<f32>) -> {writer.type(())}
      {ops}
      %c = stablehlo.convert {last} : ({writer.type(shape)}) -> tensor<{dims}{to}>
      %w = stablehlo.convert {last} : ({writer.type(shape)}) -> tensor<{dims}{wide}>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %z = stablehlo.convert %zero : (tensor<i32>) -> tensor<{wide}>
      %s = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [{d}]
        : (tensor<{dims}{wide}>, tensor<{wide}>) -> tensor<{left}{wide}>
      return {last}, %c, %s : {types}
    }}"""


def check(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "INLINE_CONSTANT_BYTES", 0)
    monkeypatch.setattr(tuning, "FOLD_ELEMENTS", 0)
    packed = 0
    for seed in seeds:
        text = program(seed)
        exe = shlo_jit.compile(text, cache=False, threads=1)
        packed += "packed" in exe.text("core")
        for start in (0, 3):
            index = np.int32(start)
            got, want = exe(index), evaluate(shlo_jit.parse(text), index)
            assert all(same(g, w) for g, w in zip(got, want, strict=True)), f"seed {seed}"
    assert packed > 0.9 * len(seeds)  # others have a single element


def test_some_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    check(range(20), monkeypatch)


@pytest.mark.slow
def test_many_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    check(range(100, 100 + PROGRAMS), monkeypatch)
