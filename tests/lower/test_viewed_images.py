"""Convolutions whose image or kernel is a part of another array, which they read in place: right results, the same bits
for any number of threads, nothing read beyond the array, and nothing copied."""

from __future__ import annotations

import guarded
import numpy as np
import pytest

import shlo_jit

DIMENSIONS = {"NHWC": "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "NCHW": "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"}


class Case:
    """A random convolution, and how its operand lies in a larger array."""

    def __init__(self, seed: int, view: str):
        r = np.random.default_rng(seed)
        self.layout = str(r.choice(list(DIMENSIONS)))
        self.groups = int(r.choice([1, 1, 1, 2]))
        ci, co = int(r.integers(1, 9)) * self.groups, int(r.choice([1, 3, 16, 40])) * self.groups
        if r.random() < 0.2:
            self.groups, co = ci, ci * int(r.integers(1, 3))
        batch, height, width, window = int(r.integers(1, 4)), *map(int, r.integers(5, 20, 2)), int(r.choice([1, 2, 3]))
        self.stride, self.pad = int(r.integers(1, 3)), int(r.integers(0, 2))
        last = self.layout == "NHWC"
        self.image = (batch, height, width, ci) if last else (batch, ci, height, width)
        each = ci // self.groups
        self.kernel = (window, window, each, co) if last else (co, each, window, window)
        sizes = [(n + 2 * self.pad - window) // self.stride + 1 for n in (height, width)]
        self.result = (batch, *sizes, co) if last else (batch, co, *sizes)
        self.view, self.at = view, int(r.integers(0, 3))
        shape = self.kernel if view == "stacked kernels" else self.image
        if view in ("stacked images", "stacked kernels"):
            self.whole = (3, *shape)
        elif view == "slice":
            self.low = tuple(int(x) for x in r.integers(0, 4, 4))
            self.whole = tuple(n + a + int(r.integers(0, 4)) for n, a in zip(shape, self.low, strict=True))
        else:
            self.whole = (shape[1], shape[0], *shape[2:])

    def part(self, whole: np.ndarray) -> np.ndarray:
        """The operand."""
        if self.view.startswith("stacked"):
            return whole[self.at]
        if self.view == "slice":
            return whole[tuple(slice(a, a + n) for a, n in zip(self.low, self.image, strict=True))]
        return whole.swapaxes(0, 1)

    def text(self, is_view: bool) -> str:
        """The program, which takes the larger array, or the operand itself."""
        of_kernel = self.view == "stacked kernels"
        shape = self.kernel if of_kernel else self.image
        body, given = "", self.whole if is_view else shape
        whole, part = _type(given), _type(shape)
        if is_view and self.view.startswith("stacked"):
            zero, one = "%zero, " * 4, (1, *shape)
            body = f"""  %zero = stablehlo.constant dense<0> : tensor<i32>
  %part = stablehlo.dynamic_slice %whole, %i, {zero[:-2]}, sizes = [{_list(one)}]
    : ({whole}, {", ".join(["tensor<i32>"] * 5)}) -> {_type(one)}
  %x = stablehlo.reshape %part : ({_type(one)}) -> {part}"""
        elif is_view and self.view == "slice":
            ranges = ", ".join(f"{a}:{a + n}" for a, n in zip(self.low, shape, strict=True))
            body = f"  %x = stablehlo.slice %whole [{ranges}] : ({whole}) -> {part}"
        elif is_view:
            body = f"  %x = stablehlo.transpose %whole, dims = [1, 0, 2, 3] : ({whole}) -> {part}"
        x, other = "%x" if is_view else "%whole", _type(self.image if of_kernel else self.kernel)
        operands, types = ((f"%other, {x}", f"{other}, {part}") if of_kernel else (f"{x}, %other", f"{part}, {other}"))
        return f"""func.func @main(%whole: {whole}, %other: {other}, %i: tensor<i32>) -> {_type(self.result)} {{
{body}
  %0 = stablehlo.convolution({operands}) dim_numbers = {DIMENSIONS[self.layout]},
    window = {{stride = [{self.stride}, {self.stride}], pad = [[{self.pad}, {self.pad}], [{self.pad}, {self.pad}]]}}
    {{batch_group_count = 1 : i64, feature_group_count = {self.groups} : i64}} : ({types}) -> {_type(self.result)}
  return %0 : {_type(self.result)}
}}"""


def _list(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _type(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


@pytest.mark.parametrize("view", ["stacked images", "stacked kernels", "slice", "transposed"])
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.sampled(12)
def test_random_convolutions(view: str, seed: int) -> None:
    case = Case(seed, view)
    r = np.random.default_rng(seed)
    whole = r.standard_normal(case.whole).astype(np.float32)
    other = r.standard_normal(case.image if view == "stacked kernels" else case.kernel).astype(np.float32)
    if seed % 5 == 0:
        other.reshape(-1)[0] = np.inf
    at = np.int32(case.at)
    plain = shlo_jit.compile(case.text(is_view=False), cache=False)
    expected = plain(np.ascontiguousarray(case.part(whole)), other, at)
    results = [guarded.compile(case.text(is_view=True), threads=t)(whole, other, at) for t in (1, 2, 3, 8)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-4)
    assert all(x.tobytes() == results[0].tobytes() for x in results)


def steps_of(case: Case) -> list[str]:
    plan = shlo_jit.compile(case.text(is_view=True), cache=False).text("plan")
    return [line.split()[1] for line in plan.splitlines() if line[:4].strip().isdigit()]


@pytest.mark.parametrize("view", ["stacked images", "stacked kernels", "slice", "transposed"])
def test_nothing_is_copied(view: str) -> None:
    cases = (Case(seed, view) for seed in range(40))
    case = next(c for c in cases if c.layout == "NHWC" and c.kernel[0] == 3 and c.groups == 1 and c.image[3] > 1)
    assert steps_of(case) == ["convolution"]


def test_reordered_images_are_copied() -> None:
    """Where features are not adjacent, an image is transposed by a loop, which moves whole vectors."""
    cases = (Case(seed, "transposed") for seed in range(60))
    case = next(c for c in cases if c.layout == "NHWC" and c.groups == 1 and c.image[3] > 1)
    batch, height, width, features = case.image
    case.whole = (batch, features, height, width)
    text = case.text(is_view=True).replace("dims = [1, 0, 2, 3]", "dims = [0, 2, 3, 1]")
    plan = shlo_jit.compile(text, cache=False).text("plan")
    assert plan.startswith("2 steps") and "transpose" in plan
