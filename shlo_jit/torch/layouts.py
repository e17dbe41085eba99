"""Strides of tensors that are dense in another order of their dimensions, such as channels last, and the choice of the
order in which a forward pass saves tensors for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Graph, Node  # type: ignore[import-not-found]

Order = tuple[int, ...]
"""Dimensions of a tensor in the order of their memory, the slowest one first."""


@dataclass(frozen=True)
class Layouts:
    """The orders in memory of a graph's arguments and results. Those that are not named have PyTorch's."""

    arguments: Mapping[int, Order] = field(default_factory=dict)
    """Those of arguments, by their index."""
    results: Mapping[int, Order] = field(default_factory=dict)
    """Those of results, by their index."""


def physical_order(shape: Sequence[int], strides: Sequence[int]) -> Order | None:
    """The order of dimensions in memory of a dense tensor; None for a contiguous one, or one that is not dense."""
    order = dense_order(shape, strides)
    if order is None or list(order) == sorted(order) or 0 in shape:
        return None
    return (*(d for d, n in enumerate(shape) if n == 1), *order)


def dense_order(shape: Sequence[int], strides: Sequence[int]) -> Order | None:
    """The order in memory of the dimensions of extents other than 1; None for a tensor that is not dense."""
    order = sorted((d for d, n in enumerate(shape) if n != 1), key=lambda d: -strides[d])
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= shape[d]
    return tuple(order)


def inverse(order: Order) -> Order:
    """The permutation that undoes this one."""
    return tuple(order.index(d) for d in range(len(order)))


def strides_of(shape: Sequence[int], order: Order) -> tuple[int, ...]:
    """The strides of a dense tensor in this order."""
    found, step = [0] * len(shape), 1
    for d in reversed(order):
        found[d] = step
        step *= max(shape[d], 1)
    return tuple(found)


def saved_orders(graph: Graph, saved: slice) -> dict[int, Order]:
    """Orders for the results of a forward pass that only the backward pass reads: features last for what convolutions
    return and what is computed from it, because the compiler keeps it in this order. `saved`: these results."""
    nodes = next(node for node in graph.nodes if node.op == "output").args[0]
    last = _features_last(graph)
    inside = range(*saved.indices(len(nodes)))
    visible = {node for i, node in enumerate(nodes) if i not in inside}
    found = {}
    for i in inside:
        node = nodes[i]
        if node in last and node not in visible and _is_contiguous(node):
            rank = node.meta["val"].ndim
            found[i] = (0, *range(2, rank), 1)
    return found


def _is_contiguous(node: Node) -> bool:
    fake = node.meta["val"]
    return fake.ndim > 2 and 0 not in fake.shape and physical_order(fake.shape, fake.stride()) is None


def _features_last(graph: Graph) -> set[Node]:
    """Results of convolutions, and those of the same rank that are computed from them."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        has_one_group = str(node.target) == "aten.convolution.default" and node.args[-1] == 1
        if has_one_group or any(x in found and _rank(x) == _rank(node) for x in node.all_input_nodes):
            found.add(node)
    return found


def _rank(node: Node) -> int:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, list | tuple) and value else value
    return getattr(first, "ndim", 0)
