"""Propagates shardings to the values of a program on global arrays that have none: they are split as their operands
are.

Any choice gives the same values, since such programs are computed on whole arrays. But the caller sees how results are
split, and so do functions that inspect parts. Shardings flow from arguments to results, through calls, loops and
branches. If operands disagree, the first one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from shlo_jit.deep import deeply
from shlo_jit.distributed.dimension_maps import dimension_maps
from shlo_jit.distributed.global_arrays import callee_of
from shlo_jit.distributed.manual import MANUAL, target_of
from shlo_jit.distributed.shardy import Axis, Mesh, Sharding, manual_axes, refuse, sharding_of, shardings_of
from shlo_jit.ir.attributes import SymbolRef
from shlo_jit.ir.core import Block, Module, Op, Value, walk
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.type_algebra import type_text

Known = Sharding | None
"""Sharding of a value; None if every device has the whole."""
TABLE = "sdy.sharding"
RETURNS = ("return", "func.return", "stablehlo.return", "sdy.return")


class InspectingOp(NamedTuple):
    """An op that inspects parts, with the shardings of its operands."""

    op: Op
    operands: tuple[Known, ...]
    is_manual: bool
    """Whether the op is in a computation on parts, so that its operands are parts already."""


@deeply
def propagate(module: Module, entry: Op, arguments: Sequence[Known], inspectors: Sequence[str]) -> Propagation:
    """Propagates from the shardings of a function's arguments. `inspectors` has the targets of custom calls that
    inspect parts. Raises StableHLOError at an op whose sharding is inconsistent."""
    found = Propagation(module, inspectors)
    found.results = found.function(entry, tuple(arguments))
    return found


class Propagation:
    """Known shardings of the values of a program."""

    results: tuple[Known, ...]
    """Shardings of the entry's results."""

    def __init__(self, module: Module, inspectors: Sequence[str]) -> None:
        self.functions = {f.attributes["sym_name"]: f for f in module.functions()}
        self.meshes = meshes_of(module)
        self.inspectors = inspectors
        self.inspecting: list[InspectingOp] = []
        self._known: dict[Value, Known] = {}
        self._called: dict[tuple[str, tuple[Known, ...]], tuple[Known, ...]] = {}
        self._manual = 0
        """Number of computations on parts that enclose the current op."""

    def function(self, function: Op, arguments: tuple[Known, ...]) -> tuple[Known, ...]:
        """Returns the shardings of a function's results, computed from those of its arguments."""
        key = function.attributes["sym_name"], arguments
        if key not in self._called:
            before, self._known = self._known, {}
            self._called[key] = self.block(function.block(), arguments)
            self._known = before
        return self._called[key]

    def block(self, block: Block, arguments: Sequence[Known]) -> tuple[Known, ...]:
        """Returns the shardings of the terminator's operands."""
        self._known.update(zip(block.arguments, arguments, strict=False))
        for op in block.ops:
            given = tuple(self._known.get(v) for v in op.operands)
            if op.name in RETURNS:
                return given
            self._known.update(zip(op.results, self.op(op, given), strict=False))
        return ()

    def op(self, op: Op, given: tuple[Known, ...]) -> Sequence[Known]:
        """Returns the shardings of an op's results. If there are fewer than results, the others have unknown
        shardings."""
        if target_of(op) in self.inspectors:
            self.inspecting.append(InspectingOp(op, given, self._manual > 0))
        if TABLE in op.attributes and op.results:
            return _splitting(op, shardings_of(op, TABLE, self.meshes))
        if op.name == "sdy.sharding_constraint":
            said = sharding_of(op, op.attributes.get("sharding"), self.meshes)
            check_rank(op, said, op.result.type)
            return _splitting(op, [opened(said, given[0])])
        if op.name == MANUAL:
            return self.manual(op, given)
        callee = _decomposition(op) or callee_of(op)
        if callee in self.functions and self.functions[callee].regions:
            return self.function(self.functions[callee], given)
        if op.name == "stablehlo.while":
            return self.loop(op, given)
        if op.name in ("stablehlo.if", "stablehlo.case"):
            branches = [self.block(region.block, ()) for region in op.regions]
            return branches[0]
        if op.name in ("stablehlo.optimization_barrier", "sdy.propagation_barrier"):
            return given
        if not any(given) or not op.results:
            return ()
        return [_cut_along(op, given, result) for result in op.results]

    def loop(self, op: Op, given: tuple[Known, ...]) -> tuple[Known, ...]:
        """Returns the shardings of the values that a loop carries: those at its start, or else those after an
        iteration."""
        condition, body = op.regions
        count, called = len(self.inspecting), self._called
        while True:
            del self.inspecting[count:]
            self._called = called.copy()  # a repeated call adds its ops again
            left = self.block(body.block, given)
            carried = tuple(before or after for before, after in zip(given, left, strict=True))
            if carried == given:
                self.block(condition.block, given)
                return given
            given = carried

    def manual(self, op: Op, given: tuple[Known, ...]) -> Sequence[Known]:
        """Returns the results' shardings. Inside, parts are split along the other axes only; results are split along
        both. Inconsistencies are reported later, when the computation is written out."""
        axes = set(manual_axes(op))
        self._manual += 1
        inside = self.block(op.block(), [_along(s, lambda axis: axis.name not in axes) for s in given])
        self._manual -= 1
        outside = shardings_of(op, "out_shardings", self.meshes)
        return _splitting(op, [_both(out, part) for out, part in zip(outside, inside, strict=False)])


def _decomposition(op: Op) -> str | None:
    """Returns the name of the decomposition of a composite."""
    symbol = op.attributes.get("decomposition")
    return symbol.name if isinstance(symbol, SymbolRef) else symbol


def meshes_of(module: Module) -> Mapping[str, Op]:
    """Returns the ops that define meshes, by name."""
    return {op.attributes["sym_name"]: op for op in walk(module.body) if op.name == "sdy.mesh"}


def check_rank(op: Op, sharding: Sharding, type: Type) -> None:
    """Raises VerifyError if the rank of a sharding differs from that of the tensor."""
    if isinstance(type, TensorType) and type.shape is not None and len(type.shape) != len(sharding.dimensions):
        refuse(op, f"a sharding of {len(sharding.dimensions)} dimensions is given for {type_text(type)}")


def opened(said: Sharding, known: Known) -> Sharding:
    """Returns the sharding `said`, with its open dimensions split as in `known`."""
    if known is None or known.mesh != said.mesh:
        return said
    used = {axis.name for axes in said.dimensions for axis in axes}
    free = _along(known, lambda axis: axis.name not in used)
    if free is None:
        return said
    rows = enumerate(zip(said.dimensions, free.dimensions, strict=True))
    return replace(said, dimensions=tuple(more if d in said.open and not own else own for d, (own, more) in rows))


def _along(sharding: Known, wanted: Callable[[Axis], bool]) -> Known:
    """Returns a sharding with some of its axes."""
    if sharding is None:
        return None
    dimensions = tuple(axes if all(map(wanted, axes)) else () for axes in sharding.dimensions)
    return replace(sharding, dimensions=dimensions) if any(dimensions) else None


def _both(out: Sharding, part: Known) -> Sharding:
    """Returns a sharding that splits along the axes of `out`, and each part along those of `part`."""
    if part is None or part.mesh != out.mesh or len(part.dimensions) != len(out.dimensions):
        return out
    return replace(out, dimensions=tuple(a + b for a, b in zip(out.dimensions, part.dimensions, strict=True)))


def _splitting(op: Op, shardings: Sequence[Sharding]) -> list[Known]:
    """Returns the shardings of results. None for those that do not split a value over a mesh: it is whole, on one
    device, or a sum of summands."""
    found: list[Known] = []
    for sharding, result in zip(shardings, op.results, strict=False):
        is_cut = sharding.mesh.axes and any(sharding.dimensions) and not sharding.unreduced
        if is_cut:
            check_rank(op, sharding, result.type)
        found.append(sharding if is_cut else None)
    return found


def _cut_along(op: Op, given: Sequence[Known], result: Value) -> Known:
    """Returns the sharding of a result, split along the dimensions along which operands are."""
    if not all(isinstance(v.type, TensorType) and v.type.is_fixed for v in (*op.operands, result)):
        return None
    shape = result.tensor.extents
    mesh = next(s.mesh for s in given if s is not None)
    cut: list[tuple[Axis, ...]] = [()] * len(shape)
    used: set[str] = set()
    for value, sharding, targets in zip(op.operands, given, dimension_maps(op), strict=False):
        if sharding is None or sharding.mesh != mesh:
            continue
        for d, to in enumerate(targets):
            axes = sharding.dimensions[d]
            names = {axis.name for axis in axes}
            if to is None or not axes or cut[to] or names & used:
                continue
            if op.name != "stablehlo.reshape" and value.tensor.extents[d] != shape[to]:
                continue
            if shape[to] % _parts(mesh, axes) == 0:
                cut[to] = axes
                used |= names
    return Sharding(mesh, tuple(cut)) if used else None


def _parts(mesh: Mesh, axes: Sequence[Axis]) -> int:
    return prod(mesh.axes[axis.name] if axis.size is None else axis.size for axis in axes)
