"""What callers see of a function's arguments and results: their names, and which arguments they give up.

Frontends write `%arg0` and say the name beside it: JAX in the argument's location, `%arg0: tensor<2xf32> loc("x")`,
other versions of it in the attribute `jax.arg_info`, and of results in `jax.result_info`.
"""

from __future__ import annotations

import re
from collections import Counter

from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Op, function_type
from shlo_jit.text.lexer import unescape
from shlo_jit.text.strings import STRING

DONATED = ("tf.aliasing_output", "jax.buffer_donor")
"""Attributes of arguments whose memory results may take over."""
_NAMED = re.compile(rf"loc\(({STRING})\)")


def argument_names(function: Op) -> list[str]:
    """Of each argument: what its location or `jax.arg_info` calls it, unless others are called so too; else what the
    text does."""
    block = function.block()
    locations = block.locations or (None,) * len(block.arguments)
    said = [_location_name(at) or info for at, info in zip(locations, _info(function, "arg"), strict=True)]
    often = Counter(said)
    return [n if n and often[n] == 1 else a.name for n, a in zip(said, block.arguments, strict=True)]


def result_names(function: Op) -> list[str]:
    """Of each result: its `jax.result_info`; empty where there is none."""
    return _info(function, "result")


def donated_arguments(function: Op) -> list[int]:
    """Arguments that the program lets results have the memory of."""
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
    """The name that a location consists of; empty of others."""
    found = _NAMED.fullmatch(location.text) if isinstance(location, OpaqueAttr) else None
    return unescape(found[1]) if found else ""
