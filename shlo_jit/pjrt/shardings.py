"""Shardings of arguments and results on several devices: read from the program, and reported to the framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from shlo_jit.distributed.propagation import InspectingOp, Known, check_rank, meshes_of, opened, propagate
from shlo_jit.distributed.shardy import refuse, sharding_of
from shlo_jit.distributed.tiled_axes import tile_assignment
from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.core import Module, Op, function_type
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.ops.type_algebra import type_text
from shlo_jit.pjrt import proto

Cut = TileAssignment | None
"""Tile assignment; None if every device has the whole, or the program does not say."""
REPLICATED, OTHER, MANUAL, UNREDUCED = 0, 3, 4, 6
"""Types of an OpSharding."""
TYPE, DIMENSIONS, DEVICES, REPLICATE_LAST, LAST_TYPES = 1, 3, 4, 6, 8


class Layout(NamedTuple):
    """Shardings of the arguments and results of a program."""

    arguments: list[Cut]
    results: list[Cut]
    inspecting: list[InspectingOp]
    """Ops that inspect parts."""


def layout_of(module: Module, entry: Op, devices: int, inspectors: Sequence[str]) -> Layout:
    """Returns the layout of a function: its own shardings, and those propagated from them. `inspectors` has the targets
    of custom calls that inspect parts. Raises StableHLOError."""
    kind, meshes = function_type(entry), meshes_of(module)
    given, said = (
        _declared(entry, "arg_attrs", kind.inputs, meshes),
        _declared(entry, "res_attrs", kind.results, meshes),
    )
    found = propagate(module, entry, given, inspectors)
    arguments = [_cut(entry, sharding, devices) for sharding in given]
    wanted = [_cut(entry, sharding, devices) for sharding in said]
    for what, cuts, types in (("argument", arguments, kind.inputs), ("result", wanted, kind.results)):
        for i, (cut, type) in enumerate(zip(cuts, types, strict=True)):
            if not _fits(cut, type):
                refuse(entry, f"{what} {i} is {type_text(type)}, which its sharding does not split into equal parts")
    results: list[Cut] = []
    for own, known, cut, type in zip(said, found.results, wanted, kind.results, strict=True):
        more = _cut(entry, known if own is None else opened(own, known), devices)
        results.append(more if _fits(more, type) else cut)
    return Layout(arguments, results, found.inspecting)


def _fits(cut: Cut, type: Type) -> bool:
    """Whether a value can be split like this, into equal parts."""
    if cut is None or not isinstance(type, TensorType):
        return True
    return not any(extent % tiles for extent, tiles in zip(type.extents, cut.tiles, strict=True))


def _declared(function: Op, which: str, types: Sequence[Type], meshes: Mapping[str, Op]) -> list[Known]:
    rows = function.attributes.get(which) or (DictAttr(()),) * len(types)
    found: list[Known] = []
    for row, type in zip(rows, types, strict=True):
        value = row.get("sdy.sharding")
        sharding = None if value is None else sharding_of(function, value, meshes)
        if sharding is not None:
            check_rank(function, sharding, type)
        found.append(sharding)
    return found


def _cut(function: Op, sharding: Known, devices: int) -> Cut:
    return None if sharding is None else tile_assignment(function, sharding, sharding.mesh.axes, devices)


def op_sharding(cut: Cut) -> bytes:
    """Returns an OpSharding, as bytes."""
    if cut is None or cut.is_whole:
        return proto.write(TYPE, REPLICATED)
    if cut.summands == len(cut.devices):
        return proto.write(TYPE, UNREDUCED)
    replicas = len(cut.devices) // prod(cut.tiles) // cut.summands
    last = [(n, type) for n, type in ((cut.summands, UNREDUCED), (replicas, REPLICATED)) if n > 1]
    out = proto.write(TYPE, OTHER) + proto.write_packed(DIMENSIONS, [*cut.tiles, *(n for n, _ in last)])
    out += proto.write_packed(DEVICES, cut.devices)
    if cut.summands > 1:
        return out + proto.write_packed(LAST_TYPES, [type for _, type in last])
    return out + (proto.write(REPLICATE_LAST, 1) if replicas > 1 else b"")


def inspected_sharding(one: InspectingOp, devices: int) -> bytes:
    """Returns the sharding of the operand that an op inspects: an OpSharding, as bytes."""
    if one.is_manual:
        return proto.write(TYPE, MANUAL)
    return op_sharding(_cut(one.op, one.operands[0], devices))


def recut(parts: Sequence[np.ndarray], given: Cut, wanted: Cut) -> list[np.ndarray]:
    """Returns each device's part under another assignment: views where that is possible."""
    if _same(given, wanted):
        return [*parts]
    whole = parts[0] if given is None or given.is_whole else given.assemble(parts)
    return [whole if wanted is None else wanted.part(whole, device) for device in range(len(parts))]


def _same(a: Cut, b: Cut) -> bool:
    if a is None or b is None:
        return (a is None or a.is_whole) and (b is None or b.is_whole)
    return a.same_parts(b)
