"""Random programs of any batch size, as text with unknown dimensions and, for one size, as static text.

Extents are numbers, or sizes (`shlo_jit.sizes`) in the batch n: n, 2n, n + 1, 3n. Ops that need the shape compute it,
like frontends do; the static text has the same ops with numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shlo_jit.sizes import Size, Symbol, equal, size_of, value_at

BATCH = size_of(Symbol(2, 1 << 20, 64))
LARGEST = 4000
"""Maximum elements of a value, for a batch of 8."""


class Value(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"


class Program(NamedTuple):
    dynamic: str
    static: dict[int, str]
    """Static texts, by batch size."""
    inputs: tuple[Value, ...]

    def arguments(self, size: int, generator: np.random.Generator) -> list[np.ndarray]:
        shapes = [tuple(value_at(n, size) for n in v.shape) for v in self.inputs]
        floats = [generator.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
        return [
            generator.integers(0, 4, x.shape).astype(np.int32) if v.dtype == "i32" else x
            for v, x in zip(self.inputs, floats, strict=True)
        ]


def random_batches(seed: int, sizes: tuple[int, ...], steps: int = 12) -> Program:
    """Returns a random program of some steps, with static texts for these sizes."""
    dynamic = _Writer(np.random.default_rng(seed), None).program(steps)
    static = {n: _Writer(np.random.default_rng(seed), n).program(steps)[0] for n in sizes}
    return Program(dynamic[0], static, dynamic[1])


class _Writer:
    """Writes one text, for unknown sizes if `size` is None. Its random choices do not depend on the size."""

    def __init__(self, generator: np.random.Generator, size: int | None) -> None:
        self.rng = generator
        self.size = size
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.count = 0

    def program(self, steps: int) -> tuple[str, tuple[Value, ...]]:
        k, m = (int(self.rng.integers(2, 7)) for _ in range(2))
        inputs = (
            Value("%x", (BATCH, k)), Value("%y", (BATCH, k, m)), Value("%w", (k, m)), Value("%i", (BATCH,), "i32"),
            Value("%t", (4, k)), Value("%v", (BATCH,)),
        )  # fmt: skip
        self.values += [v for v in inputs if v.dtype == "f32"]
        self.indices = inputs[3]
        if self.size is None:
            self.lines.append(
                f"%n = stablehlo.get_dimension_size %x, dim = 0 : ({self.type(inputs[0])}) -> tensor<i32>"
            )
        kinds = [getattr(self, name) for name in dir(self) if name.startswith("op_")]
        while self.count < steps:
            kinds[int(self.rng.integers(len(kinds)))]()
        returned = self.values[-4:]
        head = ", ".join(f"{v.name}: {self.type(v)}" for v in inputs)
        types = ", ".join(self.type(v) for v in returned)
        body = "\n".join(f"  {line}" for line in self.lines)
        names = ", ".join(v.name for v in returned)
        text = f"func.func @main({head}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}\n"
        return text, inputs

    # ------------------------------------------------------------------ words
    def type(self, value: Value) -> str:
        return f"tensor<{''.join(f'{self.extent(n)}x' for n in value.shape)}{value.dtype}>"

    def extent(self, n: int) -> str:
        if not isinstance(n, Size):
            return str(n)
        return "?" if self.size is None else str(value_at(n, self.size))

    def number(self, n: int) -> int:
        """Returns a number in the static text."""
        assert self.size is not None
        return value_at(n, self.size)

    def name(self) -> str:
        return f"%{len(self.lines)}v"

    def emit(self, text: str, shape: tuple[int, ...], dtype: str = "f32") -> Value:
        value = Value(self.name(), shape, dtype)
        self.lines.append(f"{value.name} = {text} -> {self.type(value)}")
        return value

    def done(self, value: Value) -> None:
        self.values.append(value)
        self.count += 1

    def pick(self, rank: int | None = None, least: int = 0) -> Value:
        """Picks a value, later ones more often."""
        fits = [v for v in self.values if (rank is None or len(v.shape) == rank) and len(v.shape) >= least]
        return fits[max(int(self.rng.integers(len(fits))), int(self.rng.integers(len(fits))))]

    def dim(self, value: Value) -> int:
        return int(self.rng.integers(len(value.shape)))

    def is_small(self, shape: tuple[int, ...]) -> bool:
        return math.prod(value_at(n, 8) for n in shape) <= LARGEST

    def sizes(self, shape: tuple[int, ...]) -> str:
        """Returns a tensor of the extents in the text with unknown sizes."""
        parts = []
        for n in shape:
            whole, rest = (n.terms.get((n.symbol,), 0), n.terms.get((), 0)) if isinstance(n, Size) else (0, n)
            number = self.constant_int(rest)
            if whole:
                scaled = self.line("stablehlo.multiply %n, {} : tensor<i32>", self.constant_int(whole))
                number = self.line(f"stablehlo.add {scaled}, {{}} : tensor<i32>", number)
            parts.append(self.line("stablehlo.reshape {} : (tensor<i32>) -> tensor<1xi32>", number))
        types = ", ".join(["tensor<1xi32>"] * len(parts))
        return self.line(
            f"stablehlo.concatenate {', '.join(parts)}, dim = 0 : ({types}) -> tensor<{len(parts)}xi32>", ""
        )

    def line(self, text: str, operand: str) -> str:
        name = self.name()
        self.lines.append(f"{name} = {text.format(operand)}")
        return name

    def constant_int(self, n: int) -> str:
        return self.line("stablehlo.constant dense<{}> : tensor<i32>", str(n))

    def ints(self, values: list[int]) -> str:
        return self.line(f"stablehlo.constant dense<{{}}> : tensor<{len(values)}xi32>", str(values))

    def scalar(self, number: float) -> str:
        return self.line("stablehlo.constant dense<{:}> : tensor<f32>".replace("{:}", "{}"), repr(float(number)))

    def broadcast(self, value: Value, shape: tuple[int, ...], dims: list[int]) -> Value:
        if self.size is None:
            sizes = self.sizes(shape) if shape else self.line("stablehlo.constant dense<> : tensor<0xi32>", "")
            t = f"({self.type(value)}, tensor<{len(shape)}xi32>)"
            return self.emit(f"stablehlo.dynamic_broadcast_in_dim {value.name}, {sizes}, dims = {dims} : {t}", shape)
        return self.emit(f"stablehlo.broadcast_in_dim {value.name}, dims = {dims} : ({self.type(value)})", shape)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        return self.emit(f"stablehlo.{name} {x.name}, {y.name} : ({self.type(x)}, {self.type(y)})", x.shape)

    def full(self, number: float, shape: tuple[int, ...]) -> Value:
        return self.broadcast(Value(self.scalar(number), ()), shape, [])

    # ------------------------------------------------------------------ elementwise
    def op_unary(self) -> None:
        x = self.pick()
        name = str(self.rng.choice(["tanh", "negate", "abs", "logistic", "sine"]))
        self.done(self.emit(f"stablehlo.{name} {x.name} : ({self.type(x)})", x.shape))

    def op_binary(self) -> None:
        x = self.pick()
        same = [v for v in self.values if equal(v.shape, x.shape)]
        y = same[int(self.rng.integers(len(same)))]
        self.done(self.binary(str(self.rng.choice(["add", "subtract", "multiply", "maximum", "minimum"])), x, y))

    def op_select(self) -> None:
        x = self.pick()
        zero = self.full(0.1, x.shape)
        t = f"({self.type(x)}, {self.type(x)})"
        mask = self.emit(f"stablehlo.compare GT, {x.name}, {zero.name} : {t}", x.shape, "i1")
        types = f"({self.type(mask)}, {self.type(x)}, {self.type(x)})"
        self.done(self.emit(f"stablehlo.select {mask.name}, {x.name}, {zero.name} : {types}", x.shape))

    def op_broadcast_add(self) -> None:
        """Adds a value that has some of another one's dimensions."""
        x = self.pick(least=1)
        keep = sorted(d for d in range(len(x.shape)) if self.rng.random() < 0.5)
        wanted = tuple(x.shape[d] for d in keep)
        fits = [v for v in self.values if equal(v.shape, wanted)]
        if not fits:
            return
        y = fits[int(self.rng.integers(len(fits)))]
        self.done(self.binary("add", x, self.broadcast(y, x.shape, keep)))

    def op_size_as_data(self) -> None:
        """Divides by the batch size, as for a mean."""
        x = self.pick()
        if self.size is None:
            n = "%n"
        else:
            n = self.constant_int(self.size)
        f = Value(self.line("stablehlo.convert {} : (tensor<i32>) -> tensor<f32>", n), ())
        self.done(self.binary("divide", x, self.broadcast(f, x.shape, [])))

    def op_iota(self) -> None:
        x = self.pick(least=1)
        d = self.dim(x)
        if self.size is None:
            sizes = self.sizes(x.shape)
            text = f"stablehlo.dynamic_iota {sizes}, dim = {d} : (tensor<{len(x.shape)}xi32>)"
            i = self.emit(text, x.shape, "i32")
        else:
            i = Value(self.name(), x.shape, "i32")
            self.lines.append(f"{i.name} = stablehlo.iota dim = {d} : {self.type(i)}")
        f = self.emit(f"stablehlo.convert {i.name} : ({self.type(i)})", x.shape)
        scaled = self.binary("multiply", f, self.full(0.01, x.shape))
        self.done(self.binary("add", x, scaled))

    # ------------------------------------------------------------------ data movement
    def op_transpose(self) -> None:
        x = self.pick(least=2)
        order = [int(d) for d in self.rng.permutation(len(x.shape))]
        text = f"stablehlo.transpose {x.name}, dims = {order} : ({self.type(x)})"
        self.done(self.emit(text, tuple(x.shape[d] for d in order)))

    def op_reverse(self) -> None:
        x = self.pick(least=1)
        self.done(self.emit(f"stablehlo.reverse {x.name}, dims = [{self.dim(x)}] : ({self.type(x)})", x.shape))

    def op_reshape(self) -> None:
        """Merges two adjacent dimensions."""
        x = self.pick(least=2)
        d = int(self.rng.integers(len(x.shape) - 1))
        if isinstance(x.shape[d], Size) and isinstance(x.shape[d + 1], Size):
            return
        shape = (*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :])
        if self.size is None:
            t = f"({self.type(x)}, tensor<{len(shape)}xi32>)"
            self.done(self.emit(f"stablehlo.dynamic_reshape {x.name}, {self.sizes(shape)} : {t}", shape))
        else:
            self.done(self.emit(f"stablehlo.reshape {x.name} : ({self.type(x)})", shape))

    def op_slice(self) -> None:
        """Drops the first or the last index of a dimension."""
        x = self.pick(least=1)
        d, first = self.dim(x), int(self.rng.integers(2))
        if not isinstance(x.shape[d], Size) and x.shape[d] < 3:
            return
        shape = (*x.shape[:d], x.shape[d] - 1, *x.shape[d + 1 :])
        starts = [first if e == d else 0 for e in range(len(shape))]
        limits = [n + first if e == d else n for e, n in enumerate(shape)]
        if self.size is None:
            lows, highs, steps = self.ints(starts), self.sizes(tuple(limits)), self.ints([1] * len(shape))
            t = ", ".join([self.type(x), *[f"tensor<{len(shape)}xi32>"] * 3])
            self.done(self.emit(f"stablehlo.real_dynamic_slice {x.name}, {lows}, {highs}, {steps} : ({t})", shape))
            return
        ranges = ", ".join(f"{a}:{self.number(b)}" for a, b in zip(starts, limits, strict=True))
        self.done(self.emit(f"stablehlo.slice {x.name} [{ranges}] : ({self.type(x)})", shape))

    def op_pad(self) -> None:
        x = self.pick(least=1)
        d, low, high = self.dim(x), int(self.rng.integers(3)), int(self.rng.integers(3))
        shape = (*x.shape[:d], x.shape[d] + low + high, *x.shape[d + 1 :])
        if not self.is_small(shape):
            return
        lows, highs = ([n if e == d else 0 for e in range(len(shape))] for n in (low, high))
        what = f"low = {lows}, high = {highs}, interior = {[0] * len(shape)}"
        zero = self.scalar(0.5)
        self.done(self.emit(f"stablehlo.pad {x.name}, {zero}, {what} : ({self.type(x)}, tensor<f32>)", shape))

    def op_concatenate(self) -> None:
        x = self.pick(least=1)
        d = self.dim(x)
        shape = (*x.shape[:d], 2 * x.shape[d], *x.shape[d + 1 :])
        if not self.is_small(shape):
            return
        y = self.emit(f"stablehlo.negate {x.name} : ({self.type(x)})", x.shape)
        t = f"({self.type(x)}, {self.type(x)})"
        self.done(self.emit(f"stablehlo.concatenate {x.name}, {y.name}, dim = {d} : {t}", shape))

    def op_gather(self) -> None:
        t = next(v for v in self.values if v.name == "%t")
        k = t.shape[1]
        numbers = "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
        text = f'"stablehlo.gather"(%t, %i) {{dimension_numbers = #stablehlo.gather<{numbers}>, '
        text += f"slice_sizes = array<i64: 1, {k}>}} : ({self.type(t)}, {self.type(self.indices)})"
        self.done(self.emit(text, (BATCH, k)))

    # ------------------------------------------------------------------ reductions, products
    def op_reduce(self) -> None:
        x = self.pick(least=1)
        over = sorted({self.dim(x) for _ in range(2)})
        kind = str(self.rng.choice(["add", "maximum"]))
        init = self.scalar(0.0 if kind == "add" else -9.0)
        shape = tuple(n for d, n in enumerate(x.shape) if d not in over)
        t = f"({self.type(x)}, tensor<f32>)"
        text = f"stablehlo.reduce({x.name} init: {init}) applies stablehlo.{kind} across dimensions = {over} : {t}"
        self.done(self.emit(text, shape))

    def op_softmax(self) -> None:
        x = self.pick(least=1)
        d = self.dim(x)
        e = self.emit(f"stablehlo.exponential {x.name} : ({self.type(x)})", x.shape)
        shape = (*x.shape[:d], *x.shape[d + 1 :])
        t = f"({self.type(x)}, tensor<f32>)"
        zero = self.scalar(0.0)
        total = self.emit(
            f"stablehlo.reduce({e.name} init: {zero}) applies stablehlo.add across dimensions = [{d}] : {t}", shape
        )
        if all(isinstance(n, int) for n in x.shape):
            return
        dims = [i for i in range(len(x.shape)) if i != d]
        self.done(self.binary("divide", e, self.broadcast(total, x.shape, dims)))

    def op_matmul(self) -> None:
        """Multiplies by the weights, or by itself over the first dimension."""
        x = self.pick(rank=2)
        w = next(v for v in self.values if v.name == "%w")
        if equal(x.shape[1], w.shape[0]):
            numbers, y, shape = "contracting_dims = [1] x [0]", w, (x.shape[0], w.shape[1])
        else:
            numbers, y, shape = "contracting_dims = [0] x [0]", x, (x.shape[1], x.shape[1])
        if sum(isinstance(n, Size) for n in shape) > 1:
            return
        t = f"({self.type(x)}, {self.type(y)})"
        self.done(self.emit(f"stablehlo.dot_general {x.name}, {y.name}, {numbers} : {t}", shape))

    def op_batch_matmul(self) -> None:
        x = self.pick(rank=3)
        if sum(isinstance(n, Size) for n in x.shape) > 1 or not isinstance(x.shape[0], Size):
            return
        shape = (x.shape[0], x.shape[1], x.shape[1])
        t = f"({self.type(x)}, {self.type(x)})"
        numbers = "batching_dims = [0] x [0], contracting_dims = [2] x [2]"
        self.done(self.emit(f"stablehlo.dot_general {x.name}, {x.name}, {numbers} : {t}", shape))

    # ------------------------------------------------------------------ control flow
    def op_loop(self) -> None:
        x = self.pick()
        zero, count, one = (self.constant_int(n) for n in (0, int(self.rng.integers(1, 4)), 1))
        t = self.type(x)
        name = self.name()
        self.lines.append(
            f"{name}:2 = stablehlo.while(%i{name[1:]} = {zero}, %c{name[1:]} = {x.name}) : tensor<i32>, {t} cond {{\n"
            f"    %p = stablehlo.compare LT, %i{name[1:]}, {count} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            f"    stablehlo.return %p : tensor<i1>\n"
            f"  }} do {{\n"
            f"    %j = stablehlo.add %i{name[1:]}, {one} : tensor<i32>\n"
            f"    %s = stablehlo.sine %c{name[1:]} : ({t}) -> {t}\n"
            f"    %a = stablehlo.add %s, {x.name} : {t}\n"
            f"    stablehlo.return %j, %a : tensor<i32>, {t}\n"
            f"  }}"
        )
        self.done(Value(f"{name}#1", x.shape))
