"""Converts JAX arrays to NumPy arrays and back. Memory is shared, with the exceptions below.

An argument is a view of the JAX array's memory. A result's memory becomes a JAX array if its alignment is 64 bytes, as
for results from the pool (`runtime/pool.py`, from 128 KiB on). JAX copies smaller ones, which takes less time than
passing them on (2 us for 64 KiB, of some 4 us).

A donated JAX array is deleted. Its memory is reused if it certainly belongs to us alone: it was one of our results, and
no one else has a view of it. Everything else is copied once: JAX does not say whether memory is its own or, say, a
NumPy array's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core, dtypes
from jax._src.array import ArrayImpl
from jax._src.random.prng import PRNGKeyArray
from jaxlib import _jax  # type: ignore[attr-defined]

from shlo_jit.runtime import pool

Put = Callable[[np.ndarray], Any]
"""Converts a result to the array that the caller receives."""
_OURS = "_shlo_jit_memory"
"""Attribute of a JAX array that is one of our results: the NumPy array that owns its memory."""


def taken(leaf: Any, dtype: np.dtype) -> np.ndarray:
    """Returns an argument as an array. Dtypes that JAX would canonicalize are converted; the caller has compared the
    others."""
    if type(leaf) is ArrayImpl:
        return np.asarray(leaf)
    if isinstance(leaf, PRNGKeyArray):
        return np.asarray(leaf._base_array)
    return np.asarray(leaf, dtype)


def donated_argument(leaf: Any, dtype: np.dtype) -> np.ndarray:
    """Returns a donated argument as an array that may be written to; a JAX array is deleted. A NumPy array, which JAX
    does not donate, is copied."""
    if type(leaf) is not ArrayImpl:
        return _copy(taken(leaf, dtype))
    array: np.ndarray | None = leaf.__dict__.pop(_OURS, None)
    if array is None:
        found = _copy(np.asarray(leaf))
        leaf.delete()
        return found
    leaf.delete()
    _jax.collect_garbage()  # drops JAX's reference to the array, which it otherwise releases later
    return array if _references(array) == _ALONE else _copy(array)


def _references(array: np.ndarray) -> int:
    """Returns the number of references to an array."""
    return sys.getrefcount(array)


def _references_of_one_variable() -> int:
    array = np.empty(0)
    return _references(array)


_ALONE = _references_of_one_variable()
"""Reference count of an array that only one variable of the caller refers to. The rest depends on the interpreter."""


def _copy(array: np.ndarray) -> np.ndarray:
    copy = pool.empty(array.shape, array.dtype, array.nbytes)
    copy[...] = array
    return copy


def putters(avals: Sequence[Any]) -> list[Put]:
    """Returns a function for each result that converts it to the caller's array. JAX's device is its first CPU."""
    device = jax.local_devices(backend="cpu")[0]
    return [_putter(aval, device) for aval in avals]


def _putter(aval: Any, device: Any) -> Put:
    if aval.dtype == dtypes.float0:
        return lambda array: np.zeros(aval.shape, dtypes.float0)
    sharding = jax.sharding.SingleDeviceSharding(device)
    if dtypes.issubdtype(aval.dtype, dtypes.prng_key):
        of_data, impl = _putter(core.physical_aval(aval), device), aval.dtype._impl
        return lambda array: PRNGKeyArray(impl, of_data(array))
    put, devices = _jax.batched_device_put, [device]

    def small(array: np.ndarray) -> Any:
        return put(aval, sharding, [array], devices, False)

    def large(array: np.ndarray) -> Any:
        made = put(aval, sharding, [array], devices, False)
        setattr(made, _OURS, array)
        return made

    return large if aval.size * aval.dtype.itemsize >= pool.POOLED_BYTES else small
