"""Random programs over rows: reductions over some dimensions, and elements of the rows computed from their results.

Kept dimensions of 2 or 3 elements are between those that are long enough for lanes, so that results of neighboring
lanes are interleaved. Several values of the rows are results, some of them transposed.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
from random_writer import Shape, Writer, count_of, type_of

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i1": np.bool_, "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "i32": np.int32, "ui32": np.uint32, "i64": np.int64,
    "complex<f32>": np.complex64,
}  # fmt: skip
COMMON = ("f32", "f32", "f32", "f64", "bf16", "i32", "i8")
FOLDS = ("add", "add", "maximum", "minimum", "multiply")


class Rows(Writer):
    """Writes one program."""

    def __init__(self, seed: int):
        super().__init__(seed, 0)
        self.dtype: str = self.pick(COMMON if self.chance(0.7) else list(DTYPES))
        self.arguments: list[np.ndarray] = []
        self.inputs: list[tuple[str, Shape, str]] = []
        self.results: list[tuple[str, Shape, str]] = []

    # ------------------------------------------------------------------ operands
    def argument(self, shape: Shape, dtype: str | None = None) -> str:
        dtype = dtype or self.dtype
        kind, name = np.dtype(DTYPES[dtype]), f"%arg{len(self.inputs)}"
        low, high = (0, 4) if kind.kind in "ub" else (-4, 5)
        x = self.rng.integers(low, high, shape)
        if kind.kind == "c":
            x = x + 1j * self.rng.integers(low, high, shape)
        self.arguments.append(np.asarray(x).astype(kind))
        self.inputs.append((name, shape, dtype))
        return name

    def constant_of(self, value: int) -> str:
        digits = f"{float(value)}" if self.dtype[0] in "fb" else f"{value}"
        if self.dtype[0] == "c":
            digits = f"({float(value)}, 0.0)"
        elif self.dtype == "i1":
            digits = "true" if value else "false"
        return self.line(f"stablehlo.constant dense<{digits}> : {type_of((), self.dtype)}")

    def permuted(self, x: str, shape: Shape, order: Sequence[int]) -> tuple[str, Shape]:
        out = tuple(shape[d] for d in order)
        types = f"({type_of(shape, self.dtype)}) -> {type_of(out, self.dtype)}"
        return self.emit(out, self.dtype, f"stablehlo.transpose {x}, dims = {list(order)} : {types}"), out

    def operand(self, shape: Shape) -> str:
        """Elements of the whole shape, from an argument of it, of a transposed one, or of some of its dimensions."""
        kind = self.pick(["whole", "whole", "whole", "transposed", "some", "some"])
        if kind == "whole":
            return self.argument(shape)
        if kind == "transposed":
            order = self.rng.permutation(len(shape)).tolist()
            given = tuple(shape[d] for d in np.argsort(order))
            x, out = self.permuted(self.argument(given), given, order)
            assert out == shape
            return x
        dims = sorted(self.some(len(shape), 1))
        small = tuple(shape[d] for d in dims)
        return self.expand(self.argument(small), small, dims, shape, self.dtype)

    def binary(self, op: str, x: str, y: str, shape: Shape) -> str:
        return self.emit(shape, self.dtype, f"stablehlo.{op} {x}, {y} : {type_of(shape, self.dtype)}")

    def combine(self, x: str, y: str, shape: Shape) -> str:
        ops = ["add", "subtract", "maximum", "minimum"]
        if self.dtype[0] == "c":
            ops = ["add", "subtract", "multiply"]
        elif self.dtype == "i1":
            ops = ["and", "or", "xor"]
        return self.binary(self.pick(ops), x, y, shape)

    # ------------------------------------------------------------------ rows
    def dimensions(self) -> Shape:
        """A long dimension, a short one, reduced ones, in any order, and some more."""
        rest = [self.pick((1, 2, 3, 5)) for _ in range(self.below(0, 2))]
        long = self.pick((24, 32, 40, 64, 65, 96, 131, 160))
        shape = [self.pick((2, 3, 7, 16, 33)), long, self.pick((2, 3, 2, 3, 2, 3, 4)), *rest]
        if self.chance(0.75):  # lanes, and the dimensions between them, are the last
            order = [*self.rng.permutation(len(rest)) + 3, 0, 1, 2]
        else:
            order = self.rng.permutation(len(shape)).tolist()
        return tuple(shape[d] for d in order)

    def reduced(self, x: str, shape: Shape, dims: Sequence[int]) -> tuple[str, Shape]:
        op, init = self.pick(FOLDS), self.below(0, 3)
        if self.dtype[0] == "c":
            op = "add"
        elif self.dtype == "i1":
            op, init = self.pick(("and", "or", "xor")), init % 2
        elif self.dtype.startswith("f8") and op in ("add", "multiply"):
            op = "maximum"
        elif self.dtype == "bf16" and op == "add" and count_of(tuple(shape[d] for d in dims)) > 128:
            op = "maximum"  # of more ones, the reference's sum rounds
        elif op == "multiply" or (op == "add" and self.dtype in ("f16", "bf16")):
            x = self.signs(x, shape)  # exact in any order
        return self.folded(op, x, shape, dims, init)

    def folded(self, op: str, x: str, shape: Shape, dims: Sequence[int], init: int) -> tuple[str, Shape]:
        start, out = self.constant_of(init), tuple(n for d, n in enumerate(shape) if d not in dims)
        types = f"({type_of(shape, self.dtype)}, {type_of((), self.dtype)}) -> {type_of(out, self.dtype)}"
        text = f"stablehlo.reduce({x} init: {start}) applies stablehlo.{op} across dimensions = {list(dims)} : {types}"
        return self.emit(out, self.dtype, text), out

    def signs(self, x: str, shape: Shape) -> str:
        """Factors whose products stay small."""
        if self.dtype.startswith("u"):
            one = self.expand(self.constant_of(1), (), [], shape, self.dtype)
            return self.binary("minimum", x, one, shape)
        return self.emit(shape, self.dtype, f"stablehlo.sign {x} : {type_of(shape, self.dtype)}")

    def softmax(self, x: str, shape: Shape, dims: Sequence[int]) -> str:
        kept = [d for d in range(len(shape)) if d not in dims]
        most, small = self.folded("maximum", x, shape, dims, -100)
        e = self.binary("subtract", x, self.expand(most, small, kept, shape, self.dtype), shape)
        e = self.emit(shape, self.dtype, f"stablehlo.exponential {e} : {type_of(shape, self.dtype)}")
        total, _ = self.folded("add", e, shape, dims, 0)
        if self.chance(0.3):
            self.results.append((e, shape, self.dtype))
        return self.binary("divide", e, self.expand(total, small, kept, shape, self.dtype), shape)

    def argmax(self, x: str, shape: Shape, dim: int) -> None:
        """The largest element and its index, and the distance of elements from it."""
        out = tuple(n for d, n in enumerate(shape) if d != dim)
        t, one = type_of(shape, self.dtype), type_of((), self.dtype)
        places = self.line(f"stablehlo.iota dim = {dim} : {type_of(shape, 'i32')}")
        start, zero = self.constant_of(-9 if not self.dtype.startswith("u") else 0), self.constant((), "i32", 0)
        self.lines.append(f"""{(name := self.fresh())}:2 = stablehlo.reduce({x} init: {start}), ({places} init: {zero}) across dimensions = [{dim}]
            : ({t}, {type_of(shape, "i32")}, {one}, tensor<i32>) -> ({type_of(out, self.dtype)}, {type_of(out, "i32")})
            reducer(%a: {one}, %c: {one}) (%b: tensor<i32>, %d: tensor<i32>) {{
            %gt = stablehlo.compare GT, %a, %c : ({one}, {one}) -> tensor<i1>
            %eq = stablehlo.compare EQ, %a, %c : ({one}, {one}) -> tensor<i1>
            %lt = stablehlo.compare LT, %b, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %and = stablehlo.and %eq, %lt : tensor<i1>
            %or = stablehlo.or %gt, %and : tensor<i1>
            %m = stablehlo.select %gt, %a, %c : tensor<i1>, {one}
            %i = stablehlo.select %or, %b, %d : tensor<i1>, tensor<i32>
            stablehlo.return %m, %i : {one}, tensor<i32>
          }}""")
        kept = [d for d in range(len(shape)) if d != dim]
        i = self.expand(f"{name}#1", out, kept, shape, "i32")
        away = self.emit(shape, "i32", f"stablehlo.subtract {places}, {i} : {type_of(shape, 'i32')}")
        self.results += [(away, shape, "i32"), (f"{name}#1", out, "i32")]

    def grouped_products(self, x: str, shape: Shape) -> None:
        """Sums over one dimension of products with another operand, as for the weights of attention."""
        rows, along = self.rng.permutation(len(shape))[:2].tolist()
        batch = [d for d in range(len(shape)) if d not in (rows, along)]
        sizes, n = tuple(shape[d] for d in batch), len(batch)
        wide, out = (*sizes, shape[along], 3), (*sizes, shape[rows], 3)
        if count_of(out) * shape[along] > 60_000:
            return
        types = f"({type_of(shape, self.dtype)}, {type_of(wide, self.dtype)}) -> {type_of(out, self.dtype)}"
        dims = f"batching_dims = {batch} x {list(range(n))}, contracting_dims = [{along}] x [{n}]"
        text = f"stablehlo.dot_general {x}, {self.argument(wide)}, {dims} : {types}"
        self.results.append((self.emit(out, self.dtype, text), out, self.dtype))

    # ------------------------------------------------------------------ the program
    def reduced_dimensions(self, shape: Shape) -> list[int]:
        """Reduced dimensions: not the last one, and mostly one that is not long."""
        short = [d for d, n in enumerate(shape[:-1]) if n <= 33]
        if short and self.chance(0.7):
            return [max(short, key=lambda d: shape[d])]
        return sorted(self.some(len(shape) - 1, 1)[: self.pick((1, 1, 1, 2))])

    def program(self) -> tuple[str, list[np.ndarray]]:
        """Text and arguments."""
        shape = self.dimensions()
        x = self.operand(shape)
        for _ in range(self.below(0, 3)):
            x = self.combine(x, self.operand(shape), shape)
        dims = self.reduced_dimensions(shape)
        kinds = ["reduce"] * 4
        kinds += ["softmax", "norm"] * (self.dtype in ("f32", "f64"))
        kinds += ["argmax"] * (self.dtype in ("f32", "f64", "i32", "ui32", "i64"))
        kinds += ["product"] * (self.dtype in ("f32", "f64") and self.chance(0.5))
        for _ in range(self.below(1, 4)):
            x = self.go_on(self.pick(kinds), x, shape, dims)
        return self.text(), self.arguments

    def go_on(self, kind: str, x: str, shape: Shape, dims: Sequence[int]) -> str:
        """Adds a value of the rows; returns the value that the next one is computed from."""
        if kind == "argmax":
            self.argmax(x, shape, dims[0])
            return x
        if kind == "product":
            self.grouped_products(x, shape)
            return x
        if kind == "softmax":
            x = self.softmax(x, shape, dims)
        else:
            y = self.binary("multiply", x, x, shape) if kind == "norm" else x
            m, small = self.reduced(y, shape, dims)
            kept = [d for d in range(len(shape)) if d not in dims]
            x = self.combine(x, self.expand(m, small, kept, shape, self.dtype), shape)
            if self.chance(0.4):
                self.results.append((m, small, self.dtype))
        self.results.append((x, shape, self.dtype))
        return x

    def text(self) -> str:
        results = [self.permuted_result(r) if self.chance(0.25) else r for r in self.results[-4:]]
        if not results:
            results = [self.inputs[0]]
        inputs = ", ".join(f"{n}: {type_of(s, d)}" for n, s, d in self.inputs)
        types = ", ".join(type_of(s, d) for _, s, d in results)
        body, names = "\n".join("  " + line for line in self.lines), ", ".join(n for n, _, _ in results)
        return f"func.func @main({inputs}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}\n"

    def permuted_result(self, result: tuple[str, Shape, str]) -> tuple[str, Shape, str]:
        name, shape, dtype = result
        order = self.rng.permutation(len(shape)).tolist()
        out = tuple(shape[d] for d in order)
        types = f"({type_of(shape, dtype)}) -> {type_of(out, dtype)}"
        return self.emit(out, dtype, f"stablehlo.transpose {name}, dims = {order} : {types}"), out, dtype


def random_rows(seed: int) -> tuple[str, list[np.ndarray]]:
    """Text and arguments of program number `seed`."""
    return Rows(seed).program()
