"""Replace bounded tensors of unknown size by pairs: a tensor as large as its bounds, and an i32 for each unknown size.

Needs: the inlined entry function of a refined module, whose arguments are static; no size is left that could be
computed before it. Guarantees: all shapes are known. The function returns an additional vector of i32: a fault, and the
sizes of the results, which its caller slices (`runtime/bounded.py`). Each op has a rule for bounded dimensions in
`bounded_rules.py`; an op without one is refused.

    %0 = set_dimension_size %x, %n : tensor<?xf32, #stablehlo.bounds<4>>
    %1 = while(%a = %0) { ... }                 ->    %1:3 = while(%a = %x, %size = %n, %fault = ...) { ... }
    return %1                                         return %1#0, concatenate(%1#2, %1#1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.errors import Diagnostic
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ir.dynamic_values import is_dynamic
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.type_algebra import bounds_of, is_quantized
from shlo_jit.passes import build as mk
from shlo_jit.passes.refine.bounded_rules import RULES, elementwise
from shlo_jit.passes.refine.padded import BOUND_HELPS, FAULT, Padded, Sizes, Writer, whole
from shlo_jit.passes.require_static import require_known_shapes
from shlo_jit.passes.rewriter import Rewriter, rebuilt


class Bounded(NamedTuple):
    """A function on pairs."""

    function: Op
    """The function. Its last result has the fault (`padded.FAULT`), followed by the sizes of the other results."""
    unknown: tuple[tuple[int, ...], ...]
    """For each other result, the dimensions whose sizes the last result has, in this order."""
    faults: tuple[Diagnostic, ...]
    """Diagnostics of the faults, by number."""


def bounded(function: Op) -> Bounded:
    """Returns the function with pairs for values that are not static. Raises UnsupportedError."""
    return _Bounding().run(function)


class _Bounding:
    def __init__(self) -> None:
        self.rw = Rewriter(self.visit)
        self.writer = Writer(self.rw)
        self.sizes: dict[Value, Sizes] = {}
        """Sizes of the old function's values; all elements of values that are missing here are valid."""

    def run(self, function: Op) -> Bounded:
        for argument in function.block().arguments:
            assert not is_dynamic(argument), argument
        block = self.rw.sweep(function.block())
        returned = function.block().terminator.operands
        unknown = tuple(tuple(_unknown(v.type)) for v in returned)
        return Bounded(rebuilt(function, block), unknown, tuple(self.writer.faults))

    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name in ("func.return", "return"):
            return self._return(op)
        if not _touches(op):
            return None
        if any(isinstance(v.type, TensorType) and v.type.shape is None for v in (*op.operands, *op.results)):
            require_known_shapes(op)
        if any(is_quantized(v.tensor) for v in (*op.operands, *op.results) if is_dynamic(v)):
            raise self.writer.refuse("quantized tensors whose sizes are only known at run time are not compiled")
        if op.name == "stablehlo.while":
            results = self._while(op)
        elif op.name in ("stablehlo.if", "stablehlo.case"):
            results = self._branches(op)
        else:
            rule = elementwise if is_elementwise(op) else RULES.get(op.name)
            if rule is None:
                require_known_shapes(op)
                raise self.writer.refuse("regions with sizes that are only known at run time are not compiled")
            given = [self._given(v) for v in op.operands]
            results = [self._settled(v, x) for v, x in zip(op.results, rule(self.writer, given), strict=True)]
        self.sizes.update((old, new.sizes) for old, new in zip(op.results, results, strict=True))
        return [x.value for x in results]

    def _given(self, old: Value) -> Padded:
        new = self.rw.get(old)
        return Padded(new, self.sizes[old]) if old in self.sizes else whole(new)

    def _settled(self, old: Value, new: Padded) -> Padded:
        """Fits an op's result to its type: no larger than the bounds, and with the static extents."""
        if not isinstance(old.type, TensorType) or old.type.shape is None:
            return new
        limits = [n if b is None else min(n, b) for n, b in zip(new.extents, bounds_of(old.type), strict=True)]
        shape = old.type.shape
        if new.is_whole and new.extents == tuple(n if n is not None else m for n, m in zip(shape, limits, strict=True)):
            return new
        return self.writer.fitted(new, shape, limits)

    def _return(self, op: Op) -> Sequence[Value]:
        w, given = self.writer, [self._given(v) for v in op.operands]
        sizes = [w.size(x, d) for v, x in zip(op.operands, given, strict=True) for d in _unknown(v.type)]
        parts = [w.fault or w.no_fault(), *(mk.reshape(self.rw, n, (1,)) for n in sizes)]
        self.rw.emit(op.name, [*(x.value for x in given), mk.concatenate(self.rw, parts, 0)], [], op.attributes)
        return []

    # ------------------------------------------------------------------ control flow
    def _while(self, op: Op) -> list[Padded]:
        """Emits a loop. States are fitted to their types; sizes and the fault are additional states."""
        w = self.writer
        given = [self._given(v) for v in op.operands]
        limits = [_limits(v.type, x) for v, x in zip(op.results, given, strict=True)]
        states = [self._fit(v.type, x, n) for v, x, n in zip(op.results, given, limits, strict=True)]
        fault = w.fault or w.no_fault()
        types: list[Type] = [x.value.type for x in states] + [n.type for x in states for n in x.sizes if n] + [FAULT]
        condition, body = (self._loop_region(r.block, states, types) for r in op.regions)
        self.rw.blocks.append(condition[0])
        going = mk.apply(self.rw, "and", condition[1][0].value, w.is_fine(condition[2]))
        self.rw.emit("stablehlo.return", [going], [])
        self.rw.blocks[-1] = body[0]
        w.fault = body[2]
        returned = []
        for i, (v, x, n) in enumerate(zip(op.results, body[1], limits, strict=True)):
            self._check_growth(op, i, x, n)
            returned.append(self._fit(v.type, x, n))
        self.rw.emit("stablehlo.return", [*_flat(returned), w.fault or fault], [])
        self.rw.blocks.pop()
        regions = [Region([condition[0]]), Region([body[0]])]
        results = self.rw.emit("stablehlo.while", [*_flat(states), fault], types, op.attributes, regions)
        w.fault = results[-1]
        return _unflat(results, states)

    def _loop_region(self, old: Block, states: list[Padded], types: list[Type]) -> tuple[Block, list[Padded], Value]:
        """Emits a region of a loop without its terminator. Returns the block, its results, and the fault at its end."""
        block = Block([Value(t) for t in types])
        for argument, x in zip(old.arguments, _unflat(block.arguments, states), strict=True):
            x.value.name = argument.name
            self.rw.values[argument], self.sizes[argument] = x.value, x.sizes
        self.writer.fault = block.arguments[-1]
        return self._swept(old, block)

    def _swept(self, old: Block, new: Block) -> tuple[Block, list[Padded], Value]:
        self.rw.blocks.append(new)
        self.rw.run(old.ops[:-1])
        fault = self.writer.fault or self.writer.no_fault()
        self.rw.blocks.pop()
        return new, [self._given(v) for v in old.terminator.operands], fault

    def _check_growth(self, op: Op, i: int, x: Padded, limits: Sequence[int]) -> None:
        """Raises UnsupportedError for a state without a bound that may grow in an iteration."""
        t = op.results[i].type
        for d in _unknown(t):
            assert isinstance(t, TensorType)
            if bounds_of(t)[d] is None and x.extents[d] > limits[d]:
                raise self.writer.refuse(f"state {i} may grow in dimension {d}, which has no bound: {BOUND_HELPS}")

    def _branches(self, op: Op) -> list[Padded]:
        """Emits an if or a case. Results are as large as those of the largest branch; their sizes and the fault are
        additional results."""
        w, before = self.writer, self.writer.fault
        swept = []
        for region in op.regions:
            w.fault = before
            swept.append(self._swept(region.block, Block()))
        largest = [_largest(v.type, xs) for v, *xs in zip(op.results, *(s[1] for s in swept), strict=True)]
        states: list[Padded] = []
        for block, returned, fault in swept:
            self.rw.blocks.append(block)
            w.fault = fault
            states = [self._fit(v.type, x, n) for v, x, n in zip(op.results, returned, largest, strict=True)]
            self.rw.emit("stablehlo.return", [*_flat(states), w.fault or fault], [])
            self.rw.blocks.pop()
        types = [v.type for v in _flat(states)]
        regions = [Region([block]) for block, _, _ in swept]
        results = self.rw.emit(op.name, [self.rw.get(v) for v in op.operands], [*types, FAULT], op.attributes, regions)
        w.fault = results[-1]
        return _unflat(results, states)

    def _fit(self, type: Type, x: Padded, limits: Sequence[int]) -> Padded:
        if not isinstance(type, TensorType) or type.shape is None:
            return x
        return self.writer.fitted(x, type.shape, limits)


def _touches(op: Op) -> bool:
    """Whether an op, or one in its regions, uses values of unknown shape."""
    block = Block(ops=[op])
    return any(is_dynamic(v) for o in walk(block) for v in (*o.operands, *o.results))


def _unknown(type: Type) -> list[int]:
    """Returns the dimensions of unknown size."""
    if not isinstance(type, TensorType) or type.shape is None:
        return []
    return [d for d, n in enumerate(type.shape) if n is None]


def _limits(type: Type, x: Padded) -> Sequence[int]:
    """Returns the maximum extents of a state: its bounds, or its current extents."""
    if not isinstance(type, TensorType) or type.shape is None:
        return ()
    return [n if b is None else b for n, b in zip(x.extents, bounds_of(type), strict=True)]


def _largest(type: Type, values: Sequence[Padded]) -> Sequence[int]:
    if not isinstance(type, TensorType) or type.shape is None:
        return ()
    largest = map(max, zip(*(x.extents for x in values), strict=True))
    return [n if b is None else min(n, b) for n, b in zip(largest, bounds_of(type), strict=True)]


def _flat(states: Sequence[Padded]) -> list[Value]:
    """Returns the tensors, followed by their sizes."""
    return [*(x.value for x in states), *(n for x in states for n in x.sizes if n is not None)]


def _unflat(values: Sequence[Value], like: Sequence[Padded]) -> list[Padded]:
    rest = iter(values[len(like) :])
    return [
        Padded(v, tuple(None if n is None else next(rest) for n in x.sizes)) for v, x in zip(values, like, strict=False)
    ]
