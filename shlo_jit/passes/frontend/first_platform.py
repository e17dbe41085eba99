"""Remove the platform index: the argument that `jax.export` adds to a program for several platforms.

Needs: a verified entry function. Guarantees: it has no argument with `jax.global_constant = "_platform_index"`; its
readers read 0, the first of the platforms that the program was exported for (its text does not name them), or the index
in the argument's attribute `shlo_jit.platform`. Callers of the exported function do not pass that argument either.

    func @main(%i: tensor<i32> {jax.global_constant = "_platform_index"}, %x: ...)   ->   func @main(%x: ...)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.attributes import Dense, DictAttr, IntegerAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I32, I64, TensorType
from shlo_jit.passes.context import Context
from shlo_jit.passes.frontend.constant_arguments import with_constant_arguments

NAME = "jax.global_constant"
PLATFORM = "_platform_index"
CHOSEN = "shlo_jit.platform"
INDEX = (TensorType((), I32), TensorType((), I64))


def first_platform(function: Op, _: Context) -> Op:
    """The function without the platform argument."""
    described: Sequence[DictAttr | None] = function.attributes.get("arg_attrs") or ()
    old = function.block()
    known = {
        argument: _index(attributes)
        for argument, attributes in zip(old.arguments, described, strict=False)
        if attributes is not None and attributes.get(NAME) == PLATFORM and argument.type in INDEX
    }
    if not known:
        return function
    values = {a: Dense(a.tensor, np.array(index, a.tensor.storage.numpy)) for a, index in known.items()}
    return with_constant_arguments(function, values)


def _index(attributes: DictAttr) -> int:
    """Returns the index of the platform that the argument's attributes choose, or 0."""
    chosen = attributes.get(CHOSEN)
    return chosen.value if isinstance(chosen, IntegerAttr) else 0
