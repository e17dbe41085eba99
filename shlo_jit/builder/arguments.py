"""Conversion and checks of arguments: values from arrays and numbers, lists of integers, words.

A Python number takes the element type of the other operands. An integer must be exactly representable in it; a float is
rounded to the nearest number of a float type. There are no other implicit conversions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, get_args

import numpy as np

from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import ChannelHandle
from shlo_jit.builder.scope import Handle, emit1, frame
from shlo_jit.builder.shapes import element_of, shape_text
from shlo_jit.ir.attributes import Dense, EnumAttr, StructAttr
from shlo_jit.ir.dtypes import DType
from shlo_jit.ir.structs import STRUCTS
from shlo_jit.ir.types import QuantizedType, TensorType, round_to, storage_range, tensor
from shlo_jit.runtime.dlpack import foreign_array

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


class SupportsDLPack(Protocol):
    """An array of another library, such as JAX or PyTorch."""

    def __dlpack__(self) -> Any: ...


Number: TypeAlias = "bool | int | float | complex"
TensorLike: TypeAlias = "Value | np.ndarray | np.generic | bool | int | float | complex | SupportsDLPack"
"""Types accepted for a tensor. Arrays, including those of other libraries, become constants."""
WORDS = {bool: "a truth value", int: "an integer", float: "a float", complex: "a complex number"}


# ---------------------------------------------------------------------------- tensors
def is_number(x: object) -> TypeGuard[Number]:
    """Whether x is a Python number, which has no element type of its own."""
    return isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic)


def tensor_of(x: object, argument: str, like: DType | None = None) -> Value:
    """Converts a tensor, array or number to a value. `like`: the element type of a number."""
    if isinstance(x, Handle):
        if not isinstance(x.type, TensorType):
            raise wrong(argument, f"expected a tensor, got {shape_text(x.type)}")
        return x  # type: ignore[return-value]  handles are values
    if isinstance(x, np.ndarray | np.generic):
        return constant_of(np.asarray(x), element_of(x.dtype, argument))
    if is_number(x):
        if like is None:
            hint = "write builder.constant(number, dtype), or a NumPy scalar"
            raise wrong(argument, f"{x!r} has no element type, and no other operand determines one", hint=hint)
        return constant_of(exact(x, like, argument), like)
    foreign = array_of(x, argument)
    if foreign is not None:
        return constant_of(foreign, element_of(foreign.dtype, argument))
    hint = "builder.constant makes one of nested lists" if isinstance(x, list | tuple) else ""
    raise wrong(argument, f"expected a tensor, an array or a number, got {type(x).__name__}", hint=hint)


def array_of(x: object, argument: str) -> np.ndarray | None:
    """Converts an array of another library to NumPy; None if x is not an array."""
    try:
        return foreign_array(x)
    except TypeError as error:
        raise wrong(argument, str(error)) from None


def tensors_of(xs: object, argument: str) -> list[Value]:
    """Converts a non-empty list of tensors, or one tensor, to a list of values."""
    if not isinstance(xs, list | tuple):
        return [tensor_of(xs, argument)]
    if not xs:
        raise wrong(argument, "expected at least one tensor")
    return [tensor_of(x, f"{argument}[{i}]") for i, x in enumerate(xs)]


def one_or_all(given: object, found: tuple[Value, ...]) -> Value | tuple[Value, ...]:
    """Returns the only result if one tensor was given, or the tuple of results of a list."""
    return found if isinstance(given, list | tuple) else found[0]


def same_elements(argument: Mapping[str, object]) -> list[Value]:
    """Converts arguments, by name, to values of one element type. Numbers take that of the others."""
    known = next((x for x in argument.values() if not is_number(x)), None)
    names = list(argument)
    if known is None:
        raise wrong(names[0], "expected at least one argument with an element type, but all are numbers")
    first = next(name for name, x in argument.items() if x is known)
    made = tensor_of(known, first)
    like = made.element_type
    found = []
    for name, x in argument.items():
        y = made if name == first else tensor_of(x, name, like)
        if y.element_type != like:
            hint = f"write .astype('{like}') after {name}, or .astype('{y.element_type}') after {first}"
            raise wrong(
                name, f"{shape_text(y.type)} and {shape_text(made.type)} have different element types", hint=hint
            )
        found.append(y)
    return found


def exact(x: Number, dtype: DType, argument: str) -> np.ndarray:
    """Converts a Python number to an element type. Raises BuilderError if the type cannot represent it."""
    kind = dtype.kind
    allowed = {"b": bool, "i": int, "u": int, "x": int, "f": (int, float), "c": (int, float, complex)}[kind]
    if not isinstance(x, allowed) or (isinstance(x, bool) and kind != "b"):
        word = WORDS[type(x)] if type(x) in WORDS else repr(x)
        raise wrong(argument, f"{x!r} is {word}, and the elements are {dtype}", hint=f"write it as one, or {_cast(x)}")
    if isinstance(x, int) and kind in "iux":
        low, high = (0, 2**63 - 1) if kind == "x" else storage_range(dtype)
        if not low <= x <= high:
            raise wrong(argument, f"{x} is out of the range of {dtype}, from {low} to {high}")
    with np.errstate(all="ignore"):
        try:
            made = np.asarray(x, dtype.numpy if kind != "f" else np.float64)
        except OverflowError:
            raise wrong(argument, f"{x} is out of the range of {dtype}") from None
        if kind == "f":
            wide, made = float(made), round_to(np.asarray(made), dtype)
            near = float(made)
            if isinstance(x, int) and not isinstance(x, bool) and near != x:
                raise wrong(argument, f"the integer {x} is not exact in {dtype}", hint=f"write {x}.0 for the nearest")
            if math.isfinite(wide) and (not math.isfinite(near) or (near == 0) != (wide == 0)):
                raise wrong(argument, f"{x} is out of the range of {dtype}")
    return made


def _cast(x: Number) -> str:
    return ".astype(...) after the tensor" if not isinstance(x, bool) else "compare the tensor"


def constant_of(array: np.ndarray, dtype: DType, shape: Sequence[int] | None = None) -> Value:
    """Constant of an array that already has the element type. With `shape`, all elements are the array's only one."""
    frame()
    extents = tuple(array.shape if shape is None else shape)
    data = np.array(array, dtype.numpy) if shape is None else np.broadcast_to(np.array(array, dtype.numpy), extents)
    data.flags.writeable = False
    return emit1("stablehlo.constant", (), {"value": Dense(tensor(extents, dtype), data)})


def shape_of(x: Handle) -> tuple[int | None, ...]:
    """Extents of a tensor, None for an unknown one."""
    shape = x.raw.tensor.shape
    return () if shape is None else shape


def element(x: Handle) -> DType:
    """Element type of a tensor; the expressed type of a quantized one."""
    dtype = x.raw.tensor.dtype
    return dtype.expressed if isinstance(dtype, QuantizedType) else dtype


def static_shape(x: Handle, argument: str) -> tuple[int, ...]:
    """Extents of a tensor. Raises BuilderError if one is unknown."""
    t = x.raw.tensor
    if not t.is_static:
        raise wrong(argument, f"expected known extents, got {shape_text(t)}")
    return t.extents


# ---------------------------------------------------------------------------- numbers, lists, words
def integer(x: object, argument: str) -> int:
    """Checks an integer that is known while the program is built."""
    if isinstance(x, Handle):
        raise wrong(argument, "expected an integer, got a value of the program, which is unknown while it is built")
    if isinstance(x, bool):
        raise wrong(argument, f"expected an integer, got {x!r}")
    try:
        n = operator.index(x)  # type: ignore[arg-type]  whatever it is, it says so
    except TypeError:
        raise wrong(argument, f"expected an integer, got {x!r}") from None
    if not -(2**63) <= n < 2**63:
        raise wrong(argument, f"{n} does not fit into 64 bits")
    return n


def real_number(x: object, argument: str) -> float:
    """Checks a real number that is known while the program is built."""
    if isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool):
        return float(x)
    raise wrong(argument, f"expected a number, got {x!r}")


def text(x: object, argument: str) -> str:
    """Checks a string."""
    if isinstance(x, str):
        return x
    raise wrong(argument, f"expected a string, got {x!r}")


def listed(xs: object, argument: str, what: str = "a list") -> Sequence[Any]:
    """Checks a list or a tuple."""
    if isinstance(xs, list | tuple):
        return xs
    raise wrong(argument, f"expected {what}, got {type(xs).__name__}")


def integers(xs: object, argument: str) -> tuple[int, ...]:
    """Checks a list of integers. A single integer becomes a list of one."""
    if isinstance(xs, list | tuple | range) or (isinstance(xs, np.ndarray) and xs.ndim):
        return tuple(integer(x, argument) for x in xs)
    return (integer(xs, argument),)


def extents(xs: object, argument: str) -> tuple[int, ...]:
    """Checks sizes of dimensions: integers that are not negative."""
    found = integers(xs, argument)
    if any(n < 0 for n in found):
        raise wrong(argument, f"a size is negative: {list(found)}")
    return found


def flag(x: object, argument: str) -> bool:
    """Checks a truth value that is known while the program is built."""
    if isinstance(x, bool | np.bool_):
        return bool(x)
    raise wrong(argument, f"expected True or False, got {type(x).__name__ if isinstance(x, Handle) else repr(x)}")


def axis(x: object, rank: int, argument: str) -> int:
    """Checks a dimension. Negative ones count from the last."""
    d = integer(x, argument)
    if not -rank <= d < max(rank, 0):
        raise wrong(argument, f"dimension {d} is out of range for rank {rank}")
    return d % rank


def axes(xs: object, rank: int, argument: str) -> tuple[int, ...]:
    """Checks a list of dimensions without repetition."""
    found = tuple(axis(x, rank, argument) for x in integers(xs, argument))
    if len(set(found)) != len(found):
        raise wrong(argument, f"dimensions must not repeat: {list(found)}")
    return found


def per_dimension(xs: object, count: int, argument: str, default: int = 1) -> tuple[int, ...]:
    """Checks one integer for each dimension; None means the default everywhere."""
    if xs is None:
        return (default,) * count
    found = integers(xs, argument)
    if len(found) != count:
        raise wrong(argument, f"expected {count} numbers, one for each dimension, got {len(found)}")
    return found


def unless(xs: Sequence[Any], default: Any) -> list[Any] | None:
    """Returns the list, or None if all its entries are the default, so that the attribute is omitted."""
    return list(xs) if any(x != default for x in xs) else None


def pairs(xs: object, argument: str) -> list[tuple[int, int]]:
    """Checks a list of pairs of integers."""
    if not isinstance(xs, list | tuple) and not (isinstance(xs, np.ndarray) and xs.ndim):
        raise wrong(argument, f"expected pairs of integers, got {xs!r}")
    found = [integers(x, argument) for x in xs]
    for pair in found:
        if len(pair) != 2:
            raise wrong(argument, f"expected pairs, got {len(pair)} numbers: {list(pair)}")
    return [(a, b) for a, b in found]


def word(x: object, words: Any, argument: str) -> str:
    """Checks that x is one of the words of a Literal, ignoring case."""
    known = get_args(words)
    if isinstance(x, str) and x.upper() in known:
        return x.upper()
    raise wrong(argument, f"expected {', '.join(known[:-1])} or {known[-1]}, got {x!r}")


def enum(kind: str, x: str) -> EnumAttr:
    """Converts a word to an attribute."""
    return EnumAttr("stablehlo", kind, x)


def channel(handle: ChannelHandle, argument: str) -> StructAttr:
    """Converts the handle of a channel to an attribute."""
    number, kind = integer(handle.handle, argument), integer(handle.type, argument)
    return struct("stablehlo.channel_handle", handle=number, type=kind)


def struct(name: str, **given: Any) -> StructAttr:
    """Makes a struct attribute with its fields in order; fields that are not given have their defaults."""
    return StructAttr(name, tuple((key, given.get(key, default)) for key, _, default in STRUCTS[name]))
