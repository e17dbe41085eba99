"""Tests of convolutions against a plain numpy definition, over layouts, padding, dilation, groups, types, targets."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections import Counter
from typing import Any

import guarded
import ml_dtypes
import numpy as np
import pytest
from loader import compile_object, load, routine_text

import shlo_jit
from shlo_jit import tuning
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.convolution.convolution import conv_routine, conv_symbol
from shlo_jit.kernels.convolution.description import NUMBERS, SYMBOLS, Form, Variant
from shlo_jit.kernels.convolution.geometry import Geometry
from shlo_jit.kernels.convolution.prepacked import prepack_kernel
from shlo_jit.kernels.convolution.shape import FIELDS, ConvShape
from shlo_jit.kernels.convolution.table import conv_scratch_bytes, form_of, kernel_blocks
from shlo_jit.kernels.gemm.gemm import GemmTypes
from shlo_jit.kernels.target import Target
from shlo_jit.passes.canonical import features_last
from shlo_jit.schedule import convolution_decisions
from shlo_jit.schedule.convolution_decisions import decide

NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "ui8": np.uint8,
    "i32": np.int32,
}
GROUPED = NUMBERS[Variant("direct", "features", has_groups=True)]
EPILOGUE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)
CASES = [
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("bf16", "bf16", "f32"),
    ("f16", "f16", "f32"),
    ("i8", "ui8", "i32"),
    ("i8", "i8", "i8"),
]


class Problem:
    """A convolution in canonical numpy arrays: input [g, n, *in, ci], kernel [g, *window, ci, co]."""

    def __init__(self, pick: random.Random, rank: int = 2, **fixed: object):
        def draw(name: str, choices: list[object]) -> object:
            return fixed.get(name, pick.choice(choices))

        self.g, self.n = draw("g", [1, 1, 2, 5]), draw("n", [1, 2, 3])
        self.ci, self.co = draw("ci", [1, 3, 8, 16, 20, 33]), draw("co", [1, 2, 16, 40, 70])
        self.window = tuple(draw("window", [1, 2, 3, 4]) for _ in range(rank))
        self.stride = tuple(draw("stride", [1, 1, 2, 3]) for _ in range(rank))
        self.ldil = tuple(draw("ldil", [1, 1, 1, 2]) for _ in range(rank))
        self.rdil = tuple(draw("rdil", [1, 1, 1, 2]) for _ in range(rank))
        self.low = tuple(draw("pad", [-1, 0, 0, 1, 2]) for _ in range(rank))
        self.high = tuple(draw("pad", [-1, 0, 0, 1, 2]) for _ in range(rank))
        self.input = tuple(draw("input", [3, 5, 8, 14, 17, 29]) for _ in range(rank))
        self.size_output()

    def size_output(self) -> None:
        """Sets the output's extents from the others."""
        self.output = tuple(
            max(0, (max(0, (i - 1) * d + 1 + lo + hi) - ((k - 1) * r + 1)) // s + 1)
            for i, d, lo, hi, k, r, s in zip(
                self.input, self.ldil, self.low, self.high, self.window, self.rdil, self.stride, strict=True
            )
        )

    def reference(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Returns the output [g, n, *out, co]."""
        rank = len(self.input)
        shape = [
            max(0, (i - 1) * d + 1 + lo + hi)
            for i, d, lo, hi in zip(self.input, self.ldil, self.low, self.high, strict=True)
        ]
        wide = np.zeros((self.g, self.n, *shape, self.ci), x.dtype)
        whole = (slice(None), slice(None))
        to, source = [], []
        for i, d, lo, size in zip(self.input, self.ldil, self.low, shape, strict=True):
            kept = [t for t in range(i) if 0 <= t * d + lo < size]
            source.append(slice(kept[0], kept[-1] + 1) if kept else slice(0, 0))
            to.append(slice(kept[0] * d + lo, kept[-1] * d + lo + 1, d) if kept else slice(0, 0))
        wide[(*whole, *to)] = x[(*whole, *source)]
        out = np.zeros((self.g, self.n, *self.output, self.co), x.dtype)
        for position in itertools.product(*map(range, self.window)) if out.size else ():
            cut = tuple(
                slice(t * r, t * r + (o - 1) * s + 1, s)
                for t, r, o, s in zip(position, self.rdil, self.output, self.stride, strict=True)
            )
            part = wide[(*whole, *cut)].reshape(self.g, -1, self.ci)
            out += np.matmul(part, w[(slice(None), *position)]).reshape(out.shape)
        assert rank == out.ndim - 3
        return out


def values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    t = np.dtype(NUMPY[dtype])
    return (
        rng.integers(-100 if t.kind == "i" else 0, 100, shape).astype(t)
        if t.kind in "iu"
        else rng.standard_normal(shape).astype(t)
    )


def laid_out(x: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Returns the same values, stored with the axes in `order`."""
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


def strides(x: np.ndarray) -> list[int]:
    return [s // x.itemsize for s in x.strides]


def as_wanted(w: np.ndarray, table: np.ndarray, types: GemmTypes, target: Target) -> np.ndarray:
    """Returns the kernel [g, *window, ci, co] in the form that the routine expects."""
    if not table[FIELDS.index("w_prepacked")]:
        return w
    width = int(table[FIELDS.index("w_width")])
    panels = prepack_kernel(
        w.reshape(w.shape[0], -1, *w.shape[-2:]), width, kernel_blocks(table.tolist()), types, target
    )
    return guarded.relaid(panels, at_end=True)


def routine_of(types: GemmTypes, target: Target, form: Form) -> Any:
    return load(conv_routine(types, target, form), target).function(conv_symbol(types, form), "ppppppppipi")


def run(
    p: Problem,
    names: tuple[str, str, str],
    seed: int,
    target: str = "native",
    threads: int = 1,
    is_constant: bool = False,
) -> dict[str, int]:
    """Runs the routine and compares it with the reference. Returns the fields of the table."""
    types, t = GemmTypes(*names), resolve(target)
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    rank = len(p.input)
    x = values(rng, names[0], (p.g, p.n, *p.input, p.ci))
    w = values(rng, names[1], (p.g, *p.window, p.ci, p.co))
    last, axes = rank + 2, tuple(range(2, rank + 2))
    # Features last with groups inside the features, or features first.
    x = laid_out(x, pick.choice([(1, *axes, 0, last), (1, 0, last, *axes), (0, 1, *axes, last)]))
    k = tuple(range(1, rank + 1))
    outputs_first, inputs_first = (0, rank + 2, rank + 1, *k), (0, rank + 1, rank + 2, *k)
    w = laid_out(w, pick.choice([(*k, rank + 1, 0, rank + 2), inputs_first if seed % 2 else outputs_first]))
    reverse = pick.random() < 0.3
    if reverse:
        w = w[(slice(None), *[slice(None, None, -1)] * rank)]
    out_last = pick.random() < 0.5
    out_order = (1, *axes, 0, last) if out_last else (1, 0, last, *axes)
    c = laid_out(np.full((p.g, p.n, *p.output, p.co), 77, NUMPY[names[2]]), out_order)
    x, w, c = (guarded.relaid(array, at_end=seed % 2 == 0) for array in (x, w, c))
    xs, ws, cs = strides(x), strides(w), strides(c)
    if out_last:
        pixel = p.g * p.co
        image, feature = pixel * int(np.prod(p.output)), 1
    else:
        pixel, feature = 1, int(np.prod(p.output))
        image = feature * p.g * p.co
    shape = ConvShape(
        batch=p.n, groups=p.g, ci=p.ci, co=p.co, input=p.input, window=p.window, output=p.output,
        in_strides=tuple(xs[2:-1]), in_batch=xs[1], in_feature=xs[-1], in_group=xs[0],
        kernel_strides=tuple(ws[1:-2]), kernel_in=ws[-2], kernel_out=ws[-1], kernel_group=ws[0],
        out_pixel=pixel, out_image=image, out_feature=feature, out_group=p.co * feature,
        strides=p.stride, pad_low=p.low, lhs_dilation=p.ldil, rhs_dilation=p.rdil,
    )  # fmt: skip
    assert cs[0] == p.co * feature or p.g == 1 or c.size == 0
    geometry = Geometry(shape, types, t)
    decisions = decide(convolution_decisions.Problem(geometry, is_constant, is_finite=is_constant))
    table = np.array(decisions.table, np.int64)
    kernel = as_wanted(w, table, types, t)
    scratch = guarded.scratch(size := conv_scratch_bytes(decisions.table, threads))
    pixels = int(np.prod(p.output))
    features = p.g * p.co
    cover = np.zeros((1, p.n * pixels, features) if shape.features_last else (p.n, features, pixels), np.int64)

    def notify(_: int, at: int, i0: int, i1: int, j0: int, j1: int) -> None:
        assert 0 <= i0 < i1 <= cover.shape[1] and 0 <= j0 < j1 <= cover.shape[2]
        cover[at, i0:i1, j0:j1] += 1

    epilogue = EPILOGUE(notify)
    f = routine_of(types, t, form_of(geometry, decisions.description))
    f(
        table.ctypes.data,
        x.ctypes.data,
        kernel.ctypes.data,
        c.ctypes.data,
        scratch.ctypes.data,
        ctypes.cast(epilogue, ctypes.c_void_p),
        None,
        None,
        0,
        None,
        threads,
    )
    assert (scratch[size:] == guarded.UNWRITTEN).all(), "wrote beyond conv_scratch_bytes"
    wide = np.int64 if names[2].startswith("i") else np.float64
    want = p.reference(x.astype(wide), w.astype(wide))
    if wide is np.int64:
        np.testing.assert_array_equal(c, want.astype(c.dtype))
    else:
        bound = p.reference(np.abs(x.astype(wide)), np.abs(w.astype(wide))) * (3e-6 if names[2] == "f32" else 1e-14)
        assert (np.abs(c - want) <= bound + 1e-30).all()
    assert (cover == 1).all()
    return dict(zip(FIELDS, table.tolist(), strict=True))


@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.sampled(4)
def test_random(names: tuple[str, str, str], rank: int) -> None:
    pick = random.Random(repr(names))
    for seed in range(30 if rank < 3 else 5):
        run(Problem(pick, rank), names, seed, threads=3)


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(4)
def test_prepacked_kernels(names: tuple[str, str, str], target: str) -> None:
    pick = random.Random(repr(names))
    for seed in range(20):
        run(Problem(pick, pick.choice([1, 2, 2, 3])), names, seed, target, 3, is_constant=True)


@pytest.mark.parametrize("names", CASES[:3], ids="-".join)
@pytest.mark.sampled(3)
def test_long_lines(names: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of one line are cut into parts that are lines of their own; so are planes with one line."""
    monkeypatch.setattr(tuning, "CONV_TASK", 1 << 10)
    pick, cut, uneven = random.Random(repr(names)), 0, 0
    for seed in range(30):
        p = Problem(pick, pick.choice([1, 1, 3]), co=pick.choice([2, 48]), ci=pick.choice([3, 16]))
        p.input, p.stride = (*p.input[:-1], pick.choice([400, 512, 600])), (*p.stride[:-1], pick.choice([1, 2]))
        if len(p.input) == 3:
            p.window, p.input = (p.window[0], 1, p.window[2]), (p.input[0], 1, p.input[2])
            p.low, p.high = (p.low[0], 0, p.low[2]), (p.high[0], 0, p.high[2])
            p.stride, p.ldil = (p.stride[0], 1, p.stride[2]), (p.ldil[0], 1, p.ldil[2])
        p.size_output()
        # An output with an even extent, or one without equal parts.
        p.n = 1 if seed % 3 == 2 else p.n
        p.high = (*p.high[:-1], p.high[-1] + (seed % 3 // 2 - p.output[-1] % 8) % 8 * p.stride[-1])
        p.size_output()
        found = run(p, names, seed, threads=3)
        cut += found["oh"] > 1
        uneven += found["oh"] * found["ow"] * found["od"] > found["rows"] // p.n
    assert cut >= 5 and uneven >= 1


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("names", CASES[:3], ids="-".join)
@pytest.mark.sampled(3)
def test_tiles_as_high_as_lines(names: tuple[str, str, str], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles as high as lines also work if the last tile of a line is lower, and for at most one vector of features."""
    monkeypatch.setattr(tuning, "CONV_DEDICATED_TILE", 1)
    pick, found = random.Random(repr(names)), set[int]()
    for seed in range(40):
        p = Problem(pick, 2, co=pick.choice([2, 16, 40, 70]), ci=pick.choice([3, 16]), g=1, ldil=1)
        p.input = (p.input[0], pick.choice([5, 9, 10, 11, 13, 15, 17, 22, 25]) * p.stride[1] + p.window[1] - 1)
        p.low, p.high = (p.low[0], 0), (p.high[0], 0)
        p.size_output()
        found.add(run(p, names, seed, target, 2, is_constant=seed % 3 == 0)["specialized"])
    assert len(found - {0}) >= (3 if resolve(target).vector_bits == 512 else 1), found


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("names", [CASES[0], CASES[1]], ids="-".join)
@pytest.mark.sampled(16)
def test_margins(names: tuple[str, str, str], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks copy the input of stripes at the ends of lines, above and below the image and in depth. Also if a window
    extends beyond both ends of a line, and if lines of a window are separate parts of k."""
    monkeypatch.setattr(tuning, "CONV_MARGINS", 1000)
    monkeypatch.setattr(tuning, "CONV_CALL_K", 64)
    pick, found = random.Random(repr(names)), 0
    for seed in range(50):
        p = Problem(pick, pick.choice([2, 2, 3]), g=pick.choice([1, 1, 2]), ldil=1, co=pick.choice([16, 40]))
        p.low, p.high = (tuple(pick.choice([0, 1, 2, 5]) for _ in p.input) for _ in range(2))
        p.size_output()
        wider = -p.output[-1] % 84 * p.stride[-1]  # whole tiles of 14 or 6 pixels
        p.input = (*p.input[:-1], p.input[-1] + wider)
        p.size_output()
        found += run(p, names, seed, target, 2, is_constant=seed % 3 == 0)["margin_line"] > 0
    assert found >= 8, found


@pytest.mark.parametrize("call_k", [64, 1152])
@pytest.mark.parametrize("margins", [0, 1000])
@pytest.mark.parametrize("names", [CASES[0], CASES[2], CASES[4]], ids="-".join)
def test_lines_that_read_only_padding(
    names: tuple[str, str, str], margins: int, call_k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Window lines that read only padding are left out, if a call covers the whole window and if it covers one line.
    That includes the first lines, where the sums begin with a later one. With a copy of the padded input, and with
    tasks that copy its margins."""
    monkeypatch.setattr(tuning, "CONV_MARGINS", margins)
    monkeypatch.setattr(tuning, "CONV_CALL_K", call_k)
    pick, found = random.Random(repr(names)), 0
    for seed in range(40):
        p = Problem(pick, 2, g=pick.choice([1, 1, 2]), ldil=1, co=pick.choice([3, 16, 40]), ci=pick.choice([3, 16]))
        p.window, p.rdil = (pick.choice([2, 3, 4, 5]), p.window[1]), (pick.choice([1, 1, 2, 5]), pick.choice([1, 1, 3]))
        p.low, p.high = (tuple(pick.choice([0, 1, 2, 3]) for _ in p.input) for _ in range(2))
        p.size_output()
        p.input = (p.input[0], p.input[1] - p.output[1] % -28 * p.stride[1])  # whole tiles of 14 pixels
        p.size_output()
        table = run(p, names, seed, "native", 2, is_constant=True)
        found += table["leaves_padding"] * np.array([1, not table["margin_lines"]])
    assert (found >= (8, 2)).all(), found


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("margins", [0, 1000])
@pytest.mark.parametrize("names", [CASES[0], CASES[2], CASES[4]], ids="-".join)
@pytest.mark.sampled(4)
def test_columns_that_read_only_padding(
    names: tuple[str, str, str], margins: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pixels at the ends of lines leave out window columns that read only padding: for windows whose lines are runs and
    for those whose columns are, for some pixels of a stripe or all of it, with the usual tiles or a dedicated one."""
    for name, value in (
        ("MARGINS", margins),
        ("COLUMN_CALL", 0),
        ("EDGE_SHARE", 0),
        ("EDGE_TILE", 0),
        ("DEDICATED_TILE", 1),
    ):
        monkeypatch.setattr(tuning, f"CONV_{name}", value)
    pick, found = random.Random(repr(names)), Counter[str]()
    for seed in range(60):
        monkeypatch.setattr(tuning, "CONV_CALL_K", pick.choice([64, 1152]))
        p = Problem(pick, pick.choice([1, 2, 2, 3]), g=pick.choice([1, 1, 2]), ldil=1, co=pick.choice([3, 16, 40]))
        p.ci = pick.choice([3, 16])
        last = (pick.choice([2, 3, 4, 5]), pick.choice([1, 1, 2, 3, 6]))
        p.window, p.rdil = (*p.window[:-1], last[0]), (*p.rdil[:-1], last[1])
        p.low, p.high = (tuple(pick.choice([0, 1, 2, 6]) for _ in p.input) for _ in range(2))
        middle = (last[0] - 1) * last[1] // 2
        p.low, p.high = (*p.low[:-1], pick.choice([middle, 1])), (*p.high[:-1], pick.choice([middle, 1, 0]))
        p.size_output()
        wanted = pick.choice([7, 9, 11, 12, 13, 14, 16, 18, 24, 28])
        p.input = (*p.input[:-1], max(1, p.input[-1] + (wanted - p.output[-1]) * p.stride[-1]))
        p.size_output()
        table = run(p, names, seed, target, 2, is_constant=True)
        if table["ends"]:
            found.update(["by lines" if table["margin_lines"] else "by columns", "in all"])
            found.update(["own"] * (table["ends"] > 1) + ["padded"] * (table["copy_tasks"] > 0))
    assert found["by lines"] >= 3 and found["by columns"] >= 3 and found["in all"] >= 9, found
    assert found["own"] >= 3 or names[2] != "f32", found


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(4)
def test_few_features(names: tuple[str, str, str], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes run along the window: lines of any length, in several calls, also for kernels that are arguments."""
    monkeypatch.setattr(tuning, "CONV_CALL_K", 64)
    pick, found = random.Random(repr(names)), 0
    for seed in range(40):
        p = Problem(pick, pick.choice([1, 2, 2, 3]), co=pick.randint(1, 12), ci=pick.choice([3, 16, 32, 50, 64]))
        found += (
            run(p, names, seed, target, 3, is_constant=seed % 2 == 0)["kind"] == NUMBERS[Variant("dot", "k", "pixels")]
        )
    assert found >= 3


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("names", CASES[:3], ids="-".join)
@pytest.mark.sampled(4)
def test_groups_of_a_few_channels(names: tuple[str, str, str], size: int, target: str) -> None:
    """Lines have any length, windows share loaded pixels or do not, and extend beyond all sides of the input."""
    pick, found = random.Random(repr(names)), 0
    lanes = 64 // np.dtype(NUMPY[names[2]]).itemsize
    for seed in range(30):
        p = Problem(pick, pick.choice([1, 2, 2, 3]), g=pick.choice([1, 2]) * lanes // size, ci=size, co=size, ldil=1)
        if seed % 2:
            p.window, p.stride, p.rdil = ((*x[:-1], n) for x, n in ((p.window, 3), (p.stride, 1), (p.rdil, 1)))
            p.size_output()
        found += run(p, names, seed, target, 3, is_constant=seed % 3 == 0)["kind"] == GROUPED
    lanes_there = resolve(target).vector_bits // 8
    fits = size * np.dtype(NUMPY[names[2]]).itemsize < lanes_there and names[0] == names[2]
    assert found >= 3 if fits else found == 0


@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(3)
def test_depthwise(names: tuple[str, str, str]) -> None:
    pick = random.Random(1)
    for seed in range(30):
        run(Problem(pick, 2, g=pick.choice([7, 32, 50]), ci=1, co=pick.choice([1, 1, 2]), ldil=1), names, seed)


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("names", CASES, ids="-".join)
@pytest.mark.sampled(4)
def test_depthwise_windows(names: tuple[str, str, str], size: int, target: str) -> None:
    """Windows stay in registers, also at the ends of lines, above and below the input, and if the input is smaller than
    the window."""
    pick = random.Random(size)
    for seed in range(24):
        channels, inputs = pick.choice([16, 40, 64, 200]), pick.choice([1, 2, 3, 5, 8, 14, 29])
        p = Problem(pick, 2, g=channels, ci=1, co=1, ldil=1, window=size, input=inputs)
        run(p, names, seed, target, threads=3)
    deep = Problem(pick, 3, g=16, ci=1, co=1, ldil=1, rdil=1, window=3, input=5, stride=1)
    run(deep, names, 0)


@pytest.mark.parametrize("size, channels", [(3, 3), (3, 17), (5, 3)])
def test_depthwise_windows_below_the_image(size: int, channels: int) -> None:
    """Only the first line of the last windows is inside; reads stop at the end of the input."""
    rng, (h, w) = np.random.default_rng(size), (9, 7)
    x, k = (rng.standard_normal(s).astype(np.float32) for s in ((1, h, w, channels), (size, size, 1, channels)))
    given, kernel, made = (f"tensor<{'x'.join(map(str, s))}xf32>" for s in (x.shape, k.shape, (1, h, w, channels)))
    exe = guarded.compile(
        f"""func.func @main(%x: {given}, %k: {kernel}) -> {made} {{
             %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
               window = {{pad = [[0, {size - 1}], [0, {size - 1}]]}}
               {{batch_group_count = 1 : i64, feature_group_count = {channels} : i64}} : ({given}, {kernel}) -> {made}
             return %0 : {made}
           }}"""
    )
    wide = np.zeros((1, h + size - 1, w + size - 1, channels))
    wide[:, :h, :w] = x
    want = sum(wide[:, i : i + h, j : j + w] * k[i, j, 0] for i in range(size) for j in range(size))
    np.testing.assert_allclose(exe(x, k), want, rtol=1e-5, atol=1e-5)


def test_depthwise_windows_of_one_plane_and_padding_in_depth() -> None:
    """The single plane of a window of 1 x 3 x 3 is outside the input."""
    rng = np.random.default_rng(6)
    x, w = (
        rng.standard_normal((1, 2, 5, 6, 16)).astype(np.float32),
        rng.standard_normal((1, 3, 3, 1, 16)).astype(np.float32),
    )
    exe = guarded.compile(
        """func.func @main(%x: tensor<1x2x5x6x16xf32>, %w: tensor<1x3x3x1x16xf32>) -> tensor<1x4x5x6x16xf32> {
             %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f],
               window = {pad = [[1, 1], [1, 1], [1, 1]]}
               {batch_group_count = 1 : i64, feature_group_count = 16 : i64}
               : (tensor<1x2x5x6x16xf32>, tensor<1x3x3x1x16xf32>) -> tensor<1x4x5x6x16xf32>
             return %0 : tensor<1x4x5x6x16xf32>
           }"""
    )
    wide = np.zeros((1, 4, 7, 8, 16))
    wide[:, 1:3, 1:6, 1:7] = x
    want = sum(wide[:, :, i : i + 5, j : j + 6] * w[0, i, j, 0] for i in range(3) for j in range(3))
    np.testing.assert_allclose(exe(x, w), want, rtol=1e-5, atol=1e-5)


def test_planes_are_plain_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depthwise with features first: each product is rounded, then added, in the window's order."""
    monkeypatch.setattr(features_last, "has_features_first", lambda _: False)
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 6, 40)).astype(np.float32), rng.standard_normal((12, 1, 5)).astype(np.float32)
    exe = shlo_jit.compile(
        """func.func @main(%x: tensor<2x6x40xf32>, %w: tensor<12x1x5xf32>) -> tensor<2x12x36xf32> {
             %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {}
               {batch_group_count = 1 : i64, feature_group_count = 6 : i64}
               : (tensor<2x6x40xf32>, tensor<12x1x5xf32>) -> tensor<2x12x36xf32>
             return %0 : tensor<2x12x36xf32>
           }""",
        cache=False,
    )
    want = np.zeros((2, 12, 36), np.float32)
    for k in range(5):
        want += np.repeat(x[:, :, k : k + 36], 2, axis=1) * w[:, :, k]
    np.testing.assert_array_equal(exe(x, w), want)


def test_pointwise() -> None:
    pick = random.Random(2)
    for seed in range(20):
        run(Problem(pick, 2, window=1, stride=1, pad=0, ldil=1, input=pick.choice([7, 14, 20])), CASES[0], seed)


def test_long_k() -> None:
    pick = random.Random(3)
    for seed in range(6):
        run(Problem(pick, 2, window=3, ci=500, co=70, g=1, n=1, input=9), CASES[0], seed)


@pytest.mark.parametrize("target", ["x86-64-v3"])
def test_avx2(target: str) -> None:
    pick = random.Random(4)
    for names in CASES:
        for seed in range(15):
            run(Problem(pick), names, seed, target)
            run(Problem(pick, 2, g=19, ci=1, co=1, ldil=1), names, seed, target)


@pytest.mark.slow
def test_aarch64_compiles() -> None:
    t = resolve("aarch64:generic")
    for names, variant in itertools.product(CASES, SYMBOLS):
        routine = conv_routine(GemmTypes(*names), t, Form(variant))
        assert all(compile_object(routine_text(r, t), t) for r in (routine, *routine.needs))
