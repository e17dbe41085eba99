"""Padded tensors, and a writer for ops on them: a tensor as large as its bounds, and the sizes of its valid part.

Elements beyond the sizes are arbitrary. A program may compute an invalid size. The first such error is recorded as a
*fault*: three i32 that pass through loops and branches as an additional value. A fault ends all loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.errors import Diagnostic, UnsupportedError, VerifyError, diagnose
from shlo_jit.ir.core import Op, Region, Value
from shlo_jit.ir.types import I32, TensorType, storage_range, tensor
from shlo_jit.ops import OPS, Violation
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter
from shlo_jit.verify.verifier import diagnostic_of

SCALAR = tensor((), I32)
FAULT = tensor((3,), I32)
"""Number of the check that failed, from 1 on, and two sizes for its message."""
BOUND_HELPS = "a bound (#stablehlo.bounds<...>) would allow a buffer of that size"
TOO_MANY = "dimension {} has {{0}} elements, but may have at most {{1}}"
"""Message with the dimension, the size and the limit."""
Sizes = tuple[Value | None, ...]


class Padded(NamedTuple):
    """A tensor, and the valid size of each dimension; None means all of it."""

    value: Value
    sizes: Sizes

    @property
    def extents(self) -> tuple[int, ...]:
        return self.value.tensor.extents

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def is_whole(self) -> bool:
        return not any(self.sizes)


def whole(value: Value) -> Padded:
    """Returns a tensor whose elements are all valid."""
    shape = value.type.shape or () if isinstance(value.type, TensorType) else ()
    return Padded(value, (None,) * len(shape))


class Writer:
    """Emits ops in place of the op that a Rewriter is at, and records faults."""

    def __init__(self, rw: Rewriter) -> None:
        self.rw = rw
        self.faults: list[Diagnostic] = []
        """Messages of failed checks, with `{0}` and `{1}` for the sizes."""
        self.fault: Value | None = None
        """The fault at the current insertion point; None if nothing can have failed."""

    @property
    def op(self) -> Op:
        assert self.rw.current is not None
        return self.rw.current

    @property
    def op_name(self) -> str:
        return self.op.name.partition(".")[2]

    def refuse(self, why: str) -> UnsupportedError:
        """Returns the error that refuses the op."""
        return UnsupportedError(diagnose(f"{self.op_name}: {why}", self.op.span, op=self.op.name, label="size"))

    def again(self, operands: Sequence[Value]) -> list[Value]:
        """Emits the op again on static operands; its results have the inferred types. Raises VerifyError."""
        op = self.op
        regions = [Region([self.rw.sweep(b) for b in r.blocks]) for r in op.regions]
        types = [v.type for v in op.results]
        new = Op(op.name, list(operands), types, op.attributes, regions, op.source, op.start, op.end)
        infer = OPS[op.name].infer
        assert infer is not None, op
        try:
            found = infer(new)
        except Violation as violation:
            raise VerifyError(diagnostic_of(op, violation)) from None
        for value, type in zip(new.results, found, strict=True):
            value.type = type
        self.rw.block.ops.append(new)
        return new.results

    # ------------------------------------------------------------------ numbers
    def number(self, n: int) -> Value:
        return mk.constant(self.rw, SCALAR, n)

    def size(self, x: Padded, d: int) -> Value:
        """Returns the valid size of a dimension as an i32."""
        found = x.sizes[d]
        return self.number(x.extents[d]) if found is None else found

    def add(self, a: Value, b: Value) -> Value:
        return mk.apply(self.rw, "add", a, b)

    def subtract(self, a: Value, b: Value) -> Value:
        return mk.apply(self.rw, "subtract", a, b)

    def clamp(self, low: Value, x: Value, high: Value) -> Value:
        return mk.apply(self.rw, "clamp", low, x, high)

    def as_i32(self, x: Value) -> Value:
        """Converts integers of any type to i32, saturating."""
        low, high = storage_range(x.tensor.storage)
        first, last = storage_range(I32)
        if low < first or high > last:
            ends = [mk.constant(self.rw, x.tensor, n) for n in (max(low, first), min(high, last))]
            x = self.clamp(ends[0], x, ends[1])
        return mk.convert(self.rw, x, I32)

    def element(self, vector: Value, i: int) -> Value:
        """Returns an element of a vector of integers as an i32."""
        return self.as_i32(mk.reshape(self.rw, mk.slice_dim(self.rw, vector, 0, i, i + 1), ()))

    # ------------------------------------------------------------------ checks
    def no_fault(self) -> Value:
        return mk.constant(self.rw, FAULT, 0)

    def check(self, bad: Value, message: str, got: Value, other: Value) -> None:
        """Records a fault if `bad` holds and none has been recorded yet. `message` has `{0}` for `got`, `{1}` for
        `other`."""
        rw, before = self.rw, self.fault or self.no_fault()
        self.faults.append(diagnose(f"{self.op_name}: {message}", self.op.span, op=self.op.name, label="size"))
        parts = [mk.reshape(rw, n, (1,)) for n in (self.number(len(self.faults)), got, other)]
        found = mk.concatenate(rw, parts, 0)
        is_first = mk.apply(rw, "and", bad, self.is_fine(before))
        self.fault = rw.emit1("stablehlo.select", [is_first, found, before], FAULT)

    def is_fine(self, fault: Value) -> Value:
        """Returns whether nothing has failed, an i1."""
        return mk.compare(self.rw, "EQ", self.element(fault, 0), self.number(0))

    def check_most(self, n: Value, most: Value, message: str) -> None:
        """Records a fault unless n is at most `most`; `{0}` is n, `{1}` is `most`."""
        self.check(mk.compare(self.rw, "GT", n, most), message, n, most)

    def check_equal(self, n: Value, m: Value) -> None:
        """Records a fault unless two sizes are equal."""
        if n is not m:
            bad = mk.compare(self.rw, "NE", n, m)
            self.check(bad, "expected equal sizes, got {0} and {1}", n, m)

    def check_size(self, n: Value, most: Value, message: str) -> None:
        """Records a fault unless n is between 0 and `most`."""
        low, high = mk.compare(self.rw, "LT", n, self.number(0)), mk.compare(self.rw, "GT", n, most)
        self.check(mk.apply(self.rw, "or", low, high), message, n, most)

    # ------------------------------------------------------------------ shapes
    def same(self, places: Sequence[tuple[Padded, int]]) -> tuple[int, Value | None]:
        """Returns the common extent and size of dimensions that must be equal, each given with its tensor."""
        known = [x.extents[d] for x, d in places if x.sizes[d] is None]
        first, dimension = next(((x, d) for x, d in places if x.sizes[d] is None), places[0])
        for x, d in places:
            if x.sizes[d] is not None:
                self.check_equal(self.size(x, d), self.size(first, dimension))
        if known:
            return known[0], None
        return min(x.extents[d] for x, d in places), first.sizes[dimension]

    def cut(self, x: Padded, extents: Sequence[int]) -> Value:
        """Returns the tensor with other extents: sliced, or padded with arbitrary elements."""
        value = x.value
        for d, n in enumerate(extents):
            if n < value.tensor.extents[d]:
                value = mk.slice_dim(self.rw, value, d, 0, n)
        more = [n - m for n, m in zip(extents, value.tensor.extents, strict=True)]
        zeros = [0] * len(more)
        return mk.pad(self.rw, value, 0, zeros, more, zeros)

    def fitted(self, x: Padded, shape: Sequence[int | None], limits: Sequence[int]) -> Padded:
        """Returns the tensor with a shape. Unknown dimensions get the extent of their limit, and a size. Checks that it
        fits."""
        extents, sizes = [], []
        for d, (n, limit) in enumerate(zip(shape, limits, strict=True)):
            if n is not None and (x.sizes[d] is not None or x.extents[d] != n):
                self.check_equal(self.size(x, d), self.number(n))
            elif n is None and x.extents[d] > limit:
                self.check_most(self.size(x, d), self.number(limit), TOO_MANY.format(d))
            extents.append(limit if n is None else n)
            sizes.append(self.size(x, d) if n is None else None)
        return Padded(self.cut(x, extents), tuple(sizes))

    def inside(self, x: Padded, dimensions: Sequence[int]) -> Value | None:
        """Returns an i1 for each element that says whether it is valid along these dimensions; None if all are."""
        rw, found = self.rw, None
        for d in dimensions:
            n = x.sizes[d]
            if n is not None:
                t = tensor(x.extents, I32)
                counts = mk.compare(rw, "LT", mk.iota(rw, t, d), mk.broadcast(rw, n, x.extents, ()))
                found = counts if found is None else mk.apply(rw, "and", found, counts)
        return found

    def filled(self, x: Padded, dimensions: Sequence[int], number: Value) -> Value:
        """Returns the tensor with a scalar in place of elements that are invalid along some dimensions."""
        inside = self.inside(x, dimensions)
        if inside is None:
            return x.value
        return mk.apply(self.rw, "select", inside, x.value, mk.broadcast(self.rw, number, x.extents, ()))

    def zero(self, x: Padded) -> Value:
        return mk.constant(self.rw, tensor((), x.value.tensor.dtype), 0)
