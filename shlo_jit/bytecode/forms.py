"""How an attribute of a VHLO op stands for one of StableHLO's: the value there, the value here, and the default.

VHLO knows fewer kinds: lists are tensors, symbols are texts, units are truth values; and it has every attribute
written, which StableHLO leaves out where it is the default. Refusals are ValueErrors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from shlo_jit.bytecode.vhlo_kinds import VHLO, WORDS
from shlo_jit.ir.attributes import UNIT, Dense, DenseArray, DictAttr, EnumAttr, IntegerAttr, SymbolRef, TypeAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I1, I64, DType, ScalarType, TensorType, tensor
from shlo_jit.text.attributes import one_integer
from shlo_jit.text.syntax import i64s

LONGEST_LIST = 1 << 20
"""Elements of a list: a literal of one value can stand for any number of them."""


class Form:
    """Of a value in the file what it is here, and back."""

    __slots__ = ("read", "write")

    def __init__(self, read: Callable[[Any], Any], write: Callable[[Any], Any]):
        self.read, self.write = read, write


def _of(*classes: type) -> Callable[[Any], Any]:
    """Lets values of these classes through."""

    def check(value: Any) -> Any:
        if type(value) not in classes:
            raise ValueError(f"{type(value).__name__} is no {' or '.join(c.__name__ for c in classes)}")
        return value

    return check


def plain(*classes: type) -> Form:
    """The same there and here."""
    return Form(_of(*classes), _of(*classes))


ANY = Form(lambda value: value, lambda value: value)
INTEGER, TENSOR, TEXT, LIST, DICTIONARY, TYPE = map(plain, (IntegerAttr, Dense, str, tuple, DictAttr, TypeAttr))
BOOL = plain(bool)


# ---------------------------------------------------------------------- lists of numbers
def _numbers(value: Any, dtype: DType) -> list[Any]:
    if not isinstance(value, Dense) or value.type.dtype is not dtype or len(value.type.extents) != 1:
        raise ValueError(f"this is no list of {dtype}")
    if value.type.extents[0] > LONGEST_LIST:
        raise ValueError(f"this list has more than {LONGEST_LIST} elements")
    return value.array.tolist()


def _as_tensor(value: Any, dtype: DType) -> Dense:
    """Of a list, which may be a literal already."""
    if isinstance(value, Dense):
        return value
    values = value.values if isinstance(value, DenseArray) else value
    if not isinstance(values, tuple):
        raise ValueError(f"this is no list of {dtype}")
    return Dense(tensor((len(values),), dtype), np.array(values, dtype.numpy))


INTS = Form(lambda value: i64s(tuple(_numbers(value, I64))), lambda value: _as_tensor(value, I64))
BOOLS = Form(lambda value: DenseArray("i1", tuple(_numbers(value, I1))), lambda value: _as_tensor(value, I1))
DIMS = Form(lambda value: tuple(_numbers(value, I64)), lambda value: _as_tensor(value, I64))
"""In structs a list is a tuple, and a number an int."""


def _int(value: Any) -> int:
    if not isinstance(value, IntegerAttr):
        raise ValueError("this is no integer")
    return value.value


INT = Form(_int, lambda value: one_integer(value, "i64"))


# ---------------------------------------------------------------------- words
def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("this is no truth value")
    return UNIT if value else False


def _symbol(value: Any) -> SymbolRef:
    if not isinstance(value, str):
        raise ValueError("this is no name")
    return SymbolRef((value,))


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, SymbolRef) or len(value.path) != 1:
        raise ValueError("this is no name")
    return value.path[0]


FLAG = Form(_flag, lambda value: value is UNIT or value is True)
SYMBOL = Form(_symbol, _name)
SYMBOLS = Form(
    lambda value: tuple(_symbol(part) for part in _list(value)),
    lambda value: tuple(_name(part) for part in _list(value)),
)


_list, _dictionary = _of(tuple), _of(DictAttr)


def _dictionaries(value: Any) -> tuple[DictAttr, ...]:
    return tuple([_dictionary(part) for part in _list(value)])


DICTIONARIES = Form(_dictionaries, _dictionaries)


def enum(mnemonic: str) -> Form:
    """A word of an enumeration."""

    def check(value: Any) -> EnumAttr:
        if not isinstance(value, EnumAttr) or value.mnemonic != mnemonic:
            raise ValueError(f"this is no {mnemonic}")
        return value

    return Form(check, check)


_precision = enum("precision").read


def _checked_precisions(value: Any) -> tuple[Any, ...]:
    return tuple([_precision(part) for part in _list(value)])


PRECISIONS = Form(_checked_precisions, _checked_precisions)

_VERSIONS = VHLO.attributes[5]
_api_version = enum("custom_call_api_version").read
_API_VERSIONS = {word: one_integer(i, "i32") for i, word in enumerate(WORDS["custom_call_api_version"].split())}
API_VERSION = Form(lambda value: _API_VERSIONS[_api_version(value).value], lambda value: _VERSIONS.make(_int(value)))
"""A number in StableHLO."""

NONE = TypeAttr(ScalarType("none"))


def or_none(form: Form) -> Form:
    """With the type `none` for what is not there."""
    return Form(
        lambda value: None if value == NONE else form.read(value),
        lambda value: NONE if value is None else form.write(value),
    )


# ---------------------------------------------------------------------- defaults
class Default:
    """`is_it`: whether a value (as StableHLO has it) is the default; `make`: the default of an op."""

    __slots__ = ("is_it", "make")

    def __init__(self, is_it: Callable[[Any], bool], make: Callable[[Op], Any]):
        self.is_it, self.make = is_it, make


def default(value: Any) -> Default:
    kind = type(value)
    return Default(lambda given: given is value or (type(given) is kind and given == value), lambda op: value)


def either(first: Any, *others: Any) -> Default:
    """The first one, or what means the same."""
    return Default(lambda given: given == first or given in others, lambda op: first)


def all_alike(value: int, form: Form, rank: Callable[[Op], int]) -> Default:
    """A list of this number, one for each dimension."""

    def is_it(given: Any) -> bool:
        """An empty list is left as it is, as MLIR leaves it."""
        if isinstance(given, Dense):
            return given.array.size > 0 and bool((given.array == value).all())
        return bool(given.values) and all(part == value for part in given.values)

    def make(op: Op) -> Any:
        n = rank(op)
        if form is TENSOR:
            return Dense(tensor((n, 2), I64), np.full((n, 2), value, np.int64))
        return form.read(Dense(tensor((n,), I1 if form is BOOLS else I64), np.full(n, value, np.int64).astype(
            bool if form is BOOLS else np.int64)))  # fmt: skip

    return Default(is_it, make)


def rank_of_operand(op: Op) -> int:
    type = op.operands[0].type
    return len(type.shape or ()) if isinstance(type, TensorType) else 0


def spatial_rank(op: Op) -> int:
    dims = op.attributes.get("dimension_numbers")
    return len(getattr(dims, "input_spatial_dimensions", ()))


@functools.cache
def precision(word: str) -> EnumAttr:
    return EnumAttr("stablehlo", "precision", word)


DEFAULT_PRECISION = Default(
    lambda given: all([part.value == "DEFAULT" for part in given]), lambda op: (precision("DEFAULT"),) * 2
)
