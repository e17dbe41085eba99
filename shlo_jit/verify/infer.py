"""`infer`: result types of an op that does not exist yet, from operand types and attributes.

It uses the same inference functions of the records as the verifier, which compares stated types with them. If the
specification leaves the program a choice (the elements of a dot_general's result, the shape of a reshape's), the record
has the trait `chooses_result`. Then `result_types` gives the choice; by default the elements are those of the first
operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shlo_jit.errors import Diagnostic, VerifyError
from shlo_jit.ir.attributes import Dense, DenseArray, EnumAttr, FloatAttr, IntegerAttr
from shlo_jit.ir.core import Op, Region, Value
from shlo_jit.ir.types import F32, I64, ElementType, TensorType, Type, tensor
from shlo_jit.ops import OPS, OpDef, Violation
from shlo_jit.ops.attribute_kinds import check_attribute
from shlo_jit.ops.constraints import full_name
from shlo_jit.ops.name_hints import hint_for
from shlo_jit.ops.type_algebra import compatible_lists, types_text
from shlo_jit.verify.check_op import check_values


def infer(
    op_name: str,
    operand_types: Sequence[Type],
    attributes: Mapping[str, Any] | None = None,
    regions: Sequence[Region] = (),
    *,
    result_types: Sequence[Type] | None = None,
) -> list[Type]:
    """Returns the result types of an op, as far as operands, attributes and regions determine them (`?` otherwise).

    Attributes may be Python numbers, booleans, strings and lists if the op's record determines their kind. Stated
    `result_types` must be compatible with the inferred ones. Raises VerifyError, with op and constraint, if there is no
    such op or it is invalid, and ValueError if the types cannot be inferred without `result_types`.
    """
    name = full_name(op_name)
    record = OPS.get(name)
    if record is None:
        raise VerifyError(Diagnostic(f"unknown op {name}", op=name, label="unknown", hint=hint_for(name)))
    operands = [Value(t) for t in operand_types]
    attrs = {key: attribute_of(record, key, value) for key, value in (attributes or {}).items()}
    stated = None if result_types is None else list(result_types)
    op = Op(name, operands, stated or placeholders(record, operands), attrs, list(regions))
    try:
        return inferred_types(op, record, stated)
    except Violation as violation:
        message = f"{op_name} {violation.label}: '{name}' op {violation.message}"
        rule = record.constraints.get(violation.label, "")
        found = Diagnostic(message, "<infer>", op=name, label=violation.label, rule=rule, hint=violation.hint)
        raise VerifyError(found) from None


def check_arguments(op_name: object, operands: object, attributes: object, regions: object, results: object) -> None:
    """Raises TypeError if the arguments are not what `shlo_jit.infer` accepts; types may be given as texts."""
    if not isinstance(op_name, str):
        raise TypeError(f"op_name: expected a string, got {op_name!r}")
    for name, types in (("operand_types", operands), ("result_types", () if results is None else results)):
        if not isinstance(types, list | tuple) or not all(isinstance(t, Type | str) for t in types):
            raise TypeError(f"{name}: expected a list of types or their texts, got {types!r}")
    if attributes is not None and not isinstance(attributes, Mapping):
        raise TypeError(f"attributes: expected a dictionary, got {attributes!r}")
    if not isinstance(regions, list | tuple) or not all(isinstance(r, Region) for r in regions):
        raise TypeError(f"regions: expected a list of Regions, got {regions!r}")


def inferred_types(op: Op, record: OpDef, stated: list[Type] | None) -> list[Type]:
    """Returns the result of `infer` for an op whose results are placeholders or as stated. Raises Violation and
    ValueError."""
    check_values("operand", record.operands, record.operand_kinds, op.operands)
    for key, spec in record.attributes.items():
        check_attribute(key, spec, op.attributes.get(key))
    if record.infer is None:
        if stated is None:
            raise ValueError(f"the result types of {op.name} do not follow from its operands: pass result_types")
        found: list[Type] = list(stated)
    else:
        try:
            found = list(record.infer(op))
        except (AssertionError, AttributeError, IndexError):
            if stated is not None:
                raise
            raise ValueError(f"the result types of {op.name} do not follow: pass result_types") from None
    if stated is not None:
        if not compatible_lists(found, stated):
            both = f"inferred {types_text(found)}, stated {types_text(stated)}"
            raise Violation(record.result_label(0, "s"), f"result types do not fit: {both}")
        check_values("result", record.results, record.result_kinds, op.results)
        if record.verify is not None:
            record.verify(op)
    return found


def placeholders(record: OpDef, operands: Sequence[Value]) -> list[Type]:
    """Returns types of unknown shape for the results, with the elements of the first tensor for ops that choose
    them."""
    elements = [v.type.dtype for v in operands if isinstance(v.type, TensorType)]
    element: ElementType = elements[0] if elements else F32
    return [TensorType(None, element) for name in record.results if name[-1] not in "*?"]


def attribute_of(record: OpDef, name: str, value: Any) -> Any:
    """Converts a Python value to the attribute that the record requires; attributes stay unchanged."""
    spec = record.attributes.get(name)
    word, _, rest = (spec.kind if spec is not None else "").partition(" ")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return IntegerAttr(value, word if word in ("i32", "i64") else "i64")
    if isinstance(value, float):
        return FloatAttr(float(np.float32(value)), "f32")
    if isinstance(value, str) and word == "enum":
        return EnumAttr("stablehlo", rest, value)
    if isinstance(value, list | tuple) and word == "enums":
        return tuple(EnumAttr("stablehlo", rest, v) if isinstance(v, str) else v for v in value)
    if isinstance(value, list | tuple) and word in ("ints", "bools"):
        return DenseArray("i64" if word == "ints" else "i1", tuple(value))
    if isinstance(value, list | tuple) and word in ("pairs", "groups"):
        return matrix(value)
    return value


def matrix(rows: Sequence[Sequence[int]]) -> Dense:
    """Converts a matrix of integers to an attribute. Shorter rows are padded with -1, which is not a process."""
    width = max(map(len, rows), default=0)
    array = np.full((len(rows), width), -1, np.int64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return Dense(tensor(array.shape, I64), array)
