"""Known custom calls: their records, and the ops that some of them are equivalent to.

Callers must first check that the user has not registered an implementation of the target. Such a call belongs to the
user, and nothing here applies to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense, DenseArray, DictAttr, EnumAttr, IntegerAttr, SymbolRef
from shlo_jit.ir.core import Block, Op, Region, Value
from shlo_jit.ir.types import I1, I64, FunctionType, TensorType, Type, tensor
from shlo_jit.ops import OPS
from shlo_jit.ops.call_record import LABEL, CallDef, configuration, items_of_target_operands, ports
from shlo_jit.ops.grouped import GROUPED, grouped_of
from shlo_jit.ops.lapack_records import LETTERS, lapack_record, lapack_target
from shlo_jit.ops.ranged import RANGED, EmittedByPass
from shlo_jit.ops.record import Violation
from shlo_jit.ops.type_algebra import compatible_shapes, constant_ints, type_text
from shlo_jit.sizes import NotSymbolic, Size

SHAPE_ASSERTION = "shape_assertion"
SPARSE_PRODUCT = "cpu_csr_sparse_dense_ffi"
DRAW = "shlo_jit.draw"
"""Returns a fresh random key; see `passes/expand/rng.py`."""
SIZE = "shlo_jit.size"
"""Returns `size`, which is known only at the call."""
SORT = "shlo_jit.sort"
"""Sorts its first operands, one per result, along `dimension` by the function `callee`, which also takes the other
operands; see `passes/regions/outline.py`."""
SEND, RECV = "shlo_jit.send", "shlo_jit.recv"
"""Transfers to and from another process, along `source_target_pairs`."""
RAGGED_ALL_TO_ALL = "ragged_all_to_all"
AMONG_PROCESSES = frozenset({SEND, RECV, RAGGED_ALL_TO_ALL})
START = "shlo_jit.start"
"""Start of the asynchronous collective op that has the same number `started`."""
JAX_CALLBACK = re.compile(r"xla_(\w+_)?python_(\w+_)?callback")
"""Targets of Python functions that JAX keeps outside a program: `pure_callback`, `io_callback`, `debug.print`,
`buffer_callback`, for any platform, in this and earlier versions of JAX."""
CODE = "shlo_jit.machine_code"
"""Runs `code`, a `machine_code.MachineCode`, which is compiled with the program."""
ELEMENTWISE = "shlo_jit.elementwise"
"""Attribute of calls whose results have the shape of their operands; see `passes/refine/elementwise_calls.py`."""
APPROXIMATE_TOP_K = {"ApproxTopK", "stablehlo.dynamic_approx_top_k"}
"""Targets of approximate top-k. The second has k as an operand, although the result's type implies it."""


def _wrong(op: Op, message: str) -> Violation:
    return Violation(LABEL, f"custom_call @{op.attributes['call_target_name']}: {message}")


def call_record(op: Op) -> CallDef | None:
    """Returns the record of a custom call's target, or None."""
    target = op.attributes["call_target_name"]
    found = lapack_target(target)
    if found is None:
        return _RECORDS.get(target)
    _, routine, ffi = found
    return lapack_record(lapack_letter(op), routine, ffi)


def lapack_letter(op: Op) -> str:
    """Returns LAPACK's letter for a call's element type. Raises Violation if there is none."""
    found = lapack_target(op.attributes["call_target_name"])
    if found is not None and found[0]:
        return found[0]
    t = op.operands[0].type if op.operands else None
    for letter, name in LETTERS.items():
        if isinstance(t, TensorType) and str(t.dtype) == name:
            return letter
    what = "nothing" if t is None else f"'{type_text(t)}'"
    raise _wrong(op, f"operand 'dl' must have elements of {', '.join(LETTERS.values())}, but got {what}")


# Product of a sparse matrix (CSR) and a dense one


def _check_sparse_product(op: Op) -> None:
    types = [v.type for v in (*op.operands, *op.results)]
    if not all(isinstance(t, TensorType) and t.shape is not None for t in types):
        return
    data, starts, columns, x, result = types
    assert isinstance(data, TensorType) and isinstance(starts, TensorType) and isinstance(columns, TensorType)
    assert isinstance(x, TensorType) and isinstance(result, TensorType) and starts.shape and x.shape is not None
    if not 1 <= x.rank <= 2 or not data.dtype == x.dtype == result.dtype:
        raise _wrong(op, f"expected a vector or matrix of '{data.dtype}', got '{type_text(x)}'")
    if not compatible_shapes(data.shape, columns.shape):
        raise _wrong(op, f"expected a column for each element, got '{type_text(data)}' and '{type_text(columns)}'")
    rows = None if starts.shape[0] is None else starts.shape[0] - 1
    if not compatible_shapes(result.shape, (rows, *x.shape[1:])):
        expected = type_text(tensor((rows, *x.shape[1:]), x.dtype))
        raise _wrong(op, f"expected the result '{expected}', got '{type_text(result)}'")


# Approximate top-k


def _check_approximate_top_k(op: Op) -> None:
    extra = op.attributes["call_target_name"] != "ApproxTopK"
    n = len(op.results)
    operands = items_of_target_operands(op, op.operands)
    if n == 0 or len(operands) != 2 * n + extra:
        raise _wrong(op, f"expected {2 * n + extra} operands for {n} results, got {len(operands)}")
    if not isinstance(op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config")), DictAttr):
        raise _wrong(op, "needs a dictionary as its backend_config")
    options = configuration(op)
    dimension, k = options.get("reduction_dim"), options.get("top_k")
    if type(dimension) is not int:
        raise _wrong(op, "needs attribute 'reduction_dim', an integer, in its backend_config")
    for i, result in enumerate(op.results):
        t, init, r = operands[i].type, operands[n + i].type, result.type
        if not isinstance(t, TensorType) or not isinstance(r, TensorType) or not isinstance(init, TensorType):
            raise _wrong(op, f"expected tensors, got '{type_text(t)}', '{type_text(init)}' and '{type_text(r)}'")
        if t.shape is None or r.shape is None:
            continue
        if not -t.rank <= dimension < t.rank:
            raise _wrong(op, f"reduction_dim {dimension} is not a dimension of '{type_text(t)}'")
        d = dimension % t.rank
        shape = list(t.shape)
        shape[d] = r.shape[d] if r.rank == t.rank else None
        first = operands[0].type
        fits = compatible_shapes(tuple(shape), r.shape) and compatible_shapes(t.shape, first.shape)  # type: ignore[attr-defined]
        if not fits or t.dtype != r.dtype or init.dtype != t.dtype or init.shape not in ((), None):
            raise _wrong(op, f"'{type_text(t)}' and '{type_text(init)}' do not match the result '{type_text(r)}'")
        have, wanted = t.shape[d], r.shape[d]
        if have is not None and wanted is not None and wanted > have:
            raise _wrong(op, f"expected at least {wanted} elements along dimension {d} of '{type_text(t)}'")
        if options.get("aggregate_to_topk") is True and type(k) is int and wanted not in (None, k):
            raise _wrong(op, f"top_k = {k}, but the result is '{type_text(r)}'")


# Communication between processes


def _check_matrix(op: Op, name: str, attribute: Any) -> None:
    if not isinstance(attribute, Dense) or attribute.type.rank != 2 or attribute.type.storage.kind not in "iu":
        raise _wrong(op, f"needs '{name}', a matrix of integers, in its backend_config")


def _check_pairs(op: Op) -> None:
    pairs = configuration(op).get("source_target_pairs")
    if pairs is not None:
        _check_matrix(op, "source_target_pairs", pairs)


def _check_ragged_all_to_all(op: Op) -> None:
    _check_matrix(op, "replica_groups", configuration(op).get("replica_groups"))
    types = [v.type for v in (*op.operands, *op.results)]
    if not all(isinstance(t, TensorType) and t.shape is not None for t in types):
        return
    x, out, *tables, result = (v.tensor for v in (*op.operands, *op.results))
    assert x.shape is not None and out.shape is not None and tables[0].shape is not None
    if x.dtype != out.dtype or not x.shape or not out.shape or not compatible_shapes(x.shape[1:], out.shape[1:]):
        raise _wrong(op, f"expected input and output of rows of one type, got '{type_text(x)}' and '{type_text(out)}'")
    if result.dtype != out.dtype or not compatible_shapes(result.shape, out.shape):
        raise _wrong(op, f"expected the result '{type_text(out)}', got '{type_text(result)}'")
    for t in tables:
        if t.shape is None or len(t.shape) not in (1, 2) or not compatible_shapes(t.shape, tables[0].shape):
            both = f"'{type_text(tables[0])}' and '{type_text(t)}'"
            raise _wrong(op, f"expected offsets and sizes of one shape of rank 1 or 2, got {both}")


def _comparator_type(op: Op) -> FunctionType:
    elements = [_scalar(v.type) for v in op.operands[: len(op.results)]]
    return FunctionType(tuple(t for t in elements for _ in range(2)), (tensor((), I1),))


def _check_size(op: Op) -> None:
    if not isinstance(op.attributes.get("size"), Size):
        raise _wrong(op, "the target is reserved for the compiler")


class OutlinedRef(SymbolRef):
    """Name of a function that the compiler has outlined from a region; never occurs in program text."""

    __slots__ = ()


def _check_sort(op: Op) -> None:
    if not isinstance(op.attributes.get("callee"), OutlinedRef):
        raise _wrong(op, "the target is reserved for the compiler")


def _check_grouped(op: Op) -> None:
    if grouped_of(op) is None:
        raise _wrong(op, "the target is reserved for the compiler")


def _check_ranged(op: Op) -> None:
    is_own = isinstance(op.attributes.get("ranged"), EmittedByPass)
    if not is_own or op.operands[2].type != op.operands[3].type:
        raise _wrong(op, "the target is reserved for the compiler")


def function_of_call(op: Op) -> str | None:
    """Returns the function of the program that an op calls: the callee of a call or the comparator of a sort."""
    is_sort = op.name == "stablehlo.custom_call" and op.attributes["call_target_name"] == SORT
    return op.attributes["callee"].name if is_sort or op.name == "func.call" else None


def _scalar(t: Type) -> Type:
    return tensor((), t.dtype) if isinstance(t, TensorType) else t


def _reducer_type(op: Op) -> FunctionType:
    n = len(op.results)
    elements = tuple(_scalar(v.type) for v in op.operands[n : 2 * n])
    return FunctionType(elements * 2, elements)


CALLED: dict[str, Callable[[Op], FunctionType]] = {
    **dict.fromkeys(APPROXIMATE_TOP_K, _comparator_type),
    "stablehlo.dynamic_reduce_window": _reducer_type,
}
"""Required type of the single function in `called_computations`, by target."""

_RECORDS: dict[str, CallDef] = {
    SHAPE_ASSERTION: CallDef(ports("condition: 0d pred, value*: 0d int|index"), options={"error_message": "?string"}),
    SPARSE_PRODUCT: CallDef(
        ports("data: 1d int|float|complex, starts: 1d i32|i64|ui32|ui64, columns: 1d i32|i64|ui32|ui64, x: tensor"),
        ports("result: int|float|complex"), verify=_check_sparse_product,
    ),
    "AllocateBuffer": CallDef(results=ports("buffer*: any")),
    DRAW: CallDef(results=ports("state: 1d ui64[2]")),
    SEND: CallDef(ports("value*: any"), ports("token*: token"), {"channel": "?int"}, verify=_check_pairs),
    RECV: CallDef(ports("token*: token"), ports("result*: any"), {"channel": "?int"}, verify=_check_pairs),
    START: CallDef(ports("operand*: any")),
    RAGGED_ALL_TO_ALL: CallDef(
        ports(
            "input: pred|int|float|complex, output: pred|int|float|complex, input_offsets: int, send_sizes: int, "
            "output_offsets: int, recv_sizes: int"
        ),
        ports("result: pred|int|float|complex"), {"channel_id": "?int"}, verify=_check_ragged_all_to_all,
    ),
    SORT: CallDef(ports("operand*: any"), ports("result*: any"), verify=_check_sort),
    GROUPED: CallDef(
        ports("lhs: int|float, rhs: int|float, starts: i64, ends: i64"), ports("result: int|float"),
        verify=_check_grouped,
    ),
    RANGED: CallDef(
        ports("lhs: tensor, rhs: tensor, starts: i64, ends: i64"), ports("result: tensor"), verify=_check_ranged
    ),
    SIZE: CallDef(results=ports("size: 0d i32"), verify=_check_size),
    "stablehlo.infeed": CallDef(ports("token*: token"), ports("result*: any")),
    "stablehlo.recv": CallDef(ports("token*: token"), ports("result*: any"), {"channel": "?int"}),
    "stablehlo.outfeed": CallDef(ports("value*: any"), ports("token*: token")),
    "stablehlo.send": CallDef(ports("value*: any"), ports("token*: token"), {"channel": "?int"}),
    "stablehlo.dynamic_top_k": CallDef(ports("x: int|float, k: int|index"), ports("values: tensor, indices: tensor")),
    "stablehlo.dynamic_rng_bit_generator": CallDef(
        ports("state: 1d int|float, shape: 1d int|index"), ports("state: 1d int|float, bits: int|float")
    ),
    "stablehlo.dynamic_reduce_window": CallDef(ports("operand*: any"), ports("result*: any")),
    **dict.fromkeys(
        APPROXIMATE_TOP_K, CallDef(ports("operand*: any"), ports("result*: any"), verify=_check_approximate_top_k)
    ),
}  # fmt: skip


# Calls, and ops of MHLO, that are equivalent to an op


OTHER_NAMES = {"topk": "top_k"}
"""Ops whose names in MHLO and CHLO differ."""


def equivalent_op(op: Op) -> Op | None:
    """Returns the op that a custom call or MHLO op is equivalent to; its body gives only types.

    None if there is no such op, or if values that would be its attributes are not known yet. Raises Violation if
    operands and results contradict each other.
    """
    if op.name.startswith("mhlo."):
        return _of_mhlo(op, op.name.removeprefix("mhlo."), op.attributes)
    target = op.attributes["call_target_name"]
    if target.startswith("mhlo."):
        given = op.attributes.get("mhlo.attributes", op.attributes.get("backend_config"))
        return _of_mhlo(op, target.removeprefix("mhlo."), dict(given.items) if isinstance(given, DictAttr) else {})
    rule = _STANDS_FOR.get(target)
    static = all(isinstance(v.type, TensorType) and v.type.is_static for v in op.results)
    return rule(op) if rule is not None and static else None


def results_of(op: Op) -> list[Type] | None:
    """Returns the result types of a call that is equivalent to an op whose shapes follow from its operands.

    None for any other call, or if the shapes are unknown. Raises Violation, and NotSymbolic if only fixed shapes are
    supported.
    """
    target = op.attributes["call_target_name"]
    if target == "stablehlo.dynamic_reduce_window":
        meant = _reduce_window(op)
        infer = OPS["stablehlo.reduce_window"].infer
        return None if meant is None or infer is None else list(infer(meant))
    if op.attributes.get(ELEMENTWISE) and op.operands:
        shape = max((v.tensor.shape or () for v in op.operands), key=len)
        return [tensor(shape, r.tensor.dtype) for r in op.results]
    if target not in _STANDS_FOR or len(op.operands) != 2 or len(op.results) != 2:
        return None
    x, known = op.operands[0].type, constant_ints(op.operands[1])
    if known is None or not isinstance(x, TensorType) or not x.shape:
        return None
    if target == "stablehlo.dynamic_rng_bit_generator":
        return [x, tensor(known, op.results[1].tensor.dtype)]
    return [tensor((*x.shape[:-1], *known), v.tensor.dtype) for v in op.results]


def _op(like: Op, name: str, operands: list[Value], attributes: dict[str, Any], regions: list[Region]) -> Op:
    types = [v.type for v in like.results]
    return Op(name, operands, types, attributes, regions, like.source, like.start, like.end)


def _of_mhlo(op: Op, word: str, found: dict[str, Any]) -> Op | None:
    """Returns the CHLO or StableHLO op with an MHLO name; `found` are the attributes of the op or call."""
    word = OTHER_NAMES.get(word, word)
    record = OPS.get("chlo." + word) or OPS.get("stablehlo." + word)
    if record is None or record.regions or record.has("terminator"):
        return None
    attributes = {k: v for k, v in found.items() if k in record.attributes}
    if word == "top_k" and not isinstance(found.get("largest", True), bool):
        raise Violation("attribute", "attribute 'largest' of mhlo.topk must be a bool")
    return _op(op, record.name, op.operands, attributes, [])


def _top_k(op: Op) -> Op | None:
    values = op.results[0].type
    if not isinstance(values, TensorType) or not values.extents:
        raise _wrong(op, f"expected a result of rank 1 or more, got '{type_text(values)}'")
    k, known = values.extents[-1], constant_ints(op.operands[1])
    if known is not None and known != (k,):
        raise _wrong(op, f"operand 'k' is {list(known)}, but the result is '{type_text(values)}'")
    return _op(op, "chlo.top_k", op.operands[:1], {"k": IntegerAttr(k)}, [])


def _random_bits(op: Op) -> Op | None:
    bits, known = op.results[1].type, constant_ints(op.operands[1])
    if isinstance(bits, TensorType) and known is not None and known != bits.extents:
        raise _wrong(op, f"operand 'shape' is {list(known)}, but the result is '{type_text(bits)}'")
    default = EnumAttr("stablehlo", "rng_algorithm", "DEFAULT")
    attributes = {"rng_algorithm": op.attributes.get("rng_algorithm", default)}
    return _op(op, "stablehlo.rng_bit_generator", op.operands[:1], attributes, [])


WINDOW = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding")


def _reduce_window(op: Op) -> Op | None:
    """Returns the op for a call of `stablehlo.dynamic_reduce_window`; None if its window is not known yet."""
    n = len(op.results)
    if n == 0 or len(op.operands) != 2 * n + len(WINDOW):
        expected = f"{2 * n} arrays and initial values, {', '.join(WINDOW)}"
        raise _wrong(op, f"expected the operands {expected}, got {len(op.operands)}")
    arrays, window = op.operands[: -len(WINDOW)], [constant_ints(v) for v in op.operands[-len(WINDOW) :]]
    if any(not isinstance(v.type, TensorType) for v in op.operands):
        raise _wrong(op, "expected tensors as operands")
    attributes: dict[str, Any] = {}
    for name, known in zip(WINDOW, window, strict=True):
        if known is None:
            return None
        if any(isinstance(number, Size) for number in known):
            raise NotSymbolic("parameters-unknown", f"a reduce_window whose {name} has {known}")
        attributes[name] = DenseArray("i64", known)
    if len(window[-1] or ()) % 2:
        raise _wrong(op, f"operand 'padding' must be pairs, got '{type_text(op.operands[-1].type)}'")
    pairs = np.asarray(window[-1], np.int64).reshape(-1, 2)
    attributes["padding"] = Dense(tensor(pairs.shape, I64), pairs)
    return _op(op, "stablehlo.reduce_window", arrays, attributes, [_reducer_of(arrays[n:])])


def _reducer_of(inits: list[Value]) -> Region:
    """Returns a body with the right types, for checks of types."""
    arguments = [Value(_scalar(v.type)) for _ in range(2) for v in inits]
    return Region([Block(arguments, [Op("stablehlo.return", arguments[: len(inits)], [])])])


_STANDS_FOR: dict[str, Callable[[Op], Op | None]] = {
    "stablehlo.dynamic_top_k": _top_k,
    "stablehlo.dynamic_rng_bit_generator": _random_bits,
    "stablehlo.dynamic_reduce_window": _reduce_window,
}


def called_function(op: Op) -> tuple[str, FunctionType] | None:
    """Returns name and required type of the function that a known call uses; None if it uses none. Raises
    Violation."""
    wanted = CALLED.get(op.attributes.get("call_target_name", ""))
    if wanted is None:
        return None
    called = op.attributes.get("called_computations", ())
    if len(called) != 1 or not isinstance(called[0], SymbolRef):
        raise _wrong(op, "needs one function in its called_computations")
    return called[0].name, wanted(op)
