"""Bytes of long literals: small numbers are kept packed while they are read, and come back as the same bytes."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import shlo_jit
from shlo_jit import tuning
from shlo_jit.ir.packing import pack, packed_bytes, unpack
from shlo_jit.ir.types import DTYPES
from shlo_jit.text.literal_bytes import LiteralBytes
from shlo_jit.text.literals import characters, cut_bytes


@pytest.fixture(autouse=True)
def _all_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NARROW_LITERAL_BYTES", 16)


def filled(data: np.ndarray, part: int) -> LiteralBytes:
    found = LiteralBytes(data.size)
    for at in range(0, data.size, part):
        chunk = data[at : at + part]

        def read(to: np.ndarray, chunk: np.ndarray = chunk) -> bool:
            to[:] = chunk
            return True

        assert found.fill(at, chunk.size, read)
    assert found.finish() == hashlib.sha256(data.tobytes()).hexdigest()
    return found


@pytest.mark.parametrize("size", [16, 17, 63, 64, 1000, 4097])
@pytest.mark.parametrize("largest", [[3], [15], [3, 15], [15, 3], [3, 255], [15, 3, 16], [3, 3, 12, 200, 1], [255]])
def test_bytes_come_back(largest: list[int], size: int) -> None:
    """Each part of the literal has its own largest byte: some are wider than those before."""
    rng = np.random.default_rng(size)
    part = -(-size // len(largest) // 4) * 4
    data = np.concatenate([rng.integers(0, most + 1, part, np.uint8) for most in largest])[:size]
    for k, most in enumerate(largest):
        data[k * part : k * part + 1] = most
    found = filled(data, part)
    bits = next(b for b in (2, 4, 8) if data.max() < 1 << b)
    assert found.bits == bits
    assert found.packed(bits).size == packed_bytes(size, bits)
    for width in (2, 4):
        assert found.packed(width).tobytes() == pack(data, width).tobytes()
    assert found.packed(8).tobytes() == data.tobytes()
    found.widen("digest")
    assert found.bits == 8 and found.packed(8).tobytes() == data.tobytes()


@pytest.mark.parametrize("name", ["i2", "ui2", "i4", "ui4", "f4E2M1FN"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 1 << 10, 5000])
def test_packed_elements(name: str, size: int) -> None:
    dtype = DTYPES[name]
    raw = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    packed = pack(raw.view(dtype.numpy), dtype.bits)
    for i in range(size):
        byte, place = divmod(i * dtype.bits, 8)
        assert packed[byte] >> place & (1 << dtype.bits) - 1 == raw[i] & (1 << dtype.bits) - 1
    assert unpack(packed, dtype, size).view(np.uint8).tobytes() == (raw & (1 << dtype.bits) - 1).tobytes()


TYPES = {"i4": 4, "ui2": 2, "f4E2M1FN": 4, "i8": 8, "ui8": 8, "f32": 8, "i1": 8}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("most", [2, 4, 16, 256])
def test_literals_of_any_type(name: str, most: int) -> None:
    """The elements are those of the bytes, for any bytes and any type."""
    dtype = DTYPES[name]
    size = 6000
    data = np.random.default_rng(most).integers(0, most, size * dtype.itemsize, np.uint8)
    if name == "i1":
        data &= 1
    raw = data & ((1 << dtype.bits) - 1) if dtype.bits < 8 else data
    text = f"""func.func @main() -> tensor<{size}x{name}> {{
      %w = stablehlo.constant dense<"0x{data.tobytes().hex()}"> : tensor<{size}x{name}>
      return %w : tensor<{size}x{name}>
    }}"""
    (cut,) = cut_bytes(characters(text.encode()))[1]
    kept = cut.literal.read().bits
    assert kept == next(b for b in (2, 4, 8) if data.max() < 1 << b)
    assert cut.literal.data.tobytes() == data.tobytes()
    found = shlo_jit.compile(text, cache=False)()
    assert np.asarray(found).view(np.uint8).tobytes() == raw.tobytes()
