"""Checks one op against its record: its declarations, its type inference and its own checks."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import DType, TensorType, Type
from shlo_jit.ops import OpDef, Violation
from shlo_jit.ops.attribute_kinds import check_attribute
from shlo_jit.ops.kinds import TypeKind
from shlo_jit.ops.type_algebra import compatible, compatible_elements, compatible_lists, type_text, types_text
from shlo_jit.suggest import closest

INFERENCE = "; '{}' op failed to infer returned types"
"""MLIR's message, after the reason, if the inference of an op's result types fails."""


def check_op(op: Op, record: OpDef) -> None:
    """Checks everything that the record requires of an op. Raises Violation."""
    check_values("operand", record.operands, record.operand_kinds, op.operands)
    if record.attributes:
        check_attributes(op, record)
    if op.regions or record.regions:
        check_regions(op, record)
    try:
        check_values("result", record.results, record.result_kinds, op.results)
    except Violation as violation:
        if violation.label == "type":
            violation.hint = _inferred_hint(op, record)
        raise
    if record.infer is not None:
        check_results(op, record)
    if record.verify is not None:
        record.verify(op)


def _inferred_hint(op: Op, record: OpDef) -> str:
    """Returns the inferred result types as a hint, if the stated ones are tensors of a wrong kind and inference
    succeeds; otherwise empty."""
    are_plain = all(isinstance(v.type, TensorType) and isinstance(v.type.dtype, DType) for v in op.results)
    if record.infer is None or record.has("chooses_result") or not are_plain:
        return ""
    try:
        inferred = record.infer(op)
    except Violation:
        return ""
    return f"write {', '.join(map(type_text, inferred))}" if len(inferred) == len(op.results) else ""


def has_declared_form(op: Op, record: OpDef) -> bool:
    """Whether an op has the declared number of operands, regions and results, and attributes of the declared kinds.
    Types are not checked."""
    try:
        check_count("operand", record.operands, op.operands)
        check_count("result", record.results, op.results)
        check_attributes(op, record)
        check_regions(op, record)
    except Violation:
        return False
    return all(region.blocks for region in op.regions) or op.name == "func.func"


def check_attributes(op: Op, record: OpDef) -> None:
    """Checks that the declared attributes are present and have the declared kinds."""
    attributes = op.attributes
    for name, spec in record.attributes.items():
        attr = attributes.get(name)
        if attr is not None:
            check_attribute(name, spec, attr)
        elif spec.required:
            raise _missing_attribute(op, record, name)


def _missing_attribute(op: Op, record: OpDef, name: str) -> Violation:
    """Returns the error for a missing required attribute, with a hint if it is present under another name."""
    others = [key for key in op.attributes if key not in record.attributes and "." not in key]
    meant = others[0] if len(others) == 1 else closest(name, others)
    hint = f"'{meant}' is not an attribute of {op.name}: write {name} instead" if meant else ""
    return Violation("attribute", f"requires attribute '{name}'", found="no attribute", expected=name, hint=hint)


def check_results(op: Op, record: OpDef) -> None:
    """Checks that the stated result types are compatible with the inferred ones."""
    assert record.infer is not None
    stated: list[Type] = [v.type for v in op.results]
    try:
        inferred = record.infer(op)
    except Violation as violation:
        violation.message += INFERENCE.format(op.name)
        raise
    if inferred == stated or compatible_lists(inferred, stated):
        return
    raise Violation(
        _result_label(record, inferred, stated),
        f"inferred type(s) {types_text(inferred)} are incompatible with return type(s) of operation "
        f"{types_text(stated)}{INFERENCE.format(op.name)}",
        hint=f"write {', '.join(map(type_text, inferred))}" if len(inferred) == len(stated) else "",
        found=", ".join(map(type_text, stated)),
        expected=", ".join(map(type_text, inferred)),
    )


def _result_label(record: OpDef, inferred: Sequence[Type], stated: Sequence[Type]) -> str:
    """Returns the label of the constraint that the first wrong result breaks."""
    for i, (a, b) in enumerate(zip(inferred, stated, strict=False)):
        if compatible(a, b):
            continue
        elements = isinstance(a, TensorType) and isinstance(b, TensorType) and not compatible_elements(a.dtype, b.dtype)
        return record.result_label(i, "e" if elements else "s")
    return record.result_label(0, "s")  # too many or too few


def _no_return(block: Block) -> Violation:
    """Returns the error for a region that does not end with 'stablehlo.return'."""
    message = "expects regions to end with 'stablehlo.return'"
    last = block.ops[-1] if block.ops else None
    if last is not None and last.name == "func.return":
        return Violation("region", message, hint="write stablehlo.return instead of return")
    line = return_line("stablehlo.return", last, [v.type for v in last.results] if last is not None else [])
    return Violation("region", message, hint=f"add the line {line}")


def return_line(name: str, last: Op | None, types: Sequence[Type]) -> str:
    """Returns the text of the missing return after the last op of a block: of its results if they have the types."""
    texts = ", ".join(map(type_text, types))
    if not types:
        return name
    values = last.results if last is not None else []
    fit = [v.type for v in values] == list(types)
    names = ", ".join(f"%{v.name}" for v in values) if fit and all(v.name for v in values) else "%..."
    return f"{name} {names} : {texts}"


@functools.cache
def _arity(names: tuple[str, ...]) -> tuple[int, tuple[int, ...]]:
    """Returns the minimum number of values, and which groups are variadic."""
    variadic = tuple(i for i, name in enumerate(names) if name[-1] in "*?")
    return len(names) - len(variadic), variadic


def check_values(what: str, names: tuple[str, ...], kinds: Sequence[TypeKind], values: list[Value]) -> None:
    """Checks the number of operands or results, and the kind of each."""
    if len(values) == len(kinds):  # nearly always; errors are diagnosed below
        for i, v in enumerate(values):
            t = v.type
            known = kinds[i].known.get(id(t))
            if not (kinds[i].accepts(t) if known is None else known[1]):
                break
        else:
            return
    check_count(what, names, values)
    least, variadic = _arity(names)
    if variadic:
        each = (len(values) - least) // len(variadic)  # several variadic groups have the same size
        kinds = [kind for i, kind in enumerate(kinds) for _ in range(each if i in variadic else 1)]
    for i, (kind, v) in enumerate(zip(kinds, values, strict=False)):
        if not kind.accepts(v.type):
            many = "variadic of " if variadic else ""
            found, expected = type_text(v.type), f"{many}{kind.describe()}"
            message = f"{what} #{i} must be {expected}, but got '{found}'"
            raise Violation("type", message, found=found, expected=expected)


def check_count(what: str, names: tuple[str, ...], values: list[Value]) -> None:
    """Checks the number of operands or results."""
    least, variadic = _arity(names)
    if len(values) < least if variadic else len(values) != least:
        raise _wrong_count(what, f"{least} or more" if variadic else str(least), len(values))


def _wrong_count(what: str, expected: str, found: int) -> Violation:
    message = f"expected {expected} {what}s, but found {found}"
    return Violation("count", message, found=f"{found} {what}s", expected=f"{expected} {what}s")


def check_regions(op: Op, record: OpDef) -> None:
    """Checks the number of regions, and that each has one block with a terminator."""
    names, regions = record.regions, op.regions
    many = bool(names) and names[-1].endswith("*")
    if len(regions) != len(names) and not (many and len(regions) >= len(names) - 1):
        words = {0: "no regions", 1: "one region"}.get(len(names), f"{len(names)} regions")
        raise Violation("region", f"requires {words}, but has {len(regions)}")
    for region in regions:
        if len(region.blocks) > 1:
            raise Violation("region", f"expects regions with 0 or 1 blocks, but one has {len(region.blocks)}")
    if op.name in ("builtin.module", "func.func"):
        return
    for region in regions:
        for block in region.blocks:
            if not block.ops or block.terminator.name != "stablehlo.return":
                raise _no_return(block)
