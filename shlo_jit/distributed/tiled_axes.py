"""Converts shardings over the axes of a mesh to tile assignments: the part of a value that each device has."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

import numpy as np

from shlo_jit.distributed.shardy import Axis, Mesh, Sharding, refuse
from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op

SubAxis = tuple[str, int, int]
"""A sub-axis: the name of the axis, its `pre_size` and its size."""


def tile_assignment(op: Op, sharding: Sharding, manual: Collection[str], devices: int) -> TileAssignment:
    """Returns how a value is split along its manual axes. Along all others, every device has the whole value.

    Raises VerifyError if axes overlap. Raises UnsupportedError for a mesh of another number of devices, and for
    summands along axes that are not manual.
    """
    mesh = sharding.mesh
    other = next((axis.name for axis in sharding.unreduced if axis.name not in manual), None)
    if other is not None:
        what = f"{op.name}: a value that is unreduced along axis {other!r}, which is not manual, is not supported"
        raise UnsupportedError(diagnose(what, op.span, op=op.name, label="sharding"))
    if not mesh.axes and not mesh.device_ids:  # the empty mesh fits any
        return TileAssignment.whole(len(sharding.dimensions), devices)
    if not mesh.axes:
        what = f"{op.name}: a value on device {mesh.device_ids[0]} alone is not supported"
        raise UnsupportedError(diagnose(what, op.span, op=op.name, label="mesh"))
    if mesh.size != devices:
        what = f"{op.name}: its mesh has {mesh.size} devices, but the program is compiled for {devices} partitions"
        hint = f"compile with num_partitions={mesh.size}"
        raise UnsupportedError(diagnose(what, op.span, op=op.name, label="mesh", hint=hint))
    cut = [_manual(op, axes, manual) for axes in sharding.dimensions]
    used = [axis for axes in (*cut, sharding.unreduced) for axis in axes]
    sub_axes, wanted = _sub_axes(op, mesh, used), [_sub_axis(mesh, axis) for axis in used]
    if len(set(wanted)) < len(wanted):
        refuse(op, "an axis is used twice in one sharding")
    order = [sub_axes.index(sub_axis) for sub_axis in wanted]
    order += [i for i in range(len(sub_axes)) if i not in order]
    grid = np.array(mesh.device_ids or range(devices)).reshape([size for _, _, size in sub_axes])
    tiles = tuple(prod(_sub_axis(mesh, axis)[2] for axis in axes) for axes in cut)
    summands = prod(_sub_axis(mesh, axis)[2] for axis in sharding.unreduced)
    return TileAssignment(tiles, tuple(grid.transpose(order).reshape(-1).tolist()), summands)


def _manual(op: Op, axes: tuple[Axis, ...], manual: Collection[str]) -> list[Axis]:
    """Returns the manual axes of a dimension, which precede the others."""
    found = [axis for axis in axes if axis.name in manual]
    if found != list(axes[: len(found)]):
        refuse(op, f"in a dimension, manual axes come first; {axes[0].name!r} is not manual and comes before others")
    return found


def _sub_axis(mesh: Mesh, axis: Axis) -> SubAxis:
    return axis.name, axis.pre_size, mesh.axes[axis.name] // axis.pre_size if axis.size is None else axis.size


def _sub_axes(op: Op, mesh: Mesh, used: list[Axis]) -> list[SubAxis]:
    """Returns all axes in order, each as the sub-axes that are used and those left between them."""
    found: list[SubAxis] = []
    for name, size in mesh.axes.items():
        before = 1
        for _, pre_size, length in sorted(_sub_axis(mesh, axis) for axis in used if axis.name == name):
            if pre_size % before:
                refuse(op, f"axis {name!r} is used twice in one sharding")
            if pre_size > before:
                found.append((name, before, pre_size // before))
            found.append((name, pre_size, length))
            before = pre_size * length
        if size % before:
            refuse(op, f"axis {name!r} is used twice in one sharding")
        if size > before:
            found.append((name, before, size // before))
    return found
