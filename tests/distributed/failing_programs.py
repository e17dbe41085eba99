"""Programs whose processes communicate, and checks for leaked resources after failures."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import shlo_jit

SOON = 10.0
"""Seconds within which a failure has to be noticed, on a machine that is also otherwise busy."""


def meeting(ranks: int, call: bool = False, elements: int = 4) -> str:
    """Returns an all_reduce of all ranks in line 3, after the custom call @c in line 2."""
    t = f"tensor<{elements}xf32>"
    first = f"stablehlo.custom_call @c(%x) : ({t}) -> {t}" if call else f"stablehlo.negate %x : {t}"
    return f"""func.func @main(%x: {t}) -> {t} {{
  %y = {first}
  %r = "stablehlo.all_reduce"(%y) <{{replica_groups = dense<{[[*range(ranks)]]}> : tensor<1x{ranks}xi64>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }}) : ({t}) -> {t}
  return %r : {t}
}}"""


LOOP = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %r = stablehlo.while(%a = %x) : tensor<4xf32>
  cond {
    %e = stablehlo.slice %a [0:1] : (tensor<4xf32>) -> tensor<1xf32>
    %f = stablehlo.reshape %e : (tensor<1xf32>) -> tensor<f32>
    %p = stablehlo.compare EQ, %f, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %b = stablehlo.multiply %a, %a : tensor<4xf32>
    stablehlo.return %b : tensor<4xf32>
  }
  %s = "stablehlo.all_reduce"(%r) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %t = stablehlo.add %c, %d : tensor<f32>
    stablehlo.return %t : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %s : tensor<4xf32>
}"""
"""Runs forever in the process whose argument is ones, while the other waits for it."""


def compiled(ranks: int, call: Any = None, **options: Any) -> Any:
    calls = {} if call is None else {"custom_calls": {"c": call}}
    return shlo_jit.compile(meeting(ranks, call is not None), num_replicas=ranks, **calls, **options)


def arguments(ranks: int, elements: int = 4) -> list[tuple[np.ndarray]]:
    """Returns the number of each process."""
    return [(np.full(elements, rank, np.float32),) for rank in range(ranks)]


def sums(ranks: int, negated: bool = True) -> float:
    return (-1 if negated else 1) * float(sum(range(ranks)))


def later(seconds: float, what: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, what)
    timer.start()
    return timer


# ---------------------------------------------------------------------- leaked resources
def children(pid: int | str = "self") -> set[int]:
    """Returns the processes that a process has started, except multiprocessing's helper."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found |= set(map(int, (task / "children").read_text().split()))
    return {child for child in found if "resource_tracker" not in command(child)}


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def resources() -> tuple[object, ...]:
    """Returns the system resources of this process: processes, files, threads, named segments, mappings of segments."""
    gc.collect()
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "shlo_jit" in line and "memfd" in line]
    segments = [name for name in os.listdir("/dev/shm") if "shlo" in name]
    return children(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), segments, len(maps)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Checks that a block releases all system resources that it acquires."""
    with compiled(2) as exe:  # resources that multiprocessing keeps forever
        exe(arguments(2))
    del exe
    before = resources()
    yield
    until = time.monotonic() + 5
    while (after := resources()) != before and time.monotonic() < until:
        time.sleep(0.05)
    assert after == before, f"{before} has become {after}"
