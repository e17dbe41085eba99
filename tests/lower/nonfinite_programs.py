"""Random programs of convolutions and windows whose inputs, kernels and padding values contain NaN and infinities.

A program has several independent operations, because most of the time goes into compiling it. Numbers are small
integers, so that every order of additions gives the same bits, and results are compared without a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shlo_jit.ir.types import DTYPES

FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16", "f8E5M2", "f8E4M3FN", "f8E4M3", "complex<f32>", "complex<f64>")
ODD = (np.nan, np.inf, -np.inf, -0.0)
Shape = tuple[int, ...]


@dataclass
class Program:
    """Operations, the arguments they take, and a word for each that describes it."""

    lines: list[str] = field(default_factory=list)
    arguments: list[np.ndarray] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def argument(self, array: np.ndarray, type: str) -> str:
        self.arguments.append(array)
        self.types.append(type)
        return f"%a{len(self.arguments) - 1}"

    def add(self, kind: str, type: str, line: str) -> None:
        name = f"%r{len(self.results)}"
        self.lines.append(f"{name} = {line}")
        self.results.append((name, type))
        self.kinds.append(kind)

    @property
    def text(self) -> str:
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(self.types))
        names, types = ", ".join(n for n, _ in self.results), ", ".join(t for _, t in self.results)
        body = "\n  ".join(self.lines)
        return f"func.func @main({arguments}) -> ({types}) {{\n  {body}\n  return {names} : {types}\n}}"


def tensor(shape: Shape, dtype: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + dtype + ">"


def numbers(rng: np.random.Generator, shape: Shape, dtype: str, odd: float) -> np.ndarray:
    """Returns small integers; each is replaced by a non-finite value or -0 with a probability of `odd`."""
    t = DTYPES[dtype]
    part = t.part if t.is_complex else t
    largest = 2 if part.bits > 8 else 1

    def real() -> np.ndarray:
        x = np.asarray(rng.integers(-largest, largest + 1, shape), np.float64)
        return np.where(rng.random(shape) < odd, rng.choice(ODD, shape), x)

    if not t.is_complex:
        with np.errstate(invalid="ignore"):
            return np.asarray(real()).astype(t.numpy)
    out = np.empty(shape, t.numpy)
    out.real, out.imag = real(), real()
    return out


def odds(rng: np.random.Generator, size: int) -> float:
    """Returns the probability of odd values: often none, often about one number, sometimes many."""
    return float(rng.choice([0, 1 / max(1, size), 0.2], p=[0.35, 0.5, 0.15]))


def drawn(rng: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    return numbers(rng, shape, dtype, odds(rng, int(np.prod(shape))))


def constant(program: Program, array: np.ndarray, dtype: str) -> str:
    """Adds a constant, given by its bits."""
    name = f"%c{len(program.lines)}"
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes().hex()
    program.lines.append(f'{name} = stablehlo.constant dense<"0x{data}"> : {tensor(array.shape, dtype)}')
    return name


def ints(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


# ---------------------------------------------------------------------------- convolutions
@dataclass
class Convolution:
    """Extents and attributes of a convolution, by spatial dimension if there are several."""

    batch: int
    groups: int
    ci: int
    co: int
    size: list[int]
    window: list[int]
    stride: list[int]
    low: list[int]
    high: list[int]
    holes: list[int]
    """Dilation of the input."""
    apart: list[int]
    """Dilation of the kernel."""
    batch_groups: int = 1
    order: str = "last"
    """Position of the features: `last`, `first`, or `any`."""
    kernel_first: bool = False
    reverse: bool = False

    @property
    def output(self) -> list[int]:
        columns = zip(self.size, self.window, self.stride, self.low, self.high, self.holes, self.apart, strict=True)
        out = []
        for n, k, s, low, high, hole, apart in columns:
            padded, reach = (n - 1) * hole + 1 + low + high, (k - 1) * apart + 1
            out.append((padded - reach) // s + 1 if padded >= reach else 0)
        return out


Draw = Callable[[Sequence[int]], int]


def _plain(draw: Draw, rank: int) -> Convolution:
    each = lambda choices: [draw(choices) for _ in range(rank)]  # noqa: E731
    small = rank == 3
    return Convolution(
        batch=draw([1, 1, 2, 3]), groups=1, ci=draw([1, 2, 3, 8, 16]), co=draw([1, 2, 5, 16, 33]),
        size=each([2, 3, 5] if small else [1, 3, 5, 8, 15, 20]), window=each([1, 2, 3, 3, 5]),
        stride=each([1, 1, 1, 2, 3]), low=each([-1, 0, 1, 1, 2, 4]), high=each([-1, 0, 1, 1, 2, 4]),
        holes=[1] * rank, apart=each([1, 1, 1, 2, 3]),
    )  # fmt: skip


def random_convolution(rng: np.random.Generator) -> tuple[str, Convolution]:
    """Returns a kind of convolution, named after the strategy that it is meant for, and a convolution of that kind."""

    def draw(choices: Sequence[int]) -> int:
        return int(choices[int(rng.integers(len(choices)))])

    kind = str(rng.choice([
        "dense", "dense", "first", "any", "few", "depthwise", "windows", "planes", "grouped", "groups", "batch groups",
        "holes", "images", "wide",
    ]))  # fmt: skip
    rank = draw([2, 2, 2, 1, 3])
    c = _plain(draw, rank)
    c.reverse, c.kernel_first = draw([0, 0, 0, 1]) == 1, draw([0, 1]) == 1
    if kind in ("first", "planes"):
        c.order = "first"
    if kind == "any":
        c.order = "any"
    if kind == "few":
        c.ci, c.co, c.kernel_first = draw([16, 32, 17]), draw([1, 2, 3, 5]), False
    if kind in ("depthwise", "windows", "planes"):
        c.groups, c.ci, c.co, c.kernel_first = draw([2, 3, 8, 16, 17, 35]), 1, 1, kind == "planes"
        c.co = draw([1, 1, 2]) if kind == "planes" else 1
        c.reverse = False
    if kind == "windows":
        size = draw([3, 5])
        c = c_with_window(c, draw, size)
    if kind == "grouped":
        c.ci = c.co = draw([2, 4, 8])
        c.groups, c.kernel_first = draw([16, 32]) // c.ci * draw([1, 2]), False
    if kind == "groups":
        c.groups, c.ci, c.co = draw([2, 3]), draw([1, 2, 5]), draw([1, 3, 4])
    if kind == "batch groups":
        c.batch_groups = draw([2, 3, 4])
        c.ci, c.co = draw([1, 2]), draw([1, 2, 3])
    if kind == "holes":
        c.holes = [draw([1, 2, 2, 3]) for _ in c.holes]
        c.stride = [1 if draw([0, 0, 1]) == 0 else s for s in c.stride]
        c.groups = draw([1, 1, 1, 2])
    if kind == "images":
        c.batch, c.window, c.size = 8, [6] * len(c.window), [draw([6, 7, 9]) for _ in c.size]
        c.order, c.ci, c.co = "adjacent", draw([1, 2]), draw([16, 5])
    if kind == "wide":
        c.low, c.high = [draw([3, 9, 20]) for _ in c.low], [draw([0, 7, 20]) for _ in c.high]
        c.apart = [draw([1, 4, 9]) for _ in c.apart]
    return kind, c


def c_with_window(c: Convolution, draw: Draw, size: int) -> Convolution:
    """Returns the same convolution over two dimensions, with a square window."""
    c.window = [size, size]
    for name in ("size", "stride", "low", "high", "holes", "apart"):
        values = [*getattr(c, name), 1][:2] if name != "size" else [draw([4, 7, 12]), draw([4, 9, 16])]
        setattr(c, name, values)
    return c


def _dims(order: str, rank: int, rng: np.random.Generator, first: str, second: str) -> list[str]:
    spatial = [str(i) for i in range(rank)]
    if order == "first":
        return [first, second, *spatial]
    if order == "last":
        return [first, *spatial, second]
    if order == "adjacent":
        return [second, *spatial, first]
    return [str(x) for x in rng.permutation([first, second, *spatial])]


def add_convolution(program: Program, rng: np.random.Generator, dtype: str | None = None) -> bool:
    """Adds a random convolution; returns False if it would have no result."""
    kind, c = random_convolution(rng)
    if 0 in c.output or np.prod(c.output) * np.prod(c.window) * c.co * c.ci * c.batch * c.groups > 1 << 22:
        return False
    dtype = dtype or str(rng.choice(FLOATS))
    rank = len(c.size)
    images = {"b": c.batch * c.batch_groups, "f": c.groups * c.ci}
    features = c.groups * c.co * c.batch_groups
    output = {"b": c.batch, "f": features}
    kernel = {"i": c.ci, "o": features}
    x_dims = _dims(c.order, rank, rng, "b", "f")
    y_dims = _dims("last" if c.order == "adjacent" else c.order, rank, rng, "b", "f")
    w_order = "any" if c.order == "any" else "first" if c.kernel_first else "last"
    w_dims = _dims(w_order, rank, rng, "o", "i") if c.kernel_first or c.order == "any" else [
        *map(str, range(rank)), "i", "o"]  # fmt: skip
    x_shape = tuple(images[d] if d in images else c.size[int(d)] for d in x_dims)
    w_shape = tuple(kernel[d] if d in kernel else c.window[int(d)] for d in w_dims)
    y_shape = tuple(output[d] if d in output else c.output[int(d)] for d in y_dims)
    x, w = drawn(rng, x_shape, dtype), drawn(rng, w_shape, dtype)
    x_name = program.argument(x, tensor(x_shape, dtype))
    w_name = constant(program, w, dtype) if rng.random() < 0.25 else program.argument(w, tensor(w_shape, dtype))
    numbers_ = "x".join(f"[{', '.join(d)}]" for d in (x_dims, w_dims)) + f"->[{', '.join(y_dims)}]"
    pads = ", ".join(f"[{a}, {b}]" for a, b in zip(c.low, c.high, strict=True))
    window = [
        f"stride = [{ints(c.stride)}]", f"pad = [{pads}]", f"lhs_dilate = [{ints(c.holes)}]",
        f"rhs_dilate = [{ints(c.apart)}]",
    ]  # fmt: skip
    if c.reverse:
        window.append(f"reverse = [{', '.join(['true'] * rank)}]")
    y = tensor(y_shape, dtype)
    program.add(
        kind, y,
        f"stablehlo.convolution({x_name}, {w_name}) dim_numbers = {numbers_}, window = {{{', '.join(window)}}} "
        f"{{batch_group_count = {c.batch_groups} : i64, feature_group_count = {c.groups} : i64}} : "
        f"({tensor(x_shape, dtype)}, {tensor(w_shape, dtype)}) -> {y}",
    )  # fmt: skip
    return True


# ---------------------------------------------------------------------------- windows
BODIES = {
    "add": "%v = stablehlo.add %l, %r : {t}",
    "maximum": "%v = stablehlo.maximum %l, %r : {t}",
    "minimum": "%v = stablehlo.minimum %l, %r : {t}",
    "last": "%v = stablehlo.reshape %r : ({t}) -> {t}",
    "first": "%v = stablehlo.reshape %l : ({t}) -> {t}",
    "affine": "%n = stablehlo.negate %l : {t}\n    %v = stablehlo.add %n, %r : {t}",
    "larger": "%p = stablehlo.compare GE, %l, %r : ({t}, {t}) -> tensor<i1>\n"
    "    %v = stablehlo.select %p, %l, %r : tensor<i1>, {t}",
}
NOT_COMPLEX = ("maximum", "minimum", "larger")
IN_ANY_ORDER = ("add", "maximum", "minimum")
"""Bodies whose windows may be folded as a tree: cumulative windows of others are implementation-defined."""


def random_windows(rng: np.random.Generator) -> tuple[Shape, Shape, dict[str, list[int]]]:
    """Returns an input's shape, the result's shape, and attributes by name; padding as pairs in one list."""
    while True:
        rank = int(rng.integers(1, 5))
        shape = [int(n) for n in rng.choice([1, 2, 3, 5, 9, 20], rank)]
        plain = rng.random(rank) < 0.4
        limits = {"window_dimensions": 5, "window_strides": 3, "base_dilations": 3, "window_dilations": 3}
        if rng.random() < 0.6:
            limits |= {"base_dilations": 1, "window_dilations": 1}
        w = {k: [1 if plain[d] else int(rng.integers(1, n + 1)) for d in range(rank)] for k, n in limits.items()}
        most = 4 if rng.random() < 0.7 else 30
        w["padding"] = [0 if plain[i // 2] else int(rng.integers(-1, most)) for i in range(2 * rank)]
        if rng.random() < 0.25:  # cumulative
            d = int(rng.integers(rank))
            w = {k: [1] * rank for k in limits} | {"padding": [0] * (2 * rank)}
            w["window_dimensions"][d] = shape[d]
            w["padding"][2 * d + int(rng.integers(2))] = shape[d] - 1
        out = []
        for d in range(rank):
            padded = (shape[d] - 1) * w["base_dilations"][d] + 1 + sum(w["padding"][2 * d : 2 * d + 2])
            reach = (w["window_dimensions"][d] - 1) * w["window_dilations"][d] + 1
            out.append((padded - reach) // w["window_strides"][d] + 1 if padded >= reach else 0)
        if min(out) > 0 and np.prod(out) * np.prod(w["window_dimensions"]) < 50000:
            return tuple(shape), tuple(out), w


def _attributes(window: dict[str, list[int]]) -> str:
    out = [f"{k} = array<i64: {ints(v)}>" for k, v in window.items() if k != "padding"]
    pads = window["padding"]
    pairs = ", ".join(f"[{a}, {b}]" for a, b in zip(pads[::2], pads[1::2], strict=True))
    return ", ".join([*out, f"padding = dense<[{pairs}]> : tensor<{len(pads) // 2}x2xi64>"])


def _initial(program: Program, rng: np.random.Generator, dtype: str) -> str:
    """Returns an initial value for padding: sometimes a constant, often one that is neutral for a body."""
    part = DTYPES[dtype]
    value = numbers(rng, (), dtype, 0.3)
    if rng.random() < 0.4:
        value = np.asarray(rng.choice([0.0, -0.0, -np.inf, np.inf])).astype(part.numpy)
    return constant(program, value, dtype) if rng.random() < 0.5 else program.argument(value, tensor((), dtype))


def add_reduce_window(program: Program, rng: np.random.Generator) -> bool:
    shape, out, window = random_windows(rng)
    dtype = str(rng.choice([d for d in FLOATS if not d.startswith("f8")]))
    names = [b for b in BODIES if not (dtype.startswith("complex") and b in NOT_COMPLEX)]
    cumulative = max(window["window_dimensions"]) in shape and max(window["padding"]) + 1 in shape
    name = str(rng.choice([b for b in names if b in IN_ANY_ORDER or not cumulative]))
    x = program.argument(drawn(rng, shape, dtype), tensor(shape, dtype))
    init, t = _initial(program, rng, dtype), tensor((), dtype)
    program.add(
        f"reduce_window {name}", tensor(out, dtype),
        f'"stablehlo.reduce_window"({x}, {init}) <{{{_attributes(window)}}}> ({{\n'
        f"  ^bb0(%l: {t}, %r: {t}):\n    {BODIES[name].format(t=t)}\n    stablehlo.return %v : {t}\n"
        f"  }}) : ({tensor(shape, dtype)}, {t}) -> {tensor(out, dtype)}",
    )  # fmt: skip
    return True


def add_select_and_scatter(program: Program, rng: np.random.Generator) -> bool:
    shape, _, window = random_windows(rng)
    window = {k: v for k, v in window.items() if "dilations" not in k}
    window["padding"] = [max(0, p) for p in window["padding"]]
    pads = window["padding"]
    out = tuple(
        max(0, (n + low + high - size) // stride + 1)
        for n, low, high, size, stride in zip(
            shape, pads[::2], pads[1::2], window["window_dimensions"], window["window_strides"], strict=True
        )
    )
    if min(out) == 0:
        return False
    dtype = str(rng.choice(["f32", "f32", "f64", "bf16", "f16"]))
    t, direction = tensor((), dtype), rng.choice(["GE", "GT", "LT", "LE", "NE"])
    name = str(rng.choice(["add", "maximum", "last"]))
    x = program.argument(drawn(rng, shape, dtype), tensor(shape, dtype))
    s = program.argument(drawn(rng, out, dtype), tensor(out, dtype))
    init = _initial(program, rng, dtype)
    program.add(
        f"select_and_scatter {direction} {name}", tensor(shape, dtype),
        f'"stablehlo.select_and_scatter"({x}, {s}, {init}) <{{{_attributes(window)}}}> ({{\n'
        f"  ^bb0(%l: {t}, %r: {t}):\n    %v = stablehlo.compare {direction}, %l, %r : ({t}, {t}) -> tensor<i1>\n"
        f"    stablehlo.return %v : tensor<i1>\n  }}, {{\n  ^bb1(%l: {t}, %r: {t}):\n"
        f"    {BODIES[name].format(t=t)}\n    stablehlo.return %v : {t}\n"
        f"  }}) : ({tensor(shape, dtype)}, {tensor(out, dtype)}, {t}) -> {tensor(shape, dtype)}",
    )  # fmt: skip
    return True


WRITERS = {
    "convolution": add_convolution,
    "reduce_window": add_reduce_window,
    "select_and_scatter": add_select_and_scatter,
}
SHARES = ("convolution", "convolution", "convolution", "reduce_window", "select_and_scatter")


def random_program(seed: int, operations: int = 8, kinds: Sequence[str] = SHARES) -> Program:
    """Returns a program of `operations` operations of these kinds."""
    rng, program = np.random.default_rng(seed), Program()
    while len(program.results) < operations:
        WRITERS[str(rng.choice(kinds))](program, rng)
    return program
