"""Kernels with more than a hundred buffers each: they have as many parameters as registers, and must not reuse the
registers' names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numpy as np
import pytest

import shlo_jit
from shlo_jit import pipeline
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions

COUNT = 130
Program = tuple[str, list[np.ndarray], Callable[..., Sequence[np.ndarray]]]


def integers(*shape: int, count: int = COUNT, low: int = -3, high: int = 4) -> list[np.ndarray]:
    r = np.random.default_rng(len(shape) + count)
    return [r.integers(low, high, shape).astype(np.float32) for _ in range(count)]


def typed(shape: Sequence[int], dtype: str = "f32") -> str:
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def function(types: Sequence[str], results: Sequence[str], lines: Sequence[str], returned: Sequence[str]) -> str:
    inputs = ", ".join(f"%x{i}: {t}" for i, t in enumerate(types))
    body = "\n".join(["  " + line for line in lines])
    outs = ", ".join(results)
    return f"func.func @main({inputs}) -> ({outs}) {{\n{body}\n  return {', '.join(returned)} : {outs}\n}}"


def sum_lines(names: Sequence[str], t: str, prefix: str = "s") -> list[str]:
    """Adds up values, to `%{prefix}`."""
    out, total = [], names[0]
    for i, name in enumerate(names[1:]):
        after = f"%{prefix}" if i == len(names) - 2 else f"%{prefix}_{i}"
        out.append(f"{after} = stablehlo.add {total}, {name} : {t}")
        total = after
    return out


def borders() -> Program:
    """Returns padded operands, each a different array: the interior of the loop is peeled, and another loop iterates
    over the rest."""
    xs, t, u = integers(198), typed([198]), typed([200])
    pad = f"low = [1], high = [1], interior = [0] : ({t}, tensor<f32>) -> {u}"
    lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]
    lines += [f"%w{i} = stablehlo.pad %x{i}, %zero, {pad}" for i in range(COUNT)]
    lines += sum_lines([f"%w{i}" for i in range(COUNT)], u)
    return function([t] * COUNT, [u], lines, ["%s"]), xs, lambda *x: [np.pad(sum(x), 1)]


def updated_interiors() -> Program:
    """Returns steps of a stencil, each of which sets the interior of the previous array to means of neighbours."""
    t, u, steps = typed([100]), typed([98]), 25
    lines = [f"%half = stablehlo.constant dense<0.5> : {u}", "%at = stablehlo.constant dense<1> : tensor<i32>"]
    for k in range(steps):
        lines += [
            f"%a{k} = stablehlo.slice %x{k} [0:98] : ({t}) -> {u}",
            f"%b{k} = stablehlo.slice %x{k} [2:100] : ({t}) -> {u}",
            f"%c{k} = stablehlo.add %a{k}, %b{k} : {u}",
            f"%d{k} = stablehlo.multiply %c{k}, %half : {u}",
            f"%x{k + 1} = stablehlo.dynamic_update_slice %x{k}, %d{k}, %at : ({t}, {u}, tensor<i32>) -> {t}",
        ]

    def want(x: np.ndarray) -> list[np.ndarray]:
        for _ in range(steps):
            x = np.concatenate([x[:1], np.float32(0.5) * (x[:-2] + x[2:]), x[-1:]])
        return [x]

    return function([t], [t], lines, [f"%x{steps}"]), integers(100, count=1), want


def rows() -> Program:
    """Returns sums over rows, and elements minus these."""
    xs, t, r = integers(6, 40), typed([6, 40]), typed([6])
    lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>", *sum_lines([f"%x{i}" for i in range(COUNT)], t)]
    lines += [
        f"%r = stablehlo.reduce(%s init: %zero) applies stablehlo.maximum across dimensions = [1] : ({t}, tensor<f32>) -> {r}",
        f"%b = stablehlo.broadcast_in_dim %r, dims = [0] : ({r}) -> {t}",
        f"%y = stablehlo.subtract %s, %b : {t}",
    ]
    want = lambda *x: [sum(x) - np.maximum(sum(x).max(1, keepdims=True), 0)]  # noqa: E731
    return function([t] * COUNT, [t], lines, ["%y"]), xs, want


def epilogue() -> Program:
    """Returns a product to which many matrices are added."""
    xs, t = integers(16, 16), typed([16, 16])
    lines = [f"%d = stablehlo.dot_general %x0, %x1, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}"]
    lines += sum_lines(["%d", *(f"%x{i}" for i in range(2, COUNT))], t)
    return function([t] * COUNT, [t], lines, ["%s"]), xs, lambda a, b, *x: [a @ b + sum(x)]


def convolution() -> Program:
    """Returns a convolution of one pixel to which many images are added."""
    xs, t, k = integers(1, 8, 8, 16), typed([1, 8, 8, 16]), typed([1, 1, 16, 16])
    kernel = integers(1, 1, 16, 16, count=1)
    lines = [
        f"%d = stablehlo.convolution(%x0, %x1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        f"window = {{stride = [1, 1]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({t}, {k}) -> {t}",
        *sum_lines(["%d", *(f"%x{i}" for i in range(2, COUNT))], t),
    ]
    types = [t, k, *[t] * (COUNT - 2)]
    return function(types, [t], lines, ["%s"]), [xs[0], *kernel, *xs[2:]], lambda a, w, *x: [a @ w[0, 0] + sum(x)]


def window() -> Program:
    """Returns windows over several operands at once, read in one body."""
    n, t, one = 40, typed([20]), "tensor<f32>"
    u, xs = typed([18]), integers(20, count=40)
    names = ", ".join(f"%x{i}" for i in range(n))
    zeros = ", ".join(["%zero"] * n)
    arguments = ", ".join(f"%{side}{i}: {one}" for side in "ab" for i in range(n))
    body = [f"%m{i} = stablehlo.add %a{i}, %b{i} : {one}" for i in range(n)]
    results = ", ".join(f"%m{i}" for i in range(n))
    lines = [
        f"%zero = stablehlo.constant dense<0.0> : {one}",
        f'%w:{n} = "stablehlo.reduce_window"({names}, {zeros}) <{{window_dimensions = array<i64: 3>}}> ({{',
        f"^bb0({arguments}):",
        *body,
        f"stablehlo.return {results} : {', '.join([one] * n)}",
        f"}}) : ({', '.join([t] * n + [one] * n)}) -> ({', '.join([u] * n)})",
    ]
    want = lambda *x: [y[:-2] + y[1:-1] + y[2:] for y in x]  # noqa: E731
    return function([t] * n, [u] * n, lines, [f"%w#{i}" for i in range(n)]), xs, want


def sort() -> Program:
    """Returns a sort of many values by one key."""
    t, n = typed([30]), COUNT
    keys = [np.random.default_rng(0).permutation(30).astype(np.float32)]
    names = ", ".join(f"%x{i}" for i in range(n))
    arguments = ", ".join(f"%{side}{i}: tensor<f32>" for i in range(n) for side in "ab")
    lines = [
        f'%w:{n} = "stablehlo.sort"({names}) <{{dimension = 0 : i64, is_stable = true}}> ({{',
        f"^bb0({arguments}):",
        "%c = stablehlo.compare LT, %a0, %b0 : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        "stablehlo.return %c : tensor<i1>",
        f"}}) : ({', '.join([t] * n)}) -> ({', '.join([t] * n)})",
    ]
    want = lambda *x: [y[np.argsort(x[0], kind="stable")] for y in x]  # noqa: E731
    return function([t] * n, [t] * n, lines, [f"%w#{i}" for i in range(n)]), keys + integers(30, count=n - 1), want


def scatter() -> Program:
    """Returns updates of many arrays at the same places."""
    n, t, u, one = 40, typed([30]), typed([5]), "tensor<f32>"
    names = ", ".join(f"%x{i}" for i in range(n))
    updates = ", ".join(f"%x{n + 1 + i}" for i in range(n))
    arguments = ", ".join(f"%{side}{i}: {one}" for side in "ab" for i in range(n))
    lines = [
        f'%w:{n} = "stablehlo.scatter"({names}, %x{n}, {updates}) <{{scatter_dimension_numbers = #stablehlo.scatter<'
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({",
        f"^bb0({arguments}):",
        *(f"%m{i} = stablehlo.add %a{i}, %b{i} : {one}" for i in range(n)),
        f"stablehlo.return {', '.join(f'%m{i}' for i in range(n))} : {', '.join([one] * n)}",
        f"}}) : ({', '.join([t] * n + ['tensor<5x1xi32>'] + [u] * n)}) -> ({', '.join([t] * n)})",
    ]
    places = np.array([[3], [7], [7], [0], [29]], np.int32)

    def want(*x: np.ndarray) -> list[np.ndarray]:
        out = [y.copy() for y in x[:n]]
        for y, z in zip(out, x[n + 1 :], strict=True):
            np.add.at(y, x[n][:, 0], z)
        return out

    types = [*[t] * n, "tensor<5x1xi32>", *[u] * n]
    arguments_ = [*integers(30, count=n), places, *integers(5, count=n)]
    return function(types, [t] * n, lines, [f"%w#{i}" for i in range(n)]), arguments_, want


def gather() -> Program:
    """Returns elements at places that many arrays define."""
    n, t, r = 65, typed([30]), np.random.default_rng(3)
    lines = [
        f'%g{i} = "stablehlo.gather"(%x{i}, %x{n + i}) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], '
        "start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : "
        f"({t}, tensor<20xi32>) -> {typed([20])}"
        for i in range(n)
    ]
    lines += sum_lines([f"%g{i}" for i in range(n)], typed([20]))
    given = [*integers(30, count=n), *(r.integers(0, 30, 20).astype(np.int32) for _ in range(n))]
    want = lambda *x: [sum(y[i] for y, i in zip(x[:n], x[n:], strict=True))]  # noqa: E731
    return function([t] * n + ["tensor<20xi32>"] * n, [typed([20])], lines, ["%s"]), given, want


def loop() -> Program:
    """Returns a loop with many states, each computed from the next one."""
    n, t = COUNT, typed([70])
    states = ", ".join(f"%u{i} = %x{i}" for i in range(n))
    types = ", ".join(["tensor<i32>", *[t] * n])
    lines = [
        "%none = stablehlo.constant dense<0> : tensor<i32>",
        "%one = stablehlo.constant dense<1> : tensor<i32>",
        "%three = stablehlo.constant dense<3> : tensor<i32>",
        f"%w:{n + 1} = stablehlo.while(%k = %none, {states}) : {types}",
        "cond {",
        "%c = stablehlo.compare LT, %k, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>",
        "stablehlo.return %c : tensor<i1>",
        "} do {",
        "%j = stablehlo.add %k, %one : tensor<i32>",
        *(f"%m{i} = stablehlo.add %u{i}, %u{(i + 1) % n} : {t}" for i in range(n)),
        f"stablehlo.return %j, {', '.join(f'%m{i}' for i in range(n))} : {types}",
        "}",
    ]

    def want(*x: np.ndarray) -> list[np.ndarray]:
        for _ in range(3):
            x = tuple(x[i] + x[(i + 1) % n] for i in range(n))
        return [*x]

    return function([t] * n, [t] * n, lines, [f"%w#{i + 1}" for i in range(n)]), integers(70), want


@pytest.mark.parametrize(
    "program",
    [borders, updated_interiors, rows, epilogue, convolution, window, sort, scatter, gather, loop],
    ids=lambda f: f.__name__,
)
def test_as_many_parameters_as_registers(program: Callable[[], Program]) -> None:
    text, arguments, want = program()
    got = shlo_jit.compile(text, cache=False)(*arguments)
    for x, y in zip(got if isinstance(got, tuple) else (got,), want(*arguments), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "name", ["p0", "p1", "v1", "entry", "0", "dims", "first", "args", "n", "loop_add", "shlo_main"]
)
def test_names_of_users_that_look_like_ours(name: str) -> None:
    """The names are those of the program's function, of one that it calls, of its arguments and values."""
    t = typed([50])
    text = f"""func.func @{"main" if name.isdigit() else name}(%{name}: {t}, %other: {t}) -> {t} {{
      %f = func.call @helper_{name}(%{name}) : ({t}) -> {t}
      %1 = stablehlo.add %f, %other : {t}
      return %1 : {t}
    }}
    func.func private @helper_{name}(%{name}: {t}) -> {t} {{
      %{name}_1 = stablehlo.multiply %{name}, %{name} : {t}
      return %{name}_1 : {t}
    }}"""
    x, y = integers(50, count=2)
    exe = shlo_jit.compile(text, entry="main" if name.isdigit() else name, cache=False)
    np.testing.assert_array_equal(exe(x, y), x * x + y)


def test_collective_kernels() -> None:
    """LLVM parses the text that two processes run."""
    t = typed([64])
    lines = []
    for i in range(COUNT):
        lines += [
            f'%r{i} = "stablehlo.all_reduce"(%x{i}) <{{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}> ({{',
            "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
            "%m = stablehlo.add %a, %b : tensor<f32>",
            "stablehlo.return %m : tensor<f32>",
            f"}}) : ({t}) -> {t}",
        ]
    lines += sum_lines([f"%r{i}" for i in range(COUNT)], t)
    text = function([t] * COUNT, [t], lines, ["%s"])
    lowered = pipeline.lower(shlo_jit.parse(text), CompileOptions(resolve("native"), num_replicas=2))
    llvm.parse_assembly(lowered.program.text).verify()
