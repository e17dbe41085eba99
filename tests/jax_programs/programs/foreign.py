"""A function in C++ that JAX calls through its foreign function interface, with a derivative and under vmap."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_SOURCE = """
#include <cmath>
#include <cstdint>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;

static ffi::Error normalize(float epsilon, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y,
                            ffi::ResultBuffer<ffi::F32> scale) {
  auto dims = x.dimensions();
  if (dims.size() == 0) return ffi::Error::InvalidArgument("x has to have a dimension");
  int64_t width = dims.back(), rows = width ? x.element_count() / width : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.typed_data() + r * width;
    float total = 0;
    for (int64_t i = 0; i < width; ++i) total += row[i] * row[i];
    float by = 1 / std::sqrt(total / width + epsilon);
    scale->typed_data()[r] = by;
    for (int64_t i = 0; i < width; ++i) y->typed_data()[r * width + i] = row[i] * by;
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Normalize, normalize,
    ffi::Ffi::Bind().Attr<float>("epsilon").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>()
        .Ret<ffi::Buffer<ffi::F32>>());
"""


def own_function() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "normalize.cc", Path(folder) / "normalize.so"
        source.write_text(_SOURCE)
        includes = f"-I{jax.ffi.include_dir()}"
        subprocess.run(
            ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", includes, str(source), "-o", str(library)], check=True
        )
        loaded = ctypes.CDLL(str(library))
    jax.ffi.register_ffi_target("own_normalize", jax.ffi.pycapsule(loaded.Normalize), platform="cpu")

    def call(x: jax.Array) -> Any:
        types = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[:-1], x.dtype)
        return jax.ffi.ffi_call("own_normalize", types, vmap_method="broadcast_all")(x, epsilon=np.float32(1e-5))

    @jax.custom_vjp
    def normalize(x: jax.Array) -> jax.Array:
        return call(x)[0]

    def backward(kept: Any, g: jax.Array) -> Any:
        y, scale = kept
        return (scale[..., None] * (g - y * (g * y).mean(-1, keepdims=True)),)

    normalize.defvjp(lambda x: (call(x)[0], call(x)), backward)
    x = jnp.linspace(-1, 2, 24).reshape(2, 3, 4)
    refused = False
    try:
        jax.block_until_ready(jax.ffi.ffi_call("own_normalize", (jax.ShapeDtypeStruct((), jnp.float32),) * 2)(
            jnp.float32(1), epsilon=np.float32(0)))  # fmt: skip
    except Exception as error:
        refused = "x has to have a dimension" in str(error)
    return normalize(x), jax.jit(jax.vmap(normalize))(x), jax.grad(lambda v: (normalize(v) ** 3).sum())(x), refused
