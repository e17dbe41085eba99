"""Replaces computations on parts, in either spelling, by their bodies between `part` and `whole` ops.

    manual_computation(x) { body }                ->   whole(body(part(x)))
    custom_call @SPMDFullToShardShape(x)          ->   part(x)
    custom_call @SPMDShardToFullShape(x)          ->   whole(x)
    sharding_constraint(x), @Sharding(x) ...      ->   x

A computation on parts may be nested in another, along axes that the outer one does not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shlo_jit.distributed.hlo_sharding import hlo_tile_assignment
from shlo_jit.distributed.parts import check_parts, emit_part, emit_whole
from shlo_jit.distributed.shardy import manual_axes, refuse, shardings_of
from shlo_jit.distributed.tiled_axes import tile_assignment
from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.errors import VerifyError, diagnose
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.passes.rewriter import Rewriter

MANUAL = "sdy.manual_computation"
TO_PART, TO_WHOLE, ANNOTATION = "SPMDFullToShardShape", "SPMDShardToFullShape", "Sharding"


def target_of(op: Op) -> str:
    """Returns the target of a custom call; "" for another op."""
    return op.attributes["call_target_name"] if op.name == "stablehlo.custom_call" else ""


def is_manual(op: Op) -> bool:
    """Whether an op begins or ends a computation on parts."""
    return op.name == MANUAL or target_of(op) in (TO_PART, TO_WHOLE)


class ManualOps:
    """Replaces the computations on parts of one function."""

    def __init__(self, function: Op, meshes: Mapping[str, Op], devices: int):
        self.function = function
        self.meshes = meshes
        self.devices = devices
        self.bound: list[str] = []
        """Manual axes of the computations that enclose the current op."""
        self.axes: set[str] = set()
        """All manual axes of the function."""

    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name == MANUAL:
            return self.computation(rw, op, operands)
        target = target_of(op)
        if target == TO_PART:
            return [self.to_part(rw, op, operands[0])]
        if target == TO_WHOLE:
            return [self.to_whole(rw, op, operands[0])]
        if target == ANNOTATION or (op.dialect == "sdy" and op.results and not op.regions):
            return operands if [v.type for v in operands] == [r.type for r in op.results] else None
        return None

    # ------------------------------------------------------------------ Shardy's spelling
    def computation(self, rw: Rewriter, op: Op, operands: list[Value]) -> list[Value]:
        """Writes the body in place, on parts of the operands. Returns the whole results."""
        if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
            refuse(op, "should have one region of one block")
        axes, body = manual_axes(op), op.block()
        self.check_axes(op, axes)
        ins = self.assignments(op, "in_shardings", axes, op.operands, body.arguments)
        outs = self.assignments(op, "out_shardings", axes, op.results, body.terminator.operands)
        for argument, value, tiles in zip(body.arguments, operands, ins, strict=True):
            rw.values[argument] = emit_part(rw, value, tiles, argument.type)
        self.bound += axes
        self.axes.update(axes)
        rw.run(body.ops[:-1])
        del self.bound[len(self.bound) - len(axes) :]
        given = zip(body.terminator.operands, op.results, outs, strict=True)
        return [emit_whole(rw, rw.get(value), tiles, result.type) for value, result, tiles in given]

    def check_axes(self, op: Op, axes: Sequence[str]) -> None:
        twice = next((axis for axis in axes if axis in self.bound), None)
        if twice is not None:
            refuse(op, f"axis {twice!r} is manual in a computation around this one already")

    def assignments(
        self, op: Op, attribute: str, axes: Sequence[str], wholes: Sequence[Value], parts: Sequence[Value]
    ) -> list[TileAssignment]:
        """Returns how the operands, or the results, are split."""
        shardings = shardings_of(op, attribute, self.meshes)
        word = "operand" if attribute == "in_shardings" else "result"
        if not len(shardings) == len(wholes) == len(parts):
            refuse(op, f"has {len(wholes)} {word}s, {len(shardings)} {attribute}, and {len(parts)} {word}s in its body")
        found = []
        for i, (sharding, whole, part) in enumerate(zip(shardings, wholes, parts, strict=True)):
            for name in axes:
                if name not in sharding.mesh.axes and sharding.mesh.axes:
                    refuse(op, f"there is no axis {name!r} in the mesh of {word} {i}")
            outer = next((a.name for d in sharding.dimensions for a in d if a.name in self.bound), None)
            if outer is not None:
                refuse(op, f"{word} {i} is cut along axis {outer!r}, which is manual in a computation around this one")
            tiles = tile_assignment(op, sharding, axes, self.devices)
            check_parts(op, f"{word} {i}", whole.type, tiles, part.type)
            found.append(tiles)
        return found

    # ------------------------------------------------------------------ the spelling with custom calls
    def to_part(self, rw: Rewriter, op: Op, value: Value) -> Value:
        """Returns the part of the operand, split by its own sharding."""
        text = self.sharding_of(op.operands[0])
        if text is None:
            refuse(op, "its operand has no mhlo.sharding, which says how it is cut into parts")
        tiles = self.hlo_assignment(op, "operand", text, op.operands[0], op.result)
        return emit_part(rw, value, tiles, op.result.type)

    def to_whole(self, rw: Rewriter, op: Op, value: Value) -> Value:
        """Returns the whole of the operand, split by the op's sharding."""
        text = op.attributes.get("mhlo.sharding")
        if not isinstance(text, str):
            refuse(op, "has no mhlo.sharding, which says how the result is cut into parts")
        tiles = self.hlo_assignment(op, "result", text, op.result, op.operands[0])
        return emit_whole(rw, value, tiles, op.result.type)

    def hlo_assignment(self, op: Op, what: str, text: str, whole: Value, part: Value) -> TileAssignment:
        t = whole.type
        if not isinstance(t, TensorType) or t.shape is None:
            refuse(op, f"its {what} should be a tensor of a known rank")
        tiles = hlo_tile_assignment(op, text, t.rank, self.devices)
        check_parts(op, f"its {what}", t, tiles, part.type)
        return tiles

    def sharding_of(self, value: Value) -> str | None:
        """Returns `mhlo.sharding` of the op that defines a value, or of the function's argument."""
        every = self.function.attributes.get("arg_attrs")
        if value.op is not None:
            found = value.op.attributes.get("mhlo.sharding")
        else:
            found = every[value.index].get("mhlo.sharding") if every and value.owner is self.function.block() else None
        return found if isinstance(found, str) else None


def refuse_call(op: Op, callee: str, axis: str) -> None:
    """Raises VerifyError at a call in a computation on parts, if the callee computes on parts along the same axis."""
    text = (
        f"{op.name}: @{callee} computes on parts along axis {axis!r}, which is manual in a computation around the call"
    )
    raise VerifyError(diagnose(text, op.span, op=op.name, label="sharding"))
