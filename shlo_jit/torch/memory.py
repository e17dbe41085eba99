"""Tensors of arguments as arrays, which are made again only if a tensor has other memory than at the last call."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char

import numpy as np
import torch  # type: ignore[import-not-found]

from shlo_jit.torch.dtypes import to_array


def reader(dtype: torch.dtype, order: tuple[int, ...] | None = None) -> Callable[[torch.Tensor], np.ndarray]:
    """Returns the function that takes the memory of an argument as an array, with its dimensions in another order if
    there is one. The argument has this element type, and the same shape in all calls.

    Most arguments are parameters, which have the same memory in all calls. An array for it, which owns nothing, is
    kept: making one from a tensor takes several times as long as comparing addresses."""
    plain = to_array(dtype)
    convert = plain if order is None else lambda tensor: plain(tensor).transpose(order)
    if dtype.is_complex:
        return convert
    last: tuple[int, tuple[int, ...], np.ndarray | None] = (0, (), None)
    """Address, strides and array of the last call. The array is None until an address occurs twice."""

    def read(tensor: torch.Tensor) -> np.ndarray:
        nonlocal last
        try:
            address = tensor.data_ptr()
        except RuntimeError:  # a tensor without memory of its own, which PyTorch names in its error
            return convert(tensor)
        known, strides, array = last
        if address != known or address == 0:
            last = address, (), None
            return convert(tensor)
        # A negative view has the memory of the tensor that it negates.
        if tensor.is_neg():
            return convert(tensor)
        if array is None or tensor.stride() != strides:
            found = convert(tensor)
            last = address, tensor.stride(), _without_owner(found, address)
            return found
        return array

    return read


def _without_owner(array: np.ndarray, address: int) -> np.ndarray | None:
    """The same elements as an array that does not keep their memory alive. None if they are not adjacent, or elsewhere
    in memory."""
    if array.ctypes.data != address or not array.flags.forc:
        return None
    memory = memoryview((c_char * array.nbytes).from_address(address))
    return np.ndarray(array.shape, array.dtype, memory, strides=array.strides)
