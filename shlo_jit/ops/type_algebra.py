"""Type algebra of inference: compatibility, merging and printing of types whose dimensions may be unknown.

Inference returns what is statically known. A stated type is checked for compatibility with that, not for equality
(type inference document, P4). A dimension is a number, or None for `?`, which may have a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import (
    DType,
    ElementType,
    FunctionType,
    FutureType,
    OpaqueType,
    QuantizedType,
    ScalarType,
    TensorType,
    TokenType,
    TupleType,
    Type,
    tensor,
)
from shlo_jit.ops.record import Violation
from shlo_jit.sizes import whole

Shape = tuple[int | None, ...]
MAX_KNOWN = 1 << 16


# Printing


def element_text(dtype: ElementType) -> str:
    """Returns the text of an element type as printed by MLIR."""
    if isinstance(dtype, DType):
        return dtype.name
    storage = f"{dtype.storage_name}{dtype.limits}"
    pairs = [f"{s:e}" + (f":{z}" if z else "") for s, z in zip(dtype.scales, dtype.zero_points, strict=False)]
    if dtype.axis is None:
        return f"!quant.uniform<{storage}:{dtype.expressed.name}, {pairs[0]}>"
    return f"!quant.uniform<{storage}:{dtype.expressed.name}:{dtype.axis}, {{{','.join(pairs)}}}>"


def type_text(t: Type) -> str:
    """Returns the text of a type as printed by MLIR."""
    match t:
        case TensorType(shape, dtype, bounds, encoding):
            dims = "*x" if shape is None else "".join(f"{'?' if n is None else n}x" for n in shape)
            tail = f", {encoding}" if encoding else ""
            if bounds is not None:
                tail = f", #stablehlo.bounds<{', '.join('?' if b is None else str(b) for b in bounds)}>"
            return f"tensor<{dims}{element_text(dtype)}{tail}>"
        case TokenType():
            return "!stablehlo.token"
        case TupleType(types):
            return f"tuple<{', '.join(map(type_text, types))}>"
        case FutureType(types):
            return f"!stablehlo.future<{', '.join(map(type_text, types))}>"
        case FunctionType(inputs, results):
            return f"({', '.join(map(type_text, inputs))}) -> ({', '.join(map(type_text, results))})"
        case ScalarType(name):
            return name
        case OpaqueType(text):
            return text
    return repr(t)


def types_text(types: Iterable[Type]) -> str:
    return ", ".join(f"'{type_text(t)}'" for t in types)


def type_list(types: Iterable[Type]) -> str:
    return f"({', '.join(map(type_text, types))})"


def shape_text(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"


# Compatibility


def same_dim(a: int | None, b: int | None) -> bool:
    """Whether two extents can be equal at run time."""
    return a is None or b is None or a == b


def compatible_shapes(a: Shape | None, b: Shape | None) -> bool:
    """Whether two shapes can be equal at run time; None is an unknown rank."""
    if a is None or b is None or a == b:
        return True
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def compatible_elements(a: ElementType, b: ElementType) -> bool:
    """Whether types are equal, or quantized ones that differ only in scales, zero points and axis
    (`baseline_element_type`)."""
    if a is b or a == b:
        return True
    if isinstance(a, QuantizedType) and isinstance(b, QuantizedType):
        return (a.storage, a.storage_min, a.storage_max, a.expressed) == (
            b.storage,
            b.storage_min,
            b.storage_max,
            b.expressed,
        )
    return False


def compatible(a: Type, b: Type) -> bool:
    """Whether a value of one type may have the other type at run time."""
    if a is b:
        return True
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return (
            compatible_elements(a.dtype, b.dtype)
            and compatible_shapes(a.shape, b.shape)
            and within_bounds(a, b)
            and within_bounds(b, a)
        )
    if isinstance(a, TupleType | FutureType) and type(a) is type(b):
        return compatible_lists(a.types, b.types)  # type: ignore[union-attr]
    return a == b


def compatible_lists(a: Sequence[Type], b: Sequence[Type]) -> bool:
    return len(a) == len(b) and all(compatible(x, y) for x, y in zip(a, b, strict=True))


def within_bounds(a: TensorType, b: TensorType) -> bool:
    """Whether the static extents of `a` do not exceed the bounds of `b`."""
    if b.bounds is None or a.shape is None:
        return True
    return all(n is None or m is None or n <= m for n, m in zip(a.shape, b.bounds, strict=False))


# Elements


def expressed(dtype: ElementType) -> DType:
    """Returns the expressed type of a quantized type, otherwise the type itself."""
    return dtype.expressed if isinstance(dtype, QuantizedType) else dtype


def is_quantized(t: TensorType) -> bool:
    return isinstance(t.dtype, QuantizedType)


def per_axis(t: TensorType) -> bool:
    return isinstance(t.dtype, QuantizedType) and t.dtype.axis is not None


def is_promotable(source: ElementType, target: ElementType) -> bool:
    """Whether `is_promotable` of the specification holds: same kind of number, and not narrower."""
    if isinstance(source, QuantizedType) or isinstance(target, QuantizedType):
        return (
            isinstance(source, QuantizedType)
            and isinstance(target, QuantizedType)
            and source.expressed == target.expressed
            and source.storage.bits <= target.storage.bits
        )
    if source == target:
        return True
    families = {"i": "integer", "u": "integer"}
    same = families.get(source.kind, source.kind) == families.get(target.kind, target.kind)
    return same and source.bits <= target.bits


# Merging


def merge(types: Sequence[TensorType], label: str = "C1") -> TensorType:
    """Merges the types of one value: a dimension that is static in one of them is static in the result. Raises
    Violation."""
    first = types[0]
    if all(t is first or t == first for t in types):
        return first
    ranked = [t for t in types if t.shape is not None]
    if not ranked:
        return first
    first = ranked[0]
    shape: list[int | None] = list(first.extents if first.is_static else first.shape)  # type: ignore[arg-type]
    bounds: list[int | None] = list(first.bounds or [None] * len(shape))
    for t in ranked[1:]:
        assert t.shape is not None
        if len(t.shape) != len(shape):
            raise Violation(label, f"requires the same shape for all operands and results, got {types_text(types)}")
        for i, n in enumerate(t.shape):
            if not same_dim(shape[i], n):
                raise Violation(label, f"requires the same shape for all operands and results, got {types_text(types)}")
            shape[i] = n if shape[i] is None else shape[i]
            bound = t.bounds[i] if t.bounds else None
            if bound is not None:
                bounds[i] = bound if bounds[i] is None else min(bound, bounds[i])  # type: ignore[type-var]
    check_bounds(label, shape, bounds)
    return with_bounds(tuple(shape), first.dtype, bounds)


def check_bounds(label: str, shape: Sequence[int | None], bounds: Sequence[int | None]) -> None:
    """Checks that no extent of one type exceeds the bound of another."""
    for d, (n, bound) in enumerate(zip(shape, bounds, strict=True)):
        if n is not None and bound is not None and n > bound:
            raise Violation(label, f"Mismatched dimension size {n} and bound {bound} in dimension {d}")


def with_bounds(shape: Shape, dtype: ElementType, bounds: Sequence[int | None] | None) -> TensorType:
    """Returns a tensor type; bounds of static dimensions are dropped."""
    if bounds is not None and any([b is not None for b in bounds]):
        kept = tuple(None if n is not None else b for n, b in zip(shape, bounds, strict=True))
        if any(b is not None for b in kept):
            for n, b in zip(shape, kept, strict=True):
                assert n is None or b is None
            return TensorType(shape, dtype, kept)
    return tensor(shape, dtype)


def bounds_of(t: TensorType) -> list[int | None]:
    """Returns a bound or None for each dimension."""
    return list(t.bounds) if t.bounds is not None else [None] * t.rank


def with_element(t: TensorType, dtype: ElementType) -> TensorType:
    """Returns the type with another element type."""
    if t.bounds is None and not t.encoding:
        return tensor(t.shape, dtype)
    return TensorType(t.shape, dtype, t.bounds, t.encoding)


# Operands


def operand_type(op: Op, index: int) -> TensorType:
    t = op.operands[index].type
    assert isinstance(t, TensorType)
    return t


def stated_result(op: Op, index: int = 0) -> TensorType:
    """Returns the type that the program states for a result."""
    t = op.results[index].type
    assert isinstance(t, TensorType)
    return t


def operand_types(op: Op, start: int = 0, stop: int | None = None) -> list[TensorType]:
    return [v.type for v in op.operands[start:stop]]  # type: ignore[misc]


def constant_value(value: Value) -> np.ndarray | None:
    """Returns the array that a value is known to have at compile time, or None. `Value.sizes` are an array of
    objects."""
    if value.sizes is not None:
        return value.sizes
    op = value.op
    if op is None or op.name not in ("stablehlo.constant", "arith.constant", "chlo.constant"):
        return None
    attr = op.attributes.get("value")
    if not isinstance(attr, Dense):
        return None
    t = value.type
    fits = isinstance(t, TensorType) and compatible_shapes(attr.type.shape, t.shape)  # or the constant is rejected
    return attr.array if fits else None


def constant_ints(value: Value) -> tuple[int, ...] | None:
    """Returns the known integers of a rank-1 (or rank-0) value, or None; more than `MAX_KNOWN` cannot be a shape."""
    array = constant_value(value)
    return None if array is None or array.size > MAX_KNOWN else tuple(map(whole, array.reshape(-1)))


# Inference shared by families


def same_type(op: Op) -> list[Type]:
    """Infers the common type of all operands (except for quantization parameters), which the result has, too."""
    operands = op.operands
    first = operands[0].type
    for v in operands:
        if v.type is not first:
            break
    else:
        if compatible(first, op.results[0].type):
            return [first]
    types = [v.type for v in operands]
    for t in types[1:]:
        if not isinstance(t, TensorType) or not compatible_elements(t.dtype, first.dtype):  # type: ignore[union-attr]
            every = types_text(types)
            raise Violation("C1", f"requires the same element type for all operands and results, got {every}")
    merged = merge(types)  # type: ignore[arg-type]
    stated = op.results[0].type
    if isinstance(stated, TensorType) and not compatible_shapes(merged.shape, stated.shape):
        every = types_text([*types, stated])
        raise Violation("C1", f"requires the same shape for all operands and results, got {every}")
    return [merged]


def check_shape(label: str, inferred: Shape | None, stated: TensorType) -> None:
    """Checks that the stated result has the shape inferred from the operands."""
    if not compatible_shapes(inferred, stated.shape):
        raise Violation(
            label,
            f"inferred shape '{shape_text(inferred or ())}' is incompatible with return type of operation "
            f"'{type_text(stated)}'",
        )


def check_disjoint(label: str, first: str, a: Sequence[int], second: str, b: Sequence[int]) -> None:
    """Checks that no dimension occurs twice in two lists."""
    both = [*a, *b]
    if len(set(both)) == len(both):
        return
    for i, d in enumerate(both):
        if d in both[:i]:
            raise Violation(label, f"has duplicated dimension from {first} and {second}: {d}")


def check_unique(label: str, what: str, dims: Sequence[int]) -> None:
    if len(set(dims)) != len(dims):
        twice = next(d for i, d in enumerate(dims) if d in dims[:i])
        raise Violation(label, f"{what} has duplicated dimension: {twice}, expects no repeats, got {list(dims)}")


def check_range(label: str, what: str, dims: Sequence[int], rank: int, of: str = "") -> None:
    for d in dims:
        if d < 0 or d >= rank:
            where = f", rank-of('{of}')" if of else ""
            raise Violation(label, f"{what} value: {d} is out of range: [0, {rank}){where}")
