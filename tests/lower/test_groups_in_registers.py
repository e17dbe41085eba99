"""Sums over groups of products of bytes: all numbers are such that sums are exact in any order, so results are equal to
NumPy's, in guarded memory, for any number of threads.

    RANDOM_PROGRAMS=2000 pytest -m slow tests/lower/test_groups_in_registers.py
"""

from __future__ import annotations

import random
from collections import Counter

import guarded
import ml_dtypes
import numpy as np
import pytest
from random_runs import seeds

from shlo_jit import tuning
from shlo_jit.lower.kernels import values_of_vectors

INTEGERS = {
    "i8": (np.dtype(np.int8), -128, 127),
    "ui8": (np.dtype(np.uint8), 0, 255),
    "i4": (np.dtype(ml_dtypes.int4), -8, 7),
    "ui4": (np.dtype(ml_dtypes.uint4), 0, 15),
    "i2": (np.dtype(ml_dtypes.int2), -2, 1),
}
TARGETS = ("native", "native", "native", "x86-64-v3", "x86-64-v2")
THRESHOLDS = {
    "PARALLEL_WORK": 1,
    "TASK_WORK": 64,
    "COMPUTED_OPERAND_BYTES": 0,
    "SMALL_PRODUCT": 0,
    "SMALL_PRODUCT_STRIDED": 0,
    "SMALL_VECTOR_PRODUCT": 0,
}
"""Thresholds for which small products compute operands, and have several tasks."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in THRESHOLDS.items():
        monkeypatch.setattr(tuning, name, value)


class Case:
    """x[r, g, t] and q[o, g, t]: the sum over g of the integer products times scales, with or without an offset."""

    def __init__(self, seed: int) -> None:
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        self.kind = rng.choice(list(INTEGERS))
        self.rows, self.outputs = rng.choice((1, 2, 3, 5, 8, 13, 21)), rng.choice((8, 16, 24, 33, 48))
        self.groups, self.terms = rng.choice((2, 3, 16, 18, 23, 37)), rng.choice((4, 8, 16, 32, 64, 128, 192, 256))
        self.side, self.has_offset, self.is_constant = rng.choice((0, 1)), rng.random() < 0.5, rng.random() < 0.5
        self.is_stacked = rng.random() < 0.25
        self.target = rng.choice(TARGETS)
        dtype, low, high = INTEGERS[self.kind]
        self.x = numbers.integers(-128, 128, (self.rows, self.groups, self.terms)).astype(np.int8)
        shape = (self.outputs, self.groups, self.terms)
        self.q = numbers.integers(low, high + 1, ((3,) if self.is_stacked else ()) + shape).astype(dtype)
        self.s = (2.0 ** numbers.integers(-1, 2, shape[:2])).astype(np.float32)
        self.z = numbers.integers(-3, 4, shape[:2]).astype(np.float32)
        self.is_read = rng.random() < 0.3
        """Whether a loop reads the sum."""
        self.v = (numbers.integers(0, 2, (self.rows, self.groups)) - 0.5).astype(np.float32)
        self.has_scales = rng.random() < 0.5
        """Whether vectors have scales, too, which are computed from `v`."""

    def text(self) -> str:
        r, o, g, t = self.rows, self.outputs, self.groups, self.terms
        q, byte = f"{o}x{g}x{t}x{self.kind}", "ui8" if self.kind == "ui8" else "i8"
        shape = f"{g}x{r}x{o}" if self.side else f"{g}x{o}x{r}"
        dims = {"s": [2, 0] if self.side else [1, 0], "step": [1, 0] if self.side else [2, 0]}
        result = f"{r}x{o}" if self.side else f"{o}x{r}"
        stack = f"3x{q}" if self.is_stacked else q
        lines = [f"%a = stablehlo.convert %q : (tensor<{stack}>) -> tensor<{stack.replace(self.kind, byte)}>"]
        if self.is_stacked:
            sizes = f"sizes = [1, {o}, {g}, {t}]"
            stacked = f"3x{o}x{g}x{t}x{byte}"
            zeros = ", %zero" * 3
            types = f"(tensor<{stacked}>{', tensor<i32>' * 4}) -> tensor<1x{o}x{g}x{t}x{byte}>"
            lines += [
                "%zero = stablehlo.constant dense<0> : tensor<i32>",
                f"%p = stablehlo.dynamic_slice %a, %i{zeros}, {sizes} : {types}",
                f"%m = stablehlo.reshape %p : (tensor<1x{o}x{g}x{t}x{byte}>) -> tensor<{o}x{g}x{t}x{byte}>",
            ]
        else:
            lines.append(f"%m = stablehlo.reshape %a : (tensor<{o}x{g}x{t}x{byte}>) -> tensor<{o}x{g}x{t}x{byte}>")
        operands = [("%x", f"tensor<{r}x{g}x{t}xi8>"), ("%m", f"tensor<{o}x{g}x{t}x{byte}>")]
        (a, ta), (b, tb) = operands if self.side else operands[::-1]
        f = f"tensor<{shape}xf32>"
        lines += [
            f"%d = stablehlo.dot_general {a}, {b}, batching_dims = [1] x [1], contracting_dims = [2] x [2]"
            f" : ({ta}, {tb}) -> tensor<{shape}xi32>",
            f"%f = stablehlo.convert %d : (tensor<{shape}xi32>) -> {f}",
            f"%bs = stablehlo.broadcast_in_dim %s, dims = {dims['s']} : (tensor<{o}x{g}xf32>) -> {f}",
            f"%y = stablehlo.multiply %f, %bs : {f}",
        ]
        if self.has_scales:
            lines += [
                f"%v2 = stablehlo.add %v, %v : tensor<{r}x{g}xf32>",
                f"%bv = stablehlo.broadcast_in_dim %v2, dims = {dims['step']} : (tensor<{r}x{g}xf32>) -> {f}",
                f"%yv = stablehlo.multiply %y, %bv : {f}",
            ]
        y = "%yv" if self.has_scales else "%y"
        if self.has_offset:
            lines += [
                f"%bz = stablehlo.broadcast_in_dim %z, dims = {dims['s']} : (tensor<{o}x{g}xf32>) -> {f}",
                f"%w = stablehlo.add {y}, %bz : {f}",
            ]
        lines += [
            "%n = stablehlo.constant dense<0.0> : tensor<f32>",
            f"%t = stablehlo.reduce({'%w' if self.has_offset else y} init: %n) applies stablehlo.add across"
            f" dimensions = [0] : ({f}, tensor<f32>) -> tensor<{result}xf32>",
            f"%u = stablehlo.add %t, %t : tensor<{result}xf32>" if self.is_read else "",
            f"return {'%u' if self.is_read else '%t'} : tensor<{result}xf32>",
        ]
        heads = [
            f"%x: tensor<{r}x{g}x{t}xi8>",
            f"%q: tensor<{stack}>",
            f"%s: tensor<{o}x{g}xf32>",
            f"%z: tensor<{o}x{g}xf32>",
            "%i: tensor<i32>",
            f"%v: tensor<{r}x{g}xf32>",
        ]
        return f"func.func @main({', '.join(heads)}) -> tensor<{result}xf32> {{\n" + "\n".join(lines) + "\n}"

    def expected(self) -> np.ndarray:
        q = (self.q[1] if self.is_stacked else self.q).astype(np.float64)
        products = np.einsum("rgt,ogt->rog", self.x.astype(np.float64), q) * self.s
        products = products * (2 * self.v[:, None, :] if self.has_scales else 1)
        found = (products + self.z if self.has_offset else products).sum(-1) * (2 if self.is_read else 1)
        return found if self.side else found.T


def run(numbers: range) -> Counter[str]:
    """Checks programs; returns how many of them summed up groups in lanes, by target, how many did not, and in how many
    terms were transposed."""
    found: Counter[str] = Counter()
    for seed in numbers:
        case = Case(seed)
        arrays, schedule = [case.x, case.q, case.s, case.z, np.int32(1), case.v], ""
        try:
            for threads in (1, 2, 3, 8) if seed % 4 == 0 else (1,):
                given = {i: arrays[i] for i in (1, 2, 3)} if case.is_constant else {}
                args = [case.x, np.int32(1), case.v] if case.is_constant else arrays
                options = {"threads": threads, "cache": False, "constants": given, "target": case.target}
                exe = guarded.compile(case.text(), **options)
                out, schedule = guarded.outputs(exe(*args))[0], exe.text("schedule")
                np.testing.assert_array_equal(out, case.expected().astype(np.float32))
        except Exception as e:
            e.add_note(f"program {seed}:\n{case.text()}")
            raise
        found[case.target if "groups   (" in schedule else "others"] += 1
        found["transposed"] += "terms are transposed" in schedule
    return found


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_programs(first: int) -> None:
    found = run(range(first, first + 15))
    assert found["native"] and found["transposed"]


HALVES = """func.func @main(%x: tensor<3x6x32xi8>, %q: tensor<40x6x16xui8>) -> tensor<3x40xf32> {
  %four = stablehlo.constant dense<4> : tensor<40x6x16xui8>
  %mask = stablehlo.constant dense<15> : tensor<40x6x16xui8>
  %low = stablehlo.and %q, %mask : tensor<40x6x16xui8>
  %high = stablehlo.shift_right_logical %q, %four : tensor<40x6x16xui8>
  %both = stablehlo.concatenate %low, %high, dim = 2
    : (tensor<40x6x16xui8>, tensor<40x6x16xui8>) -> tensor<40x6x32xui8>
  %w = stablehlo.convert %both : (tensor<40x6x32xui8>) -> tensor<40x6x32xi8>
  %d = stablehlo.dot_general %x, %w, batching_dims = [1] x [1], contracting_dims = [2] x [2]
    : (tensor<3x6x32xi8>, tensor<40x6x32xi8>) -> tensor<6x3x40xi32>
  %f = stablehlo.convert %d : (tensor<6x3x40xi32>) -> tensor<6x3x40xf32>
  %n = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%f init: %n) applies stablehlo.add across dimensions = [0]
    : (tensor<6x3x40xf32>, tensor<f32>) -> tensor<3x40xf32>
  return %y : tensor<3x40xf32>
}"""


@pytest.mark.parametrize("rows", [3, 50])
def test_halves_of_bytes_that_follow_each_other(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has the low halves of its bytes first, as in GGUF's Q4_0, for few and many rows."""
    monkeypatch.setattr(tuning, "PACKED_FIELDS_BYTES", 0)
    numbers = np.random.default_rng(5)
    x = numbers.integers(-128, 128, (rows, 6, 32)).astype(np.int8)
    q = numbers.integers(0, 256, (40, 6, 16)).astype(np.uint8)
    text = HALVES.replace("<3x", f"<{rows}x").replace("x3x", f"x{rows}x")
    w = np.concatenate([q & 15, q >> 4], -1).astype(np.float64)
    for threads in (1, 2, 3, 8):
        exe = guarded.compile(text, threads=threads)
        assert "groups   (" in exe.text("schedule") or "transposed" in exe.text("schedule")
        np.testing.assert_array_equal(exe(x, q), np.einsum("rgt,ogt->ro", x.astype(np.float64), w).astype(np.float32))


APART = """func.func @main(%x: tensor<5x6x32xi8>, %q: tensor<40x2x6x16xi8>) -> tensor<5x40xf32> {
  %t = stablehlo.transpose %q, dims = [0, 2, 1, 3] : (tensor<40x2x6x16xi8>) -> tensor<40x6x2x16xi8>
  %w = stablehlo.reshape %t : (tensor<40x6x2x16xi8>) -> tensor<40x6x32xi8>
  %d = stablehlo.dot_general %x, %w, batching_dims = [1] x [1], contracting_dims = [2] x [2]
    : (tensor<5x6x32xi8>, tensor<40x6x32xi8>) -> tensor<6x5x40xi32>
  %f = stablehlo.convert %d : (tensor<6x5x40xi32>) -> tensor<6x5x40xf32>
  %n = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%f init: %n) applies stablehlo.add across dimensions = [0]
    : (tensor<6x5x40xf32>, tensor<f32>) -> tensor<5x40xf32>
  return %y : tensor<5x40xf32>
}"""


def test_halves_of_groups_that_are_apart() -> None:
    """The bytes of a group are in two places, with those of the other groups in between."""
    numbers = np.random.default_rng(6)
    x = numbers.integers(-128, 128, (5, 6, 32)).astype(np.int8)
    q = numbers.integers(-128, 128, (40, 2, 6, 16)).astype(np.int8)
    w = q.transpose(0, 2, 1, 3).reshape(40, 6, 32).astype(np.float64)
    for threads in (1, 2, 3, 8):
        found = guarded.compile(APART, threads=threads)(x, q)
        np.testing.assert_array_equal(found, np.einsum("rgt,ogt->ro", x.astype(np.float64), w).astype(np.float32))


@pytest.mark.parametrize("threads", (1, 2, 3, 8))
def test_independent_products_run_together(threads: int) -> None:
    """Two of them, whose tasks share a parallel region (`schedule/regions.py`)."""
    rng = np.random.default_rng(0)
    q = rng.integers(-8, 8, (2, 64, 8, 32)).astype(ml_dtypes.int4)
    s = (2.0 ** rng.integers(-1, 2, (2, 64, 8))).astype(np.float32)
    x = rng.integers(-128, 128, (3, 8, 32)).astype(np.int8)

    def product(n: int) -> str:
        return f"""%m{n} = stablehlo.convert %q{n} : (tensor<64x8x32xi4>) -> tensor<64x8x32xi8>
          %d{n} = stablehlo.dot_general %x, %m{n}, batching_dims = [1] x [1], contracting_dims = [2] x [2]
            : (tensor<3x8x32xi8>, tensor<64x8x32xi8>) -> tensor<8x3x64xi32>
          %f{n} = stablehlo.convert %d{n} : (tensor<8x3x64xi32>) -> tensor<8x3x64xf32>
          %b{n} = stablehlo.broadcast_in_dim %s{n}, dims = [2, 0] : (tensor<64x8xf32>) -> tensor<8x3x64xf32>
          %y{n} = stablehlo.multiply %f{n}, %b{n} : tensor<8x3x64xf32>
          %t{n} = stablehlo.reduce(%y{n} init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<8x3x64xf32>, tensor<f32>) -> tensor<3x64xf32>"""

    heads = ", ".join(f"%q{n}: tensor<64x8x32xi4>, %s{n}: tensor<64x8xf32>" for n in range(2))
    results = "tensor<3x64xf32>, tensor<3x64xf32>"
    text = f"""func.func @main(%x: tensor<3x8x32xi8>, {heads}) -> ({results}) {{
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          {product(0)}
          {product(1)}
          return %t0, %t1 : {results}
        }}"""
    exe = guarded.compile(text, threads=threads, cache=False)
    schedule = exe.text("schedule")
    assert schedule.count("groups   (") == 2
    assert schedule.count("runs with") == 2
    for n, out in enumerate(guarded.outputs(exe(x, q[0], s[0], q[1], s[1]))):
        expected = (np.einsum("rgt,ogt->rog", x.astype(np.float64), q[n].astype(np.float64)) * s[n]).sum(-1)
        np.testing.assert_array_equal(out, expected.astype(np.float32))


@pytest.mark.parametrize(("rows", "matrices", "outputs", "groups", "terms"), [(8, 2, 24, 5, 32), (9, 3, 33, 70, 64)])
def test_outputs_of_several_matrices(rows: int, matrices: int, outputs: int, groups: int, terms: int) -> None:
    """Two dimensions number outputs: blocks of outputs end with the inner one. The second case has several chunks."""
    q, s = f"{matrices}x{outputs}x{groups}x{terms}", f"{matrices}x{outputs}x{groups}xf32"
    product, result = f"{groups}x{rows}x{matrices}x{outputs}", f"{rows}x{matrices}x{outputs}xf32"
    text = f"""func.func @main(%x: tensor<{rows}x{groups}x{terms}xi8>, %q: tensor<{q}xi4>, %s: tensor<{s}>) -> tensor<{result}> {{
      %m = stablehlo.convert %q : (tensor<{q}xi4>) -> tensor<{q}xi8>
      %d = stablehlo.dot_general %x, %m, batching_dims = [1] x [2], contracting_dims = [2] x [3]
        : (tensor<{rows}x{groups}x{terms}xi8>, tensor<{q}xi8>) -> tensor<{product}xi32>
      %f = stablehlo.convert %d : (tensor<{product}xi32>) -> tensor<{product}xf32>
      %b = stablehlo.broadcast_in_dim %s, dims = [2, 3, 0] : (tensor<{s}>) -> tensor<{product}xf32>
      %y = stablehlo.multiply %f, %b : tensor<{product}xf32>
      %n = stablehlo.constant dense<0.0> : tensor<f32>
      %t = stablehlo.reduce(%y init: %n) applies stablehlo.add across dimensions = [0]
        : (tensor<{product}xf32>, tensor<f32>) -> tensor<{result}>
      return %t : tensor<{result}>
    }}"""
    rng = np.random.default_rng(0)
    weights = rng.integers(-8, 8, (matrices, outputs, groups, terms)).astype(ml_dtypes.int4)
    scales = (2.0 ** rng.integers(-1, 2, (matrices, outputs, groups))).astype(np.float32)
    x = rng.integers(-8, 8, (rows, groups, terms)).astype(np.int8)
    exe = guarded.compile(text, threads=2, cache=False)
    assert "terms are transposed" in exe.text("schedule")
    (out,) = guarded.outputs(exe(x, weights, scales))
    wide = np.float64
    wanted = np.einsum("rgt,abgt,abg->rab", x.astype(wide), weights.astype(wide), scales.astype(wide))
    np.testing.assert_array_equal(out, wanted.astype(np.float32))


def test_scales_of_vectors_are_computed_before_the_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing them where they are read gives the same bits, and takes more instructions."""
    cases = (case for case in map(Case, range(1000)) if case.has_scales and case.rows == 8 and case.outputs == 48)
    case = next(case for case in cases if case.side and case.target == "native" and not case.is_read)
    arrays = [case.x, case.q, case.s, case.z, np.int32(1), case.v * np.float32(1.1)]
    found, allocated = list[bytes](), list[int]()
    for most in (0, values_of_vectors.MOST_BYTES):
        monkeypatch.setattr(values_of_vectors, "MOST_BYTES", most)
        exe = guarded.compile(case.text(), threads=2, cache=False)
        assert "terms are transposed" in exe.text("schedule")
        found.append(guarded.outputs(exe(*arrays))[0].tobytes())
        allocated.append(exe.text("lowered").count("alloca float"))
    assert found[0] == found[1] and allocated[1] == allocated[0] + 1


@pytest.mark.slow
def test_many_random_programs() -> None:
    found = run(seeds(600))
    print(found)
    assert found["transposed"] > 0.2 * found["others"]
    assert sum(found[target] for target in {*TARGETS}) > 0.4 * found["others"]
