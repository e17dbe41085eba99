"""Base of the random program writers: names, types and values in scope."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Named = tuple[str, Shape, str]
SIZES, LARGE_SIZES = (1, 2, 3, 4, 5, 8, 17, 20), (1, 3, 40, 64, 257, 600)


def type_of(shape: Shape, dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


def count_of(shape: Shape) -> int:
    return math.prod(shape)


class Writer:
    """Writes one program. `values` are the readable (name, shape, dtype), the latest last."""

    def __init__(self, seed: int, size: int):
        self.rng = np.random.default_rng(seed)
        self.size = size
        self.large = self.chance(0.2)
        """Whether values are large enough for several threads, and for states of loops that swap their buffers."""
        self.most = 200_000 if self.large else 4000
        """Maximum elements of a value."""
        self.lines: list[str] = []
        self.count = 0
        self.values: list[Named] = []
        self.counters: list[str] = []
        self.depth = 0

    # ------------------------------------------------------------------ choices
    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def below(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def some(self, count: int, least: int = 0) -> list[int]:
        """Some of the numbers below `count`, in random order."""
        return self.rng.permutation(count)[: self.below(least, count + 1)].tolist()

    def shape(self, rank: int | None = None) -> Shape:
        rank = self.below(0, 4) if rank is None else rank
        shape = tuple(self.pick(LARGE_SIZES if self.large else SIZES) for _ in range(rank))
        return shape if count_of(shape) <= self.most else shape[: rank - 1]

    def any(self, dtype: str | None = None, rank: int = 0) -> Named:
        """A value to read, preferably a recent one. Raises IndexError if there is none."""
        found = [v for v in self.values if dtype in (None, v[2]) and len(v[1]) >= rank and v[2] != "i1"]
        return self.pick(found[-6:] if self.chance(0.7) else found)

    def same(self, shape: Shape, dtype: str) -> str:
        """A value of a type: an existing one, or a broadcast constant."""
        found = [v[0] for v in self.values if v[1:] == (shape, dtype)]
        if found and self.chance(0.8):
            return self.pick(found)
        return self.constant(shape, dtype)

    def index(self) -> str:
        """A scalar i32: the counter of a loop, a value or a constant."""
        if self.counters and self.chance(0.6):
            return self.pick(self.counters)
        return self.same((), "i32")

    def filled(self, shape: Shape, dtype: str) -> str:
        """A value of a type with different elements: an existing one, another one reshaped, or a computed one."""
        found = [v[0] for v in self.values if v[1:] == (shape, dtype)]
        if found and self.chance(0.6):
            return self.pick(found)
        t = type_of(shape, dtype)
        found = [v for v in self.values if v[2] == dtype and count_of(v[1]) == count_of(shape)]
        if found and self.chance(0.8):
            name, other, _ = self.pick(found)
            return self.emit(shape, dtype, f"stablehlo.reshape {name} : ({type_of(other, dtype)}) -> {t}")
        if count_of(shape) <= 64 or not shape:
            x = self.rng.integers(-4, 5, shape)
            return self.literal(x if dtype == "i32" else x * 0.375, dtype)
        x = self.emit(shape, dtype, f"stablehlo.iota dim = {self.below(0, len(shape))} : {t}")
        return x if dtype == "i32" else self.emit(shape, dtype, f"stablehlo.sine {x} : {t}")

    # ------------------------------------------------------------------ lines
    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count - 1}"

    def line(self, text: str) -> str:
        """Writes a line that defines a name, which later lines do not read by chance."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def emit(self, shape: Shape, dtype: str, text: str) -> str:
        name = self.line(text)
        self.values.append((name, shape, dtype))
        return name

    def constant(self, shape: Shape, dtype: str, value: float | None = None) -> str:
        value = (self.below(0, 2) if dtype == "i1" else self.below(-3, 4)) if value is None else value
        digits = f"{float(value)}" if dtype[0] in "fb" else f"{int(value)}"
        return self.line(f"stablehlo.constant dense<{digits}> : {type_of(shape, dtype)}")

    def literal(self, x: np.ndarray, dtype: str) -> str:
        return self.line(f"stablehlo.constant dense<{x.tolist()}> : {type_of(x.shape, dtype)}")

    def compare(self, direction: str, x: str, y: str, shape: Shape, dtype: str, kind: str = "") -> str:
        t, p = type_of(shape, dtype), type_of(shape, "i1")
        return self.emit(shape, "i1", f"stablehlo.compare {direction}, {x}, {y}{kind} : ({t}, {t}) -> {p}")

    def expand(self, x: str, small: Shape, dims: Sequence[int], shape: Shape, dtype: str) -> str:
        types = f"({type_of(small, dtype)}) -> {type_of(shape, dtype)}"
        return self.emit(shape, dtype, f"stablehlo.broadcast_in_dim {x}, dims = {list(dims)} : {types}")

    def fold(self, op: str, x: str, shape: Shape, dtype: str, dims: Sequence[int], init: float) -> tuple[str, Shape]:
        """Writes a reduce; returns its name and shape."""
        out = tuple(n for d, n in enumerate(shape) if d not in dims)
        start = self.constant((), dtype, init)
        t = f"({type_of(shape, dtype)}, {type_of((), dtype)}) -> {type_of(out, dtype)}"
        text = f"stablehlo.reduce({x} init: {start}) applies stablehlo.{op} across dimensions = {list(dims)} : {t}"
        return self.emit(out, dtype, text), out

    @contextmanager
    def region(self, arguments: Sequence[Named] = ()) -> Iterator[list[str]]:
        """Collects lines of a region. It sees the values around it, and its definitions are not visible outside."""
        lines, values, counters = self.lines, self.values, self.counters
        self.lines, self.values, self.counters = [], [*values, *arguments], list(counters)
        self.depth += 1
        try:
            yield self.lines
        finally:
            self.lines, self.values, self.counters = lines, values, counters
            self.depth -= 1

    def step(self, choices: Sequence[Any]) -> None:
        """Runs one of the choices; none if no choice finds a value of the required kind."""
        before = len(self.lines), len(self.values)
        try:
            self.pick(choices)()
        except (IndexError, ValueError):
            del self.lines[before[0] :], self.values[before[1] :]
