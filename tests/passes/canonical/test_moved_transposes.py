"""Transposes of convolutions' results move after the ops that read them, with the same results."""

from __future__ import annotations

import random
from collections import Counter

import guarded
import numpy as np
import pytest
from alone import after

import shlo_jit
from shlo_jit import builder as b
from shlo_jit import tuning
from shlo_jit.builder import Value
from shlo_jit.ir.core import Module, walk
from shlo_jit.ir.types import F32, I1, tensor
from shlo_jit.passes.canonical.features_last import features_last
from shlo_jit.passes.canonical.moved_transposes import moved_transposes
from shlo_jit.passes.simplify import simplify
from shlo_jit.reference.interpreter import evaluate


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions have enough work."""
    monkeypatch.setattr(tuning, "FEATURES_LAST_WORK", 0)


RNG = np.random.default_rng(3)
IMAGE, KERNEL = (2, 3, 6, 4), (3, 3, 3, 3)

KERNEL_TYPE = tensor(KERNEL, F32)
TYPES = {name: tensor(shape, F32) for name, shape in {"x": IMAGE, "w": KERNEL, "v": (3,), "r": IMAGE}.items()}


def convolved(x: Value, w: Value) -> Value:
    return b.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)])


def program(body) -> Module:  # type: ignore[no-untyped-def]
    """A convolution, what `body` makes of it and the other arguments, and another convolution."""
    with b.function("main", **TYPES) as f:
        y = body(convolved(f["x"], f["w"]), f["v"], f["r"])
        f.returns(convolved(y, f["w"]) if y.ndim == 4 and y.shape[1] == 3 else y)
    return f.module


def spread(v: Value, shape: tuple[int, ...] = IMAGE) -> Value:
    return b.broadcast_in_dim(v, shape, (1,))


def pooled(y: Value) -> Value:
    return b.reduce_window(y, -np.inf, b.max, (1, 1, 2, 3), (1, 1, 2, 1), [(0, 0), (0, 0), (1, 0), (1, 1)])


def repeated(y: Value) -> Value:
    """An image with each pixel twice along one dimension."""
    n, c, h, w = IMAGE
    return b.reshape(b.broadcast_in_dim(y, (n, c, h, 2, w), (0, 1, 2, 4)), (n, c, 2 * h, w))


BODIES = {
    "nothing": lambda y, v, r: y,
    "elementwise": lambda y, v, r: b.max(b.tanh(y) * spread(v) + 1.0, b.broadcast_in_dim(v[:1] * 2.0, IMAGE, (0,))[:]),
    "an argument": lambda y, v, r: y + r,
    "a value of its own": lambda y, v, r: y * convolved(r, b.broadcast_in_dim(v, KERNEL, (0,))),
    "an array": lambda y, v, r: y + b.constant(RNG.standard_normal(IMAGE).astype(np.float32)),
    "a counter": lambda y, v, r: y + b.iota(TYPES["x"], 2),
    "select": lambda y, v, r: b.select(y > 0.0, y, spread(v)),
    "slice": lambda y, v, r: y[:, :, 1:6:2, 1:],
    "pad": lambda y, v, r: b.pad(y, 1.5, [(0, 0, 0), (0, 0, 0), (1, -1, 1), (0, 2, 0)]),
    "reverse": lambda y, v, r: b.rev(y, (1, 3)),
    "window": lambda y, v, r: pooled(y),
    "concatenate": lambda y, v, r: b.concatenate([y, y * 2.0], 2),
    "sum of pixels": lambda y, v, r: b.reduce_sum(y, (2, 3)) + b.broadcast_in_dim(v, (2, 3), (1,)),
    "sum of features": lambda y, v, r: y - b.broadcast_in_dim(b.reduce_sum(y, (1,)), IMAGE, (0, 2, 3)),
    "sum of images and lines": lambda y, v, r: b.reduce_sum(y, (0, 2)),
    "repeat": lambda y, v, r: repeated(y),
    "pixels in one dimension": lambda y, v, r: b.transpose(b.reshape(b.tanh(y), (2, 3, 24)), (0, 2, 1)),
    "pixels and features in one dimension": lambda y, v, r: b.reshape(b.tanh(y), (2, 72)),
    "dimensions of one": lambda y, v, r: b.reshape(b.tanh(y), (2, 1, 3, 6, 4, 1)),
}  # fmt: skip
LEFT = {"sum of pixels": 0, "pixels in one dimension": 0}
"""Transposes that are left. Other results have features before pixels, or are in an order of both."""


def transposes(module: Module, *passes) -> int:  # type: ignore[no-untyped-def]
    """The number of transposes of values that depend on a convolution, of those that are read."""
    function = after(module, *passes, simplify)
    of_convolutions = set[object]()
    found = 0
    for op in walk(function.block()):
        if op.name == "stablehlo.convolution" or any(o in of_convolutions for o in op.operands):
            of_convolutions.update(op.results)
            found += op.name == "stablehlo.transpose"
    return found


def arguments(module: Module) -> list[np.ndarray]:
    main = module.function("main")
    assert main is not None
    return [RNG.standard_normal(v.tensor.extents).astype(np.float32) for v in main.block().arguments]


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str) -> None:
    module = program(BODIES[name])
    assert transposes(module, features_last, moved_transposes) == LEFT.get(name, 1)
    args = arguments(module)
    (want,) = evaluate(module, *args)
    for threads in (1, 2):
        found = np.asarray(shlo_jit.compile(module, cache=False, threads=threads)(*args))
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_the_pass_is_idempotent() -> None:
    module = program(BODIES["elementwise"])
    once, twice = ((features_last, *[moved_transposes, simplify] * n) for n in (1, 2))
    names = [Counter(op.name for op in walk(after(module, *passes).block())) for passes in (once, twice)]
    assert names[0] == names[1]


def test_a_transpose_in_another_block_is_not_read() -> None:
    """A transpose of the argument exists in one branch only."""
    with b.function("main", x=TYPES["x"], w=TYPES["w"], p=tensor((), I1)) as f:
        x, w = f["x"], f["w"]
        first = b.conditional(f["p"], x, lambda y: convolved(b.tanh(y), w), x, lambda y: convolved(y * 2.0, w))
        f.returns(b.tanh(x) + convolved(first, w))
    args = [RNG.standard_normal(s).astype(np.float32) for s in (IMAGE, KERNEL)]
    for p in (True, False):
        (want,) = evaluate(f.module, *args, np.asarray(p))
        found = shlo_jit.compile(f.module, cache=False)(*args, np.asarray(p))
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-4, atol=1e-4)


def from_features_last(x: Value) -> Value:
    return b.transpose(x, (0, 3, 1, 2))


LAST = tensor((2, 6, 4, 3), F32)
MIXED = {
    "elementwise": lambda x, r: b.tanh(x) * 2.0,
    "another transpose": lambda x, r: b.tanh(x) + r,
    "a product": lambda x, r: b.tanh(x) * b.reshape(b.dot(b.reshape(r, (12, 12)), b.reshape(r, (12, 12))), IMAGE),
    "a scatter": lambda x, r: b.tanh(x) - scattered(r),
}  # fmt: skip


def scattered(r: Value) -> Value:
    """The rows of an array, each added to another row of zeros."""
    numbers = b.ScatterDimensionNumbers((1,), (0,), (0,), 1)
    start = b.broadcast_in_dim(b.constant(np.float32(0)), (6, 24), ())
    places = b.constant(np.array([[4], [0], [5], [1], [1], [3]]))
    found = b.scatter(start, places, b.reshape(r, (6, 24)), b.add, numbers)
    assert isinstance(found, Value)
    return b.reshape(found, IMAGE)


@pytest.mark.parametrize("name", MIXED)
def test_an_argument_with_features_last(name: str) -> None:
    """The transpose of the argument meets that of the convolution's image; the other operand is transposed instead."""
    with b.function("main", x=LAST, r=tensor((3, 2, 4, 6), F32), w=KERNEL_TYPE) as f:
        f.returns(convolved(MIXED[name](from_features_last(f["x"]), b.transpose(f["r"], (1, 0, 3, 2))), f["w"]))
    function = after(f.module, features_last, moved_transposes, simplify)
    (image,) = (op.operands[0] for op in walk(function.block()) if op.name == "stablehlo.convolution")
    assert image.op is not None and image.op.name != "stablehlo.transpose"
    args = arguments(f.module)
    (want,) = evaluate(f.module, *args)
    for threads in (1, 2, 3, 8):
        found = np.asarray(guarded.compile(f.module, threads=threads)(*args))
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


STEPS = [name for name in BODIES if name not in ("sum of images and lines", "pixels in one dimension")]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(12)
def test_random_chains(seed: int) -> None:
    """Steps that keep the shape, in any order, some of whose values are read again."""
    pick = random.Random(seed)
    steps = ["elementwise", "an argument", "an array", "reverse", "sum of features", "a counter", "a value of its own"]
    with b.function("main", **TYPES) as f:
        values = [convolved(f["x"], f["w"])]
        for _ in range(pick.randint(2, 7)):
            y = pick.choice(values[-2:])
            if pick.random() < 0.3:
                y = b.tanh(convolved(y, f["w"]))
            values.append(BODIES[pick.choice(steps)](y, f["v"], f["r"]))
        f.returns(values[-1], b.transpose(pick.choice(values), pick.sample(range(4), 4)), pooled(pick.choice(values)))
    args = arguments(f.module)
    for found, want in zip(shlo_jit.compile(f.module, cache=False)(*args), evaluate(f.module, *args), strict=True):
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-3, atol=1e-3)
