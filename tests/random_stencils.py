"""Random loops over arrays with stencils: periodic, padded and fixed borders in one to three dimensions, several loops
per iteration, and states that are permuted.

All computations round in only one way, so results must equal the reference's bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from random_writer import Shape, Writer, type_of

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
SHAPES = {1: (300, 1001, 2500, 4096), 2: (16, 33, 60, 97, 128), 3: (4, 7, 16, 31)}


class Stencils(Writer):
    """Writes one program: the number of iterations is its first argument, with up to four states."""

    def __init__(self, seed: int):
        super().__init__(seed, 0)
        self.dtype: str = self.pick(("f32", "f32", "f32", "f64", "i32"))
        rank = self.pick((1, 1, 2, 2, 2, 3))
        self.shape_: Shape = tuple(self.pick(SHAPES[rank]) for _ in range(rank))
        if rank > 1 and self.chance(0.6):
            self.shape_ = (self.pick((60, 97, 150)), *self.shape_[1:])
        self.type = type_of(self.shape_, self.dtype)

    def value(self, text: str) -> str:
        return self.line(f"stablehlo.{text} : {self.type}")

    def constant_of(self, number: float) -> str:
        value = int(4 * number) if self.dtype == "i32" else number
        return self.line(f"stablehlo.constant dense<{value}> : {self.type}")

    # ------------------------------------------------------------------ neighbours
    def part(self, x: str, d: int, low: int, high: int, shape: Shape | None = None) -> tuple[str, Shape]:
        shape = shape or self.shape_
        ranges = [f"{low}:{high}" if k == d else f"0:{n}" for k, n in enumerate(shape)]
        out = tuple(high - low if k == d else n for k, n in enumerate(shape))
        types = f"({type_of(shape, self.dtype)}) -> {type_of(out, self.dtype)}"
        return self.line(f"stablehlo.slice {x} [{', '.join(ranges)}] : {types}"), out

    def joined(self, parts: Sequence[tuple[str, Shape]], d: int) -> str:
        types = ", ".join(type_of(s, self.dtype) for _, s in parts)
        names = ", ".join(n for n, _ in parts)
        return self.line(f"stablehlo.concatenate {names}, dim = {d} : ({types}) -> {self.type}")

    def shifted(self, x: str, d: int, by: int, kind: str) -> str:
        """Elements at an offset along a dimension, with replacements beyond the border."""
        n = self.shape_[d]
        if kind == "periodic":
            return self.joined([self.part(x, d, (n - by) % n, n), self.part(x, d, 0, (n - by) % n)], d)
        if kind == "edge":
            inner = self.part(x, d, 0, n - by) if by > 0 else self.part(x, d, -by, n)
            ends = [self.part(x, d, 0, 1) if by > 0 else self.part(x, d, n - 1, n)] * abs(by)
            return self.joined([*ends, inner] if by > 0 else [inner, *ends], d)
        low, high = ([s * by if k == d else 0 for k in range(len(self.shape_))] for s in (1, -1))
        zero = self.line(f"stablehlo.constant dense<{'0' if self.dtype == 'i32' else '0.0'}> : tensor<{self.dtype}>")
        pads = f"low = {low}, high = {high}, interior = {[0] * len(low)}"
        return self.line(f"stablehlo.pad {x}, {zero}, {pads} : ({self.type}, tensor<{self.dtype}>) -> {self.type}")

    def stencil(self, x: str) -> str:
        """A weighted sum over some neighbours of an array and itself."""
        total = self.value(f"multiply {x}, {self.constant_of(self.pick((0.5, 0.25, -0.5)))}")
        kind = self.pick(("periodic", "periodic", "zero", "edge"))
        for d in sorted(self.some(len(self.shape_), 1)):
            far = self.pick((1, 1, 1, 2, 3))
            for by in self.pick(((far, -far), (far,), (-far,))):
                y = self.shifted(x, d, by, kind)
                total = self.value(f"{self.pick(('add', 'add', 'subtract', 'maximum'))} {total}, {y}")
        return self.value(f"multiply {total}, {self.constant_of(0.25)}")

    def on_interior(self, x: str, new: str) -> str:
        """New values in the interior, the old ones at the border: by an update, or by a mask."""
        n = self.shape_
        if min(n) < 3:
            return new
        if self.chance(0.5):
            inner, shape = new, n
            for d in range(len(n)):
                inner, shape = self.part(inner, d, 1, n[d] - 1, shape)
            one = self.line("stablehlo.constant dense<1> : tensor<i32>")
            types = ", ".join([self.type, type_of(shape, self.dtype), *["tensor<i32>"] * len(n)])
            starts = ", ".join([one] * len(n))
            return self.line(f"stablehlo.dynamic_update_slice {x}, {inner}, {starts} : ({types}) -> {self.type}")
        d = self.below(0, len(n))
        t, p = type_of(n, "i32"), type_of(n, "i1")
        place = self.line(f"stablehlo.iota dim = {d} : {t}")
        first = self.line(f"stablehlo.constant dense<{self.pick((0, n[d] - 1))}> : {t}")
        border = self.line(f"stablehlo.compare EQ, {place}, {first} : ({t}, {t}) -> {p}")
        return self.line(f"stablehlo.select {border}, {x}, {new} : {p}, {self.type}")

    # ------------------------------------------------------------------ an iteration
    def new_field(self, fields: Sequence[str], counter: str, last: str | None) -> str:
        """A field computed from some fields, and from the iteration number; from `last` only where it is written."""
        x = self.pick(fields)
        new = self.stencil(x)
        if last is not None:
            new = self.value(f"subtract {new}, {last}")
        if self.chance(0.4):
            other = self.pick(fields)
            new = self.value(
                f"{self.pick(('add', 'subtract'))} {new}, {other if self.chance(0.7) else self.stencil(other)}"
            )
        if self.dtype != "i32" and self.chance(0.3):  # expensive enough for a separate loop
            new = self.value(f"sqrt {self.value(f'abs {new}')}")
        if self.chance(0.2):
            number = self.line(f"stablehlo.convert {counter} : (tensor<i32>) -> tensor<{self.dtype}>")
            wide = self.line(f"stablehlo.broadcast_in_dim {number}, dims = [] : (tensor<{self.dtype}>) -> {self.type}")
            new = self.value(f"add {new}, {wide}")
        return self.on_interior(x, new) if self.chance(0.3) else new

    def following(self, states: list[str], made: list[str]) -> list[str]:
        """State of the next iteration: new fields, and old states in other positions, some of them repeated."""
        count = len(states)
        kind = self.pick(("new", "new", "moved", "moved", "moved", "any"))
        if kind == "new":
            return [made[i] if i < len(made) else states[i] for i in range(count)]
        if kind == "moved":  # u, v = f(u, v), u, also twice, or cyclically
            order = self.pick((states[:-1], states[1:], states))
            return (
                [made[0], *order][:count]
                if len(made) == 1 or count < 3
                else [made[0], states[0], made[1], *states[2:]][:count]
            )
        return [self.pick([*made, *states]) for _ in range(count)]

    def program(self) -> tuple[str, list[np.ndarray]]:
        """Text and arguments."""
        count = self.pick((1, 2, 2, 3, 4))
        states = [f"%s{i}" for i in range(count)]
        made: list[str] = []
        apart = count > 1 and self.chance(0.6)
        for _ in range(self.pick((1, 1, 2, 3))):
            fields = [*(states[:-1] if apart else states), *made] + ["%fixed"] * self.chance(0.2)
            made.append(self.new_field(fields, "%k", states[-1] if apart and not made else None))
        results = self.following(states, made[::-1])
        types = ", ".join(["tensor<i32>", *[self.type] * count])
        body = "\n".join("    " + line for line in self.lines)
        inputs = ", ".join(f"%x{i}: {self.type}" for i in range(count))
        first = ", ".join(f"%s{i} = %x{i}" for i in range(count))
        text = f"""func.func @main(%n: tensor<i32>, %fixed: {self.type}, {inputs}) -> ({", ".join([self.type] * count)}) {{
  %none = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %w:{count + 1} = stablehlo.while(%k = %none, {first}) : {types}
  cond {{
    %go = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %next = stablehlo.add %k, %one : tensor<i32>
{body}
    stablehlo.return %next, {", ".join(results)} : {types}
  }}
  return {", ".join(f"%w#{i + 1}" for i in range(count))} : {", ".join([self.type] * count)}
}}
"""
        kind = np.dtype(DTYPES[self.dtype])
        arrays = [self.rng.integers(-8, 9, self.shape_).astype(kind) for _ in range(count + 1)]
        if kind.kind == "f":
            arrays = [x * kind.type(0.375) for x in arrays]
        return text, arrays


def random_stencil(seed: int) -> tuple[str, list[np.ndarray]]:
    """Text and arrays of program number `seed`; the number of iterations is its first argument."""
    return Stencils(seed).program()
