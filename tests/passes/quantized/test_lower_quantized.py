"""Quantized types: compiled results equal the reference interpreter's, and products are computed in integers."""

from __future__ import annotations

import numpy as np
import pytest
from alone import canonical

import shlo_jit
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.types import DTYPES, QuantizedType
from shlo_jit.ops.quantized import dequantize, quantize
from shlo_jit.passes.quantized.math import round_trips
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(11)
Q = "!quant.uniform<i8:f32, 0.05:3>"
Q2 = "!quant.uniform<i8:f32, 0.125:-7>"
U8 = "!quant.uniform<u8:f32, 0.02:130>"
HALF = "!quant.uniform<i8:f16, 0.05:-128>"
BRAIN = "!quant.uniform<i8:bf16, 0.05:5>"
NARROW = "!quant.uniform<i4:f32, 0.5:1>"
RANGE = "!quant.uniform<i8<-100:90>:f32, 0.05:3>"
WIDE = "!quant.uniform<i16:f32, 0.001:300>"
DOUBLE = "!quant.uniform<i32:f64, 0.001:12345>"
WORD = "!quant.uniform<i32:f32, 0.001:7>"
AXIS = "!quant.uniform<i8:f32:1, {0.05:3, 0.1:-4, 0.2}>"
TYPES = [Q, U8, HALF, BRAIN, NARROW, RANGE, WIDE, DOUBLE, WORD]


def storage(quantized: str) -> np.dtype:
    name = quantized.split("<")[1].split(":", maxsplit=1)[0].replace("u8", "ui8")
    return DTYPES[name].numpy


def stored(shape: tuple[int, ...], quantized: str) -> np.ndarray:
    dtype = storage(quantized)
    info = (-100, 90) if "-100:90" in quantized else None
    low, high = info or {"int4": (-8, 7), "uint8": (0, 255), "int8": (-128, 127)}.get(dtype.name, (-30000, 30000))
    return RNG.integers(low, high, shape, endpoint=True).astype(np.int64).astype(dtype)


def run(text: str, *arrays: np.ndarray, off: int = 0) -> np.ndarray:
    """Compiles, runs and compares with the reference: equal, or at most `off` storage units apart (ties of sums that
    the reference rounds at each step)."""
    assert not shlo_jit.verify(text), shlo_jit.verify(text)
    expected = evaluate(shlo_jit.parse(text), *arrays)
    got = shlo_jit.compile(text, cache=False)(*arrays)
    for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape
        if g.dtype.kind == "f" or e.dtype.name == "bfloat16":
            np.testing.assert_allclose(g.astype(np.float64), e.astype(np.float64), rtol=1e-6, atol=1e-5)
        else:
            assert np.abs(g.astype(np.int64) - e.astype(np.int64)).max(initial=0) <= off
    return got


def function(body: str, arguments: str, result: str) -> str:
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n  return %r : {result}\n}}"


def core_ops(text: str) -> list[Op]:
    return list(walk(canonical(text).block()))


# ---------------------------------------------------------------------------- to and fro
@pytest.mark.parametrize("q", TYPES)
def test_quantize_and_back(q: str) -> None:
    expressed = q.split(":")[-2].split(",", maxsplit=1)[0]
    t, r = f"tensor<300x{expressed}>", f"tensor<300x{q}>"
    x = (RNG.normal(size=300) * 20).astype(DTYPES[expressed].numpy)
    x[:6] = [np.nan, np.inf, -np.inf, 0.0, 3e4, -3e4]
    there = function(f"  %r = stablehlo.uniform_quantize %x : ({t}) -> {r}", f"%x: {t}", r)
    s = run(there, x)
    assert s[0] == 0  # NaN
    back = function(f"  %r = stablehlo.uniform_dequantize %x : ({r}) -> {t}", f"%x: {r}", t)
    run(back, s)


def test_ties_go_to_even_and_ends_are_kept() -> None:
    q = "!quant.uniform<i8<-5:6>:f32, 2.0:1>"
    text = function(
        f"  %r = stablehlo.uniform_quantize %x : (tensor<7xf32>) -> tensor<7x{q}>",
        "%x: tensor<7xf32>",
        f"tensor<7x{q}>",
    )
    got = run(text, np.float32([1, 3, 5, -1, -3, 1e30, -1e30]))
    np.testing.assert_array_equal(got, np.int8([1, 3, 3, 1, -1, 6, -5]))


def test_nan_where_zero_cannot_be_stored() -> None:
    q = "!quant.uniform<i8<5:100>:f32, 1.0:50>"
    text = function(
        f"  %r = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x{q}>",
        "%x: tensor<2xf32>",
        f"tensor<2x{q}>",
    )
    np.testing.assert_array_equal(run(text, np.float32([np.nan, 3])), np.int8([5, 53]))


def test_per_axis() -> None:
    t, r = "tensor<4x3xf32>", f"tensor<4x3x{AXIS}>"
    other = AXIS.replace("0.1:-4", "0.3:9")
    x = (RNG.normal(size=(4, 3)) * 5).astype(np.float32)
    text = function(
        f"  %q = stablehlo.uniform_quantize %x : ({t}) -> {r}\n"
        f"  %p = stablehlo.uniform_quantize %q : ({r}) -> tensor<4x3x{other}>\n"
        f"  %t = stablehlo.transpose %p, dims = [1, 0] : (tensor<4x3x{other}>) -> "
        f"tensor<3x4x{other.replace(':1,', ':0,')}>\n"
        f"  %r = stablehlo.uniform_dequantize %t : (tensor<3x4x{other.replace(':1,', ':0,')}>) -> tensor<3x4xf32>",
        f"%x: {t}", "tensor<3x4xf32>",
    )  # fmt: skip
    run(text, x)


# ---------------------------------------------------------------------------- elementwise
@pytest.mark.parametrize("q", [Q, U8, HALF, RANGE, WIDE, NARROW])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum", "divide"])
def test_binary(name: str, q: str) -> None:
    t = f"tensor<257x{q}>"
    text = function(f"  %r = stablehlo.{name} %x, %y : {t}", f"%x: {t}, %y: {t}", t)
    run(text, stored((257,), q), stored((257,), q), off=1 if q == HALF else 0)


def test_mixed_scales() -> None:
    text = function(
        f"  %r = stablehlo.add %x, %y : (tensor<64x{Q}>, tensor<64x{Q2}>) -> tensor<64x{Q2}>",
        f"%x: tensor<64x{Q}>, %y: tensor<64x{Q2}>", f"tensor<64x{Q2}>",
    )  # fmt: skip
    run(text, stored((64,), Q), stored((64,), Q2))


@pytest.mark.parametrize("name", ["tanh", "negate", "abs", "ceil", "sqrt", "round_nearest_even", "logistic"])
def test_unary(name: str) -> None:
    t = f"tensor<100x{Q}>"
    run(function(f"  %r = stablehlo.{name} %x : {t}", f"%x: {t}", t), stored((100,), Q))


def test_order_is_decided_on_storage() -> None:
    t = f"tensor<64x{Q}>"
    text = function(
        f"  %c = stablehlo.compare LT, %x, %y : ({t}, {t}) -> tensor<64xi1>\n"
        f"  %m = stablehlo.select %c, %x, %z : (tensor<64xi1>, {t}, {t}) -> {t}\n"
        f"  %r = stablehlo.clamp %x, %m, %z : {t}",
        f"%x: {t}, %y: {t}, %z: {t}", t,
    )  # fmt: skip
    assert {op.result.tensor.storage.name for op in core_ops(text) if op.results} <= {"i8", "i1"}
    run(text, *(stored((64,), Q) for _ in range(3)))


@pytest.mark.parametrize(
    ("scale", "expressed"), [(0.05, "f32"), (1e-3, "f64"), (0.1, "f16"), (3e36, "f32"), (0.1, "bf16")]
)
def test_round_trips_is_exact(scale: float, expressed: str) -> None:
    q = QuantizedType(DTYPES["i8"], DTYPES[expressed], -128, 127, (scale,), (-17,))
    values = np.arange(-128, 128).astype(np.int8)
    with np.errstate(all="ignore"):
        same = bool((quantize(dequantize(values, q), q) == values).all())
    assert same or not round_trips(q)
    assert round_trips(q) == (expressed != "bf16" and scale < 1e36)


# ---------------------------------------------------------------------------- regions
def reduction(body: str, q: str) -> str:
    return function(
        f"  %r = \"stablehlo.reduce\"(%x, %i) ({{\n  ^bb0(%a: tensor<{q}>, %b: tensor<{q}>):\n"
        f"    %s = stablehlo.{body} %a, %b : tensor<{q}>\n    stablehlo.return %s : tensor<{q}>\n"
        f"  }}) {{dimensions = array<i64: 1>}} : (tensor<5x9x{q}>, tensor<{q}>) -> tensor<5x{q}>",
        f"%x: tensor<5x9x{q}>, %i: tensor<{q}>", f"tensor<5x{q}>",
    )  # fmt: skip


@pytest.mark.parametrize("body", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("q", [Q, RANGE, "!quant.uniform<i8:f32, 0.5:0>"])
def test_reduce(body: str, q: str) -> None:
    run(reduction(body, q), stored((5, 9), q), stored((), q))


def test_reduce_over_a_wider_type() -> None:
    """The body's type is wider: operands are requantized to it, so that the sum does not saturate."""
    w = "!quant.uniform<i32:f32, 0.05:0>"
    text = function(
        f"  %r = \"stablehlo.reduce\"(%x, %i) ({{\n  ^bb0(%a: tensor<{w}>, %b: tensor<{w}>):\n"
        f"    %s = stablehlo.add %a, %b : tensor<{w}>\n    stablehlo.return %s : tensor<{w}>\n"
        f"  }}) {{dimensions = array<i64: 1>}} : (tensor<4x50x{Q}>, tensor<{Q}>) -> tensor<4x{w}>",
        f"%x: tensor<4x50x{Q}>, %i: tensor<{Q}>", f"tensor<4x{w}>",
    )  # fmt: skip
    x = stored((4, 50), Q)
    got = shlo_jit.compile(text, cache=False)(x, np.int8(3))
    np.testing.assert_array_equal(got, (x.astype(np.int32) - 3).sum(1))


def test_sort_and_while() -> None:
    t = f"tensor<33x{Q}>"
    text = function(
        f"  %r = \"stablehlo.sort\"(%x) ({{\n  ^bb0(%a: tensor<{Q}>, %b: tensor<{Q}>):\n"
        f"    %s = stablehlo.compare GT, %a, %b : (tensor<{Q}>, tensor<{Q}>) -> tensor<i1>\n"
        f"    stablehlo.return %s : tensor<i1>\n  }}) {{dimension = 0 : i64}} : ({t}) -> {t}",
        f"%x: {t}", t,
    )  # fmt: skip
    x = stored((33,), Q)
    np.testing.assert_array_equal(run(text, x), np.sort(x)[::-1])


# ---------------------------------------------------------------------------- products
def dot_text(x: str, y: str, z: str, shapes: tuple[str, str, str]) -> str:
    a, b, c = (f"tensor<{s}x{t}>" for s, t in zip(shapes, (x, y, z), strict=True))
    return function(
        f"  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}", f"%x: {a}, %y: {b}", c
    )


DOTS = [
    (Q, "!quant.uniform<i8:f32, 0.01>", Q2, 0),
    ("!quant.uniform<i8:f32, 0.05:-128>", "!quant.uniform<i8<-127:127>:f32, 0.01>", Q2, 0),
    (Q, "!quant.uniform<i8:f32:1, {0.01, 0.02, 0.005, 0.1, 0.03, 0.01, 0.01}>", Q2, 0),
    (U8, "!quant.uniform<u8:f32, 0.01>", U8, 0),
    (NARROW, "!quant.uniform<i4:f32, 0.25>", Q, 0),
    (WIDE, "!quant.uniform<i16:f32, 0.0001>", WIDE, 1),
    ("!quant.uniform<i8:f32, 0.05:3>", "!quant.uniform<i8:f32, 0.01>", "!quant.uniform<i32:f32, 0.0005>", 40),
]


@pytest.mark.parametrize(("x", "y", "z", "off"), DOTS)
def test_dot(x: str, y: str, z: str, off: int) -> None:
    text = dot_text(x, y, z, ("5x70", "70x7", "5x7"))
    run(text, stored((5, 70), x), stored((70, 7), y), off=max(off, 1))
    kinds = {o.tensor.storage.name for op in core_ops(text) if op.name == "stablehlo.dot_general" for o in op.operands}
    assert kinds <= ({"f64"} if x == WIDE else {"i8", "ui8"})


def test_dot_is_exact_in_integers() -> None:
    """With scales that are powers of two every step is exact, including ties."""
    x, y, z = "!quant.uniform<i8:f32, 0.5:9>", "!quant.uniform<i8:f32, 0.25>", "!quant.uniform<i8:f32, 64.0:-3>"
    a, b = stored((40, 96), x), stored((96, 33), y)
    got = run(dot_text(x, y, z, ("40x96", "96x33", "40x33")), a, b)
    sums = (a.astype(np.int64) - 9) @ b.astype(np.int64)
    np.testing.assert_array_equal(got, np.clip(np.rint(sums * 0.125 / 64) - 3, -128, 127).astype(np.int8))


def test_long_sums_do_not_wrap() -> None:
    x, y, z = "!quant.uniform<i8:f32, 1.0:127>", "!quant.uniform<i8:f32, 1.0>", "!quant.uniform<i32:f32, 256.0>"
    n = 140000
    a, b = np.full((1, n), -128, np.int8), np.full((n, 2), -128, np.int8)
    got = shlo_jit.compile(dot_text(x, y, z, (f"1x{n}", f"{n}x2", "1x2")), cache=False)(a, b)
    np.testing.assert_array_equal(got, np.full((1, 2), 255 * 128 * n // 256))


def test_dot_of_batches_by_name() -> None:
    """The deprecated dot, whose rhs may have a zero point, too."""
    a, b, c = f"tensor<6x20x{Q}>", f"tensor<20x{Q2}>", f"tensor<6x{WORD}>"
    text = function(f"  %r = stablehlo.dot %x, %y : ({a}, {b}) -> {c}", f"%x: {a}, %y: {b}", c)
    run(text, stored((6, 20), Q), stored((20,), Q2), off=2)


def test_hybrid_dot() -> None:
    y = "!quant.uniform<i8:f32:1, {0.01, 0.02, 0.005}>"
    text = dot_text("f32", y, "f32", ("4x16", "16x3", "4x3"))
    run(text, RNG.normal(size=(4, 16)).astype(np.float32), stored((16, 3), y))


CONVOLUTIONS = [
    ("4x10x11x6", "3x3x6x8", "4x10x11x8", "pad = [[1, 1], [1, 1]]", "", ""),
    ("2x7x8x6", "3x2x6x4", "2x5x3x4", "stride = [2, 3], pad = [[2, 3], [1, 2]], rhs_dilate = [1, 2]", "", ""),
    ("2x5x5x4", "3x3x2x6", "2x9x9x6", "pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]", "feature_group_count = 2", ""),
    ("4x6x6x3", "2x2x3x8", "2x5x5x8", "reverse = [true, false]", "", "batch_group_count = 2"),
    ("1x8x8x5", "3x3x1x5", "1x8x8x5", "pad = [[1, 1], [1, 1]]", "feature_group_count = 5", ""),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize(
    "types", [(Q, Q2, Q2), ("!quant.uniform<i8:f32, 0.05:-128>", "!quant.uniform<i8:f32, 0.01>", Q)]
)
def test_convolution(case: tuple[str, ...], types: tuple[str, str, str]) -> None:
    x, w, y, window, features, batches = case
    a, b, c = (f"tensor<{s}x{q}>" for s, q in zip((x, w, y), types, strict=True))
    counts = ", ".join(
        f"{n} : i64" for n in (features or "feature_group_count = 1", batches or "batch_group_count = 1")
    )
    text = function(
        f"  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        f"window = {{{window}}} {{{counts}}} : ({a}, {b}) -> {c}", f"%x: {a}, %w: {b}", c,
    )  # fmt: skip
    shapes = [tuple(map(int, s.split("x"))) for s in (x, w)]
    run(text, stored(shapes[0], types[0]), stored(shapes[1], types[1]), off=1)


def test_convolution_per_axis_and_hybrid() -> None:
    w = "!quant.uniform<i8:f32:3, {0.01, 0.02, 0.005, 0.1}>"
    z = "!quant.uniform<i8:f32:3, {0.3:1, 0.2:2, 0.4:3, 0.1:4}>"
    for x, y in ((Q, z), (Q, Q2), ("f32", "f32")):
        a, b, c = f"tensor<1x6x6x3x{x}>", f"tensor<3x3x3x4x{w}>", f"tensor<1x4x4x4x{y}>"
        text = function(
            "  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} "
            f"{{feature_group_count = 1 : i64, batch_group_count = 1 : i64}} : ({a}, {b}) -> {c}",
            f"%x: {a}, %w: {b}", c,
        )  # fmt: skip
        data = RNG.normal(size=(1, 6, 6, 3)).astype(np.float32) if x == "f32" else stored((1, 6, 6, 3), x)
        run(text, data, stored((3, 3, 3, 4), w), off=1)


def test_no_quantized_type_is_left() -> None:
    for op in core_ops(dot_text(Q, "!quant.uniform<i8:f32, 0.01>", Q2, ("5x70", "70x7", "5x7"))):
        assert not any(isinstance(r.tensor.dtype, QuantizedType) for r in op.results)


# ---------------------------------------------------------------------------- the rest: every kind of op once
S = f"tensor<{Q}>"
MOVING = [
    (f"%r = stablehlo.reverse %x, dims = [0] : tensor<6x4x{Q}>", "6x4"),
    (f"%r = stablehlo.slice %x [1:6:2, 0:3] : (tensor<6x4x{Q}>) -> tensor<3x3x{Q}>", "3x3"),
    (f"%r = stablehlo.concatenate %x, %x, dim = 0 : (tensor<6x4x{Q}>, tensor<6x4x{Q}>) -> tensor<12x4x{Q}>", "12x4"),
    (f"%r = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<6x4x{Q}>) -> tensor<6x2x4x{Q}>", "6x2x4"),
    (f"%c = stablehlo.constant dense<9> : {S}\n  %r = stablehlo.pad %x, %c, low = [1, 0], high = [0, 2], "
     f"interior = [1, 0] : (tensor<6x4x{Q}>, {S}) -> tensor<12x6x{Q}>", "12x6"),
    (f"%r = stablehlo.iota dim = 0 : tensor<6x4x{Q}>", "6x4"),
    (f"%r = chlo.broadcast_add %x, %x : (tensor<6x4x{Q}>, tensor<6x4x{Q}>) -> tensor<6x4x{Q}>", "6x4"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shape"), MOVING)
def test_moving(op: str, shape: str) -> None:
    run(function("  " + op, f"%x: tensor<6x4x{Q}>", f"tensor<{shape}x{Q}>"), stored((6, 4), Q))


def test_windows() -> None:
    text = function(
        f'  %r = "stablehlo.reduce_window"(%x, %i) ({{\n  ^bb0(%a: {S}, %b: {S}):\n    %s = stablehlo.maximum %a, %b : {S}\n'
        f"    stablehlo.return %s : {S}\n  }}) {{window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 2, 1>}}"
        f" : (tensor<6x8x{Q}>, {S}) -> tensor<3x6x{Q}>",
        f"%x: tensor<6x8x{Q}>, %i: {S}", f"tensor<3x6x{Q}>",
    )  # fmt: skip
    run(text, stored((6, 8), Q), np.int8(-128))


def test_batch_norm() -> None:
    t, v = f"tensor<4x3x{Q}>", f"tensor<3x{Q}>"
    text = function(
        '  %r = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {epsilon = 0.01 : f32, feature_index = 1 : i64} : '
        f"({t}, {v}, {v}, {v}, {v}) -> {t}",
        f"%x: {t}, %s: {v}, %o: {v}, %m: {v}, %v: {v}", t,
    )  # fmt: skip
    run(text, stored((4, 3), Q), *(stored((3,), Q) for _ in range(3)), np.int8([50, 90, 127]), off=1)


def test_control_flow_carries_storage() -> None:
    t = f"tensor<4x{Q}>"
    text = function(
        f"  %zero = stablehlo.constant dense<0> : tensor<i32>\n  %n = stablehlo.constant dense<3> : tensor<i32>\n"
        "  %one = stablehlo.constant dense<1> : tensor<i32>\n"
        f"  %w:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, {t}\n    cond {{\n"
        "      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "      stablehlo.return %c : tensor<i1>\n    } do {\n"
        f"      %z = stablehlo.add %y, %x : {t}\n      %j = stablehlo.add %i, %one : tensor<i32>\n"
        f"      stablehlo.return %j, %z : tensor<i32>, {t}\n    }}\n"
        f"  %r = stablehlo.reshape %w#1 : ({t}) -> {t}",
        f"%x: {t}", t,
    )  # fmt: skip
    got = run(text, np.int8([4, 13, -7, 127]))
    np.testing.assert_array_equal(got, np.clip((np.int32([4, 13, -7, 127]) - 3) * 4 + 3, -128, 127))


def test_custom_calls_get_storage() -> None:
    t = f"tensor<4x{Q}>"
    text = function(f"  %r = stablehlo.custom_call @f(%x) : ({t}) -> {t}", f"%x: {t}", t)
    x = stored((4,), Q)
    got = shlo_jit.compile(text, cache=False, custom_calls={"f": lambda a: a[::-1].copy()})(x)
    np.testing.assert_array_equal(got, x[::-1])
