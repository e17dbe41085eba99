"""IR levels between passes, as data: the rules that a function satisfies so far.

`verifier.py` decides whether a function is a valid program at all. On the way to machine code, passes establish
additional rules and name them (`passes/__init__.py`). A rule holds from then on: a pass that breaks one is defective,
whatever the program. Together the rules define two languages:

* core: the ops that remain after compound ops are expanded. Every value is a static tensor, and every op has a lowering
  (`tests/verify/test_core.py` compares the two). There are no composites, tuples or quantized types. Collective ops
  name processes by number. Regions of reductions and similar ops operate on scalars.
* canonical: core, with products, convolutions and linear algebra in the forms that the routines support, and without
  dead ops.

An op of an unknown dialect breaks no rule: lowering rejects it, with its line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shlo_jit.errors import InternalError, diagnose
from shlo_jit.ir.attributes import ConvDims, Dense
from shlo_jit.ir.core import Op, walk
from shlo_jit.ir.types import FutureType, QuantizedType, TensorType, TokenType, TupleType, Type
from shlo_jit.ops import OPS
from shlo_jit.ops.bodies import CONTROL, PLAIN_BODIES, is_plain
from shlo_jit.ops.call_record import configuration
from shlo_jit.ops.collective import may_use_row_dimension, rows_of_part
from shlo_jit.ops.effects import acting
from shlo_jit.ops.known_calls import RECV, SEND
from shlo_jit.ops.product_types import accumulator, operand_type, operand_types
from shlo_jit.ops.runs import outer_of, roles_of, run_of
from shlo_jit.ops.type_algebra import type_text


def not_removed(op: Op) -> str | None:
    """Check of rules that permit none of the ops they concern."""
    return "it should have been removed"


@dataclass(frozen=True)
class Rule:
    """A property of every function from some pass on."""

    statement: str
    concerns: Callable[[str], bool] = lambda name: False
    """Whether `op_is_wrong` checks the ops with this name."""
    op_is_wrong: Callable[[Op], str | None] = not_removed
    """Returns what is wrong with such an op; None if it satisfies the rule."""
    type_is_wrong: Callable[[Type], bool] = lambda t: False
    """Whether a value of this type breaks the rule."""
    wrong_ops: Callable[[Op, list[Op]], Iterable[Op]] = lambda function, ops: ()
    """Returns the ops that break the rule, given a function and all ops in it."""

    def __hash__(self) -> int:
        return id(self)


def check_level(function: Op, rules: Iterable[Rule], after: str) -> None:
    """Raises InternalError with the pass, the rule and the line of the op if a function breaks one of the rules."""
    for op, rule, found in violations(function, tuple(dict.fromkeys(rules))):
        what = f"after {after}: {op.name} breaks the rule '{rule.statement}': {found}"
        raise InternalError(str(diagnose(what, op.span)))


def violations(function: Op, rules: tuple[Rule, ...]) -> Iterator[tuple[Op, Rule, str]]:
    """Yields every op that breaks a rule, the rule, and what is wrong."""
    ops = list(walk(function.block()))
    for t, op in _types([function, *ops]).values():
        for rule in rules:
            if rule.type_is_wrong(t):
                yield op, rule, f"a value of type {type_text(t)}"
    concerned = _level(rules)
    for op in ops:
        for rule in concerned(op.name):
            found = rule.op_is_wrong(op)
            if found is not None:
                yield op, rule, found
    for rule in rules:
        yield from ((op, rule, "its results are unused") for op in rule.wrong_ops(function, ops))


@functools.cache
def _level(rules: tuple[Rule, ...]) -> Callable[[str], list[Rule]]:
    """Returns a cached lookup of the rules that concern an op, by its name."""
    return functools.lru_cache(4096)(lambda name: [rule for rule in rules if rule.concerns(name)])


def _types(ops: list[Op]) -> dict[int, tuple[Type, Op]]:
    """Returns the distinct types of all values (by identity), each with an op that has such a value."""
    found: dict[int, tuple[Type, Op]] = {}
    for op in ops:
        for value in op.results:
            if id(value.type) not in found:
                found[id(value.type)] = value.type, op
        for region in op.regions:
            for block in region.blocks:
                found.update((id(a.type), (a.type, op)) for a in block.arguments)
    return found


def _named(*names: str) -> Callable[[str], bool]:
    return frozenset(names).__contains__


# ---------------------------------------------------------------------------- frontend
def _call_is_wrong(op: Op) -> str | None:
    if op.name != "func.call":
        return not_removed(op)
    return None if "has_side_effect" in op.attributes else "it has no attribute has_side_effect"


def _call_in_region(op: Op) -> str | None:
    inside = (inner for r in op.regions for b in r.blocks for inner in walk(b))
    return next((f"{inner.name} in its region" for inner in inside if inner.name == "func.call"), None)


def _sharding_is_wrong(op: Op) -> str | None:
    same = [v.type for v in op.operands] == [r.type for r in op.results]
    return not_removed(op) if op.regions or not op.results or same else None


def _is_collective(name: str) -> bool:
    record = OPS.get(name)
    return record is not None and record.has("collective")


def _collective_is_wrong(op: Op) -> str | None:
    if op.name == "stablehlo.replica_id":
        return None
    if op.name == "stablehlo.custom_call":
        between = op.attributes["call_target_name"] in (SEND, RECV)
        return "no source_target_pairs" if between and "source_target_pairs" not in configuration(op) else None
    named = op.attributes.get("source_target_pairs" if op.name.endswith("permute") else "replica_groups")
    if not isinstance(named, Dense) or op.name == "stablehlo.cross-replica-sum":
        return not_removed(op)
    more = {"channel_handle", "use_global_device_ids"} & op.attributes.keys()
    return f"it has {min(more)}" if more else None


CALLS = Rule(
    "no call except of functions that are not inlined, and such calls state whether they have an effect",
    concerns=_named("func.call", "call", "func.call_indirect", "stablehlo.composite"),
    op_is_wrong=_call_is_wrong,
)
CALLERS = Rule(
    "no call in the region of an op that is not control flow",
    concerns=lambda name: name not in CONTROL,
    op_is_wrong=lambda op: _call_in_region(op) if op.regions else None,
)
SHARDINGS = Rule("no op of Shardy", concerns=lambda name: name.startswith("sdy."), op_is_wrong=_sharding_is_wrong)
HOST_TRANSFERS = Rule(
    "transfers are custom calls", concerns=_named(*("stablehlo." + n for n in "infeed outfeed send recv".split()))
)
COLLECTIVES = Rule(
    "collective ops name groups or pairs of processes by number",
    concerns=lambda name: _is_collective(name) or name == "stablehlo.custom_call",
    op_is_wrong=_collective_is_wrong,
)
TOKENS = Rule(
    "no tuple, token or future",
    concerns=_named(
        *("stablehlo." + n for n in "tuple get_tuple_element after_all create_token async_start async_done".split())
    ),
    type_is_wrong=lambda t: isinstance(t, TupleType | TokenType | FutureType),
)

# ---------------------------------------------------------------------------- quantized, regions, expand
UNQUANTIZED = Rule(
    "no quantized type", type_is_wrong=lambda t: isinstance(t, TensorType) and isinstance(t.dtype, QuantizedType)
)


def _is_static(op: Op) -> bool:
    return all(isinstance(v.type, TensorType) and v.type.is_static for v in (*op.operands, *op.results))


def _body_is_wrong(op: Op) -> str | None:
    for region in op.regions:
        if any(a.type.shape != () for a in region.block.arguments if isinstance(a.type, TensorType)):
            return "a region with tensor arguments"
        if _is_static(op) and not is_plain(region.block):
            return "a region that contains regions, tensors or outside values"
    return None


def _elements_differ(op: Op) -> str | None:
    if not _is_static(op):
        return None
    arguments = op.block().arguments
    body = [a.tensor.storage for a in arguments[: len(arguments) // 2]]
    given = [v.tensor.storage for v in op.operands[: len(body)]]
    return None if given == body else f"the operands have elements {given}, the body has {body}"


ONE_ELEMENT_TYPE = Rule(
    "operands of reductions and scatters have the element types of their bodies",
    concerns=_named("stablehlo.reduce", "stablehlo.scatter"),
    op_is_wrong=_elements_differ,
)
SCALAR_BODIES = Rule(
    "bodies of reductions and similar ops use only their own scalars",
    concerns=PLAIN_BODIES.__contains__,
    op_is_wrong=_body_is_wrong,
)
STATIC = Rule(
    "every value is a tensor with static extents",
    type_is_wrong=lambda t: not isinstance(t, TensorType) or not t.is_static,
)


# ---------------------------------------------------------------------------- canonical
def _linalg_is_wrong(op: Op) -> str | None:
    dtype = op.result.tensor.storage
    if dtype.is_float and dtype.bits < 32:
        return f"elements of {dtype}"
    if op.name == "stablehlo.cholesky":
        return "it computes the lower triangle" if op.attributes.get("lower", False) else None
    if not op.attributes["left_side"]:
        return "it solves from the right"
    kind = op.attributes["transpose_a"].value
    return None if kind in ("NO_TRANSPOSE", "TRANSPOSE") else kind


def _layouts_are_wrong(op: Op) -> str | None:
    named = [name for name in ("operand_layouts", "result_layouts") if op.attributes.get(name) is not None]
    return f"it has {named[0]}" if named else None


def _dot_is_wrong(op: Op) -> str | None:
    lhs, rhs, result = (v.tensor.storage for v in (*op.operands, op.result))
    acc = accumulator(lhs, result)
    if result != acc:
        return f"a result of {result}, but the accumulator is {acc}"
    if (lhs, rhs) != operand_types(lhs, rhs, acc):
        return f"operands of {lhs} and {rhs} for an accumulator of {acc}"
    roles = roles_of(op)
    lhs_shape, rhs_shape = (v.tensor.extents for v in op.operands)
    runs = run_of(lhs_shape, roles.lhs_contracting), run_of(rhs_shape, roles.rhs_contracting)
    splits = outer_of(lhs_shape, roles.lhs_free), outer_of(rhs_shape, roles.rhs_free)
    if None in runs or None in splits:
        return "dimensions that are not contiguous runs"
    if any(splits) and (all(splits) or roles.lhs_batch):
        return "free dimensions on both sides of contracted ones, in both operands or with batch dimensions"
    return None


def _convolution_is_wrong(op: Op) -> str | None:
    lhs, rhs, result = (v.tensor.storage for v in (*op.operands, op.result))
    acc = accumulator(lhs, result)
    if result != acc or acc.is_complex:
        return f"a result of {result}, but the accumulator is {acc}"
    if lhs != rhs or lhs != operand_type(lhs, rhs, acc):
        return f"operands of {lhs} and {rhs} for an accumulator of {acc}"
    d = op.attributes["dimension_numbers"]
    assert isinstance(d, ConvDims)
    batch, feature, spatial = d.output_batch_dimension, d.output_feature_dimension, d.output_spatial_dimensions
    straight = tuple(range(op.result.tensor.rank))
    return None if straight in ((batch, *spatial, feature), (batch, feature, *spatial)) else "another layout"


def _dead_ops(function: Op, ops: list[Op]) -> Iterator[Op]:
    """Returns the ops without effect whose results are unused."""
    read = {v for op in ops for v in op.operands}
    unread = [op for op in ops if op.results and read.isdisjoint(op.results)]
    with_effect = acting(function.block()) if unread else set[Op]()
    return (op for op in unread if op not in with_effect)


def _collective_layout_is_wrong(op: Op) -> str | None:
    if op.name == "stablehlo.all_to_all" and (op.int("split_dimension") or op.int("concat_dimension")):
        return "along a dimension other than 0"
    if op.name in ("stablehlo.all_gather", "stablehlo.reduce_scatter") and not may_use_row_dimension(op):
        return f"along rows of {rows_of_part(op)[1]} bytes"
    if op.name != "stablehlo.all_reduce" and len(op.results) > 1:
        return "several operands"
    pairs = zip(op.operands, op.results, strict=False)  # a dynamic root comes after the data
    different = [(v.tensor.storage, r.tensor.storage) for v, r in pairs if v.tensor.storage != r.tensor.storage]
    return "operands of {} for results of {}".format(*different[0]) if different else None


COLLECTIVE_LAYOUTS = Rule(
    "collective ops move blocks or long rows, have one operand (except all_reduce) and keep element types",
    concerns=_named(
        *("stablehlo." + n for n in "all_gather all_reduce all_to_all reduce_scatter".split()),
        *("stablehlo.collective_" + n for n in "broadcast permute reduce".split()),
    ),
    op_is_wrong=_collective_layout_is_wrong,
)
LINALG = Rule(
    "cholesky and triangular_solve have the form that the kernels support",
    concerns=_named("stablehlo.cholesky", "stablehlo.triangular_solve"),
    op_is_wrong=_linalg_is_wrong,
)
ROW_MAJOR = Rule(
    "operands and results of custom calls are row-major",
    concerns=_named("stablehlo.custom_call"),
    op_is_wrong=_layouts_are_wrong,
)
DOTS = Rule(
    "products have supported operand types, return the accumulator type and contract contiguous runs",
    concerns=_named("stablehlo.dot_general"),
    op_is_wrong=_dot_is_wrong,
)
CONVOLUTIONS = Rule(
    "convolutions have one supported operand type, return the accumulator type and have a supported layout",
    concerns=_named("stablehlo.convolution"),
    op_is_wrong=_convolution_is_wrong,
)
NO_DEAD_OPS = Rule("no op without effect whose results are unused", wrong_ops=_dead_ops)
