"""Ops of control flow, functions, tuples and tokens (specification, "if", "while", "Functions").

Checks that need the whole module (existence and types of callees) are in `verify/symbols.py`. References of ops with
regions get `run`; those of ops that call functions get `call(name, *arrays)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shlo_jit.ir.attributes import DictAttr, TypeAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I1, MAX_PARTS, TOKEN, FunctionType, FutureType, TensorType, TupleType, Type
from shlo_jit.ops.numeric import Array
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.reducer import RegionRunner, block_of, returned_types
from shlo_jit.ops.type_algebra import compatible, compatible_lists, type_text, types_text

Call = Callable[..., tuple[Array, ...]]

# if, case


def _branch_types(op: Op, empty: str, same: str) -> list[Type]:
    """Returns the merged result types of all branches, which have no arguments.

    `empty` and `same` are the labels of the constraints on arguments and types.
    """
    returned = []
    for i, _ in enumerate(op.regions):
        block = block_of(op, i, empty)
        if block.arguments:
            raise Violation(empty, f"branch {i} must have 0 arguments, but found {len(block.arguments)}")
        returned.append(returned_types(block))
    for i, types in enumerate(returned[1:], 1):
        if not compatible_lists(types, returned[0]):
            raise Violation(
                same,
                f"branch 0 and branch {i} have mismatched return types: "
                f"{types_text(returned[0])} vs {types_text(types)}",
            )
    return [_join(column) for column in zip(*returned, strict=True)]


def _join(types: tuple[Type, ...]) -> Type:
    """Returns the common type of a value that may come from any branch."""
    first = types[0]
    if not isinstance(first, TensorType) or all(t == first for t in types):
        return first
    shape = tuple(
        n if all(isinstance(t, TensorType) and t.shape is not None and t.shape[d] == n for t in types) else None
        for d, n in enumerate(first.shape or ())
    )
    bounds = first.bounds if all(isinstance(t, TensorType) and t.bounds == first.bounds for t in types) else None
    return TensorType(shape, first.dtype, bounds) if bounds and None in shape else TensorType(shape, first.dtype)


def _infer_if(op: Op) -> list[Type]:
    return _branch_types(op, "C1", "C2")


def _infer_case(op: Op) -> list[Type]:
    if not op.regions:
        raise Violation("C1", "expect at least one branch")
    return _branch_types(op, "C2", "C3")


def _if(op: Op, pred: Array, *, run: RegionRunner) -> tuple[Array, ...]:
    return run(0 if pred else 1)


def _case(op: Op, index: Array, *, run: RegionRunner) -> tuple[Array, ...]:
    i = int(index)
    return run(i if 0 <= i < len(op.regions) else len(op.regions) - 1)


CARRIED = "any_tensor|token|tuple|buffer|unranked|index|future"

define(
    "stablehlo.if", section="if",
    operands=("pred: 0d pred",), results=("results*: any_tensor|token",), regions=("true_branch", "false_branch"),
    infer=_infer_if, reference=_if,
)  # fmt: skip
define(
    "stablehlo.case", section="case",
    operands=("index: 0d i32",), results=("results*: any_tensor|token",), regions=("branches*",),
    infer=_infer_case, reference=_case,
)  # fmt: skip

# while


def _infer_while(op: Op) -> list[Type]:
    types = [v.type for v in op.operands]
    cond, body = block_of(op, 0, "C1"), block_of(op, 1, "C2")
    for label, what, given in (
        ("C1", "condition block arguments", [a.type for a in cond.arguments]),
        ("C2", "body block arguments", [a.type for a in body.arguments]),
        ("C2", "body block return types", returned_types(body)),
    ):
        if not compatible_lists(types, given):
            raise Violation(
                label,
                f"expect operands to be compatible with {what} but got {types_text(types)} vs {types_text(given)}",
            )
    results = returned_types(cond)
    if len(results) != 1:
        raise Violation("C1", f"expect condition block return a single value but got {len(results)}")
    t = results[0]
    if not isinstance(t, TensorType) or t.dtype != I1 or t.shape not in ((), None):
        raise Violation("C1", f"expect condition block return a zero-ranked tensor of i1 but got '{type_text(t)}'")
    return types


def _while(op: Op, *state: Array, run: RegionRunner) -> tuple[Array, ...]:
    while run(0, *state)[0]:
        state = run(1, *state)
    return state


define(
    "stablehlo.while", section="while",
    operands=(f"operand*: {CARRIED}",), results=(f"results*: {CARRIED}",), regions=("cond", "body"),
    infer=_infer_while, reference=_while,
)  # fmt: skip

# functions


def _infer_func(op: Op) -> list[Type]:
    attr = op.attributes.get("function_type")
    if not isinstance(attr, TypeAttr) or not isinstance(attr.type, FunctionType):
        raise Violation("attribute", "requires attribute 'function_type' that is a function type")
    for name, what, types in (("arg_attrs", "argument", attr.type.inputs), ("res_attrs", "result", attr.type.results)):
        found = op.attributes.get(name)
        if found is None:
            continue
        if not isinstance(found, tuple) or not all(isinstance(item, DictAttr) for item in found):
            raise Violation("attribute", f"expects '{name}' to be an array of dictionaries")
        if len(found) != len(types):
            wanted = f"the same number of elements as the number of function {what}s"
            got = f"got {len(found)}, but expected {len(types)}"
            raise Violation("attribute", f"expects {what} attribute array to have {wanted}, {got}")
    return []


define("stablehlo.return", operands=("results*: any",), results=(), traits={"terminator"})
define("func.return", operands=("operands*: any",), results=(), traits={"terminator"})
define("builtin.module", results=(), regions=("body",))
define(
    "func.func", section="Functions", results=(), regions=("body*",),
    attributes={"sym_name": required("string"), "function_type": required("type")}, infer=_infer_func,
)  # fmt: skip
define(
    "func.call", operands=("operands*: any",), results=("results*: any",), attributes={"callee": required("symbol")},
    traits={"on_storage", "side_effect", "chooses_result"},
    reference=lambda op, *xs, call: call(_symbol(op, "callee"), *xs),
)  # fmt: skip
define(
    "func.constant", results=("result: any",), attributes={"value": required("symbol")},
    traits={"chooses_result"}, reference=lambda op: (_symbol(op, "value"),),
)  # fmt: skip


def _verify_call_indirect(op: Op) -> None:
    types = [v.type for v in op.operands]
    expected = FunctionType(tuple(types[1:]), tuple(v.type for v in op.results))
    if types[0] != expected:
        raise Violation("type", f"callee of type '{type_text(types[0])}' is called as '{type_text(expected)}'")


define(
    "func.call_indirect", operands=("callee: any", "operands*: any"), results=("results*: any",),
    traits={"side_effect", "chooses_result"}, verify=_verify_call_indirect,
    reference=lambda op, function, *xs, call: call(function, *xs),
)  # fmt: skip


def _symbol(op: Op, name: str) -> str:
    attr = op.attributes[name]
    return attr if isinstance(attr, str) else attr.name


_COMPOSITE_NAME = re.compile(r"[A-Za-z]\w*(\.[\w$]+)+", re.ASCII)


def _verify_composite(op: Op) -> None:
    if not _COMPOSITE_NAME.fullmatch(op.attributes["name"]):
        raise Violation("C1", "name must be a valid namespaced op name")


define(
    "stablehlo.composite", section="composite",
    operands=("inputs*: any",), results=("results*: any",),
    attributes={
        "name": required("string"),
        "decomposition": required("symbol"),
        "composite_attributes": optional("dict"),
        "version": optional("i32", 0),
    },
    regions=("composite_regions*",), traits={"on_storage", "chooses_result"}, verify=_verify_composite,
    reference=lambda op, *xs, call: call(_symbol(op, "decomposition"), *xs),
)  # fmt: skip

# tuples


def _infer_tuple(op: Op) -> list[Type]:
    found = TupleType(tuple(v.type for v in op.operands))
    if found.parts > MAX_PARTS:
        raise Violation("type", f"a type may have at most {MAX_PARTS:,} parts, this tuple has {found.parts:,}")
    return [found]


def _infer_get_tuple_element(op: Op) -> list[Type]:
    t = op.operands[0].type
    assert isinstance(t, TupleType)
    index = op.int("index")
    if index >= len(t.types):
        raise Violation("C1", f"index {index} is out of bounds of operand with size {len(t.types)}")
    return [t.types[index]]


define(
    "stablehlo.tuple", section="tuple",
    operands=("val*: any_tensor|token|tuple|buffer",), results=("result: tuple",),
    traits={"on_storage"}, infer=_infer_tuple, reference=lambda op, *xs: (tuple(xs),),
)  # fmt: skip
define(
    "stablehlo.get_tuple_element", section="get_tuple_element",
    operands=("operand: tuple",), results=("result: any",), attributes={"index": required("i32 >= 0", "C1")},
    traits={"on_storage"}, infer=_infer_get_tuple_element, reference=lambda op, x: (x[op.int("index")],),
)  # fmt: skip

# order


def _infer_operands(op: Op) -> list[Type]:
    return [v.type for v in op.operands]


def _token(op: Op, *xs: Array) -> tuple[None]:
    """Reference of ops that return a token, which has no value."""
    return (None,)


define(
    "stablehlo.optimization_barrier", section="optimization_barrier",
    operands=("operand*: tensor|token",), results=("result*: tensor|token",),
    traits={"on_storage", "side_effect"}, infer=_infer_operands, reference=lambda op, *xs: xs,
)  # fmt: skip
define(
    "stablehlo.after_all", section="after_all",
    operands=("inputs*: token",), results=("result: token",), infer=lambda op: [TOKEN], reference=_token,
)  # fmt: skip
define(
    "stablehlo.create_token", section="",
    results=("output: token",), infer=lambda op: [TOKEN], reference=_token,
)  # fmt: skip

# trace: deprecated; marks a value in a profile


define(
    "stablehlo.trace", section="",
    operands=("operand: any_tensor",), results=(), attributes={"tag": required("string")},
    reference=lambda op, x: (),
)  # fmt: skip

# async


ASYNCHRONOUS = {
    f"stablehlo.{name}"
    for name in (
        "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "collective_reduce",
        "reduce_scatter", "slice", "dynamic_slice", "dynamic_update_slice",
    )
}  # fmt: skip
"""Ops that may run asynchronously."""


def _infer_async_start(op: Op) -> list[Type]:
    if not op.regions or not op.regions[0].blocks:
        raise Violation("region", "op requires one region")
    block = block_of(op, 0, "region")
    inside = [inner.name for inner in block.ops[:-1]]
    if len(inside) != 1 or inside[0] not in ASYNCHRONOUS:
        found = ", ".join(inside[:5]) or "none"
        message = f"body must consist of one collective or slice op, but its ops are: {found}"
        raise Violation("C3", message, found=found, expected=f"one of {', '.join(sorted(ASYNCHRONOUS))}")
    if len(op.operands) != len(block.arguments):
        raise Violation(
            "C1",
            f"number of operands ({len(op.operands)}) must match number of region arguments ({len(block.arguments)})",
        )
    for i, (v, a) in enumerate(zip(op.operands, block.arguments, strict=True)):
        if not compatible(v.type, a.type):
            raise Violation(
                "C1", f"operand #{i} of type '{type_text(v.type)}' does not fit argument '{type_text(a.type)}'"
            )
    return [FutureType(tuple(returned_types(block)))]


def _infer_async_done(op: Op) -> list[Type]:
    t = op.operands[0].type
    assert isinstance(t, FutureType)
    return list(t.types)


define(
    "stablehlo.async_start", section="async_start",
    operands=("operands*: any",), results=("future: future",), regions=("body",),
    infer=_infer_async_start, reference=lambda op, *xs, run: (run(0, *xs),),
)  # fmt: skip
define(
    "stablehlo.async_done", section="async_done",
    operands=("future: future",), results=("results*: any",), traits={"on_storage"},
    infer=_infer_async_done, reference=lambda op, x: x,
)  # fmt: skip
