"""Programs of several replicas. JAX itself creates none, but its client accepts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib import xla_client

PROGRAM = """
module @m attributes {{mhlo.num_replicas = {replicas} : i32, mhlo.num_partitions = {partitions} : i32}} {{
  func.func public @main(%x: tensor<4xf32>) -> ({type}, tensor<ui32>, tensor<ui32>) {{
    %0 = {op}
    %r = stablehlo.replica_id : tensor<ui32>
    %p = stablehlo.partition_id : tensor<ui32>
    return %0, %r, %p : {type}, tensor<ui32>, tensor<ui32>
  }}
}}
"""
ADD = """({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    })"""
PAIRS = "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
VECTOR, HALF, DOUBLE = (f"tensor<{n}xf32>" for n in (4, 2, 8))
ROWS = [np.arange(4, dtype=np.float32) + 10 * i for i in range(4)]
OPS = {
    "all_reduce": (
        f'"stablehlo.all_reduce"(%x) {ADD} {{{PAIRS}}} : ({VECTOR}) -> {VECTOR}',
        VECTOR,
        lambda a, b: [a + b, a + b],
    ),
    "all_gather": (
        f'"stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, {PAIRS}}} : ({VECTOR}) -> {DOUBLE}',
        DOUBLE,
        lambda a, b: [np.concatenate([a, b])] * 2,
    ),
    "reduce_scatter": (
        f'"stablehlo.reduce_scatter"(%x) {ADD} {{scatter_dimension = 0 : i64, {PAIRS}}} : ({VECTOR}) -> {HALF}',
        HALF,
        lambda a, b: [(a + b)[:2], (a + b)[2:]],
    ),
    "all_to_all": (
        '"stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, '
        f"{PAIRS}}} : ({VECTOR}) -> {VECTOR}",
        VECTOR,
        lambda a, b: [np.concatenate([a[:2], b[:2]]), np.concatenate([a[2:], b[2:]])],
    ),
    "collective_permute": (
        '"stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>} : '
        f"({VECTOR}) -> {VECTOR}",
        VECTOR,
        lambda a, b: [0 * a, a],
    ),
}


def compiled(op: str, type: str, devices: Sequence[Sequence[int]], **counts: int) -> Any:
    """Compiles a program for devices, by replica and partition."""
    options = xla_client.CompileOptions()
    grid = np.array(devices)
    options.num_replicas = counts.get("replicas", grid.shape[0])
    options.num_partitions = counts.get("partitions", grid.shape[1])
    options.executable_build_options.use_spmd_partitioning = grid.shape[1] > 1
    options.device_assignment = xla_client.DeviceAssignment.create(grid)
    text = PROGRAM.format(op=op, type=type, replicas=grid.shape[0], partitions=grid.shape[1])
    client: Any = jax.devices()[0].client
    return client.compile_and_load(text, [jax.devices()[i] for i in grid.flat], options)


def given(program: Any, rows: Sequence[np.ndarray], devices: Sequence[Any] | None = None) -> list[Any]:
    """Returns a program's results on each of its devices."""
    devices = program.local_devices() if devices is None else devices
    assert devices
    sharding = NamedSharding(Mesh(np.array(devices), "r"), P("r"))
    parts = [jax.device_put(row, device) for row, device in zip(rows, devices, strict=True)]
    whole = jax.make_array_from_single_device_arrays((sum(r.shape[0] for r in rows),), sharding, parts)
    results = program.execute_sharded([whole]).disassemble_into_single_device_arrays()
    return [[np.asarray(part) for part in result] for result in results]


@pytest.mark.parametrize("name", OPS)
def test_what_replicas_exchange(name: str) -> None:
    op, type, meaning = OPS[name]
    values, replicas, partitions = given(compiled(op, type, [[0], [1], [2], [3]]), ROWS)
    want = [*meaning(*ROWS[:2]), *meaning(*ROWS[2:])]
    for got, expected in zip(values, want, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert [int(r) for r in replicas] == [0, 1, 2, 3] and [int(p) for p in partitions] == [0] * 4


@pytest.mark.parametrize("devices", [[[3], [1], [2], [0]], [[2], [1], [0], [3]]], ids=str)
def test_on_which_devices(devices: list[list[int]]) -> None:
    op, type, meaning = OPS["all_reduce"]
    program = compiled(op, type, devices)
    order = [jax.devices()[i] for row in devices for i in row]
    assert program.local_devices() == order
    values, replicas, _ = given(program, ROWS)
    np.testing.assert_array_equal(values, [*meaning(*ROWS[:2]), *meaning(*ROWS[2:])])
    assert [int(r) for r in replicas] == [0, 1, 2, 3]


def test_of_several_partitions_each() -> None:
    op = OPS["all_reduce"][0].replace("[[0, 1], [2, 3]]> : tensor<2x2xi64>", "[[0, 1]]> : tensor<1x2xi64>")
    values, replicas, partitions = given(compiled(op, VECTOR, [[0, 1], [2, 3]]), ROWS)
    np.testing.assert_array_equal(values, [ROWS[0] + ROWS[2], ROWS[1] + ROWS[3]] * 2)
    assert [int(r) for r in replicas] == [0, 0, 1, 1] and [int(p) for p in partitions] == [0, 1, 0, 1]


def test_of_what_is_cut_there_is_one() -> None:
    mesh = 'sdy.mesh @mesh = <["a"=2]>\n  func.func'
    cut = '%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}'
    text = PROGRAM.replace("func.func", mesh).replace("%x: tensor<4xf32>", cut.replace("{", "{{").replace("}", "}}"))
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 2
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(4).reshape(2, 2))
    options.executable_build_options.use_spmd_partitioning = True
    client: Any = jax.devices()[0].client
    text = text.format(op="stablehlo.negate %x : tensor<4xf32>", type=VECTOR, replicas=2, partitions=2)
    with pytest.raises(JaxRuntimeError, match="replica.*2"):
        client.compile_and_load(text, jax.devices(), options)


def test_parts_that_are_not_equal() -> None:
    text = """module {
      sdy.mesh @mesh = <["a"=2]>
      func.func public @main(%x: tensor<3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}) -> tensor<3xf32> {
        return %x : tensor<3xf32>
      }
    }"""
    options = xla_client.CompileOptions()
    options.num_partitions = 2
    options.executable_build_options.use_spmd_partitioning = True
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(2).reshape(1, 2))
    client: Any = jax.devices()[0].client
    with pytest.raises(JaxRuntimeError, match="argument 0 .*tensor<3xf32>.*sharding"):
        client.compile_and_load(text, jax.devices()[:2], options)


def test_what_is_known_of_such_a_program() -> None:
    op, type, meaning = OPS["all_gather"]
    program = compiled(op, type, [[0], [1], [2], [3]])
    assert program.cost_analysis()["bytes accessed"] >= 16
    sizes = program.get_compiled_memory_stats()
    assert (sizes.argument_size_in_bytes, sizes.output_size_in_bytes) == (16, 32 + 4 + 4)
    assert "all-gather" in program.hlo_modules()[0].to_string()
    assert program.get_output_shardings() is None
    client: Any = jax.devices()[0].client
    options = xla_client.CompileOptions()
    again = client.deserialize_executable(client.serialize_executable(program), jax.devices(), options)
    np.testing.assert_array_equal(given(again, ROWS)[0], [*meaning(*ROWS[:2]), *meaning(*ROWS[2:])])


def test_wrong_numbers() -> None:
    op, type, _ = OPS["all_reduce"]
    with pytest.raises(JaxRuntimeError, match="all_reduce.*replica 3.*2 replicas"):
        compiled(op, type, [[0], [1]])
    with pytest.raises(JaxRuntimeError, match=r"2 replicas.*1 partitions.*\[\[0, 1, 2, 3\]\]"):
        compiled(op, type, [[0], [1], [2], [3]], replicas=2)
    with pytest.raises(JaxRuntimeError, match=r"4 replicas.*1 partitions.*\[\[0, 1, 2, 2\]\]"):
        compiled(op, type, [[0], [1], [2], [2]])
    program = compiled(op, type, [[0], [1], [2], [3]])
    with pytest.raises(JaxRuntimeError, match="4 shards"):
        given(program, ROWS[:3], jax.devices()[:3])
    with pytest.raises(JaxRuntimeError, match="argument 0: .* 4xf32, got 3xf32"):
        given(program, [row[:3] for row in ROWS])
    np.testing.assert_array_equal(given(program, ROWS)[0][0], ROWS[0] + ROWS[1])
