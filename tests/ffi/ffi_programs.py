"""Programs with calls of handlers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

import shlo_jit

X = np.arange(4, dtype=np.float32)
F4 = "tensor<4xf32>"


def call(
    target: str,
    config: str = "",
    operands: str = "%x",
    types: str = f"({F4}) -> {F4}",
    more: str = "",
    result: str = "%r",
) -> str:
    """Returns a call of API version 4; `config` is the contents of its dictionary."""
    head = f"{result} = " if result else ""
    config = f", backend_config = {{{config}}}" if config else ""
    return f"  {head}stablehlo.custom_call @{target}({operands}) {{api_version = 4 : i32{config}{more}}} : {types}\n"


def program(body: str, arguments: str = f"%x: {F4}", results: str = F4, returned: str = "%r") -> str:
    returned = f"{returned} : {results.strip('()')}" if returned else ""
    return f"func.func @main({arguments}) -> ({results.strip('()')}) {{\n{body}  return {returned}\n}}\n"


def compiled(text: str, calls: Mapping[str, Any], **options: Any) -> Any:
    return shlo_jit.compile(text, custom_calls=calls, **options)


def simple(handlers: ctypes.CDLL, target: str, config: str = "", **options: Any) -> Any:
    """Returns the executable of one call over four floats."""
    return compiled(program(call(target, config)), {target: getattr(handlers, target)}, **options)


def capsule(address: Any) -> Any:
    """Returns a capsule without a name, as `jax.ffi.pycapsule` does."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return new(ctypes.cast(address, ctypes.c_void_p).value if not isinstance(address, int) else address, None, None)
