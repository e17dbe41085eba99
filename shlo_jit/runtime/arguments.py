"""Converts a caller's arguments to C-contiguous, aligned arrays of exactly the port's shape and dtype.

Arrays are never cast. Python numbers become rank-0 arrays if the port's dtype can hold them, floats after rounding.
"""

from __future__ import annotations

import keyword
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shlo_jit.codegen.abi import AT_CALL
from shlo_jit.codegen.program import Port
from shlo_jit.errors import UsageError, UsageTypeError, UsageValueError
from shlo_jit.runtime.argument_hints import cast_hint, kind_hint, number_hint, order_hint, shape_hint
from shlo_jit.runtime.dlpack import foreign_array
from shlo_jit.suggest import did_you_mean

if TYPE_CHECKING:
    from shlo_jit.runtime.ports import DynamicPort


class Named(Protocol):
    """An object with a name, such as a port."""

    @property
    def name(self) -> str: ...


def check_count(given: int, ports: Sequence[Port | DynamicPort]) -> None:
    """Raises TypeError unless there is an argument for every port."""
    if given != len(ports):
        names = ", ".join(describe(port) for port in ports)
        expected = f"{len(ports)} argument{'' if len(ports) == 1 else 's'}"
        known = port_names(ports)
        missing = f"missing: {', '.join(known[given:])}" if given < len(ports) <= MOST_NAMES else ""
        message = f"expected {expected}{f' ({names})' if 0 < len(ports) <= MOST_NAMES else ''}, got {given}"
        raise UsageTypeError(message, code="argument.count", hint=missing)


MOST_NAMES = 8
"""Maximum number of arguments that a message names."""


def port_names(ports: Sequence[Named]) -> list[str]:
    """Returns names for arguments, as Python accepts them: the program's own if all of them are usable."""
    names = [port.name for port in ports]
    usable = all(n.isidentifier() and not keyword.iskeyword(n) for n in names) and len(set(names)) == len(names)
    return names if usable else [f"arg{i}" for i in range(len(ports))]


def arranged(args: Sequence[Any], named: Mapping[str, Any], ports: Sequence[Port | DynamicPort]) -> tuple[Any, ...]:
    """Returns a call's arguments in the order of the ports. A name is the port's own, or the one of `port_names`.
    Raises TypeError for an unknown name, an argument that is given twice and a missing one."""
    if len(args) > len(ports):
        check_count(len(args) + len(named), ports)
    often = Counter(port.name for port in ports)
    known = {port.name: i for i, port in enumerate(ports) if often[port.name] == 1}
    known |= {name: i for i, name in enumerate(port_names(ports))}
    found = dict(enumerate(args))
    for name, value in named.items():
        if name not in known:
            message = f"there is no argument {name!r}: expected {', '.join(port_names(ports)) or 'none'}"
            raise UsageTypeError(message, code="argument.name", hint=did_you_mean(name, known))
        if known[name] in found:
            message = f"{name_of(known[name], ports[known[name]])} is given twice"
            raise UsageTypeError(message, code="argument.name", hint="give it by position or by name")
        found[known[name]] = value
    missing = [name_of(i, port) for i, port in enumerate(ports) if i not in found]
    if missing:
        message = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        raise UsageTypeError(message, code="argument.count")
    return tuple(found[i] for i in range(len(ports)))


def convert(value: Any, index: int, port: Port) -> np.ndarray:
    """Returns the array that a program can read for argument `index`. It is `value` itself, a copy, or a view: do not
    write to it. Raises TypeError for a wrong kind or dtype, ValueError for a wrong shape or a number out of range."""
    array = take_checked(value, index, port)
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = np.array(array, dtype=port.dtype.numpy, order="C", copy=True, subok=False)
    return array


def take_checked(value: Any, index: int, port: Port) -> np.ndarray:
    """Returns an array of the port's dtype and shape, with any strides. Raises as `convert`."""
    array = take(value, index, port)
    if array.shape != port.shape:
        message = f"{name_of(index, port)}: expected {describe(port)}, got {describe_array(array)}"
        raise UsageValueError(message, code="argument.shape", hint=shape_hint(array, port))
    return array


def take(value: Any, index: int, port: Port | DynamicPort) -> np.ndarray:
    """Returns an array of the port's dtype, with any shape and strides. Raises TypeError and ValueError as
    `convert`."""
    dtype = port.dtype.numpy
    if isinstance(value, np.ndarray | np.generic):
        _refuse_masked(value, index, port)
        array = np.asarray(value)
    elif isinstance(value, bool | int | float | complex):
        array = _number(value, index, port)
    else:
        array = _foreign(value, index, port)
    if array.dtype != dtype:
        if array.dtype.newbyteorder("=") != dtype:
            message = f"{name_of(index, port)}: expected {describe(port)}, got {describe_array(array)}"
            raise UsageTypeError(message, code="argument.dtype", hint=cast_hint(array, dtype))
        array = array.astype(dtype)
    return array


def in_order(error: UsageError, args: Sequence[Any], ports: Sequence[Port | DynamicPort]) -> UsageError:
    """Returns the error of an argument. If the arrays are only in another order, returns an error that says so."""
    hint = order_hint(args, ports, [port.name or f"argument {i}" for i, port in enumerate(ports)])
    if not hint:
        return error
    message = str(error).removesuffix(f"; {error.hint}") if error.hint else str(error)
    return type(error)(message, code="argument.order", hint=hint)


def name_of(index: int, port: Port | DynamicPort) -> str:
    """Returns the name of an argument, for messages."""
    return f"argument {index} ({port.name})" if port.name else f"argument {index}"


def describe(port: Port | DynamicPort) -> str:
    """Returns the expected dtype and shape, for messages."""
    return f"{port.dtype.numpy.name}[{shape_text(port.shape, getattr(port, 'bounds', None))}]"


def shape_text(shape: Sequence[int | None] | None, bounds: Sequence[int | None] | None = None) -> str:
    """Returns a shape as text: `8,3`; `?,3` if a dimension is unknown, or known only at the call; `<=4,3` if it has an
    upper bound; `*` for any rank."""
    if shape is None:
        return "*"
    limits = bounds or [None] * len(shape)
    unknown = ["?" if most is None else f"<={most}" for most in limits]
    return ",".join(text if n in (None, AT_CALL) else str(n) for n, text in zip(shape, unknown, strict=True))


def describe_array(array: np.ndarray) -> str:
    """Returns dtype and shape, for messages."""
    dtype = array.dtype
    name = dtype.name if dtype.isnative else f"byte-swapped {dtype.name}"
    return f"{name}[{','.join(map(str, array.shape))}]"


def _refuse_masked(value: object, index: int, port: Port | DynamicPort) -> None:
    """Raises for masked elements, which have no value. If there is a masked array, its module has been imported."""
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray) and masked.is_masked(value):
        message = f"{name_of(index, port)}: expected {describe(port)}, got a masked array with masked elements"
        raise UsageTypeError(message, code="argument.kind", hint="use its .filled(value)")


def _foreign(value: Any, index: int, port: Port | DynamicPort) -> np.ndarray:
    """Returns an array of another library."""
    try:
        found = foreign_array(value)
    except TypeError as error:
        raise UsageTypeError(f"{name_of(index, port)}: {error}", code="argument.kind") from error
    if found is not None:
        return found
    message = f"{name_of(index, port)}: expected {describe(port)}, got {type(value).__name__}"
    raise UsageTypeError(message, code="argument.kind", hint=kind_hint(value, port))


def _number(value: complex, index: int, port: Port | DynamicPort) -> np.ndarray:
    """Returns a Python number as a rank-0 array."""
    dtype, kind = port.dtype.numpy, port.dtype.kind
    if port.shape not in ((), None):
        message = f"{name_of(index, port)}: expected {describe(port)}, got the number {_shown(value)}"
        raise UsageValueError(message, code="argument.shape", hint=number_hint(value, port))
    if isinstance(value, complex) and kind != "c":
        message = f"{name_of(index, port)}: expected {describe(port)}, got the complex number {value!r}"
        raise UsageTypeError(message, code="argument.dtype", hint="pass its .real")
    if kind in "biux" and not isinstance(value, complex):
        return _integer(value, index, port)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.asarray(complex(value) if kind == "c" else complex(value).real).astype(dtype)
    except OverflowError:
        array = None
    if array is None or not _holds(array, value):
        message = f"{name_of(index, port)}: {_shown(value)} is out of range for {dtype.name}"
        raise UsageValueError(message, code="argument.range")
    return array


def _shown(value: complex) -> str:
    """Returns a number for a message, even if Python refuses to print a long one."""
    if isinstance(value, int) and value.bit_length() > 4096:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def _holds(array: np.ndarray, value: complex) -> bool:
    """Whether a number is the other one, rounded. Types without infinity or NaN convert those, and numbers that are too
    large, to numbers of their own."""
    rounded = complex(array)
    if array.dtype.kind == "c" or array.dtype.itemsize > 1:
        return _finite(rounded) or not _finite(value)
    given, got = complex(value).real, rounded.real
    if not math.isfinite(given):
        return math.isnan(got) if math.isnan(given) else got == given
    import ml_dtypes

    limits = ml_dtypes.finfo(array.dtype)
    largest = float(limits.max)
    half_a_step = float(limits.eps) * 2.0 ** (math.frexp(largest)[1] - 2)
    return math.isfinite(got) and (abs(got) != largest or abs(given) < largest + half_a_step)


def _finite(value: complex) -> bool:
    try:
        z = complex(value)
    except OverflowError:
        return True
    return math.isfinite(z.real) and math.isfinite(z.imag)


def _integer(value: float, index: int, port: Port | DynamicPort) -> np.ndarray:
    """Returns an exactly representable number as an integer or boolean."""
    dtype = port.dtype.numpy
    if isinstance(value, float) and not value.is_integer():
        message = f"{name_of(index, port)}: expected {describe(port)}, got the float {value!r}"
        raise UsageTypeError(message, code="argument.dtype", hint="round it: int(x)" if math.isfinite(value) else "")
    if port.dtype.kind == "b":
        low, high = 0, 1
    else:
        import ml_dtypes

        info = ml_dtypes.iinfo(dtype)
        low, high = int(info.min), int(info.max)
    whole = int(value)
    if not low <= whole <= high:
        message = f"{name_of(index, port)}: {_shown(value)} is out of range for {dtype.name} ({low} to {high})"
        raise UsageValueError(message, code="argument.range")
    return np.asarray(whole).astype(dtype) if abs(whole) < 1 << 63 else np.asarray(whole, dtype)
