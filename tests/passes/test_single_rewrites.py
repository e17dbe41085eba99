"""Every single rewrite leaves a valid function, whatever the operands are.

Random programs whose operands may be empty, constant, splat or the same value twice go through all passes. After each
visit of a rewriter, the ops that it appended are checked against their records, and every operand must be defined
before its use. The identities of simplify are verified after the first one, the first two, and so on.
`SHLO_JIT_REWRITES=2000 pytest -m slow tests/passes/test_single_rewrites.py` checks that many programs.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from alone import main_of

import shlo_jit
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ops import OPS
from shlo_jit.passes import run_passes
from shlo_jit.passes.identities import identities_of
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.passes.simplify import simplify
from shlo_jit.reference.interpreter import evaluate
from shlo_jit.verify.check_op import check_op
from shlo_jit.verify.verifier import check_scopes, verify_function

FAST, MANY = 25, int(os.environ.get("SHLO_JIT_REWRITES", "500"))
ARGUMENTS = {"x": (2, 3), "y": (1, 3), "e": (0, 3), "s": (), "w": (3, 2)}
Shape = tuple[int, ...]


# ---------------------------------------------------------------------------- programs
def tensor(shape: Shape, element: str = "f32") -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + element + ">"


def without(shape: Shape, dimension: int) -> Shape:
    return shape[:dimension] + shape[dimension + 1 :]


class Writer:
    """Writes a random program. Elements are small whole numbers, so every order of a sum gives the same result."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.values: list[tuple[str, Shape]] = [(f"%{name}", shape) for name, shape in ARGUMENTS.items()]
        self.count = 0

    def text(self, ops: int) -> str:
        for shape in ((2, 3), (1, 3), (0, 3), (2, 0), ()):
            self.constant(shape, splat=self.rng.random() < 0.5)
        for _ in range(ops):
            self.rng.choice(KINDS)(self)
        results = self.values[-3:]
        types = ", ".join(tensor(shape) for _, shape in results)
        head = ", ".join(f"%{name}: {tensor(shape)}" for name, shape in ARGUMENTS.items())
        names = ", ".join(name for name, _ in results)
        body = "\n".join(self.lines)
        return f"func.func @main({head}, %p: tensor<i1>, %i: tensor<i32>) -> ({types}) {{\n{body}\nreturn {names} : {types} }}"

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def add(self, expression: str, shape: Shape) -> None:
        name = self.name()
        self.lines.append(f"{name} = {expression}")
        self.values.append((name, shape))

    def any(self, fits: Callable[[Shape], bool] = lambda shape: True) -> tuple[str, Shape]:
        return self.rng.choice([v for v in self.values if fits(v[1])])

    # ------------------------------------------------------------------ ops
    def constant(self, shape: Shape = (2, 3), splat: bool = True) -> None:
        numbers = [self.rng.choice([0, 1, -1, 2]) for _ in range(int(np.prod(shape)))]
        array = np.full(shape, numbers[0]) if splat and numbers else np.reshape(numbers, shape)
        written = f"{float(array.reshape(-1)[0])}" if splat and array.size else str(array.astype(float).tolist())
        self.add(f"stablehlo.constant dense<{written if array.size else ''}> : {tensor(shape)}", shape)

    def binary(self) -> None:
        x, shape = self.any()
        y, _ = self.any(lambda s: s == shape)
        kind = self.rng.choice(["add", "subtract", "maximum", "minimum"])
        self.add(f"stablehlo.{kind} {x}, {y} : {tensor(shape)}", shape)

    def select(self) -> None:
        x, shape = self.any()
        y, _ = self.any(lambda s: s == shape)
        self.add(f"stablehlo.select %p, {x}, {y} : tensor<i1>, {tensor(shape)}", shape)

    def concatenate(self) -> None:
        first = self.any(bool)
        d = self.rng.randrange(len(first[1]))
        parts = [
            first,
            *(
                self.any(lambda s: len(s) == len(first[1]) and without(s, d) == without(first[1], d))
                for _ in range(self.rng.randrange(4))
            ),
        ]
        self.rng.shuffle(parts)
        shape = (*first[1][:d], sum(s[d] for _, s in parts), *first[1][d + 1 :])
        types = ", ".join(tensor(s) for _, s in parts)
        self.add(
            f"stablehlo.concatenate {', '.join(n for n, _ in parts)}, dim = {d} : ({types}) -> {tensor(shape)}", shape
        )

    def slice(self) -> None:
        x, shape = self.any()
        starts = [self.rng.choice([0, self.rng.randint(0, n)]) for n in shape]
        limits = [self.rng.choice([n, self.rng.randint(a, n)]) for a, n in zip(starts, shape, strict=True)]
        out = tuple(b - a for a, b in zip(starts, limits, strict=True))
        ranges = ", ".join(f"{a}:{b}" for a, b in zip(starts, limits, strict=True))
        self.add(f"stablehlo.slice {x} [{ranges}] : ({tensor(shape)}) -> {tensor(out)}", out)

    def pad(self) -> None:
        x, shape = self.any()
        value, _ = self.any(lambda s: s == ())
        low = [self.rng.choice([0, 0, 1, -1]) if n else self.rng.choice([0, 1]) for n in shape]
        high = [self.rng.choice([0, 0, 1]) for _ in shape]
        out = tuple(max(0, n + a + b) for n, a, b in zip(shape, low, high, strict=True))
        self.add(
            f"stablehlo.pad {x}, {value}, low = {low}, high = {high}, interior = {[0] * len(shape)} : ({tensor(shape)}, tensor<f32>) -> {tensor(out)}",
            out,
        )

    def reshape(self) -> None:
        x, shape = self.any()
        out = self.rng.choice([(*shape, 1), (1, *shape), shape, (int(np.prod(shape)),)])[-4:]
        if np.prod(out) == np.prod(shape):
            self.add(f"stablehlo.reshape {x} : ({tensor(shape)}) -> {tensor(out)}", tuple(out))

    def transpose(self) -> None:
        x, shape = self.any()
        order = list(range(len(shape)))
        self.rng.shuffle(order)
        out = tuple(shape[d] for d in order)
        self.add(f"stablehlo.transpose {x}, dims = {order} : ({tensor(shape)}) -> {tensor(out)}", out)

    def broadcast(self) -> None:
        x, shape = self.any(lambda s: len(s) < 3)
        out = (*shape, self.rng.choice([0, 1, 2]))
        self.add(
            f"stablehlo.broadcast_in_dim {x}, dims = {list(range(len(shape)))} : ({tensor(shape)}) -> {tensor(out)}",
            out,
        )

    def reverse(self) -> None:
        x, shape = self.any(bool)
        self.add(f"stablehlo.reverse {x}, dims = [{self.rng.randrange(len(shape))}] : {tensor(shape)}", shape)

    def reduce(self) -> None:
        x, shape = self.any(bool)
        init, _ = self.any(lambda s: s == ())
        d, kind = self.rng.randrange(len(shape)), self.rng.choice(["add", "maximum"])
        out = (*shape[:d], *shape[d + 1 :])
        self.add(
            f"stablehlo.reduce({x} init: {init}) applies stablehlo.{kind} across dimensions = [{d}] : ({tensor(shape)}, tensor<f32>) -> {tensor(out)}",
            out,
        )

    def update(self) -> None:
        x, shape = self.any()
        y, inner = self.any(lambda s: len(s) == len(shape) and all(k <= n for k, n in zip(s, shape, strict=True)))
        starts = "".join(", %i" for _ in shape)
        types = ", ".join([tensor(shape), tensor(inner), *["tensor<i32>"] * len(shape)])
        self.add(f"stablehlo.dynamic_update_slice {x}, {y}{starts} : ({types}) -> {tensor(shape)}", shape)

    def part(self) -> None:
        x, shape = self.any()
        out = tuple(self.rng.randint(0, n) for n in shape)
        starts = "".join(", %i" for _ in shape)
        types = ", ".join([tensor(shape), *["tensor<i32>"] * len(shape)])
        self.add(f"stablehlo.dynamic_slice {x}{starts}, sizes = {list(out)} : ({types}) -> {tensor(out)}", out)

    def product(self) -> None:
        x, shape = self.any(lambda s: len(s) == 2)
        others = [v for v in self.values if len(v[1]) == 2 and v[1][0] == shape[1]]
        if not others:
            return
        y, other = self.rng.choice(others)
        out = (shape[0], other[1])
        self.add(
            f"stablehlo.dot_general {x}, {y}, contracting_dims = [1] x [0] : ({tensor(shape)}, {tensor(other)}) -> {tensor(out)}",
            out,
        )

    def barrier(self) -> None:
        x, shape = self.any()
        self.add(f"stablehlo.optimization_barrier {x} : {tensor(shape)}", shape)

    def branch(self) -> None:
        """An if whose condition may be known."""
        x, shape = self.any()
        y, _ = self.any(lambda s: s == shape)
        c, t = self.name(), tensor(shape)
        known = self.rng.choice(["", "true", "false"])
        condition = f"stablehlo.constant dense<{known}> : tensor<i1>" if known else "stablehlo.not %p : tensor<i1>"
        self.lines.append(f"{c} = {condition}")
        self.add(
            f'"stablehlo.if"({c}) ({{ {c}a = stablehlo.add {x}, {y} : {t}\nstablehlo.return {c}a : {t} }}, {{ stablehlo.return {y} : {t} }}) : (tensor<i1>) -> {t}',
            shape,
        )

    def loop(self) -> None:
        """A while of two iterations that passes a value on, and reads it."""
        x, shape = self.any()
        y, _ = self.any(lambda s: s == shape)
        n, t = self.name(), tensor(shape)
        self.lines.append(
            f"{n}z = stablehlo.constant dense<0> : tensor<i32>\n{n}t = stablehlo.constant dense<2> : tensor<i32>\n{n}o = stablehlo.constant dense<1> : tensor<i32>"
        )
        self.lines.append(f"""{n}:3 = stablehlo.while({n}k = {n}z, {n}a = {x}, {n}b = {y}) : tensor<i32>, {t}, {t} cond {{
          {n}c = stablehlo.compare LT, {n}k, {n}t : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return {n}c : tensor<i1> }} do {{
          {n}j = stablehlo.add {n}k, {n}o : tensor<i32>
          {n}s = stablehlo.subtract {n}b, {n}a : {t}
          stablehlo.return {n}j, {n}a, {n}s : tensor<i32>, {t}, {t} }}""")
        self.values += [(f"{n}#1", shape), (f"{n}#2", shape)]


KINDS = [
    Writer.binary, Writer.select, Writer.slice, Writer.pad, Writer.reshape, Writer.transpose, Writer.broadcast,
    Writer.reverse, Writer.reduce, Writer.update, Writer.part, Writer.product, Writer.barrier, Writer.branch, Writer.loop,
    *[Writer.concatenate] * 3, *[Writer.constant] * 2,
]  # fmt: skip


# ---------------------------------------------------------------------------- checks
class Checker:
    """Checks the ops that rewriters append, after every visit."""

    def __init__(self) -> None:
        self.visits = 0
        self.seen: dict[Block, int] = {}

    def after(self, rw: Rewriter) -> None:
        self.visits += 1
        visible: set[Value] = set()
        for block in rw.blocks:
            visible.update(block.arguments)
            start = self.seen.get(block, 0)
            for op in block.ops[:start]:
                visible.update(op.results)
            for op in block.ops[start:]:
                check(op, visible)
                visible.update(op.results)
            self.seen[block] = len(block.ops)


def check(op: Op, visible: set[Value]) -> None:
    """Checks an op that has just been appended: it is valid, and its operands are defined."""
    inside = [found for region in op.regions for block in region.blocks for found in check_scopes(block, set(visible))]
    wrong = [v for v in op.operands if v not in visible]
    assert not wrong and not inside, f"{op} reads what stands nowhere: {wrong} {inside}"
    if op.name in OPS:
        check_op(op, OPS[op.name])


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Checker:
    found = Checker()
    before = Rewriter.run

    def run(self: Rewriter, ops: Sequence[Op]) -> None:
        for op in ops:
            before(self, [op])
            found.after(self)

    monkeypatch.setattr(Rewriter, "run", run)
    return found


def first_identities(most: int) -> tuple[Callable[[str], tuple[Any, ...]], list[str]]:
    """Returns the identities with a limit on how many apply, and the equations of those that did."""
    applied: list[str] = []

    def limited(rule: Callable[..., Any]) -> Callable[..., Any]:
        def apply(*given: Any) -> Any:
            if len(applied) >= most:
                return None
            found = rule(*given)
            if found is not None:
                applied.append(rule.__doc__ or "")
            return found

        return apply

    return lambda name: tuple(map(limited, identities_of(name))), applied


def check_every_prefix(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Simplifies with the first identity that applies, the first two, and so on. Returns how many there are."""
    function, context = main_of(text)
    for most in range(1000):
        rules, applied = first_identities(most)
        monkeypatch.setattr(sys.modules[simplify.__module__], "identities_of", rules)
        found = verify_function(simplify(function, context))
        assert not found, f"after {applied[-1]}:\n{found[0]}"
        if len(applied) < most:
            return len(applied)
    raise AssertionError("there is no end of identities")


def check_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """Returns the program, and how many identities applied in one sweep."""
    text = Writer(seed).text(12)
    assert shlo_jit.verify(text) == [], text
    with monkeypatch.context() as patch:
        count = check_every_prefix(text, patch)
    run_passes(*main_of(text))
    return text, count


def arrays() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(1)
    yield from (rng.integers(-3, 4, shape).astype(np.float32) for shape in ARGUMENTS.values())
    yield np.array(True)
    yield np.array(1, np.int32)


def check_results(text: str) -> None:
    given = list(arrays())
    got = shlo_jit.compile(text, cache=False, threads=1)(*given)
    for g, w in zip(got, evaluate(shlo_jit.parse(text), *given), strict=True):
        np.testing.assert_array_equal(g, w)


def test_random_programs(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for seed in range(FAST):
        text, count = check_program(seed, monkeypatch)
        counts.append(count)
        if seed % 5 == 0:
            check_results(text)
    assert checker.visits > 20 * FAST and sum(counts) > FAST


@pytest.mark.slow
def test_many_random_programs(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for seed in range(1000, 1000 + MANY):
        text, count = check_program(seed, monkeypatch)
        counts.append(count)
        check_results(text)
    print(f"{MANY} programs, {checker.visits:,} visits, {sum(counts):,} identities")
    assert sum(counts) > MANY


EMPTY = "tensor<0x3xf32>"
OPERANDS = {
    "an empty one and a constant": f"%e, %c, %x, dim = 0 : ({EMPTY}, tensor<1x3xf32>, tensor<2x3xf32>) -> tensor<3x3xf32>",
    "a constant twice": f"%c, %c, %e, dim = 0 : (tensor<1x3xf32>, tensor<1x3xf32>, {EMPTY}) -> tensor<2x3xf32>",
    "splats about an empty one": f"%o, %e, %o, dim = 0 : (tensor<1x3xf32>, {EMPTY}, tensor<1x3xf32>) -> tensor<2x3xf32>",
    "empty ones alone": f"%e, %e, dim = 0 : ({EMPTY}, {EMPTY}) -> {EMPTY}",
}


@pytest.mark.parametrize("case", OPERANDS)
def test_concatenations(case: str, checker: Checker) -> None:
    operands = OPERANDS[case]
    text = f"""func.func @main(%x: tensor<2x3xf32>) -> {operands.rpartition("-> ")[2]} {{
      %e = stablehlo.constant dense<> : {EMPTY}
      %c = stablehlo.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
      %o = stablehlo.constant dense<1.0> : tensor<1x3xf32>
      %r = stablehlo.concatenate {operands}
      return %r : {operands.rpartition("-> ")[2]}
    }}"""
    x = np.ones((2, 3), np.float32)
    (want,) = evaluate(shlo_jit.parse(text), x)
    np.testing.assert_array_equal(shlo_jit.compile(text, cache=False)(x), want)
