"""Products that compute an operand from narrower arrays where they read it: the reference's results, in guarded memory,
with the same bits for any number of threads.

    RANDOM_PROGRAMS=5000 pytest -m slow tests/lower/test_computed_operands.py
"""

from __future__ import annotations

from typing import Any

import guarded
import ml_dtypes
import numpy as np
import pytest
import random_check
from random_operands import random_operand
from random_runs import seeds

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.types import DTYPES
from shlo_jit.reference.interpreter import evaluate

SPREAD = {"PARALLEL_WORK": 1, "TASK_WORK": 64, "GEMM_SERIAL": 1, "GEMM_TASK": 1 << 12, "COMPUTED_FAR_BYTES": 0}
"""Thresholds for which small products have several tasks, and parts of the terms."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands are computed however small they are, and whatever that saves."""
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_BYTES", 0)
    monkeypatch.setattr(tuning, "COMPUTED_OPERAND_SHARE", 1e9)


def run(numbers: range) -> dict[str, int]:
    """Checks programs; returns how many of them computed the operand in registers, in panels, or in memory."""
    found = {"in registers": 0, "in panels": 0, "in memory": 0}
    for seed in numbers:
        text, arguments = random_operand(seed)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in SPREAD.items() if seed % 2 else ():
                patch.setattr(tuning, name, value)
            patch.setattr(tuning, "COMPUTED_PRIVATE_ROWS", 1024 if seed % 3 else 4)
            patch.setattr(tuning, "COMPUTED_VECTORS_SHARE", 1 / 64 if seed % 4 < 2 else 0.5)
            try:
                random_check.check(text, arguments, "x86-64-v3" if seed % 5 == 0 else "native")
                threads = (1, 2, 3, 8) if seed % 10 == 1 else (1,)
                outs = [shlo_jit.compile(text, threads=n, cache=False) for n in threads]
                bits = {guarded.outputs(exe(*arguments))[0].tobytes() for exe in outs}
                assert len(bits) == 1, "the bits depend on the number of threads"
            except Exception as e:
                e.add_note(f"program {seed}:\n{text}")
                raise
        schedule = outs[0].text("schedule")
        kinds = {"in registers": "computed in registers", "in panels": "computed while it is packed"}
        found[next((kind for kind, words in kinds.items() if words in schedule), "in memory")] += 1
    return found


@pytest.mark.parametrize("first", range(0, 80, 10))
def test_random_programs(first: int) -> None:
    run(range(first, first + 10))


@pytest.mark.slow
def test_many_random_programs() -> None:
    print(found := run(seeds(400)))
    assert min(found["in registers"], found["in panels"]) > 0.1 * sum(found.values())


WEIGHTS = """
func.func @main(%x: tensor<{m}x1024xf32>, %w: tensor<1024x1024xi8>, %s: tensor<1024xf32>) -> tensor<{m}x1024xf32> {{
  %f = stablehlo.convert %w : (tensor<1024x1024xi8>) -> tensor<1024x1024xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<1024xf32>) -> tensor<1024x1024xf32>
  %d = stablehlo.multiply %f, %t : tensor<1024x1024xf32>
  %y = stablehlo.dot_general %x, %d, contracting_dims = [1] x [0]
      : (tensor<{m}x1024xf32>, tensor<1024x1024xf32>) -> tensor<{m}x1024xf32>
  return %y : tensor<{m}x1024xf32>
}}"""


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_scaled_weights_are_never_in_memory(rows: int) -> None:
    """The weights are 1 MiB, the computed operand 4 MiB."""
    rng = np.random.default_rng(rows)
    exe: Any = shlo_jit.compile(WEIGHTS.format(m=rows), cache=False, threads=2)
    x = rng.standard_normal((rows, 1024), np.float32)
    w, s = rng.integers(-127, 128, (1024, 1024)).astype(np.int8), rng.random(1024, np.float32)
    np.testing.assert_allclose(exe(x, w, s), x @ (w.astype(np.float32) * s), rtol=1e-4, atol=5e-2)
    assert exe.memory.arena < 2 << 20
    assert "computed-operand" in exe.text("plan")


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_constants(first: int) -> None:
    """Constants of few bits are packed, and computed from as arguments are."""
    for seed in range(first, first + 10):
        text, arguments = random_operand(seed)
        constants = {i: x for i, x in enumerate(arguments) if i and x.dtype.itemsize < 4}
        rest = [x for i, x in enumerate(arguments) if i not in constants]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tuning, "INLINE_CONSTANT_BYTES", 16)
            for name, value in SPREAD.items() if seed % 2 else ():
                patch.setattr(tuning, name, value)
            found = [
                guarded.outputs(shlo_jit.compile(text, threads=n, cache=False, constants=constants)(*rest))
                for n in (1, 3)
            ]
        assert found[0][0].tobytes() == found[1][0].tobytes()
        module = shlo_jit.parse(text)
        with np.errstate(all="ignore"):
            random_check.judge(module, arguments, found[0], [np.asarray(w) for w in evaluate(module, *arguments)])


STACKED = """
func.func @main(%x: tensor<{m}x{k}xf32>, %w: tensor<{rows}x{columns}x{t}>, %s: tensor<{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %four = stablehlo.constant dense<4> : tensor<{rows}x{columns}x{t}>
  %fifteen = stablehlo.constant dense<15> : tensor<{rows}x{columns}x{t}>
  {nibbles}
  %a = stablehlo.reshape %low : (tensor<{rows}x{columns}x{t}>) -> tensor<{split}x{t}>
  %b = stablehlo.reshape %high : (tensor<{rows}x{columns}x{t}>) -> tensor<{split}x{t}>
  %c = stablehlo.concatenate %a, %b, dim = {d} : (tensor<{split}x{t}>, tensor<{split}x{t}>) -> tensor<{both}x{t}>
  %q = stablehlo.reshape %c : (tensor<{both}x{t}>) -> tensor<{k}x{n}x{t}>
  %f = stablehlo.convert %q : (tensor<{k}x{n}x{t}>) -> tensor<{k}x{n}xf32>
  %e = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<{n}xf32>) -> tensor<{k}x{n}xf32>
  %g = stablehlo.multiply %f, %e : tensor<{k}x{n}xf32>
  %y = stablehlo.dot_general %x, %g, contracting_dims = [1] x [0]
    : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %y : tensor<{m}x{n}xf32>
}}"""
SIGNED = """%up = stablehlo.shift_left %w, %four : tensor<{0}xi8>
  %low = stablehlo.shift_right_arithmetic %up, %four : tensor<{0}xi8>
  %high = stablehlo.shift_right_arithmetic %w, %four : tensor<{0}xi8>"""
UNSIGNED = """%low = stablehlo.and %w, %fifteen : tensor<{0}xui8>
  %high = stablehlo.shift_right_logical %w, %four : tensor<{0}xui8>"""
OF_SIGNED = """%low = stablehlo.and %w, %fifteen : tensor<{0}xi8>
  %up = stablehlo.shift_right_logical %w, %four : tensor<{0}xi8>
  %down = stablehlo.shift_left %up, %four : tensor<{0}xi8>
  %high = stablehlo.shift_right_arithmetic %down, %four : tensor<{0}xi8>"""


@pytest.mark.parametrize(("nibbles", "t"), [(SIGNED, "i8"), (UNSIGNED, "ui8"), (OF_SIGNED, "i8")])
@pytest.mark.parametrize("along", ["terms", "outputs"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 640, 192), (3, 512, 132), (8, 256, 128), (2, 514, 166)])
@pytest.mark.sampled(6)
def test_words_of_nibbles(nibbles: str, t: str, along: str, m: int, k: int, n: int) -> None:
    """Lanes run along words; where these do not fit the columns, along bytes."""
    rows, columns = (k // 2, n) if along == "terms" else (k, n // 2)
    d = 1 if along == "terms" else 2
    split, both = list[int | str]([rows, columns]), list[int | str]([rows, columns])
    split.insert(d, 1)
    both.insert(d, 2)
    names = {"split": "x".join(map(str, split)), "both": "x".join(map(str, both)), "d": d, "m": m, "k": k, "n": n, "t": t}
    text = STACKED.format(rows=rows, columns=columns, nibbles=nibbles.format(f"{rows}x{columns}"), **names)
    rng = np.random.default_rng(k)
    w = rng.integers(0, 256, (rows, columns)).astype(np.uint8).view(np.int8 if t == "i8" else np.uint8)
    arguments = [rng.standard_normal((m, k), np.float32), w, rng.random(n, np.float32)]
    random_check.check(text, arguments, "native")
    exe = shlo_jit.compile(text, cache=False)
    assert "computed in registers" in exe.text("schedule")


@pytest.mark.parametrize(("m", "k", "n"), [(1, 640, 192), (1, 640, 160), (4, 256, 256), (1, 513, 166)])
@pytest.mark.parametrize("t", ["i4", "ui4", "i2", "f4E2M1FN"])
@pytest.mark.sampled(6)
def test_words_of_packed_constants(t: str, m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "INLINE_CONSTANT_BYTES", 16)
    rng = np.random.default_rng(n)
    codes = rng.integers(0, 4 if t == "i2" else 16, (k, n)).astype(np.uint8)
    dtype = DTYPES[t].numpy
    w = codes.view(dtype) if t.startswith("f4") else codes.astype(np.int8).astype(dtype)
    text = WEIGHTS.replace("{m}", str(m)).replace("1024x1024", f"{k}x{n}").replace("xi8", f"x{t}")
    text = text.replace(f"{m}x1024xf32", "X").replace("tensor<1024xf32>", f"tensor<{n}xf32>")
    text = text.replace("%x: tensor<X>", f"%x: tensor<{m}x{k}xf32>").replace("(tensor<X>", f"(tensor<{m}x{k}xf32>")
    text = text.replace("X", f"{m}x{n}xf32").replace("{{", "{").replace("}}", "}")
    arguments = [rng.standard_normal((m, k), np.float32), w, rng.random(n, np.float32)]
    exe = shlo_jit.compile(text, cache=False, constants={1: w})
    got = guarded.outputs(exe(arguments[0], arguments[2]))
    random_check.judge(shlo_jit.parse(text), arguments, got, [np.asarray(evaluate(shlo_jit.parse(text), *arguments)[0])])


@pytest.mark.parametrize("t", ["i4", "i2"])
def test_packed_constants_are_read_in_registers(t: str) -> None:
    text = WEIGHTS.replace("{m}", "1").replace("xi8", f"x{t}").replace("{{", "{").replace("}}", "}")
    w = np.ones((1024, 1024), DTYPES[t].numpy)
    w[3, 5] = -1
    exe = shlo_jit.compile(text, constants={1: w})
    assert "computed in registers" in exe.text("schedule")


TIED = """
func.func @main(%e: tensor<512x256xi8>, %s: tensor<512xf32>, %i: tensor<2x1xi32>, %x: tensor<2x256xf32>)
    -> (tensor<2x512xf32>, tensor<2x512xf32>) {
  %f = stablehlo.convert %e : (tensor<512x256xi8>) -> tensor<512x256xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<512xf32>) -> tensor<512x256xf32>
  %d = stablehlo.multiply %f, %t : tensor<512x256xf32>
  %row = "stablehlo.gather"(%d, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 256>, indices_are_sorted = false}
    : (tensor<512x256xf32>, tensor<2x1xi32>) -> tensor<2x256xf32>
  %h = stablehlo.add %row, %x : tensor<2x256xf32>
  %y = stablehlo.dot_general %h, %d, contracting_dims = [1] x [1]
      : (tensor<2x256xf32>, tensor<512x256xf32>) -> tensor<2x512xf32>
  %z = stablehlo.dot_general %x, %d, contracting_dims = [1] x [1]
      : (tensor<2x256xf32>, tensor<512x256xf32>) -> tensor<2x512xf32>
  return %y, %z : tensor<2x512xf32>, tensor<2x512xf32>
}"""


def test_several_readers_of_weights_compute_their_own() -> None:
    """An embedding that is also the matrix of the last products: no reader needs it in memory."""
    rng = np.random.default_rng(0)
    e, s = rng.integers(-127, 128, (512, 256)).astype(np.int8), rng.random(512, np.float32)
    arguments = [e, s, np.array([[7], [511]], np.int32), rng.standard_normal((2, 256), np.float32)]
    random_check.check(TIED, arguments, "native")
    exe: Any = shlo_jit.compile(TIED, cache=False)
    assert exe.memory.arena < 64 << 10
    assert exe.text("schedule").count("computed in registers") == 2


MASKED = """
func.func @main(%x: tensor<2x22x53xf32>, %w: tensor<8x2x53x46xf32>, %m: tensor<2x8x22xi1>) -> tensor<2x22x46xf32> {
  %a = stablehlo.broadcast_in_dim %m, dims = [1, 0, 2] : (tensor<2x8x22xi1>) -> tensor<8x2x22x53xi1>
  %b = stablehlo.broadcast_in_dim %x, dims = [1, 2, 3] : (tensor<2x22x53xf32>) -> tensor<8x2x22x53xf32>
  %z = stablehlo.constant dense<0.0> : tensor<8x2x22x53xf32>
  %r = stablehlo.select %a, %b, %z : tensor<8x2x22x53xi1>, tensor<8x2x22x53xf32>
  %y = stablehlo.dot_general %r, %w, batching_dims = [1] x [1], contracting_dims = [3, 0] x [2, 0]
    : (tensor<8x2x22x53xf32>, tensor<8x2x53x46xf32>) -> tensor<2x22x46xf32>
  return %y : tensor<2x22x46xf32>
}"""


def test_passes_have_whole_words() -> None:
    """The 424 terms would be cut into passes of 212, of which eight share a word, or lie side by side."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 22, 53), np.float32), rng.standard_normal((8, 2, 53, 46), np.float32)
    random_check.check(MASKED, [x, w, rng.integers(0, 2, (2, 8, 22)).astype(bool)], "native")


@pytest.mark.parametrize("k", [424, 1000])
def test_words_of_terms_in_panels(k: int) -> None:
    """Nibbles of words along the terms of a product with many rows."""
    n, rng = 64, np.random.default_rng(k)
    text = f"""func.func @main(%x: tensor<40x{k}xf32>, %w: tensor<{k // 8}x{n}xui32>) -> tensor<40x{n}xf32> {{
  %i = stablehlo.iota dim = 1 : tensor<{k // 8}x8x{n}xui32>
  %four = stablehlo.constant dense<4> : tensor<{k // 8}x8x{n}xui32>
  %s = stablehlo.multiply %i, %four : tensor<{k // 8}x8x{n}xui32>
  %b = stablehlo.broadcast_in_dim %w, dims = [0, 2] : (tensor<{k // 8}x{n}xui32>) -> tensor<{k // 8}x8x{n}xui32>
  %t = stablehlo.shift_right_logical %b, %s : tensor<{k // 8}x8x{n}xui32>
  %m = stablehlo.constant dense<15> : tensor<{k // 8}x8x{n}xui32>
  %q = stablehlo.and %t, %m : tensor<{k // 8}x8x{n}xui32>
  %r = stablehlo.reshape %q : (tensor<{k // 8}x8x{n}xui32>) -> tensor<{k}x{n}xui32>
  %f = stablehlo.convert %r : (tensor<{k}x{n}xui32>) -> tensor<{k}x{n}xf32>
  %y = stablehlo.dot_general %x, %f, contracting_dims = [1] x [0]
    : (tensor<40x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<40x{n}xf32>
  return %y : tensor<40x{n}xf32>
}}"""
    words = rng.integers(0, 1 << 32, (k // 8, n), dtype=np.uint32)
    random_check.check(text, [rng.standard_normal((40, k), np.float32), words], "native")


PADDED = """
func.func @main(%x: tensor<{m}x64xf32>, %w: tensor<100x{k}xi16>) -> tensor<{m}x100xf32> {{
  %zero = stablehlo.constant dense<-7> : tensor<i16>
  %p = stablehlo.pad %w, %zero, low = [0, {low}], high = [0, {high}], interior = [0, 0]
      : (tensor<100x{k}xi16>, tensor<i16>) -> tensor<100x64xi16>
  %f = stablehlo.convert %p : (tensor<100x64xi16>) -> tensor<100x64xf32>
  %y = stablehlo.dot_general %x, %f, contracting_dims = [1] x [1]
      : (tensor<{m}x64xf32>, tensor<100x64xf32>) -> tensor<{m}x100xf32>
  return %y : tensor<{m}x100xf32>
}}"""


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("low, high", [(2, 0), (0, 3), (31, 1), (32, 0), (1, 31), (40, 16), (33, 30)])
@pytest.mark.parametrize("m", [2, 5])
def test_padding_ends_within_lanes(m: int, low: int, high: int, target: str) -> None:
    """The terms are few enough for their loop to be unrolled: it is known where lanes begin, not what each of them is."""
    rng = np.random.default_rng(low)
    k = 64 - low - high
    text = PADDED.format(m=m, k=k, low=low, high=high)
    w = rng.integers(-300, 300, (100, k)).astype(np.int16)
    random_check.check(text, [rng.standard_normal((m, 64), np.float32), w], target)
    assert "computed in registers" in shlo_jit.compile(text, cache=False, target=target).text("schedule")


FUNCTIONS_OF_NIBBLES = """
func.func @main(%x: tensor<{m}x128x{f}>, %w: tensor<100x2x64x{q}>, %s: tensor<100x2x{f}>, %z: tensor<100x2x{f}>)
    -> tensor<{m}x100x{f}> {{
  %q = stablehlo.convert %w : (tensor<100x2x64x{q}>) -> tensor<100x2x64x{f}>
  %zs = stablehlo.broadcast_in_dim %z, dims = [0, 1] : (tensor<100x2x{f}>) -> tensor<100x2x64x{f}>
  %ss = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<100x2x{f}>) -> tensor<100x2x64x{f}>
  %d = stablehlo.{op} %q, %zs : tensor<100x2x64x{f}>
  %e = stablehlo.multiply %d, %ss : tensor<100x2x64x{f}>
  %r = stablehlo.reshape %e : (tensor<100x2x64x{f}>) -> tensor<100x128x{f}>
  %y = stablehlo.dot_general %x, %r, contracting_dims = [1] x [1]
      : (tensor<{m}x128x{f}>, tensor<100x128x{f}>) -> tensor<{m}x100x{f}>
  return %y : tensor<{m}x100x{f}>
}}"""


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("op", ["subtract", "divide"])
@pytest.mark.parametrize("f", ["f32", "bf16"])
@pytest.mark.parametrize("q", ["i4", "ui4"])
@pytest.mark.parametrize("m", [2, 3])
def test_functions_of_nibbles(m: int, q: str, f: str, op: str, is_constant: bool) -> None:
    """With AVX-512, the function of all 16 numbers with an output's scale and zero point is looked up, unless an
    instruction multiplies pairs of bf16."""
    rng = np.random.default_rng(m)
    text = FUNCTIONS_OF_NIBBLES.format(m=m, q=q, f=f, op=op)
    low, dtype = (-8, ml_dtypes.int4) if q == "i4" else (0, ml_dtypes.uint4)
    floats = np.dtype(np.float32 if f == "f32" else ml_dtypes.bfloat16)
    w = rng.integers(low, low + 16, (100, 2, 64)).astype(dtype)
    scales = [(rng.random((100, 2)) + 0.5).astype(floats) for _ in range(2)]
    x = rng.standard_normal((m, 128)).astype(floats)
    random_check.check(text, [x, w, *scales], "native")
    exe: Any = shlo_jit.compile(text, cache=False, constants={1: w} if is_constant else {})
    assert "computed in registers" in exe.text("schedule")
    rest = [x, *([] if is_constant else [w]), *scales]
    want = np.asarray(evaluate(shlo_jit.parse(text), x, w, *scales)[0], np.float64)
    np.testing.assert_allclose(np.asarray(exe(*rest), np.float64), want, rtol=2e-2 if f == "bf16" else 1e-4, atol=1e-2)
    schedule = exe.text("schedule")
    if "registers of 512 bits" in schedule:
        assert "permvar" in exe.text("lowered") or "[dot-products]" in schedule
        assert "[sixteen-elements]" in schedule or (f == "bf16" and "[dot-products]" in schedule)


NARROW_SCALES = """
func.func @main(%x: tensor<2x{k}xf32>, %w: tensor<50x{g}x32x{q}>, %s: tensor<50x{g}x{t}>) -> tensor<2x50xf32> {{
  %q = stablehlo.convert %w : (tensor<50x{g}x32x{q}>) -> tensor<50x{g}x32xf32>
  %f = stablehlo.convert %s : (tensor<50x{g}x{t}>) -> tensor<50x{g}xf32>
  %ss = stablehlo.broadcast_in_dim %f, dims = [0, 1] : (tensor<50x{g}xf32>) -> tensor<50x{g}x32xf32>
  %e = stablehlo.multiply %q, %ss : tensor<50x{g}x32xf32>
  %r = stablehlo.reshape %e : (tensor<50x{g}x32xf32>) -> tensor<50x{k}xf32>
  %y = stablehlo.dot_general %x, %r, contracting_dims = [1] x [1]
      : (tensor<2x{k}xf32>, tensor<50x{k}xf32>) -> tensor<2x50xf32>
  return %y : tensor<2x50xf32>
}}"""


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("t", ["f16", "bf16"])
@pytest.mark.parametrize("q", ["i4", "i8"])
@pytest.mark.parametrize("g", [1, 2, 3, 7, 9, 18, 33])
@pytest.mark.sampled(2)
def test_rows_of_narrow_scales(g: int, q: str, t: str, target: str) -> None:
    """The scales of an output are converted together, in guarded memory: none beyond them is read."""
    rng = np.random.default_rng(g)
    w = rng.integers(-8, 8, (50, g, 32)).astype(ml_dtypes.int4 if q == "i4" else np.int8)
    s = (rng.random((50, g)) + 0.5).astype(np.float16 if t == "f16" else ml_dtypes.bfloat16)
    text = NARROW_SCALES.format(g=g, k=32 * g, q=q, t=t)
    random_check.check(text, [rng.standard_normal((2, 32 * g), np.float32), w, s], target)
