"""Parameters of a function that have the same value in every call, and so are not passed."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shlo_jit.errors import UsageTypeError, UsageValueError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def by_parameter(signature: inspect.Signature, given: object) -> dict[str, Any]:
    """Returns the values by the names of parameters, in their order. `given` has them by name or position. Raises
    UsageTypeError and UsageValueError for a parameter that the function does not have, or that is given twice."""
    if not isinstance(given, Mapping):
        message = f"constants: expected a dictionary of values by parameter, got {type(given).__name__}"
        raise UsageTypeError(message, code="option.kind")
    names = [name for name, p in signature.parameters.items() if p.kind in _POSITIONAL]
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    known = {
        name for name, p in signature.parameters.items() if p.kind in (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
    }
    found: dict[str, Any] = {}
    for key, value in given.items():
        is_position = isinstance(key, int) and not isinstance(key, bool)
        if is_position and 0 <= key < len(names):
            name = names[key]
        elif isinstance(key, str) and (key in known or takes_any):
            name = key
        else:
            known_names = ", ".join(signature.parameters) or "none"
            raise _wrong(f"the function has no parameter {key!r}; it has {known_names}")
        if name in found:
            raise _wrong(f"parameter {name!r} is given twice")
        found[name] = value
    return {name: found[name] for name in (*signature.parameters, *found) if name in found}


def _wrong(message: str) -> UsageValueError:
    return UsageValueError(f"constants: {message}", code="option.value")


def without(signature: inspect.Signature, names: Iterable[str]) -> inspect.Signature:
    """Returns the signature of calls that do not pass these parameters."""
    bound = set(names)
    return signature.replace(parameters=[p for name, p in signature.parameters.items() if name not in bound])


def position_left(signature: inspect.Signature, names: Iterable[str], position: int) -> int:
    """Returns the position in such a call of the parameter at a position of the function. Raises UsageValueError if
    it is one of the names."""
    known, bound = [*signature.parameters], set(names)
    if position < len(known) and known[position] in bound:
        raise _wrong(f"parameter {known[position]!r} is a constant, and can be neither static nor donated")
    return position - sum(name in bound for name in known[:position])


def full_call(
    signature: inspect.Signature, values: Mapping[str, Any], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of a call with these values for the parameters that it does not pass. Raises
    UsageTypeError if it passes one of them by name."""
    for name in values:
        if name in named:
            message = f"argument {name!r} is a constant of the function, and not passed in calls"
            raise UsageTypeError(message, code="argument.name")
    full: list[Any] = []
    rest, keywords = list(args), dict(named)
    for name, parameter in signature.parameters.items():
        is_positional = parameter.kind in _POSITIONAL
        if name in values:
            if is_positional and (rest or parameter.kind is inspect.Parameter.POSITIONAL_ONLY):
                full.append(values[name])
            else:
                keywords[name] = values[name]
        elif is_positional and rest:
            full.append(rest.pop(0))
    keywords |= {name: value for name, value in values.items() if name not in signature.parameters}
    return [*full, *rest], keywords
