"""Random programs of products with loops and row programs around them, which run by blocks of rows."""

from __future__ import annotations

import random

import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64}
UNARY = ("tanh", "negate", "abs", "logistic", "cosine")
BINARY = ("add", "multiply", "subtract", "maximum")


class _Program:
    """A program of matrices with the same rows: `heads` of them with `rows` rows each, or plain ones without heads."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        r = self.random
        self.heads = r.choice((0, 0, 1, 2, 3, 5))
        self.rows = r.choice((1, 5, 6, 13, 40, 70, 100))
        self.dtype = r.choice(("f32", "f32", "f64"))
        self.lines = [
            f"%zero = stablehlo.constant dense<0.0> : tensor<{self.dtype}>",
            f"%low = stablehlo.constant dense<-1.0e4> : tensor<{self.dtype}>",
        ]
        self.parameters: list[str] = []
        self.arguments: list[np.ndarray] = []
        self.values: list[tuple[str, int]] = []
        """Names and widths of the matrices so far."""
        self.count = 0

    # ------------------------------------------------------------------ text
    def type(self, *shape: int) -> str:
        return "tensor<" + "".join(f"{n}x" for n in shape) + f"{self.dtype}>"

    def shape(self, width: int) -> tuple[int, ...]:
        return (self.heads, self.rows, width) if self.heads else (self.rows, width)

    def of(self, width: int) -> str:
        return self.type(*self.shape(width))

    def new(self, line: str, width: int) -> str:
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {line}")
        self.values.append((name, width))
        return name

    def argument(self, *shape: int) -> str:
        name = f"%a{len(self.arguments)}"
        self.parameters.append(f"{name}: {self.type(*shape)}")
        self.arguments.append((self.numbers.standard_normal(shape) / 2).astype(DTYPES[self.dtype]))
        return name

    def weights(self, *shape: int) -> str:
        """A matrix on the right: an argument or a constant."""
        if self.random.random() < 0.6:
            return self.argument(*shape)
        name = f"%w{self.count}"
        self.count += 1
        values = np.round(self.numbers.standard_normal(shape) / 2, 3).tolist()
        self.lines.append(f"{name} = stablehlo.constant dense<{values}> : {self.type(*shape)}")
        return name

    # ------------------------------------------------------------------ ops
    def product(self) -> None:
        value, k = self.pick()
        n = self.random.choice((1, 3, 8, 16, 17, 33, 64, 100))
        transposed = self.random.random() < 0.4
        heads = (self.heads,) if self.heads else ()
        shape = (*heads, n, k) if transposed else (*heads, k, n)
        batch = "batching_dims = [0] x [0], " if heads else ""
        first = len(heads)
        numbers = f"{batch}contracting_dims = [{first + 1}] x [{first + transposed}]"
        right = self.weights(*shape)
        types = f"({self.of(k)}, {self.type(*shape)}) -> {self.of(n)}"
        self.new(f"stablehlo.dot_general {value}, {right}, {numbers} : {types}", n)

    def unary(self) -> None:
        value, n = self.pick()
        self.new(f"stablehlo.{self.random.choice(UNARY)} {value} : {self.of(n)}", n)

    def binary(self) -> None:
        value, n = self.pick()
        others = [name for name, width in self.values if width == n]
        other = self.argument(*self.shape(n)) if self.random.random() < 0.3 else self.random.choice(others)
        self.new(f"stablehlo.{self.random.choice(BINARY)} {value}, {other} : {self.of(n)}", n)

    def moved(self) -> None:
        """Columns in another order, or of another row, which prevents blocks."""
        value, n = self.pick()
        if self.random.random() < 0.5:
            return self.view(value, n)
        axis = len(self.shape(n)) - 1 if self.random.random() < 0.7 else len(self.shape(n)) - 2
        self.new(f"stablehlo.reverse {value}, dims = [{axis}] : {self.of(n)}", n)
        return None

    def view(self, value: str, n: int) -> None:
        """The same matrix after a reshape to one more dimension and back."""
        shape = (1, *self.shape(n))
        name = f"%r{self.count}"
        self.lines.append(f"{name} = stablehlo.reshape {value} : ({self.of(n)}) -> {self.type(*shape)}")
        self.new(f"stablehlo.reshape {name} : ({self.type(*shape)}) -> {self.of(n)}", n)

    def reduction(self) -> None:
        """A row program: every element with the sum or the maximum of its row; or only that, as a narrow matrix."""
        value, n = self.pick()
        outer = self.shape(n)[:-1]
        dims = ", ".join(map(str, range(len(outer))))
        op, start = self.random.choice((("add", "%zero"), ("maximum", "%low")))
        name = f"%s{self.count}"
        self.lines.append(
            f"{name} = stablehlo.reduce({value} init: {start}) applies stablehlo.{op} across dimensions ="
            f" [{len(outer)}] : ({self.of(n)}, tensor<{self.dtype}>) -> {self.type(*outer)}"
        )
        if self.random.random() < 0.15:
            self.new(f"stablehlo.reshape {name} : ({self.type(*outer)}) -> {self.of(1)}", 1)
            return
        spread = f"%b{self.count}"
        self.lines.append(
            f"{spread} = stablehlo.broadcast_in_dim {name}, dims = [{dims}] : ({self.type(*outer)}) -> {self.of(n)}"
        )
        moved = self.new(f"stablehlo.subtract {value}, {spread} : {self.of(n)}", n)
        self.new(f"stablehlo.tanh {moved} : {self.of(n)}", n)

    def pick(self) -> tuple[str, int]:
        """A value, mostly one of the last."""
        return self.values[-1] if self.random.random() < 0.75 else self.random.choice(self.values[-4:])

    def run(self) -> tuple[str, list[np.ndarray]]:
        width = self.random.choice((1, 4, 16, 31, 64))
        self.values.append((self.argument(*self.shape(width)), width))
        self.product()
        makers = (self.product, self.product, self.unary, self.binary, self.reduction, self.moved)
        for _ in range(self.random.randint(1, 8)):
            self.random.choice(makers)()
        chosen = dict([self.values[-1], *self.random.sample(self.values[1:], k=min(1, len(self.values) - 1))])
        results = list(chosen) if self.random.random() < 0.4 else [self.values[-1][0]]
        types = ", ".join(self.of(chosen[name]) for name in results)
        body = "\n  ".join([*self.lines, f"return {', '.join(results)} : {types}"])
        return f"func.func @main({', '.join(self.parameters)}) -> ({types}) {{\n  {body}\n}}", self.arguments


def random_row_blocks(seed: int) -> tuple[str, list[np.ndarray]]:
    """A program and its arguments."""
    return _Program(seed).run()
