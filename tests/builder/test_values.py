"""Operators, indices and methods of values, compared with NumPy's; missing implicit conversions."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shlo_jit
import shlo_jit.builder as b
from shlo_jit.reference.interpreter import evaluate

FLOATS = (
    np.array([[-1.5, 0.5, 2.0], [1.0, -0.25, 3.0]], np.float32),
    np.array([[2.0, -0.5, 0.75], [4.0, 1.5, -2.0]], np.float32),
)
INTS = np.array([[-7, 7, 5], [-8, 0, 9]], np.int32), np.array([[2, -2, 3], [3, 4, -4]], np.int32)
UNSIGNED = np.array([[7, 1, 200]], np.uint8), np.array([[2, 3, 7]], np.uint8)
BOOLS = np.array([True, True, False, False]), np.array([True, False, True, False])
COMPLEX = np.array([1 + 2j, -1j], np.complex64), np.array([0.5 - 1j, 2 + 2j], np.complex64)
ARITHMETIC = [operator.add, operator.sub, operator.mul]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor]


def same(got: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def check(f: Any, *arrays: np.ndarray) -> None:
    same(shlo_jit.jit(f)(*arrays), f(*arrays))


@pytest.mark.parametrize(
    ("op", "arrays"),
    [
        *((op, pair) for op in ARITHMETIC for pair in (FLOATS, INTS, UNSIGNED, COMPLEX)),
        *((op, pair) for op in (operator.truediv,) for pair in (FLOATS, COMPLEX)),
        *((op, pair) for op in (operator.floordiv, operator.mod) for pair in (FLOATS, INTS, UNSIGNED)),
        *((op, pair) for op in COMPARISONS for pair in (FLOATS, INTS, UNSIGNED)),
        *((op, pair) for op in BITS for pair in (INTS, UNSIGNED, BOOLS)),
        (operator.pow, (np.abs(FLOATS[0]), FLOATS[1])),
        (operator.pow, (INTS[0], np.abs(INTS[1]))),
        (operator.lshift, (INTS[0], np.abs(INTS[1]))),
        (operator.rshift, (INTS[0], np.abs(INTS[1]))),
        (operator.rshift, UNSIGNED),
        (operator.matmul, (FLOATS[0], FLOATS[1].T.copy())),
    ],
)
@pytest.mark.sampled(4)
def test_binary_operators(op: Any, arrays: Any) -> None:
    x, y = arrays
    check(op, x, y)
    same(shlo_jit.jit(lambda v: op(v, y))(x), op(x, y))  # an array becomes a constant, on either side
    same(shlo_jit.jit(lambda v: op(x, v))(y), op(x, y))


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (operator.neg, FLOATS[0]), (operator.pos, INTS[0]), (operator.abs, FLOATS[0]), (operator.invert, INTS[0]),
        (operator.invert, BOOLS[0]), (lambda x: x + 1, INTS[0]), (lambda x: 2 - x, INTS[0]), (lambda x: x * 0.5, FLOATS[0]),
        (lambda x: 1 / x, FLOATS[0]), (lambda x: 7 // x, INTS[1]), (lambda x: x % 3, INTS[0]), (lambda x: 2.0**x, FLOATS[0]),
        (lambda x: x == True, BOOLS[0]), (lambda x: x & True, BOOLS[0]), (lambda x: x + 1j, COMPLEX[0]),  # noqa: E712
        (lambda x: -3 // x, INTS[1]), (lambda x: 5 % x, INTS[1]), (lambda x: 1 << x, np.array([0, 3], np.int32)),
    ],
)  # fmt: skip
def test_unary_operators_and_numbers(f: Any, x: np.ndarray) -> None:
    check(f, x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.sum((0, 2), keepdims=True), lambda x: x.prod(-1),
        lambda x: x.max(1), lambda x: x.min(), lambda x: x.mean((1, 2)), lambda x: x.mean(keepdims=True),
        lambda x: (x > 0).all(1), lambda x: (x > 100).any(), lambda x: x.T, lambda x: x.transpose(2, 0, 1),
        lambda x: x.transpose((1, 0, 2)), lambda x: x.reshape(4, -1), lambda x: x.reshape((2, 2, 6)),
        lambda x: x.astype("float32") * 2, lambda x: x.astype(np.int8),
    ],
)  # fmt: skip
def test_methods(f: Any) -> None:
    check(f, np.random.default_rng(0).integers(-9, 9, (2, 3, 4)).astype(np.float32))


def test_what_a_value_says_of_itself() -> None:
    def f(x: Any) -> Any:
        assert (x.shape, x.ndim, x.size, len(x)) == ((2, 3), 2, 6, 2)
        assert x.dtype == np.dtype(ml_dtypes.bfloat16) and str(x.element_type) == "bf16"
        assert repr(x) == "<value bf16[2,3]>"
        first, second = x
        return first + second, x.broadcast_to((4, 2, 3)), round(x)

    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    total, copies, rounded = shlo_jit.jit(f)(x)
    same(total, x[0] + x[1])
    same(copies, np.broadcast_to(x, (4, 2, 3)))
    same(rounded, x)


@pytest.mark.parametrize(
    ("a", "c"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)),
                 ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4))]
)  # fmt: skip
def test_products_of_matrices(a: tuple[int, ...], c: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    check(operator.matmul, *(rng.integers(-4, 5, s).astype(np.float32) for s in (a, c)))


# ---------------------------------------------------------------------------- indices
def starts(n: int) -> st.SearchStrategy[Any]:
    bound = st.none() | st.integers(-n - 2, n + 2)
    return st.builds(slice, bound, bound, st.none() | st.integers(-3, 3).filter(bool))


@st.composite
def indices(draw: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    entries: list[Any] = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        if draw(st.integers(0, 3)) == 0:
            entries.append(None)
        entries.append(draw(starts(n) | st.integers(-n, n - 1)))
    return shape, tuple(entries)


@settings(max_examples=150, deadline=None)
@given(indices(), st.booleans())
def test_indices_are_numpys(found: Any, dots: bool) -> None:
    """Compares the reference interpreter's results of the slices, without compiling."""
    shape, index = found
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    index = (*index, ...) if dots else index
    with b.function("main", x) as f:
        f.returns(f.arg0[index])
    (got,) = evaluate(f.module, x)
    np.testing.assert_array_equal(got, x[index])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[1], lambda x: x[-1, ..., 0], lambda x: x[..., ::-2], lambda x: x[:, None, 1:2], lambda x: x[0:0],
        lambda x: x[:, 1, 2], lambda x: x[::-1, ::-1, ::-1],
    ],
)  # fmt: skip
def test_indices_in_compiled_programs(f: Any) -> None:
    check(f, np.arange(24, dtype=np.float32).reshape(2, 3, 4))


def test_indices_of_the_program() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    f = shlo_jit.jit(lambda x, i, j: (x[i], x[:, j, 1:3], x[i, ::-1, j], x[0, i]))
    for i, j in ((0, 2), (1, 1)):
        wanted = x[i], x[:, j, 1:3], x[i, ::-1, j], x[0, i]
        for a, c in zip(f(x, np.int32(i), np.int32(j)), wanted, strict=True):
            same(a, c)
    same(f(x, np.int32(9), np.int32(0))[0], x[1])  # clamped


# ---------------------------------------------------------------------------- nothing is converted
@pytest.mark.parametrize(
    ("f", "shape", "says"),
    [
        (lambda x: x + np.int32(1), "f32[2]", r".astype\('f32'\).*rhs.*.astype\('i32'\).*lhs"),
        (lambda x: x + np.float64(1), "f32[2]", "converted"),
        (lambda x: x + 1.5, "s32[2]", "1.5 .*float.*i32"),
        (lambda x: x + 300, "u8[2]", "300 .*ui8.*0 to 255"),
        (lambda x: x + 16777217, "f32[2]", "16777217 .*f32"),
        (lambda x: x + 1e39, "f32[2]", "range of f32"),
        (lambda x: x + 1e-60, "f32[2]", "range of f32"),
        (lambda x: x + True, "s32[2]", "True "),
        (lambda x: x & 1, "pred[2]", "1 .*integer.*i1"),
        (lambda x: x + 1j, "f32[2]", "1j .*complex"),
        (lambda x: x / 2, "s32[2]", "write //"),
        (lambda x: [1, 2] * x, "s32[2]", "builder.constant"),
        (lambda x: x + x[0], "f32[2,3]", "broadcast_dimensions"),
        (lambda x: x + x[:1, :2], "f32[2,3]", "together"),
        (lambda x: x[2], "f32[2,3]", "element 2 of 2.*dimension 0"),
        (lambda x: x[0, 0, 0], "f32[2,3]", r"3 indices of f32\[2,3\]"),
        (lambda x: x["a"], "f32[2]", "got str"),
        (lambda x: x[True], "f32[2]", "truth value.*index"),
        (lambda x: x[np.array([0, 1])], "f32[2]", "builder.gather"),
        (lambda x: x[::0], "f32[2]", "step"),
        (lambda x: x[x], "f32[2]", "scalar integer"),
        (lambda x: x[..., 0, ...], "f32[2]", "twice"),
        (lambda x: x.mean(), "s32[2]", "astype"),
        (lambda x: x.sum(2), "s32[2]", "dimension 2 of 1"),
        (lambda x: x.reshape(3), "s32[2]", "go into"),
        (float, "f32[]", "unknown while"),
        (lambda x: x if x else -x, "pred[]", "while_"),
    ],
)  # fmt: skip
def test_refusals(f: Any, shape: str, says: str) -> None:
    with pytest.raises(b.BuilderError, match=says), b.function("main", shape) as g:
        f(g.arg0)


def test_numbers_that_are_exact_are_taken() -> None:
    same(shlo_jit.jit(lambda x: x + 16777216)(np.float32(1)), np.float32(16777216))
    same(shlo_jit.jit(lambda x: x * 0.1)(np.float32(3)), np.float32(3) * np.float32(0.1))  # the nearest float
    same(shlo_jit.jit(lambda x: b.min(x, np.inf))(np.float32(1)), np.float32(1))
    same(shlo_jit.jit(lambda x: x + 2**63)(np.uint64(1)), np.uint64(2**63 + 1))
    same(shlo_jit.jit(lambda x: x * 3)(np.asarray(2, ml_dtypes.bfloat16)), np.asarray(6, ml_dtypes.bfloat16))


def test_unknown_extents() -> None:
    with b.function("main", x="f32[?,3]", v="f32[3]") as f:
        f.returns(b.tanh(f.x * 2.0) + b.add(f.x, f.v, (1,)), b.get_dimension_size(f.x, 0))
    exe = shlo_jit.compile(f.module)
    for n in (1, 4):
        x, v = np.ones((n, 3), np.float32), np.arange(3, dtype=np.float32)
        y, size = exe(x, v)
        same(y, np.tanh(x * 2) + x + v)
        assert size == n
