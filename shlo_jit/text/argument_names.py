"""Names of a function's arguments and results for callers, and the arguments that callers donate.

Frontends write `%arg0` and give the name separately. JAX puts it in the argument's location,
`%arg0: tensor<2xf32> loc("x")`, or in the attribute `jax.arg_info`. Names of results are in `jax.result_info`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from shlo_jit.ir.attributes import DictAttr, OpaqueAttr
from shlo_jit.ir.core import Op, function_type
from shlo_jit.text.lexer import unescape
from shlo_jit.text.strings import STRING

DONATED = ("tf.aliasing_output", "jax.buffer_donor")
"""Attributes of arguments whose memory may be reused for results."""
_NAMING = re.compile(r"(^|[._])(name|arg_info)$")
"""Attributes of arguments whose values are names."""
_NAMED = re.compile(rf"loc\(({STRING})\)")


def argument_names(function: Op) -> list[str]:
    """Returns the name of each argument: from its location or `jax.arg_info` if that is unique, otherwise from the
    text."""
    block = function.block()
    locations = block.locations or (None,) * len(block.arguments)
    said = [_location_name(at) or info for at, info in zip(locations, _info(function, "arg"), strict=True)]
    often = Counter(said)
    return [n if n and often[n] == 1 else a.name for n, a in zip(said, block.arguments, strict=True)]


def known_names(function: Op) -> list[set[str]]:
    """Returns all names of each argument: the one in the text with and without `%`, that of its location, and those in
    attributes such as `jax.arg_info` and `tf.name`."""
    block = function.block()
    locations = block.locations or (None,) * len(block.arguments)
    described: Sequence[object] = function.attributes.get("arg_attrs") or (None,) * len(block.arguments)
    found: list[set[str]] = []
    for argument, location, attributes in zip(block.arguments, locations, described, strict=True):
        items = attributes.items if isinstance(attributes, DictAttr) else ()
        names = {value for name, value in items if isinstance(value, str) and _NAMING.search(name)}
        found.append({argument.name, f"%{argument.name}", _location_name(location), *names} - {""})
    return found


def result_names(function: Op) -> list[str]:
    """Returns the `jax.result_info` of each result; empty if it has none."""
    return _info(function, "result")


def donated_arguments(function: Op) -> list[int]:
    """Returns the indices of arguments whose memory the program may reuse for results."""
    described = function.attributes.get("arg_attrs") or ()
    return [
        i
        for i, attributes in enumerate(described)
        if any(attributes.get(name) not in (None, False) for name in DONATED)
    ]


def _info(function: Op, of: str) -> list[str]:
    type = function_type(function)
    described = function.attributes.get("arg_attrs" if of == "arg" else "res_attrs")
    found = [a.get(f"jax.{of}_info") for a in described] if described else []
    names = [name if isinstance(name, str) else "" for name in found]
    return names or [""] * len(type.inputs if of == "arg" else type.results)


def _location_name(location: object) -> str:
    """Returns the name that a location consists of; empty for other locations."""
    found = _NAMED.fullmatch(location.text) if isinstance(location, OpaqueAttr) else None
    return unescape(found[1]) if found else ""
