"""Random products of which an operand is computed from narrower arrays: the forms in which programs keep weights, with
odd sizes, any layout, in batches, on either side."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np

NUMPY = {
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16), "i8": np.dtype(np.int8), "ui8": np.dtype(np.uint8), "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4), "i2": np.dtype(ml_dtypes.int2), "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2), "i1": np.dtype(np.bool_), "ui32": np.dtype(np.uint32),
    "i16": np.dtype(np.int16), "i32": np.dtype(np.int32),
}  # fmt: skip
ENDS = {
    "i8": (-128, 127),
    "ui8": (0, 255),
    "i16": (-(1 << 15), (1 << 15) - 1),
    "i4": (-8, 7),
    "ui4": (0, 15),
    "i2": (-2, 1),
}
NARROW = ("i8", "i8", "ui8", "i4", "i4", "ui4", "i2", "f8E4M3FN", "f8E5M2", "bf16", "f16", "i1", "i16")
PRODUCTS = (("f32", "f32"), ("f32", "f32"), ("f32", "f32"), ("f64", "f64"), ("bf16", "f32"), ("i32", "i32"))
"""Elements of operands and result."""
BYTE_PRODUCTS = (("i8", "i32"), ("ui8", "i32"), ("i8", "ui32"), ("ui8", "ui32"))
"""The same of products of bytes, of any values; the other operand may have another sign."""
ROWS, COLUMNS, TERMS = (1, 1, 2, 3, 5, 8, 9, 17, 40), (1, 5, 8, 16, 30, 64, 100, 200), (1, 4, 8, 24, 40, 64, 130, 256)
WORK = 2 << 20
"""Maximum multiply-adds."""


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


class Program:
    """The lines of a program with one product."""

    def __init__(self, seed: int, takes_any: bool = False):
        """`takes_any`: integers have any value of their type."""
        self.takes_any = takes_any
        self.rng = random.Random(seed)
        self.made = np.random.default_rng(seed)
        self.arguments: list[tuple[str, str]] = []
        self.arrays: list[np.ndarray] = []
        self.lines: list[str] = []
        self.count = 0

    def argument(self, shape: tuple[int, ...], dtype: str) -> str:
        """Adds an argument; returns its name."""
        name = f"%a{len(self.arguments)}"
        self.arguments.append((name, tensor(shape, dtype)))
        t = NUMPY[dtype]
        if dtype == "i1":
            array = self.made.integers(0, 2, shape).astype(t)
        elif dtype in ("f32", "f64"):
            array = self.made.standard_normal(shape).astype(t)
        elif dtype in ("ui32",):
            array = self.made.integers(0, 1 << 32, shape).astype(t)
        elif self.takes_any and dtype in ("i8", "ui8", "i16", "i4", "ui4", "i2"):
            low, high = ENDS[dtype]
            array = self.made.integers(low, high + 1, shape).astype(t)
            if self.rng.random() < 0.2:  # the products of these are the largest
                array = np.full(shape, self.rng.choice((low, high)), t)
        else:
            low = -2 if dtype.startswith(("i", "b", "f")) else 0
            array = self.made.integers(low, 2 if dtype == "i2" else 4, shape).astype(t)
        self.arrays.append(array)
        return name

    def op(self, text: str) -> str:
        """Adds an op; returns the name of its result."""
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = stablehlo.{text}")
        return name

    def broadcast(self, x: str, source: tuple[int, ...], dims: list[int], shape: tuple[int, ...], dtype: str) -> str:
        types = f"({tensor(source, dtype)}) -> {tensor(shape, dtype)}"
        return self.op(f"broadcast_in_dim {x}, dims = {dims} : {types}")

    # ------------------------------------------------------------------ the computed operand
    def operand(self, shape: tuple[int, ...], dtype: str) -> str:
        """A computed operand."""
        forms = [self.scaled, self.grouped, self.moved, self.chosen]
        if dtype in ("i8", "ui8") and self.rng.random() < 0.3:
            return self.argument(shape, dtype)
        if dtype in ("f32", "f64", "i32", "i8", "ui8"):
            forms += [self.unpacked, self.stacked]
        return self.rng.choice(forms)(shape, dtype)

    def narrow(self, shape: tuple[int, ...], dtype: str) -> str:
        """A converted argument."""
        kinds = [n for n in NARROW if dtype not in ("i32", "i8", "ui8") or n[0] in "iu"]
        source = self.rng.choice(kinds)
        x = self.argument(shape, source)
        return self.op(f"convert {x} : ({tensor(shape, source)}) -> {tensor(shape, dtype)}")

    def scaled(self, shape: tuple[int, ...], dtype: str) -> str:
        """Converted, and multiplied by scales along some dimensions, perhaps after a zero point is subtracted."""
        x, t = self.narrow(shape, dtype), tensor(shape, dtype)
        for word in ("subtract", "multiply"):
            if self.rng.random() < 0.6:
                dims = [d for d in range(len(shape)) if self.rng.random() < 0.5]
                small = tuple(shape[d] for d in dims)
                s = self.broadcast(self.argument(small, dtype), small, dims, shape, dtype)
                x = self.op(f"{word} {x}, {s} : {t}")
        return x

    def grouped(self, shape: tuple[int, ...], dtype: str) -> str:
        """Scaled in groups along one dimension."""
        d = self.rng.randrange(len(shape))
        groups = self.rng.choice([g for g in (1, 2, 4, 8, shape[d]) if shape[d] % g == 0])
        inside = (*shape[:d], groups, shape[d] // groups, *shape[d + 1 :])
        x = self.scaled(inside, dtype)
        return self.op(f"reshape {x} : ({tensor(inside, dtype)}) -> {tensor(shape, dtype)}")

    def moved(self, shape: tuple[int, ...], dtype: str) -> str:
        """Converted from an array in another order, or from a part of a larger one, or with a border."""
        rank = len(shape)
        kind = self.rng.choice(("transpose", "slice", "reverse", "pad"))
        if kind == "transpose":
            order = self.rng.sample(range(rank), rank)
            before = tuple(shape[order.index(d)] for d in range(rank))
            x = self.scaled(before, dtype)
            return self.op(f"transpose {x}, dims = {order} : ({tensor(before, dtype)}) -> {tensor(shape, dtype)}")
        if kind == "slice":
            starts, steps = [self.rng.randrange(3) for _ in shape], [self.rng.choice((1, 1, 2)) for _ in shape]
            before = tuple(
                s + (n - 1) * k + 1 + self.rng.randrange(2) for n, s, k in zip(shape, starts, steps, strict=True)
            )
            x = self.narrow(before, dtype)
            ranges = (f"{s}:{s + (n - 1) * k + 1}:{k}" for n, s, k in zip(shape, starts, steps, strict=True))
            return self.op(f"slice {x} [{', '.join(ranges)}] : ({tensor(before, dtype)}) -> {tensor(shape, dtype)}")
        if kind == "reverse":
            dims = [d for d in range(rank) if self.rng.random() < 0.5]
            return self.op(f"reverse {self.scaled(shape, dtype)}, dims = {dims} : {tensor(shape, dtype)}")
        low = [self.rng.randrange(min(3, n)) for n in shape]
        before = tuple(n - a for n, a in zip(shape, low, strict=True))
        x = self.narrow(before, dtype)
        zero = self.argument((), dtype)
        nothing = [0] * rank
        types = f"({tensor(before, dtype)}, {tensor((), dtype)}) -> {tensor(shape, dtype)}"
        return self.op(f"pad {x}, {zero}, low = {low}, high = {nothing}, interior = {nothing} : {types}")

    def chosen(self, shape: tuple[int, ...], dtype: str) -> str:
        """One of two scaled arrays, element by element."""
        which, x, y = self.argument(shape, "i1"), self.scaled(shape, dtype), self.scaled(shape, dtype)
        return self.op(f"select {which}, {x}, {y} : {tensor(shape, 'i1')}, {tensor(shape, dtype)}")

    def unpacked(self, shape: tuple[int, ...], dtype: str) -> str:
        """Numbers of four bits, some in each element of an array."""
        packed, each = self.rng.choice((("ui32", 8), ("ui8", 2)))
        fits = [d for d, n in enumerate(shape) if n % each == 0]
        if not fits:
            return self.scaled(shape, dtype)
        d = self.rng.choice(fits)
        small = (*shape[:d], shape[d] // each, *shape[d + 1 :])
        wide = (*shape[:d], shape[d] // each, each, *shape[d + 1 :])
        x = self.argument(small, packed)
        x = self.broadcast(x, small, [i + (i > d) for i in range(len(shape))], wide, packed)
        t = tensor(wide, packed)
        four, mask = (self.op(f"constant dense<{n}> : {t}") for n in (4, 15))
        shifts = self.op(f"multiply {self.op(f'iota dim = {d + 1} : {t}')}, {four} : {t}")
        x = self.op(f"and {self.op(f'shift_right_logical {x}, {shifts} : {t}')}, {mask} : {t}")
        x = self.op(f"reshape {x} : ({t}) -> {tensor(shape, packed)}")
        return self.op(f"convert {x} : ({tensor(shape, packed)}) -> {tensor(shape, dtype)}")

    def stacked(self, shape: tuple[int, ...], dtype: str) -> str:
        """The lower and upper four bits of bytes, side by side or in halves of a block."""
        fits = [d for d, n in enumerate(shape) if n % 2 == 0]
        if not fits:
            return self.scaled(shape, dtype)
        d = self.rng.choice(fits)
        packed = self.rng.choice(("i8", "ui8"))
        half = shape[d] // 2
        block = self.rng.choice([n for n in (1, 4, 16, half) if half % n == 0])
        small = (*shape[:d], half // block, block, *shape[d + 1 :])
        t = tensor(small, packed)
        x = self.argument(small, packed)
        four, mask = (self.op(f"constant dense<{n}> : {t}") for n in (4, 15))
        shift = self.rng.choice(("arithmetic", "logical"))
        low, high = self.op(f"and {x}, {mask} : {t}"), self.op(f"shift_right_{shift} {x}, {four} : {t}")
        wide = (*shape[:d], half // block, 2 * block, *shape[d + 1 :])
        x = self.op(f"concatenate {low}, {high}, dim = {d + 1} : ({t}, {t}) -> {tensor(wide, packed)}")
        x = self.op(f"reshape {x} : ({tensor(wide, packed)}) -> {tensor(shape, packed)}")
        return self.op(f"convert {x} : ({tensor(shape, packed)}) -> {tensor(shape, dtype)}")

    def summed(self, y: str, shape: tuple[int, ...], dtype: str) -> tuple[str, tuple[int, ...]]:
        """The sum over the batch, perhaps of scaled products, in any order of rows and columns."""
        t = tensor(shape, dtype)
        for word in ("multiply", "add"):
            if self.rng.random() < 0.5:
                dims = [d for d in range(len(shape)) if self.rng.random() < 0.5]
                small = tuple(shape[d] for d in dims)
                y = self.op(
                    f"{word} {y}, {self.broadcast(self.argument(small, dtype), small, dims, shape, dtype)} : {t}"
                )
        zero = self.op(f"constant dense<{0 if dtype[0] in 'iu' else 0.0}> : {tensor((), dtype)}")
        rest = shape[1:]
        kinds = f"({t}, {tensor((), dtype)}) -> {tensor(rest, dtype)}"
        return self.op(f"reduce({y} init: {zero}) applies stablehlo.add across dimensions = [0] : {kinds}"), rest


def random_operand(seed: int, products: tuple[tuple[str, str], ...] = PRODUCTS) -> tuple[str, list[np.ndarray]]:
    """A program with a product of which one operand is computed, and its arguments."""
    p = Program(seed, takes_any=products == BYTE_PRODUCTS)
    rng = p.rng
    dtype, out = rng.choice(products)
    given = rng.choice(("i8", "ui8")) if products == BYTE_PRODUCTS else dtype
    few, wide, k = rng.choice(ROWS), rng.choice(COLUMNS), rng.choice(TERMS)
    batch = rng.choice((0, 0, 0, 2, 3))
    while max(batch, 1) * few * wide * k > WORK:
        few, batch = (few + 1) // 2, batch // 2
    side = rng.choice((0, 1, 1, 1))
    lead, at = ((batch,) if batch else ()), int(batch > 0)
    is_last = [rng.random() < 0.5 for _ in range(2)]  # whether the terms are the last dimension
    free = (few, wide)
    shapes = [(*lead, free[i], k) if is_last[i] else (*lead, k, free[i]) for i in range(2)]
    names = [p.argument(shapes[0], given), p.operand(shapes[1], dtype)]
    if dtype == "bf16":  # small integers, whose sums are exact
        p.arrays[0] = p.made.integers(-2, 3, shapes[0]).astype(NUMPY[dtype])
    order = (0, 1) if side else (1, 0)
    dims = "batching_dims = [0] x [0], " if batch else ""
    dims += "contracting_dims = " + " x ".join(f"[{at + is_last[i]}]" for i in order)
    result = (*lead, *(free[i] for i in order))
    types = ", ".join(tensor(shapes[i], (given, dtype)[i]) for i in order)
    t = tensor(result, out)
    y = p.op(f"dot_general {', '.join(names[i] for i in order)}, {dims} : ({types}) -> {t}")
    if batch and rng.random() < 0.5:
        y, result = p.summed(y, result, out)
        t = tensor(result, out)
    then = rng.choice(("", "", "bias", "negate"))
    if then == "bias":
        n = result[-1]
        y = p.op(f"add {y}, {p.broadcast(p.argument((n,), out), (n,), [len(result) - 1], result, out)} : {t}")
    elif then:
        y = p.op(f"negate {y} : {t}")
    body = "\n".join([*p.lines, f"return {y} : {t}"])
    heads = ", ".join(f"{name}: {kind}" for name, kind in p.arguments)
    return f"func.func @main({heads}) -> {t} {{\n{body}\n}}", p.arrays
