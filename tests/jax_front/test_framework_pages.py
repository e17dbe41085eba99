"""The code of the pages on JAX, PyTorch and TensorFlow runs, if those are installed; tensors are not copied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit.runtime.arguments import take
from shlo_jit.runtime.layout import data_address

DOCS = Path(__file__).parents[2] / "docs"
COPY = """
func.func @main(%x: tensor<?x?x{0}>) -> tensor<?x?x{0}> {{
  %0 = stablehlo.negate %x : tensor<?x?x{0}>
  return %0 : tensor<?x?x{0}>
}}"""


def run_page(name: str) -> dict[str, Any]:
    """Returns the names that the page's code defines."""
    found: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.S):
        exec(compile(code, name, "exec"), found)
    return found


def imported(name: str) -> Any:
    """Returns the package, or skips the test with the reason."""
    try:
        return __import__(name)
    except Exception as error:  # versions that do not fit each other fail in various ways
        pytest.skip(f"{name} cannot be imported: {type(error).__name__}: {error}")


def taken_address(tensor: Any, element: str) -> int:
    """Returns the address at which an executable reads the tensor."""
    exe = shlo_jit.compile(COPY.format(element))
    np.testing.assert_array_equal(exe(tensor), -take(tensor, 0, exe._ports[0]))
    return data_address(take(tensor, 0, exe._ports[0]))


@pytest.mark.xla
def test_jax() -> None:
    pytest.importorskip("jax")
    run_page("jax.md")


@pytest.mark.xla
@pytest.mark.parametrize(
    ("dtype", "element"), [("bfloat16", "bf16"), ("float8_e4m3fn", "f8E4M3FN"), ("float8_e5m2", "f8E5M2")]
)
def test_dlpack_of_types_that_numpy_has_no_name_for(dtype: str, element: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(12).reshape(3, 4).astype(dtype)
    assert taken_address(x, element) == x.unsafe_buffer_pointer()


def test_pytorch() -> None:
    torch = imported("torch")
    x = torch.arange(12.0).reshape(3, 4)
    assert taken_address(x, "f32") == x.data_ptr()
    b = x.to(torch.bfloat16)
    assert taken_address(b, "bf16") == b.data_ptr()
    exe = shlo_jit.compile(COPY.format("bf16"))
    result = exe(b.T)
    back = torch.from_numpy(result.view(np.int16)).view(torch.bfloat16)
    assert back.data_ptr() == result.ctypes.data
    assert torch.equal(back, -b.T)
    with pytest.raises(TypeError, match="Parameter.*requires grad"):
        exe(torch.nn.Parameter(b))


def test_tensorflow() -> None:
    tf = imported("tensorflow")
    run_page("tensorflow.md")
    x = tf.reshape(tf.range(12.0), (3, 4))
    assert taken_address(x, "f32") == np.from_dlpack(x).ctypes.data
    large = shlo_jit.compile(COPY.format("f32"))(np.ones((256, 256), np.float32))
    tensor = tf.experimental.dlpack.from_dlpack(large.__dlpack__())
    assert np.from_dlpack(tensor).ctypes.data == large.ctypes.data
    assert float(tf.reduce_sum(tensor)) == -256 * 256
