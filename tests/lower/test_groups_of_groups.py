"""Sums over groups that several variables number: superblocks with scales of their own, and groups that share bytes, as
in GGUF's Q4_K and Q6_K. All sums are exact in any order, so results are equal to NumPy's, in guarded memory.

    RANDOM_PROGRAMS=2000 pytest -m slow tests/lower/test_groups_of_groups.py
"""

from __future__ import annotations

import random
from math import prod

import guarded
import numpy as np
import pytest
from random_operands import tensor
from random_runs import seeds
from test_groups_in_registers import TARGETS, THRESHOLDS

from shlo_jit import tuning


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**THRESHOLDS, "PACKED_FIELDS_BYTES": 0}.items():
        monkeypatch.setattr(tuning, name, value)


class Case:
    """x[r, *g, u, h, t] times q[o, *g, u, h, t], where q of all h share bytes [o, *g, u, t]: the sum over groups of the
    integer products times scales of the groups [o, *g, u, h] and of the superblocks [o, *g]."""

    def __init__(self, seed: int) -> None:
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        self.shared, self.rows, self.outputs = rng.choice((1, 2, 2, 4)), rng.choice((1, 2, 3, 5, 8)), rng.choice((8, 24, 33))
        self.outer = tuple(rng.choice((1, 2, 3, 5)) for _ in range(rng.choice((1, 1, 2))))
        self.runs, self.terms = rng.choice((1, 2, 3, 4, 8, 16)), rng.choice((4, 8, 16, 32, 64, 128))
        self.groups = self.runs * self.shared
        self.side, self.has_offset, self.is_constant = rng.choice((0, 1)), rng.random() < 0.5, rng.random() < 0.5
        self.target = rng.choice(TARGETS)
        self.bits = 8 // self.shared
        o, g = self.outputs, self.outer
        self.x = numbers.integers(-128, 128, (self.rows, *g, self.groups, self.terms)).astype(np.int8)
        self.q = numbers.integers(0, 256, (o, *g, self.runs, self.terms)).astype(np.uint8)
        self.a = (2.0 ** numbers.integers(-1, 2, (o, *g, self.groups))).astype(np.float32)
        self.d = (2.0 ** numbers.integers(-1, 2, (o, *g))).astype(np.float32)
        self.z = numbers.integers(-3, 4, (o, *g, self.groups)).astype(np.float32)

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self.x, self.q, self.a, self.d, self.z]

    def text(self) -> str:
        o, r, g, n, t, s = self.outputs, self.rows, self.outer, self.groups, self.terms, self.shared
        packed, wide = tensor((o, *g, self.runs, t), "ui8"), tensor((o, *g, self.runs, 1, t), "ui8")
        whole, byte = tensor((o, *g, self.runs, s, t), "ui8"), "ui8" if s == 1 else "i8"
        lines, parts = [f"%mask = stablehlo.constant dense<{(1 << self.bits) - 1}> : {packed}"], list[str]()
        for h in range(s):
            lines += [
                f"%n{h} = stablehlo.constant dense<{h * self.bits}> : {packed}",
                f"%s{h} = stablehlo.shift_right_logical %q, %n{h} : {packed}",
                f"%m{h} = stablehlo.and %s{h}, %mask : {packed}",
                f"%p{h} = stablehlo.reshape %m{h} : ({packed}) -> {wide}",
            ]
            parts.append(f"%p{h}")
        matrix, f = tensor((o, *g, n, t), byte), tensor((*g, n, r, o) if self.side else (*g, n, o, r), "f32")
        lines += [
            f"%c = stablehlo.concatenate {', '.join(parts)}, dim = {len(g) + 2} : ({', '.join([wide] * s)}) -> {whole}",
            f"%w = stablehlo.reshape %c : ({whole}) -> {tensor((o, *g, n, t), 'ui8')}",
            f"%v = stablehlo.convert %w : ({tensor((o, *g, n, t), 'ui8')}) -> {matrix}",
        ]
        operands = [("%x", tensor((r, *g, n, t), "i8")), ("%v", matrix)]
        (a, ta), (b, tb) = operands if self.side else operands[::-1]
        batch, last = list(range(1, len(g) + 2)), len(g) + 2
        products = f.replace("xf32", "xi32")
        of_output = len(g) + 1 + self.side
        scales = {"%a": (tensor((o, *g, n), "f32"), [of_output, *range(len(g) + 1)])}
        scales["%d"] = tensor((o, *g), "f32"), [of_output, *range(len(g))]
        scales["%z"] = scales["%a"]
        lines += [
            f"%y = stablehlo.dot_general {a}, {b}, batching_dims = {batch} x {batch}, contracting_dims = [{last}] x"
            f" [{last}] : ({ta}, {tb}) -> {products}",
            f"%f = stablehlo.convert %y : ({products}) -> {f}",
            *(
                f"%b{name[1:]} = stablehlo.broadcast_in_dim {name}, dims = {dims} : ({kind}) -> {f}"
                for name, (kind, dims) in scales.items()
            ),
            f"%ad = stablehlo.multiply %ba, %bd : {f}",
            f"%t = stablehlo.multiply %f, %ad : {f}",
            f"%u = stablehlo.{'add' if self.has_offset else 'maximum'} %t, {'%bz' if self.has_offset else '%t'} : {f}",
            "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        ]
        result = tensor((r, o) if self.side else (o, r), "f32")
        lines.append(
            f"%sum = stablehlo.reduce(%u init: %zero) applies stablehlo.add across dimensions ="
            f" {list(range(len(g) + 1))} : ({f}, tensor<f32>) -> {result}"
        )
        heads = f"%x: {operands[0][1]}, %q: {packed}, " + ", ".join(f"{k}: {kind}" for k, (kind, _) in scales.items())
        return f"func.func @main({heads}) -> {result} {{\n" + "\n".join(lines) + f"\nreturn %sum : {result}\n}}"

    def expected(self) -> np.ndarray:
        fields = np.stack([self.q >> h * self.bits & (1 << self.bits) - 1 for h in range(self.shared)], -2)
        w = fields.astype(np.float64).reshape(self.outputs, -1, self.terms)
        x = self.x.astype(np.float64).reshape(self.rows, -1, self.terms)
        scales = (self.a * self.d[..., None]).reshape(self.outputs, -1)
        found = np.einsum("rgt,ogt->rog", x, w) * scales
        found = (found + self.z.reshape(self.outputs, -1) if self.has_offset else found).sum(-1)
        return found if self.side else found.T


def run(numbers: range) -> int:
    """Checks programs; returns how many of them summed up groups in lanes."""
    count = 0
    for seed in numbers:
        case = Case(seed)
        if prod(case.q.shape) > 1 << 19:
            continue
        held = {i: case.arrays[i] for i in (1, 2, 3, 4)} if case.is_constant else {}
        given = [a for i, a in enumerate(case.arrays) if i not in held]
        schedule = ""
        try:
            for threads in (1, 2, 3, 8) if seed % 4 == 0 else (1,):
                exe = guarded.compile(case.text(), threads=threads, cache=False, constants=held, target=case.target)
                found, schedule = guarded.outputs(exe(*given))[0], exe.text("schedule")
                np.testing.assert_array_equal(found, case.expected().astype(np.float32))
        except Exception as e:
            e.add_note(f"program {seed}:\n{case.text()}")
            raise
        count += "groups   (" in schedule or "terms are transposed" in schedule
    return count


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_programs(first: int) -> None:
    assert run(range(first, first + 15)) >= 3


@pytest.mark.slow
def test_many_random_programs() -> None:
    run(seeds(300))
