"""The PJRT client: its devices and their memories, their properties, and its programs by number."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shlo_jit.codegen.jit import Library
from shlo_jit.ir.types import MAX_RANK
from shlo_jit.pjrt import host_records, interface
from shlo_jit.pjrt.code.row_major import LAYOUTS
from shlo_jit.pjrt.executables import Calls, Program
from shlo_jit.pjrt.keep_alive import Kept, named_value
from shlo_jit.pjrt.ports import MEMORY_KINDS, Port
from shlo_jit.pjrt.table import Handler, PluginError
from shlo_jit.version import __version__

PLATFORM = "cpu"
"""Platform that a framework lowers programs for: JAX supports LAPACK functions, callbacks and donation for this name.
"""
SEVERAL_PROCESSES = (
    "the platform of shlo_jit runs in one process, but {} were requested: use the devices of one process "
    "(jax_num_cpu_devices), or compile the program with shlo_jit.compile, which can start processes"
)
DEVICE_KIND = "cpu"

_DEVICE, _MEMORY = host_records.structure(host_records.DEVICE), host_records.structure(host_records.MEMORY)

HANDLERS: dict[str, Callable[[Client, Any], None]] = {}
"""Functions of the interface that are implemented in Python, by name."""


def handles(*names: str) -> Callable[[Callable[[Client, Any], None]], Callable[[Client, Any], None]]:
    def register(function: Callable[[Client, Any], None]) -> Callable[[Client, Any], None]:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


class Functions:
    """Machine-code functions that Python calls."""

    def __init__(self, library: Library) -> None:
        p, i = ctypes.c_void_p, ctypes.c_int64

        def function(name: str, result: Any, *arguments: Any) -> Any:
            return ctypes.CFUNCTYPE(result, *arguments)(library.addresses[f"shlo_pjrt_{name}"])

        self.take = function("take", p, i)
        self.storage = function("storage", p, p, i, p, p, i)
        self.buffer = function("buffer", p, p, p, i, i, i, p, p, p)
        self.hold = function("hold", ctypes.c_bool, p)
        self.let_go = function("let_go", None, p)
        self.delete = function("delete", None, p)
        self.take_dead = function("take_dead", p)


class Client:
    """Devices that share the memory of this process. A program on several devices uses one of each."""

    def __init__(self, library: Library, count: Callable[[], int]) -> None:
        """`count` returns the number of devices. It is called when the client is created."""
        self.library = library
        self.functions = Functions(library)
        self.kept = Kept()
        self._count = count
        self.devices: list[Any] = []
        self.memories: list[Any] = []
        self.programs: dict[int, Program] = {}
        """Programs by number."""
        self._numbers = itertools.count(1)
        self.fail, self.run_many = 0, 0
        """Addresses of the functions that programs call: see `host_records.EXECUTABLE`."""
        self.foreign_handlers: Callable[[], Mapping[str, Any]] = dict
        """Returns the handlers of custom calls that were registered with a framework, by name."""
        self.report_sharding: Callable[[str, bytes], None] = lambda key, sharding: None
        """Reports the sharding of a value to the framework that requested it: see `Program.inspected`."""
        self.tickets: dict[int, Calls] = {}
        """Custom calls that a framework's front end passes for one compilation, by number."""

    def handlers(self) -> dict[str, Handler]:
        return {name: function.__get__(self) for name, function in HANDLERS.items()}

    def make_devices(self) -> None:
        if self.devices:
            return
        table = interface.structure("Memory_FunctionTable")(
            struct_size=ctypes.sizeof(interface.structure("Memory_FunctionTable")),
            instance_struct_size=8,
            get_user_data=self.library.addresses["shlo_pjrt_user_data"],
            set_user_data=self.library.addresses["shlo_pjrt_set_user_data"],
        )
        vtable = self.kept.keep(table)
        for number in range(max(1, self._count())):
            device = _DEVICE(number=number)
            self.devices.append(device)
            for i, kind in enumerate(MEMORY_KINDS):
                memory = _MEMORY(vtable=vtable, number=len(MEMORY_KINDS) * number + i, device=ctypes.addressof(device))
                memory.kind, memory.kind_size = self.kept.text(kind)
                self.memories.append(memory)
            device.memory = ctypes.addressof(self.memories[-len(MEMORY_KINDS)])
        self.device_table = self.kept.numbers([ctypes.addressof(x) for x in self.devices])
        self.memory_table = self.kept.numbers([ctypes.addressof(x) for x in self.memories])

    def device_address(self, number: int) -> int:
        """Returns the address of a device. Raises PluginError if there is none of this number."""
        if not 0 <= number < len(self.devices):
            raise PluginError(interface.INVALID_ARGUMENT, f"there is no device {number} of {len(self.devices)}")
        return ctypes.addressof(self.devices[number])

    def memory_address(self, device: int, kind: int) -> int:
        """Returns the address of a memory of an existing device."""
        return ctypes.addressof(self.memories[len(MEMORY_KINDS) * device + kind])

    def layout_address(self, rank: int) -> int:
        """Returns the address of the layout that arrays of a rank have. Raises PluginError."""
        if not 0 <= rank <= MAX_RANK:
            raise PluginError(interface.INVALID_ARGUMENT, f"arrays have up to {MAX_RANK} dimensions, not {rank}")
        return self.library.addresses[LAYOUTS.text[1:]] + host_records.nbytes(host_records.LAYOUT) * rank

    def add(self, program: Program) -> int:
        """Registers a program under a new number. Returns the address of its record."""
        self.forget_dead()
        number = next(self._numbers)
        address = program.record_for(number, self)
        self.programs[number] = program
        return address

    def forget_dead(self) -> None:
        """Removes programs whose records were destroyed."""
        address = self.functions.take_dead()
        while address:
            record = host_records.structure(host_records.EXECUTABLE).from_address(address)
            address = record.next
            self.programs.pop(record.number, None)

    def buffer_of(self, array: np.ndarray, port: Port, device: int) -> int:
        """Returns the address of a new buffer with a copy of an array."""
        functions = self.functions
        size = array.nbytes if port.number >= 0 else 0
        data = functions.take(size)
        if not data:
            raise MemoryError(f"out of memory: {size} bytes were requested")
        memory = (ctypes.c_char * max(1, size)).from_address(data)
        if size:
            np.ndarray(array.shape, array.dtype, memory)[...] = array  # type: ignore[call-overload]
        return self._buffer(data, size, size, port, device)

    def deleted_buffer(self, port: Port, device: int) -> int:
        """Returns the address of a new buffer that is already deleted. A token has no contents; its buffer is not
        deleted."""
        made = self._buffer(self.functions.take(0), 0, port.nbytes, port, device)
        if port.number >= 0:
            self.delete(made)
        return made

    def _buffer(self, data: int, nbytes: int, size: int, port: Port, device: int) -> int:
        """Creates a buffer. `nbytes` is the size of the block of memory; `size` that of the array."""
        functions = self.functions
        storage = functions.storage(data, nbytes, None, None, 1)
        dims = (ctypes.c_int64 * max(1, len(port.shape)))(*port.shape)
        home = self.memory_address(_DEVICE.from_address(device).number, port.memory_kind)
        return functions.buffer(storage, data, size, port.type, len(port.shape), dims, device, home)

    def delete(self, buffer: int) -> None:
        self.functions.delete(buffer)

    def program(self, address: int) -> Program:
        return self.programs[host_records.structure(host_records.EXECUTABLE).from_address(address).number]


# ---------------------------------------------------------------------- plugin and client
@handles("Plugin_Initialize", "Client_Destroy", "TopologyDescription_Destroy")
def _nothing(client: Client, args: Any) -> None:
    pass


@handles("Plugin_Attributes")
def _plugin_attributes(client: Client, args: Any) -> None:
    versions = {"stablehlo_current_version": (1, 20, 0), "stablehlo_minimum_version": (0, 9, 0)}
    args.attributes = client.kept.named_values({"xla_version": 2, **versions})
    args.num_attributes = 1 + len(versions)


@handles("Client_Create")
def _create(client: Client, args: Any) -> None:
    processes = named_value(args.create_options, args.num_options, "num_nodes")
    if processes is not None and processes > 1:
        raise PluginError(interface.UNIMPLEMENTED, SEVERAL_PROCESSES.format(processes))
    client.make_devices()
    args.client = client.device_table


@handles("Client_PlatformName", "TopologyDescription_PlatformName")
def _platform_name(client: Client, args: Any) -> None:
    args.platform_name, args.platform_name_size = client.kept.text(PLATFORM)


@handles("Client_PlatformVersion", "TopologyDescription_PlatformVersion")
def _platform_version(client: Client, args: Any) -> None:
    args.platform_version, args.platform_version_size = client.kept.text(f"shlo_jit {__version__}")


@handles("Client_ProcessIndex")
def _process_index(client: Client, args: Any) -> None:
    args.process_index = 0


@handles("Client_Devices")
def _devices(client: Client, args: Any) -> None:
    args.devices, args.num_devices = client.device_table, len(client.devices)


@handles("Client_AddressableDevices")
def _addressable_devices(client: Client, args: Any) -> None:
    args.addressable_devices, args.num_addressable_devices = client.device_table, len(client.devices)


@handles("Client_AddressableMemories")
def _addressable_memories(client: Client, args: Any) -> None:
    args.addressable_memories, args.num_addressable_memories = client.memory_table, len(client.memories)


@handles("Client_LookupDevice")
def _lookup_device(client: Client, args: Any) -> None:
    args.device = client.device_address(args.id)


@handles("Client_LookupAddressableDevice")
def _lookup_addressable_device(client: Client, args: Any) -> None:
    args.addressable_device = client.device_address(args.local_hardware_id)


@handles("Client_DefaultDeviceAssignment")
def _default_assignment(client: Client, args: Any) -> None:
    replicas, partitions = args.num_replicas, args.num_partitions
    count, room = replicas * partitions, args.default_assignment_size
    if min(replicas, partitions) < 1 or count > len(client.devices):
        wanted = f"{replicas} replicas of {partitions} partitions"
        raise PluginError(
            interface.INVALID_ARGUMENT, f"{wanted} were requested, but there are {len(client.devices)} devices"
        )
    if count > room:
        raise PluginError(
            interface.INVALID_ARGUMENT, f"there are {count} devices in the assignment, but room for {room}"
        )
    (ctypes.c_int32 * count).from_address(args.default_assignment)[:] = range(count)


@handles("Client_TopologyDescription")
def _topology(client: Client, args: Any) -> None:
    args.topology = client.device_table


@handles("TopologyDescription_GetDeviceDescriptions")
def _descriptions(client: Client, args: Any) -> None:
    args.descriptions, args.num_descriptions = client.device_table, len(client.devices)


@handles("TopologyDescription_Attributes")
def _topology_attributes(client: Client, args: Any) -> None:
    args.attributes, args.num_attributes = client.kept.named_values({}), 0


@handles("TopologyDescription_Fingerprint")
def _topology_fingerprint(client: Client, args: Any) -> None:
    args.fingerprint = len(client.devices)


# ---------------------------------------------------------------------- devices and memories
@handles("Device_GetDescription")
def _description(client: Client, args: Any) -> None:
    args.device_description = args.device  # one record serves as both


@handles("DeviceDescription_Id")
def _id(client: Client, args: Any) -> None:
    args.id = _DEVICE.from_address(args.device_description).number


@handles("DeviceDescription_ProcessIndex")
def _description_process(client: Client, args: Any) -> None:
    args.process_index = 0


@handles("DeviceDescription_Attributes")
def _description_attributes(client: Client, args: Any) -> None:
    args.attributes, args.num_attributes = client.kept.named_values({}), 0


@handles("DeviceDescription_Kind")
def _device_kind(client: Client, args: Any) -> None:
    args.device_kind, args.device_kind_size = client.kept.text(DEVICE_KIND)


@handles("DeviceDescription_DebugString")
def _debug_string(client: Client, args: Any) -> None:
    number = _DEVICE.from_address(args.device_description).number
    args.debug_string, args.debug_string_size = client.kept.text(f"cpu:{number}")


@handles("DeviceDescription_ToString")
def _to_string(client: Client, args: Any) -> None:
    number = _DEVICE.from_address(args.device_description).number
    args.to_string, args.to_string_size = client.kept.text(f"CpuDevice(id={number})")


@handles("Device_IsAddressable")
def _is_addressable(client: Client, args: Any) -> None:
    args.is_addressable = True


@handles("Device_LocalHardwareId")
def _hardware_id(client: Client, args: Any) -> None:
    args.local_hardware_id = _DEVICE.from_address(args.device).number


@handles("Device_AddressableMemories")
def _device_memories(client: Client, args: Any) -> None:
    number = _DEVICE.from_address(args.device).number
    args.memories, args.num_memories = client.memory_table + 8 * len(MEMORY_KINDS) * number, len(MEMORY_KINDS)


@handles("Device_DefaultMemory")
def _default_memory(client: Client, args: Any) -> None:
    args.memory = _DEVICE.from_address(args.device).memory


@handles("Device_GetAttributes")
def _device_attributes(client: Client, args: Any) -> None:
    args.attributes, args.num_attributes = client.kept.named_values({}), 0
    args.device_attributes = client.device_table
    args.attributes_deleter = client.library.addresses["shlo_pjrt_nothing_void"]


@handles("Memory_Id")
def _memory_id(client: Client, args: Any) -> None:
    args.id = _MEMORY.from_address(args.memory).number


@handles("Memory_Kind_Id")
def _memory_kind_id(client: Client, args: Any) -> None:
    args.kind_id = _MEMORY.from_address(args.memory).number % len(MEMORY_KINDS)


@handles("Memory_DebugString")
def _memory_debug(client: Client, args: Any) -> None:
    args.debug_string, args.debug_string_size = client.kept.text(_memory_name(args.memory))


@handles("Memory_ToString")
def _memory_to_string(client: Client, args: Any) -> None:
    args.to_string, args.to_string_size = client.kept.text(_memory_name(args.memory))


@handles("Memory_AddressableByDevices")
def _memory_devices(client: Client, args: Any) -> None:
    number = _MEMORY.from_address(args.memory).number // len(MEMORY_KINDS)
    args.devices, args.num_devices = client.device_table + 8 * number, 1


def _memory_name(address: int) -> str:
    number = _MEMORY.from_address(address).number
    kind = ("CpuDeviceMemory", "PinnedHostMemory", "UnpinnedHostMemorySpace")[number % len(MEMORY_KINDS)]
    return f"{kind}(id={number}, process_index=0, client=cpu)"


# ---------------------------------------------------------------------- layouts
@handles("Client_GetDefaultLayout", "Topology_GetDefaultLayout")
def _default_layout(client: Client, args: Any) -> None:
    args.layout = client.layout_address(args.num_dims)
