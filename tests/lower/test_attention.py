"""Attention by blocks of rows has the bits of the three kernels it replaces, and the scores take no memory."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import guarded
import ml_dtypes
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit.runtime.executable import Executable

NUMPY = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


def t(dtype: str, *extents: int) -> str:
    return "tensor<" + "".join(f"{n}x" for n in extents) + f"{dtype}>"


@dataclass(frozen=True)
class Attention:
    """softmax(q @ k^T * scale + mask) @ v over `batch` heads of m queries and n keys."""

    batch: int
    m: int
    n: int
    k: int
    depth: int
    dtype: str = "f32"
    mask: str = ""
    """`added` (an operand), `causal` (compared iotas), or empty."""
    heads_inside: bool = False
    """Whether operands and result are [rows, heads, features] rather than [heads, rows, features]."""

    @property
    def wide(self) -> str:
        """The element type of scores."""
        return "f64" if self.dtype == "f64" else "f32"

    def operand(self, rows: int, columns: int) -> str:
        return t(self.dtype, *((rows, self.batch, columns) if self.heads_inside else (self.batch, rows, columns)))

    def arguments(self) -> list[str]:
        kinds = [self.operand(self.m, self.k), self.operand(self.n, self.k), self.operand(self.n, self.depth)]
        return [*kinds, *([t(self.wide, self.m, self.n)] if self.mask == "added" else [])]

    def values(self, seed: int = 0) -> list[np.ndarray]:
        rng, out = np.random.default_rng(seed), []
        for kind in self.arguments():
            *extents, dtype = kind[7:-1].split("x")
            out.append(rng.standard_normal([int(x) for x in extents]).astype(NUMPY[dtype]))
        return out

    def text(self, *, returned: bool = False) -> str:
        """Returns the program. With `returned`, the weights are a result too, so that they must be in memory."""
        w, d, at = self.wide, self.dtype, (1, 0) if self.heads_inside else (0, 1)
        scores, sums, row = (t(w, *s) for s in ((self.batch, self.m, self.n), (self.batch, self.m), ()))
        weights = t(d, self.batch, self.m, self.n)
        q, k, v = self.arguments()[:3]
        product, result = t(w, self.batch, self.m, self.depth), self.operand(self.m, self.depth)
        kinds = f"{result}, {weights}" if returned else result
        names = "%y, %weights" if returned else "%y"
        parameters = ", ".join(f"%{name}: {kind}" for name, kind in zip("qkva", self.arguments(), strict=False))
        order = "[1, 0, 2]" if self.heads_inside else "[0, 1, 2]"
        between = t(w, *((self.m, self.batch, self.depth) if self.heads_inside else (self.batch, self.m, self.depth)))
        masked = {
            "": f"%masked = stablehlo.multiply %scaled, %one : {scores}",
            "added": f"""%spread = stablehlo.broadcast_in_dim %a, dims = [1, 2] : ({t(w, self.m, self.n)}) -> {scores}
              %masked = stablehlo.add %scaled, %spread : {scores}""",
            "causal": f"""%i = stablehlo.iota dim = 1 : {t("i32", self.batch, self.m, self.n)}
              %j = stablehlo.iota dim = 2 : {t("i32", self.batch, self.m, self.n)}
              %seen = stablehlo.compare GE, %i, %j : ({t("i32", self.batch, self.m, self.n)}, {t("i32", self.batch, self.m, self.n)}) -> {t("i1", self.batch, self.m, self.n)}
              %least = stablehlo.constant dense<-1.0e30> : {scores}
              %masked = stablehlo.select %seen, %scaled, %least : {t("i1", self.batch, self.m, self.n)}, {scores}""",
        }[self.mask]
        return f"""func.func @main({parameters}) -> ({kinds}) {{
          %s = stablehlo.dot_general %q, %k, batching_dims = [{at[0]}] x [{at[0]}], contracting_dims = [2] x [2] : ({q}, {k}) -> {scores}
          %scale = stablehlo.constant dense<0.25> : {scores}
          %one = stablehlo.constant dense<1.0> : {scores}
          %scaled = stablehlo.multiply %s, %scale : {scores}
          {masked}
          %low = stablehlo.constant dense<0x{"FFF0000000000000" if w == "f64" else "FF800000"}> : {row}
          %zero = stablehlo.constant dense<0.0> : {row}
          %most = stablehlo.reduce(%masked init: %low) applies stablehlo.maximum across dimensions = [2] : ({scores}, {row}) -> {sums}
          %mosts = stablehlo.broadcast_in_dim %most, dims = [0, 1] : ({sums}) -> {scores}
          %moved = stablehlo.subtract %masked, %mosts : {scores}
          %e = stablehlo.exponential %moved : {scores}
          %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : ({scores}, {row}) -> {sums}
          %total = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({sums}) -> {scores}
          %p = stablehlo.divide %e, %total : {scores}
          %weights = stablehlo.convert %p : ({scores}) -> {weights}
          %o = stablehlo.dot_general %weights, %v, batching_dims = [0] x [{at[0]}], contracting_dims = [2] x [{at[1]}] : ({weights}, {v}) -> {product}
          %ordered = stablehlo.transpose %o, dims = {order} : ({product}) -> {between}
          %y = stablehlo.convert %ordered : ({between}) -> {result}
          return {names} : {kinds}
        }}"""

    def expected(self, values: list[np.ndarray]) -> np.ndarray:
        """Returns the exact result in f64, as [heads, rows, features]."""
        q, k, v, *rest = (x.astype(np.float64) for x in values)
        if self.heads_inside:
            q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))
        s = q @ k.swapaxes(1, 2) * 0.25 + (rest[0] if rest else 0)
        if self.mask == "causal":
            s = np.where(np.arange(self.m)[:, None] >= np.arange(self.n), s, -1e30)
        e = np.exp(s - s.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True) @ v
        return y.swapaxes(0, 1) if self.heads_inside else y

    def bound(self, values: list[np.ndarray]) -> float:
        """Returns a bound on the result's error. Scores are sums of k rounded terms, and their error is the weights'
        relative one, on both sides of the division. Sums of n weights and some roundings of the element type follow.
        Weights add up to 1."""
        q, k, v, *_ = (np.abs(x.astype(np.float64)) for x in values)
        if self.heads_inside:
            q, k = q.swapaxes(0, 1), k.swapaxes(0, 1)
        unit = {"f32": 2**-24, "f64": 2**-53, "bf16": 2**-9, "f16": 2**-11}
        scores = 2 * 0.25 * self.k**0.5 * (q @ k.swapaxes(1, 2)).max()
        return float(v.max() * (unit[self.wide] * (scores + self.n**0.5 + 8) + 2 * unit[self.dtype]))


def bits(x: np.ndarray) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def check(case: Attention, target: str = "native") -> None:
    """Checks that attention is fused, near the exact result, and has the bits of the program whose weights are in
    memory."""
    exe = guarded.compile(case.text(), cache=False, target=target)
    whole = shlo_jit.compile(case.text(returned=True), cache=False, target=target)
    assert "1 attention" in exe.text("plan").splitlines()[0]
    assert "attention" not in whole.text("plan")
    values = case.values()
    y = exe(*values)
    assert bits(y) == bits(whole(*values)[0])
    assert np.abs(y.astype(np.float64) - case.expected(values)).max() <= case.bound(values)


CASES = {
    "one block": Attention(3, 14, 64, 32, 32),
    "one row": Attention(5, 1, 80, 64, 48),
    "some rows": Attention(4, 9, 33, 17, 21),
    "a row too many": Attention(3, 57, 129, 31, 40),
    "rows half a page apart": Attention(2, 40, 512, 64, 64),
    "tasks of rows": Attention(2, 333, 200, 16, 24, mask="causal"),
    "added mask": Attention(3, 100, 100, 16, 32, mask="added"),
    "heads inside": Attention(4, 70, 50, 32, 32, heads_inside=True),
    "long features": Attention(8, 40, 300, 600, 300),
    "bf16": Attention(3, 60, 96, 32, 32, "bf16", "causal", heads_inside=True),
    "f16": Attention(2, 40, 40, 32, 32, "f16"),
    "f64": Attention(3, 60, 70, 20, 20, "f64", "added"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_bits_as_by_whole_matrices(case: Attention) -> None:
    check(case)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v2"])
def test_other_targets(target: str) -> None:
    check(Attention(3, 57, 67, 16, 32, mask="causal"), target)
    check(Attention(2, 30, 40, 16, 24, "bf16"), target)


@pytest.mark.slow
def test_random_shapes() -> None:
    pick = random.Random(0)
    for _ in range(60):
        batch, m, n = pick.choice([2, 3, 13]), pick.choice([2, 13, 15, 30, 65, 140]), pick.choice([16, 17, 63, 130])
        k, depth = pick.choice([7, 16, 40]), pick.choice([7, 16, 40])
        check(
            Attention(
                batch, m, n, k, depth, pick.choice([*NUMPY]), pick.choice(["", "added", "causal"]), pick.random() < 0.5
            )
        )


def test_threads_do_not_change_the_bits() -> None:
    case = Attention(3, 200, 150, 32, 32, mask="causal")
    values = case.values()
    results = {bits(shlo_jit.compile(case.text(), cache=False, threads=n)(*values)) for n in (1, 2, 5)}
    assert len(results) == 1


def test_special_values_stay_in_their_rows() -> None:
    """A row without any key is NaN, an infinite key is infinite in all rows, and the others are not affected by
    either."""
    case = Attention(3, 50, 40, 16, 24, mask="added")
    q, k, v, mask = case.values()
    mask[7] = -np.inf
    mask[9, 3:] = -np.inf
    q[1, 20, 0], v[2, 5, 3] = np.nan, np.inf
    exe = shlo_jit.compile(case.text(), cache=False)
    y, whole = exe(q, k, v, mask), shlo_jit.compile(case.text(returned=True), cache=False)(q, k, v, mask)[0]
    np.testing.assert_array_equal(y, whole)
    assert np.isnan(y[:, 7]).all() and np.isnan(y[1, 20]).all() and np.isinf(y[2, 10, 3])
    assert np.isfinite(np.delete(y[0], 7, 0)).all()


def test_scores_take_no_memory() -> None:
    """In place of two matrices of all scores, there are some of them for each worker, and packed operands."""
    case = Attention(4, 1024, 1024, 32, 32)
    scores = 4 * 1024 * 1024 * 4
    blocks = guarded.plain_compile(case.text(), cache=False, threads=2)
    assert isinstance(blocks, Executable)
    assert 2 * scores > 30 * blocks.memory.arena


def test_weights_are_no_softmax() -> None:
    """Any row program is allowed: scores over their sum of squares, and the row's largest is returned as well."""
    s, r, x, z = t("f32", 3, 40, 50), t("f32", 3, 40), t("f32", 3, 40, 16), t("f32")
    y, v = t("f32", 3, 50, 16), t("f32", 3, 40, 16)
    text = f"""func.func @main(%q: {x}, %k: {y}, %v: {y}) -> ({v}, {r}) {{
      %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({x}, {y}) -> {s}
      %zero = stablehlo.constant dense<0.0> : {z}
      %squares = stablehlo.multiply %s, %s : {s}
      %sum = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, {z}) -> {r}
      %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({r}) -> {s}
      %p = stablehlo.divide %s, %sums : {s}
      %y = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {y}) -> {v}
      return %y, %sum : {v}, {r}
    }}"""
    exe = guarded.compile(text, cache=False)
    assert "1 attention" in exe.text("plan").splitlines()[0]
    rng = np.random.default_rng(0)
    q, k, values = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 40, 16), (3, 50, 16), (3, 50, 16)))
    found, sums = exe(q, k, values)
    scores = q.astype(np.float64) @ k.swapaxes(1, 2)
    total = (scores**2).sum(-1)
    np.testing.assert_allclose(sums, total, 1e-5)
    np.testing.assert_allclose(found, scores / total[..., None] @ values, 1e-4, 1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_divided_by_the_sums_after_the_second_product(reverse: bool) -> None:
    """The rows of a result must use only their own sums of the row program; otherwise they are divided afterwards."""
    q, k, v, s, r, out = (t("f32", 3, *e) for e in ((60, 16), (50, 16), (50, 24), (60, 50), (60,), (60, 24)))
    sums = f"%l = stablehlo.reverse %sum, dims = [1] : {r}" if reverse else f"%l = stablehlo.negate %sum : {r}"
    text = f"""func.func @main(%q: {q}, %k: {k}, %v: {v}) -> ({out}, {r}) {{
      %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({q}, {k}) -> {s}
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %e = stablehlo.exponential %s : {s}
      %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> {r}
      {sums}
      %total = stablehlo.broadcast_in_dim %l, dims = [0, 1] : ({r}) -> {out}
      %p = stablehlo.dot_general %e, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {v}) -> {out}
      %y = stablehlo.divide %p, %total : {out}
      return %y, %sum : {out}, {r}
    }}"""
    exe = guarded.compile(text, cache=False, threads=3)
    plan = exe.text("plan")
    assert "1 attention" in plan.splitlines()[0]
    assert ("1 loop" in plan.splitlines()[0]) is reverse
    assert not codes(plan, "no row blocks")
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 60, 16), (3, 50, 16), (3, 50, 24)))
    found, total = exe(a, b, c)
    e = np.exp(a.astype(np.float64) @ b.swapaxes(1, 2))
    below = e.sum(-1)[:, ::-1] if reverse else -e.sum(-1)
    np.testing.assert_allclose(total, e.sum(-1), 1e-5)
    np.testing.assert_allclose(found, e @ c / below[..., None], 1e-4, 1e-5)


def test_in_a_loop_and_twice() -> None:
    """Layers of a program, unrolled and as iterations of a loop, share their kernels."""
    case = Attention(3, 40, 40, 32, 32)
    body = case.text().split("{\n", 1)[1].rsplit("return", 1)[0]
    x = case.operand(40, 32)
    twice = body.replace("%y =", "%q2 =") + "".join(
        line.replace("%q,", "%q2,") + "\n" if "%s =" in line else line + "\n" for line in body.splitlines()
    )
    names = set(itertools.chain.from_iterable(line.split()[:1] for line in body.splitlines() if "=" in line))
    first, second = twice[: len(body) + 1], twice[len(body) + 1 :]
    for name in sorted(names, key=len, reverse=True):
        second = (
            second.replace(f"{name} ", f"{name}_b ").replace(f"{name},", f"{name}_b,").replace(f"{name})", f"{name}_b)")
        )
    text = f"func.func @main(%q: {x}, %k: {x}, %v: {x}) -> ({x}) {{\n{first}{second}\nreturn %y_b : {x}\n}}"
    exe, one = shlo_jit.compile(text, cache=False), shlo_jit.compile(case.text(), cache=False)
    assert "2 attention" in exe.text("plan").splitlines()[0]
    q, k, v = case.values()
    assert bits(exe(q, k, v)) == bits(one(one(q, k, v), k, v))


def test_exported(tmp_path: Path) -> None:
    case = Attention(3, 50, 60, 16, 32, mask="causal")
    shlo_jit.export(case.text(), tmp_path / "attention.o")
    values = case.values()
    found = shlo_jit.load(tmp_path / "attention.o")(*values)
    assert bits(found) == bits(shlo_jit.compile(case.text(), cache=False)(*values))


@pytest.mark.parametrize("target", ["native", "x86-64-v3", "x86-64"])
def test_scores_are_read_before_weights_take_their_place(target: str) -> None:
    """The row program returns values computed from the scores, and weights that do not depend on them."""
    q, k, v, s, y = (
        t("f32", 4, 2, 16),
        t("f32", 4, 101, 16),
        t("f32", 4, 101, 32),
        t("f32", 4, 2, 101),
        t("f32", 4, 2, 32),
    )
    text = f"""func.func @main(%q: {q}, %k: {k}, %v: {v}, %x: {s}) -> ({y}, {s}) {{
      %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({q}, {k}) -> {s}
      %e = stablehlo.exponential %x : {s}
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %sums = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> tensor<4x2xf32>
      %sum = stablehlo.broadcast_in_dim %sums, dims = [0, 1] : (tensor<4x2xf32>) -> {s}
      %w = stablehlo.divide %e, %sum : {s}
      %p = stablehlo.multiply %s, %e : {s}
      %totals = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> tensor<4x2xf32>
      %total = stablehlo.broadcast_in_dim %totals, dims = [0, 1] : (tensor<4x2xf32>) -> {s}
      %m = stablehlo.subtract %s, %total : {s}
      %d = stablehlo.multiply %m, %w : {s}
      %y = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {v}) -> {y}
      return %y, %d : {y}, {s}
    }}"""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(n).astype(np.float32) for n in ((4, 2, 16), (4, 101, 16), (4, 101, 32), (4, 2, 101))]
    exe = guarded.compile(text, cache=False, target=target)
    schedule = exe.text("schedule")
    assert "stage           row, over its operands" in schedule, exe.text("plan")
    a, b, c, x = (value.astype(np.float64) for value in values)
    weights, scores = np.exp(x) / np.exp(x).sum(2, keepdims=True), a @ b.transpose(0, 2, 1)
    less = (scores - (scores * np.exp(x)).sum(2, keepdims=True)) * weights
    for got, want in zip(exe(*values), (weights @ c, less), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
