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
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import I32, I64, TensorType
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rebuilt
from shlo_jit.text.pretty_func import drop_empty_dictionaries

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
    rw = Rewriter(lambda rw, op, operands: None)
    for argument in old.arguments:
        rw.values[argument] = Value(argument.type, name=argument.name)
    rw.blocks.append(Block([rw.values[a] for a in old.arguments if a not in known]))
    for argument, index in known.items():
        value = {"value": Dense(argument.tensor, np.array(index, argument.tensor.storage.numpy))}
        rw.values[argument] = rw.emit1("stablehlo.constant", [], argument.type, value)
    rw.run(old.ops)
    new = rebuilt(function, rw.block)
    left = [attributes for a, attributes in zip(old.arguments, described, strict=True) if a not in known]
    new.attributes["arg_attrs"] = tuple(left)
    if old.locations:
        places = zip(old.arguments, old.locations, strict=True)
        new.block().locations = tuple(place for a, place in places if a not in known)
    drop_empty_dictionaries(new.attributes)
    return new


def _index(attributes: DictAttr) -> int:
    """Returns the index of the platform that the argument's attributes choose, or 0."""
    chosen = attributes.get(CHOSEN)
    return chosen.value if isinstance(chosen, IntegerAttr) else 0
