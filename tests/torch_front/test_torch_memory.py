"""Arguments as arrays: the memory of the tensor of each call, whatever that of the last calls was."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from shlo_jit.torch.dtypes import array_of
from shlo_jit.torch.memory import reader

DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64]


def check(read, tensor):
    found, want = read(tensor), array_of(tensor)
    assert found.dtype == want.dtype
    assert found.strides == want.strides
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_that_change(dtype):
    read = reader(dtype)
    x = torch.zeros(3, 4, dtype=dtype)
    for n in range(5):
        x.fill_(n % 2)
        check(read, x)


def test_the_array_of_the_same_memory_is_kept():
    read, x = reader(torch.float32), torch.nn.Parameter(torch.ones(3))
    arrays = [read(x) for _ in range(4)]
    assert arrays[2] is arrays[3]
    assert arrays[0] is not arrays[3]


def test_memory_that_changes():
    read, x = reader(torch.float32), torch.nn.Parameter(torch.ones(2, 3))
    for n in range(4):
        check(read, x)
        check(read, x)
        check(read, torch.full((2, 3), float(n)))
        x.data = torch.full((2, 3), float(-n))


def test_other_strides_of_the_same_memory():
    read, x = reader(torch.float32), torch.arange(16.0).reshape(4, 4)
    for tensor in (x, x, x, x.t(), x.t(), x.t(), x, x):
        check(read, tensor)


def test_negative_views_of_the_same_memory():
    read, z = reader(torch.float32), torch.randn(4, dtype=torch.complex64)
    positive, negative = z.imag, z.conj().imag
    assert positive.data_ptr() == negative.data_ptr()
    for tensor in (positive, positive, positive, negative, negative, positive):
        np.testing.assert_array_equal(read(tensor), tensor.resolve_neg().numpy())


def test_tensors_are_not_kept_alive():
    read, x = reader(torch.float32), torch.ones(5)
    for _ in range(4):
        read(x)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None


def test_no_elements():
    read = reader(torch.float32)
    for _ in range(4):
        check(read, torch.ones(0, 3))
