"""Values whose shapes are unknown before a program is called."""

from __future__ import annotations

from collections.abc import Iterator

from shlo_jit.ir.core import Module, Op, Value, walk
from shlo_jit.ir.types import TensorType


def is_dynamic(value: Value) -> bool:
    """Whether a value's shape is unknown."""
    return isinstance(value.type, TensorType) and not value.type.is_static


def has_dynamic_shapes(module: Module) -> bool:
    """Whether any value has an unknown shape."""
    return any(True for function in module.functions() for _ in values_of_unknown_shape(function))


def values_of_unknown_shape(function: Op) -> Iterator[Value]:
    """Yields the values of a function whose shapes are unknown."""
    if not function.regions or not function.regions[0].blocks:
        return
    yield from filter(is_dynamic, function.block().arguments)
    for op in walk(function.block()):
        yield from filter(is_dynamic, op.results)
        for region in op.regions:
            for block in region.blocks:
                yield from filter(is_dynamic, block.arguments)
