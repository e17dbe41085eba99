"""Sizes and strides, which are numbers while a program is built, and operators without results."""

from __future__ import annotations

import math
from typing import Any

from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import dimension, sizes


@aten("sym_size.int")
def sym_size(call: Call, x: Value, d: int) -> int:
    """The extent of a dimension."""
    return sizes(x)[dimension(d, x.ndim)]


@aten("sym_numel")
def sym_numel(call: Call, x: Value) -> int:
    """The number of elements."""
    return math.prod(sizes(x))


@aten("sym_stride.int")
def sym_stride(call: Call, x: Value, d: int) -> int:
    """The stride of a dimension in memory."""
    return call.storage(0)[1][d]


@aten(
    "_assert_async.msg",
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
    "_linalg_check_errors",
    "_functional_assert_async.msg",
    "_functional_assert_scalar",
)
def no_check(call: Call, *_: Any, **__: Any) -> None:
    """A check of sizes or data, which programs leave out."""
    return None
