"""Replace arguments of a function by constants.

func @main(%x: ..., %w: ...)   ->   func @main(%x: ...) { %w = stablehlo.constant ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import I64, tensor
from shlo_jit.passes.rewriter import Rewriter, rebuilt
from shlo_jit.text.pretty_func import drop_empty_dictionaries

if TYPE_CHECKING:
    from shlo_jit.ir.attributes import DictAttr


def with_constant_arguments(function: Op, constants: Mapping[Value, Dense]) -> Op:
    """Returns the function without the arguments in `constants`, whose readers read these values instead.

    A value may have a fixed shape where its argument has unknown dimensions.
    """
    described: Sequence[DictAttr | None] = function.attributes.get("arg_attrs") or ()
    old = function.block()
    rw = Rewriter(lambda rw, op, operands: None)
    rw.current = function
    left = [argument for argument in old.arguments if argument not in constants]
    for argument in left:
        rw.values[argument] = Value(argument.type, name=argument.name)
    rw.blocks.append(Block([rw.values[a] for a in left], label=old.label))
    for argument in old.arguments:
        if argument in constants:
            value = rw.values[argument] = _constant(rw, argument, constants[argument])
            value.name = argument.name
    rw.run(old.ops)
    new = rebuilt(function, rw.block)
    if described:
        new.attributes["arg_attrs"] = tuple(
            attributes for a, attributes in zip(old.arguments, described, strict=True) if a not in constants
        )
        drop_empty_dictionaries(new.attributes)
    if old.locations:
        places = zip(old.arguments, old.locations, strict=True)
        new.block().locations = tuple(place for a, place in places if a not in constants)
    return new


def _constant(rw: Rewriter, argument: Value, value: Dense) -> Value:
    """Emits a constant of the argument's type."""
    made = rw.emit1("stablehlo.constant", [], value.type, {"value": value})
    if argument.type == value.type or argument.tensor.shape is None:  # readers of any rank take a known one as well
        return made
    extents = np.array(value.type.extents, np.int64)
    type = tensor(extents.shape, I64)
    shape = rw.emit1("stablehlo.constant", [], type, {"value": Dense(type, extents)})
    return rw.emit1("stablehlo.dynamic_reshape", [made, shape], argument.type)
