"""Ops that multiply and sum: dot_general, dot, einsum (specification, "dot_general")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import QuantizedType, TensorType, Type, tensor
from shlo_jit.ops.numeric import WIDE, Array, convert, result_dtype
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.type_algebra import (
    bounds_of,
    check_disjoint,
    check_range,
    check_shape,
    is_quantized,
    operand_types,
    same_dim,
    shape_text,
    stated_result,
    type_text,
    with_bounds,
)

PRECISION = {"precision_config": optional("enums precision", ())}


def check_precision(op: Op, label: str) -> None:
    config = op.attributes.get("precision_config") or ()
    if isinstance(config, tuple) and len(config) > 2:
        raise Violation(label, "expects precision config to be empty or have <= 2 elements")


def dims_of(attr: StructAttr, name: str) -> tuple[int, ...]:
    """Returns a list of dimensions of a struct; empty if it is absent."""
    return tuple(map(int, attr.get(name, ())))


# dot_general


def _infer_dot_general(op: Op) -> list[Type]:
    lhs, rhs = operand_types(op)
    numbers = op.attributes["dot_dimension_numbers"]
    lhs_batch, rhs_batch = dims_of(numbers, "lhs_batching_dimensions"), dims_of(numbers, "rhs_batching_dimensions")
    lhs_sum, rhs_sum = dims_of(numbers, "lhs_contracting_dimensions"), dims_of(numbers, "rhs_contracting_dimensions")
    check_dot_dimensions(lhs, rhs, (lhs_batch, rhs_batch, lhs_sum, rhs_sum))
    check_precision(op, "C11")
    assert lhs.shape is not None and rhs.shape is not None
    of_lhs = [*lhs_batch, *(d for d in range(lhs.rank) if d not in lhs_batch and d not in lhs_sum)]
    of_rhs = [d for d in range(rhs.rank) if d not in rhs_batch and d not in rhs_sum]
    shape = (*[lhs.shape[d] for d in of_lhs], *[rhs.shape[d] for d in of_rhs])
    if lhs.bounds is None and rhs.bounds is None:
        return [tensor(shape, stated_result(op).dtype)]
    bounds = [bounds_of(lhs)[d] for d in of_lhs] + [bounds_of(rhs)[d] for d in of_rhs]
    return [with_bounds(shape, stated_result(op).dtype, bounds)]


DotDims = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Batching dimensions of lhs and rhs, contracting dimensions of lhs and rhs."""


def check_dot_dimensions(lhs: TensorType, rhs: TensorType, dims: DotDims) -> None:
    """Checks C1 to C10 of dot_general."""
    lhs_batch, rhs_batch, lhs_sum, rhs_sum = dims
    assert lhs.shape is not None and rhs.shape is not None
    if len(lhs_batch) != len(rhs_batch):
        raise Violation("C1", "lhs and rhs should have the same number of batching dimensions")
    if len(lhs_sum) != len(rhs_sum):
        raise Violation("C2", "lhs and rhs should have the same number of contracting dimensions")
    check_disjoint("C3", "lhs_batching_dimensions", lhs_batch, "lhs_contracting_dimensions", lhs_sum)
    check_disjoint("C4", "rhs_batching_dimensions", rhs_batch, "rhs_contracting_dimensions", rhs_sum)
    check_range("C5", "lhs_batching_dimensions", lhs_batch, len(lhs.shape))
    check_range("C6", "lhs_contracting_dimensions", lhs_sum, len(lhs.shape))
    check_range("C7", "rhs_batching_dimensions", rhs_batch, len(rhs.shape))
    check_range("C8", "rhs_contracting_dimensions", rhs_sum, len(rhs.shape))
    for i, j in zip(lhs_batch, rhs_batch, strict=True):
        if not same_dim(lhs.shape[i], rhs.shape[j]):
            raise Violation("C9", "batching dimension sizes must match for lhs and rhs")
    for i, j in zip(lhs_sum, rhs_sum, strict=True):
        if not same_dim(lhs.shape[i], rhs.shape[j]):
            raise Violation("C10", "contracting dimension sizes must match for lhs and rhs")


def _verify_dot_general(op: Op) -> None:
    lhs, rhs = operand_types(op)
    result = stated_result(op)
    numbers = op.attributes["dot_dimension_numbers"]
    if is_quantized(lhs) or is_quantized(rhs) or is_quantized(result):
        check_quantized_product(lhs, rhs, result, PRODUCT_LABELS)
        rhs_type = rhs.dtype
        assert isinstance(rhs_type, QuantizedType)
        if any(rhs_type.zero_points):
            raise Violation("C15", "Zero points of rhs should be 0")
        if rhs_type.axis is not None and rhs_type.axis in dims_of(numbers, "rhs_contracting_dimensions"):
            raise Violation("C16", "Quantization dimension of rhs should not be in the contracting dimension of rhs")
    algorithm = op.attributes.get("algorithm")
    if isinstance(algorithm, StructAttr):
        if any(p.value != "DEFAULT" for p in op.attributes.get("precision_config") or ()):
            raise Violation("C21", "must specify DEFAULT precision config when algorithm is set", at="precision_config")
        _check_algorithm(algorithm)


PRODUCT_LABELS = {"which": "C14", "storage": "C17", "expressed": "C18", "axis": "C19", "hybrid": "C20"}
"""Labels of dot_general for `check_quantized_product`."""


def check_quantized_product(lhs: TensorType, rhs: TensorType, result: TensorType, labels: Mapping[str, str]) -> None:
    """Checks the combination of quantized types: C14, C17 to C20 of dot_general, C28, C31 to C34 of convolution."""
    if not is_quantized(rhs) or is_quantized(lhs) != is_quantized(result):
        raise Violation(
            labels["which"],
            "rhs should be quantized for quantized operations and is_quantized(lhs)=is_quantized(result) should hold",
        )
    x, y, z = lhs.dtype, rhs.dtype, result.dtype
    assert isinstance(y, QuantizedType)
    if isinstance(x, QuantizedType):
        assert isinstance(z, QuantizedType)
        if x.storage != y.storage:
            raise Violation(labels["storage"], "mismatched lhs and rhs quantization storage types")
        if x.expressed != y.expressed or y.expressed != z.expressed:
            raise Violation(labels["expressed"], "mismatched lhs, rhs and result quantization expressed types")
        if z.axis is not None and y.axis is None:
            raise Violation(labels["axis"], "mismatched rhs and result quantization granularity")
    elif x != y.expressed or y.expressed != z:
        raise Violation(labels["hybrid"], "mismatched rhs quantization expressed type and lhs and result element type")


_ALGORITHMS = {
    # lhs, rhs, accumulation type, components of lhs and rhs, primitive operations, imprecise accumulation
    *[(a, b, t, 1, 1, 1, i)
      for a in ("f8E5M2", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ")
      for b in ("f8E5M2", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ")
      for t in ("f32",) for i in (False, True)],
    ("f16", "f16", "f16", 1, 1, 1, False), ("f16", "f16", "f32", 1, 1, 1, False),
    ("bf16", "bf16", "bf16", 1, 1, 1, False), ("bf16", "bf16", "f32", 1, 1, 1, False),
    ("bf16", "bf16", "f32", 1, 1, 3, False), ("bf16", "bf16", "f32", 1, 1, 6, False),
    ("bf16", "bf16", "f32", 1, 1, 9, False), ("bf16", "bf16", "f32", 3, 3, 6, False),
    ("bf16", "bf16", "f32", 2, 2, 3, False), ("bf16", "bf16", "f32", 3, 3, 9, False),
    ("tf32", "tf32", "f32", 1, 1, 1, False), ("tf32", "tf32", "f32", 1, 1, 3, False),
    ("f32", "f32", "f32", 1, 1, 1, False), ("f64", "f64", "f64", 1, 1, 1, False),
}  # fmt: skip


def _check_algorithm(algorithm: StructAttr) -> None:
    """Checks that some hardware supports the combination in `#stablehlo.dot_algorithm`."""
    names = [_type_name(algorithm.get(f)) for f in ("lhs_precision_type", "rhs_precision_type", "accumulation_type")]
    counts = [_integer(algorithm.get(f))
              for f in ("lhs_component_count", "rhs_component_count", "num_primitive_operations")]  # fmt: skip
    imprecise = bool(algorithm.get("allow_imprecise_accumulation", False))
    for label, what, n in zip(
        ("C22", "C23", "C24"),
        ("lhs component count", "rhs component count", "num primitive operations"),
        counts,
        strict=True,
    ):
        if n < 1:
            raise Violation(label, f"{what} must be positive", at="#stablehlo.dot_algorithm")
    if (*names, *counts, imprecise) not in _ALGORITHMS:
        lhs, rhs, accumulation = names
        raise Violation(
            "algorithm",
            f"dot algorithm not known to be supported on any hardware: {{lhs:'{lhs}', rhs:'{rhs}', "
            f"accum:'{accumulation}', lhs_components:{counts[0]}, rhs_components:{counts[1]}, "
            f"primitive_ops:{counts[2]}, imprecise:{int(imprecise)}}}",
            at="#stablehlo.dot_algorithm",
        )


def _type_name(attr: Any) -> str:
    return getattr(getattr(attr, "type", attr), "name", None) or str(attr)


def _integer(attr: Any) -> int:
    return int(getattr(attr, "value", attr) if attr is not None else 1)


def dot_general(lhs: Array, rhs: Array, dims: DotDims, dtype: np.dtype) -> Array:
    """Reference of dot_general: transposes and flattens the operands to matrices for `multiply_matrices`."""
    lhs_batch, rhs_batch, lhs_sum, rhs_sum = dims
    lhs_free = [d for d in range(lhs.ndim) if d not in lhs_batch + lhs_sum]
    rhs_free = [d for d in range(rhs.ndim) if d not in rhs_batch + rhs_sum]
    a = lhs.transpose([*lhs_batch, *lhs_free, *lhs_sum])
    b = rhs.transpose([*rhs_batch, *rhs_sum, *rhs_free])
    batch = a.shape[: len(lhs_batch)]
    m = a.shape[len(lhs_batch) : a.ndim - len(lhs_sum)]
    n = b.shape[len(rhs_batch) + len(rhs_sum) :]
    count = int(np.prod(a.shape[a.ndim - len(lhs_sum) :], dtype=np.int64))
    rows, columns = int(np.prod(m, dtype=np.int64)), int(np.prod(n, dtype=np.int64))
    out = multiply_matrices(a.reshape(*batch, rows, count), b.reshape(*batch, count, columns), dtype)
    return out.reshape((*batch, *m, *n))


def multiply_matrices(a: Array, b: Array, dtype: np.dtype) -> Array:
    """Returns the matrix product in the result's dtype.

    Floats follow the specification: each product is rounded, then added, from left to right (in f32 if the type is
    narrower). Integers wrap modulo 2^n. Booleans use `and` for products and `or` for sums.
    """
    kind = wide_dtype(dtype)
    if kind in (np.int64, np.uint64):
        a, b = convert(a, dtype), convert(b, dtype)
        return convert(a.astype(kind) @ b.astype(kind), dtype)
    working = dtype if dtype in WIDE else np.dtype(np.float32)
    a, b = convert(a, working), convert(b, working)
    total = np.zeros((*a.shape[:-1], b.shape[-1]), working)
    for k in range(a.shape[-1]):
        total = total + a[..., :, k, None] * b[..., None, k, :]
    return convert(total, dtype)


def wide_dtype(*dtypes: np.dtype) -> np.dtype:
    """Returns the 64-bit (or complex) accumulator type for sums of products."""
    from shlo_jit.ir.dtypes import by_numpy

    kinds = {by_numpy()[d].kind for d in dtypes}
    if "c" in kinds:
        return np.dtype(np.complex128)
    if "f" in kinds:
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if kinds == {"u"} else np.int64)


def _dot_general(op: Op, lhs: Array, rhs: Array) -> Array:
    numbers = op.attributes["dot_dimension_numbers"]
    dims = tuple(
        dims_of(numbers, f"{side}_{kind}_dimensions") for kind in ("batching", "contracting") for side in ("lhs", "rhs")
    )
    return dot_general(lhs, rhs, dims, result_dtype(op))  # type: ignore[arg-type]


define(
    "stablehlo.dot_general", section="dot_general",
    operands=("lhs: tensor", "rhs: any_tensor"), results=("result: any_tensor",),
    attributes={
        "dot_dimension_numbers": required("struct dot"),
        **PRECISION,
        "algorithm": optional("struct dot_algorithm"),
    },
    traits={"chooses_result"}, infer=_infer_dot_general, verify=_verify_dot_general, reference=_dot_general,
)  # fmt: skip


# dot: vectors and matrices only


def _infer_dot(op: Op) -> list[Type]:
    lhs, rhs = operand_types(op)
    assert lhs.shape is not None and rhs.shape is not None
    check_precision(op, "C11")
    if not 1 <= lhs.rank <= 2 or not 1 <= rhs.rank <= 2:
        raise Violation("C1", f"expected both lhs/rhs ranks to be either 1 or 2, got {lhs.rank} and {rhs.rank}")
    if not same_dim(lhs.shape[-1], rhs.shape[0]):
        raise Violation("C2", f"contracting dimensions must match, got '{type_text(lhs)}' and '{type_text(rhs)}'")
    bounds = bounds_of(lhs)[:-1] + bounds_of(rhs)[1:]
    inferred = with_bounds(lhs.shape[:-1] + rhs.shape[1:], stated_result(op).dtype, bounds)
    check_shape("C3", inferred.shape, stated_result(op))
    return [inferred]


def _verify_dot(op: Op) -> None:
    lhs, rhs = operand_types(op)
    result = stated_result(op)
    if is_quantized(lhs) or is_quantized(rhs) or is_quantized(result):
        check_quantized_product(lhs, rhs, result, PRODUCT_LABELS)


define(
    "stablehlo.dot", section="",
    operands=("lhs: tensor", "rhs: any_tensor"), results=("result: any_tensor",), attributes=PRECISION,
    traits={"chooses_result"}, infer=_infer_dot, verify=_verify_dot,
    reference=lambda op, x, y: dot_general(x, y, ((), (), (x.ndim - 1,), (0,)), result_dtype(op)),
)  # fmt: skip


# einsum


def einsum_sizes(equation: str, types: list[TensorType]) -> tuple[int | None, ...] | None:
    """Returns the result shape of an explicit einsum; None if it contains an ellipsis."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow or len(terms) != len(types):
        raise Violation("C1", f"equation '{equation}' does not have one term for each of {len(types)} operands")
    if "..." in equation:
        return None
    sizes: dict[str, int | None] = {}
    for term, t in zip(terms, types, strict=True):
        assert t.shape is not None
        if len(term) != t.rank:
            raise Violation("C2", f"term '{term}' does not fit operand of shape {shape_text(t.shape)}")
        for letter, n in zip(term, t.shape, strict=True):
            if not same_dim(sizes.get(letter), n):
                raise Violation("C3", f"index '{letter}' has extents {sizes[letter]} and {n}")
            sizes[letter] = n if sizes.get(letter) is None else sizes[letter]
    if any(letter not in sizes for letter in output):
        raise Violation("C4", f"output of '{equation}' has an index that no operand has")
    return tuple(sizes[letter] for letter in output)


def _infer_einsum(op: Op) -> list[Type]:
    types = operand_types(op)
    result = stated_result(op)
    shape = einsum_sizes(op.attributes["einsum_config"], types)
    return [result if shape is None else with_bounds(shape, result.dtype, None)]


def _einsum(op: Op, *xs: Array) -> Array:
    dtype = result_dtype(op)
    wide = wide_dtype(dtype)
    terms = xs if wide.kind in "fc" else [convert(x, dtype) for x in xs]
    return convert(np.asarray(np.einsum(op.attributes["einsum_config"], *(convert(x, wide) for x in terms))), dtype)


define(
    "stablehlo.einsum", section="",
    operands=("lhs: tensor", "rhs: tensor"), attributes={"einsum_config": required("string"), **PRECISION},
    traits={"chooses_result"}, infer=_infer_einsum, reference=_einsum,
)  # fmt: skip
define(
    "stablehlo.unary_einsum", section="",
    operands=("operand: tensor",), attributes={"einsum_config": required("string")},
    traits={"chooses_result"}, infer=_infer_einsum, reference=_einsum,
)  # fmt: skip
