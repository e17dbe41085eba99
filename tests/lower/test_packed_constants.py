"""Constants of 2 and 4 bits per element are packed: every op reads the elements of the reference interpreter, from any
offset, at any stride, and touches no byte outside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from element_cases import Case, cases, program, types
from test_every_type import any_bits, inputs, same

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import check_runs_here, resolve
from shlo_jit.ir.types import DTYPES, DType
from shlo_jit.reference.interpreter import evaluate

NAMES = ["i2", "ui2", "i4", "ui4", "f4E2M1FN"]


def dense(array: np.ndarray, dtype: DType) -> str:
    shape = "".join(f"{n}x" for n in array.shape)
    return f'dense<"0x{array.tobytes().hex()}"> : tensor<{shape}{dtype.name}>'


@pytest.fixture(autouse=True)
def _none_is_small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets small constants be packed too, and no op on constants be computed when a program is compiled."""
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "INLINE_CONSTANT_BYTES", 0)
        patch.setattr(tuning, "FOLD_ELEMENTS", 0)
        patch.setattr(tuning, "FOLD_BYTES", -1 << 40)
        yield


def with_constants(chosen: list[Case], dtype: DType, arrays: list[np.ndarray]) -> tuple[str, list[np.ndarray]]:
    """Returns the program of all cases in which operands of the element type are constants, and the other arguments."""
    text = program(chosen, dtype)
    head, _, rest = text.partition("{\n")
    declared = [t for case in chosen for t in types(case.parameters, dtype)]
    kept, constants, left = [], [], []
    for i, ((type, _, d), array) in enumerate(zip(declared, arrays, strict=True)):
        if d is dtype:
            constants.append(f"  %p{i} = stablehlo.constant {dense(array, d)}\n")
        else:
            kept.append(f"%p{i}: {type}")
            left.append(array)
    results = head[head.index(") -> ") :]
    return f"func.func @main({', '.join(kept)}{results}{{\n{''.join(constants)}{rest}", left


@pytest.mark.parametrize("name", NAMES)
def test_every_case(name: str) -> None:
    dtype = DTYPES[name]
    chosen = cases(dtype)
    text, arguments = with_constants(chosen, dtype, inputs(chosen, dtype))
    exe = shlo_jit.compile(text, cache=False, threads=2)
    assert "packed" in exe.text("core")
    want = evaluate(shlo_jit.parse(text), *arguments)
    assert not [c.name for c, g, w in zip(chosen, exe(*arguments), want, strict=True) if not same(g, w)]


ACCESSES = {
    "in order": ("%y = stablehlo.reshape %w : ({t}) -> {t}", "{shape}"),
    "reversed": ("%y = stablehlo.reverse %w, dims = [0, 1] : {t}", "{shape}"),
    "rows reversed": ("%y = stablehlo.reverse %w, dims = [0] : {t}", "{shape}"),
    "transposed": ("%y = stablehlo.transpose %w, dims = [1, 0] : ({t}) -> tensor<{n}x{m}x{e}>", "{n}x{m}"),
    "from an odd element": ("%y = stablehlo.slice %w [0:{m}, 1:{n}] : ({t}) -> tensor<{m}x{n1}x{e}>", "{m}x{n1}"),
    "every second": ("%y = stablehlo.slice %w [0:{m}, 0:{n}:2] : ({t}) -> tensor<{m}x{half}x{e}>", "{m}x{half}"),
    "every third, reversed": (
        """%r = stablehlo.reverse %w, dims = [1] : {t}
           %y = stablehlo.slice %r [0:{m}, 0:{n}:3] : ({t}) -> tensor<{m}x{third}x{e}>""",
        "{m}x{third}",
    ),
    "padded": (
        """%z = stablehlo.constant dense<1.0> : tensor<f32>
           %zero = stablehlo.convert %z : (tensor<f32>) -> tensor<{e}>
           %y = stablehlo.pad %w, %zero, low = [1, 3], high = [0, 5], interior = [0, 0] : ({t}, tensor<{e}>) -> tensor<{m1}x{n8}x{e}>""",
        "{m1}x{n8}",
    ),
    "cut": (
        """%z = stablehlo.constant dense<1.0> : tensor<f32>
           %zero = stablehlo.convert %z : (tensor<f32>) -> tensor<{e}>
           %y = stablehlo.pad %w, %zero, low = [0, -1], high = [1, 2], interior = [0, 0] : ({t}, tensor<{e}>) -> tensor<{m1}x{n_1}x{e}>""",
        "{m1}x{n_1}",
    ),
    "a window": (
        """%y = stablehlo.dynamic_slice %w, %i, %j, sizes = [1, {n1}] : ({t}, tensor<i32>, tensor<i32>) -> tensor<1x{n1}x{e}>""",
        "1x{n1}",
    ),
    "broadcast": ("%y = stablehlo.broadcast_in_dim %w, dims = [0, 2] : ({t}) -> tensor<{m}x3x{n}x{e}>", "{m}x3x{n}"),
    "twice": (
        "%y = stablehlo.concatenate %w, %w, dim = 1 : ({t}, {t}) -> tensor<{m}x{nn}x{e}>",
        "{m}x{nn}",
    ),
}  # fmt: skip
SHAPES = [(1, 1), (1, 7), (3, 5), (2, 64), (3, 67), (5, 129), (64, 33), (1, 1001), (40, 256)]


def access(how: str, dtype: DType, shape: tuple[int, int], to: str) -> tuple[str, str]:
    """Returns a function `@f<m>_<n>` that reads the constant's elements and converts them, and its result types."""
    (m, n), e = shape, dtype.name
    words = dict(m=m, n=n, e=e, t=f"tensor<{m}x{n}x{e}>", shape=f"{m}x{n}", n1=n - 1, half=-(-n // 2), third=-(-n // 3))
    words |= dict(m1=m + 1, n8=n + 8, n_1=n + 1, nn=2 * n)
    ops, result = (text.format(**words) for text in ACCESSES[how])
    array = any_bits(np.random.default_rng(n), shape, dtype)
    types = f"tensor<{result}x{to}>, tensor<{result}x{e}>"
    text = f"""func.func private @f{m}_{n}(%i: tensor<i32>, %j: tensor<i32>) -> ({types}) {{
      %w = stablehlo.constant {dense(array, dtype)}
      {ops}
      %d = stablehlo.convert %y : (tensor<{result}x{e}>) -> tensor<{result}x{to}>
      return %d, %y : {types}
    }}"""
    return text, types


def accesses(how: str, dtype: DType, to: str) -> str:
    """Returns a program that reads constants of all shapes."""
    calls, names, results, functions = [], [], [], []
    for m, n in SHAPES:
        if n == 1 and how in ("from an odd element", "a window"):
            continue
        function, types = access(how, dtype, (m, n), to)
        functions.append(function)
        calls.append(f"%r{m}_{n}:2 = func.call @f{m}_{n}(%i, %j) : (tensor<i32>, tensor<i32>) -> ({types})")
        names += [f"%r{m}_{n}#0", f"%r{m}_{n}#1"]
        results.append(types)
    types = ", ".join(results)
    main = f"""func.func @main(%i: tensor<i32>, %j: tensor<i32>) -> ({types}) {{
      {chr(10).join(calls)}
      return {", ".join(names)} : {types}
    }}"""
    return "\n".join([main, *functions])


def wide(dtype: DType) -> str:
    return {"i": "i32", "u": "ui32", "f": "f32"}[dtype.kind]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ACCESSES)
@pytest.mark.sampled(5)
def test_elements_at_every_place(how: str, name: str) -> None:
    dtype = DTYPES[name]
    for to in (wide(dtype), "i8", "f64"):
        text = accesses(how, dtype, to)
        exe = shlo_jit.compile(text, cache=False, threads=1)
        assert "packed" in exe.text("core")
        for arguments in [(0, 1), (7, 0)] if how == "a window" else [(0, 0)]:
            indices = [np.int32(x) for x in arguments]
            got, want = exe(*indices), evaluate(shlo_jit.parse(text), *indices)
            assert all(same(g, w) for g, w in zip(got, want, strict=True)), to


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", ["ui2", "i4"])
@pytest.mark.parametrize("how", ["from an odd element", "rows reversed", "padded"])
@pytest.mark.sampled(3)
def test_any_lanes(how: str, name: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine has other instructions than {target}")
    dtype = DTYPES[name]
    text = accesses(how, dtype, wide(dtype))
    indices = np.int32(0), np.int32(0)
    got = shlo_jit.compile(text, cache=False, target=target)(*indices)
    want = evaluate(shlo_jit.parse(text), *indices)
    assert all(same(g, w) for g, w in zip(got, want, strict=True))


def runs_here(target: str) -> bool:
    try:
        check_runs_here(resolve(target))
    except ValueError:
        return False
    return True


def signed(raw: np.ndarray) -> np.ndarray:
    return ((raw.astype(np.int8) ^ 8) - 8).astype(np.float32)


def test_a_loop_reads_packed_elements_in_each_iteration() -> None:
    raw = np.random.default_rng(2).integers(0, 16, (5, 37), np.uint8)
    t = "tensor<5x37xf32>"
    text = f"""func.func @main(%n: tensor<i32>, %x: {t}) -> {t} {{
      %w = stablehlo.constant dense<"0x{raw.tobytes().hex()}"> : tensor<5x37xi4>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %l:2 = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, {t}
      cond {{
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %r = stablehlo.reverse %w, dims = [1] : tensor<5x37xi4>
        %c = stablehlo.convert %r : (tensor<5x37xi4>) -> {t}
        %m = stablehlo.add %s, %c : {t}
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %m : tensor<i32>, {t}
      }}
      return %l#1 : {t}
    }}"""
    exe = shlo_jit.compile(text, cache=False)
    assert "5x37xi4 packed" in exe.text("plan")
    x = np.random.default_rng(3).integers(-9, 9, (5, 37)).astype(np.float32)
    np.testing.assert_array_equal(exe(np.int32(7), x), x + 7 * signed(raw)[:, ::-1])
