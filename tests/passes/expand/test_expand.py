"""Expansions: compiled results equal the reference interpreter's, and the expanded op is gone."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from alone import after, main_of

import shlo_jit
from shlo_jit.ir.core import walk
from shlo_jit.ir.types import DTYPES
from shlo_jit.passes.expand.expand import EXPANSIONS, expand, expansion
from shlo_jit.passes.simplify import simplify
from shlo_jit.reference.interpreter import evaluate

RNG = np.random.default_rng(7)
TOLERANCE = {"f16": 2e-3, "bf16": 1e-2, "f32": 2e-6, "f64": 1e-13, "complex<f32>": 2e-6, "complex<f64>": 1e-13}


def numbers(shape: tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    d = DTYPES[dtype]
    if d.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    if d.is_integer:
        low = 0 if d.kind == "u" else -(2 ** (min(d.bits, 8) - 1))
        return RNG.integers(low, low + 2 ** min(d.bits, 8), shape).astype(d.numpy)
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if d.is_complex else x).astype(d.numpy)


def check(text: str, *arrays: np.ndarray, gone: str = "") -> tuple[np.ndarray, ...]:
    """Compiles, runs and compares with the meaning of the original text."""
    module = shlo_jit.parse(text)
    assert not shlo_jit.verify(text)
    expected = evaluate(module, *arrays)
    got = shlo_jit.compile(text, cache=False)(*arrays)
    got = got if isinstance(got, tuple) else (got,)
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape
        name = next(n for n, d in DTYPES.items() if d.numpy == g.dtype and n != "index")
        if name in TOLERANCE:
            wide = np.complex128 if DTYPES[name].is_complex else np.float64
            scale = float(np.max(np.abs(np.nan_to_num(e.astype(wide))), initial=1.0))
            np.testing.assert_allclose(
                g.astype(wide), e.astype(wide), rtol=TOLERANCE[name], atol=TOLERANCE[name] * scale
            )
        else:
            np.testing.assert_array_equal(g, e)
    if gone:
        assert gone not in {op.name for op in walk(after(text, simplify, expand).block())}
    return got


def function(body: str, arguments: str, results: str) -> str:
    return f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"


# ---------------------------------------------------------------------------- products
@pytest.mark.parametrize(
    ("lhs", "rhs", "out"), [("5", "5", ""), ("3x5", "5", "3"), ("5", "5x4", "4"), ("3x5", "5x4", "3x4")]
)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "complex<f64>"])
def test_dot(lhs: str, rhs: str, out: str, dtype: str) -> None:
    types = [f"tensor<{s}x{dtype}>" if s else f"tensor<{dtype}>" for s in (lhs, rhs, out)]
    text = function(
        f'%0 = "stablehlo.dot"(%a, %b) : ({types[0]}, {types[1]}) -> {types[2]}\nreturn %0 : {types[2]}',
        f"%a: {types[0]}, %b: {types[1]}",
        types[2],
    )
    shapes = [tuple(map(int, s.split("x"))) for s in (lhs, rhs)]
    check(text, *[numbers(s, dtype) for s in shapes], gone="stablehlo.dot")


@pytest.mark.parametrize(
    ("config", "lhs", "rhs"),
    [
        ("ab,bc->ac", (3, 5), (5, 4)),
        ("ab,bc->ca", (3, 5), (5, 4)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("ibj,kjb->kbi", (3, 2, 4), (5, 4, 2)),
        ("ab,ab->", (3, 5), (3, 5)),
        ("ab,ab->ba", (3, 5), (3, 5)),
        ("a,b->ab", (3,), (5,)),
        ("abc,b->a", (2, 3, 4), (3,)),
        ("aab,b->a", (3, 3, 4), (4,)),
        ("ab,bb->b", (3, 4), (4, 4)),
    ],
)
def test_einsum(config: str, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> None:
    x, y = numbers(lhs), numbers(rhs)
    shape = np.einsum(config, x, y).shape
    types = ["x".join([*map(str, s), "f32"]) for s in (lhs, rhs, shape)]
    text = function(
        f'%0 = "stablehlo.einsum"(%a, %b) {{einsum_config = "{config}"}} : (tensor<{types[0]}>, tensor<{types[1]}>)'
        f" -> tensor<{types[2]}>\nreturn %0 : tensor<{types[2]}>",
        f"%a: tensor<{types[0]}>, %b: tensor<{types[1]}>",
        f"tensor<{types[2]}>",
    )
    (got,) = check(text, x, y, gone="stablehlo.einsum")
    np.testing.assert_allclose(got, np.einsum(config, x, y), rtol=1e-5, atol=1e-5)


def test_einsum_with_ellipsis() -> None:
    x, y = numbers((2, 1, 3, 4)), numbers((5, 4, 6))
    text = function(
        '%0 = "stablehlo.einsum"(%a, %b) {einsum_config = "...ij,...jk->...ik"} :'
        " (tensor<2x1x3x4xf32>, tensor<5x4x6xf32>) -> tensor<2x5x3x6xf32>\nreturn %0 : tensor<2x5x3x6xf32>",
        "%a: tensor<2x1x3x4xf32>, %b: tensor<5x4x6xf32>",
        "tensor<2x5x3x6xf32>",
    )
    check(text, x, y, gone="stablehlo.einsum")


@pytest.mark.parametrize(
    ("config", "shape"), [("ab->ba", (3, 4)), ("ab->", (3, 4)), ("aab->b", (3, 3, 2)), ("abc->ca", (2, 3, 4))]
)
def test_unary_einsum(config: str, shape: tuple[int, ...]) -> None:
    x = numbers(shape)
    types = ["x".join([*map(str, s), "f32"]) for s in (shape, np.einsum(config, x).shape)]
    text = function(
        f'%0 = "stablehlo.unary_einsum"(%a) {{einsum_config = "{config}"}} : (tensor<{types[0]}>) -> tensor<{types[1]}>'
        f"\nreturn %0 : tensor<{types[1]}>",
        f"%a: tensor<{types[0]}>",
        f"tensor<{types[1]}>",
    )
    check(text, x, gone="stablehlo.unary_einsum")


RAGGED = [
    # lhs, rhs, sizes, result and (batching, contracting, ragged, group) dimensions
    ((11, 5), (3, 5, 7), (3,), (11, 7), ([], [], [1], [1], [0], [0])),
    ((2, 11, 5), (3, 2, 5, 7), (3,), (2, 11, 7), ([0], [1], [2], [2], [1], [0])),
    ((2, 11, 5), (3, 2, 5, 7), (2, 3), (2, 11, 7), ([0], [1], [2], [2], [1], [0])),
    ((11, 5), (5, 7), (3,), (3, 11, 7), ([], [], [1], [0], [1], [])),
    ((2, 11, 5), (2, 11, 7), (2, 3), (3, 2, 5, 7), ([0], [0], [1], [1], [1], [])),
    ((4, 11, 5), (4, 5, 7), (3,), (4, 11, 7), ([0], [0], [2], [1], [0], [])),
]


@pytest.mark.parametrize(("lhs", "rhs", "sizes", "result", "dims"), RAGGED)
def test_ragged_dot(lhs, rhs, sizes, result, dims) -> None:
    names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting", "lhs_ragged", "rhs_group")
    struct = ", ".join(f"{n}_dimensions = {d}" for n, d in zip(names, dims, strict=True))
    types = [
        f"tensor<{'x'.join([*map(str, s), t])}>"
        for s, t in zip((lhs, rhs, sizes, result), ("f32", "f32", "i64", "f32"), strict=True)
    ]
    text = function(
        f'%0 = "chlo.ragged_dot"(%a, %b, %s) {{ragged_dot_dimension_numbers = #chlo.ragged_dot<{struct}>}} :'
        f" ({', '.join(types[:3])}) -> {types[3]}\nreturn %0 : {types[3]}",
        f"%a: {types[0]}, %b: {types[1]}, %s: {types[2]}",
        types[3],
    )
    groups = np.broadcast_to(np.array([2, 0, 1]), sizes).astype(np.int64)
    check(text, numbers(lhs), numbers(rhs), groups, gone="chlo.ragged_dot")


# ---------------------------------------------------------------------------- batch_norm
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("feature", [0, 1, 3])
def test_batch_norm(dtype: str, feature: int) -> None:
    shape = (2, 3, 4, 5)
    n = shape[feature]
    x, g = numbers(shape, dtype), numbers(shape, dtype)
    scale, offset, mean = (numbers((n,), dtype) for _ in range(3))
    variance = np.abs(numbers((n,), dtype)).astype(x.dtype)
    t, v = f"tensor<2x3x4x5x{dtype}>", f"tensor<{n}x{dtype}>"
    attributes = f"{{epsilon = 1.0e-3 : f32, feature_index = {feature} : i64}}"
    arguments = f"%x: {t}, %s: {v}, %o: {v}, %m: {v}, %v: {v}, %g: {t}"
    body = f"""
      %i = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {attributes} : ({t}, {v}, {v}, {v}, {v}) -> {t}
      %t:3 = "stablehlo.batch_norm_training"(%x, %s, %o) {attributes} : ({t}, {v}, {v}) -> ({t}, {v}, {v})
      %d:3 = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) {attributes} : ({t}, {v}, {v}, {v}, {t}) -> ({t}, {v}, {v})
      return %i, %t#0, %t#1, %t#2, %d#0, %d#1, %d#2 : {t}, {t}, {v}, {v}, {t}, {v}, {v}"""
    text = function(body, arguments, f"{t}, {t}, {v}, {v}, {t}, {v}, {v}")
    check(text, x, scale, offset, mean, variance, g, gone="stablehlo.batch_norm_grad")


# ---------------------------------------------------------------------------- data
def test_broadcast() -> None:
    text = function(
        '%0 = "stablehlo.broadcast"(%a) {broadcast_sizes = array<i64: 2, 1>} : (tensor<3x4xi16>)'
        " -> tensor<2x1x3x4xi16>\n"
        "return %0 : tensor<2x1x3x4xi16>",
        "%a: tensor<3x4xi16>",
        "tensor<2x1x3x4xi16>",
    )
    check(text, numbers((3, 4), "i16"), gone="stablehlo.broadcast")


@pytest.mark.parametrize(
    ("shape", "index", "dim", "batch", "result"),
    [
        ((5, 4, 3), (2,), 0, 0, (2, 4, 3)),
        ((5, 4, 3), (2, 2), 1, 0, (5, 2, 2, 3)),
        ((5, 4, 3), (2, 2), -1, 0, (5, 4, 2, 2)),
        ((2, 4, 3), (2, 6), 1, 1, (2, 6, 3)),
        ((2, 4, 3), (2, 4), 2, 2, (2, 4)),
    ],
)
def test_torch_index_select(shape, index, dim, batch, result) -> None:
    types = ["x".join(map(str, s)) for s in (shape, index, result)]
    text = function(
        f'%0 = "stablehlo.torch_index_select"(%a, %i) {{dim = {dim} : i64, batch_dims = {batch} : i64}} :'
        f" (tensor<{types[0]}xf32>, tensor<{types[1]}xi32>) -> tensor<{types[2]}xf32>"
        f"\nreturn %0 : tensor<{types[2]}xf32>",
        f"%a: tensor<{types[0]}xf32>, %i: tensor<{types[1]}xi32>",
        f"tensor<{types[2]}xf32>",
    )
    indices = RNG.integers(0, 3, index).astype(np.int32)
    check(text, numbers(shape), indices, gone="stablehlo.torch_index_select")


def test_map() -> None:
    text = function(
        """%0 = "stablehlo.map"(%a, %b) ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %two = stablehlo.constant dense<2.0> : tensor<f32>
          %m = stablehlo.multiply %x, %two : tensor<f32>
          %c = stablehlo.compare GT, %m, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %sq = chlo.square %y : tensor<f32> -> tensor<f32>
          %s = stablehlo.select %c, %m, %sq : tensor<i1>, tensor<f32>
          stablehlo.return %s : tensor<f32>
        }) {dimensions = array<i64: 0, 1>} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
        return %0 : tensor<3x4xf32>""",
        "%a: tensor<3x4xf32>, %b: tensor<3x4xf32>",
        "tensor<3x4xf32>",
    )
    check(text, numbers((3, 4)), numbers((3, 4)), gone="stablehlo.map")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32", "ui8"), ("ui64", "ui32"), ("f64", "f32"), ("i32", "bf16"), ("i8", "i4"), ("i8", "ui2"),
        ("f16", "f8E5M2"),        ("i8", "f4E2M1FN"),
    ],
)  # fmt: skip
def test_bitcast_convert_between_widths(source: str, target: str) -> None:
    wide, narrow = DTYPES[source], DTYPES[target]
    ratio = wide.bits // narrow.bits
    raw = RNG.integers(0, 256, (3, 5, wide.itemsize), dtype=np.uint8)
    if wide.is_float:
        raw[..., -1] = 0x40  # no NaN, which does not survive a conversion in this test
    x = raw.view(wide.numpy)[..., 0]
    split = function(
        f"%0 = stablehlo.bitcast_convert %a : (tensor<3x5x{source}>) -> tensor<3x5x{ratio}x{target}>\n"
        f"%1 = stablehlo.bitcast_convert %0 : (tensor<3x5x{ratio}x{target}>) -> tensor<3x5x{source}>\n"
        f"return %0, %1 : tensor<3x5x{ratio}x{target}>, tensor<3x5x{source}>",
        f"%a: tensor<3x5x{source}>",
        f"tensor<3x5x{ratio}x{target}>, tensor<3x5x{source}>",
    )
    exe = shlo_jit.compile(split, cache=False)
    parts, again = exe(x)
    assert np.array_equal(again.view(np.uint8), np.ascontiguousarray(x).view(np.uint8))
    if narrow.bits >= 8:
        assert parts.tobytes() == x.tobytes()
    else:
        whole = x.view(np.uint8).astype(np.int64)
        for k in range(ratio):
            want = (whole >> (k * narrow.bits)) & ((1 << narrow.bits) - 1)
            got = parts[..., k].view(np.uint8).astype(np.int64) & ((1 << narrow.bits) - 1)
            assert np.array_equal(got, want)


# ---------------------------------------------------------------------------- dynamic ops with known shapes
def test_dynamic_ops() -> None:
    body = """
      %s = stablehlo.constant dense<[2, 6]> : tensor<2xi32>
      %r = stablehlo.dynamic_reshape %a, %s : (tensor<3x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
      %bs = stablehlo.constant dense<[2, 3, 4]> : tensor<3xi64>
      %b = stablehlo.dynamic_broadcast_in_dim %a, %bs, dims = [1, 2]
        : (tensor<3x4xf32>, tensor<3xi64>) -> tensor<2x3x4xf32>
      %i = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi32>) -> tensor<2x6xf32>
      %low = stablehlo.constant dense<[1, -1]> : tensor<2xi64>
      %one = stablehlo.constant dense<1> : tensor<2xi64>
      %zero = stablehlo.constant dense<0> : tensor<2xi64>
      %limit = stablehlo.constant dense<[3, 2]> : tensor<2xi64>
      %v = stablehlo.constant dense<7.0> : tensor<f32>
      %p = stablehlo.dynamic_pad %a, %v, %low, %zero, %one
        : (tensor<3x4xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<6x6xf32>
      %c = stablehlo.real_dynamic_slice %a, %zero, %limit, %one
        : (tensor<3x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<3x2xf32>
      %n = stablehlo.get_dimension_size %a, dim = 1 : (tensor<3x4xf32>) -> tensor<i32>
      return %r, %b, %i, %p, %c, %n : tensor<2x6xf32>, tensor<2x3x4xf32>, tensor<2x6xf32>,
        tensor<6x6xf32>, tensor<3x2xf32>, tensor<i32>
    """
    results = "tensor<2x6xf32>, tensor<2x3x4xf32>, tensor<2x6xf32>, tensor<6x6xf32>, tensor<3x2xf32>, tensor<i32>"
    check(function(body, "%a: tensor<3x4xf32>", results), numbers((3, 4)), gone="stablehlo.dynamic_pad")


def test_real_dynamic_slice_with_starts_from_outside() -> None:
    body = """
      %one = stablehlo.constant dense<1> : tensor<2xi64>
      %c = stablehlo.real_dynamic_slice %a, %s, %l, %one
        : (tensor<5x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<3x2xf32>
      return %c : tensor<3x2xf32>"""
    text = function(body, "%a: tensor<5x4xf32>, %s: tensor<2xi64>, %l: tensor<2xi64>", "tensor<3x2xf32>")
    x = numbers((5, 4))
    got = shlo_jit.compile(text, cache=False)(x, np.array([1, 2]), np.array([4, 4]))
    assert np.array_equal(got, x[1:4, 2:4])


# ---------------------------------------------------------------------------- CHLO
def test_broadcasting_ops() -> None:
    body = """
      %0 = chlo.broadcast_add %a, %b : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
      %1 = chlo.broadcast_multiply %c, %a {broadcast_dimensions = array<i64: 0>}
        : (tensor<3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
      %2 = chlo.broadcast_compare %a, %b {comparison_direction = #chlo<comparison_direction LT>}
        : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xi1>
      %3 = chlo.broadcast_select %2, %s, %a : (tensor<3x4xi1>, tensor<f32>, tensor<3x4xf32>) -> tensor<3x4xf32>
      %4 = chlo.broadcast_complex %s, %b : (tensor<f32>, tensor<4xf32>) -> tensor<4xcomplex<f32>>
      %5 = chlo.conj %4 : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
      %6 = chlo.broadcast_next_after %a, %s : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>
      %7 = "chlo.constant_like"(%a) {value = 2.5 : f32} : (tensor<3x4xf32>) -> tensor<3x4xf32>
      %8 = chlo.square %b : tensor<4xf32> -> tensor<4xf32>
      return %0, %1, %2, %3, %5, %6, %7, %8 : RESULTS"""
    full = "tensor<3x4xf32>"
    results = f"{full}, {full}, tensor<3x4xi1>, {full}, tensor<4xcomplex<f32>>, {full}, {full}, tensor<4xf32>"
    arguments = f"%a: {full}, %b: tensor<4xf32>, %c: tensor<3xf32>, %s: tensor<f32>"
    arrays = numbers((3, 4)), numbers((4,)), numbers((3,)), numbers(())
    check(function(body.replace("RESULTS", results), arguments, results), *arrays, gone="chlo.broadcast_add")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan(reverse: bool, axis: int) -> None:
    kept = (3, 4)[1 - axis]
    body = f"""
      %0:2 = chlo.scan (%a) inits (%i) dimension = {axis} attributes {{is_reverse = {str(reverse).lower()}}} {{
      ^bb0(%x: tensor<{kept}xf32>, %s: tensor<{kept}xf32>):
        %t = stablehlo.add %x, %s : tensor<{kept}xf32>
        %h = chlo.square %t : tensor<{kept}xf32> -> tensor<{kept}xf32>
        stablehlo.return %h, %t : tensor<{kept}xf32>, tensor<{kept}xf32>
      }} : (tensor<3x4xf32>, tensor<{kept}xf32>) -> (tensor<3x4xf32>, tensor<{kept}xf32>)
      return %0#0, %0#1 : tensor<3x4xf32>, tensor<{kept}xf32>"""
    text = function(body, f"%a: tensor<3x4xf32>, %i: tensor<{kept}xf32>", f"tensor<3x4xf32>, tensor<{kept}xf32>")
    check(text, numbers((3, 4)), numbers((kept,)), gone="chlo.scan")


@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX", "DEFAULT"])
@pytest.mark.parametrize(("shape", "dtype"), [
    ((), "ui32"), ((7,), "ui32"), ((3, 5), "ui32"), ((3, 4, 5), "i32"), ((3, 5), "ui64"), ((130,), "ui8"),
    ((5, 3), "f32"),    ((9,), "ui4"),
])  # fmt: skip
def test_rng_bit_generator(algorithm: str, shape: tuple[int, ...], dtype: str) -> None:
    t = f"tensor<{'x'.join([*map(str, shape), dtype])}>"
    size = 3 if algorithm == "PHILOX" else 2
    text = function(
        f"%0:2 = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : (tensor<{size}xui64>)"
        f" -> (tensor<{size}xui64>, {t})\n"
        f"return %0#0, %0#1 : tensor<{size}xui64>, {t}",
        f"%s: tensor<{size}xui64>",
        f"tensor<{size}xui64>, {t}",
    )
    state = np.array([0x0123456789ABCDEF, 2**64 - 3, 5][:size], np.uint64)
    with np.errstate(over="ignore"):
        expected = evaluate(shlo_jit.parse(text), state)
    got = shlo_jit.compile(text, cache=False)(state)
    assert [g.tobytes() for g in got] == [np.ascontiguousarray(e).tobytes() for e in expected]


def test_expanding_twice_changes_nothing() -> None:
    text = function(
        '%0 = "stablehlo.dot"(%a, %b) : (tensor<3x5xf32>, tensor<5x4xf32>) -> tensor<3x4xf32>\n'
        "return %0 : tensor<3x4xf32>",
        "%a: tensor<3x5xf32>, %b: tensor<5x4xf32>",
        "tensor<3x4xf32>",
    )
    main, context = main_of(text)
    once = expand(main, context)
    assert expand(once, context) is once


def test_the_table_names_the_module_of_each_rule():
    found = {
        name: module
        for module in dict.fromkeys(EXPANSIONS.values())
        for name in import_module(f"shlo_jit.passes.expand.{module}").RULES
    }
    assert found == EXPANSIONS
    assert all(callable(expansion(name)) for name in EXPANSIONS)
    assert expansion("stablehlo.add") is None
