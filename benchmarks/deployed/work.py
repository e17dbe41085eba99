"""Work of a model: arithmetic operations, and bytes that must be moved."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from benchmarks.deployed.graph import Graph, Value

PRODUCTS = frozenset({"conv", "linear", "linear_by_rows", "matmul", "lstm", "linear_i8"})
TABLES = frozenset({"rows", "bucketed"})
"""Ops that read only the requested rows of a weight."""


class Work(NamedTuple):
    """Work of one call."""

    flops: float
    """Multiplications and additions of products and convolutions."""
    weight_bytes: float
    """Bytes of weights, each read once; of tables, the requested rows."""
    activation_bytes: float
    """Bytes of inputs, of results, and of the results of products, which are written and read once."""
    largest_bytes: float
    """Maximum bytes that one product reads and writes, without weights: determines where activations stay between
    ops."""


def count(graph: Graph, float_bytes: int) -> Work:
    """Work of a model whose floats have so many bytes."""

    def nbytes(value: Value) -> int:
        return value.size * {"i8": 1, "i32": 4}.get(value.dtype, float_bytes)

    weights = 0
    for weight in graph.weights:
        readers = [v for v in graph.values if weight in v.operands]
        found = [v for v in readers if v.op in TABLES and v.operands[0] is weight]
        weights += sum(map(nbytes, found)) if len(found) == len(readers) else nbytes(weight)
    products = [v for v in graph.values if v.op in PRODUCTS]
    moved = sum(map(nbytes, [*graph.inputs, *graph.outputs, *products, *products]))
    near = max(nbytes(p) + sum(nbytes(x) for x in p.operands if x.op != "weight") for p in products)
    return Work(sum(map(flops, graph.values)), weights, moved, near)


def limits(work: Work, kind: str, machine: dict[str, Any]) -> tuple[float, float]:
    """Minimum seconds of the machine for arithmetic on elements of a kind, and for reading the bytes.

    Weights come from the level where all of them fit, activations from where those of the largest op do. Writes count
    like reads.
    """
    reads = machine["reads"]

    def rate(nbytes: float) -> float:
        return next((found for size, found in reads if size >= nbytes), reads[-1][1])

    moved = work.weight_bytes / rate(work.weight_bytes) + work.activation_bytes / rate(work.largest_bytes)
    return work.flops / machine["peaks"][kind], moved


def flops(value: Value) -> float:
    """Number of operations: two for each term of a product's sums."""
    if value.op not in PRODUCTS:
        return 0
    first, second = value.operands[:2]
    if value.op == "conv":
        return 2 * value.size * math.prod(second.shape[:3])
    if value.op == "lstm":
        return 2 * value.shape[0] * (second.size + value.operands[2].size)
    return 2 * value.size * first.shape[-1]
