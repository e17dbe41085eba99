"""Random StableHLO programs: typed text over elementwise ops, index maps, reductions, products, updates, complex and
quantized numbers, and control flow."""

from __future__ import annotations

import numpy as np
from random_control import Control
from random_numbers import Numbers
from random_structured import Structured
from random_writer import Named, count_of, type_of

UNARY = "negate abs floor ceil sign sqrt tanh exponential".split()
BINARY = "add subtract multiply maximum minimum".split()
INT_BINARY = "add subtract multiply maximum minimum and or xor divide remainder".split()
NARROW = {"f32": ["bf16", "f16", "f64", "i8", "i1", "i64"], "i32": ["i8", "ui8", "i16", "i64", "ui32", "f16", "i1"]}


class Generator(Control, Structured, Numbers):
    """Writes one program."""

    def __init__(self, seed: int, size: int):
        super().__init__(seed, size)
        self.simple = [self.unary, self.binary, self.select, self.reduce, self.reverse, self.transpose]
        maps = [self.broadcast, self.transpose, self.reshape, self.slice, self.reverse, self.pad, self.concatenate]
        self.every = [
            self.unary, self.binary, self.binary, self.binary, self.select, self.convert, self.narrow, *maps,
            self.reduce, self.reduce, self.rows, self.argmax, self.iota, self.dynamic, self.dynamic, self.dynamic_shape,
            self.sort, self.window, self.select_and_scatter, self.gather, self.scatter, self.dot, self.convolution,
            self.loop, self.loop, self.branch, self.complex, self.complex, self.quantized, self.quantized_product,
        ]  # fmt: skip
        self.control = [
            *[self.loop] * 2,
            self.branch,
            self.unary,
            self.binary,
            self.reshape,
            self.dynamic,
            self.transpose,
        ]
        if self.large:  # small enough for a fast reference
            plain = [
                self.unary,
                self.binary,
                self.select,
                self.iota,
                self.convert,
                self.narrow,
                self.concatenate,
                self.dot,
            ]
            plain += [*maps, self.complex, self.quantized]
            self.every = [*plain, *[self.reduce, self.rows, self.loop] * 2, self.argmax, self.dynamic, self.branch]

    # ------------------------------------------------------------------ ops
    def unary(self) -> None:
        x, shape, dtype = self.any("f32")
        op = self.pick(UNARY)
        if op == "sqrt":
            x = self.emit(shape, dtype, f"stablehlo.abs {x} : {type_of(shape, dtype)}")
        if op == "exponential":
            x = self.emit(shape, dtype, f"stablehlo.tanh {x} : {type_of(shape, dtype)}")
        self.emit(shape, dtype, f"stablehlo.{op} {x} : {type_of(shape, dtype)}")

    def binary(self) -> None:
        x, shape, dtype = self.any()
        op = self.pick(BINARY if dtype == "f32" else INT_BINARY)
        self.emit(shape, dtype, f"stablehlo.{op} {x}, {self.same(shape, dtype)} : {type_of(shape, dtype)}")

    def select(self) -> None:
        x, shape, dtype = self.any()
        t, p = type_of(shape, dtype), type_of(shape, "i1")
        y = self.same(shape, dtype)
        c = self.emit(shape, "i1", f"stablehlo.compare {self.pick(['LT', 'GE', 'NE'])}, {x}, {y} : ({t}, {t}) -> {p}")
        self.emit(shape, dtype, f"stablehlo.select {c}, {y}, {x} : {p}, {t}")

    def convert(self) -> None:
        x, shape, dtype = self.any()
        other = "i32" if dtype == "f32" else "f32"
        self.emit(shape, other, f"stablehlo.convert {x} : ({type_of(shape, dtype)}) -> {type_of(shape, other)}")

    def narrow(self) -> None:
        """A conversion to another type and back."""
        x, shape, dtype = self.any()
        other = self.pick(NARROW[dtype])
        t, u = type_of(shape, dtype), type_of(shape, other)
        if dtype == "f32":  # within the range of all of them
            x = self.emit(shape, dtype, f"stablehlo.tanh {x} : {t}")
            x = self.emit(shape, dtype, f"stablehlo.multiply {x}, {self.constant(shape, dtype, 40.5)} : {t}")
        y = self.line(f"stablehlo.convert {x} : ({t}) -> {u}")
        if other != "i1" and self.chance(0.7):
            y = self.line(f"stablehlo.{self.pick(['add', 'maximum', 'multiply'])} {y}, {y} : {u}")
        self.emit(shape, dtype, f"stablehlo.convert {y} : ({u}) -> {t}")

    def broadcast(self) -> None:
        x, shape, dtype = self.any()
        target = self.shape(min(4, len(shape) + int(self.rng.integers(0, 3))))
        if len(target) < len(shape):
            return
        dims = self.rng.choice(len(target), len(shape), replace=False).tolist()
        full = list(target)
        for d, n in zip(dims, shape, strict=True):
            if n != 1:
                full[d] = n
        if count_of(tuple(full)) > self.most:
            return
        text = f"stablehlo.broadcast_in_dim {x}, dims = {dims} : ({type_of(shape, dtype)}) -> {type_of(tuple(full), dtype)}"
        self.emit(tuple(full), dtype, text)

    def transpose(self) -> None:
        x, shape, dtype = self.any()
        p = self.rng.permutation(len(shape)).tolist()
        out = tuple(shape[i] for i in p)
        self.emit(
            out, dtype, f"stablehlo.transpose {x}, dims = {p} : ({type_of(shape, dtype)}) -> {type_of(out, dtype)}"
        )

    def reshape(self) -> None:
        x, shape, dtype = self.any()
        rest, out = count_of(shape), []
        while rest > 1:
            factors = [f for f in range(2, rest + 1) if rest % f == 0]
            f = self.pick(factors)
            out.append(f)
            rest //= f
        if self.rng.random() < 0.3:
            out.insert(int(self.rng.integers(len(out) + 1)), 1)
        self.emit(
            tuple(out), dtype, f"stablehlo.reshape {x} : ({type_of(shape, dtype)}) -> {type_of(tuple(out), dtype)}"
        )

    def slice(self) -> None:
        x, shape, dtype = self.any(rank=1)
        parts, out = [], []
        for n in shape:
            low = int(self.rng.integers(0, n))
            high = int(self.rng.integers(low + 1, n + 1))
            step = int(self.pick([1, 1, 2, 3]))
            parts.append(f"{low}:{high}:{step}")
            out.append(-(-(high - low) // step))
        text = f"stablehlo.slice {x} [{', '.join(parts)}] : ({type_of(shape, dtype)}) -> {type_of(tuple(out), dtype)}"
        self.emit(tuple(out), dtype, text)

    def reverse(self) -> None:
        x, shape, dtype = self.any(rank=1)
        dims = self.some(len(shape))
        self.emit(shape, dtype, f"stablehlo.reverse {x}, dims = {dims} : {type_of(shape, dtype)}")

    def pad(self) -> None:
        x, shape, dtype = self.any()
        low = [int(self.rng.integers(-1, 3)) for _ in shape]
        high = [int(self.rng.integers(-2, 3)) for _ in shape]
        gap = [int(self.pick([0, 0, 0, 1])) for _ in shape]
        out = tuple(lo + n + hi + max(0, n - 1) * g for lo, n, hi, g in zip(low, shape, high, gap, strict=True))
        if any(n < 1 for n in out) or count_of(tuple(out)) > self.most:
            return
        value = self.constant((), dtype)
        t = f"({type_of(shape, dtype)}, {type_of((), dtype)}) -> {type_of(out, dtype)}"
        self.emit(out, dtype, f"stablehlo.pad {x}, {value}, low = {low}, high = {high}, interior = {gap} : {t}")

    def concatenate(self) -> None:
        x, shape, dtype = self.any(rank=1)
        d = int(self.rng.integers(len(shape)))
        found = [v for v in self.values if v[2] == dtype and len(v[1]) == len(shape)]
        found = [v for v in found if all(a == b for i, (a, b) in enumerate(zip(v[1], shape, strict=True)) if i != d)]
        parts = [(x, shape, dtype), *(self.pick(found) for _ in range(int(self.rng.integers(1, 3))))]
        out = list(shape)
        out[d] = sum(p[1][d] for p in parts)
        if count_of(tuple(out)) > self.most:
            return
        types = ", ".join(type_of(p[1], dtype) for p in parts)
        names = ", ".join(p[0] for p in parts)
        self.emit(
            tuple(out), dtype, f"stablehlo.concatenate {names}, dim = {d} : ({types}) -> {type_of(tuple(out), dtype)}"
        )

    def reduce(self) -> None:
        x, shape, dtype = self.any(rank=1)
        dims = self.some(len(shape), 1)
        name, out = self.fold(self.pick(["add", "maximum", "minimum"]), x, shape, dtype, dims, self.below(-3, 4))
        if self.chance(0.5):  # back over the reduced dimensions, as softmax does
            kept = [d for d in range(len(shape)) if d not in dims]
            y = self.expand(name, out, kept, shape, dtype)
            self.emit(shape, dtype, f"stablehlo.subtract {x}, {y} : {type_of(shape, dtype)}")

    def iota(self) -> None:
        shape, dtype = self.shape(int(self.rng.integers(1, 4))), self.pick(["f32", "i32"])
        d = int(self.rng.integers(len(shape)))
        self.emit(shape, dtype, f"stablehlo.iota dim = {d} : {type_of(shape, dtype)}")

    def dynamic(self) -> None:
        x, shape, dtype = self.any(rank=1)
        starts = [self.index() for _ in shape]
        sizes = tuple(int(self.rng.integers(1, n + 1)) for n in shape)
        scalars = ", ".join(["tensor<i32>"] * len(shape))
        t = f"({type_of(shape, dtype)}, {scalars}) -> {type_of(sizes, dtype)}"
        part = self.emit(sizes, dtype, f"stablehlo.dynamic_slice {x}, {', '.join(starts)}, sizes = {list(sizes)} : {t}")
        update = self.same(sizes, dtype) if self.rng.random() < 0.5 else part
        t = f"({type_of(shape, dtype)}, {type_of(sizes, dtype)}, {scalars}) -> {type_of(shape, dtype)}"
        self.emit(shape, dtype, f"stablehlo.dynamic_update_slice {x}, {update}, {', '.join(starts)} : {t}")

    def dynamic_shape(self) -> None:
        """Ops that take a shape as a value, which is a constant here."""
        x, shape, dtype = self.any(rank=1)
        t, rank = type_of(shape, dtype), len(shape)
        sizes = lambda numbers: self.literal(np.array(numbers), "i64")  # noqa: E731
        kind = self.pick(["reshape", "broadcast", "pad", "slice"])
        if kind == "reshape":
            out, operands = tuple(reversed(shape)), [sizes(list(reversed(shape)))]
            text = "stablehlo.dynamic_reshape {}, {}"
        elif kind == "broadcast":
            out, operands = (2, *shape), [sizes([2, *shape])]
            text = "stablehlo.dynamic_broadcast_in_dim {}, {}, dims = " + str(list(range(1, rank + 1)))
        elif kind == "pad":
            edges = [self.rng.integers(0, 3, rank).tolist() for _ in range(2)]
            out = tuple(n + lo + hi for n, lo, hi in zip(shape, *edges, strict=True))
            value = self.constant((), dtype)
            operands = [sizes(edges[0]), sizes(edges[1]), sizes([0] * rank)]
            types = ", ".join([t, type_of((), dtype), *[f"tensor<{rank}xi64>"] * 3])
            self.emit(
                out,
                dtype,
                f"stablehlo.dynamic_pad {x}, {value}, {', '.join(operands)} : ({types}) -> {type_of(out, dtype)}",
            )
            return
        else:
            low = [self.below(0, n) for n in shape]
            out = tuple(n - lo for n, lo in zip(shape, low, strict=True))
            operands = [sizes(low), sizes(list(shape)), sizes([1] * rank)]
            text = "stablehlo.real_dynamic_slice {}, {}, {}, {}"
        types = ", ".join([t, *[f"tensor<{len(out) if kind != 'slice' else rank}xi64>"] * len(operands)])
        self.emit(out, dtype, f"{text.format(x, *operands)} : ({types}) -> {type_of(out, dtype)}")

    def results(self) -> list[Named]:
        """Recent values, some of them repeated, views of them, and arguments."""
        live = [v for v in self.values if v[2] != "i1"]
        results = [self.pick(live[-5:]), self.pick(live), self.pick(live)]
        if self.chance(0.2):
            results.append(self.pick(results))
        if self.chance(0.2):
            name, shape, dtype = self.pick(results)
            flat = (count_of(shape),)
            text = f"stablehlo.reshape {name} : ({type_of(shape, dtype)}) -> {type_of(flat, dtype)}"
            results.append((self.emit(flat, dtype, text), flat, dtype))
        if self.chance(0.2):
            results.insert(0, live[self.below(0, 3)])
        return results

    def program(self) -> tuple[str, list[np.ndarray]]:
        """Text and arguments."""
        arguments = []
        for i in range(3):
            shape, dtype = self.shape(self.pick([1, 2, 2, 3])), self.pick(["f32", "f32", "i32"])
            self.values.append((f"%arg{i}", shape, dtype))
            x = self.rng.integers(-4, 5, shape) if dtype == "i32" else self.rng.standard_normal(shape)
            arguments.append(np.asarray(x, np.int32 if dtype == "i32" else np.float32))
        inputs = ", ".join(f"{n}: {type_of(s, d)}" for n, s, d in self.values)
        choices = self.control if self.chance(0.3) else self.every
        for _ in range(self.size):
            self.step(choices)
        results = self.results()
        types = [type_of(s, d) for _, s, d in results]
        body = "\n".join("  " + line for line in self.lines)
        names = ", ".join(n for n, _, _ in results)
        text = (
            f"func.func @main({inputs}) -> ({', '.join(types)}) {{\n{body}\n  return {names} : {', '.join(types)}\n}}\n"
        )
        return text, arguments


def random_program(seed: int, size: int = 12) -> tuple[str, list[np.ndarray]]:
    """Text and arguments of program number `seed`."""
    return Generator(seed, size).program()
