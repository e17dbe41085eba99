"""Process groups that are written as axes of a mesh.

    #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>

A mesh is an array of devices, its axes are the dimensions. The devices of a group differ in their coordinates along the
axes named, the first of which changes slowest; there is a group for each combination of the other coordinates. A
sub-axis `(m)k` is the part of size k of an axis that is seen as m x k x the rest.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.ir.attributes import Dense, DictAttr, OpaqueAttr, StructAttr, as_int, as_ints
from shlo_jit.ir.core import Module, Op
from shlo_jit.ops.collective import mesh_symbol
from shlo_jit.passes.frontend.process_groups import CROSS_PARTITION, FLATTENED_IDS, Grid, Groups, Strategy, refuse

_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"\s*=\s*(\d+)')
_DEVICES = re.compile(r"device_ids\s*=\s*\[([^\]]*)\]")


class Mesh(NamedTuple):
    """Devices in an array: its axes, and the devices in row-major order."""

    axes: dict[str, int]
    devices: tuple[int, ...]


def mesh_groups(op: Op, module: Module, grid: Grid) -> tuple[Groups, Strategy]:
    """Returns the groups of a collective op whose `replica_groups` are axes of a mesh, as device ids, and the strategy
    for these ids: partitions if the mesh has as many devices, else processes. Raises UnsupportedError."""
    attribute = op.attributes["replica_groups"]
    assert isinstance(attribute, StructAttr)
    name = mesh_symbol(op)
    mesh = next((_mesh(other) for other in module.body.ops if other.attributes.get("sym_name") == name), None)
    if mesh is None:
        refuse(op, f"{op.name}: expected @{name} to be a mesh with axes in a known format")
    if len(mesh.devices) not in (grid.num_partitions, grid.num_processes):
        one = grid.num_processes == 1
        has = f"{len(mesh.devices)} device{'' if len(mesh.devices) == 1 else 's'}"
        message = f"{op.name}: @{name} has {has}, but the program is compiled for"
        message += " one process" if one else f" {grid.num_processes} processes"
        refuse(op, message, hint="compile with num_replicas or num_partitions" if one else "")
    cuts = {axis: {1, size} for axis, size in mesh.axes.items()}
    wanted = [_part(op, axis, mesh, cuts) for axis in attribute.get("axes", ())]
    return _groups(op, mesh, cuts, wanted), CROSS_PARTITION if len(
        mesh.devices
    ) == grid.num_partitions else FLATTENED_IDS


Part = tuple[str, int, int]
"""Part of an axis: its name, the number of coordinates before the part, and that number times the size of the part."""


def _part(op: Op, axis: Any, mesh: Mesh, cuts: dict[str, set[int]]) -> Part:
    """Returns one entry of `axes`, and adds its ends to the axis's `cuts`. Raises UnsupportedError."""
    name = axis.get("name") if isinstance(axis, StructAttr) else None
    if not isinstance(name, str) or name not in cuts:
        refuse(op, f"{op.name}: expected axes of @{mesh_symbol(op)}, got {name or axis}", expected=", ".join(cuts))
    info = axis.get("sub_axis_info")
    before, size = (int(info.get("pre_size")), int(info.get("size"))) if info else (1, mesh.axes[name])
    cuts[name] |= {before, before * size}
    ends = sorted(cuts[name])
    if ends[0] != 1 or ends[-1] != mesh.axes[name] or any(b % a for a, b in pairwise(ends)):
        refuse(
            op,
            f"{op.name}: axis {name} of size {mesh.axes[name]} has no sub-axis ({before}){size} that fits the others",
        )
    return name, before, before * size


def _groups(op: Op, mesh: Mesh, cuts: dict[str, set[int]], wanted: list[Part]) -> Groups:
    """Returns the groups: the devices as an array with a dimension for each part of an axis, with the wanted parts
    moved last."""
    parts = [(axis, a, b) for axis, ends in cuts.items() for a, b in pairwise(sorted(ends))]
    devices = np.asarray(mesh.devices).reshape([b // a for _, a, b in parts])
    inside = [i for axis, a, b in wanted for i, part in enumerate(parts) if part[0] == axis and a <= part[1] < b]
    if len(set(inside)) < len(inside):
        refuse(op, f"{op.name}: an axis of @{mesh_symbol(op)} is named twice")
    outside = [i for i in range(len(parts)) if i not in inside]
    size = math.prod(devices.shape[i] for i in inside)
    return devices.transpose(outside + inside).reshape(-1, size).tolist()


def _mesh(op: Op) -> Mesh | None:
    """Returns the mesh that an op defines: by its attribute `stablehlo.mesh`, or by the text of a Shardy `sdy.mesh`.
    None if there is none."""
    given = op.attributes.get("stablehlo.mesh")
    if isinstance(given, DictAttr):
        axes = {str(axis.get("name")): as_int(axis.get("size")) for axis in given.get("axes", ())}
        ids = given.get("device_ids")
        return _of(axes, as_ints(ids) if isinstance(ids, Dense | tuple) else None)
    text = op.attributes.get("mesh")
    if op.name != "sdy.mesh" or not isinstance(text, OpaqueAttr):
        return None
    ids = _DEVICES.search(text.text)
    axes = {name: int(size) for name, size in _AXIS.findall(text.text)}
    return _of(axes, None if ids is None else tuple(int(n) for n in ids[1].split(",") if n.strip()))


def _of(axes: dict[str, int], devices: tuple[int, ...] | None) -> Mesh | None:
    size = math.prod(axes.values())
    devices = tuple(range(size)) if devices is None else devices
    return Mesh(axes, devices) if len(devices) == size else None
