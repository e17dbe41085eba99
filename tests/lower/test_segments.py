"""Concatenations that products read as segments: the bits are those of the concatenated matrix, which takes no
memory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import guarded
import ml_dtypes
import numpy as np
import pytest
from printed_codes import codes

import shlo_jit
from shlo_jit import tuning
from shlo_jit.runtime.executable import Executable

NUMPY = {
    **{"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i8": np.int8},
    **{"i32": np.int32, "complex<f32>": np.complex64},
}
SUMS = {"bf16": "f32", "f16": "f32", "i8": "i32"}


def t(dtype: str, extents: tuple[int, ...]) -> str:
    return "tensor<" + "".join(f"{n}x" for n in extents) + f"{dtype}>"


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype.startswith("complex") else 0)
    return (x * 20 if dtype.startswith("i") else x).astype(NUMPY[dtype])


@dataclass(frozen=True)
class Product:
    """x @ M + bias for each of `batch`, with M concatenated from segments."""

    pieces: tuple[int, ...]
    """Extents along the concatenated dimension."""
    other: int
    """The extent of M's other dimension."""
    cut: str = "n"
    """Whether columns of M are concatenated (`n`), or its rows (`k`)."""
    batch: tuple[int, ...] = ()
    dtype: str = "f32"
    transposed: bool = False
    """Whether M has its columns first."""
    inside: bool = False
    """Whether the last dimension of the batch lies between M's rows and its columns."""
    second: bool = False
    """Whether the product is M @ x, with a vector x without a second dimension."""

    @property
    def sums(self) -> str:
        return SUMS.get(self.dtype, self.dtype)

    def shape(self, length: int) -> tuple[int, ...]:
        """Returns the shape of M, or of a segment of it."""
        kn = (self.other, length) if self.cut == "n" else (length, self.other)
        first, last = kn[::-1] if self.transposed else kn
        return (*self.batch[:-1], first, *self.batch[-1:], last) if self.inside else (*self.batch, first, last)

    @property
    def dims(self) -> tuple[tuple[int, ...], int, int]:
        """Returns M's dimensions: the batch, rows and columns."""
        count = len(self.batch)
        first, last = (count - 1, count + 1) if self.inside else (count, count + 1)
        batch = (*range(count - 1), count) if self.inside else tuple(range(count))
        return (batch, last, first) if self.transposed else (batch, first, last)

    @property
    def k(self) -> int:
        return self.other if self.cut == "n" else sum(self.pieces)

    @property
    def n(self) -> int:
        return sum(self.pieces) if self.cut == "n" else self.other

    @property
    def same_bits(self) -> bool:
        """Whether both have the same bits: for concatenated columns, whole numbers, or sums of all columns side by side
        to which each step is added. The parts of complex numbers are multiplied in the other order if the vector comes
        first."""
        if self.dtype.startswith("complex"):
            return not self.second
        return self.cut == "n" or self.dtype.startswith("i") or (not self.transposed and self.other >= 64)

    def arguments(self) -> list[str]:
        vector = (*self.batch, self.k) if self.second else (*self.batch, 1, self.k)
        return [t(self.dtype, vector), *(t(self.dtype, self.shape(n)) for n in self.pieces)]

    def values(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        vector = (*self.batch, self.k) if self.second else (*self.batch, 1, self.k)
        shapes = [vector, *(self.shape(n) for n in self.pieces)]
        return [numbers(rng, self.dtype, shape) for shape in shapes]

    def text(self, *, whole: bool = False) -> str:
        """Returns the program. With `whole`, M is a result too, so that it must be in memory."""
        batch, rows, columns = self.dims
        count, out = len(self.batch), (*self.batch, self.n) if self.second else (*self.batch, 1, self.n)
        vector, *pieces = self.arguments()
        matrix, product = t(self.dtype, self.shape(sum(self.pieces))), t(self.sums, out)
        names = [f"%p{i}" for i in range(len(pieces))]
        parameters = ", ".join(f"{name}: {kind}" for name, kind in zip(["%x", *names], [vector, *pieces], strict=True))
        of_x, operands, kinds = list(range(count)), "%x, %m", f"{vector}, {matrix}"
        sides = [(of_x, count + 1 - self.second), (list(batch), rows)]
        if self.second:
            operands, kinds, sides = "%m, %x", f"{matrix}, {vector}", sides[::-1]
        (lb, lc), (rb, rc) = sides
        results, returned = (f"{product}, {matrix}", "%y, %m") if whole else (product, "%y")
        dimension = columns if self.cut == "n" else rows
        return f"""func.func @main({parameters}) -> ({results}) {{
          %m = stablehlo.concatenate {", ".join(names)}, dim = {dimension} : ({", ".join(pieces)}) -> {matrix}
          %d = stablehlo.dot_general {operands}, batching_dims = {lb} x {rb}, contracting_dims = [{lc}] x [{rc}] : ({kinds}) -> {product}
          %y = stablehlo.add %d, %d : {product}
          return {returned} : {results}
        }}"""

    def expected(self, values: list[np.ndarray]) -> np.ndarray:
        """Returns the exact result in a wide type, in the order batch, columns."""
        batch, rows, columns = self.dims
        wide = [v.astype(np.complex128 if self.dtype.startswith("complex") else np.float64) for v in values]
        matrix = np.concatenate(wide[1:], columns if self.cut == "n" else rows).transpose(*batch, rows, columns)
        x = wide[0][..., None, :] if self.second else wide[0]
        y = 2 * (x @ matrix)
        return y[..., 0, :] if self.second else y


def bits(x: np.ndarray) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def check(case: Product, target: str = "native") -> None:
    """Checks that the product reads segments, is near the exact result, and has the bits of the matrix in memory if it
    should."""
    exe = guarded.compile(case.text(), cache=False, target=target)
    whole = guarded.compile(case.text(whole=True), cache=False, target=target)
    assert "segments  %" in exe.text("plan"), exe.text("plan")
    assert "segments  %" not in whole.text("plan")
    values = case.values()
    y = exe(*values)
    if case.same_bits:
        assert bits(y) == bits(whole(*values)[0])
    error = np.abs(y.astype(np.complex128) - case.expected(values)).max()
    unit = {"f64": 2**-53, "i32": 0, "i8": 0}.get(case.dtype, 2**-24)
    assert error <= 20 * unit * case.k


@pytest.mark.parametrize("columns", [1, 2, 8, 9])
@pytest.mark.parametrize("dim", [0, 1])
def test_matrices_that_come_first(columns: int, dim: int) -> None:
    """M @ w: with several columns the result is not a row of the transposed product."""
    parts = [(3, 40, 17), (2, 40, 17)] if dim == 0 else [(1, 80, 17), (1, 60, 17)]
    whole = tuple(sum(n) if d == dim else n[0] for d, n in enumerate(zip(*parts, strict=True)))
    a, b, m, w, y = (t("f32", s) for s in (*parts, whole, (17, columns), (*whole[:2], columns)))
    text = f"""func.func @main(%a: {a}, %b: {b}, %w: {w}) -> {y} {{
      %m = stablehlo.concatenate %a, %b, dim = {dim} : ({a}, {b}) -> {m}
      %y = stablehlo.dot_general %m, %w, contracting_dims = [2] x [0] : ({m}, {w}) -> {y}
      return %y : {y}
    }}"""
    rng = np.random.default_rng(columns)
    values = [numbers(rng, "f32", s) for s in (*parts, (17, columns))]
    exe = guarded.compile(text, cache=False)
    assert columns == 1 or "segments  %m" not in exe.text("plan")
    wide = np.concatenate([v.astype(np.float64) for v in values[:2]], dim) @ values[2].astype(np.float64)
    np.testing.assert_allclose(exe(*values), wide, rtol=1e-4, atol=1e-5)


CASES = {
    "columns": Product((200, 100), 64),
    "columns, transposed": Product((200, 100), 64, transposed=True),
    "one column more": Product((511, 1), 64, transposed=True, batch=(4,)),
    "one column before": Product((1, 511), 64, transposed=True, batch=(4,)),
    "steps": Product((300, 100), 80, "k"),
    "one step more": Product((511, 1), 64, "k", (4,)),
    "three pieces": Product((100, 1, 207), 70, "k", (3,)),
    "an empty piece": Product((300, 0, 100), 80, "k"),
    "blocks of k by tiles": Product((1000, 700), 20, "k"),
    "steps beside each other": Product((300, 200), 128, "k", transposed=True),
    "columns of short rows": Product((700, 3, 700), 12),
    "heads inside": Product((400, 1), 64, "k", (1, 3), inside=True),
    "an outer batch": Product((400, 1), 64, "k", (2, 3), inside=True),
    "an outer batch, columns": Product((400, 1), 64, "n", (2, 3), inside=True, transposed=True),
    "a vector on the right": Product((511, 1), 64, "n", (3,), transposed=True, second=True),
    "a vector on the right, steps": Product((511, 1), 64, "k", (3,), second=True),
    "bf16": Product((511, 1), 64, "k", (4,), "bf16"),
    "bf16, columns": Product((511, 1), 64, "n", (4,), "bf16", transposed=True),
    "f16": Product((500, 3), 64, "k", (4,), "f16"),
    "f64": Product((500, 3), 64, "k", (4,), "f64"),
    "complex": Product((300, 3), 64, "k", (4,), "complex<f32>"),
    "i32": Product((500, 3), 40, "k", (2,), "i32"),
    "i8": Product((501, 7), 64, "k", (4,), "i8"),
    "i8 columns by tiles": Product((500, 7), 64, "n", (4,), "i8", transposed=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_as_of_the_whole(case: Product) -> None:
    check(case)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("name", ["one column more", "one step more", "blocks of k by tiles", "bf16", "an outer batch"])
def test_other_targets(name: str, target: str) -> None:
    check(CASES[name], target)


@pytest.mark.slow
def test_random_products() -> None:
    pick = random.Random(0)
    for _ in range(60):
        batch = pick.choice([(), (3,), (2, 3)])
        transposed = pick.random() < 0.5
        case = Product(
            tuple(pick.choice([1, 7, 130, 301]) for _ in range(pick.choice([2, 3]))),
            pick.choice([17, 64, 100]),
            pick.choice("kn"),
            batch,
            pick.choice([*NUMPY]),
            transposed,
            bool(batch) and pick.random() < 0.4,
            pick.random() < 0.3,
        )
        if "segments  %" in shlo_jit.compile(case.text(), cache=False).text("plan"):
            check(case)


def test_threads_do_not_change_the_bits() -> None:
    for case in (Product((4000, 300), 400, "k"), Product((3000, 1), 400, transposed=True)):
        values = case.values()
        assert len({bits(shlo_jit.compile(case.text(), cache=False, threads=n)(*values)) for n in (1, 2, 5)}) == 1


@dataclass(frozen=True)
class Cache:
    """Attention of one row: keys and values of a cache, and one new one each."""

    heads: int = 3
    cached: int = 300
    features: int = 64
    dtype: str = "f32"
    along: str = "row"
    """A cache has one `row` after the other, heads `inside` rows, or features first (`features`, for keys only)."""

    def shape(self, rows: int, *, keys: bool = False) -> tuple[int, ...]:
        if self.along == "inside":
            return (rows, self.heads, self.features)
        return (
            (self.heads, self.features, rows)
            if keys and self.along == "features"
            else (self.heads, rows, self.features)
        )

    def values(self) -> list[np.ndarray]:
        rng, old = np.random.default_rng(0), self.cached
        shapes = [(self.heads, 1, self.features), *(self.shape(n, keys=True) for n in (old, 1))]
        return [numbers(rng, self.dtype, s) for s in [*shapes, *(self.shape(n) for n in (old, 1))]]

    def text(self, *, whole: bool = False) -> str:
        d, n, h = self.dtype, self.cached + 1, self.heads
        shapes = [tuple(x.shape) for x in self.values()]
        q, k0, k1, v0, v1 = (t(d, s) for s in shapes)
        k, v = t(d, self.shape(n, keys=True)), t(d, self.shape(n))
        at = 1 if self.along == "inside" else 0
        row, features = (2, 1) if self.along == "features" else (0 if self.along == "inside" else 1, 2)
        scores, s, one = t("f32", (h, 1, n)), t("f32", (h, 1)), t("f32", ())
        y = t("f32", (h, 1, self.features))
        results, names = (f"{y}, {k}, {v}", "%y, %k, %v") if whole else (y, "%y")
        return f"""func.func @main(%q: {q}, %k0: {k0}, %k1: {k1}, %v0: {v0}, %v1: {v1}) -> ({results}) {{
          %k = stablehlo.concatenate %k0, %k1, dim = {row} : ({k0}, {k1}) -> {k}
          %v = stablehlo.concatenate %v0, %v1, dim = {1 - at} : ({v0}, {v1}) -> {v}
          %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [{at}], contracting_dims = [2] x [{features}] : ({q}, {k}) -> {scores}
          %low = stablehlo.constant dense<0xFF800000> : {one}
          %zero = stablehlo.constant dense<0.0> : {one}
          %most = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [2] : ({scores}, {one}) -> {s}
          %mosts = stablehlo.broadcast_in_dim %most, dims = [0, 1] : ({s}) -> {scores}
          %moved = stablehlo.subtract %s, %mosts : {scores}
          %e = stablehlo.exponential %moved : {scores}
          %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : ({scores}, {one}) -> {s}
          %total = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({s}) -> {scores}
          %p = stablehlo.divide %e, %total : {scores}
          %w = stablehlo.convert %p : ({scores}) -> {t(d, (h, 1, n))}
          %y = stablehlo.dot_general %w, %v, batching_dims = [0] x [{at}], contracting_dims = [2] x [{1 - at}] : ({t(d, (h, 1, n))}, {v}) -> {y}
          return {names} : {results}
        }}"""


ATTENTION = {
    "f32": Cache(),
    "bf16": Cache(dtype="bf16"),
    "f16": Cache(dtype="f16"),
    "heads inside": Cache(along="inside"),
    "features first": Cache(along="features"),
    "a block of keys": Cache(2, 3000, 128),
    "narrow": Cache(5, 700, 24),
}


@pytest.mark.parametrize("case", ATTENTION.values(), ids=ATTENTION)
def test_attention_to_a_cache(case: Cache) -> None:
    exe = guarded.compile(case.text(), cache=False)
    whole = guarded.compile(case.text(whole=True), cache=False)
    plan = exe.text("plan")
    assert "1 attention" in plan.splitlines()[0] and plan.count("segments  %") == 2
    assert "1 attention" in whole.text("plan").splitlines()[0] and "segments  %" not in whole.text("plan")
    values = case.values()
    if case.features >= 64:  # otherwise tiles add up the steps of a segment separately
        assert bits(exe(*values)) == bits(whole(*values)[0])
    np.testing.assert_allclose(exe(*values), whole(*values)[0], 1e-4, 1e-5)
    assert len({bits(shlo_jit.compile(case.text(), cache=False, threads=n)(*values)) for n in (1, 2, 5)}) == 1


def test_the_whole_takes_no_memory() -> None:
    case = Cache(4, 1000)
    pieces, whole = (guarded.plain_compile(case.text(whole=w), cache=False, threads=1) for w in (False, True))
    assert isinstance(pieces, Executable) and isinstance(whole, Executable)
    assert whole.memory.arena + whole.memory.outputs > 2 * 4 * 1000 * 64 * 4 > 10 * pieces.memory.arena


def test_in_a_loop() -> None:
    """Some segments come from outside a loop; its iterations read them with a row that each of them computes."""
    x, cache = t("f32", (1, 64)), t("f32", (300, 64))
    whole, row, number = t("f32", (301, 64)), t("f32", (1, 301)), t("i32", ())
    text = f"""func.func @main(%x: {x}, %cache: {cache}) -> {x} {{
      %zero = stablehlo.constant dense<0> : {number}
      %r:2 = stablehlo.while(%i = %zero, %h = %x) : {number}, {x}
      cond {{
        %three = stablehlo.constant dense<3> : {number}
        %go = stablehlo.compare LT, %i, %three : ({number}, {number}) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      }} do {{
        %m = stablehlo.concatenate %cache, %h, dim = 0 : ({cache}, {x}) -> {whole}
        %s = stablehlo.dot_general %h, %m, contracting_dims = [1] x [1] : ({x}, {whole}) -> {row}
        %w = stablehlo.tanh %s : {row}
        %y = stablehlo.dot_general %w, %m, contracting_dims = [1] x [0] : ({row}, {whole}) -> {x}
        %z = stablehlo.tanh %y : {x}
        %one = stablehlo.constant dense<1> : {number}
        %j = stablehlo.add %i, %one : {number}
        stablehlo.return %j, %z : {number}, {x}
      }}
      return %r#1 : {x}
    }}"""
    exe = guarded.compile(text, cache=False)
    assert exe.text("plan").count("segments  %") == 2
    rng = np.random.default_rng(0)
    h, old = (0.1 * rng.standard_normal(shape).astype(np.float32) for shape in ((1, 64), (300, 64)))
    found = exe(h, old)
    for _ in range(3):
        m = np.concatenate([old, h])
        h = np.tanh(np.tanh(h.astype(np.float64) @ m.T) @ m)
    np.testing.assert_allclose(found, h, 1e-4, 1e-5)


def test_any_batch_reads_the_whole() -> None:
    """Products with sizes that are known only at the call are not read as segments."""
    q, k, new, whole = (t("f32", s) for s in ((0, 1, 64), (0, 300, 64), (0, 1, 64), (0, 301, 64)))
    y = t("f32", (0, 1, 301))
    text = f"""func.func @main(%q: {q}, %k: {k}, %new: {new}) -> {y} {{
      %m = stablehlo.concatenate %k, %new, dim = 1 : ({k}, {new}) -> {whole}
      %y = stablehlo.dot_general %q, %m, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({q}, {whole}) -> {y}
      return %y : {y}
    }}""".replace("<0x", "<?x")
    exe = guarded.plain_compile(text, cache=False, dynamic="symbolic")
    rng = np.random.default_rng(0)
    for batch in (1, 2, 5):
        a, b, c = (rng.standard_normal((batch, n, 64)).astype(np.float32) for n in (1, 300, 1))
        np.testing.assert_allclose(exe(a, b, c), a @ np.concatenate([b, c], 1).swapaxes(1, 2), 1e-4, 1e-4)


def test_exported(tmp_path: Path) -> None:
    case = Cache()
    shlo_jit.export(case.text(), tmp_path / "pieces.o")
    values = case.values()
    found = shlo_jit.load(tmp_path / "pieces.o")(*values)
    assert bits(found) == bits(shlo_jit.compile(case.text(), cache=False)(*values))


def test_bytes_that_a_call_saves() -> None:
    """Below this size, one loop concatenates the matrix."""
    length = tuning.SEGMENT_BYTES * 2 // (64 * 2)
    few, enough = (
        shlo_jit.compile(Product((n - 1, 1), 64, "k", (4,), "bf16").text(), cache=False) for n in (length - 1, length)
    )
    assert "segments  %" in enough.text("plan")
    assert "saves-too-little" in codes(few.text("plan"))
