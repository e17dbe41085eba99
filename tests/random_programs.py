"""Random StableHLO programs: typed text over elementwise ops, index maps, reductions, products, updates and loops."""

from __future__ import annotations

import numpy as np

UNARY = "negate abs floor ceil sign sqrt tanh exponential".split()
BINARY = "add subtract multiply maximum minimum".split()
INT_BINARY = "add subtract multiply maximum minimum and or xor divide remainder".split()


def type_of(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


class Generator:
    """Writes one program. `values` are (name, shape, dtype) of what may be read."""

    def __init__(self, seed: int, size: int):
        self.rng = np.random.default_rng(seed)
        self.size = size
        self.lines: list[str] = []
        self.count = 0
        self.values: list[tuple[str, tuple[int, ...], str]] = []

    # ------------------------------------------------------------------ choices
    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = int(self.rng.integers(0, 4)) if rank is None else rank
        return tuple(int(self.pick([1, 2, 3, 4, 5, 8, 17, 20])) for _ in range(rank))

    def new(self, shape: tuple[int, ...], dtype: str) -> str:
        name = f"%v{self.count}"
        self.count += 1
        self.values.append((name, shape, dtype))
        return name

    def any(self, dtype: str | None = None, rank: int = 0) -> tuple[str, tuple[int, ...], str]:
        found = [v for v in self.values if dtype in (None, v[2]) and len(v[1]) >= rank and v[2] != "i1"]
        recent = found[-6:]
        return self.pick(recent if self.rng.random() < 0.7 else found)

    def same(self, shape: tuple[int, ...], dtype: str) -> str:
        """A value of a type: one there is, or a broadcast constant."""
        found = [v[0] for v in self.values if v[1:] == (shape, dtype)]
        if found and self.rng.random() < 0.8:
            return self.pick(found)
        return self.constant(shape, dtype)

    def constant(self, shape: tuple[int, ...], dtype: str, value: float | None = None) -> str:
        value = int(self.rng.integers(-3, 4)) if value is None else value
        name = self.new(shape, dtype)
        self.lines.append(f"{name} = stablehlo.constant dense<{value}{'.0' if dtype[0] == 'f' else ''}> : {type_of(shape, dtype)}")
        return name

    def emit(self, shape: tuple[int, ...], dtype: str, text: str) -> str:
        name = self.new(shape, dtype)
        self.lines.append(f"{name} = {text}")
        return name

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

    def broadcast(self) -> None:
        x, shape, dtype = self.any()
        target = self.shape(min(4, len(shape) + int(self.rng.integers(0, 3))))
        if len(target) < len(shape):
            return
        dims = sorted(self.rng.choice(len(target), len(shape), replace=False).tolist())
        full = list(target)
        for d, n in zip(dims, shape, strict=True):
            if n != 1:
                full[d] = n
        if np.prod(full, initial=1) > 4000:
            return
        text = f"stablehlo.broadcast_in_dim {x}, dims = {dims} : ({type_of(shape, dtype)}) -> {type_of(tuple(full), dtype)}"
        self.emit(tuple(full), dtype, text)

    def transpose(self) -> None:
        x, shape, dtype = self.any()
        p = self.rng.permutation(len(shape)).tolist()
        out = tuple(shape[i] for i in p)
        self.emit(out, dtype, f"stablehlo.transpose {x}, dims = {p} : ({type_of(shape, dtype)}) -> {type_of(out, dtype)}")

    def reshape(self) -> None:
        x, shape, dtype = self.any()
        rest, out = int(np.prod(shape, initial=1)), []
        while rest > 1:
            factors = [f for f in range(2, rest + 1) if rest % f == 0]
            f = self.pick(factors)
            out.append(f)
            rest //= f
        if self.rng.random() < 0.3:
            out.insert(int(self.rng.integers(len(out) + 1)), 1)
        self.emit(tuple(out), dtype, f"stablehlo.reshape {x} : ({type_of(shape, dtype)}) -> {type_of(tuple(out), dtype)}")

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
        dims = [d for d in range(len(shape)) if self.rng.random() < 0.5]
        self.emit(shape, dtype, f"stablehlo.reverse {x}, dims = {dims} : {type_of(shape, dtype)}")

    def pad(self) -> None:
        x, shape, dtype = self.any()
        low = [int(self.rng.integers(-1, 3)) for _ in shape]
        high = [int(self.rng.integers(0, 3)) for _ in shape]
        gap = [int(self.pick([0, 0, 0, 1])) for _ in shape]
        out = tuple(lo + n + hi + max(0, n - 1) * g for lo, n, hi, g in zip(low, shape, high, gap, strict=True))
        if any(n < 1 for n in out) or np.prod(out, initial=1) > 4000:
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
        types = ", ".join(type_of(p[1], dtype) for p in parts)
        names = ", ".join(p[0] for p in parts)
        self.emit(tuple(out), dtype, f"stablehlo.concatenate {names}, dim = {d} : ({types}) -> {type_of(tuple(out), dtype)}")

    def reduce(self) -> None:
        x, shape, dtype = self.any(rank=1)
        dims = sorted(self.rng.choice(len(shape), int(self.rng.integers(1, len(shape) + 1)), replace=False).tolist())
        op = self.pick(["add", "maximum", "minimum"])
        init = self.constant((), dtype)
        out = tuple(n for d, n in enumerate(shape) if d not in dims)
        t = f"({type_of(shape, dtype)}, {type_of((), dtype)}) -> {type_of(out, dtype)}"
        text = f"stablehlo.reduce({x} init: {init}) applies stablehlo.{op} across dimensions = {dims} : {t}"
        name = self.emit(out, dtype, text)
        if self.rng.random() < 0.5:  # back over the reduced dimensions, as softmax does
            kept = [d for d in range(len(shape)) if d not in dims]
            full, small = type_of(shape, dtype), type_of(out, dtype)
            y = self.emit(shape, dtype, f"stablehlo.broadcast_in_dim {name}, dims = {kept} : ({small}) -> {full}")
            self.emit(shape, dtype, f"stablehlo.subtract {x}, {y} : {full}")

    def iota(self) -> None:
        shape, dtype = self.shape(int(self.rng.integers(1, 4))), self.pick(["f32", "i32"])
        d = int(self.rng.integers(len(shape)))
        self.emit(shape, dtype, f"stablehlo.iota dim = {d} : {type_of(shape, dtype)}")

    def dot(self) -> None:
        x, shape, dtype = self.any("f32", rank=2)
        if len(shape) != 2:
            return
        n = int(self.pick([1, 3, 16, 20]))
        w = self.constant((shape[1], n), dtype) if self.rng.random() < 0.5 else None
        if w is None:
            w = self.emit((shape[1], n), dtype, f"stablehlo.iota dim = 0 : {type_of((shape[1], n), dtype)}")
        t = f"({type_of(shape, dtype)}, {type_of((shape[1], n), dtype)}) -> {type_of((shape[0], n), dtype)}"
        self.emit((shape[0], n), dtype, f"stablehlo.dot_general {x}, {w}, contracting_dims = [1] x [0] : {t}")

    def dynamic(self) -> None:
        x, shape, dtype = self.any(rank=1)
        starts = [self.constant((), "i32") for _ in shape]
        sizes = tuple(int(self.rng.integers(1, n + 1)) for n in shape)
        scalars = ", ".join(["tensor<i32>"] * len(shape))
        t = f"({type_of(shape, dtype)}, {scalars}) -> {type_of(sizes, dtype)}"
        part = self.emit(sizes, dtype, f"stablehlo.dynamic_slice {x}, {', '.join(starts)}, sizes = {list(sizes)} : {t}")
        update = self.same(sizes, dtype) if self.rng.random() < 0.5 else part
        t = f"({type_of(shape, dtype)}, {type_of(sizes, dtype)}, {scalars}) -> {type_of(shape, dtype)}"
        self.emit(shape, dtype, f"stablehlo.dynamic_update_slice {x}, {update}, {', '.join(starts)} : {t}")

    def loop(self) -> None:
        """A while of a few turns over a counter and two carried tensors."""
        x, shape, dtype = self.any()
        y = self.same(shape, dtype)
        t = type_of(shape, dtype)
        i, k = self.constant((), "i32", 0), self.count
        self.count += 1
        outer = self.values
        self.values = [(f"%a{k}", shape, dtype), (f"%b{k}", shape, dtype)]
        lines, self.lines = self.lines, []
        for _ in range(int(self.rng.integers(1, 4))):
            self.step([self.unary, self.binary, self.binary, self.select, self.reduce, self.dynamic, self.reverse])
        mine = [v[0] for v in self.values if v[1:] == (shape, dtype)]
        one, two = self.pick(mine), self.pick(mine)
        body, self.lines, self.values = self.lines, lines, outer
        turns = int(self.rng.integers(0, 5))
        text = [
            f"%w{k}:3 = stablehlo.while(%i{k} = {i}, %a{k} = {x}, %b{k} = {y}) : tensor<i32>, {t}, {t}",
            "cond {",
            f"%n{k} = stablehlo.constant dense<{turns}> : tensor<i32>",
            f"%c{k} = stablehlo.compare LT, %i{k}, %n{k} : (tensor<i32>, tensor<i32>) -> tensor<i1>",
            f"stablehlo.return %c{k} : tensor<i1>",
            "} do {",
            *body,
            f"%one{k} = stablehlo.constant dense<1> : tensor<i32>",
            f"%j{k} = stablehlo.add %i{k}, %one{k} : tensor<i32>",
            f"stablehlo.return %j{k}, {one}, {two} : tensor<i32>, {t}, {t}",
            "}",
        ]
        self.lines += text
        self.values += [(f"%w{k}#1", shape, dtype), (f"%w{k}#2", shape, dtype)]

    def step(self, choices) -> None:
        try:
            self.pick(choices)()
        except (IndexError, ValueError):  # nothing of the wanted type yet
            return

    def program(self) -> tuple[str, list[np.ndarray]]:
        """Text and arguments."""
        arguments = []
        for i in range(3):
            shape, dtype = self.shape(self.pick([1, 2, 2, 3])), self.pick(["f32", "f32", "i32"])
            self.values.append((f"%arg{i}", shape, dtype))
            x = self.rng.integers(-4, 5, shape) if dtype == "i32" else self.rng.standard_normal(shape)
            arguments.append(np.asarray(x, np.int32 if dtype == "i32" else np.float32))
        inputs = ", ".join(f"{n}: {type_of(s, d)}" for n, s, d in self.values)
        every = [
            self.unary, self.binary, self.binary, self.select, self.convert, self.broadcast, self.transpose, self.reshape,
            self.slice, self.reverse, self.pad, self.concatenate, self.reduce, self.reduce, self.iota, self.dot,
            self.dynamic, self.loop,
        ]  # fmt: skip
        for _ in range(self.size):
            self.step(every)
        live = [v for v in self.values if v[2] != "i1"]
        results = [self.pick(live[-5:]), self.pick(live), self.pick(live)]
        types = [type_of(s, d) for _, s, d in results]
        body = "\n".join("  " + line for line in self.lines)
        names = ", ".join(n for n, _, _ in results)
        text = f"func.func @main({inputs}) -> ({', '.join(types)}) {{\n{body}\n  return {names} : {', '.join(types)}\n}}\n"
        return text, arguments


def random_program(seed: int, size: int = 12) -> tuple[str, list[np.ndarray]]:
    """Text and arguments of program number `seed`."""
    return Generator(seed, size).program()
