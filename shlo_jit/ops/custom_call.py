"""custom_call: its layouts, aliases and buffers (specification, "custom_call")."""

from __future__ import annotations

from typing import Any

from shlo_jit.ir.attributes import Dense, DenseArray, DictAttr, StructAttr, as_ints
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import OpaqueType, TensorType, TupleType, Type
from shlo_jit.ops.attribute_kinds import ENUMS, short_text
from shlo_jit.ops.call_record import SHAPES_OF_CALL, shape_operands_of
from shlo_jit.ops.kinds import type_kind
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.type_algebra import compatible, type_text


def is_buffer(t: Type) -> bool:
    return isinstance(t, OpaqueType) and t.text.startswith("memref<")


def _verify_custom_call(op: Op) -> None:
    _check_layouts(op)
    _check_backend_config(op)
    _check_shape_operands(op)
    _check_buffers(op)
    _check_aliases(op)


def _check_backend_config(op: Op) -> None:
    version = op.attributes.get("api_version")
    if version is not None and not 0 <= op.int("api_version") < len(ENUMS["custom_call_api_version"]):
        raise Violation("api_version", f"there is no custom call API version {op.int('api_version')}")
    config = op.attributes.get("backend_config")
    typed = version is not None and op.int("api_version") == 4
    if typed and config is not None and not isinstance(config, DictAttr):
        raise Violation(
            "backend_config", "backend_config for api_version API_VERSION_TYPED_FFI must be a dictionary attribute"
        )
    if not typed and config is not None and not isinstance(config, str):
        number = 1 if version is None else op.int("api_version")
        name = ENUMS["custom_call_api_version"][number]
        raise Violation("backend_config", f"backend_config for api_version {name} must be a string attribute")


# Operands that give the shapes of results


def _check_shape_operands(op: Op) -> None:
    attr = op.attributes.get(SHAPES_OF_CALL)
    if attr is None:
        return
    if not isinstance(attr, Dense | DenseArray):
        raise Violation(SHAPES_OF_CALL, f"{SHAPES_OF_CALL} must be an array of integers, got {short_text(attr)}")
    given = as_ints(attr)
    if len(given) != len(op.results):
        raise Violation(SHAPES_OF_CALL, f"expected a shape operand for each result, got {len(given)} "
                        f"for {len(op.results)} results")  # fmt: skip
    for i in given:
        if not 0 <= i < len(op.operands):
            raise Violation(SHAPES_OF_CALL, f"{SHAPES_OF_CALL} names operand {i} of {len(op.operands)}")
        t = op.operands[i].type
        if not type_kind("1d int|index").accepts(t):
            raise Violation(SHAPES_OF_CALL, f"operand #{i}, which is a shape, must be a 1D tensor of integers, "
                            f"but got '{type_text(t)}'")  # fmt: skip


# Layouts


def _check_layouts(op: Op) -> None:
    operands, results = op.attributes.get("operand_layouts"), op.attributes.get("result_layouts")
    if operands is None and results is None:
        return
    if operands is None or results is None:
        raise Violation("layout", "Layout attributes should be specified for either both operands and results or none")
    _check_layout_list("operand", [v.type for v in op.operands], operands)
    types = [v.type for v in op.results]
    if len(types) == 1 and isinstance(types[0], TupleType):
        types = list(types[0].types)
    _check_layout_list("result", types, results)


def _check_layout_list(what: str, types: list[Type], layouts: tuple[Any, ...]) -> None:
    if len(types) != len(layouts):
        raise Violation(
            "layout",
            f"Number of {what}s must match the number of {what} layouts, {len(types)} != {len(layouts)}",
        )
    for i, (t, layout) in enumerate(zip(types, layouts, strict=True)):
        order = as_ints(layout)
        if isinstance(t, TupleType):
            raise Violation("layout", "Tuple types are not fully supported with layout constraints yet")
        if not isinstance(t, TensorType):
            if order:
                raise Violation(
                    "layout",
                    f"Only tensor types can have non-empty layout: {what} #{i} of type '{type_text(t)}' has layout "
                    f"{_layout_text(layout)}",
                )
        elif t.shape is not None and sorted(order) != list(range(t.rank)):
            raise Violation(
                "layout",
                f"incorrect layout {_layout_text(layout)} for type '{type_text(t)}', "
                f"layout must be a permutation of [0, {t.rank})",
            )


def _layout_text(layout: Any) -> str:
    values = list(as_ints(layout))
    name = type_text(layout.type) if isinstance(layout, Dense) else f"tensor<{len(values)}xindex>"
    return f"dense<{values}> : {name}"


# Aliases

ALIAS = "stablehlo.output_operand_alias"


def _part(t: Type, indices: tuple[int, ...], what: str) -> Type:
    """Returns the part of a (nested) tuple type at `indices`."""
    for i in indices:
        if not isinstance(t, TupleType) or not 0 <= i < len(t.types):
            raise Violation("alias", f"{what}_tuple_indices in the output_operand_alias attribute out of bounds")
        t = t.types[i]
    return t


def _aliases(op: Op) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """Returns (output indices, operand, operand indices) of each alias."""
    found = []
    for alias in op.attributes.get("output_operand_aliases") or ():
        if not isinstance(alias, StructAttr) or alias.name != ALIAS:
            raise Violation("alias", f"expected #{ALIAS} in output_operand_aliases, got {short_text(alias)}")
        found.append(
            (
                tuple(alias.get("output_tuple_indices", ())),
                int(alias.get("operand_index", 0)),
                tuple(alias.get("operand_tuple_indices", ())),
            )
        )
    return found


def _check_aliases(op: Op) -> None:
    results = [v.type for v in op.results]
    whole = results[0] if len(results) == 1 else TupleType(tuple(results))
    used_outputs: set[tuple[int, ...]] = set()
    used_operands: set[tuple[int, tuple[int, ...]]] = set()
    for output, index, inner in _aliases(op):
        if not 0 <= index < len(op.operands):
            raise Violation("alias", f"expects operandIndex in the output_operand_alias attribute to be in range "
                            f"[0, {len(op.operands)}); got: {index}.")  # fmt: skip
        source = _part(op.operands[index].type, inner, "operand")
        target = _part(whole, output, "output")
        if not compatible(source, target):
            raise Violation(
                "alias",
                f"shapes mismatch in the output_operand_alias attribute: operand part has type '{type_text(source)}' "
                f"and output part has type '{type_text(target)}'",
            )
        if index in shape_operands_of(op):
            raise Violation("alias", f"operand {index} is the shape of a result: no output can alias it")
        if is_buffer(source) and (index, inner) in used_operands:
            raise Violation(
                "alias", f"buffer operand {index}{list(inner)} is used in output_operand_alias more than once"
            )
        if is_buffer(target) and output in used_outputs:
            raise Violation("alias", f"buffer output {list(output)} is used in output_operand_alias more than once")
        used_operands.add((index, inner))
        used_outputs.add(output)
    if op.attributes["call_target_name"] in ("Pin", "CreateBuffer"):
        return
    for path in _buffer_paths(whole, ()):
        if path not in used_outputs:
            raise Violation("alias", f"buffer output {list(path)} is not used in output_operand_alias")


def _buffer_paths(t: Type, path: tuple[int, ...]) -> list[tuple[int, ...]]:
    if is_buffer(t):
        return [path]
    if isinstance(t, TupleType):
        return [p for i, inner in enumerate(t.types) for p in _buffer_paths(inner, (*path, i))]
    return []


# Buffers: custom calls that create and destroy memrefs


def _check_buffers(op: Op) -> None:
    target = op.attributes["call_target_name"]
    operands, results = [v.type for v in op.operands], [v.type for v in op.results]
    if target == "CreateBuffer":
        if operands:
            raise Violation("buffer", "CreateBuffer custom_call shouldn't have any inputs")
        if len(results) != 1 or not is_buffer(results[0]):
            raise Violation("buffer", "CreateBuffer custom_call should have one memref output")
    elif target in ("Pin", "Unpin"):
        if not any(is_buffer(t) for t in operands + results) and target == "Unpin":
            return
        if len(operands) != 1 or len(results) != 1:
            raise Violation("buffer", f"{target} custom_call should have one input and one output")
        inside, outside = (results[0], operands[0]) if target == "Pin" else (operands[0], results[0])
        if not is_buffer(inside):
            where = "output" if target == "Pin" else "input"
            raise Violation("buffer", f"{target} custom_call should have a memref {where}")
        if not isinstance(outside, TensorType) or _shape_part(inside) != _shape_part(outside):
            raise Violation("buffer", f"{target} custom_call should have compatible input and output types")


def _shape_part(t: Type) -> str:
    text = type_text(t)
    return text[text.index("<") :].replace(" ", "")


define(
    "stablehlo.custom_call", section="custom_call",
    operands=("inputs*: any",), results=("results*: any",),
    attributes={
        "call_target_name": required("string"),
        "has_side_effect": optional("bool", False),
        "backend_config": optional("any"),
        "api_version": optional("i32", 1),
        "called_computations": optional("symbols", ()),
        "operand_layouts": optional("layouts"),
        "result_layouts": optional("layouts"),
        "output_operand_aliases": optional("list", ()),
    },
    regions=("regions*",), verify=_verify_custom_call,
    traits={"on_storage", "side_effect", "chooses_result", "looks_at_operands"},
)  # fmt: skip
