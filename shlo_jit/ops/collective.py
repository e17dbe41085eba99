"""Ops that communicate with other processes or the host (specification, "Collective ops", "Point-to-point
communication").

They have no reference, since their semantics involve several processes.
"""

from __future__ import annotations

import math
from typing import Any

from shlo_jit import tuning
from shlo_jit.ir.attributes import Dense, IntegerAttr, StructAttr, SymbolRef
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I32, TOKEN, UI32, TensorType, TokenType, Type, tensor
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.reducer import block_of, check_reducer
from shlo_jit.ops.type_algebra import (
    bounds_of,
    compatible_elements,
    operand_types,
    same_dim,
    type_text,
    types_text,
    with_bounds,
    with_element,
)

GROUPS = {
    "replica_groups": required("groups"),
    "channel_handle": optional("struct channel_handle"),
}
GLOBAL_IDS = {"use_global_device_ids": optional("bool", False)}
COLLECTIVE = {"collective", "side_effect"}
WRITTEN_ALONG = "written_along"
"""Attribute of core ops; see `passes/canonical/collective_layouts.py`."""


def channel_id(op: Op) -> int:
    """Returns the handle of the channel; 0 if there is none."""
    attr = op.attributes.get("channel_handle")
    return _number(attr.get("handle", 0)) if isinstance(attr, StructAttr) else 0


def channel_type(op: Op) -> int:
    attr = op.attributes.get("channel_handle")
    return _number(attr.get("type", 0)) if isinstance(attr, StructAttr) else 0


def _number(value: Any) -> int:
    return value.value if isinstance(value, IntegerAttr) else int(value)


def mesh_symbol(op: Op) -> str | None:
    """Returns the name of the mesh in `#stablehlo.replica_group_mesh_axes<mesh = @mesh, ...>`; the verifier looks it
    up."""
    attr = op.attributes.get("replica_groups")
    mesh = attr.get("mesh") if isinstance(attr, StructAttr) else None
    return mesh.name if isinstance(mesh, SymbolRef) else mesh


def check_groups(op: Op, unique: str, inside: str, *, complete: bool = True, uneven: bool = False) -> None:
    """Checks that replica groups name each process once. `complete` groups name all; -1 pads `uneven` groups.

    `unique` and `inside` are the labels of these constraints.
    """
    attr = op.attributes["replica_groups"]
    if not isinstance(attr, Dense):
        return
    if attr.type.shape is None or len(attr.type.shape) != 2:
        raise Violation("attribute", "replica groups should be a rank 2 tensor")
    ids = [int(n) for n in attr.array.reshape(-1)]
    if not ids and op.attributes.get("use_global_device_ids"):
        raise Violation("groups", "if `use_global_device_ids` is set, the replica groups cannot be empty")
    seen: set[int] = set()
    for n in ids:
        if n == -1 and uneven:
            continue
        if n == -1 or (n < 0 and not complete):
            raise Violation(inside, f"Invalid replica id {n}")
        if n in seen:
            raise Violation(unique, f"replica id #{n} seen more than once")
        seen.add(n)
    if complete:
        for n in range(len(seen)):
            if n not in seen:
                raise Violation(inside, f"replica id #{n} not seen in replica groups")


def group_size(op: Op) -> int | None:
    """Returns the number of processes per group; None if the groups are not given explicitly."""
    attr = op.attributes["replica_groups"]
    shape = attr.type.shape if isinstance(attr, Dense) else None
    return shape[1] if shape is not None and len(shape) == 2 else None


def _check_global_ids(op: Op, label: str) -> None:
    if op.attributes.get("use_global_device_ids") and channel_id(op) <= 0:
        raise Violation(label, f"channel_id must be positive when useGlobalDeviceIds is set but got: {channel_id(op)}")


def rows_of_part(op: Op, operand: int = 0) -> tuple[int, int]:
    """Returns the number of rows in a member's part of an all_gather or reduce_scatter operand, and the bytes per row.

    Shapes are static. The rows are the product of the extents before the dimension along which the op communicates.
    """
    gathers = op.name == "stablehlo.all_gather"
    t = (op.operands if gathers else op.results)[operand].tensor
    d = op.int("all_gather_dim" if gathers else "scatter_dimension")
    return math.prod(t.extents[:d]), math.prod(t.extents[d:]) * t.storage.itemsize


def may_use_row_dimension(op: Op, operand: int = 0) -> bool:
    """Whether an all_gather or reduce_scatter may use its dimension directly: rows are long, or there is only one."""
    rows, nbytes = rows_of_part(op, operand)
    return rows <= 1 or nbytes >= tuning.COLLECTIVE_ROW_BYTES


def _results(op: Op) -> list[TensorType]:
    return [v.type for v in op.results]  # type: ignore[misc]


# all_gather, all_to_all, reduce_scatter


def _verify_all_gather(op: Op) -> None:
    d = op.int("all_gather_dim")
    _check_global_ids(op, "C5")
    check_groups(op, "C2", "C4")
    if len(op.results) != len(op.operands):
        raise Violation("C6", f"has {len(op.operands)} operands but {len(op.results)} results")
    for t, r in zip(operand_types(op), _results(op), strict=True):
        if not compatible_elements(t.dtype, r.dtype):
            raise Violation("C6", f"operand and result must have the same element type, got {types_text([t, r])}")
        if t.shape is None or r.shape is None:
            continue
        if d >= t.rank:
            raise Violation("C1", "all_gather_dim must be a valid index of operand")
        if t.rank != r.rank:
            raise Violation("C6", "operand and result must have the same rank")
        _check_other_dims(t, r, d, "all_gather_dim")
        if t.shape[d] == 0:
            raise Violation("C6", "dimension size of operand at 'all_gather_dim' cannot be zero")
        n, m = t.shape[d], r.shape[d]
        if n is not None and m is not None and m % n:
            raise Violation("C6", f"result gather dimension has size {m}, expected to be a multiple of operand gather "
                            f"dimension size {n}")  # fmt: skip


def _check_other_dims(t: TensorType, r: TensorType, d: int, what: str) -> None:
    assert t.shape is not None and r.shape is not None
    for axis, (n, m) in enumerate(zip(t.shape, r.shape, strict=True)):
        if axis != d and not same_dim(n, m):
            raise Violation(
                "C6", f"operand and result should have the same shape except for the dimension size at '{what}'"
            )


def _infer_all_to_all(op: Op) -> list[Type]:
    split, concat, count = op.int("split_dimension"), op.int("concat_dimension"), op.int("split_count")
    check_groups(op, "C5", "C7")
    attr = op.attributes["replica_groups"]
    if isinstance(attr, Dense) and group_size(op) != count:
        raise Violation("C8", f"group size of replica_groups must be {count}")
    out: list[Type] = []
    for t in operand_types(op):
        if t.shape is None:
            out.append(t)
            continue
        for label, what, d in (("C1", "split_dimension", split), ("C3", "concat_dimension", concat)):
            if d >= t.rank:
                raise Violation(label, f"AllToAll {what} {d} is out-of-bounds for input rank {t.rank}")
        n = t.shape[split]
        if n is not None and n % count:
            raise Violation("C2", f"split dimension has size {n}, expected to be a multiple of split_count {count}")
        shape, bounds = list(t.shape), bounds_of(t)
        if split != concat:
            shape[split] = None if n is None else n // count
            m = shape[concat]
            shape[concat] = None if m is None else m * count
            if bounds[split] is not None:
                bounds[split] = -(-bounds[split] // count)  # type: ignore[operator]
            if bounds[concat] is not None:
                bounds[concat] = bounds[concat] * count  # type: ignore[operator]
        out.append(with_bounds(tuple(shape), t.dtype, bounds))
    return out


def _verify_reduce_scatter(op: Op) -> None:
    (t,), (r,) = operand_types(op), _results(op)
    d = op.int("scatter_dimension")
    _check_global_ids(op, "C6")
    check_groups(op, "C3", "C5")
    (reduced,) = _check_body(op, [t], "C7")
    if not compatible_elements(reduced.dtype, r.dtype):
        raise Violation("C9", f"result must have the element type of the computation, got {types_text([reduced, r])}")
    if t.shape is None or r.shape is None:
        return
    if t.rank != r.rank:
        raise Violation("C8", "operand and result should have same rank")
    if d >= t.rank:
        raise Violation("C2", "scatter dim should be less than operand/result rank")
    n, m = t.shape[d], r.shape[d]
    if n == 0:
        raise Violation("C8", "operand dimension size at scatter_dimension cannot be zero")
    if m == 0:
        raise Violation("C8", "result dimension size at scatter_dimension cannot be zero")
    for axis, (a, b) in enumerate(zip(t.shape, r.shape, strict=True)):
        if axis != d and not same_dim(a, b):
            raise Violation("C8", f"non scatter dimensions should be same for operand ({a}) and result ({b})")
    if n is not None and m is not None and n % m:
        raise Violation("C8", f"operand scatter dimension has size {n}, expected to be a multiple of result "
                        f"scatter dimension size {m}")  # fmt: skip


def _check_body(op: Op, types: list[TensorType], label: str) -> list[TensorType]:
    """Checks that the reduction takes two scalars of a type to which each operand's elements can be promoted. Returns
    the operand types with the elements of the reduction."""
    results = []
    for t in types:
        scalar = tensor((), t.dtype)
        results += check_reducer(block_of(op, 0, label), [scalar], [scalar], (), label)
    return [with_element(t, r.dtype) for t, r in zip(types, results, strict=True)]


def _infer_all_reduce(op: Op) -> list[Type]:
    _check_global_ids(op, "C4")
    check_groups(op, "C1", "C3", uneven=True)
    return list(_check_body(op, operand_types(op), "C5"))


define(
    "stablehlo.all_gather", section="all_gather",
    operands=("operands*: tensor",), results=("results*: tensor",),
    attributes={"all_gather_dim": required("i64 >= 0", "C1"), **GROUPS, **GLOBAL_IDS},
    traits={*COLLECTIVE, "chooses_result"}, verify=_verify_all_gather,
)  # fmt: skip
define(
    "stablehlo.all_reduce", section="all_reduce",
    operands=("operands*: tensor",), results=("results*: tensor",), attributes={**GROUPS, **GLOBAL_IDS},
    regions=("computation",), traits=COLLECTIVE, infer=_infer_all_reduce,
)  # fmt: skip
define(
    "stablehlo.all_to_all", section="all_to_all",
    operands=("operands*: tensor",), results=("results*: tensor",),
    attributes={
        "split_dimension": required("i64 >= 0", "C1"),
        "concat_dimension": required("i64 >= 0", "C3"),
        "split_count": required("i64 > 0", "C4"),
        **GROUPS,
    },
    traits=COLLECTIVE, infer=_infer_all_to_all,
)  # fmt: skip
define(
    "stablehlo.reduce_scatter", section="reduce_scatter",
    operands=("operand: tensor",), attributes={"scatter_dimension": required("i64 >= 0", "C2"), **GROUPS, **GLOBAL_IDS},
    regions=("computation",), traits={*COLLECTIVE, "chooses_result"}, verify=_verify_reduce_scatter,
)  # fmt: skip

# collective_broadcast, collective_reduce, collective_permute


def _data_operands(op: Op, label: str) -> list[TensorType]:
    """Returns the types of the operands without the dynamic root, which is checked here."""
    name = op.name.removeprefix("stablehlo.")
    types = operand_types(op)
    if not op.attributes.get("has_dynamic_root"):
        if not types:
            raise Violation(label, f"{name} requires at least one data operand")
        return types
    if len(types) < 2:
        raise Violation(label, f"{name} with has_dynamic_root=true requires at least two operands (data + root)")
    root = types.pop()
    if root.dtype != I32 or root.shape is None or len(root.shape) != 1:
        raise Violation(label, f"last operand of {name} with has_dynamic_root=true must be a rank-1 i32 tensor")
    if not same_dim(root.shape[0], len(types)):
        raise Violation(
            label,
            f"last operand of {name} with has_dynamic_root=true must have the same number of elements as data "
            f"operands ({len(types)}), but got {root.shape[0]}",
        )
    return types


def _infer_collective_broadcast(op: Op) -> list[Type]:
    types = _data_operands(op, "C4")
    check_groups(op, "C1", "C2", complete=False)
    return list(types)


def _infer_collective_reduce(op: Op) -> list[Type]:
    types = _data_operands(op, "root")
    _check_global_ids(op, "C4")
    check_groups(op, "C1", "C2", complete=False)
    return list(_check_body(op, types, "C5"))


def _infer_collective_permute(op: Op) -> list[Type]:
    attr = op.attributes["source_target_pairs"]
    shape = attr.type.shape
    if shape is None or len(shape) != 2:
        raise Violation("C1", f"expect source_target_pairs attribute to be of rank 2, but got rank {len(shape or ())}")
    if shape[1] != 2:
        raise Violation("C1", f"expect source_target_pairs attribute of shape (N, 2), but got ({shape[0]}, {shape[1]})")
    pairs = [(int(a), int(b)) for a, b in attr.array]
    for label, what, ids in (("C2", "sources", [a for a, _ in pairs]), ("C3", "targets", [b for _, b in pairs])):
        if len(set(ids)) != len(ids):
            raise Violation(label, f"duplicate {what} not allowed")
        if any(n < 0 for n in ids):
            raise Violation("C4", "replica ids in source_target_pairs must be >= 0")
    return [v.type for v in op.operands]


define(
    "stablehlo.collective_broadcast", section="collective_broadcast",
    operands=("operands*: tensor",), results=("results*: tensor",),
    attributes={**GROUPS, "has_dynamic_root": optional("bool", False)},
    traits=COLLECTIVE, infer=_infer_collective_broadcast,
)  # fmt: skip
define(
    "stablehlo.collective_reduce", section="",
    operands=("operands*: tensor",), results=("results*: tensor",),
    attributes={**GROUPS, **GLOBAL_IDS, "has_dynamic_root": optional("bool", False)},
    regions=("computation",), traits=COLLECTIVE, infer=_infer_collective_reduce,
)  # fmt: skip
define(
    "stablehlo.collective_permute", section="collective_permute",
    operands=("operands*: tensor",), results=("results*: tensor",),
    attributes={"source_target_pairs": required("pairs"), "channel_handle": optional("struct channel_handle")},
    traits=COLLECTIVE, infer=_infer_collective_permute,
)  # fmt: skip
define(
    "stablehlo.cross-replica-sum", section="",
    operands=("operand: tensor",), attributes={"replica_groups": required("groups")},
    traits=COLLECTIVE, infer=lambda op: [op.operands[0].type],
)  # fmt: skip
define("stablehlo.replica_id", section="replica_id", infer=lambda op: [tensor((), UI32)], traits={"collective"})
define("stablehlo.partition_id", section="partition_id", infer=lambda op: [tensor((), UI32)], traits={"collective"})

# infeed, outfeed, send, recv


def _check_stream_results(op: Op, labels: tuple[str, str, str]) -> None:
    types = [v.type for v in op.results]
    if not types:
        raise Violation(labels[0], "result is expected to be at least of size 1, but got 0")
    if not isinstance(types[-1], TokenType):
        raise Violation(
            labels[2], f"last element of result types is expected to be of token type, but got '{type_text(types[-1])}'"
        )
    for t in types[:-1]:
        if not isinstance(t, TensorType):
            raise Violation(
                labels[1],
                "all elements of result types, except the last element, are expected to be of tensor type, "
                f"but got '{type_text(t)}'",
            )


def _verify_infeed(op: Op) -> None:
    _check_stream_results(op, ("C1", "C2", "C3"))
    layout = op.attributes.get("layout")
    if layout is None:
        return
    if len(layout) != len(op.results) - 1:
        raise Violation(
            "layout",
            f"layout-attribute size must be {len(op.results) - 1} (which is the number of op-results - 1 "
            f"(for token result)), but got {len(layout)}",
        )
    for inner in layout:
        if not isinstance(inner, tuple):
            got = f"{inner.value} : {inner.type}" if isinstance(inner, IntegerAttr) else repr(inner)
            raise Violation("layout", f"layout-attribute expected to have elements of type array, but got {got}")
        for leaf in inner:
            if not isinstance(leaf, IntegerAttr):
                text = "[]" if leaf == () else repr(leaf)
                raise Violation(
                    "layout", f"layout-attribute's leaf elements are expected to be of type integer, but got {text}"
                )


def _check_channel(op: Op, host: str, host_type: int) -> None:
    """Checks the channel type: DEVICE_TO_DEVICE is 1, DEVICE_TO_HOST is 2, HOST_TO_DEVICE is 3."""
    to_host = bool(op.attributes.get("is_host_transfer"))
    if to_host and channel_type(op) != host_type:
        raise Violation("C1", f"channel_type should be {host} when is_host_transfer is true")
    if not to_host and channel_type(op) != 1:
        raise Violation("C1", "channel_type should be DEVICE_TO_DEVICE when is_host_transfer is false")


def _verify_recv(op: Op) -> None:
    _check_stream_results(op, ("C2", "C3", "C4")) if not op.results else None
    _check_channel(op, "HOST_TO_DEVICE", 3)
    _check_stream_results(op, ("C2", "C3", "C4"))


_CHANNEL = {
    "channel_handle": required("struct channel_handle"),
    "is_host_transfer": optional("bool", False),
    "source_target_pairs": optional("pairs"),
}

define(
    "stablehlo.infeed", section="infeed",
    operands=("token: token",), results=("results*: any_tensor|token|tuple",),
    attributes={"infeed_config": optional("string", ""), "layout": optional("list")},
    traits={*COLLECTIVE, "chooses_result"}, verify=_verify_infeed,
)  # fmt: skip
define(
    "stablehlo.outfeed", section="outfeed",
    operands=("inputs*: any_tensor", "token: token"), results=("result: token",),
    attributes={"outfeed_config": optional("string", "")}, traits=COLLECTIVE, infer=lambda op: [TOKEN],
)  # fmt: skip


def _infer_send(op: Op) -> list[Type]:
    _check_channel(op, "DEVICE_TO_HOST", 2)
    return [TOKEN]


define(
    "stablehlo.send", section="send",
    operands=("inputs*: any_tensor", "token: token"), results=("result: token",), attributes=_CHANNEL,
    traits=COLLECTIVE, infer=_infer_send,
)  # fmt: skip
define(
    "stablehlo.recv", section="recv",
    operands=("token: token",), results=("results*: any_tensor|token|tuple",), attributes=_CHANNEL,
    traits={*COLLECTIVE, "chooses_result"}, verify=_verify_recv,
)  # fmt: skip
