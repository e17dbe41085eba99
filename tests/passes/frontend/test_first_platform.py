"""The argument with the platform that an exported program runs on."""

import numpy as np
import pytest

import shlo_jit

TEXT = """func.func @main(%platform: tensor<i32> {jax.global_constant = "_platform_index"},
                %x: tensor<3xf32> {jax.arg_info = "x"}) -> tensor<3xf32> {
  %0 = "stablehlo.case"(%platform) ({
    %1 = stablehlo.add %x, %x : tensor<3xf32>
    stablehlo.return %1 : tensor<3xf32>
  }, {
    stablehlo.return %x : tensor<3xf32>
  }) : (tensor<i32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}"""


@pytest.mark.parametrize("index", ["i32", "i64"])  # i64 where jax has 64-bit numbers enabled
def test_the_first_platform_is_taken(index):
    body = f"    %platform = stablehlo.convert %index : (tensor<{index}>) -> tensor<i32>\n  %0 ="
    text = TEXT.replace("%platform: tensor<i32>", f"%index: tensor<{index}>").replace("  %0 =", body, 1)
    exe = shlo_jit.compile(text, cache=False)
    assert [port.shape for port in exe.inputs] == [(3,)]
    np.testing.assert_array_equal(exe(np.arange(3, dtype=np.float32)), [0, 2, 4])
    with pytest.raises(TypeError):
        exe(np.int32(1), np.arange(3, dtype=np.float32))


def test_other_global_constants_stay_arguments():
    exe = shlo_jit.compile(TEXT.replace("_platform_index", "b"), cache=False)
    np.testing.assert_array_equal(exe(np.int32(1), np.arange(3, dtype=np.float32)), [0, 1, 2])


def test_exported_for_several_platforms():
    jax = pytest.importorskip("jax")
    from jax import export

    def f(x):
        return jax.lax.platform_dependent(x, cpu=jax.numpy.sin, tpu=jax.numpy.cos)

    x = np.linspace(0, 1, 5, dtype=np.float32)
    exported = export.export(jax.jit(f), platforms=("cpu", "tpu"))(x)
    exe = shlo_jit.compile(str(exported.mlir_module()), cache=False)
    np.testing.assert_allclose(exe(x), np.sin(x), rtol=1e-6)
