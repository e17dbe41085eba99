"""Arguments and results of a program, as a framework sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.ir.attributes import DictAttr
from shlo_jit.ir.core import Module, Op, function_type
from shlo_jit.ir.dtypes import by_numpy
from shlo_jit.ir.types import TensorType, Type
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.row_major import layout_text
from shlo_jit.pjrt.table import PluginError
from shlo_jit.runtime.front import Signature

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")
"""Kinds of the memories of each device, as on XLA's CPU: all are memory of this process. The first is the default."""


PLACEMENT = "annotate_device_placement"


class Port(NamedTuple):
    """An argument or result in the interface."""

    type: int
    shape: tuple[int, ...]
    nbytes: int
    number: int
    """Index among the program's own; -1 for a token, since programs have no tokens."""
    memory_kind: int = 0
    """Requested memory, an index into MEMORY_KINDS."""


def main_of(module: Module) -> Op:
    found = module.function("main")
    if found is None:
        raise PluginError(interface.INVALID_ARGUMENT, "the program has no function @main")
    return found


def arguments_of(main: Op, own: Sequence[Signature]) -> list[Port]:
    """Returns the arguments. `own` has the signatures of the tensors among them. Raises PluginError."""
    return _ports(main, "arg_attrs", function_type(main).inputs, own)


def results_of(main: Op, own: Sequence[Signature]) -> list[Port]:
    """Returns the results; see `arguments_of`. A result that the program's last op moves has the memory kind of that
    op."""
    found = _ports(main, "res_attrs", function_type(main).results, own)
    for i, value in enumerate(main.block().terminator.operands):
        op = value.op
        if op is not None and op.name == "stablehlo.custom_call" and op.attributes["call_target_name"] == PLACEMENT:
            place = op.attributes.get("mhlo.frontend_attributes", DictAttr(())).get("_xla_buffer_placement")
            found[i] = found[i]._replace(memory_kind=_memory_kind(place))
    return found


def names_of_memories(ports: Sequence[Port]) -> list[str]:
    """Returns the memory kind of each port."""
    return [MEMORY_KINDS[port.memory_kind] for port in ports]


def _ports(main: Op, which: str, types: Sequence[Type], own: Sequence[Signature]) -> list[Port]:
    rows = main.attributes.get(which) or (DictAttr(()),) * len(types)
    found, left = [], iter(enumerate(own))
    for i, (type, row) in enumerate(zip(types, rows, strict=True)):
        if isinstance(type, TensorType):
            number, port = next(left)
            _check_layout(f"{'argument' if which == 'arg_attrs' else 'result'} {i}", row, len(port.shape))
            dtype = by_numpy()[port.dtype]
            nbytes = math.prod(port.shape) * dtype.itemsize
            kind = _memory_kind(row.get("mhlo.memory_kind"))
            found.append(Port(interface.ELEMENT_TYPES[dtype.name], port.shape, nbytes, number, kind))
        else:  # tokens have no counterpart in our programs
            found.append(Port(interface.ELEMENT_TYPES["token"], (), 0, -1))
    return found


def _check_layout(what: str, row: DictAttr, rank: int) -> None:
    wanted = row.get("mhlo.layout_mode")
    if wanted not in (None, "default", "auto", layout_text(rank)):
        text = f"{what} should have the layout {wanted}, but arrays are row-major here"
        raise PluginError(interface.UNIMPLEMENTED, text)


def _memory_kind(name: str | None) -> int:
    if name is None:
        return 0
    if name not in MEMORY_KINDS:
        known = ", ".join(MEMORY_KINDS)
        raise PluginError(interface.INVALID_ARGUMENT, f"there is no memory {name!r}; devices have {known}")
    return MEMORY_KINDS.index(name)
