"""Places the framework's functions in a program on several devices: which devices call them, and with which arrays.

A function that inspects parts (JAX's `debug.callback(..., partitioned=True)`) is called for each device, with the
device's part. Any other is called once, with whole arrays. If a program has computations on parts, every device runs
all of it: in that case, both are rewritten as follows.

    custom_call @xla_ffi_partitioned_python_cpu_callback(x)   ->   manual_computation(x) { custom_call ...(part of x) }
    y = custom_call @xla_ffi_python_cpu_callback(x)           ->   manual_computation(x) {
                                                                      y = if first { custom_call ...(x) } else { 0 }
                                                                      return collective_broadcast(y) }
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.distributed.global_arrays import with_functions
from shlo_jit.distributed.manual import is_manual
from shlo_jit.distributed.propagation import InspectingOp, Known
from shlo_jit.distributed.shardy import Axis, Mesh, Sharding
from shlo_jit.distributed.tiled_axes import tile_assignment
from shlo_jit.ir.attributes import Dense, OpaqueAttr, StructAttr
from shlo_jit.ir.core import Block, Module, Op, Region, Value, is_declaration, walk
from shlo_jit.ir.types import I64, UI32, TensorType, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.rewriter import Rewriter, rewrite

WHOLE, PARTS = "xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback"
BUFFERS = "xla_buffer_python_cpu_callback"
CALLBACKS = (WHOLE, PARTS, BUFFERS)
"""Custom calls that call functions of the framework. Those of BUFFERS write to the results' memory."""
INSPECT = "InspectSharding"
"""The custom call by which a framework requests the sharding of its operand. Its `backend_config` names the receiver.
"""


def placed(module: Module, inspecting: Sequence[InspectingOp], devices: int) -> Module:
    """Returns the program with its callbacks rewritten as above. `inspecting` has their operands' known shardings."""
    known = {one.op: one for one in inspecting}
    has_parts = any(one.op.attributes["call_target_name"] == PARTS for one in inspecting)
    if not has_parts and not (inspecting and any(is_manual(op) for op in walk(module.body))):
        return module
    devices_mesh = Mesh({"device": devices})

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        found = known.get(op)
        if (
            found is None
            or found.is_manual
            or not all(isinstance(v.type, TensorType) for v in (*operands, *op.results))
        ):
            return None
        if op.attributes["call_target_name"] == PARTS:
            return _for_each(rw, op, operands, found.operands, devices_mesh)
        return _once(rw, op, operands, devices_mesh)

    changed = {}
    for function in module.functions():
        if not is_declaration(function) and any(op in known for op in walk(function.block())):
            changed[id(function)] = rewrite(function, visit)
    return Module(with_functions(module.op, changed), module.source, module.locations)


def _for_each(rw: Rewriter, op: Op, operands: list[Value], known: Sequence[Known], mesh: Mesh) -> list[Value]:
    mesh = next((s.mesh for s in known if s is not None), mesh)
    cut = [_whole(mesh, v) if s is None else s for v, s in zip(operands, known, strict=True)]
    parts = []
    for value, sharding in zip(operands, cut, strict=True):
        tiles = tile_assignment(op, sharding, sharding.mesh.axes, mesh.size)
        parts.append(Value(tensor(tiles.part_shape(value.tensor.extents), value.tensor.dtype)))
    call = Op(op.name, parts, [r.type for r in op.results], op.attributes, [], *rw.place())
    return _manual(rw, operands, cut, Block(parts, [call]), call.results, mesh)


def _once(rw: Rewriter, op: Op, operands: list[Value], mesh: Mesh) -> list[Value]:
    """Emits a call by device 0, which broadcasts the results to the others."""
    given = [Value(v.type) for v in operands]
    body, types = Block(given), [r.type for r in op.results]
    rw.blocks.append(body)
    process = rw.emit1("stablehlo.partition_id", [], tensor((), UI32))
    is_first = mk.compare(rw, "EQ", process, mk.constant(rw, tensor((), UI32), 0))
    branches = [Block(), Block()]
    rw.blocks.append(branches[0])
    made = rw.emit(op.name, given, types, op.attributes)
    rw.emit("stablehlo.return", made, [])
    rw.blocks[-1] = branches[1]
    rw.emit("stablehlo.return", [mk.constant(rw, r.tensor, 0) for r in op.results], [])
    rw.blocks.pop()
    made = rw.emit("stablehlo.if", [is_first], types, {}, [Region([b]) for b in branches])
    sent = [rw.emit1("stablehlo.collective_broadcast", [v], v.type, _from_first(mesh.size)) for v in made]
    rw.blocks.pop()
    return _manual(rw, operands, [_whole(mesh, v) for v in operands], body, sent, mesh)


def _from_first(devices: int) -> dict[str, object]:
    groups = np.arange(devices)[None]
    return {
        "replica_groups": Dense(tensor(groups.shape, I64), groups),
        "channel_handle": StructAttr("stablehlo.channel_handle", (("handle", 1), ("type", 1))),
    }


def _manual(
    rw: Rewriter, operands: list[Value], cut: Sequence[Sharding], body: Block, results: list[Value], mesh: Mesh
) -> list[Value]:
    """Emits a computation on parts that returns whole values."""
    body.ops.append(Op("sdy.return", results, [], {}, [], *rw.place()))
    attributes = {
        "in_shardings": _listed(cut),
        "out_shardings": _listed([_whole(mesh, v) for v in results]),
        "manual_axes": OpaqueAttr(f"#sdy<manual_axes{{{', '.join(map(_quoted, mesh.axes))}}}>"),
    }
    return rw.emit("sdy.manual_computation", operands, [v.type for v in results], attributes, [Region([body])])


def _whole(mesh: Mesh, value: Value) -> Sharding:
    return Sharding(mesh, ((),) * value.tensor.rank)


def _listed(shardings: Sequence[Sharding]) -> OpaqueAttr:
    return OpaqueAttr(f"#sdy.sharding_per_value<[{', '.join(map(_text, shardings))}]>")


def _text(sharding: Sharding) -> str:
    mesh = sharding.mesh
    sizes = ", ".join(f"{_quoted(name)}={size}" for name, size in mesh.axes.items())
    ids = f", device_ids=[{', '.join(map(str, mesh.device_ids))}]" if mesh.device_ids else ""
    dimensions = ", ".join(f"{{{', '.join(map(_axis, axes))}}}" for axes in sharding.dimensions)
    return f"<mesh<[{sizes}]{ids}>, [{dimensions}]>"


def _axis(axis: Axis) -> str:
    return _quoted(axis.name) + ("" if axis.size is None else f":({axis.pre_size}){axis.size}")


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
