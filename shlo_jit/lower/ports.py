"""Inputs and outputs of a program, as its callers see them."""

from __future__ import annotations

from shlo_jit.codegen import abi
from shlo_jit.codegen.program import Port
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType
from shlo_jit.sizes import Size


def port(value: Value) -> Port:
    """The input or output of a program that a value is."""
    t = value.type
    assert isinstance(t, TensorType)
    return Port(value.name, tuple(abi.AT_CALL if isinstance(n, Size) else n for n in t.extents), t.storage)
