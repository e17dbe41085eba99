"""A user's file for type checkers: see `test_types.py`. It is not run."""

from typing import assert_type

import numpy as np

import shlo_jit
from shlo_jit import builder as b

w = np.ones((3, 4), np.float32)

with b.function("main", x="f32[2,3]", n="s32[]") as f:
    x, n = f
    assert_type(f, b.FunctionBuilder)
    assert_type(f.x, b.Value)
    assert_type(x, b.Value)
    assert_type(x @ w + 1.0, b.Value)
    assert_type(2.0 * x, b.Value)
    assert_type(1 - n, b.Value)
    assert_type(w @ x.T, b.Value)
    assert_type(np.float32(2) * x, b.Value)
    assert_type(x == 0.0, b.Value)
    assert_type((x > 0.0) & ~(x < 1.0), b.Value)
    assert_type(-abs(x) // 2.0 % 3.0, b.Value)
    assert_type(divmod(n, 2), tuple[b.Value, b.Value])
    assert_type(x[0, ::-1, None, ..., n], b.Value)
    assert_type(x.sum(0, keepdims=True).astype("bf16").reshape(-1).T, b.Value)
    assert_type(x.shape, tuple[int | None, ...])
    assert_type(b.tanh(x), b.Value)
    assert_type(b.reduce(x, 0.0, b.add, (0,)), b.Value)
    assert_type(b.reduce([x, x], [0.0, 0.0], lambda p, q, r, s: (p + r, q + s), (0,)), tuple[b.Value, ...])
    assert_type(b.sort(x), b.Value)
    assert_type(b.sort([x, x]), tuple[b.Value, ...])
    assert_type(b.top_k(x, 2), tuple[b.Value, b.Value])
    assert_type(b.all_reduce(x, b.add), b.Value)
    assert_type(b.reduce_scatter([x, x], b.add, 0, 2), tuple[b.Value, ...])
    assert_type(b.select(x > 0.0, x, 0.0), b.Value)
    assert_type(b.conv(x, x, padding="SAME"), b.Value)
    assert_type(b.dot_general(x, x, b.DotDimensionNumbers((1,), (1,))), b.Value)
    b.conditional(n > 0, x, b.neg, x, b.abs)
    b.conditional(branch_index=n, branch_computations=[b.neg, b.abs], branch_operands=[x, x])
    b.while_(lambda s: s < 3, lambda s: s + 1, n)
    f.returns(x, count=n)

exe = shlo_jit.compile(f.module)


@shlo_jit.jit
def layer(x: b.Value, params: dict[str, b.Value]) -> b.Value:
    return x @ params["w"]


@shlo_jit.jit(static_argnames="kind", threads=1)
def activated(x: b.Value, kind: str) -> b.Value:
    return b.tanh(x) if kind == "tanh" else x


assert_type(layer, b.Jitted)
assert_type(activated, b.Jitted)
layer(np.ones((2, 3), np.float32), {"w": w})
print(layer.lower("f32[2,3]", {"w": w}), layer.compile("f32[2,3]", {"w": w}), activated.signatures)

# Errors, each with its rule.
b.conv(x, x, padding="FULL")  # pyright: ignore[reportArgumentType]
b.fft(x, "DFT", (3,))  # pyright: ignore[reportArgumentType]
b.tanh([1.0])  # pyright: ignore[reportArgumentType]
b.transpose(x, permutations=(0,))  # pyright: ignore[reportCallIssue]
b.compare(x, x, "EQUAL")  # pyright: ignore[reportArgumentType]
y = x + "1"  # pyright: ignore[reportOperatorIssue]
x.no_such_method()  # pyright: ignore[reportAttributeAccessIssue]
b.conditional(n, x)  # pyright: ignore[reportCallIssue]
