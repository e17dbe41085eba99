"""Expansions of products: dot, einsum, unary_einsum, ragged_dot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from shlo_jit import tuning
from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import I64, tensor
from shlo_jit.ops.chlo_structured import RaggedDims
from shlo_jit.ops.grouped import Grouped
from shlo_jit.ops.runs import roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes import grouped
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.sizes import hint_of


def _kept_attributes(op: Op) -> dict[str, Any]:
    return {k: op.attributes[k] for k in ("precision_config", "algorithm") if k in op.attributes}


def expand_dot(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dot(x, y) = dot_general(x, y) over the last dimension of x and the first of y"""
    if not all(map(mk.is_static, operands)):
        return None
    last = operands[0].tensor.rank - 1
    roles = ((), (), (last,), (0,))
    return [mk.dot(rw, (operands[0], operands[1]), roles, op.result.tensor.storage, _kept_attributes(op))]


def expand_small_complex_dot(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """dot_general(x, y) = reduce(add, multiply(broadcast(x), broadcast(y))) of a few complex numbers

    A loop nest needs no packing. It rounds each product and each sum separately, like the definition. If products
    cancel, other implementations get the same result.
    """
    lhs, rhs = operands
    dtype = op.result.tensor.storage
    if not (dtype.is_complex and lhs.tensor.storage == rhs.tensor.storage == dtype and mk.is_static(op.result)):
        return None
    r = roles_of(op)
    batch, m, n = len(r.lhs_batch), len(r.lhs_free), len(r.rhs_free)
    extents = (*op.result.tensor.extents, *(mk.shape_of(lhs)[d] for d in r.lhs_contracting))
    if hint_of(math.prod(extents)) > tuning.SMALL_COMPLEX_PRODUCT:
        return None
    inner = range(batch + m + n, len(extents))
    x = mk.transpose(rw, lhs, (*r.lhs_batch, *r.lhs_free, *r.lhs_contracting))
    y = mk.transpose(rw, rhs, (*r.rhs_batch, *r.rhs_free, *r.rhs_contracting))
    x = mk.broadcast(rw, x, extents, (*range(batch + m), *inner))
    y = mk.broadcast(rw, y, extents, (*range(batch), *range(batch + m, batch + m + n), *inner))
    return [mk.reduce_sum(rw, mk.apply(rw, "multiply", x, y), inner)]


# ---------------------------------------------------------------------------- einsum
def _terms(config: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]] | None:
    """Returns the labels of each operand and of the result; `...` becomes labels 0, 1, ... counted from its right
    end."""
    inputs, arrow, output = config.replace(" ", "").partition("->")
    texts = inputs.split(",")
    if not arrow or len(texts) != len(ranks):
        return None
    terms, widest = [], 0
    for text, rank in zip(texts, ranks, strict=True):
        hidden = rank - len(text.replace("...", "")) if "..." in text else 0
        widest = max(widest, hidden)
        terms.append(_labels(text, hidden))
    return terms, _labels(output, widest)


def _labels(text: str, hidden: int) -> list[str]:
    before, dots, after = text.partition("...")
    return [*before, *(str(k) for k in reversed(range(hidden))), *after] if dots else list(before)


def _diagonal(rw: Rewriter, x: Value, term: list[str]) -> tuple[Value, list[str]]:
    """x_ii = sum over j of (i == j ? x_ij : 0), for every label that a term repeats"""
    while len(set(term)) < len(term):
        q = next(k for k, label in enumerate(term) if label in term[:k])
        p = term.index(term[q])
        t = tensor(mk.shape_of(x), I64)
        same = mk.compare(rw, "EQ", mk.iota(rw, t, p), mk.iota(rw, t, q))
        x = mk.reduce_sum(rw, mk.apply(rw, "select", same, x, mk.splat_like(rw, x, 0)), [q])
        term = term[:q] + term[q + 1 :]
    return x, term


def _sum_out(rw: Rewriter, x: Value, term: list[str], kept: set[str]) -> tuple[Value, list[str]]:
    """Sums over the labels that occur nowhere else."""
    gone = [d for d, label in enumerate(term) if label not in kept]
    return mk.reduce_sum(rw, x, gone), [label for label in term if label in kept]


def expand_unary_einsum(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """einsum "ab->b" (x) = transpose(sum(diagonal(x))), with x in the result's type, as in all products"""
    x = operands[0]
    found = _terms(op.attributes["einsum_config"], [x.tensor.rank]) if mk.is_static(x) else None
    if found is None:
        return None
    (term,), output = found
    x = mk.convert(rw, x, op.result.tensor.storage)
    x, term = _sum_out(rw, *_diagonal(rw, x, term), set(output))
    return [mk.transpose(rw, x, [term.index(label) for label in output])]


def expand_einsum(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """einsum "abc,cd->adb" (x, y) = transpose(dot_general(x, y)): common labels are batching if the result has them,
    else contracting."""
    if not all(map(mk.is_static, operands)):
        return None
    found = _terms(op.attributes["einsum_config"], [o.tensor.rank for o in operands])
    if found is None:
        return None
    terms, output = found
    sides: list[tuple[Value, list[str]]] = []
    for k, (x, term) in enumerate(zip(operands, terms, strict=True)):
        x, term = _diagonal(rw, x, term)
        x, term = _drop_broadcast(rw, x, term, operands[1 - k], terms[1 - k])
        sides.append((x, term))
    (x, left), (y, right) = sides
    x, left = _sum_out(rw, x, left, {*right, *output})
    y, right = _sum_out(rw, y, right, {*left, *output})
    batch = [label for label in output if label in left and label in right]
    summed = [label for label in left if label in right and label not in output]
    roles = [[t.index(label) for label in group] for group in (batch, summed) for t in (left, right)]
    result = mk.dot(rw, (x, y), roles, op.result.tensor.storage, _kept_attributes(op))
    made = [*batch, *(f for t in (left, right) for f in t if f not in batch and f not in summed)]
    return [mk.transpose(rw, result, [made.index(label) for label in output])]


def _drop_broadcast(
    rw: Rewriter, x: Value, term: list[str], other: Value, labels: list[str]
) -> tuple[Value, list[str]]:
    """Drops dimensions of extent 1 that are broadcast to a larger one of the other operand (only `...` has them)."""
    extents = dict(zip(labels, mk.shape_of(other), strict=True))
    shape = mk.shape_of(x)
    kept = [d for d, label in enumerate(term) if not (shape[d] == 1 and extents.get(label, 1) != 1)]
    return mk.reshape(rw, x, [shape[d] for d in kept]), [term[d] for d in kept]


# ---------------------------------------------------------------------------- ragged_dot
def expand_ragged_dot(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Expands ragged_dot. Group g is the rows [sum of sizes before g, sum of sizes up to g) of the ragged dimension.

    Ranges of rows, or of one contracting dimension, become a grouped product, which reads only the groups that have
    rows. Other forms become products of masked operands:

    rows:         result = select(row in group g, dot(lhs, rhs[g]), ...) over g, rows of no group are 0
    contracting:  result[g] = dot(select(row in group g, lhs, 0), rhs)
    batch:        result = dot(select(row in some group, lhs, 0), rhs)
    """
    if not all(map(mk.is_static, operands)):
        return None
    return [_Ragged(rw, op, operands).expand()]


class _Ragged:
    """Expansion of one ragged_dot."""

    def __init__(self, rw: Rewriter, op: Op, operands: list[Value]):
        attr = op.attributes["ragged_dot_dimension_numbers"]
        assert isinstance(attr, StructAttr)
        self.rw = rw
        self.dims = RaggedDims(attr)
        self.lhs, self.rhs, self.sizes = operands
        self.type = op.result.tensor

    def expand(self) -> Value:
        d = self.dims
        if self.is_grouped():
            return self.grouped()
        edges = self.edges
        if d.mode == "batch":
            return self.masked_dot(edges[0], edges[-1])
        if d.mode == "non_contracting":
            return self.rows()
        parts = [self.masked_dot(low, high) for low, high in pairwise(edges)]
        parts = [mk.reshape(self.rw, p, (1, *mk.shape_of(p))) for p in parts]
        return mk.concatenate(self.rw, parts, 0) if parts else mk.constant(self.rw, self.type, 0)

    def is_grouped(self) -> bool:
        """Whether a grouped product computes it."""
        d, has_groups = self.dims, bool(mk.shape_of(self.sizes)[-1])
        is_one = d.mode == "non_contracting" or (d.mode == "contracting" and len(d.lhs_sum) == 1)
        return is_one and has_groups and grouped.is_supported(self.lhs, self.rhs, self.type.storage)

    def grouped(self) -> Value:
        d = self.dims
        prefix = tuple(d.prefix(self.lhs.tensor.rank)) if self.sizes.tensor.rank > 1 else ()
        group = d.groups[0] if d.groups else None
        g = Grouped.of((d.lhs_batch, d.rhs_batch), (d.lhs_sum, d.rhs_sum), d.ragged[0], group, prefix)
        bounds = grouped.edges(self.rw, self.sizes)
        return grouped.product(self.rw, g, (self.lhs, self.rhs), bounds, self.type.storage)

    @cached_property
    def edges(self) -> list[Value]:
        """Returns the start of each group and the end of the last one: sums of the sizes along their last dimension."""
        rw, last = self.rw, self.sizes.tensor.rank - 1
        wide = mk.convert(rw, self.sizes, I64)
        kept = mk.shape_of(wide)[:-1]
        edges = [mk.constant(rw, tensor(kept, I64), 0)]
        for g in range(mk.shape_of(wide)[-1]):
            size = mk.reshape(rw, mk.slice_dim(rw, wide, last, g, g + 1), kept)
            edges.append(mk.apply(rw, "add", edges[-1], size))
        return edges

    def masked_dot(self, low: Value, high: Value) -> Value:
        """Returns the product of the rows in [low, high), with the other rows taken as 0."""
        d, lhs = self.dims, self.lhs
        mask = self.in_rows((low, high), mk.shape_of(lhs), range(lhs.tensor.rank))
        kept = mk.apply(self.rw, "select", mask, lhs, mk.splat_like(self.rw, lhs, 0))
        return mk.dot(self.rw, (kept, self.rhs), (d.lhs_batch, d.rhs_batch, d.lhs_sum, d.rhs_sum), self.type.storage)

    def rows(self) -> Value:
        """Returns the product of each row with its group's matrix."""
        rw, d, rank = self.rw, self.dims, self.lhs.tensor.rank
        group = d.groups[0]
        inner = [[k - (k > group) for k in dims] for dims in (d.rhs_batch, d.rhs_sum)]
        places = [*d.lhs_batch, *(k for k in range(rank) if k not in d.lhs_batch + d.lhs_sum)]
        where = [places.index(k) if k in places else -1 for k in range(rank)]
        total = mk.constant(rw, self.type, 0)
        for g, edges in enumerate(pairwise(self.edges)):
            part = mk.slice_dim(rw, self.rhs, group, g, g + 1)
            part = mk.reshape(rw, part, mk.drop_dim(mk.shape_of(part), group))
            product = mk.dot(rw, (self.lhs, part), (d.lhs_batch, inner[0], d.lhs_sum, inner[1]), self.type.storage)
            total = mk.apply(rw, "select", self.in_rows(edges, mk.shape_of(product), where), product, total)
        return total

    def in_rows(self, edges: tuple[Value, Value], shape: Sequence[int], where: Sequence[int]) -> Value:
        """low <= row < high, for a tensor in which dimension k of lhs is dimension `where[k]`"""
        rw, d = self.rw, self.dims
        row = mk.iota(rw, tensor(tuple(shape), I64), where[d.ragged[0]])
        along = [where[k] for k in d.prefix(self.lhs.tensor.rank)] if edges[0].tensor.rank else []
        low, high = (mk.broadcast(rw, edge, shape, along) for edge in edges)
        return mk.apply(rw, "and", mk.compare(rw, "GE", row, low), mk.compare(rw, "LT", row, high))


RULES = {
    "stablehlo.dot_general": expand_small_complex_dot,
    "stablehlo.dot": expand_dot,
    "stablehlo.einsum": expand_einsum,
    "stablehlo.unary_einsum": expand_unary_einsum,
    "chlo.ragged_dot": expand_ragged_dot,
}
