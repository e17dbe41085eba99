"""Conversion between attributes of VHLO ops and those of StableHLO ops, including defaults.

VHLO has fewer kinds of attributes: lists are tensors, symbols are strings, units are booleans. It stores every
attribute, whereas StableHLO omits defaults. Invalid values raise ValueError.
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

MAX_LIST_LENGTH = 1 << 20
"""Maximum length of a list: a splat literal could represent a list of any length."""


class Form:
    """A conversion: `read` maps the value in a file to StableHLO's, `write` is the inverse."""

    __slots__ = ("read", "write")

    def __init__(self, read: Callable[[Any], Any], write: Callable[[Any], Any]):
        self.read, self.write = read, write


def _of(*classes: type) -> Callable[[Any], Any]:
    """Returns a check that a value is of one of these classes."""

    def check(value: Any) -> Any:
        if type(value) not in classes:
            raise ValueError(f"expected {' or '.join(c.__name__ for c in classes)}, found {type(value).__name__}")
        return value

    return check


def plain(*classes: type) -> Form:
    """Returns the identity conversion for values of these classes."""
    return Form(_of(*classes), _of(*classes))


ANY = Form(lambda value: value, lambda value: value)
INTEGER, TENSOR, TEXT, LIST, DICTIONARY, TYPE = map(plain, (IntegerAttr, Dense, str, tuple, DictAttr, TypeAttr))
BOOL = plain(bool)


# ---------------------------------------------------------------------- lists of numbers
def _numbers(value: Any, dtype: DType) -> list[Any]:
    if not isinstance(value, Dense) or value.type.dtype is not dtype or len(value.type.extents) != 1:
        raise ValueError(f"expected a list of {dtype}")
    if value.type.extents[0] > MAX_LIST_LENGTH:
        raise ValueError(f"this list has more than {MAX_LIST_LENGTH} elements")
    return value.array.tolist()


def _as_tensor(value: Any, dtype: DType) -> Dense:
    """Converts a list, which may already be a literal, to a literal."""
    if isinstance(value, Dense):
        return value
    values = value.values if isinstance(value, DenseArray) else value
    if not isinstance(values, tuple):
        raise ValueError(f"expected a list of {dtype}")
    return Dense(tensor((len(values),), dtype), np.array(values, dtype.numpy))


INTS = Form(lambda value: i64s(tuple(_numbers(value, I64))), lambda value: _as_tensor(value, I64))
BOOLS = Form(lambda value: DenseArray("i1", tuple(_numbers(value, I1))), lambda value: _as_tensor(value, I1))
DIMS = Form(lambda value: tuple(_numbers(value, I64)), lambda value: _as_tensor(value, I64))
"""Lists of structs, which are tuples of ints in StableHLO."""


def _int(value: Any) -> int:
    if not isinstance(value, IntegerAttr):
        raise ValueError("expected an integer")
    return value.value


INT = Form(_int, lambda value: one_integer(value, "i64"))


# ---------------------------------------------------------------------- words
def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("expected a boolean")
    return UNIT if value else False


def _symbol(value: Any) -> SymbolRef:
    if not isinstance(value, str):
        raise ValueError("expected a name")
    return SymbolRef((value,))


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, SymbolRef) or len(value.path) != 1:
        raise ValueError("expected a name")
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
    """Returns the conversion of a value of an enum."""

    def check(value: Any) -> EnumAttr:
        if not isinstance(value, EnumAttr) or value.mnemonic != mnemonic:
            raise ValueError(f"expected a value of {mnemonic}")
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
"""The API version, which is a number in StableHLO."""

NONE = TypeAttr(ScalarType("none"))


def or_none(form: Form) -> Form:
    """Returns a conversion that represents None by the type `none`."""
    return Form(
        lambda value: None if value == NONE else form.read(value),
        lambda value: NONE if value is None else form.write(value),
    )


# ---------------------------------------------------------------------- defaults
class Default:
    """A default: `is_it` tests a value in StableHLO's form, `make` returns the default of an op."""

    __slots__ = ("is_it", "make")

    def __init__(self, is_it: Callable[[Any], bool], make: Callable[[Op], Any]):
        self.is_it, self.make = is_it, make


def default(value: Any) -> Default:
    kind = type(value)
    return Default(lambda given: given is value or (type(given) is kind and given == value), lambda op: value)


def either(first: Any, *others: Any) -> Default:
    """Returns a default with equivalent values; the first one is written."""
    return Default(lambda given: given == first or given in others, lambda op: first)


def all_alike(value: int, form: Form, rank: Callable[[Op], int]) -> Default:
    """Returns the default that is a list of this number, once per dimension."""

    def is_it(given: Any) -> bool:
        """Whether a list is the default. An empty list is not, as in MLIR."""
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
