"""Ops whose result shape is computed at run time (dynamism document; section `Dynamism` of the specification).

If the operand that gives the shape is a constant, inference uses its value. Shape refinement relies on this.
"""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I32, WITNESS, ScalarType, TensorType, Type, tensor
from shlo_jit.ops.broadcast import broadcast_in_dim, check_broadcast, check_broadcast_axis
from shlo_jit.ops.kinds import type_kind
from shlo_jit.ops.numeric import Array, result_dtype
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.shape import check_reshape_axis, iota, pad, pad_type, same_elements
from shlo_jit.ops.type_algebra import (
    Shape,
    bounds_of,
    compatible_elements,
    compatible_shapes,
    constant_ints,
    operand_type,
    operand_types,
    per_axis,
    same_dim,
    shape_text,
    stated_result,
    type_text,
    with_bounds,
)

TRAITS = {"moves_data", "looks_at_operands"}


def _shaped(op: Op, operand: int, label: str, name: str) -> TensorType:
    """Returns the stated result type, made static if the shape operand (`name`) is a constant."""
    result = stated_result(op)
    known = constant_ints(op.operands[operand])
    vector = operand_type(op, operand)
    if known is None:
        rank = vector.shape[0] if vector.shape else None
        if result.shape is not None and not same_dim(rank, result.rank):
            raise Violation(label, f"result rank ({result.rank}) is not equal to {name} size ({rank})")
        return result
    if any(n < 0 for n in known) or not compatible_shapes(known, result.shape):
        raise Violation(
            label,
            f"output shape {shape_text(known)} is incompatible with return type of operation '{type_text(result)}'",
        )
    return with_bounds(known, result.dtype, None)


# dynamic_broadcast_in_dim


def _infer_broadcast(op: Op) -> list[Type]:
    t, dims = operand_type(op, 0), op.ints("broadcast_dimensions")
    result = _shaped(op, 1, "C7", "output_dimensions")
    same_elements(op, spreads=True)
    if result.shape is not None:
        stated = stated_result(op).shape or result.shape
        check_broadcast(op, dims, stated, "is not compatible with size of result dimension {d} ({m})")
        check_broadcast(op, dims, result.shape, "is not equal to 1 or value of shape at index {d} ({m})")
        if per_axis(result):
            check_broadcast_axis(t, result, dims)
    _check_expansion_hints(op, t)
    return [result]


def _check_expansion_hints(op: Op, t: TensorType) -> None:
    expanding = op.ints("known_expanding_dimensions", ())
    fixed = op.ints("known_nonexpanding_dimensions", ())
    both = expanding + fixed
    if len(set(both)) != len(both):
        raise Violation("C8", "duplicate expansion hint for at least one operand dimension")
    for label, dims in (("C9", expanding), ("C10", fixed)):
        for d in dims:
            if t.shape is not None and not 0 <= d < t.rank:
                raise Violation(label, f"hint for expanding dimension {d} does not refer to a valid operand dimension")


define(
    "stablehlo.dynamic_broadcast_in_dim", section="",
    operands=("operand: any_tensor", "output_dimensions: shape"), results=("result: any_tensor",),
    attributes={
        "broadcast_dimensions": required("ints"),
        "known_expanding_dimensions": optional("ints"),
        "known_nonexpanding_dimensions": optional("ints"),
    },
    traits={*TRAITS, "chooses_result"}, infer=_infer_broadcast,
    reference=lambda op, x, s: broadcast_in_dim(x, tuple(map(int, s)), op.ints("broadcast_dimensions")),
)  # fmt: skip

# dynamic_iota, dynamic_reshape


def _infer_iota(op: Op) -> list[Type]:
    result = _shaped(op, 0, "C2", "output_shape")
    d = op.int("iota_dimension")
    if result.shape is not None and d >= len(result.shape):
        raise Violation(
            "C1", f"iota dimension cannot go beyond the output rank or be negative. Got {d} of {result.rank}."
        )
    return [result]


def _infer_reshape(op: Op) -> list[Type]:
    t, result = operand_type(op, 0), _shaped(op, 1, "C4", "output_shape")
    same_elements(op)
    if t.is_static and result.is_static and t.size != result.size:
        raise Violation(
            "C2",
            f"output_shape is incompatible with input type of operation: input has {t.size} elements, "
            f"but output_shape has {result.size}",
        )
    if per_axis(t) and t.is_static and result.is_static:
        check_reshape_axis(t, result)
    return [result]


define(
    "stablehlo.dynamic_iota", section="",
    operands=("output_shape: shape",), results=("result: int|float|complex|quant",),
    attributes={"iota_dimension": required("i64 >= 0", "C1")},
    traits={"looks_at_operands", "chooses_result"}, infer=_infer_iota,
    reference=lambda op, s: iota(tuple(map(int, s)), op.int("iota_dimension"), result_dtype(op)),
)  # fmt: skip
define(
    "stablehlo.dynamic_reshape", section="",
    operands=("operand: any_tensor", "output_shape: shape"), results=("result: any_tensor",),
    traits={*TRAITS, "chooses_result"}, infer=_infer_reshape, reference=lambda op, x, s: x.reshape(tuple(map(int, s))),
)  # fmt: skip

# dynamic_pad


def _infer_pad(op: Op) -> list[Type]:
    t, value, *amounts = operand_types(op)
    result = stated_result(op)
    if not compatible_elements(t.dtype, value.dtype):
        raise Violation("C1", f"requires the same element type, got '{type_text(t)}' and '{type_text(value)}'")
    if t.shape is None:
        return [result]
    for amount in amounts:
        if amount.shape is not None and not same_dim(amount.shape[0], t.rank):
            raise Violation("C2", f"padding operands size ({amount.shape[0]}) must match operand rank ({t.rank})")
    known = [constant_ints(v) for v in op.operands[2:]]
    if None not in known:
        padded = pad_type(t, *known)  # type: ignore[arg-type]
        for d, (n, m) in enumerate(zip(padded.shape or (), result.shape or (), strict=False)):
            if not same_dim(n, m):
                raise Violation("C4", f"expected output dimension at index {d} to equal {n}, but got {m}")
        return [padded]
    for d, n in enumerate(known[2] or ()):
        if n < 0:
            raise Violation("C3", f"Interior padding cannot be negative: {n} in dimension {d}")
    return [with_bounds((None,) * t.rank, t.dtype, None)]


define(
    "stablehlo.dynamic_pad", section="",
    operands=(
        "operand: tensor", "padding_value: 0d tensor", "edge_padding_low: 1d int|index",
        "edge_padding_high: 1d int|index", "interior_padding: 1d int|index",
    ),
    traits=TRAITS, infer=_infer_pad,
    reference=lambda op, x, v, *amounts: pad(x, v, *(tuple(map(int, a)) for a in amounts)),
)  # fmt: skip

# real_dynamic_slice


def _infer_slice(op: Op) -> list[Type]:
    t, *vectors = operand_types(op)
    names = ("start_indices", "limit_indices", "strides")
    if t.shape is None:
        return [stated_result(op)]
    for name, v in zip(names, vectors, strict=True):
        if v.shape is not None and not same_dim(v.shape[0], t.rank):
            raise Violation("C2", f"has mismatched number of operand rank ({t.rank}) and {name} size ({v.shape[0]})")
    if len({v.dtype for v in vectors}) > 1:
        raise Violation("same", f"failed to verify that all of {{{', '.join(names)}}} have same type")
    starts, limits, strides = (constant_ints(v) for v in op.operands[1:])
    if strides is not None:
        for d, n in enumerate(strides):
            if n <= 0:
                raise Violation("C4", f"stride must be positive but got {n} in dimension {d}")
    lengths = _lengths(op.operands[1], op.operands[2])
    if lengths is None or strides is None:
        return [with_bounds((None,) * t.rank, t.dtype, None)]
    if starts is None or limits is None:
        for d, (length, n) in enumerate(zip(lengths, t.shape, strict=True)):
            if length < 0 or (n is not None and length > n):
                raise Violation("C3", f"a slice of {length} is not inside dimension {d} of extent {n}")
    else:
        for d, (a, b, n) in enumerate(zip(starts, limits, t.shape, strict=True)):
            if a < 0 or a > b or (n is not None and b > n):
                raise Violation("C3", f"slice [{a}, {b}) is not inside dimension {d} of extent {n}")
    shape: Shape = tuple(-(-length // s) for length, s in zip(lengths, strides, strict=True))
    return [with_bounds(shape, t.dtype, None)]


def _lengths(starts: Value, limits: Value) -> tuple[int, ...] | None:
    """Returns limits - starts if both are known, or if the limits are the starts plus a constant: then the starts may
    depend on data."""
    first, last = constant_ints(starts), constant_ints(limits)
    if first is not None and last is not None:
        return tuple(b - a for a, b in zip(first, last, strict=True))
    op = limits.op
    if op is None or op.name != "stablehlo.add" or starts not in op.operands:
        return None
    return constant_ints(op.operands[1] if op.operands[0] is starts else op.operands[0])


def _slice(op: Op, x: Array, *vectors: Array) -> Array:
    return x[tuple(slice(int(a), int(b), int(s)) for a, b, s in zip(*vectors, strict=True))]


define(
    "stablehlo.real_dynamic_slice", section="",
    operands=(
        "operand: tensor", "start_indices: 1d int|index", "limit_indices: 1d int|index", "strides: 1d int|index",
    ),
    traits=TRAITS, infer=_infer_slice, reference=_slice,
)  # fmt: skip

# dimension sizes


def _infer_dimension_size(op: Op) -> list[Type]:
    t, d = operand_type(op, 0), op.int("dimension")
    if t.shape is not None and not 0 <= d < t.rank:
        raise Violation("C1", f"requires dimension attribute in range [0, {t.rank}); found ({d})")
    return [tensor((), I32)]


def _infer_set_dimension_size(op: Op) -> list[Type]:
    t, d = operand_type(op, 0), op.int("dimension")
    assert t.shape is not None
    if not 0 <= d < t.rank:
        raise Violation("C1", f"requires dimension attribute in range [0, {t.rank}); found ({d})")
    bounds = bounds_of(t)
    if t.shape[d] is not None:
        bounds[d] = t.shape[d]
    shape = tuple(None if axis == d else n for axis, n in enumerate(t.shape))
    return [with_bounds(shape, t.dtype, bounds)]


def _set_dimension_size(op: Op, x: Array, size: Array) -> Array:
    d = op.int("dimension")
    return x[tuple(slice(0, int(size)) if axis == d else slice(None) for axis in range(x.ndim))]


define(
    "stablehlo.get_dimension_size", section="get_dimension_size",
    operands=("operand: any_tensor",), results=("result: 0d i32",),
    attributes={"dimension": required("i64 >= 0", "C1")},
    traits={"on_storage"}, infer=_infer_dimension_size,
    reference=lambda op, x: np.asarray(x.shape[op.int("dimension")], np.int32),
)  # fmt: skip
define(
    "stablehlo.set_dimension_size", section="",
    operands=("operand: tensor", "size: 0d i32"), attributes={"dimension": required("i64 >= 0", "C1")},
    traits={"moves_data"}, infer=_infer_set_dimension_size, reference=_set_dimension_size,
)  # fmt: skip

# compute_reshape_shape, cstr_reshapable: an extent of -1 is determined by the number of elements


def resolve_shape(count: int, shape: Array) -> list[int]:
    """Returns `shape` with -1 replaced, so that it has `count` elements."""
    wanted = [int(n) for n in shape]
    rest = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
    return [count // rest if n == -1 and rest else n for n in wanted]


def _verify_count(op: Op) -> None:
    """Checks that the number of elements is a scalar, in a tensor or outside one."""
    t = op.operands[0].type
    scalar = t in (ScalarType("index"), ScalarType("i32"), ScalarType("i64"))
    if not scalar and not type_kind("0d int|index").accepts(t):
        expected = "index, an integer or a 0D tensor of one"
        message = f"operand #0 must be {expected}, but got '{type_text(t)}'"
        raise Violation("type", message, found=type_text(t), expected=expected)


define(
    "stablehlo.compute_reshape_shape", section="",
    operands=("num_elements: any", "dynamic_shape: shape"), results=("result: shape",), verify=_verify_count,
    infer=lambda op: [op.operands[1].type],
    reference=lambda op, n, s: np.asarray(resolve_shape(int(n), s), s.dtype),
)  # fmt: skip
def _verify_witness(op: Op) -> None:
    """Checks the number of elements, and that the result is a witness."""
    _verify_count(op)
    t = op.result.type
    if t != WITNESS:
        message = f"result #0 must be '{type_text(WITNESS)}', but got '{type_text(t)}'"
        raise Violation("type", message, found=type_text(t), expected=type_text(WITNESS))


define(
    "stablehlo.cstr_reshapable", section="",
    operands=("num_elements: any", "dynamic_shape: shape"), results=("result: any",), verify=_verify_witness,
    traits={"chooses_result"},
)  # fmt: skip
