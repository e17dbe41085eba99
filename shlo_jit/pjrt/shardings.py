"""How arguments and results lie on several devices: read from the program, and told to the framework."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from shlo_jit.distributed.shardy import sharding_of
from shlo_jit.distributed.tiled_axes import tile_assignment
from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.core import Module, Op, walk
from shlo_jit.pjrt import proto

Cut = TileAssignment | None
"""None: every device has the whole, or the program does not say."""
REPLICATED, OTHER = 0, 3
"""Types of an OpSharding; of one that is cut, its fields."""
TYPE, DIMENSIONS, DEVICES, REPLICATE_LAST = 1, 3, 4, 6


def cuts_of(module: Module, function: Op, which: str, count: int, devices: int) -> list[Cut]:
    """What `arg_attrs` or `res_attrs` of a function say of each of `count` values. Raises StableHLOError."""
    meshes = {op.attributes["sym_name"]: op for op in walk(module.body) if op.name == "sdy.mesh"}
    rows = function.attributes.get(which) or (DictAttr(()),) * count
    return [_cut(function, row, meshes, devices) for row in rows]


def _cut(function: Op, row: Any, meshes: dict[str, Op], devices: int) -> Cut:
    value = row.get("sdy.sharding")
    if value is None:
        return None
    sharding = sharding_of(function, value, meshes)
    return tile_assignment(function, sharding, sharding.mesh.axes, devices)


def op_sharding(cut: Cut) -> bytes:
    """An OpSharding, as bytes."""
    if cut is None or cut.is_whole:
        return proto.write(TYPE, REPLICATED)
    replicas = len(cut.devices) // prod(cut.tiles)
    dimensions = [*cut.tiles, replicas] if replicas > 1 else cut.tiles
    out = proto.write(TYPE, OTHER) + proto.write_packed(DIMENSIONS, dimensions)
    out += proto.write_packed(DEVICES, cut.devices)
    return out + (proto.write(REPLICATE_LAST, 1) if replicas > 1 else b"")


def recut(parts: Sequence[np.ndarray], given: Cut, wanted: Cut) -> list[np.ndarray]:
    """Each device's part under another cut: views where that is possible."""
    if _same(given, wanted):
        return [*parts]
    whole = parts[0] if given is None or given.is_whole else given.assemble(parts)
    return [whole if wanted is None else wanted.part(whole, device) for device in range(len(parts))]


def _same(a: Cut, b: Cut) -> bool:
    if a is None or b is None:
        return (a is None or a.is_whole) and (b is None or b.is_whole)
    return a.same_parts(b)
