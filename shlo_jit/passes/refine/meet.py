"""Meet of two types of one value: the type with the information of both."""

from __future__ import annotations

from shlo_jit.ir.types import TensorType, TupleType, Type, tensor
from shlo_jit.ops.type_algebra import compatible_elements, type_text, with_bounds


class Contradiction(Exception):
    """Two types that no value can have at the same time; the message has both."""


def meet(stated: Type, found: Type) -> Type:
    """Returns the type with the information of both. Raises Contradiction."""
    if stated == found:
        return stated
    if isinstance(stated, TensorType) and isinstance(found, TensorType):
        return _tensors(stated, found)
    if isinstance(stated, TupleType) and isinstance(found, TupleType) and len(stated.types) == len(found.types):
        return TupleType(tuple(meet(a, b) for a, b in zip(stated.types, found.types, strict=True)))
    raise Contradiction(f"'{type_text(stated)}' and '{type_text(found)}'")


def _tensors(stated: TensorType, found: TensorType) -> TensorType:
    both = f"'{type_text(stated)}' and '{type_text(found)}'"
    if not compatible_elements(stated.dtype, found.dtype):
        raise Contradiction(both)
    if stated.shape is None or found.shape is None:
        return found if stated.shape is None else stated
    if len(stated.shape) != len(found.shape):
        raise Contradiction(both)
    shape, bounds = [], []
    for d, (a, b) in enumerate(zip(stated.shape, found.shape, strict=True)):
        if a is not None and b is not None and a != b:
            raise Contradiction(f"{both} (dimension {d} is {a}, and {b})")
        extent = b if a is None else a
        limits = [t.bounds[d] for t in (stated, found) if t.bounds is not None and t.bounds[d] is not None]
        limit = min(limits, default=None)  # type: ignore[type-var]
        if extent is not None and limit is not None and extent > limit:
            raise Contradiction(f"{both} (dimension {d} is {extent}, and at most {limit})")
        shape.append(extent)
        bounds.append(limit)
    if any(b is not None for b in bounds):
        return with_bounds(tuple(shape), stated.dtype, bounds)
    return tensor(tuple(shape), stated.dtype)
