"""Types of values (specification, "Types"): element types, tensors, tuples, tokens, functions.

Types are immutable and interned by their constructor functions, so equal types are usually the same object; `==`
compares structure in any case.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from shlo_jit.ir.dtypes import DTYPES, DType, packed_bytes
from shlo_jit.sizes import NotSymbolic

I1, I8, I32, I64 = DTYPES["i1"], DTYPES["i8"], DTYPES["i32"], DTYPES["i64"]
UI8, UI32, UI64 = DTYPES["ui8"], DTYPES["ui32"], DTYPES["ui64"]
BF16, F16, F32, F64 = DTYPES["bf16"], DTYPES["f16"], DTYPES["f32"], DTYPES["f64"]
C64, C128 = DTYPES["complex<f32>"], DTYPES["complex<f64>"]
INDEX = DTYPES["index"]


def storage_range(dtype: DType) -> tuple[int, int]:
    """Returns the smallest and largest value of an integer dtype."""
    if dtype.kind == "u":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def round_to(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Rounds f64 values once to a float dtype (the conversion of ml_dtypes goes through f32 and rounds twice)."""
    with np.errstate(all="ignore"):
        if dtype.name in ("f64", "f32", "f16"):
            return values.astype(dtype.numpy)
        single = values.astype(np.float32)
        lost = single.astype(np.float64) != values
        bits = single.view(np.uint32)
        if lost.any() and np.isfinite(values).all():
            # round to odd: a value between two f32 becomes the one whose last bit is set, so the next rounding is right
            larger = np.abs(single.astype(np.float64)) > np.abs(values)
            down = np.where(lost & larger, bits - 1, bits)
            bits = np.where(lost, down | 1, bits).astype(np.uint32)
        return bits.view(np.float32).astype(dtype.numpy)


@dataclass(frozen=True, slots=True)
class QuantizedType:
    """`!quant.uniform<storage<min:max>:expressed[:axis], {scale:zero_point, ...}>`; `axis` is None per tensor."""

    storage: DType
    expressed: DType
    storage_min: int
    storage_max: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    signless: bool = True
    """Whether the storage type is written as `i8` or `u8` rather than by its own name (`ui8`)."""

    @property
    def storage_name(self) -> str:
        """Name of the storage type in the text."""
        return self.storage.name.replace("ui", "u") if self.signless else self.storage.name

    @property
    def limits(self) -> str:
        """Text of the storage range; empty if it is the full range of the storage type."""
        low_high = self.storage_min, self.storage_max
        return "" if low_high == storage_range(self.storage) else "<{}:{}>".format(*low_high)


ElementType = DType | QuantizedType


class Type:
    """Base class of value types."""

    __slots__ = ()


class Packed(str):
    """The encoding of a constant whose elements of 2 or 4 bits share bytes, the first in the low bits. The last pass
    introduces it; an encoding in a text is another class, and means nothing."""

    __slots__ = ()


PACKED = Packed("#shlo_jit.packed")
MAX_RANK = 64
"""Maximum rank of a tensor: that of NumPy's arrays, which hold constants, arguments and results."""


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A tensor type such as `tensor<2x?xf32>`. `shape` has None for `?`; it is None for an unranked tensor."""

    shape: tuple[int | None, ...] | None
    dtype: ElementType
    bounds: tuple[int | None, ...] | None = None
    """Bounds from `#stablehlo.bounds<...>`, one entry per dimension."""
    encoding: str = ""
    """Any other encoding attribute, as written."""

    def __eq__(self, other: object) -> bool:
        """Whether the types are certainly equal; False if that depends on a size known only at the call."""
        if self is other:
            return True
        if not isinstance(other, TensorType):
            return NotImplemented
        try:
            same_shape = self.shape == other.shape
        except NotSymbolic:
            return False
        return same_shape and (self.dtype, self.bounds, self.encoding) == (other.dtype, other.bounds, other.encoding)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    @property
    def rank(self) -> int:
        assert self.shape is not None
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return self.shape is not None and None not in self.shape

    @property
    def is_fixed(self) -> bool:
        """Whether all extents are numbers: none is unknown or a size known only at the call."""
        return self.shape is not None and all(isinstance(n, int) for n in self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of a static tensor."""
        assert self.shape is not None and None not in self.shape
        return self.shape  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements of a static tensor."""
        n = 1
        for extent in self.extents:
            n *= extent
        return n

    @property
    def storage(self) -> DType:
        """The dtype of the tensor's buffer: the storage type if it is quantized."""
        return self.dtype.storage if isinstance(self.dtype, QuantizedType) else self.dtype

    @property
    def is_packed(self) -> bool:
        return isinstance(self.encoding, Packed)

    @property
    def packed(self) -> TensorType:
        """The type of a constant with the same elements, packed."""
        return TensorType(self.shape, self.dtype, None, PACKED)

    @property
    def nbytes(self) -> int:
        return self.constant_nbytes if self.is_packed else self.size * self.storage.itemsize

    @property
    def constant_nbytes(self) -> int:
        """Bytes of a constant of this type: elements of 2 and 4 bits are packed."""
        dtype = self.storage
        return packed_bytes(self.size, dtype.bits) if dtype.is_packable else self.size * dtype.itemsize


MAX_PARTS = 1 << 17
"""Maximum number of nodes in the tree of a type or attribute. Shared nodes count each time they are used, as in printed
text. The limit prevents nested aliases from building a tree of exponential size."""


def parts_of(type: Type) -> int:
    """Returns the number of nodes of a type's tree."""
    return type.parts if isinstance(type, TupleType | FutureType | FunctionType) else 1


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    types: tuple[Type, ...]
    parts: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", 1 + sum(map(parts_of, self.types)))


@dataclass(frozen=True, slots=True)
class TokenType(Type):
    pass


@dataclass(frozen=True, slots=True)
class FutureType(Type):
    types: tuple[Type, ...]
    parts: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", 1 + sum(map(parts_of, self.types)))


@dataclass(frozen=True, slots=True)
class FunctionType(Type):
    inputs: tuple[Type, ...]
    results: tuple[Type, ...]
    parts: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", 1 + sum(map(parts_of, (*self.inputs, *self.results))))


@dataclass(frozen=True, slots=True)
class ScalarType(Type):
    """A builtin scalar type outside of tensors (`i64`, `index`, `none`), used by attributes and other dialects."""

    name: str


@dataclass(frozen=True, slots=True)
class OpaqueType(Type):
    """A type of another dialect (`!sdy.x<...>`, `vector<...>`, `memref<...>`), kept as written."""

    text: str


TOKEN = TokenType()
WITNESS = OpaqueType("!shape.witness")
"""What a constraint on shapes results in."""


@functools.cache
def tensor(shape: tuple[int | None, ...] | None, dtype: ElementType) -> TensorType:
    """Returns the interned TensorType without bounds or encoding."""
    return TensorType(shape, dtype)
