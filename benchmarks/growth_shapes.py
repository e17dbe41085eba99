"""Shapes of programs for `compile_growth`: functions from a number of ops to StableHLO text with about as many ops.

Tensors are small, because the compiler is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

VECTOR = "tensor<16xf32>"
MATRIX = "tensor<8x8xf32>"
SCALAR = "tensor<f32>"
BOOL = "tensor<i1>"
INDEX = "tensor<i32>"


def _main(arguments: str, result: str, lines: Iterable[str], value: str, before: str = "") -> str:
    """A module whose main has these lines and returns one value."""
    body = "\n".join(f"    {line}" for line in lines)
    head = f"  func.func public @main({arguments}) -> {result} {{"
    return f"module @m {{\n{before}{head}\n{body}\n    return {value} : {result}\n  }}\n}}\n"


def elementwise_chain(n: int) -> str:
    """Alternating additions and products, each of the previous one."""
    lines = [
        f"%{i} = stablehlo.{('add', 'multiply')[i % 2]} {'%x' if i == 0 else f'%{i - 1}'}, %y : {VECTOR}"
        for i in range(n)
    ]
    return _main(f"%x: {VECTOR}, %y: {VECTOR}", VECTOR, lines, f"%{n - 1}")


def diamonds(n: int) -> str:
    """A chain in which every value is read twice: sin(v) + v * v."""
    lines, v = [], "%x"
    for i in range(n // 3):
        lines += [
            f"%s{i} = stablehlo.sine {v} : {VECTOR}",
            f"%m{i} = stablehlo.multiply {v}, {v} : {VECTOR}",
            f"%v{i} = stablehlo.add %s{i}, %m{i} : {VECTOR}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {VECTOR}", VECTOR, lines, v)


def fan_in(n: int) -> str:
    """Many values computed from one, and their sum."""
    half = n // 3
    lines = []
    for i in range(half):
        lines += [
            f"%c{i} = stablehlo.constant dense<{i + 0.5}> : {VECTOR}",
            f"%a{i} = stablehlo.multiply %x, %c{i} : {VECTOR}",
        ]
    last = "%a0"
    for i in range(1, half):
        lines.append(f"%t{i} = stablehlo.add {last}, %a{i} : {VECTOR}")
        last = f"%t{i}"
    return _main(f"%x: {VECTOR}", VECTOR, lines, last)


def dots(n: int) -> str:
    """A chain of small matrix products."""
    dims = "contracting_dims = [1] x [0]"
    lines = [
        f"%{i} = stablehlo.dot_general {'%x' if i == 0 else f'%{i - 1}'}, %w, {dims} : ({MATRIX}, {MATRIX}) -> {MATRIX}"
        for i in range(n)
    ]
    return _main(f"%x: {MATRIX}, %w: {MATRIX}", MATRIX, lines, f"%{n - 1}")


def convolutions(n: int) -> str:
    """A chain of small convolutions with their activations."""
    t, w = "tensor<1x6x6x4xf32>", "tensor<3x3x4x4xf32>"
    lines, v = [], "%x"
    for i in range(n // 2):
        lines += [
            f"%c{i} = stablehlo.convolution({v}, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
            f"window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} "
            f": ({t}, {w}) -> {t}",
            f"%v{i} = stablehlo.maximum %c{i}, %x : {t}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {t}, %w: {w}", t, lines, v)


def updates(n: int) -> str:
    """An unrolled loop: slice, add, dynamic_update_slice."""
    rows, row = "tensor<64x16xf32>", "tensor<1x16xf32>"
    lines, v = [f"%z = stablehlo.constant dense<0> : {INDEX}"], "%x"
    for i in range(n // 4):
        k = i % 63
        lines += [
            f"%s{i} = stablehlo.slice {v} [{k}:{k + 1}, 0:16] : ({rows}) -> {row}",
            f"%a{i} = stablehlo.add %s{i}, %u : {row}",
            f"%i{i} = stablehlo.constant dense<{k + 1}> : {INDEX}",
            f"%v{i} = stablehlo.dynamic_update_slice {v}, %a{i}, %i{i}, %z : "
            f"({rows}, {row}, {INDEX}, {INDEX}) -> {rows}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {rows}, %u: {row}", rows, lines, v)


def concatenates(n: int) -> str:
    """A moving window: drop the first element, append one."""
    lines, v = [], "%x"
    for i in range(n // 2):
        lines += [
            f"%s{i} = stablehlo.slice {v} [1:16] : ({VECTOR}) -> tensor<15xf32>",
            f"%v{i} = stablehlo.concatenate %s{i}, %y, dim = 0 : (tensor<15xf32>, tensor<1xf32>) -> {VECTOR}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {VECTOR}, %y: tensor<1xf32>", VECTOR, lines, v)


def wide_concatenate(n: int) -> str:
    """Scaled slices, and one concatenation of all."""
    k = n // 2
    whole = f"tensor<{k}x4xf32>"
    lines = []
    for i in range(k):
        lines += [
            f"%s{i} = stablehlo.slice %x [{i}:{i + 1}, 0:4] : ({whole}) -> tensor<1x4xf32>",
            f"%v{i} = stablehlo.{('add', 'multiply')[i % 2]} %s{i}, %y : tensor<1x4xf32>",
        ]
    names = ", ".join(f"%v{i}" for i in range(k))
    types = ", ".join(["tensor<1x4xf32>"] * k)
    lines.append(f"%r = stablehlo.concatenate {names}, dim = 0 : ({types}) -> {whole}")
    return _main(f"%x: {whole}, %y: tensor<1x4xf32>", whole, lines, "%r")


def ports(n: int) -> str:
    """As many arguments and results as ops."""
    arguments = ", ".join(f"%x{i}: {VECTOR}" for i in range(n))
    types = ", ".join([VECTOR] * n)
    lines = [f"    %v{i} = stablehlo.add %x{i}, %x{(i + 1) % n} : {VECTOR}" for i in range(n)]
    lines.append(f"    return {', '.join(f'%v{i}' for i in range(n))} : {types}")
    body = "\n".join(lines)
    return f"module @m {{\n  func.func public @main({arguments}) -> ({types}) {{\n{body}\n  }}\n}}\n"


def tree_of_ifs(n: int) -> str:
    """A binary tree of `if`s on one condition, with ops at its leaves."""

    def tree(leaves: int, v: str, name: str) -> list[str]:
        if leaves == 1:
            return [f"%{name} = stablehlo.multiply {v}, %y : {VECTOR}"]
        out = [f'%{name} = "stablehlo.if"(%p) ({{']
        for side, op, part in (("l", "add", leaves // 2), ("r", "subtract", leaves - leaves // 2)):
            inner = f"{name}{side}"
            out += [f"  %{inner}v = stablehlo.{op} {v}, %y : {VECTOR}", *tree(part, f"%{inner}v", inner)]
            out.append(f"  stablehlo.return %{inner} : {VECTOR}")
            out.append("}, {" if side == "l" else f"}}) : ({BOOL}) -> {VECTOR}")
        return out

    return _main(f"%p: {BOOL}, %x: {VECTOR}, %y: {VECTOR}", VECTOR, tree(n // 4, "%x", "t"), "%t")


def whiles(n: int) -> str:
    """A sequence of loops."""
    lines, v = [f"%n = stablehlo.constant dense<3> : {INDEX}", f"%one = stablehlo.constant dense<1> : {INDEX}"], "%x"
    lines.append(f"%z = stablehlo.constant dense<0> : {INDEX}")
    for i in range(n // 4):
        lines += [
            f"%w{i}:2 = stablehlo.while(%i{i} = %z, %a{i} = {v}) : {INDEX}, {VECTOR} cond {{",
            f"  %c{i} = stablehlo.compare LT, %i{i}, %n : ({INDEX}, {INDEX}) -> {BOOL}",
            f"  stablehlo.return %c{i} : {BOOL}",
            "} do {",
            f"  %j{i} = stablehlo.add %i{i}, %one : {INDEX}",
            f"  %b{i} = stablehlo.multiply %a{i}, %y : {VECTOR}",
            f"  stablehlo.return %j{i}, %b{i} : {INDEX}, {VECTOR}",
            "}",
        ]
        v = f"%w{i}#1"
    return _main(f"%x: {VECTOR}, %y: {VECTOR}", VECTOR, lines, v)


def calls(n: int) -> str:
    """Functions that each call the next, to any depth."""
    k = n // 2
    functions = "".join(
        f"  func.func private @f{i}(%x: {VECTOR}) -> {VECTOR} {{\n"
        f"    %0 = stablehlo.{('add', 'multiply')[i % 2]} %x, %x : {VECTOR}\n"
        + (f"    %1 = call @f{i + 1}(%0) : ({VECTOR}) -> {VECTOR}\n" if i + 1 < k else "")
        + f"    return %{1 if i + 1 < k else 0} : {VECTOR}\n  }}\n"
        for i in range(k)
    )
    return _main(f"%x: {VECTOR}", VECTOR, [f"%0 = call @f0(%x) : ({VECTOR}) -> {VECTOR}"], "%0", functions)


def call_graph(n: int) -> str:
    """Functions that each call the next twice: inlined, a program of 2^(n / 4) ops."""
    k = n // 4
    t = f"({VECTOR}) -> {VECTOR}"
    functions = ""
    for i in range(k):
        inner = f"@f{i + 1}" if i + 1 < k and (i + 1) % 20 else "@leaf"
        functions += (
            f"  func.func private @f{i}(%x: {VECTOR}) -> {VECTOR} {{\n    %0 = call {inner}(%x) : {t}\n"
            f"    %1 = call {inner}(%0) : {t}\n    %2 = stablehlo.add %1, %x : {VECTOR}\n"
            f"    return %2 : {VECTOR}\n  }}\n"
        )
    functions += (
        f"  func.func private @leaf(%x: {VECTOR}) -> {VECTOR} {{\n    %0 = stablehlo.sine %x : {VECTOR}\n"
        f"    return %0 : {VECTOR}\n  }}\n"
    )
    lines, v = [], "%x"
    for i in range(0, k, 20):
        lines.append(f"%{i} = call @f{i}({v}) : {t}")
        v = f"%{i}"
    return _main(f"%x: {VECTOR}", VECTOR, lines, v, functions)


def softmaxes(n: int) -> str:
    """An unrolled stack of layers: product, softmax, residual sum."""
    row, region = "tensor<8xf32>", "across dimensions = [1]"
    types = f"({MATRIX}, {SCALAR}) -> {row}"
    lines = [
        f"%low = stablehlo.constant dense<0xFF800000> : {SCALAR}",
        f"%zero = stablehlo.constant dense<0.0> : {SCALAR}",
    ]
    v = "%x"
    for i in range(n // 9):
        spread = f"dims = [0] : ({row}) -> {MATRIX}"
        lines += [
            f"%d{i} = stablehlo.dot_general {v}, %w, contracting_dims = [1] x [0] : ({MATRIX}, {MATRIX}) -> {MATRIX}",
            f"%m{i} = stablehlo.reduce(%d{i} init: %low) applies stablehlo.maximum {region} : {types}",
            f"%b{i} = stablehlo.broadcast_in_dim %m{i}, {spread}",
            f"%c{i} = stablehlo.subtract %d{i}, %b{i} : {MATRIX}",
            f"%e{i} = stablehlo.exponential %c{i} : {MATRIX}",
            f"%s{i} = stablehlo.reduce(%e{i} init: %zero) applies stablehlo.add {region} : {types}",
            f"%t{i} = stablehlo.broadcast_in_dim %s{i}, {spread}",
            f"%q{i} = stablehlo.divide %e{i}, %t{i} : {MATRIX}",
            f"%v{i} = stablehlo.add %q{i}, {v} : {MATRIX}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {MATRIX}, %w: {MATRIX}", MATRIX, lines, v)


def constants(n: int) -> str:
    """A separate constant for every op."""
    lines, v = [], "%x"
    for i in range(n // 2):
        values = ", ".join(str(float(i + k)) for k in range(16))
        lines += [
            f"%c{i} = stablehlo.constant dense<[{values}]> : {VECTOR}",
            f"%v{i} = stablehlo.{('add', 'multiply')[i % 2]} {v}, %c{i} : {VECTOR}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {VECTOR}", VECTOR, lines, v)


def scatters(n: int) -> str:
    """Alternating gathers and scatters."""
    t, where, row = "tensor<16x4xf32>", "tensor<3x1xi32>", "tensor<3x4xf32>"
    lines, v = [], "%x"
    for i in range(n // 2):
        lines += [
            f'%g{i} = "stablehlo.gather"({v}, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
            f"collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
            f"slice_sizes = array<i64: 1, 4>}}> : ({t}, {where}) -> {row}",
            f'%v{i} = "stablehlo.scatter"({v}, %j, %g{i}) <{{scatter_dimension_numbers = #stablehlo.scatter<'
            f"update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
            f"index_vector_dim = 1>}}> ({{ ^bb0(%a: {SCALAR}, %b: {SCALAR}): %s = stablehlo.add %a, %b : {SCALAR} "
            f"stablehlo.return %s : {SCALAR} }}) : ({t}, {where}, {row}) -> {t}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {t}, %i: {where}, %j: {where}", t, lines, v)


def reshapes(n: int) -> str:
    """Alternating reshapes and transposes, with occasional elementwise ops."""
    lines, v = [], "%x"
    for i in range(n // 3):
        lines += [
            f"%r{i} = stablehlo.reshape {v} : (tensor<4x6xf32>) -> tensor<6x4xf32>",
            f"%t{i} = stablehlo.transpose %r{i}, dims = [1, 0] : (tensor<6x4xf32>) -> tensor<4x6xf32>",
            f"%v{i} = stablehlo.add %t{i}, {v} : tensor<4x6xf32>",
        ]
        v = f"%v{i}"
    return _main("%x: tensor<4x6xf32>", "tensor<4x6xf32>", lines, v)


def sorts(n: int) -> str:
    """Sorts, each of the sum of the previous one and its reverse."""
    lines, v = [], "%x"
    for i in range(n // 3):
        lines += [
            f'%s{i} = "stablehlo.sort"({v}) <{{dimension = 0 : i64, is_stable = true}}> ({{ ^bb0(%a: {SCALAR}, '
            f"%b: {SCALAR}): %c = stablehlo.compare LT, %a, %b : ({SCALAR}, {SCALAR}) -> {BOOL} "
            f"stablehlo.return %c : {BOOL} }}) : ({VECTOR}) -> {VECTOR}",
            f"%r{i} = stablehlo.reverse {v}, dims = [0] : {VECTOR}",
            f"%v{i} = stablehlo.add %s{i}, %r{i} : {VECTOR}",
        ]
        v = f"%v{i}"
    return _main(f"%x: {VECTOR}", VECTOR, lines, v)


def functions(n: int) -> str:
    """Many small functions, each called twice."""
    k = n // 4
    before = "".join(
        f"  func.func private @f{i}(%x: {VECTOR}, %y: {VECTOR}) -> {VECTOR} {{\n"
        f"    %0 = stablehlo.{('add', 'subtract')[i % 2]} %x, %y : {VECTOR}\n    %1 = stablehlo.sine %0 : {VECTOR}\n"
        f"    return %1 : {VECTOR}\n  }}\n"
        for i in range(k)
    )
    lines, v = [], "%x"
    for i in range(2 * k):
        lines.append(f"%{i} = call @f{i % k}({v}, %y) : ({VECTOR}, {VECTOR}) -> {VECTOR}")
        v = f"%{i}"
    return _main(f"%x: {VECTOR}, %y: {VECTOR}", VECTOR, lines, v, before)


SHAPES: dict[str, Callable[[int], str]] = {
    f.__name__.replace("_", " "): f
    for f in (
        elementwise_chain, diamonds, fan_in, dots, convolutions, updates, concatenates, wide_concatenate, ports,
        tree_of_ifs, whiles, calls, call_graph, softmaxes, constants, scatters, reshapes, sorts, functions,
    )
}  # fmt: skip
