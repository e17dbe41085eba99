"""Rounded activations: which products have them, the bound of their error, and that nothing changes without the option.

RANDOM_PROGRAMS=2000 pytest -m slow tests/passes/canonical/test_round_activations.py
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import guarded
import ml_dtypes
import numpy as np
import pytest
from random_runs import seeds
from typer.testing import CliRunner

import shlo_jit
from shlo_jit.cli import app
from shlo_jit.ir.core import walk
from shlo_jit.passes import core_functions

INTEGERS = {
    "i8": (np.dtype(np.int8), -128, 127),
    "ui8": (np.dtype(np.uint8), 0, 255),
    "i4": (np.dtype(ml_dtypes.int4), -8, 7),
    "ui4": (np.dtype(ml_dtypes.uint4), 0, 15),
    "i2": (np.dtype(ml_dtypes.int2), -2, 1),
}
FLOATS = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
EPSILON = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


class Case:
    """A product of activations with weights that are affine in integers, and its parts as arrays."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        rng = self.rng
        self.dtype = rng.choice(("f32", "f32", "bf16", "f16"))
        self.kind = rng.choice(list(INTEGERS))
        self.batch = rng.choice(((), (), (3,)))
        self.m, self.n = rng.choice((1, 2, 5, 9, 33)), rng.choice((8, 17, 48, 64))
        self.group, self.groups = rng.choice((16, 32, 48)), rng.choice((1, 2, 5))
        self.terms_last, self.side = rng.random() < 0.5, rng.choice((0, 1, 1))
        self.zero = rng.choice(("", "before", "after"))
        self.operation = rng.choice(("multiply", "divide"))
        self.lines: list[str] = []

    @property
    def k(self) -> int:
        return self.group * self.groups

    def arrays(self) -> list[np.ndarray]:
        """Activations [batch, m, k], integers [batch, groups, group, n] in their order, scales and zero points."""
        dtype, low, high = INTEGERS[self.kind]
        self.x = self.numbers.standard_normal((*self.batch, self.m, self.k)).astype(FLOATS[self.dtype])
        shape = (*self.batch, self.groups, self.group, self.n)
        self.q = self.numbers.integers(low, high + 1, shape)
        small = (*self.batch, self.groups, self.n)
        self.s = (2.0 ** self.numbers.integers(-4, 3, small)).astype(FLOATS[self.dtype])
        self.z = self.numbers.integers(low // 2, high // 2 + 1, small).astype(FLOATS[self.dtype])
        q = np.moveaxis(self.q, -1, -3) if self.terms_last else self.q
        found = [self.x, np.ascontiguousarray(q).astype(dtype), self.s]
        return [*found, self.z] if self.zero else found

    def text(self) -> str:
        b = len(self.batch)
        shape = (*self.batch, self.groups, self.group, self.n)
        dims = [*range(b), b, b + 2]
        if self.terms_last:
            shape = (*self.batch, self.n, self.groups, self.group)
            dims = [*range(b), b + 1, b]
        small, d = (*self.batch, self.groups, self.n), self.dtype
        t, of = tensor(shape, d), f"({tensor(small, d)}) -> {tensor(shape, d)}"
        op = self.operation
        lines = [
            f"%c = stablehlo.convert %q : ({tensor(shape, self.kind)}) -> {t}",
            f"%b = stablehlo.broadcast_in_dim %s, dims = {dims} : {of}",
        ]
        if self.zero:
            lines.append(f"%y = stablehlo.broadcast_in_dim %z, dims = {dims} : {of}")
        if self.zero == "before":
            lines += [f"%d = stablehlo.subtract %c, %y : {t}", f"%w = stablehlo.{op} %d, %b : {t}"]
        elif self.zero == "after":
            lines += [f"%d = stablehlo.{op} %c, %b : {t}", f"%w = stablehlo.add %d, %y : {t}"]
        else:
            lines.append(f"%w = stablehlo.{op} %c, %b : {t}")
        flat = (*self.batch, self.n, self.k) if self.terms_last else (*self.batch, self.k, self.n)
        lines.append(f"%m = stablehlo.reshape %w : ({t}) -> {tensor(flat, d)}")
        x = (*self.batch, self.m, self.k)
        pairs = [("%x", x, b + 1), ("%m", flat, b + 1 if self.terms_last else b)]
        (left, ls, lk), (right, rs, rk) = pairs if self.side else pairs[::-1]
        own = "batching_dims = [0] x [0], " if b else ""
        result = tensor((*self.batch, *((self.m, self.n) if self.side else (self.n, self.m))), d)
        types = f"({tensor(ls, d)}, {tensor(rs, d)}) -> {result}"
        lines.append(f"%r = stablehlo.dot_general {left}, {right}, {own}contracting_dims = [{lk}] x [{rk}] : {types}")
        heads = [f"%x: {tensor(x, d)}", f"%q: {tensor(shape, self.kind)}", f"%s: {tensor(small, d)}"]
        heads += [f"%z: {tensor(small, d)}"] if self.zero else []
        body = "\n".join([*lines, f"return %r : {result}"])
        return f"func.func @main({', '.join(heads)}) -> {result} {{\n{body}\n}}"

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """The exact products, and the bound of the error that rounding the activations makes."""
        w = self.q.astype(np.float64)
        s, z = (v.astype(np.float64)[..., None, :] for v in (self.s, self.z))
        if self.zero == "before":
            w = w - z
        w = w * s if self.operation == "multiply" else w / s
        if self.zero == "after":
            w = w + z
        x = self.x.astype(np.float64).reshape(*self.batch, self.m, self.groups, self.group)
        exact = np.einsum("...mgi,...gin->...mn", x, w)
        step = np.abs(x).max(-1) / 127
        bound = np.einsum("...mg,...gn->...mn", step / 2, np.abs(w).sum(-2)) * (1 + 1e-4)
        # Sums of floats and the result are rounded, and the offsets are products of their own.
        size = np.einsum("...mgi,...gin->...mn", np.abs(x), np.abs(w) + np.abs(w - z if self.zero else 0))
        bound += size * 64 * EPSILON["f32"] + np.abs(exact) * EPSILON[self.dtype]
        return (exact, bound) if self.side else (np.swapaxes(exact, -1, -2), np.swapaxes(bound, -1, -2))


def check(numbers: range) -> float:
    """Checks programs; returns the largest share of the bound that an error took."""
    worst = 0.0
    for seed in numbers:
        case = Case(seed)
        arrays, text = case.arrays(), case.text()
        try:
            outs = [
                guarded.outputs(shlo_jit.compile(text, threads=n, cache=False, round_activations="int8")(*arrays))[0]
                for n in ((1, 2, 3) if seed % 4 == 0 else (1,))
            ]
            assert len({out.tobytes() for out in outs}) == 1, "the bits depend on the number of threads"
            exact, bound = case.expected()
            error = np.abs(outs[0].astype(np.float64) - exact)
            assert (error <= bound).all(), f"the error is {(error / bound).max():.3} of the bound"
        except Exception as e:
            e.add_note(f"program {seed}:\n{text}")
            raise
        worst = max(worst, float((error / bound).max()))
    return worst


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_errors_are_within_the_bound(first: int) -> None:
    assert check(range(first, first + 20)) > 0.01, "nothing has been rounded"


@pytest.mark.slow
def test_errors_of_many_programs_are_within_the_bound() -> None:
    print(check(seeds(1000)))


def products(text: str, rounded: str | None = "int8") -> list[str]:
    """The operand types of the products in canonical form."""
    module = shlo_jit.parse(text)
    main = module.function("main")
    assert main is not None
    functions = core_functions(module, main, rounded=rounded)
    ops = [op for f in functions for op in walk(f.block()) if op.name == "stablehlo.dot_general"]
    return [" ".join(v.tensor.storage.name for v in op.operands) for op in ops]


WEIGHTS = """
func.func @main(%x: tensor<4x512xf32>, %q: tensor<512x256xi8>, %s: tensor<{0}xf32>) -> tensor<4x256xf32> {{
  {1}
  %r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<4x512xf32>, tensor<512x256xf32>) -> tensor<4x256xf32>
  return %r : tensor<4x256xf32>
}}"""
CONVERTED = "%c = stablehlo.convert %q : (tensor<512x256xi8>) -> tensor<512x256xf32>"
MATRIX = "tensor<512x256xf32>"
SPREAD = "%b = stablehlo.broadcast_in_dim %s, dims = [{0}] : (tensor<{1}xf32>) -> " + MATRIX


@pytest.mark.parametrize(
    ("extent", "lines", "is_rounded"),
    [
        (256, [CONVERTED, SPREAD.format(1, 256), f"%w = stablehlo.multiply %c, %b : {MATRIX}"], True),
        (256, [CONVERTED, SPREAD.format(1, 256), f"%w = stablehlo.divide %c, %b : {MATRIX}"], True),
        # There is one scale, and one zero point.
        (256, [CONVERTED, f"%z = stablehlo.constant dense<3.0> : {MATRIX}", f"%d = stablehlo.subtract %c, %z : {MATRIX}",
               f"%b = stablehlo.constant dense<0.1> : {MATRIX}", f"%w = stablehlo.multiply %d, %b : {MATRIX}"], True),
        # They are rounded to few bits, or may not fit f32.
        (256, ["%d = stablehlo.convert %q : (tensor<512x256xi8>) -> tensor<512x256xf8E4M3FN>",
               f"%w = stablehlo.convert %d : (tensor<512x256xf8E4M3FN>) -> {MATRIX}"], False),
        (256, ["%d = stablehlo.convert %q : (tensor<512x256xi8>) -> tensor<512x256xf64>",
               f"%w = stablehlo.convert %d : (tensor<512x256xf64>) -> {MATRIX}"], False),
        # Terms have scales of their own.
        (512, [CONVERTED, SPREAD.format(0, 512), f"%w = stablehlo.multiply %c, %b : {MATRIX}"], False),
        # The integers are divided by, or not affine.
        (256, [CONVERTED, SPREAD.format(1, 256), f"%w = stablehlo.divide %b, %c : {MATRIX}"], False),
        (256, [CONVERTED, f"%w = stablehlo.multiply %c, %c : {MATRIX}"], False),
        (256, [CONVERTED, f"%w = stablehlo.tanh %c : {MATRIX}"], False),
    ],
)
def test_weights_must_be_affine(extent: int, lines: list[str], is_rounded: bool) -> None:
    text = WEIGHTS.format(extent, "\n  ".join(lines))
    assert ("i8 i8" in products(text)) == is_rounded
    assert products(text, rounded=None) == ["f32 f32"]


def test_rows_of_an_embedding_are_activations() -> None:
    """They are integers times scales too, but a norm has a factor for each term."""
    text = """
func.func @main(%i: tensor<4xi32>, %e: tensor<64x512xi8>, %g: tensor<512xf32>, %q: tensor<512x256xi8>)
    -> tensor<4x256xf32> {
  %0 = "stablehlo.gather"(%e, %i) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0],
      index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 512>
  } : (tensor<64x512xi8>, tensor<4xi32>) -> tensor<4x512xi8>
  %1 = stablehlo.convert %0 : (tensor<4x512xi8>) -> tensor<4x512xf32>
  %2 = stablehlo.broadcast_in_dim %g, dims = [1] : (tensor<512xf32>) -> tensor<4x512xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<4x512xf32>
  %4 = stablehlo.convert %q : (tensor<512x256xi8>) -> tensor<512x256xf32>
  %r = stablehlo.dot_general {0}, %4, contracting_dims = [1] x [0]
    : (tensor<4x512xf32>, tensor<512x256xf32>) -> tensor<4x256xf32>
  return %r : tensor<4x256xf32>
}"""
    assert products(text.replace("{0}", "%3")) == ["i8 i8"]
    assert products(text.replace("{0}", "%1")) == ["f32 f32"]  # either operand could be the weights


def test_packed_words_are_recognized() -> None:
    text = """
func.func @main(%x: tensor<2x512xf32>, %p: tensor<64x256xui32>, %s: tensor<4x256xf32>) -> tensor<2x256xf32> {
  %0 = stablehlo.broadcast_in_dim %p, dims = [0, 2] : (tensor<64x256xui32>) -> tensor<64x8x256xui32>
  %i = stablehlo.iota dim = 1 : tensor<64x8x256xui32>
  %4 = stablehlo.constant dense<4> : tensor<64x8x256xui32>
  %f = stablehlo.constant dense<15> : tensor<64x8x256xui32>
  %1 = stablehlo.multiply %i, %4 : tensor<64x8x256xui32>
  %2 = stablehlo.shift_right_logical %0, %1 : tensor<64x8x256xui32>
  %3 = stablehlo.and %2, %f : tensor<64x8x256xui32>
  %5 = stablehlo.reshape %3 : (tensor<64x8x256xui32>) -> tensor<4x128x256xui32>
  %6 = stablehlo.convert %5 : (tensor<4x128x256xui32>) -> tensor<4x128x256xf32>
  %7 = stablehlo.broadcast_in_dim %s, dims = [0, 2] : (tensor<4x256xf32>) -> tensor<4x128x256xf32>
  %8 = stablehlo.multiply %6, %7 : tensor<4x128x256xf32>
  %9 = stablehlo.reshape %8 : (tensor<4x128x256xf32>) -> tensor<512x256xf32>
  %r = stablehlo.dot_general %x, %9, contracting_dims = [1] x [0]
    : (tensor<2x512xf32>, tensor<512x256xf32>) -> tensor<2x256xf32>
  return %r : tensor<2x256xf32>
}"""
    assert products(text) == ["i8 i8"]
    rng = np.random.default_rng(0)
    x, s = rng.standard_normal((2, 512), np.float32), rng.random((4, 256), np.float32)
    p = rng.integers(0, 1 << 32, (64, 256), np.uint32)
    q = ((p[:, None] >> (4 * np.arange(8, dtype=np.uint32))[:, None]) & 15).reshape(4, 128, 256).astype(np.float64)
    step = np.abs(x).reshape(2, 4, 128).max(-1) / 127
    bound = np.einsum("mg,gn->mn", step / 2, (q * s[:, None]).sum(1)) * 1.001
    got = shlo_jit.compile(text, round_activations="int8")(x, p, s)
    assert (np.abs(got - x.astype(np.float64) @ (q * s[:, None]).reshape(512, 256)) <= bound).all()


def text_of_product() -> str:
    lines = [CONVERTED, SPREAD.format(1, 256), f"%w = stablehlo.multiply %c, %b : {MATRIX}"]
    return WEIGHTS.format(256, "\n  ".join(lines))


def compiled(**options: Any) -> Any:
    return shlo_jit.compile(text_of_product(), **options)


def test_rows_of_zeros_and_tiny_numbers_are_zero_and_others_not_finite() -> None:
    x = np.ones((4, 512), np.float32)
    x[0], x[1], x[2, 7], x[3, 9] = 0, 1e-38, np.inf, np.nan
    q, s = np.ones((512, 256), np.int8), np.ones(256, np.float32)
    out = compiled(round_activations="int8")(x, q, s)
    assert (out[:2] == 0).all()
    assert not np.isfinite(out[2:]).any()


def test_option_is_off_by_default_and_part_of_the_key() -> None:
    rng = np.random.default_rng(1)
    x, q = rng.standard_normal((4, 512), np.float32), rng.integers(-128, 128, (512, 256), np.int8)
    s = rng.random(256, np.float32)
    exact, rounded, again = compiled(), compiled(round_activations="int8"), compiled(round_activations=None)
    assert (exact(x, q, s) == again(x, q, s)).all()
    assert (exact(x, q, s) != rounded(x, q, s)).any()


def test_libraries_and_the_command_line_round_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    arrays = rng.standard_normal((4, 512), np.float32), rng.integers(-128, 128, (512, 256), np.int8)
    arrays = *arrays, rng.random(256, np.float32)
    want = compiled(round_activations="int8")(*arrays)
    program = tmp_path / "product.mlir"
    program.write_text(text_of_product())
    library = tmp_path / "product.so"
    shlo_jit.export(program, library, round_activations="int8")
    assert shlo_jit.load(library)(*arrays).tobytes() == want.tobytes()
    inputs: list[str] = []
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
        inputs += ["--input", str(tmp_path / f"{i}.npy")]
    command = ["run", str(program), *inputs, "--output-dir", str(tmp_path), "--round-activations", "int8"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert np.load(tmp_path / "output0.npy").tobytes() == want.tobytes()


@pytest.mark.parametrize("given", ["int4", "INT8", 8, True])
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="round_activations: expected None or 'int8'"):
        compiled(round_activations=given)
