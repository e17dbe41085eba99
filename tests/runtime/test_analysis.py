"""Reports of executables on their work and memory, by JAX's names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import LAYER, LOOP
from programs import TARGET, constant

import shlo_jit
from shlo_jit.runtime.build import build
from shlo_jit.schedule.traffic import _places
from shlo_jit.schedule.window import Dim

SOFTMAX = """
func.func @main(%x: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %d = stablehlo.subtract %x, %mb : tensor<8x32xf32>
  %e = stablehlo.exponential %d : tensor<8x32xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %y = stablehlo.divide %e, %sb : tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}
"""
SLICED = """
func.func @main(%x: tensor<64xf32>, %y: tensor<16xf32>) -> tensor<16xf32> {
  %0 = stablehlo.slice %x [0:16] : (tensor<64xf32>) -> tensor<16xf32>
  %1 = stablehlo.add %0, %y : tensor<16xf32>
  return %1 : tensor<16xf32>
}
"""
UNKNOWN = """
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.tanh %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""


def test_products_count_multiplications_and_additions() -> None:
    costs = shlo_jit.compile(LAYER).cost_analysis()
    assert costs["flops"] == 2 * 64 * 784 * 10 + 3 * 64 * 10
    assert costs["transcendentals"] == 0
    product, row = 4 * (64 * 784 + 784 * 10 + 64 * 10), 4 * (2 * 64 * 10 + 10)
    assert costs["bytes accessed"] == product + row
    assert costs["bytes accessedout{}"] == 2 * 4 * 64 * 10
    assert (costs["bytes accessed0{}"], costs["utilization0{}"]) == (4 * 64 * 784, 1)


def test_functions_are_distinguished() -> None:
    costs = shlo_jit.compile(SOFTMAX).cost_analysis()
    assert costs["transcendentals"] == 8 * 32
    assert costs["flops"] == 4 * 8 * 32  # maximum, subtract, add, divide


def test_utilization_is_the_share_that_is_read() -> None:
    costs = shlo_jit.compile(SLICED).cost_analysis()
    assert (costs["utilization0{}"], costs["utilization1{}"]) == (0.25, 1)
    assert costs["bytes accessed0{}"] == costs["bytes accessed1{}"] == 4 * 16


def test_steps_add_up_to_the_program() -> None:
    for text in (LAYER, LOOP, SOFTMAX, SLICED):
        exe = shlo_jit.compile(text)
        steps, costs = exe.cost_analysis(per_step=True), exe.cost_analysis()
        for name in ("flops", "transcendentals", "bytes accessed", "bytes accessedout{}"):
            assert sum(step[name] for step in steps) == costs[name]
        with exe.profile() as p:
            exe(*(np.ones(i.shape, i.dtype) for i in exe.inputs))
        measured = {s.label: s for s in p.steps if s.gigabytes_per_second}
        for step in steps:
            if step["step"] in measured:
                s = measured[step["step"]]
                assert s.title == step["title"]
                assert step["bytes accessed"] == pytest.approx(s.gigabytes_per_second * s.median_us * 1e3)


@pytest.mark.xla
def test_figures_are_near_those_of_xla() -> None:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w)

    lowered = jax.jit(f).lower(jnp.ones((64, 784)), jnp.ones((784, 10)))
    compiled, exe = lowered.compile(), shlo_jit.compile(lowered)
    theirs, ours = compiled.cost_analysis(), exe.cost_analysis()
    for name in ("flops", "transcendentals"):
        assert ours[name] == theirs[name]
    theirs, ours = compiled.memory_analysis(), exe.memory_analysis()
    for name in ("argument_size_in_bytes", "output_size_in_bytes", "alias_size_in_bytes"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert {*ours._fields} - {"constant_size_in_bytes"} <= {*dir(theirs)}


def test_memory() -> None:
    exe = shlo_jit.compile(LAYER)
    found = exe.memory_analysis()
    assert found.argument_size_in_bytes == sum(4 * int(np.prod(i.shape)) for i in exe.inputs)
    assert found.output_size_in_bytes == 4 * 64 * 10
    assert found.temp_size_in_bytes == exe.memory.arena
    assert 0 < found.generated_code_size_in_bytes < 1 << 20
    assert found.alias_size_in_bytes == 0
    passed = found.argument_size_in_bytes + found.output_size_in_bytes
    assert found.peak_memory_in_bytes == passed + found.temp_size_in_bytes


def test_donated_memory_is_aliased() -> None:
    text = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %0 = stablehlo.negate %x : tensor<64xf32> return %0 : tensor<64xf32> }"
    found = shlo_jit.compile(text, donate=[0]).memory_analysis()
    assert found.alias_size_in_bytes == 256
    assert found.peak_memory_in_bytes == 256 + found.temp_size_in_bytes


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
def test_shapes_that_are_not_known(dynamic: str) -> None:
    exe = shlo_jit.compile(UNKNOWN, dynamic=dynamic)
    if dynamic == "specialize":
        assert exe.cost_analysis([(8, 4)])["transcendentals"] == 32
        assert exe.memory_analysis([(8, 4)]).argument_size_in_bytes == 128
    else:
        symbol = exe.executable([(8, 4)]).symbol
        assert exe.cost_analysis([(8, 4)])["transcendentals"] == 4 * symbol.hint
        assert exe.memory_analysis([(8, 4)]).argument_size_in_bytes == 16 * symbol.hint
    with pytest.raises(ValueError, match="give shapes="):
        shlo_jit.compile(UNKNOWN, dynamic=dynamic).cost_analysis()


def test_processes_of_a_grid() -> None:
    text = SLICED.replace("%1 = stablehlo.add %0, %y", "%1 = stablehlo.add %0, %y")
    with shlo_jit.compile(text, num_partitions=2, transport="threads") as exe:
        assert exe.cost_analysis()["flops"] == 16
        assert [step["step"] for step in exe.cost_analysis(1, per_step=True)] == ["0"]


def test_libraries_know_their_memory_alone(tmp_path: Path) -> None:
    shlo_jit.export(SLICED, tmp_path / "sliced.so")
    exe = shlo_jit.load(tmp_path / "sliced.so")
    assert exe.memory_analysis().argument_size_in_bytes == 4 * 80
    with pytest.raises(ValueError, match="StableHLO"):
        exe.cost_analysis()
    with pytest.raises(ValueError, match="StableHLO"):
        build(constant(np.ones(3)), TARGET, cache=False).cost_analysis()


def window(**options: Any) -> Callable[..., jax.Array]:
    """Returns a convolution."""
    given = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC"), **options}
    return lambda x, w: jax.lax.conv_general_dilated(x, w, **given)


IMAGE, KERNEL = (2, 14, 12, 6), (3, 3, 6, 8)
PRODUCTS: dict[str, tuple[Callable[..., jax.Array], tuple[int, ...], tuple[int, ...]]] = {
    "dot": (jnp.dot, (12, 20), (20, 30)),
    "vector": (jnp.dot, (12, 20), (20,)),
    "batched": (jnp.matmul, (4, 12, 20), (4, 20, 30)),
    "same": (window(), IMAGE, KERNEL),
    "valid": (window(padding="VALID"), IMAGE, KERNEL),
    "strides": (window(window_strides=(2, 3)), IMAGE, (7, 5, 6, 8)),
    "padded": (window(padding=((5, 0), (-1, 4))), IMAGE, KERNEL),
    "dilated window": (window(rhs_dilation=(2, 3)), IMAGE, KERNEL),
    "groups": (window(feature_group_count=3), IMAGE, (3, 3, 2, 9)),
    "depthwise": (window(feature_group_count=6), IMAGE, (3, 3, 1, 6)),
    "pixels": (window(), IMAGE, (1, 1, 6, 8)),
}


@pytest.mark.xla
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_take_what_they_take_in_xla(name: str) -> None:
    function, *shapes = PRODUCTS[name]
    lowered = jax.jit(function).lower(*(jnp.ones(shape) for shape in shapes))
    theirs, ours = lowered.compile().cost_analysis(), shlo_jit.compile(lowered).cost_analysis()
    assert ours["flops"] == theirs["flops"]


@pytest.mark.parametrize("base", [1, 2, 3])
def test_places_of_windows(base: int) -> None:
    """Counts window positions one by one."""
    generator = np.random.default_rng(base)
    for _ in range(200):
        extent, size, stride, dilation, low = (int(n) for n in generator.integers([1, 1, 1, 1, -3], [9, 5, 4, 4, 6]))
        out = int(generator.integers(1, 12))
        reads = [o * stride + w * dilation - low for o in range(out) for w in range(size)]
        wanted = sum(r % base == 0 and 0 <= r // base < extent for r in reads)
        assert _places(Dim(extent, out, size, stride, low, 0, base, dilation)) == wanted


def test_running_sums_are_one_addition_an_element() -> None:
    lowered = jax.jit(lambda x: jax.lax.cumsum(x, 0)).lower(jnp.ones((1000, 10)))
    assert shlo_jit.compile(lowered).cost_analysis()["flops"] == 10_000
