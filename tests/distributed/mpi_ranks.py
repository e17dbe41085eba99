"""Work of each process in the tests of the transport `mpi`: `mpiexec -n 2 python mpi_ranks.py CASE FOLDER`.

A case raises if a check fails. Its result is written to FOLDER/RANK for the test to compare.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI  # type: ignore[import-not-found]

import shlo_jit

RANK, SIZE = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
LAST = SIZE - 1
GROUP = [*range(1, SIZE), 0]
"""All ranks, in an order that is not theirs."""
GROUPS = f"dense<[{GROUP}]> : tensor<1x{SIZE}xi64>"
GLOBAL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


def body(op: str) -> str:
    return f"""({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.{op} %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }})"""


def all_reduce(n: int, op: str = "add", name: str = "main", first: str = "") -> str:
    t = f"tensor<{n}xf32>"
    return f"""
func.func @{name}(%x: {t}) -> {t} {{
  {first}
  %0 = "stablehlo.all_reduce"(%x) {body(op)} {{replica_groups = {GROUPS}, {GLOBAL}}} : ({t}) -> {t}
  return %0 : {t}
}}
"""


def every_op(m: int) -> str:
    """Returns a program on tensor<2N x m>."""
    rows = 2 * SIZE
    x, tall, wide, low = (
        f"tensor<{a}x{b}xf32>" for a, b in ((rows, m), (rows * SIZE, m), (rows, m * SIZE), (rows // SIZE, m))
    )
    exchanged = f"tensor<2x{m * SIZE}xf32>"
    ring = [[r, r + 1] for r in range(SIZE - 1)]
    results = ", ".join([x, tall, wide, low, exchanged, x, x])
    return f"""
func.func @main(%x: {x}) -> ({results}) {{
  %0 = "stablehlo.all_reduce"(%x) {body("add")} {{replica_groups = {GROUPS}, {GLOBAL}}} : ({x}) -> {x}
  %1 = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, replica_groups = {GROUPS}, {GLOBAL}}} : ({x}) -> {tall}
  %2 = "stablehlo.all_gather"(%x) {{all_gather_dim = 1 : i64, replica_groups = {GROUPS}, {GLOBAL}}} : ({x}) -> {wide}
  %3 = "stablehlo.reduce_scatter"(%x) {body("maximum")} {{scatter_dimension = 0 : i64, replica_groups = {GROUPS},
    {GLOBAL}}} : ({x}) -> {low}
  %4 = "stablehlo.all_to_all"(%x) {{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = {SIZE} : i64,
    replica_groups = {GROUPS}, {CHANNEL}}} : ({x}) -> {exchanged}
  %5 = "stablehlo.collective_permute"(%x) {{source_target_pairs = dense<{ring}> : tensor<{len(ring)}x2xi64>,
    {CHANNEL}}} : ({x}) -> {x}
  %6 = "stablehlo.collective_broadcast"(%x) {{replica_groups = {GROUPS}, {CHANNEL}}} : ({x}) -> {x}
  return %0, %1, %2, %3, %4, %5, %6 : {results}
}}
"""


def meaning(xs: list[np.ndarray], rank: int) -> list[np.ndarray]:
    """Returns the results of `every_op`, by NumPy."""
    place, group = GROUP.index(rank), [xs[r] for r in GROUP]
    return [
        np.sum(xs, 0),
        np.concatenate(group, 0),
        np.concatenate(group, 1),
        np.split(np.max(xs, 0), SIZE, 0)[place],
        np.concatenate([np.split(x, SIZE, 0)[place] for x in group], 1),
        xs[rank - 1] if rank else np.zeros_like(xs[0]),
        group[0],
    ]


def compiled(text: str, **options: Any) -> Any:
    return shlo_jit.compile(text, transport="mpi", time_out=5, **options)


def same(got: Any, want: list[np.ndarray]) -> None:
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


# ---------------------------------------------------------------------- cases
def matrix() -> str:
    """Runs every op, with messages of one packet and larger ones, called in both ways."""
    for m in (3, 2500):
        exe = compiled(every_op(m))
        for step in range(12):  # more than the maximum number of pending messages
            rng = np.random.default_rng(step)
            xs = [rng.integers(-99, 99, (2 * SIZE, m)).astype(np.float32) for _ in range(SIZE)]
            same(exe.local(xs[RANK]), meaning(xs, RANK))
            if step % 4 == 0:
                for rank, got in enumerate(exe([(x,) for x in xs])):
                    same(got, meaning(xs, rank))
    return "fine"


def loop() -> str:
    """Runs ranks through many messages, of which only some must be waited for."""
    t, pair = "tensor<1500xf32>", f"dense<[[0, {LAST}]]> : tensor<1x2xi64>"
    exe = compiled(f"""
func.func @main(%x: {t}) -> {t} {{
  %n = stablehlo.constant dense<300> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, {t}
    cond {{
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %j = stablehlo.add %i, %one : tensor<i32>
      %z = "stablehlo.collective_permute"(%y) {{source_target_pairs = {pair}, {CHANNEL}}} : ({t}) -> {t}
      %w = stablehlo.add %z, %x : {t}
      stablehlo.return %j, %w : tensor<i32>, {t}
    }}
  return %r#1 : {t}
}}
""")
    got = exe([(np.full(1500, rank + 1, np.float32),) for rank in range(SIZE)])
    same(got, [np.full(1500, rank + 1 + (rank == LAST), np.float32) for rank in range(SIZE)])
    return "fine"


def global_arrays() -> str:
    exe = compiled(f"""
module attributes {{mhlo.num_partitions = {SIZE} : i32}} {{
  sdy.mesh @mesh = <["i"={SIZE}]>
  func.func @main(%x: tensor<{SIZE * 3}xf32>) -> tensor<3xf32> {{
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{{"i"}}]>] out_shardings=[<@mesh, [{{}}]>]
      manual_axes={{"i"}} (%y: tensor<3xf32>) {{
      %1 = "stablehlo.all_reduce"(%y) {body("add")} {{replica_groups = {GROUPS}, {GLOBAL}}}
        : (tensor<3xf32>) -> tensor<3xf32>
      sdy.return %1 : tensor<3xf32>
    }} : (tensor<{SIZE * 3}xf32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>
  }}
}}
""")
    x = np.arange(SIZE * 3, dtype=np.float32)
    np.testing.assert_array_equal(exe(x), x.reshape(SIZE, 3).sum(0))
    np.testing.assert_array_equal(exe.local(x[3 * RANK : 3 * RANK + 3]), x.reshape(SIZE, 3).sum(0))
    return "fine"


def refused(call: Any, *arguments: Any) -> str:
    """Returns the error of a call, as a line."""
    try:
        call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    raise AssertionError("nothing was raised")


def mismatch() -> str:
    exe = compiled(all_reduce(4, name="f") + all_reduce(4, "maximum", "g"), programs=[["f"] * LAST + ["g"]])
    first = refused(exe, [(np.ones(4, np.float32),)] * SIZE)
    again = refused(exe.local, np.ones(4, np.float32))
    assert again.startswith("ExecutionError: ") and f"({first.partition(': ')[2]})" in again
    return first


def large_mismatch() -> str:
    exe = compiled(all_reduce(40000, name="f") + all_reduce(40000, "maximum", "g"), programs=[["f"] * LAST + ["g"]])
    return refused(exe, [(np.ones(40000, np.float32),)] * SIZE)


def ended_early() -> str:
    t = "tensor<4xf32>"
    nothing = f"func.func @nothing(%x: {t}) -> {t} {{ return %x : {t} }}"
    exe = compiled(all_reduce(4, name="f") + nothing, programs=[["f"] * LAST + ["nothing"]])
    return refused(exe, [(np.ones(4, np.float32),)] * SIZE)


def with_call(function: Any, time_out: float) -> Any:
    t = "tensor<40000xf32>"
    call = f"%y = stablehlo.custom_call @mine(%x) {{has_side_effect = true}} : ({t}) -> {t}"
    text = all_reduce(40000, first=call)
    exe = shlo_jit.compile(text, transport="mpi", time_out=time_out, custom_calls={"mine": function})
    return refused(exe, [(np.ones(40000, np.float32),)] * SIZE)


def raises() -> str:
    def mine(x: np.ndarray) -> np.ndarray:
        if RANK == LAST:
            raise KeyError("oops")
        return x

    return with_call(mine, 5)


def late() -> str:
    def mine(x: np.ndarray) -> np.ndarray:
        time.sleep(3 if RANK == LAST else 0)
        return x

    return with_call(mine, 1)


def absent() -> str:
    exe = shlo_jit.compile(all_reduce(4), transport="mpi", time_out=1)
    if RANK == LAST:
        return "did not come"
    return refused(exe.local, np.ones(4, np.float32))


def other_program() -> str:
    return refused(compiled, all_reduce(4 + (RANK == LAST)))


def grid() -> str:
    return refused(lambda: compiled(all_reduce(4), num_replicas=SIZE, num_partitions=3))


def arguments() -> str:
    """Checks that invalid arguments are reported before anything is sent: they do not affect the next call."""
    exe = compiled(all_reduce(4))
    said = [refused(exe, [(np.ones(3, np.float32),)] * SIZE), refused(exe, [()]), refused(exe.local)]
    same(exe.local(np.ones(4, np.float32)), list(np.full(4, SIZE, np.float32)))
    return "\n".join(said)


def variable() -> str:
    """SHLO_JIT_TRANSPORT is the default if there are several processes."""
    os.environ["SHLO_JIT_TRANSPORT"] = "mpi"
    exe = shlo_jit.compile(all_reduce(4), num_partitions=SIZE)
    return repr(exe)


if __name__ == "__main__":
    text = globals()[sys.argv[1]]()
    Path(sys.argv[2], str(RANK)).write_text(text)
