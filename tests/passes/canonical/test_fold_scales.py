"""Factors of channels in constant weights: when they are folded, when they must not be, and how results change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shlo_jit
from shlo_jit import tuning
from shlo_jit.cli import app
from shlo_jit.ir.core import walk
from shlo_jit.passes import core_functions

SCALED = {"stablehlo.multiply", "stablehlo.divide"}


@pytest.fixture(autouse=True)
def _products_are_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products stay products instead of becoming reductions."""
    for name in ("SMALL_PRODUCT", "SMALL_PRODUCT_STRIDED", "SMALL_VECTOR_PRODUCT"):
        monkeypatch.setattr(tuning, name, 0)


class Program:
    """The text of a program with one argument, op by op; `magnitude` is the same program without signs."""

    def __init__(self, x: np.ndarray, dtype: str = "f32") -> None:
        self.dtype, self.argument = dtype, x
        self.lines: list[tuple[str, np.ndarray | None]] = []
        self.value, self.shape = "%x", x.shape
        self.names = 0

    def type(self, shape: tuple[int, ...], dtype: str = "") -> str:
        return "tensor<" + "".join(f"{n}x" for n in shape) + (dtype or "F") + ">"

    def name(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def constant(self, array: np.ndarray) -> str:
        name = self.name()
        self.lines.append((f"{name} = stablehlo.constant dense<ARRAY> : {self.type(array.shape)}", array))
        return name

    def op(self, text: str, shape: tuple[int, ...]) -> None:
        name = self.name()
        self.lines.append((f"{name} = {text}", None))
        self.value, self.shape = name, shape

    def spread(self, vector: np.ndarray, dims: list[int], form: int) -> str:
        """Emits a constant broadcast along these dimensions of the value, as frontends write it."""
        shape = [1] * len(self.shape)
        for d, n in zip(dims, vector.shape, strict=True):
            shape[d] = n
        if form == 0:
            return self.constant(np.broadcast_to(vector.reshape(shape), self.shape))
        source, where = (vector, dims) if form == 1 else (vector.reshape(shape), range(len(shape)))
        name, constant = self.name(), self.constant(source)
        types = f"({self.type(source.shape)}) -> {self.type(self.shape)}"
        line = f"{name} = stablehlo.broadcast_in_dim {constant}, dims = {[*where]} : {types}"
        self.lines.append((line, None))
        return name

    def apply(self, op: str, vector: np.ndarray, dims: list[int], form: int = 1) -> None:
        other = self.spread(vector, dims, form)
        self.op(f"stablehlo.{op} {self.value}, {other} : {self.type(self.shape)}", self.shape)

    def convolution(self, w: np.ndarray, numbers: str, window: str, shape: tuple[int, ...], groups: int = 1) -> None:
        types = f"({self.type(self.shape)}, {self.type(w.shape)}) -> {self.type(shape)}"
        counts = f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}"
        text = f"dim_numbers = {numbers}, window = {{{window}}} {counts} : {types}"
        self.op(f"stablehlo.convolution({self.value}, {self.constant(w)}) {text}", shape)

    def dot(self, w: np.ndarray, roles: str, shape: tuple[int, ...], weights_first: bool = False) -> None:
        operands, shapes = [self.value, self.constant(w)], [self.shape, w.shape]
        if weights_first:
            operands, shapes = operands[::-1], shapes[::-1]
        types = f"({', '.join(map(self.type, shapes))}) -> {self.type(shape)}"
        self.op(f"stablehlo.dot_general {', '.join(operands)}, {roles} : {types}", shape)

    def text(self, dtype: str = "", magnitude: bool = False, result: str = "") -> str:
        dtype = dtype or self.dtype
        lines = []
        for line, array in self.lines:
            if array is not None:
                made = (np.abs(array) if magnitude else array).astype({"f32": np.float32, "f64": np.float64}[dtype])
                line = line.replace("ARRAY", '"0x' + made.tobytes().hex().upper() + '"')
            lines.append(line.replace("subtract", "add") if magnitude else line)
        result = result or self.value
        head = f"func.func @main(%x: {self.type(self.argument.shape)}) -> {self.type(self.shape)} {{"
        return "\n".join([head, *lines, f"return {result} : {self.type(self.shape)}", "}"]).replace("xF>", f"x{dtype}>")


def core_names(text: str, fold_scales: bool = True) -> list[str]:
    module = shlo_jit.parse(text)
    main = module.function("main")
    assert main is not None
    (core,) = core_functions(module, main, fold_scales=fold_scales)
    return [op.name for op in walk(core.block())]


def check(program: Program, folded: int = 0) -> None:
    """Checks that exactly `folded` factors remain, and that the result is as accurate as without folding."""
    text = program.text()
    assert sum(name in SCALED for name in core_names(text)) == folded
    x = program.argument.astype(np.float64 if program.dtype == "f64" else np.float32)
    compiled = {n: shlo_jit.compile(text, cache=False, threads=n, fold_scales=True) for n in (1, 3)}
    got = compiled[1](x)
    np.testing.assert_array_equal(compiled[3](x), got)
    wide = x.astype(np.float64)
    exact = shlo_jit.compile(program.text("f64"), cache=False)(wide)
    bound = shlo_jit.compile(program.text("f64", magnitude=True), cache=False)(np.abs(wide))
    assert (np.abs(got - exact) <= 40 * np.finfo(x.dtype).eps * bound).all()


LAYOUTS = {
    "NHWC": ("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", 3, lambda n, h, w, c: (n, h, w, c)),
    "NCHW": ("[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", 1, lambda n, h, w, c: (n, c, h, w)),
    "CHWN": ("[f, 0, 1, b]x[i, 0, 1, o]->[f, 0, 1, b]", 0, lambda n, h, w, c: (c, h, w, n)),
}
KERNELS = {
    "NHWC": lambda k, i, o: (k, k, i, o),
    "NCHW": lambda k, i, o: (o, i, k, k),
    "CHWN": lambda k, i, o: (i, k, k, o),
}


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def factors(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.choice([-1, 1], n) * rng.uniform(0.25, 4, n)


def random_convolution(seed: int) -> Program:
    """Random factors before and after a convolution, with additions between them."""
    rng = np.random.default_rng(seed)
    layout = list(LAYOUTS)[seed % 3]
    dims, feature, shape = LAYOUTS[layout]
    groups = int(rng.choice([1, 1, 2, 3]))
    kind = rng.choice(["plain", "depthwise", "transposed"], p=[0.5, 0.25, 0.25])
    inputs, outputs = (groups * int(rng.integers(1, 6)) for _ in range(2))
    if kind == "depthwise":
        groups = inputs
        outputs = inputs * int(rng.integers(1, 3))
    h, w, k = int(rng.integers(5, 9)), int(rng.integers(5, 9)), int(rng.choice([1, 3]))
    images, pad, stride = int(rng.integers(1, 3)), int(rng.integers(0, 2)), int(rng.integers(1, 3))
    p = Program(numbers(rng, *shape(images, h, w, inputs)), str(rng.choice(["f32", "f64"])))
    for _ in range(rng.integers(0, 2)):
        p.apply(str(rng.choice(["multiply", "divide"])), factors(rng, inputs), [feature], int(rng.integers(3)))
    kernel = numbers(rng, *KERNELS[layout](k, inputs // groups, outputs))
    dilation = 2 if kind == "transposed" else 1
    stride = 1 if kind == "transposed" else stride
    oh, ow = (((n - 1) * dilation + 1 + 2 * pad - k) // stride + 1 for n in (h, w))
    window = (
        f"stride = [{stride}, {stride}], pad = [[{pad}, {pad}], [{pad}, {pad}]], lhs_dilate = [{dilation}, {dilation}]"
    )
    p.convolution(kernel, dims, window, shape(images, oh, ow, outputs), groups)
    for op in [*rng.choice(["add", "subtract", "multiply", "divide"], rng.integers(0, 3)), "multiply", "add"]:
        p.apply(str(op), factors(rng, outputs), [feature], int(rng.integers(3)))
    return p


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.sampled(4)
def test_random_convolutions(seed: int) -> None:
    check(random_convolution(seed))


def test_batch_norm_inference() -> None:
    rng = np.random.default_rng(0)
    p = Program(numbers(rng, 2, 6, 5, 4))
    p.convolution(numbers(rng, 3, 3, 4, 6), LAYOUTS["NHWC"][0], "", (2, 4, 3, 6))
    vectors = [p.constant(v) for v in (*numbers(rng, 3, 6), rng.uniform(0.5, 2, 6))]
    vector = p.type((6,))
    types = f"({', '.join([p.type(p.shape), *[vector] * 4])}) -> {p.type(p.shape)}"
    attributes = "{epsilon = 1.0e-3 : f32, feature_index = 3 : i64}"
    p.op(f'"stablehlo.batch_norm_inference"({", ".join([p.value, *vectors])}) {attributes} : {types}', p.shape)
    text = p.text()
    names = core_names(text)
    assert not SCALED & {*names} and names.count("stablehlo.add") == 1
    x = p.argument.astype(np.float32)
    usual, folded = (shlo_jit.compile(text, cache=False, fold_scales=f)(x) for f in (False, True))
    np.testing.assert_allclose(folded, usual, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", range(3))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_products(form: int, dtype: str) -> None:
    rng = np.random.default_rng(form)
    p = Program(numbers(rng, 3, 5, 8), dtype)
    p.apply("divide", factors(rng, 8), [2], form)
    p.dot(numbers(rng, 8, 6), "contracting_dims = [2] x [0]", (3, 5, 6))
    p.apply("add", numbers(rng, 6), [2], form)
    p.apply("multiply", factors(rng, 6), [2], form)
    check(p)


def test_weights_on_the_left_and_in_batches() -> None:
    rng = np.random.default_rng(0)
    p = Program(numbers(rng, 4, 8, 5))
    p.apply("multiply", factors(rng, 4)[:, None] * factors(rng, 8), [0, 1])
    roles = "batching_dims = [0] x [0], contracting_dims = [2] x [1]"
    p.dot(numbers(rng, 4, 7, 8), roles, (4, 7, 5), weights_first=True)
    p.apply("divide", factors(rng, 4)[:, None] * factors(rng, 7), [0, 1])
    p.apply("subtract", numbers(rng, 7), [1])
    check(p)


def test_through_reshapes_and_transposes() -> None:
    rng = np.random.default_rng(0)
    p = Program(numbers(rng, 3, 5, 8))
    p.apply("multiply", factors(rng, 8), [2])
    p.op(f"stablehlo.reshape {p.value} : ({p.type((3, 5, 8))}) -> {p.type((15, 8))}", (15, 8))
    p.dot(numbers(rng, 8, 6), "contracting_dims = [1] x [0]", (15, 6))
    p.op(f"stablehlo.reshape {p.value} : ({p.type((15, 6))}) -> {p.type((3, 5, 6))}", (3, 5, 6))
    p.apply("add", numbers(rng, 6), [2])
    p.op(f"stablehlo.transpose {p.value}, dims = [2, 0, 1] : ({p.type((3, 5, 6))}) -> {p.type((6, 3, 5))}", (6, 3, 5))
    p.apply("multiply", factors(rng, 6), [0])
    check(p)


def test_a_reshape_that_cuts_channels_stops() -> None:
    rng = np.random.default_rng(0)
    p = Program(numbers(rng, 4, 8))
    p.dot(numbers(rng, 8, 6), "contracting_dims = [1] x [0]", (4, 6))
    p.op(f"stablehlo.reshape {p.value} : ({p.type((4, 6))}) -> {p.type((8, 3))}", (8, 3))
    p.apply("multiply", factors(rng, 3), [1])
    check(p, folded=1)


def dense(
    factor: np.ndarray | float = 2.0, weights: np.ndarray | None = None, dims: list[int] | None = None
) -> Program:
    """A product of 4 rows, followed by a factor."""
    rng = np.random.default_rng(0)
    p = Program(numbers(rng, 4, 8))
    p.dot(numbers(rng, 8, 6) if weights is None else weights, "contracting_dims = [1] x [0]", (4, 6))
    vector = np.full(6, factor) if np.ndim(factor) == 0 else np.asarray(factor)
    p.apply("multiply", vector, [1] if dims is None else dims)
    return p


ONE_TO_FIVE = np.arange(1.0, 6.0)
SMALL = np.float64(np.finfo(np.float32).tiny)
WEIGHTS = np.random.default_rng(0).uniform(0.5, 1, (8, 6))


def with_weight(number: float) -> np.ndarray:
    found = WEIGHTS.copy()
    found[3, 2] = number
    return found


KEPT = {
    "a factor is 0": dense(np.append(ONE_TO_FIVE, 0)),
    "infinite": dense(np.append(ONE_TO_FIVE, np.inf)),
    "NaN": dense(np.append(ONE_TO_FIVE, np.nan)),
    "subnormal": dense(np.append(ONE_TO_FIVE, SMALL / 4)),
    "a weight would be infinite": dense(1e10, with_weight(1e30)),
    "subnormal, too": dense(1e-20, with_weight(1e-20)),
    "0, too": dense(1e-30, with_weight(1e-30)),
    "is infinite": dense(2, with_weight(np.inf)),
    "is NaN": dense(2, with_weight(np.nan)),
    "it is of rows": dense(factors(np.random.default_rng(0), 4), dims=[0]),
    "it is of all elements": dense(numbers(np.random.default_rng(0), 4, 6), dims=[0, 1]),
}


@pytest.mark.parametrize("why", KEPT)
def test_what_is_not_folded(why: str) -> None:
    text = KEPT[why].text()
    assert core_names(text) == core_names(text, fold_scales=False)
    assert SCALED & {*core_names(text)}


def test_weights_that_are_zero_do_not_matter() -> None:
    check(dense(1e-30, with_weight(0)))


def test_an_offset_out_of_range_stays() -> None:
    p = Program(np.ones((4, 8)))
    p.dot(WEIGHTS, "contracting_dims = [1] x [0]", (4, 6))
    p.apply("add", np.full(6, 1e20), [1])
    p.apply("multiply", np.append(ONE_TO_FIVE, 1e20), [1])
    text = p.text()
    assert core_names(text) == core_names(text, fold_scales=False)


def test_values_with_other_readers_stay() -> None:
    p = dense(ONE_TO_FIVE.repeat(2)[:6])
    unscaled = next(line.partition(" ")[0] for line, _ in p.lines if "dot_general" in line)
    p.op(f"stablehlo.add {p.value}, {unscaled} : {p.type(p.shape)}", p.shape)
    check(p, folded=1)


def test_weights_with_other_readers_stay() -> None:
    p = dense(ONE_TO_FIVE.repeat(2)[:6])
    weights = p.lines[0][0].partition(" ")[0]
    scaled, shape = p.value, p.shape
    p.op(f"stablehlo.dot_general %x, {weights}, contracting_dims = [1] x [0] : ({p.type((4, 8))}, {p.type((8, 6))}) -> "
         f"{p.type(shape)}", shape)  # fmt: skip
    p.op(f"stablehlo.add {p.value}, {scaled} : {p.type(shape)}", shape)
    check(p, folded=1)


def test_a_constant_divided_by_the_result_stays() -> None:
    p = Program(np.ones((4, 8)))
    p.dot(WEIGHTS, "contracting_dims = [1] x [0]", (4, 6))
    other = p.constant(np.full((4, 6), 3.0))
    p.op(f"stablehlo.divide {other}, {p.value} : {p.type((4, 6))}", (4, 6))
    check(p, folded=1)


@pytest.mark.parametrize("dtype,result", [("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32")])
def test_narrow_floats_stay(dtype: str, result: str) -> None:
    text = f"""func.func @main(%x: tensor<4x8x{dtype}>) -> tensor<4x6x{result}> {{
      %w = stablehlo.constant dense<{[[1.5 + i + j for i in range(6)] for j in range(8)]}> : tensor<8x6x{dtype}>
      %s = stablehlo.constant dense<[1.5, 2.5, 3.5, 4.5, 5.5, 6.5]> : tensor<6x{result}>
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] :
        (tensor<4x8x{dtype}>, tensor<8x6x{dtype}>) -> tensor<4x6x{result}>
      %1 = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<6x{result}>) -> tensor<4x6x{result}>
      %2 = stablehlo.multiply %0, %1 : tensor<4x6x{result}>
      return %2 : tensor<4x6x{result}>
    }}"""
    assert core_names(text) == core_names(text, fold_scales=False)


def test_between_two_products_a_factor_is_folded_once() -> None:
    rng = np.random.default_rng(0)
    p = Program(numbers(rng, 10, 8))
    p.dot(numbers(rng, 8, 6), "contracting_dims = [1] x [0]", (10, 6))
    p.apply("multiply", factors(rng, 6), [1])
    p.dot(numbers(rng, 6, 5), "contracting_dims = [1] x [0]", (10, 5))
    p.apply("divide", factors(rng, 5), [1])
    check(p)


def test_weights_are_in_memory_once(tmp_path: Path) -> None:
    """The constants of a program are only the folded ones, and as large as the given ones."""
    rng = np.random.default_rng(0)
    p = Program(numbers(rng, 64, 256))
    p.dot(numbers(rng, 256, 512), "contracting_dims = [1] x [0]", (64, 512))
    p.apply("multiply", factors(rng, 512), [1])
    p.apply("add", numbers(rng, 512), [1])
    path = tmp_path / "program.mlir"
    path.write_text(p.text())
    usual, folded = (constants(shlo_jit.compile(path, fold_scales=f)) for f in (False, True))
    assert folded == usual - 512 * 4  # the factors


def constants(exe: Any) -> int:
    return exe.memory.constants


def test_export_and_command_line(tmp_path: Path) -> None:
    p = dense(ONE_TO_FIVE.repeat(2)[:6])
    text, x = p.text(), p.argument.astype(np.float32)
    expected = shlo_jit.compile(text, fold_scales=True)(x)
    exported = shlo_jit.export(text, tmp_path / "dense.so", fold_scales=True)
    np.testing.assert_array_equal(shlo_jit.load(exported.library)(x), expected)
    program, given, result = tmp_path / "dense.mlir", tmp_path / "x.npy", tmp_path / "output0.npy"
    program.write_text(text)
    np.save(given, x)
    run = ["run", program, "--fold-scales", "--check", "--input", given, "--output-dir", tmp_path]
    assert CliRunner().invoke(app, [*map(str, run)]).exit_code == 0
    np.testing.assert_array_equal(np.load(result), expected)
    shown = CliRunner().invoke(app, ["show", str(program), "--fold-scales", "--stage", "core"])
    assert "multiply" not in shown.stdout and "dot_general" in shown.stdout
