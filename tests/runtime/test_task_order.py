"""Results do not depend on the order in which tasks run: two threads may run them in any. A task that writes beyond its
part, where another task writes too, is right in order and occasionally wrong.

The pool is replaced by a function that runs the tasks of a call one after the other, in a given order.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit.codegen import jit
from shlo_jit.runtime import routines

sys.path.insert(0, str(Path(__file__).parents[1] / "aot"))
from building import chain, inputs, same
from kinds import KINDS

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
Order = Callable[[list[int]], list[int]]
ORDERS: dict[str, Order] = {
    "forward": lambda tasks: tasks,
    "backward": lambda tasks: tasks[::-1],
    "any": lambda tasks: random.Random(1).sample(tasks, len(tasks)),
    "odd before even": lambda tasks: tasks[1::2] + tasks[::2],
}
THREADS = 3


class Pool:
    """Replaces the thread pool."""

    def __init__(self) -> None:
        self.order = ORDERS["forward"]
        self.calls = 0
        """Number of calls with several tasks."""
        self._function = PARALLEL(self._run)
        address = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self._asked = ctypes.c_uint64()  # whom threads ask for interrupts
        addresses = {"shlo_parallel": address, "shlo_ask": ctypes.addressof(self._asked)}
        self.library = jit.Library(self._function, addresses, ())

    def _run(self, task: int, frame: int, tasks: int, threads: int) -> None:
        function = TASK(task)
        self.calls += tasks > 1
        for position, index in enumerate(self.order(list(range(tasks)))):
            function(frame, index, position % max(1, threads))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made, load = Pool(), routines.load

    def load_with_pool(name, target, cache):
        return made.library if name == "threads" else load(name, target, cache)

    monkeypatch.setattr(routines, "load", load_with_pool)
    monkeypatch.setattr(routines, "_loaded", {})
    yield made


def convolution(dtype: str, pixels: int, features_in: int, features_out: int) -> str:
    x, w, y = (
        f"tensor<{shape}x{dtype}>"
        for shape in (
            f"1x{features_in}x{pixels}x{pixels}",
            f"{features_out}x{features_in}x1x1",
            f"1x{features_out}x{pixels}x{pixels}",
        )
    )
    return f"""
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {{}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {y}
  return %0 : {y}
}}"""


def dot(dtype: str, m: int, k: int, n: int) -> str:
    a, b, c = (f"tensor<{shape}x{dtype}>" for shape in (f"{m}x{k}", f"{n}x{k}", f"{m}x{n}"))
    return f"""
func.func @main(%x: {a}, %y: {b}) -> {c} {{
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : ({a}, {b}) -> {c}
  return %0 : {c}
}}"""


PARALLEL_PROGRAMS = {
    "chain": chain(320),
    **{f"1x1 {t} {i} to {o}": convolution(t, p, i, o) for t, p, i, o in
       (("f16", 2, 320, 1280), ("f32", 4, 128, 640), ("bf16", 7, 256, 512), ("f64", 9, 256, 700))},
    **{f"dot {t} {m} {k} {n}": dot(t, m, k, n) for t, m, k, n in
       (("f32", 500, 256, 200), ("f32", 37, 1024, 1000), ("f64", 333, 128, 333), ("bf16", 400, 320, 90))},
}  # fmt: skip
"""Programs that have several tasks."""


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "native"])
@pytest.mark.parametrize("name", [*PARALLEL_PROGRAMS, *KINDS])
@pytest.mark.sampled(5)
def test_any_order_gives_the_same_bits(name: str, target: str, pool: Pool) -> None:
    executable = shlo_jit.compile({**PARALLEL_PROGRAMS, **KINDS}[name], target=target, threads=THREADS, cache=False)
    arrays = inputs(executable)
    found = {}
    for order, function in ORDERS.items():
        pool.order = function
        found[order] = executable(*arrays)
    assert [order for order, result in found.items() if not same(result, found["forward"])] == []
    assert pool.calls or name in KINDS
    assert all(np.isfinite(np.asarray(r).astype(np.float64)).all() for r in _tuple(found["forward"]))


def _tuple(result) -> tuple:
    return result if isinstance(result, tuple) else (result,)
