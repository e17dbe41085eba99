"""Random sorts and top_ks, their expected results (by NumPy), and runs of them in guarded memory.

As a program:

    python tests/lower/random_sorts.py FIRST COUNT      runs COUNT programs of SORTS sorts each, from seed FIRST on
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from guarded import call

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.types import DTYPES

SORTS = 5
"""Sorts in a program: each is a function of its own arguments."""
THREADS = (1, 2, 3, 8)
KEYS = (
    "i1",
    "i2",
    "i4",
    "ui2",
    "ui4",
    "i8",
    "ui8",
    "i16",
    "i32",
    "ui32",
    "i64",
    "f8E4M3FN",
    "f8E5M2",
    "bf16",
    "f16",
    "f32",
    "f64",
)
CARRIED = ("i1", "i4", "i32", "f32", "f64", "bf16", "complex<f32>")
TARGETS = ("native", "x86-64-v3", "x86-64-v4")
LONG_LINE, CHUNKS = 96, (2, 4, 8)
"""Values of tuning constants while programs are compiled, so that short lines are cut into chunks, too."""
LENGTHS = (1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 130, 255, 256, 257, 300, 511, 700)
"""Lengths near each switch between algorithms: networks, by rank, by digits, in chunks."""


@dataclass
class Program:
    """Arguments, lines of text, results and their expected values."""

    parameters: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)
    expected: list[np.ndarray] = field(default_factory=list)

    @property
    def text(self) -> str:
        names, types = (", ".join(part) for part in zip(*self.results, strict=True))
        lines = "\n".join(self.lines)
        return f"func.func @main({', '.join(self.parameters)}) -> ({types}) {{\n{lines}\nreturn {names} : {types}\n}}"

    def argument(self, array: np.ndarray, dtype: str) -> str:
        name = f"%x{len(self.arrays)}"
        self.parameters.append(f"{name}: {type_of(array.shape, dtype)}")
        self.arrays.append(array)
        return name


def type_of(shape: tuple[int, ...], dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def values(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Returns values, some of which repeat; no NaN, which no comparison orders."""
    dtype = None if name == "complex<f32>" else DTYPES[name]
    if dtype is None:
        return (rng.integers(-9, 9, shape) + 1j * rng.integers(-9, 9, shape)).astype(np.complex64)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        most = int(rng.choice([2, 6, 30]))
        bits = min(dtype.bits, most)
        low = 0 if dtype.kind == "u" else -(1 << (bits - 1))
        return rng.integers(low, low + (1 << bits), shape).astype(dtype.numpy)
    x = rng.integers(-8, 8, shape) / 4.0 if rng.random() < 0.5 else rng.uniform(-100, 100, shape)
    return np.where(x == 0, rng.choice([0.0, -0.0], shape), x).astype(dtype.numpy)


def number(x: np.ndarray) -> np.ndarray:
    """Converts values to numbers that NumPy orders."""
    return x.astype(np.int64) if x.dtype.kind in "biu" or "int" in x.dtype.name else x.astype(np.float64)


def total_order(x: np.ndarray) -> np.ndarray:
    """Converts to numbers that are ordered as floats are in IEEE's total order."""
    y = number(x)
    return np.where((y == 0) & np.signbit(y), -1e-300, y)


def comparator(rng: np.random.Generator, at: int, keys: list[str]) -> tuple[list[str], list[tuple[str, bool]]]:
    """Returns lines of a comparator whose result is %r, and its keys in order: what is computed from the value, and
    whether the larger comes first."""
    lines, how = [], []
    for k, t in enumerate(keys):
        a, b, scalar = f"%a{at + k}", f"%b{at + k}", f"tensor<{t}>"
        down, kind = bool(rng.integers(2)), "plain"
        if t[0] == "f" or t in ("bf16",):
            kind = str(rng.choice(["plain", "total", "magnitude"]))
        elif t in ("i8", "i32", "i64"):
            kind = str(rng.choice(["plain", "loop"]))
        left, right = a, b
        if kind == "magnitude":
            left, right = f"%m{k}", f"%n{k}"
            lines += [f"{left} = stablehlo.abs {a} : {scalar}", f"{right} = stablehlo.abs {b} : {scalar}"]
        elif kind == "loop":
            left, right = f"%m{k}#1", f"%n{k}#1"
            lines += [*halvings(f"%m{k}", a, t), *halvings(f"%n{k}", b, t)]
        order = ", TOTALORDER" if kind == "total" else ""
        direction = "GT" if down else "LT"
        both = f": ({scalar}, {scalar}) -> tensor<i1>"
        lines.append(f"%less{k} = stablehlo.compare {direction}, {left}, {right}{order} {both}")
        lines.append(f"%same{k} = stablehlo.compare EQ, {left}, {right}{order} {both}")
        how.append((kind, down))
    lines.append(f"%t{len(keys) - 1} = stablehlo.and %less{len(keys) - 1}, %less{len(keys) - 1} : tensor<i1>")
    for k in range(len(keys) - 2, -1, -1):
        lines.append(f"%e{k} = stablehlo.and %same{k}, %t{k + 1} : tensor<i1>")
        lines.append(f"%t{k} = stablehlo.or %less{k}, %e{k} : tensor<i1>")
    return [*lines, "stablehlo.return %t0 : tensor<i1>"], how


def halvings(name: str, value: str, t: str) -> list[str]:
    """Returns a loop that counts how often a number can be halved before it is zero: name#1."""
    i = f"tensor<{t}>"
    return [
        f"{name}z = stablehlo.constant dense<0> : {i}", f"{name}one = stablehlo.constant dense<1> : {i}",
        f"{name}two = stablehlo.constant dense<2> : {i}",
        f"{name}:2 = stablehlo.while({name}p = {value}, {name}c = {name}z) : {i}, {i}",
        f"cond {{ {name}g = stablehlo.compare NE, {name}p, {name}z : ({i}, {i}) -> tensor<i1>",
        f"stablehlo.return {name}g : tensor<i1> }} do {{",
        f"{name}h = stablehlo.divide {name}p, {name}two : {i}",
        f"{name}d = stablehlo.add {name}c, {name}one : {i}",
        f"stablehlo.return {name}h, {name}d : {i}, {i} }}",
    ]  # fmt: skip


def key_of(x: np.ndarray, kind: str) -> np.ndarray:
    """Returns the values that a comparator compares."""
    if kind == "total":
        return total_order(x)
    if kind == "loop":
        return np.vectorize(lambda v: abs(int(v)).bit_length())(x)
    return np.abs(number(x)) if kind == "magnitude" else number(x)


def add_sort(p: Program, rng: np.random.Generator, length: int) -> None:
    """Adds a sort by one or two keys that also moves other operands."""
    at, n = len(p.lines), int(rng.integers(1, 3))
    keys = [str(t) for t in rng.choice(KEYS, n)]
    types = [*keys, *(str(t) for t in rng.choice(CARRIED, int(rng.integers(0, 3))))]
    shape = [(length,), (3, length), (length, 2), (9, length)][int(rng.integers(4))]
    dimension = shape.index(length)
    arrays = [values(rng, shape, t) for t in types]
    names = [p.argument(x, t) for x, t in zip(arrays, types, strict=True)]
    tensors = ", ".join(type_of(shape, t) for t in types)
    pairs = ", ".join(f"%a{i}: tensor<{t}>, %b{i}: tensor<{t}>" for i, t in enumerate(types))
    lines, how = comparator(rng, 0, keys)
    stable = "true" if rng.integers(4) or len(types) > n else "false"
    count = f":{len(types)}" if len(types) > 1 else ""
    p.lines += [
        f'%s{at}{count} = "stablehlo.sort"({", ".join(names)}) <{{dimension = {dimension} : i64, is_stable = {stable}}}> ({{',
        f"^bb0({pairs}):", *lines, f"}}) : ({tensors}) -> ({tensors})",
    ]  # fmt: skip
    columns = []
    for (kind, down), x in zip(how, arrays, strict=False):
        key = key_of(x, kind)
        columns.append(-key if down else key)
    order = stable_order(columns, dimension)
    for i, (x, t) in enumerate(zip(arrays, types, strict=True)):
        p.results.append((f"%s{at}#{i}" if count else f"%s{at}", type_of(shape, t)))
        p.expected.append(np.take_along_axis(x, order, dimension))


def stable_order(columns: list[np.ndarray], dimension: int) -> np.ndarray:
    """Returns indices in the stable order of several keys, most significant first."""
    order = np.argsort(columns[-1], dimension, kind="stable")
    for key in columns[-2::-1]:
        again = np.argsort(np.take_along_axis(key, order, dimension), dimension, kind="stable")
        order = np.take_along_axis(order, again, dimension)
    return order


def add_top_k(p: Program, rng: np.random.Generator, length: int) -> None:
    at, t = len(p.lines), str(rng.choice([t for t in KEYS if t != "i1"]))
    shape = [(length,), (3, length), (9, length)][int(rng.integers(3))]
    k = min(length, int(rng.choice([1, 2, 3, 8, 17, 100, 256, 257, length])))
    x = values(rng, shape, t)
    name, out = p.argument(x, t), (*shape[:-1], k)
    types = (type_of(out, t), type_of(out, "i32"))
    p.lines.append(f"%s{at}, %i{at} = chlo.top_k({name}, k = {k}) : {type_of(shape, t)} -> ({types[0]}, {types[1]})")
    order = np.argsort(-total_order(x), -1, kind="stable")[..., :k]
    p.results += zip((f"%s{at}", f"%i{at}"), types, strict=True)
    p.expected += [np.take_along_axis(x, order, -1), order.astype(np.int32)]


def random_program(seed: int, lengths: tuple[int, ...] = LENGTHS, sorts: int = SORTS) -> Program:
    rng, p = np.random.default_rng(seed), Program()
    for _ in range(sorts):
        add = add_top_k if rng.random() < 0.3 else add_sort
        add(p, rng, int(rng.choice(lengths)))
    return p


@contextmanager
def short_lines_in_chunks(chunks: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "SORT_LONG_LINE", LONG_LINE)
        patch.setattr(tuning, "SORT_CHUNKS", chunks)
        yield


def check(p: Program, target: str = "native", threads: tuple[int, ...] = THREADS) -> None:
    """Compares with the expected results of the program, in guarded memory of both kinds, bit by bit, for any number of
    threads."""
    exe = shlo_jit.compile(p.text, target=target, threads=1, cache=False)
    for number_of_threads in threads:
        for at_end in (True, False):
            found = call(exe, p.arrays, at_end, threads=number_of_threads)
            for (name, _), got, want in zip(p.results, found, p.expected, strict=True):
                assert got.tobytes() == want.tobytes(), (name, number_of_threads, at_end, p.text)


def run(seed: int) -> None:
    with short_lines_in_chunks(CHUNKS[seed % len(CHUNKS)]):
        check(random_program(seed), TARGETS[seed % 2])


def main() -> None:
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        print(f"program {seed}", flush=True) if seed % 50 == 0 else None
        run(seed)
    print(f"{count} programs, {count * SORTS} sorts", flush=True)


if __name__ == "__main__":
    main()
