"""Attributes: constant data of ops. They are `bool`, `str`, tuples, and the classes below.

true  "text"                          bool, str
3 : i64   1.5 : f32                   IntegerAttr, FloatAttr
unit                                  UNIT
[a, b]   {k = v}                      tuple, DictAttr
array<i64: 1, 2>                      DenseArray
dense<[1, 2]> : tensor<2xi64>         Dense
@f   @f::@g                           SymbolRef
tensor<2xf32>                         TypeAttr
#stablehlo<precision HIGH>            EnumAttr("stablehlo", "precision", "HIGH")
#stablehlo.gather<offset_dims = [1]>  StructAttr("stablehlo.gather", {"offset_dims": ...})
anything else                         OpaqueAttr, kept as written
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shlo_jit.ir.digests import sealed
from shlo_jit.ir.packing import pack, unpack
from shlo_jit.ir.types import TensorType, Type, parts_of
from shlo_jit.sizes import whole


@dataclass(frozen=True, slots=True)
class IntegerAttr:
    value: int
    type: str = "i64"


@dataclass(frozen=True, slots=True)
class FloatAttr:
    value: float
    type: str = "f64"
    text: str = ""
    """The number as written, so that printing is lossless."""


class _Unit:
    __slots__ = ()

    def __repr__(self) -> str:
        return "unit"


UNIT = _Unit()


@dataclass(frozen=True, slots=True)
class DictAttr:
    items: tuple[tuple[str, Any], ...]

    def get(self, key: str, default: Any = None) -> Any:
        return dict(self.items).get(key, default)


@dataclass(frozen=True, slots=True)
class DenseArray:
    """The attribute `array<i64: 1, 2>`; `dtype` is the name of the element type."""

    dtype: str
    values: tuple[Any, ...]


class Dense:
    """`dense<...> : type`. The array is decoded on first use; a splat stays one element. A value with `release` may be
    decoded again later. Many elements of 2 or 4 bits are kept packed.

    `array` has the full shape (a splat is a broadcast view); treat it as read-only.
    """

    __slots__ = ("_array", "_decode", "_derived", "_pack", "_packed", "_release", "_unpacked", "type")

    def __init__(
        self,
        type: TensorType,
        array: np.ndarray | None = None,
        decode: Callable[[], np.ndarray] | None = None,
        release: Callable[[], None] | None = None,
        packed: Callable[[], np.ndarray] | None = None,
    ):
        """`packed` returns the elements packed, in place of `array` and `decode`."""
        self.type = type
        self._array = array
        self._decode = decode
        self._derived: dict[Hashable, np.ndarray] = {}
        self._release = release
        self._pack = packed
        self._packed = None if packed is None else packed()
        """The elements, if they are kept packed."""
        self._unpacked: weakref.ref[np.ndarray] | None = None
        if array is not None:
            self._keep(array)

    @property
    def array(self) -> np.ndarray:
        if self._pack is not None:
            return self._unpack()
        if self._array is None:
            assert self._decode is not None
            array = self._decode()
            array.flags.writeable = False
            self._keep(array)
            if self._release is None:
                self._decode = None
            return array
        return self._array

    def _keep(self, array: np.ndarray) -> None:
        if keeps_packed(self.type) and not _is_splat(array):
            packed = self._packed = sealed(pack(array, self.type.storage.bits))
            self._array, self._decode, self._release = None, None, None
            self._pack = lambda: packed
        else:
            self._array = array

    def _unpack(self) -> np.ndarray:
        """Returns the elements, which are kept only as long as they are in use."""
        array = None if self._unpacked is None else self._unpacked()
        if array is None:
            array = sealed(unpack(self.packed, self.type.storage, self.type.size).reshape(self.type.extents))
            self._unpacked = weakref.ref(array)
        return array

    @property
    def packed(self) -> np.ndarray:
        """The elements, which have 2 or 4 bits each, packed: u8[n]."""
        if self._pack is None:
            return sealed(pack(self.array, self.type.storage.bits))
        if self._packed is None:
            self._packed = self._pack()
        return self._packed

    def with_type(self, type: TensorType) -> Dense:
        """The same elements in the same order, which are not a splat, with a type of the same storage and size."""
        if self._pack is not None:
            return Dense(type, packed=lambda: self.packed, release=self.release)
        return Dense(type, self.array.reshape(type.extents))

    def release(self) -> None:
        """Frees memory that is not needed for a while, if the array can be decoded again on its next use."""
        if self._release is not None:
            self._array = self._packed = None
            self._release()

    def derived(self, key: Hashable, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Returns `make(array)`, cached by the key for programs that are compiled for several shapes."""
        if key not in self._derived:
            self._derived[key] = make(self.array)
        return self._derived[key]

    @property
    def is_splat(self) -> bool:
        """Whether all elements have one value, as far as is known without comparing them."""
        return self._pack is None and _is_splat(self.array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dense):
            return NotImplemented
        if self.type != other.type:
            return False
        if self._pack is not None and other._pack is not None:
            return self.packed is other.packed or bool(np.array_equal(self.packed, other.packed))
        a, b = self.array, other.array
        if a is b:
            return True
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if self.is_splat and other.is_splat:
            return a.flat[:1].tobytes() == b.flat[:1].tobytes()
        return a.tobytes() == b.tobytes()

    def __hash__(self) -> int:
        if self._pack is not None:
            return hash((self.type, self.packed[: self.type.storage.bits].tobytes()))
        first, dtype = self.array.flat[:8], self.type.storage
        return hash((self.type, (pack(first, dtype.bits) if dtype.is_packable else first).tobytes()))

    def __repr__(self) -> str:
        return f"Dense({self.type})"


PACKED_ELEMENTS = 1 << 12
"""Minimum number of elements of 2 or 4 bits to be kept packed: the time to unpack small ones is worth more."""


def keeps_packed(type: TensorType) -> bool:
    """Whether many elements of a value, unless it is a splat, are kept packed."""
    return type.storage.is_packable and type.size >= PACKED_ELEMENTS


def _is_splat(array: np.ndarray) -> bool:
    return array.size > 0 and (array.size == 1 or not any(array.strides))


@dataclass(frozen=True, slots=True)
class SymbolRef:
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path[0]


@dataclass(frozen=True, slots=True)
class TypeAttr:
    type: Type


@dataclass(frozen=True, slots=True)
class EnumAttr:
    dialect: str
    mnemonic: str
    value: str


@dataclass(frozen=True, slots=True)
class StructAttr:
    name: str
    fields: tuple[tuple[str, Any], ...]

    def get(self, key: str, default: Any = None) -> Any:
        for k, v in self.fields:
            if k == key:
                return v
        return default


@dataclass(frozen=True, slots=True)
class ConvDims:
    """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]` of a convolution, as dimension numbers."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpaqueAttr:
    text: str


def parts_of_attribute(value: Any, known: Mapping[int, int]) -> int:
    """Returns the number of nodes of an attribute's tree. `known` has the counts of some attributes, by id."""
    total, todo = 0, [value]
    while todo:
        inner = todo.pop()
        if id(inner) in known:
            total += known[id(inner)]
            continue
        total += parts_of(inner.type) if isinstance(inner, TypeAttr) else 1
        if isinstance(inner, tuple):
            todo += inner
        elif isinstance(inner, DictAttr):
            todo += [item for _, item in inner.items]
        elif isinstance(inner, StructAttr):
            todo += [item for _, item in inner.fields]
    return total


Attribute = (
    bool
    | str
    | IntegerAttr
    | FloatAttr
    | _Unit
    | tuple
    | DictAttr
    | DenseArray
    | Dense
    | SymbolRef
    | TypeAttr
    | EnumAttr
    | StructAttr
    | ConvDims
    | OpaqueAttr
)


def as_int(attr: Any) -> int:
    """Returns the integer of an IntegerAttr, bool or one-element Dense."""
    if isinstance(attr, IntegerAttr):
        return attr.value
    if isinstance(attr, Dense):
        return int(attr.array.reshape(-1)[0])
    return int(attr)


def as_ints(attr: Any) -> tuple[int, ...]:
    """Returns the integers of a DenseArray, a Dense (any rank, flattened) or a tuple of IntegerAttr."""
    if isinstance(attr, DenseArray):
        return tuple(map(whole, attr.values))
    if isinstance(attr, Dense):
        return tuple(map(int, attr.array.reshape(-1)))
    return tuple(map(as_int, attr))
