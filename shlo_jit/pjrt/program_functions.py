"""Functions of the interface that create programs, and that return their properties."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from shlo_jit.pjrt import interface
from shlo_jit.pjrt.client import Client, handles
from shlo_jit.pjrt.compilation import compile_program, read_program, write_program
from shlo_jit.pjrt.executables import Program, Source
from shlo_jit.pjrt.options import read_options
from shlo_jit.pjrt.ports import Port, names_of_memories
from shlo_jit.pjrt.table import PluginError, record_at


@handles("Client_Compile")
def _compile(client: Client, args: Any) -> None:
    given = record_at("Program", args.program)
    kind = _bytes_at(given.format, given.format_size).decode(errors="backslashreplace")
    if kind != "mlir":
        raise PluginError(interface.UNIMPLEMENTED, f"programs are StableHLO in the format mlir, not {kind}")
    code = _bytes_at(given.code, given.code_size)
    source = Source(code, _bytes_at(args.compile_options, args.compile_options_size))
    options = read_options(source.options, len(client.devices))
    calls = client.tickets.pop(options.own.get("ticket", 0), {})
    program = compile_program(source, options, calls, client.foreign_handlers)
    for key, sharding in program.inspected:
        client.report_sharding(key, sharding)
    args.executable = client.add(program)


@handles("Executable_Serialize")
def _serialize(client: Client, args: Any) -> None:
    _return_bytes(args, "serialized_executable", write_program(client.program(args.executable)))


@handles("Executable_DeserializeAndLoad")
def _deserialize(client: Client, args: Any) -> None:
    """Deserializes a program. Options that a host passes beside it are ignored: it contains the options of its
    compilation."""
    data = _bytes_at(args.serialized_executable, args.serialized_executable_size)
    source = read_program(data)
    options = read_options(source.options, len(client.devices))
    args.loaded_executable = client.add(compile_program(source, options, {}, client.foreign_handlers))


@handles("Executable_GetCostAnalysis")
def _cost(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    costs = program.costs()
    args.properties, args.num_properties = program.kept.named_values(costs), len(costs)


@handles("Executable_GetCompileOptions")
def _compile_options(client: Client, args: Any) -> None:
    _return_bytes(args, "serialized_compile_options", client.program(args.executable).source.options)


@handles("Executable_OptimizedProgram")
def _optimized_program(client: Client, args: Any) -> None:
    """Returns the optimized program. The host asks for the size first."""
    shown = client.program(args.executable).shown
    record, size = record_at("Program", args.program), len(shown)
    if record.code:
        if record.code_size < size:
            what = f"the program has {size} bytes, but the host's buffer only {record.code_size}"
            raise PluginError(interface.INVALID_ARGUMENT, what)
        ctypes.memmove(record.code, shown, size)
    record.code_size = size
    record.format, record.format_size = client.kept.text("mlir")


@handles("Executable_Name")
def _name(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.executable_name, args.executable_name_size = program.kept.text(program.name)


@handles("Executable_Fingerprint", "LoadedExecutable_Fingerprint")
def _fingerprint(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.executable_fingerprint, args.executable_fingerprint_size = program.kept.text(program.fingerprint)


@handles("Executable_SizeOfGeneratedCodeInBytes")
def _code_size(client: Client, args: Any) -> None:
    args.size_in_bytes = -1


@handles("Executable_OutputElementTypes")
def _output_types(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.output_types = program.kept.numbers([r.type for r in program.results], ctypes.c_int32)
    args.num_output_types = len(program.results)


@handles("Executable_OutputDimensions")
def _output_dims(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_outputs = len(program.results)
    args.dims = program.kept.numbers([n for r in program.results for n in r.shape])
    args.dim_sizes = program.kept.numbers([len(r.shape) for r in program.results])


@handles("Executable_OutputMemoryKinds")
def _output_kinds(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_outputs = len(program.results)
    args.memory_kinds, args.memory_kind_sizes = program.kept.texts(names_of_memories(program.results))


@handles("Executable_ParameterMemoryKinds")
def _parameter_kinds(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_parameters = len(program.arguments)
    args.memory_kinds, args.memory_kind_sizes = program.kept.texts(names_of_memories(program.arguments))


@handles("Executable_GetCompiledMemoryStats")
def _memory_stats(client: Client, args: Any) -> None:
    sizes = client.program(args.executable).memory
    known = {**sizes._asdict(), "peak_memory_in_bytes": sizes.peak_memory_in_bytes}
    for field, (offset, _) in interface.fields_of("Executable_GetCompiledMemoryStats").items():
        if field not in ("executable", "extension_start") and offset < args.struct_size:
            setattr(args, field, known.get(field, 0))


@handles("Executable_ParameterShardings")
def _parameter_shardings(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_parameters = len(program.argument_shardings)
    args.shardings, args.sharding_sizes = _texts_or_null(program, program.argument_shardings)


@handles("Executable_OutputShardings")
def _output_shardings(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_outputs = len(program.result_shardings)
    args.shardings, args.sharding_sizes = _texts_or_null(program, program.result_shardings)


def _texts_or_null(program: Program, texts: Sequence[bytes]) -> tuple[int, int]:
    return program.kept.texts(texts) if texts else (0, 0)


@handles("LoadedExecutable_AddressableDevices")
def _program_devices(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    addresses = [client.device_address(n) for row in program.options.devices for n in row]
    args.addressable_devices, args.num_addressable_devices = program.kept.numbers(addresses), len(addresses)


@handles("LoadedExecutable_AddressableDeviceLogicalIds")
def _logical_ids(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    pairs = [n for r, row in enumerate(program.options.devices) for p in range(len(row)) for n in (r, p)]
    args.addressable_device_logical_ids = program.kept.numbers(pairs, ctypes.c_int32)
    args.num_addressable_device_logical_ids = len(pairs) // 2


@handles("LoadedExecutable_GetDeviceAssignment")
def _assignment(client: Client, args: Any) -> None:
    data = client.program(args.executable).options.device_assignment
    _return_bytes(args, "serialized_device_assignment", data)


# ---------------------------------------------------------------------- data passed by and to hosts
def _bytes_at(address: int | None, size: int) -> bytes:
    if not size:
        return b""
    if not address or size < 0:
        raise PluginError(interface.INVALID_ARGUMENT, f"expected bytes, got {size} of them at {address}")
    return ctypes.string_at(address, size)


def _return_bytes(args: Any, owner: str, data: bytes) -> None:
    """Returns bytes that belong to the host until it calls the deleter."""
    allocate = ctypes.pythonapi.PyMem_RawMalloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    address = allocate(len(data))
    if address is None:
        raise MemoryError(f"out of memory: {len(data)} bytes were requested")
    ctypes.memmove(address, data, len(data))
    args.serialized_bytes, args.serialized_bytes_size = address, len(data)
    setattr(args, owner, address)
    setattr(args, f"{owner}_deleter", ctypes.cast(ctypes.pythonapi.PyMem_RawFree, ctypes.c_void_p).value)


@handles("Executable_GetOutputLayouts")
def _output_layouts(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_outputs, args.layouts = len(program.results), _layouts(client, program, program.results)


@handles("Executable_GetParameterLayouts")
def _parameter_layouts(client: Client, args: Any) -> None:
    program = client.program(args.executable)
    args.num_parameters, args.layouts = len(program.arguments), _layouts(client, program, program.arguments)


def _layouts(client: Client, program: Program, ports: Sequence[Port]) -> int:
    return program.kept.numbers([client.layout_address(len(port.shape)) for port in ports])
