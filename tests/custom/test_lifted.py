"""Numba functions lifted to ops, compared with Numba's own code."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shlo_jit

numba = pytest.importorskip("numba")

NUMPY = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "ui8": np.uint8,
    "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64, "f32": np.float32, "f64": np.float64,
    "complex<f32>": np.complex64, "complex<f64>": np.complex128,
}  # fmt: skip
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, 1e-40, -1e30, 1e38, math.inf, -math.inf, math.nan, 100.5, -0.75]


def values(name: str) -> np.ndarray:
    """Returns special values, and some others."""
    dtype = np.dtype(NUMPY[name])
    if dtype.kind == "f":
        return np.array(FLOATS, dtype)
    if dtype.kind == "b":
        return np.array([False, True] * 4)
    if dtype.kind == "c":
        return np.array([complex(x, y) for x in FLOATS[:8] for y in FLOATS[:2]], dtype)
    limits = np.iinfo(dtype)
    wanted = [0, 1, 2, 3, 5, 7, 100, limits.max, limits.min, limits.max - 1, limits.min + 1, limits.max // 3]
    return np.array([*wanted, *([-1, -2, -7, -100] if limits.min else [])], dtype)


def pairs(first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns each value with each."""
    x, y = np.meshgrid(values(first), values(second))
    return x.reshape(-1), y.reshape(-1)


def program(operands: list[str], results: list[str], n: int) -> str:
    arguments = ", ".join(f"%x{i}: tensor<{n}x{t}>" for i, t in enumerate(operands))
    types = [", ".join(f"tensor<{n}x{t}>" for t in side) for side in (operands, results)]
    names = ", ".join(f"%x{i}" for i in range(len(operands)))
    returned = ", ".join(f"%0#{i}" for i in range(len(results))) if len(results) > 1 else "%0"
    count = f":{len(results)}" if len(results) > 1 else ""
    return f"""func.func @main({arguments}) -> ({types[1]}) {{
      %0{count} = stablehlo.custom_call @f({names}) : ({types[0]}) -> ({types[1]})
      return {returned} : {types[1]}
    }}"""


def compiled(function, operands: list[str], results: list[str], n: int, *, lifted: bool = True):
    exe = shlo_jit.compile(
        program(operands, results, n), custom_calls={"f": shlo_jit.elementwise(function)}, cache=False
    )
    assert ("machine_code" not in exe.text("core")) == lifted, exe.text("schedule")
    return exe


def by_numba(function, operands: list[str], result: str):
    """Returns the result of Numba's own code, which computes element by element."""
    types = [np.dtype(NUMPY[t]).name.replace("bool", "boolean") for t in (*operands, result)]
    return numba.vectorize([f"{types[-1]}({', '.join(types[:-1])})"])(function)


def hold(function, operands: list[str], result: str, *arrays: np.ndarray, ulps: int = 0) -> None:
    got = compiled(function, operands, [result], len(arrays[0]))(*arrays)
    with np.errstate(all="ignore"):
        want = by_numba(function, operands, result)(*arrays)
    if ulps:
        np.testing.assert_allclose(got, want, rtol=ulps * np.finfo(want.dtype).eps, atol=1e-300)
    else:
        np.testing.assert_array_equal(got, want)


def made(text: str):
    found = {"math": math, "np": np}
    exec(text, found)
    return found["f"]


UNARY = {
    "math.exp(a)": 4, "math.expm1(a)": 4, "math.log(abs(a))": 4, "math.log1p(abs(a))": 4, "math.sqrt(abs(a))": 0,
    "math.sin(a)": 8, "math.cos(a)": 8, "math.tan(a)": 16, "math.tanh(a)": 8, "math.sinh(a)": 8, "math.cosh(a)": 8,
    "math.asin(a / 8)": 8, "math.acos(a / 8)": 8, "math.atan(a)": 8, "math.asinh(a)": 16, "math.acosh(abs(a) + 1)": 16,
    "math.atanh(a / 8)": 16, "math.erf(a)": 16, "math.erfc(a)": 64, "math.fabs(a)": 0, "np.rint(a)": 0, "np.sign(a)": 0,
    "np.trunc(a)": 0, "np.exp2(a)": 8, "math.lgamma(abs(a) + 1)": 64, "a ** 3": 8, "-a": 0, "1.0 if math.isnan(a) else a": 0,
    "1.0 if math.isinf(a) else a": 0, "math.copysign(2.0, a)": 0, "a ** 2.5 if a > 0 else 0.0": 16, "np.square(a)": 0,
    "math.radians(a)": 2, "np.cbrt(a)": 8,
}  # fmt: skip
"""Functions of floats, and the permitted difference of our ops from libm in units in the last place."""


@pytest.mark.parametrize("text", UNARY)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.sampled(5)
def test_functions_of_mathematics(text, dtype):
    x = np.array([0.0, -0.0, 0.25, -0.75, 1.0, 1.5, -2.0, 3.25, -5.5, 7.0], NUMPY[dtype])
    hold(made(f"def f(a):\n    return {text}"), [dtype], dtype, x, ulps=UNARY[text])


@pytest.mark.parametrize("text", ["math.pow(a, b)", "math.atan2(a, b)", "np.fmod(a, b)", "a // b", "a % b", "a / b",
                                  "max(a, b)", "np.maximum(a, b)", "np.fmin(a, b)", "math.copysign(a, b)"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.sampled(4)
def test_functions_of_two_floats(text, dtype):
    x, y = pairs(dtype, dtype)
    hold(made(f"def f(a, b):\n    return {text}"), [dtype, dtype], dtype, x, y, ulps=4)


@pytest.mark.parametrize("text", ["a + b", "a * b - 3", "a // b", "a % b", "a & b", "a ^ b", "~a | b", "a >> 3", "a << 1",
                                  "abs(a) + b", "max(a, b)", "a < b", "a == b", "bool(a) and b > 2"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "i1"])
@pytest.mark.sampled(5)
def test_functions_of_integers(text, dtype):
    if dtype == "i1" and text[2:4] in ("//", "% ", ">>", "<<"):
        pytest.skip("no arithmetic on truth values")
    x, y = pairs(dtype, dtype)
    if dtype != "i1":  # overflow is undefined in Numba's own code, and so is the minimum times -1
        x, y = (np.where(v == np.iinfo(v.dtype).min, v + (v.dtype.kind == "i"), v) for v in (x, y))
        if dtype in ("i64", "ui64"):
            x, y = (v // np.array(1 << 32, v.dtype) for v in (x, y))
    result = "i1" if any(word in text for word in ("<", "==", ">")) and "<<" not in text and ">>" not in text else dtype
    hold(made(f"def f(a, b):\n    return {text}"), [dtype, dtype], result, x, y)


CONVERSIONS = [("f64", "f32"), ("f32", "f64"), ("i32", "f32"), ("ui32", "f32"), ("ui64", "f64"), ("i8", "i64"),
               ("ui8", "i16"), ("i64", "i8"), ("i64", "ui16"), ("i1", "f32"), ("i1", "i32"), ("i32", "i1")]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), CONVERSIONS)
def test_conversions(given, wanted):
    def f(a):
        return a

    hold(f, [given], wanted, values(given))


def test_conversions_of_floats_to_integers_saturate():
    def f(a):
        return int(a)

    x = np.array([1.9, -1.9, 1e30, -1e30, math.nan, 0.0])
    limits = np.iinfo(np.int64)
    np.testing.assert_array_equal(compiled(f, ["f64"], ["i64"], 6)(x), [1, -1, limits.max, limits.min, 0, 0])


@pytest.mark.parametrize(
    "text", ["a * b + a", "a.real * 2 + b.imag", "a.conjugate() - b", "abs(a) + b", "(a - b) * 1j"]
)
@pytest.mark.parametrize("dtype", ["complex<f32>", "complex<f64>"])
def test_complex_numbers(text, dtype):
    x, y = (v[np.isfinite(v) & (abs(v) < 1e10)] for v in (values(dtype),) * 2)
    got = compiled(made(f"def f(a, b):\n    return {text}"), [dtype] * 2, [dtype], len(x), lifted="abs" not in text)(
        x, y
    )
    np.testing.assert_allclose(got, made(f"def f(a, b):\n    return {text}")(x, y), rtol=1e-6)


FOLDED = {"1.0e300": np.iinfo(np.int32).max, "-1.0e300": np.iinfo(np.int32).min, "0x7FF8000000000000": 0}
"""Constants whose conversion LLVM leaves undefined, and our results."""


@pytest.mark.parametrize("number", FOLDED)
def test_conversions_of_constants_saturate(number):
    source = f"""define i32 @f(i32 %a) {{
      %n = fptosi double {number} to i32
      %r = or i32 %n, %a
      ret i32 %r
    }}"""
    code = shlo_jit.LLVMFunction(source, "f", elementwise=True)
    exe = shlo_jit.compile(program(["i32"], ["i32"], 1), custom_calls={"f": code}, cache=False)
    assert exe(np.zeros(1, np.int32))[0] == FOLDED[number]


def test_shifts_past_the_width():
    def f(a, b):
        return (a << b) + (a >> b)

    x, y = np.array([1, 2, -3, -4, 5]), np.array([64, -1, 100, 2, 0])
    np.testing.assert_array_equal(compiled(f, ["i64"] * 2, ["i64"], 5)(x, y), [0, 0, -1, -17, 10])


def test_refusals_inside_of_loops():
    def f(a, b):
        for _ in range(3):
            while b > 2:
                b = math.log2(b)
                a += b
        return a

    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 1e9])
    exe = compiled(f, ["f64", "f64"], ["f64"], 3, lifted=False)
    np.testing.assert_allclose(exe(x, y), [f(*v) for v in zip(x, y, strict=True)], rtol=1e-12)


def test_several_results():
    def f(a, b):
        return a + b, a > b, int(a) % 3

    exe = compiled(f, ["f32", "f32"], ["f32", "i1", "i32"], 4)
    x, y = np.array([1, 2, 3, 4], np.float32), np.array([4, 3, 2, 1], np.float32)
    for got, want in zip(exe(x, y), (x + y, x > y, x.astype(np.int32) % 3), strict=True):
        np.testing.assert_array_equal(got, want)


def test_numbers_beside_tensors():
    def f(a, n):
        for _ in range(n):
            a = a * 0.5 + 1.0
        return a

    text = """func.func @main(%x: tensor<7xf32>, %n: tensor<i32>) -> tensor<7xf32> {
      %0 = stablehlo.custom_call @f(%x, %n) : (tensor<7xf32>, tensor<i32>) -> tensor<7xf32>
      return %0 : tensor<7xf32>
    }"""
    exe = shlo_jit.compile(text, custom_calls={"f": shlo_jit.elementwise(f)})
    x = np.arange(7, dtype=np.float32)
    for n in (0, 1, 5, -3):
        np.testing.assert_array_equal(exe(x, np.int32(n)), [f(np.float64(v), n) for v in x])
    assert "interchanged " in exe.text("plan")


def test_numbers_alone():
    def f(a, b):
        while a > b:
            a = a - 3 if a > 10 else a - 1
            if a == 5:
                return -a
        return a

    text = """func.func @main(%x: tensor<i32>, %y: tensor<i32>) -> tensor<i32> {
      %0 = stablehlo.custom_call @f(%x, %y) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      return %0 : tensor<i32>
    }"""
    exe = shlo_jit.compile(text, custom_calls={"f": shlo_jit.elementwise(f)})
    for a, b in ((3, 7), (20, 1), (9, 5), (30, 6)):
        assert exe(np.int32(a), np.int32(b)) == f(a, b)


def test_loops_end_where_only_some_elements_reach_them():
    def f(a, b):
        if a > 0:
            while b != 0:
                b -= 1
                a += b
        return a

    text = """func.func @main(%x: tensor<4xi32>, %y: tensor<i32>) -> tensor<4xi32> {
      %0 = stablehlo.custom_call @f(%x, %y) : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
      return %0 : tensor<4xi32>
    }"""
    exe = shlo_jit.compile(text, custom_calls={"f": shlo_jit.elementwise(f)})
    np.testing.assert_array_equal(exe(np.array([1, -1, 5, 0], np.int32), np.int32(4)), [7, -1, 11, 0])
    np.testing.assert_array_equal(exe(np.array([-1, -1, -5, 0], np.int32), np.int32(-4)), [-1, -1, -5, 0])
