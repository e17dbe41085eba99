"""Kinds of types: notation in which records declare the types of operands and results.

    tensor                   a ranked tensor of any element type, including those quantized per tensor
    any_tensor               the same, including those quantized per axis
    int|float                a ranked tensor whose elements are integers or floats
    0d i32, 1d int           rank 0, rank 1
    shape                    a 1-d tensor of integers or index with a static extent
    token, tuple, future, any

Element words: pred, sint, uint, int, float, complex, quant (per tensor), quant_axis (per axis), index, or an element
type's own name (`f32`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import ml_dtypes

from shlo_jit.ir.types import (
    DTYPES,
    ElementType,
    FutureType,
    OpaqueType,
    QuantizedType,
    TensorType,
    TokenType,
    TupleType,
    Type,
)

MEMORY = 2000
"""Maximum number of types that a kind caches."""

_ALIASES = {
    "tensor": ("pred", "int", "float", "complex", "quant"),
    "any_tensor": ("pred", "int", "float", "complex", "quant", "quant_axis"),
    "int": ("sint", "uint"),
}
_NON_TENSORS = {"token": TokenType, "tuple": TupleType, "future": FutureType}
_MEANING = {
    "pred": "i1", "sint": "signed integer", "uint": "unsigned integer", "float": "float", "complex": "complex",
    "quant": "per-tensor quantized", "quant_axis": "per-axis quantized", "index": "index",
}  # fmt: skip


@dataclass(frozen=True)
class TypeKind:
    """A set of types, with a cache of answers by type object, since hashing a type is more expensive than the test."""

    text: str
    elements: frozenset[str]
    rank: int | None
    static: bool
    others: tuple[type, ...]
    """Types other than tensors."""
    everything: bool
    unranked: bool
    known: dict[int, tuple[Type, bool]] = field(default_factory=dict, compare=False, repr=False)
    """Cached answers by `id`. The type is kept alive, so that its id stays unique."""

    def accepts(self, t: Type) -> bool:
        known = self.known.get(id(t))
        if known is None:
            if len(self.known) > MEMORY:
                self.known.clear()
            known = self.known[id(t)] = (t, self._decide(t))
        return known[1]

    def _decide(self, t: Type) -> bool:
        if self.everything or isinstance(t, self.others):
            return has_valid_quantization(t)
        if not isinstance(t, TensorType):
            return False
        if t.shape is None and not self.unranked:
            return False
        if t.shape is None:
            return isinstance(t.dtype, QuantizedType) or self.has(t)
        if self.rank is not None and t.rank != self.rank:
            return False
        if self.static and not t.is_static:
            return False
        return self.has(t)

    def has(self, t: TensorType) -> bool:
        """Whether the elements are of this kind."""
        return element_word(t) in self.elements or str(t.dtype) in self.elements

    def describe(self) -> str:
        """Describes the kind for messages: `0D tensor of i1 or float values`."""
        if self.everything:
            return "a type whose quantization parameters, if any, fit"
        words = [kind.__name__.removesuffix("Type").lower() for kind in self.others]
        if self.elements:
            elements = " or ".join(sorted(_MEANING.get(e, e) for e in self.elements))
            rank = "ranked" if self.rank is None else f"{self.rank}D"
            if self.static:
                rank = f"statically shaped {self.rank}-dimensional"
            words.insert(0, f"{rank} tensor of {elements} values")
        return " or ".join(words)


def element_word(t: TensorType) -> str:
    """Returns the element word of a tensor type; empty if its quantization does not fit its shape."""
    dtype = t.dtype
    if isinstance(dtype, QuantizedType):
        if not quantization_fits(t):
            return ""
        return "quant" if dtype.axis is None else "quant_axis"
    return {"b": "pred", "i": "sint", "u": "uint", "f": "float", "c": "complex", "x": "index"}[dtype.kind]


def has_valid_quantization(t: Type) -> bool:
    """Whether the quantization of a type and of its parts is valid."""
    if isinstance(t, TupleType | FutureType):
        return all(map(has_valid_quantization, t.types))
    if not isinstance(t, TensorType) or not isinstance(t.dtype, QuantizedType):
        return True
    return t.shape is None or quantization_fits(t)


def quantization_fits(t: TensorType) -> bool:
    """Whether a quantized type satisfies those of the constraints C1 to C13 that concern only the type."""
    q = t.dtype
    assert isinstance(q, QuantizedType) and t.shape is not None
    if q.storage.name.startswith("si"):
        return False
    low, high = integer_range(q.storage)
    if not (low <= q.storage_min < q.storage_max <= high and q.storage.bits <= q.expressed.bits):
        return False
    if len(q.scales) != len(q.zero_points) or not _scales_fit(q):
        return False
    if any(not q.storage_min <= z <= q.storage_max for z in q.zero_points):
        return False
    if q.axis is None:
        return len(q.scales) == 1
    if not 0 <= q.axis < t.rank:
        return False
    extent = t.shape[q.axis]
    return extent is None or extent == len(q.scales)


def _scales_fit(q: QuantizedType) -> bool:
    """Whether the scales are positive numbers within the range of the expressed type."""
    limits = ml_dtypes.finfo(q.expressed.numpy)
    return all(float(limits.smallest_subnormal) <= scale <= float(limits.max) for scale in q.scales)


def integer_range(dtype: ElementType) -> tuple[int, int]:
    """Returns the smallest and largest value of an integer element type."""
    assert not isinstance(dtype, QuantizedType)
    if dtype.kind == "u":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


@functools.cache
def type_kind(text: str) -> TypeKind:
    """Parses the kind that `text` denotes."""
    rank, static, words = None, False, text
    if text == "any":
        return TypeKind(text, frozenset(), None, False, (), True, True)
    if words.startswith(("0d ", "1d ")):
        rank, words = int(words[0]), words[3:]
    if words.startswith("static "):
        static, words = True, words[7:]
    if words == "shape":
        rank, static, words = 1, True, "int|index"
    elements: set[str] = set()
    others: list[type] = []
    unranked = False
    todo = words.split("|")
    while todo:
        word = todo.pop()
        if word in _ALIASES:
            todo.extend(_ALIASES[word])
        elif word in _NON_TENSORS:
            others.append(_NON_TENSORS[word])
        elif word == "buffer":
            others.append(OpaqueType)
        elif word == "unranked":
            unranked = True
        else:
            assert word in _MEANING or word in DTYPES, f"no such kind: {word}"
            elements.add(word)
    return TypeKind(text, frozenset(elements), rank, static, tuple(others), False, unranked)
