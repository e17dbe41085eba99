"""In which order the dimensions of arrays lie in memory, which a framework asks of every program: row-major, always.

Without this it would have StableHLO of us for each, and read layouts from what it makes of that, which takes longer
than many a compilation.
"""

from __future__ import annotations

import ctypes
from typing import Any

from shlo_jit.pjrt import interface, records
from shlo_jit.pjrt.client import Client, handles
from shlo_jit.pjrt.code.shapes import HIGHEST_RANK
from shlo_jit.pjrt.table import PluginError

_BUFFER = records.structure(records.BUFFER)


def _row_major(client: Client, rank: int) -> int:
    """Address of a layout, which is its text."""
    return client.kept.text(f"{{{','.join(map(str, reversed(range(rank))))}}}")[0]


@handles("Layouts_MemoryLayout_Destroy")
def _destroy(client: Client, args: Any) -> None:
    """Layouts live as long as the client: there is one of each rank."""


@handles("Layouts_MemoryLayout_Serialize")
def _serialize(client: Client, args: Any) -> None:
    args.serialized_bytes = args.serialized_layout = args.layout
    args.serialized_bytes_size = len(ctypes.string_at(args.layout))
    args.serialized_layout_deleter = client.library.addresses["shlo_pjrt_nothing_void"]


@handles("Layouts_Client_GetDefaultLayout", "Layouts_Topology_GetDefaultLayout")
def _default(client: Client, args: Any) -> None:
    if not 0 <= args.num_dims <= HIGHEST_RANK:
        message = f"num_dims: expected 0 to {HIGHEST_RANK}, got {args.num_dims}"
        raise PluginError(interface.INVALID_ARGUMENT, message)
    args.layout = _row_major(client, args.num_dims)


@handles("Layouts_Buffer_MemoryLayout")
def _of_buffer(client: Client, args: Any) -> None:
    args.layout = _row_major(client, _BUFFER.from_address(args.buffer).rank)


@handles("Layouts_Executable_GetOutputLayouts")
def _of_results(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_outputs = len(program.results)
    args.layouts = program.kept.numbers([_row_major(client, len(port.shape)) for port in program.results])


@handles("Layouts_Executable_GetParameterLayouts")
def _of_arguments(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_parameters = len(program.arguments)
    args.layouts = program.kept.numbers([_row_major(client, len(port.shape)) for port in program.arguments])
