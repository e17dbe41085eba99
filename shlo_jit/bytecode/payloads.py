"""Conversion of numbers and tensors from and to the payload form: type and bits."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shlo_jit.bytecode.fields import bits_of
from shlo_jit.ir.aligned import copied, is_aligned
from shlo_jit.ir.attributes import Dense, FloatAttr, IntegerAttr
from shlo_jit.ir.dense_text import to_bytes
from shlo_jit.ir.types import DTYPES, ScalarType, TensorType, Type, round_to, tensor
from shlo_jit.text.attributes import as_signed, one_integer
from shlo_jit.text.dense import dense_of_literal, from_bytes, splat
from shlo_jit.text.literals import Literal

Number = tuple[Type, int]


# ---------------------------------------------------------------------- one number
def integer_of(number: Number) -> IntegerAttr | bool:
    type, bits = number
    assert isinstance(type, ScalarType)
    if type.name == "i1":
        return bool(bits)
    if type.name[0] == "f" or type.name in ("bf16", "tf32"):
        raise ValueError(f"an integer does not fit type {type.name}")
    return one_integer(as_signed(bits, type.name), type.name)


def integer_parts(value: IntegerAttr | bool) -> tuple[Number]:
    attribute = IntegerAttr(int(value), "i1") if isinstance(value, bool) else value
    type = ScalarType(attribute.type)
    return ((type, attribute.value & (1 << (bits_of(type) or 64)) - 1),)


def float_of(number: Number) -> FloatAttr:
    type, bits = number
    dtype = DTYPES.get(type.name) if isinstance(type, ScalarType) else None
    if dtype is None or not dtype.is_float:
        raise ValueError("expected a float type")
    array = from_bytes(bits.to_bytes(dtype.itemsize, "little"), tensor((), dtype))
    return FloatAttr(float(array[()]), dtype.name)


def float_parts(value: FloatAttr) -> tuple[Number]:
    dtype = DTYPES[value.type]
    array = round_to(np.array([value.value]), dtype)
    return ((ScalarType(dtype.name), int.from_bytes(to_bytes(array, dtype), "little")),)


# ---------------------------------------------------------------------- tensors
def tensor_of(type: Type, blob: memoryview | Literal) -> Dense:
    """Returns the tensor whose elements, or single splat element, are in `blob`; copies them to aligned memory if
    necessary."""
    if not isinstance(type, TensorType) or not type.is_static:
        raise ValueError("expected a tensor type with a static shape for a literal")
    if isinstance(blob, Literal):
        is_bits = type.storage.name == "i1"
        return Dense(type, _booleans(type, blob.data.data)) if is_bits else dense_of_literal(blob, type)
    return _small(type, bytes(blob)) if len(blob) <= SMALL else _literal(type, blob)


SMALL = 128
"""Maximum size in bytes of a literal that is likely to be repeated and therefore cached."""


@functools.lru_cache(maxsize=16384)
def _small(type: TensorType, blob: bytes) -> Dense:
    return _literal(type, blob)


def _literal(type: TensorType, blob: bytes | memoryview) -> Dense:
    if type.storage.name == "i1":
        return Dense(type, _booleans(type, blob))
    if len(blob) > SMALL and not is_aligned(blob):
        return Dense(type, from_bytes(copied(blob), type))
    array = from_bytes(blob, type)
    return Dense(type, array if array.flags.aligned else from_bytes(bytes(blob), type))


def _booleans(type: TensorType, blob: bytes | memoryview) -> np.ndarray:
    """Decodes booleans, eight per byte, lowest bit first; a splat is one byte of zeros or ones. Old files have a byte
    per element."""
    size = type.size
    if len(blob) == 1 and size != 1 and (blob[0] in (0, 0xFF) or size > 8):
        return splat(np.array(blob[0] != 0), type)
    if len(blob) == -(-size // 8):
        values = np.unpackbits(np.frombuffer(blob, np.uint8), count=size, bitorder="little")
        return values.astype(bool).reshape(type.extents)
    return from_bytes(blob, type)


def tensor_parts(value: Dense) -> tuple[Any, ...]:
    array, dtype = value.array, value.type.storage
    if value.is_splat and array.size > 1:
        array = array[(slice(0, 1),) * array.ndim]
        if dtype.name == "i1":
            return value.type, b"\xff" if array.any() else b"\0"
    if dtype.name == "i1":
        return value.type, np.packbits(array.reshape(-1), bitorder="little").tobytes()
    return value.type, to_bytes(array, dtype)
