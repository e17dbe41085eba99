"""Arrays as DLPack capsules, including element types that NumPy does not know."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shlo_jit.runtime.dlpack import CPU, from_dlpack, to_dlpack
from shlo_jit.runtime.ffi.functions import capsule_name


class Given:
    """An object that provides an array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, max_version: tuple[int, int] | None = None, **_: Any) -> object:
        return to_dlpack(self.array, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex128"])
@pytest.mark.parametrize("writeable", [False, True])
def test_what_numpy_knows(dtype: str, writeable: bool) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)[:, ::2]
    array.flags.writeable = writeable
    seen = np.from_dlpack(Given(array))  # type: ignore[arg-type]
    assert seen.ctypes.data == array.ctypes.data and seen.flags.writeable == writeable
    np.testing.assert_array_equal(seen, array)
    assert array.flags.writeable == writeable


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("writeable", [False, True])
def test_what_numpy_does_not_know(dtype: str, writeable: bool) -> None:
    array = np.arange(6).astype(getattr(ml_dtypes, dtype)).reshape(2, 3)
    array.flags.writeable = writeable
    seen = from_dlpack(Given(array))
    assert seen is not None and seen.dtype == array.dtype and seen.ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(seen, array)


def test_versions() -> None:
    array = np.ones(3, ml_dtypes.bfloat16)
    assert capsule_name(to_dlpack(array, None)) == b"dltensor"
    assert capsule_name(to_dlpack(array, (0, 8))) == b"dltensor"
    assert capsule_name(to_dlpack(array, (1, 0))) == b"dltensor_versioned"


def test_types_that_dlpack_does_not_have() -> None:
    with pytest.raises(BufferError, match="DLPack only supports"):
        to_dlpack(np.ones(3, ml_dtypes.int4), (1, 0))
