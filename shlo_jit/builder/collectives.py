"""Collective operations among the processes that run one program.

`replica_groups`: lists of the numbers of processes that form a group; an empty list means one group of all processes.
`channel_id`: a number or a ChannelHandle, for operations among partitions. `use_global_device_ids`: the numbers are
replica_id * partitions + partition_id. `layout`: only None; tensors have no layout here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from shlo_jit.builder.arguments import (
    TensorLike,
    axis,
    channel,
    element,
    flag,
    integer,
    integers,
    listed,
    one_or_all,
    pairs,
    shape_of,
    tensor_of,
    tensors_of,
)
from shlo_jit.builder.binary import add
from shlo_jit.builder.control import async_done, async_start
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import ChannelHandle, record_of
from shlo_jit.builder.regions import Computation, scalar_region
from shlo_jit.builder.scope import emit, emit1
from shlo_jit.builder.shapes import ShapeLike, shape_text, type_of
from shlo_jit.builder.tuples import elements_of
from shlo_jit.ir.attributes import DictAttr, IntegerAttr, StructAttr
from shlo_jit.ir.types import tensor
from shlo_jit.verify.infer import matrix
from shlo_jit.verify.verifier import check_known_call

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Groups = Sequence[Sequence[int]]
Channel = int | ChannelHandle | None
Tensors: TypeAlias = "TensorLike | Sequence[TensorLike]"
DEVICE_TO_DEVICE = 1


@overload
def all_gather(
    operand: TensorLike,
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups = ...,
    channel_id: Channel = ...,
    layout: None = ...,
    use_global_device_ids: bool = ...,
) -> Value: ...
@overload
def all_gather(
    operand: Sequence[TensorLike],
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups = ...,
    channel_id: Channel = ...,
    layout: None = ...,
    use_global_device_ids: bool = ...,
) -> tuple[Value, ...]: ...
def all_gather(
    operand: Tensors,
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    layout: None = None,
    use_global_device_ids: bool = False,
) -> Value | tuple[Value, ...]:
    """Concatenates the operands of all processes of a group along a dimension.

    `shard_count`: number of processes of a group (document: AllGather).
    """
    _no_layout(layout, "layout")
    operand = elements_of(operand)
    xs = tensors_of(operand, "operand")
    count = integer(shard_count, "shard_count")
    groups = _groups(replica_groups, count, channel_id is not None and not use_global_device_ids)
    d = axis(all_gather_dimension, len(shape_of(xs[0])), "all_gather_dimension")
    attributes = {"all_gather_dim": d, **_among(groups, channel_id, use_global_device_ids)}
    types = [tensor(_scaled(x, d, count), x.raw.tensor.dtype) for x in xs]
    names = {"all_gather_dim": "all_gather_dimension", "operands": "operand", "result": "shard_count"}
    return one_or_all(operand, emit("stablehlo.all_gather", xs, attributes, results=types, names=names))


@overload
def all_reduce(
    operand: TensorLike,
    computation: Computation,
    replica_groups: Groups = ...,
    channel_id: Channel = ...,
    shape_with_layout: None = ...,
    use_global_device_ids: bool = ...,
) -> Value: ...
@overload
def all_reduce(
    operand: Sequence[TensorLike],
    computation: Computation,
    replica_groups: Groups = ...,
    channel_id: Channel = ...,
    shape_with_layout: None = ...,
    use_global_device_ids: bool = ...,
) -> tuple[Value, ...]: ...
def all_reduce(
    operand: Tensors,
    computation: Computation,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    shape_with_layout: None = None,
    use_global_device_ids: bool = False,
) -> Value | tuple[Value, ...]:
    """Reduces the operands of all processes of a group element by element.

    `computation`: a function of two scalars (document: AllReduce).
    """
    _no_layout(shape_with_layout, "shape_with_layout")
    operand = elements_of(operand)
    xs = tensors_of(operand, "operand")
    attributes = _among(_groups(replica_groups), channel_id, use_global_device_ids)
    dtype = element(xs[0])
    if any(element(x) != dtype for x in xs):  # one function has one element type
        found = [all_reduce(x, computation, replica_groups, channel_id, None, use_global_device_ids) for x in xs]
        return tuple(v for v in found if not isinstance(v, tuple))
    body = scalar_region("computation", computation, [dtype] * 2, [dtype])
    names = {"operands": "operand"}
    return one_or_all(operand, emit("stablehlo.all_reduce", xs, attributes, regions=[body], names=names))


@overload
def cross_replica_sum(operand: TensorLike, replica_groups: Groups = ...) -> Value: ...
@overload
def cross_replica_sum(operand: Sequence[TensorLike], replica_groups: Groups = ...) -> tuple[Value, ...]: ...
def cross_replica_sum(operand: Tensors, replica_groups: Groups = ()) -> Value | tuple[Value, ...]:
    """Performs `all_reduce` by addition (document: CrossReplicaSum)."""
    return all_reduce(operand, add, replica_groups)


@overload
def reduce_scatter(
    operand: TensorLike,
    computation: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = ...,
    channel_id: Channel = ...,
    layout: None = ...,
    use_global_device_ids: bool = ...,
) -> Value: ...
@overload
def reduce_scatter(
    operand: Sequence[TensorLike],
    computation: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = ...,
    channel_id: Channel = ...,
    layout: None = ...,
    use_global_device_ids: bool = ...,
) -> tuple[Value, ...]: ...
def reduce_scatter(
    operand: Tensors,
    computation: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    layout: None = None,
    use_global_device_ids: bool = False,
) -> Value | tuple[Value, ...]:
    """Performs `all_reduce`, and leaves each process one of `shard_count` parts of the result.

    A process gets the part of its position in the group. Several tensors are reduced separately (document:
    ReduceScatter).
    """
    _no_layout(layout, "layout")
    operand = elements_of(operand)
    among = replica_groups, channel_id, use_global_device_ids
    found = [
        _reduced_and_scattered(x, computation, scatter_dimension, shard_count, *among)
        for x in tensors_of(operand, "operand")
    ]
    return one_or_all(operand, tuple(found))


def _reduced_and_scattered(
    x: Value,
    computation: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups,
    channel_id: Channel,
    use_global_device_ids: bool,
) -> Value:
    count = integer(shard_count, "shard_count")
    d = axis(scatter_dimension, len(shape_of(x)), "scatter_dimension")
    n = shape_of(x)[d]
    if count < 1 or (n is not None and n % count):
        raise wrong("shard_count", f"{count} does not divide dimension {d} of {shape_text(x.type)}")
    shape = tuple(m if e != d or m is None else m // count for e, m in enumerate(shape_of(x)))
    groups = _groups(replica_groups, count, channel_id is not None and not use_global_device_ids)
    attributes = {"scatter_dimension": d, **_among(groups, channel_id, use_global_device_ids)}
    dtype = element(x)
    body = scalar_region("computation", computation, [dtype] * 2, [dtype])
    types = [tensor(shape, x.raw.tensor.dtype)]
    return emit1("stablehlo.reduce_scatter", [x], attributes, results=types, regions=[body])


def all_to_all(
    operand: TensorLike,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: Groups = (),
    layout: None = None,
    channel_id: Channel = None,
) -> Value:
    """Splits the operand into `split_count` parts along a dimension and sends part i to process i of the group.

    Each process concatenates the parts that it receives along another dimension (document: AllToAll).
    """
    _no_layout(layout, "layout")
    x = tensor_of(operand, "operand")
    count, rank = integer(split_count, "split_count"), len(shape_of(x))
    attributes = {
        "split_dimension": axis(split_dimension, rank, "split_dimension"),
        "concat_dimension": axis(concat_dimension, rank, "concat_dimension"),
        "split_count": count,
        **_among(_groups(replica_groups, count), channel_id),
    }
    return emit1("stablehlo.all_to_all", [x], attributes, names={"operands": "operand"})


def ragged_all_to_all(
    input: TensorLike,
    input_offsets: TensorLike,
    send_sizes: TensorLike,
    output: TensorLike,
    output_offsets: TensorLike,
    recv_sizes: TensorLike,
    replica_groups: Groups = (),
    channel_id: Channel = None,
) -> Value:
    """Sends rows of the input to the other processes.

    `send_sizes[i]` rows, from `input_offsets[i]` on, go to process i of the group and are stored in its output at
    `output_offsets[i]`. `recv_sizes[i]` rows come from process i. Returns the output with the received rows (document:
    RaggedAllToAll).
    """
    config: dict[str, Any] = {"replica_groups": matrix(_groups(replica_groups))}
    if channel_id is not None:
        config["channel_id"] = IntegerAttr(integer(_handle(channel_id).handle, "channel_id"))
    out = tensor_of(output, "output")
    arguments = {"input_offsets": input_offsets, "send_sizes": send_sizes}
    arguments |= {"output_offsets": output_offsets, "recv_sizes": recv_sizes}
    tables = [tensor_of(x, name) for name, x in arguments.items()]
    operands = [tensor_of(input, "input"), out, *tables]
    attributes = {
        "call_target_name": "ragged_all_to_all",
        "backend_config": DictAttr(tuple(config.items())),
        "api_version": 4,
    }
    return emit1("stablehlo.custom_call", operands, attributes, results=[out.type], check=check_known_call)


def collective_broadcast(operand: TensorLike, replica_groups: Groups = (), channel_id: Channel = None) -> Value:
    """Copies the operand of the first process of a group to all of them; processes in no group get zeros (document:
    CollectiveBroadcast)."""
    attributes = _among(_groups(replica_groups), channel_id)
    operands = [tensor_of(operand, "operand")]
    return emit1("stablehlo.collective_broadcast", operands, attributes, names={"operands": "operand"})


def collective_permute(
    operand: TensorLike, source_target_pairs: Groups, channel_id: Channel = None, inplace: bool = False
) -> Value:
    """Sends the operand of the source of each pair to its target; processes that are no target get zeros.

    `inplace` has no effect: the compiler plans memory (document: CollectivePermute).
    """
    flag(inplace, "inplace")
    attributes = {"source_target_pairs": pairs(source_target_pairs, "source_target_pairs")}
    if channel_id is not None:
        attributes["channel_handle"] = _channel(channel_id)  # type: ignore[assignment]  of another kind
    operands = [tensor_of(operand, "operand")]
    return emit1("stablehlo.collective_permute", operands, attributes, names={"operands": "operand"})


def replica_id() -> Value:
    """The number of the running replica, a scalar of u32 (document: ReplicaId)."""
    return emit1("stablehlo.replica_id")


def partition_id(shape: ShapeLike = "u32[]") -> Value:
    """The number of the running partition, a scalar of u32, which is the only `shape` allowed (document:
    PartitionID)."""
    found = emit1("stablehlo.partition_id")
    if type_of(shape) != found.type:
        raise wrong("shape", f"expected {shape_text(found.type)}, got {shape_text(type_of(shape))}")
    return found


# ---------------------------------------------------------------------------- in two parts
def all_gather_start(operand: TensorLike, *arguments: Any, **named: Any) -> Value:
    """Starts `all_gather` and returns the future for `all_gather_done` (document: AllGather)."""
    return async_start([tensor_of(operand, "operand")], lambda x: all_gather(x, *arguments, **named))


def all_reduce_start(operand: TensorLike, *arguments: Any, **named: Any) -> Value:
    """Starts `all_reduce` and returns the future for `all_reduce_done` (document: AllReduce)."""
    return async_start([tensor_of(operand, "operand")], lambda x: all_reduce(x, *arguments, **named))


def collective_permute_start(operand: TensorLike, *arguments: Any, **named: Any) -> Value:
    """Starts `collective_permute` and returns the future for `collective_permute_done` (document:
    CollectivePermute)."""
    return async_start([tensor_of(operand, "operand")], lambda x: collective_permute(x, *arguments, **named))


all_gather_done = all_reduce_done = collective_permute_done = async_done


# ---------------------------------------------------------------------------- arguments
def _no_layout(layout: object, argument: str) -> None:
    if layout is not None:
        raise wrong(argument, "layouts are not supported: omit it")


def _groups(replica_groups: Groups, count: int | None = None, several: bool = False) -> list[tuple[int, ...]]:
    """Checks groups of processes.

    An empty list becomes one group of all processes if `count`, the size of each group, is known. `several`: whether a
    number means all partitions of a replica.
    """
    rows = listed(replica_groups, "replica_groups", "lists of numbers of processes")
    if any(not isinstance(row, list | tuple | range | np.ndarray) for row in rows):
        raise wrong("replica_groups", f"expected a list of the numbers of processes for each group, got {rows!r}")
    found = [integers(row, "replica_groups") for row in rows]
    if count is None:
        return found
    if any(len(group) != count and (not several or count % len(group)) for group in found):
        raise wrong("replica_groups", f"expected groups of {count} processes, got {[list(group) for group in found]}")
    return found or [tuple(range(count))]


def _among(groups: list[tuple[int, ...]], channel_id: Channel, use_global_device_ids: bool = False) -> dict[str, Any]:
    """Attributes that all collective ops have."""
    found: dict[str, Any] = {"replica_groups": matrix(groups)}
    if channel_id is not None:
        found["channel_handle"] = _channel(channel_id)
    if flag(use_global_device_ids, "use_global_device_ids"):
        found["use_global_device_ids"] = True
    return found


def _handle(channel_id: int | ChannelHandle) -> ChannelHandle:
    if isinstance(channel_id, int) and not isinstance(channel_id, bool):
        return ChannelHandle(channel_id, DEVICE_TO_DEVICE)
    return record_of(channel_id, ChannelHandle, "channel_id")


def _channel(channel_id: int | ChannelHandle) -> StructAttr:
    return channel(_handle(channel_id), "channel_id")


def _scaled(x: Value, dimension: int, count: int) -> tuple[int | None, ...]:
    return tuple(n * count if d == dimension and n is not None else n for d, n in enumerate(shape_of(x)))
