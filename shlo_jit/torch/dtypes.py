"""Element types of PyTorch and of programs, and tensors as arrays without copies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch  # type: ignore[import-not-found]

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.dtypes import DTYPES, DType

_NAMES = {
    torch.bool: "i1", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.uint8: "ui8", torch.uint16: "ui16", torch.uint32: "ui32", torch.uint64: "ui64",
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.complex64: "complex<f32>", torch.complex128: "complex<f64>",
    torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ", torch.float8_e5m2fnuz: "f8E5M2FNUZ",
}  # fmt: skip
_CARRIERS = {torch.bfloat16: torch.int16} | {d: torch.uint8 for d in _NAMES if "float8" in str(d)}
"""For types that NumPy lacks: the type of integers with which PyTorch hands over the bits."""
SATURATES = not torch.tensor(1e4, device="cpu").to(torch.float8_e4m3fn).float().isnan().item()
"""Whether this version converts numbers beyond the range of `float8_e4m3fn` to its greatest: 2.9 converts to NaN."""


def element_type(dtype: torch.dtype) -> DType:
    """The element type of a program for PyTorch's. Raises UnsupportedError for one that programs do not have."""
    name = _NAMES.get(dtype)
    if name is None:
        known = ", ".join(map(str, _NAMES))
        raise UnsupportedError(diagnose(f"tensors of {dtype} are not supported: expected {known}", None, label="torch"))
    return DTYPES[name]


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a tensor as an array."""
    return to_array(tensor.dtype)(tensor)


def to_array(dtype: torch.dtype) -> Callable[[torch.Tensor], np.ndarray]:
    """Returns the function that takes the memory of a tensor of this type as an array."""
    carrier = _CARRIERS.get(dtype)
    if carrier is None:
        if not dtype.is_complex:
            return _plain
        return lambda t: t.detach().resolve_conj().resolve_neg().numpy()
    numpy = element_type(dtype).numpy
    return lambda t: t.detach().resolve_neg().view(carrier).numpy().view(numpy)


def _plain(tensor: torch.Tensor) -> np.ndarray:
    try:
        return tensor.numpy()
    except RuntimeError:  # it requires a gradient, or its sign is to be changed
        return tensor.detach().resolve_neg().numpy()


def to_tensor(dtype: torch.dtype) -> Callable[[np.ndarray], torch.Tensor]:
    """Returns the function that makes a tensor of this type with the memory of an array."""
    carrier = _CARRIERS.get(dtype)
    if carrier is None:
        return torch.from_numpy
    numpy = np.int16 if carrier is torch.int16 else np.uint8
    return lambda a: torch.from_numpy(a.view(numpy)).view(dtype)
