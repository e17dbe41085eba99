"""Tests of the replacements for libgcc and libm, against numpy, Python's integers and libm."""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Callable

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from shlo_jit.codegen import optimize
from shlo_jit.codegen.target import resolve, target_machine
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.compiler_helpers import HELPERS, write_helpers
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target

HOST = resolve()
TARGETS = [
    "x86-64",
    "x86-64-v4",
    "x86_64-none",
    "x86_64-macos",
    "x86_64-windows",
    "aarch64",
    "aarch64-macos",
    "riscv64",
]
TARGETS += ["riscv64+v", "wasm32", "wasm32+simd128"]


def module_of(names: list[str], target: Target) -> ModuleText:
    module = ModuleText(target)
    write_helpers(module, names, target)
    return module


def loop(name: str, result: str, *params: str) -> ModuleText:
    """Returns `void @run(ptr out, ptr in0, ..., i64 count)` over a helper; i16 holds a narrow float's bits."""
    module = module_of([name], HOST)
    kinds = {"half": "i16", "bfloat": "i16"}
    pointers = [("ptr", f"in{k}") for k in range(len(params))]
    b = module.function("run", [("ptr", "out"), *pointers, ("i64", "count")], linkage="")
    out, *inputs, count = b.params
    with b.loop(0, count) as i:
        args: list[V] = []
        for p, type in zip(inputs, params, strict=True):
            word = kinds.get(type, type)
            args.append(b.bitcast(b.load(word, b.element(p, word, i), 1), type))
        word = kinds.get(result, result)
        b.store(b.bitcast(b.call(result, name, args, declare=False), word), b.element(out, word, i), 1)
    b.ret()
    return module


@functools.cache
def over_arrays(name: str, result: str, *params: str) -> Callable[..., None]:
    module = optimize.optimize(loop(name, result, *params).text(), HOST)
    jit = llvm.create_lljit_compiler(target_machine(HOST))
    builder = llvm.JITLibraryBuilder().add_current_process().add_object_img(optimize.emit_object(module, HOST))
    library = builder.export_symbol("run").link(jit, name)
    types = [ctypes.c_void_p] * (len(params) + 1) + [ctypes.c_int64]
    run = ctypes.CFUNCTYPE(None, *types)(library["run"])

    def call(out: np.ndarray, *inputs: np.ndarray) -> None:
        assert library is not None
        assert jit is not None
        run(out.ctypes.data, *(np.ascontiguousarray(a).ctypes.data for a in inputs), len(out))

    return call


def assert_same_numbers(got: np.ndarray, expected: np.ndarray, *args: np.ndarray) -> None:
    """Asserts equal bits, except that quiet NaNs of the same sign are equal."""
    word = np.dtype(f"u{got.dtype.itemsize}")
    nan = np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    wrong = (got.view(word) != expected.view(word)) & ~nan
    assert not wrong.any(), [(a[wrong][:3], got[wrong][:3], expected[wrong][:3]) for a in args]


# ---------------------------------------------------------------------- narrow floats
def test_extend_every_half() -> None:
    x = np.arange(1 << 16, dtype=np.uint16)
    for name, type, dtype in (("__extendhfsf2", "half", np.float16), ("__extendbfsf2", "bfloat", ml_dtypes.bfloat16)):
        got = np.empty(x.size, np.float32)
        over_arrays(name, "float", type)(got, x)
        expected = x.view(dtype).astype(np.float32)
        assert_same_numbers(got, expected, x)
        nan = np.isnan(expected)
        shift = 13 if type == "half" else 16
        sign, payload = (x[nan] & 0x8000).astype(np.uint32) << 16, (x[nan] & 0x3FF).astype(np.uint32) << shift
        if type == "half":
            assert (got.view(np.uint32)[nan] == (sign | 0x7FC00000 | payload)).all()


def hard_to_round(dtype: type, to: type) -> np.ndarray:
    """Returns random bits, every narrow number, the middles between them, and the neighbours of both."""
    wide = np.dtype(dtype)
    word = np.dtype(f"u{wide.itemsize}")
    with np.errstate(all="ignore"):
        narrow = np.arange(1 << 16, dtype=np.uint16).view(to).astype(wide)
        middles = (narrow[:-1] / 2 + narrow[1:] / 2).astype(wide)
    near = np.concatenate([narrow, middles])
    beside = [np.nextafter(near, wide.type(s)) for s in (-np.inf, np.inf)]
    bits = np.random.default_rng(0).integers(0, np.iinfo(word).max, 1_000_000, word)
    return np.concatenate([near, *beside, bits.view(wide)])


@pytest.mark.parametrize(("type", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_truncate_to_half(type: str, dtype: type) -> None:
    x = hard_to_round(dtype, np.float16)
    got = np.empty(x.size, np.float16)
    over_arrays("__truncsfhf2" if type == "float" else "__truncdfhf2", "half", type)(got, x)
    with np.errstate(all="ignore"):
        assert_same_numbers(got, x.astype(np.float16), x)
    nan = np.isnan(x)
    assert (np.signbit(got[nan]) == np.signbit(x[nan])).all()
    assert (got.view(np.uint16)[nan] & 0x200 != 0).all()


def rounded_to_bfloat(x: np.ndarray) -> np.ndarray:
    """Rounds with integers: places of the significand, to nearest and even."""
    with np.errstate(all="ignore"):
        _, e = np.frexp(x)
        place = np.maximum(e - 8, -133)
        return np.ldexp(np.rint(np.ldexp(x, -place)), place)


@pytest.mark.parametrize(("type", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_truncate_to_bfloat(type: str, dtype: type) -> None:
    x = hard_to_round(dtype, ml_dtypes.bfloat16)
    got = np.empty(x.size, np.uint16)
    over_arrays("__truncsfbf2" if type == "float" else "__truncdfbf2", "bfloat", type)(got, x)
    with np.errstate(all="ignore"):
        expected = rounded_to_bfloat(x.astype(np.float64)).astype(np.float32)
    finite = ~np.isnan(x)
    assert ((got[finite].astype(np.uint32) << 16) == expected[finite].view(np.uint32)).all()
    assert (got[~finite] & 0x7FC0 == 0x7FC0).all()
    assert ((got[~finite] >> 15 != 0) == np.signbit(x[~finite])).all()


# ---------------------------------------------------------------------- 128 bits
def hard_integers() -> list[int]:
    rng = np.random.default_rng(1)
    edges = [0, 1, 2, 3, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 2**96, 2**127 - 1]
    edges += [2**127, 2**128 - 1, 2**128 - 2, 10**30, 2**128 - 10**20]
    random = [int.from_bytes(rng.bytes(16), "little") >> int(rng.integers(0, 128)) for _ in range(150)]
    return edges + random


def signed(x: int) -> int:
    return x - (1 << 128) if x >> 127 else x


INTEGERS: dict[str, Callable[[int, int], int]] = {
    "__multi3": lambda x, y: x * y,
    "__udivti3": lambda x, y: x // y,
    "__umodti3": lambda x, y: x % y,
    "__divti3": lambda x, y: abs(signed(x)) // abs(signed(y)) * (-1 if signed(x) * signed(y) < 0 else 1),
    "__modti3": lambda x, y: abs(signed(x)) % abs(signed(y)) * (-1 if signed(x) < 0 else 1),
}


def words(values: list[int]) -> np.ndarray:
    return np.frombuffer(b"".join((v % 2**128).to_bytes(16, "little") for v in values), np.uint64).reshape(-1, 2)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_128_bits(name: str) -> None:
    values = hard_integers()
    pairs = [(x, y) for x in values for y in values if y or name == "__multi3"]
    got = np.empty((len(pairs), 2), np.uint64)
    over_arrays(name, "i128", "i128", "i128")(got, words([x for x, _ in pairs]), words([y for _, y in pairs]))
    expected = words([INTEGERS[name](x, y) for x, y in pairs])
    wrong = (got != expected).any(axis=1)
    assert not wrong.any(), pairs[int(wrong.argmax())]


SHIFTS: dict[str, Callable[[int, int], int]] = {
    "__ashlti3": lambda x, n: x << n,
    "__lshrti3": lambda x, n: x >> n,
    "__ashrti3": lambda x, n: signed(x) >> n,
}


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_of_128_bits(name: str) -> None:
    pairs = [(x, n) for x in hard_integers() for n in range(128)]
    got = np.empty((len(pairs), 2), np.uint64)
    over_arrays(name, "i128", "i128", "i32")(
        got, words([x for x, _ in pairs]), np.array([n for _, n in pairs], np.int32)
    )
    assert (got == words([SHIFTS[name](x, n) for x, n in pairs])).all()


# ---------------------------------------------------------------------- memory
def memory_function(name: str) -> Callable[..., int]:
    module = module_of([name], HOST)
    b = module.function("run", [("ptr", "x"), ("i64", "y"), ("i64", "n")], "i64", linkage="")
    x, y, n = b.params
    second = b.cast("trunc", y, "i32") if name == "memset" else b.cast("inttoptr", y, "ptr")
    if name == "memcmp":
        b.ret(b.cast("sext", b.call("i32", name, [x, second, n], declare=False), "i64"))
    else:
        b.ret(b.cast("ptrtoint", b.call("ptr", name, [x, second, n], declare=False), "i64"))
    jit = llvm.create_lljit_compiler(target_machine(HOST))
    code = optimize.emit_object(optimize.optimize(module.text(), HOST), HOST)
    builder = llvm.JITLibraryBuilder().add_current_process().add_object_img(code)
    library = builder.export_symbol("run").link(jit, name)
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library["run"])
    return lambda *args: (run(*args), library, jit)[0]


@pytest.mark.parametrize("name", ["memcpy", "memmove", "memset"])
def test_memory(name: str) -> None:
    """Tests all lengths and places, overlapping where that is allowed; memory next to them is unchanged."""
    run = memory_function(name)
    rng = np.random.default_rng(2)
    for n in (0, 1, 7, 8, 9, 16, 31, 100):
        for to in range(9):
            for source in range(0, 40, 3) if name == "memmove" else (120, 125):
                memory = rng.integers(0, 256, 256, np.uint8)
                expected = memory.copy()
                expected[to : to + n] = 0xA5 if name == "memset" else memory[source : source + n]
                at = memory.ctypes.data
                assert run(at + to, 0x1A5 if name == "memset" else at + source, n) == at + to
                assert (memory == expected).all(), (n, to, source)


def test_memcmp() -> None:
    run = memory_function("memcmp")
    x = np.arange(64, dtype=np.uint8)
    for n in (0, 1, 8, 63):
        y = x.copy()
        assert run(x.ctypes.data, y.ctypes.data, n) == 0
        for place in range(n):
            for value, sign in ((200, -1), (x[place] - 1 if place else 200, 1 if place else -1)):
                y = x.copy()
                y[place] = value
                assert np.sign(run(x.ctypes.data, y.ctypes.data, n)) == sign


# ---------------------------------------------------------------------- libm
ROUNDING: dict[str, np.ufunc] = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint, "rint": np.rint, "nearbyint": np.rint
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(n for n in HELPERS if n.removesuffix("f") in ROUNDING))
def test_rounding(name: str) -> None:
    dtype = np.dtype(np.float32 if name.endswith("f") else np.float64)
    word = np.dtype(f"u{dtype.itemsize}")
    rng = np.random.default_rng(3)
    halves = np.arange(-4000, 4000) / 4
    edges = np.concatenate([np.ldexp(1.0, np.arange(20, 66)), [0.0, np.inf, np.nan, 5e-324, 1e30]])
    x = np.concatenate([halves, edges, -edges, edges + 0.5, edges - 0.5]).astype(dtype)
    bits = rng.integers(0, np.iinfo(word).max, 500_000, word).view(dtype)
    small = rng.normal(size=100_000).astype(dtype) * 1000
    x = np.concatenate([x, np.nextafter(x, dtype.type(0)), np.nextafter(x, dtype.type(np.inf)), bits, small])
    got = np.empty_like(x)
    over_arrays(name, *["float" if name.endswith("f") else "double"] * 2)(got, x)
    assert_same_numbers(got, ROUNDING[name.removesuffix("f")](x), x)
    assert (np.signbit(got) == np.signbit(x)).all()


def libm_multiply_add(dtype: np.dtype, *args: np.ndarray) -> np.ndarray:
    """Returns the result of the machine's instruction, or of libm."""
    type = "float" if dtype == np.float32 else "double"
    module = ModuleText(HOST)
    b = module.function("run", [("ptr", "out"), ("ptr", "x"), ("ptr", "y"), ("ptr", "z"), ("i64", "n")], linkage="")
    out, *inputs, n = b.params
    with b.loop(i64(0), n) as i:
        b.store(b.fma(*(b.load(type, b.element(p, type, i)) for p in inputs)), b.element(out, type, i))
    b.ret()
    jit = llvm.create_lljit_compiler(target_machine(HOST))
    code = optimize.emit_object(optimize.optimize(module.text(), HOST), HOST)
    builder = llvm.JITLibraryBuilder().add_current_process().add_object_img(code)
    library = builder.export_symbol("run").link(jit, "libm")
    result = np.empty_like(args[0])
    pointers = [a.ctypes.data for a in (result, *args)]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(library["run"])(*pointers, result.size)
    return result


def multiply_add_cases(dtype: np.dtype) -> list[list[np.ndarray]]:
    """Returns extremes, numbers of all exponents, and sums that nearly cancel or tie."""
    info = np.finfo(dtype)
    special = [0.0, 1.0, 1.5, np.inf, np.nan, float(info.smallest_subnormal), float(info.tiny), float(info.max)]
    special += [1 + 2.0**-20, 1 - 2.0**-20, 1 + float(info.eps), 1 - float(info.eps) / 2, 2.0**-70, 2.0**70, 3.0]
    special += [float(info.tiny) * 3, float(np.sqrt(info.tiny)), float(np.sqrt(info.max)), float(info.eps)]
    values = np.array([*special, *(-x for x in special)], dtype)
    cases = [[np.ascontiguousarray(x) for x in np.array(np.meshgrid(values, values, values)).reshape(3, -1)]]
    rng = np.random.default_rng(4)
    low, high = math.frexp(float(info.smallest_subnormal))[1], math.frexp(float(info.max))[1]
    with np.errstate(all="ignore"):
        for first, last in (
            (-3, 3),
            (-30, 30),
            (low, high),
            (low // 2 - 30, low // 2 + 30),
            (high // 2, high // 2 + 9),
        ):
            x, y, z = (
                np.ldexp(rng.uniform(1, 2, 60_000), rng.integers(first, last, 60_000)).astype(dtype) for _ in range(3)
            )
            p = x * y
            for d in (z, -z, -p, np.nextafter(-p, dtype.type(0)), p * dtype.type(2.0**-40), p * dtype.type(2.0**60)):
                cases.append([x, y, d])
    return cases


@pytest.mark.skipif(not HOST.has_fma, reason="fma is compared with the machine's instruction")
@pytest.mark.parametrize(("name", "dtype"), [("fmaf", np.float32), ("fma", np.float64)])
def test_multiply_add(name: str, dtype: type) -> None:
    type = "float" if name == "fmaf" else "double"
    for x, y, z in multiply_add_cases(np.dtype(dtype)):
        got = np.empty_like(x)
        over_arrays(name, type, type, type, type)(got, x, y, z)
        assert_same_numbers(got, libm_multiply_add(np.dtype(dtype), x, y, z), x, y, z)


# ---------------------------------------------------------------------- on all targets
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("level", [1, 2])
def test_need_nothing_else(name: str, level: int) -> None:
    """All helpers are emitted; they call no external function, and no helper calls itself."""
    target = resolve(name)
    module = optimize.optimize(module_of(sorted(HELPERS), target).text(), target, level)
    assembly = optimize.emit_assembly(module, target)
    underscore = "_" if target.system == "macos" else ""
    called: dict[str, set[str]] = {}
    functions = re.split(rf"^{underscore}(\w+):", assembly, flags=re.MULTILINE)
    for helper, body in zip(functions[1::2], functions[2::2], strict=True):
        callees = re.findall(r"^\t(?:callq?|jmp|bl?|tail)[ \t]+([\w$]+)", body, re.MULTILINE)
        called[helper] = {c.removeprefix(underscore) for c in callees if not c.startswith("L")}
    assert set(called) >= HELPERS
    for helper in HELPERS:
        assert called[helper] <= HELPERS - {helper}, helper


def test_unknown_helper() -> None:
    with pytest.raises(KeyError):
        write_helpers(ModuleText(HOST), ["printf"], HOST)
