"""Element types of values (specification, "Types"), and the corresponding NumPy dtypes."""

from __future__ import annotations

import functools

import numpy as np


class DType:
    """An element type. `kind`: b (i1), i (signless or signed), u (unsigned), f (float), c (complex), x (index)."""

    __slots__ = ("_numpy", "bits", "kind", "name")

    def __init__(self, name: str, kind: str, bits: int, numpy: np.dtype | str) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        """Width of the value in bits; that of a complex number is twice that of its part."""
        self._numpy = numpy

    @property
    def numpy(self) -> np.dtype:
        """The dtype of NumPy or ml_dtypes. The latter is imported on first use, since few programs need it."""
        if isinstance(self._numpy, str):
            import ml_dtypes

            self._numpy = np.dtype(getattr(ml_dtypes, self._numpy))
        return self._numpy

    @property
    def itemsize(self) -> int:
        """Bytes per element in a buffer (i1, i2, i4, f4 and f6 take a byte each)."""
        return max(1, self.bits // 8)

    @property
    def is_packable(self) -> bool:
        """Whether constants have several elements of this type per byte."""
        return self.bits in (2, 4)

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def part(self) -> DType:
        """The element type of the real and imaginary part of a complex number; itself for other types."""
        return {"complex<f32>": DTYPES["f32"], "complex<f64>": DTYPES["f64"]}.get(self.name, self)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DType) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[object, ...]:
        return DType, (self.name, self.kind, self.bits, self._numpy)


def _table() -> dict[str, DType]:
    rows: list[tuple[str, str, int, str | type]] = [("i1", "b", 1, np.bool_), ("index", "x", 64, np.int64)]
    for bits in (2, 4):
        rows += [(f"i{bits}", "i", bits, f"int{bits}"), (f"ui{bits}", "u", bits, f"uint{bits}")]
    for bits in (8, 16, 32, 64):
        rows.append((f"i{bits}", "i", bits, getattr(np, f"int{bits}")))
        rows.append((f"ui{bits}", "u", bits, getattr(np, f"uint{bits}")))
    small = "f4E2M1FN f6E2M3FN f6E3M2FN f8E3M4 f8E4M3 f8E4M3FN f8E4M3FNUZ f8E4M3B11FNUZ f8E5M2 f8E5M2FNUZ f8E8M0FNU"
    rows += [(name, "f", int(name[1]), f"float{name[1]}_{name[2:].lower()}") for name in small.split()]
    rows += [("bf16", "f", 16, "bfloat16"), ("f16", "f", 16, np.float16)]
    rows += [("f32", "f", 32, np.float32), ("f64", "f", 64, np.float64)]
    rows += [("complex<f32>", "c", 64, np.complex64), ("complex<f64>", "c", 128, np.complex128)]
    return {n: DType(n, k, b, t if isinstance(t, str) else np.dtype(t)) for n, k, b, t in rows}


DTYPES: dict[str, DType] = _table()


@functools.cache
def by_numpy() -> dict[np.dtype, DType]:
    """Returns the element types, except `index`, by NumPy dtype."""
    return {d.numpy: d for d in DTYPES.values() if d.name != "index"}


def packed_bytes(size: int, bits: int) -> int:
    """Returns the bytes of a number of elements of 2 or 4 bits that share bytes (see `packing.py`)."""
    return -(-size * bits // 8)
