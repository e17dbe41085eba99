"""Every function of the interface, called as a host calls it."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest
from plugin_host import ADD, DEVICES, DONATES, ON_PARTS, TYPES, Host, Refused, address, numbers, options, record, text

from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.python import EXTENSIONS, MACHINE_CODE, PYTHON
from shlo_jit.version import __version__

X, Y = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)


def test_the_table_is_whole(host: Host) -> None:
    """Size and version are set, no slot is null, and every function with fields is implemented."""
    assert host.head[0] == 8 * (5 + len(interface.FUNCTIONS))
    assert host.head[4] == interface.MINOR_VERSION << 32 | interface.MAJOR_VERSION
    assert all(host.addresses.values())
    assert len({*host.addresses.values()}) == len(host.addresses)
    described = {name for name, fields in interface.FUNCTIONS.items() if fields is not None}
    assert described == {*MACHINE_CODE, *PYTHON} - {*EXTENSIONS}


@pytest.mark.parametrize("name", [name for name, fields in interface.FUNCTIONS.items() if fields is None])
def test_functions_that_there_are_not(host: Host, name: str) -> None:
    """The host's record may have any size; it is not read."""
    with pytest.raises(Refused, match=re.escape(f"shlo_jit has no {name}")) as caught:
        host.check(host.functions[name](ctypes.addressof(record("Plugin_Initialize"))))
    assert caught.value.code == interface.UNIMPLEMENTED


# ---------------------------------------------------------------------- plugin, client, devices, memories
def test_plugin(host: Host) -> None:
    host.call("Plugin_Initialize")
    args = host.call("Plugin_Attributes")
    rows = (interface.structure("NamedValue") * args.num_attributes).from_address(args.attributes)
    names = [ctypes.string_at(row.name, row.name_size) for row in rows]
    assert names == [b"xla_version", b"stablehlo_current_version", b"stablehlo_minimum_version"]
    assert all(row.struct_size == ctypes.sizeof(row) for row in rows)
    assert [*(ctypes.c_int64 * rows[2].value_size).from_address(rows[2].value)] == [0, 9, 0]


def test_client(host: Host) -> None:
    client = host.client
    assert host.call("Client_Create").client == client
    assert host.text_of(host.call("Client_PlatformName", client=client), "platform_name") == b"cpu"
    version = host.text_of(host.call("Client_PlatformVersion", client=client), "platform_version")
    assert version.decode() == f"shlo_jit {__version__}"
    assert host.call("Client_ProcessIndex", client=client).process_index == 0
    assert len(host.devices) == DEVICES
    addressable = host.call("Client_AddressableDevices", client=client)
    assert host.pointers(addressable, "addressable_devices") == host.devices
    assert len(host.memories) == 3 * DEVICES
    host.call("Client_Destroy", client=client)
    assert host.pointers(host.call("Client_Devices", client=client), "devices") == host.devices


def test_the_state_of_all_processes_is_taken(host: Host) -> None:
    """Hosts report it in a separate thread, and end the process on an error."""
    host.call("Client_UpdateGlobalProcessInfo", client=host.client, process_infos=None, num_process_infos=0)


def named_values(**values: int) -> Any:
    kind = interface.structure("NamedValue")
    names = [text(name.encode()) for name in values]
    rows = (kind * len(values))()
    for row, name, value in zip(rows, names, values.values(), strict=True):
        row.struct_size, row.name, row.name_size = ctypes.sizeof(kind), address(name), len(name)
        row.type, row.value, row.value_size = interface.INT64, value, 1
    rows.names = names
    return rows


def test_several_processes_are_refused(host: Host) -> None:
    for count in (1, 2, 3):
        rows = named_values(node_id=0, num_nodes=count, num_nodes_more=9)
        if count == 1:
            assert host.call("Client_Create", create_options=rows, num_options=len(rows)).client == host.client
            continue
        with pytest.raises(Refused, match=f"one process, but {count}") as caught:
            host.call("Client_Create", create_options=rows, num_options=len(rows))
        assert caught.value.code == interface.UNIMPLEMENTED
    rows[1].struct_size = 8
    with pytest.raises(Refused, match="NamedValue: .*56 bytes.* got 8"):
        host.call("Client_Create", create_options=rows, num_options=len(rows))


@pytest.mark.parametrize("name, given, found", [
    ("Client_LookupDevice", "id", "device"),
    ("Client_LookupAddressableDevice", "local_hardware_id", "addressable_device"),
])  # fmt: skip
def test_devices_are_looked_up(host: Host, name: str, given: str, found: str) -> None:
    for i, device in enumerate(host.devices):
        assert getattr(host.call(name, client=host.client, **{given: i}), found) == device
    for i in (-1, DEVICES, 2**31 - 1, -(2**31)):
        with pytest.raises(Refused, match=f"device {i} of {DEVICES}"):
            host.call(name, client=host.client, **{given: i})


def test_default_assignment(host: Host) -> None:
    def ask(replicas: int, partitions: int, room: int) -> list[int]:
        ids = numbers([-1] * room, np.int32)
        counts = {"num_replicas": replicas, "num_partitions": partitions}
        given = {"default_assignment_size": room, "default_assignment": ids}
        host.call("Client_DefaultDeviceAssignment", client=host.client, **counts, **given)
        return ids.tolist()

    assert ask(1, 4, 4) == [0, 1, 2, 3]
    assert ask(2, 1, 3) == [0, 1, -1]
    for replicas, partitions in ((0, 1), (-2, -2), (5, 1), (2**31 - 1, 2**31 - 1)):
        with pytest.raises(Refused, match=f"{replicas} replicas.*{partitions} partitions.*4 devices"):
            ask(replicas, partitions, 4)
    with pytest.raises(Refused, match="4 devices.*room for 3"):
        ask(4, 1, 3)


def test_topology(host: Host) -> None:
    topology = host.call("Client_TopologyDescription", client=host.client).topology
    assert host.text_of(host.call("TopologyDescription_PlatformName", topology=topology), "platform_name") == b"cpu"
    version = host.call("TopologyDescription_PlatformVersion", topology=topology)
    assert host.text_of(version, "platform_version").startswith(b"shlo_jit ")
    args = host.call("TopologyDescription_GetDeviceDescriptions", topology=topology)
    assert host.pointers(args, "descriptions") == host.devices
    assert host.call("TopologyDescription_Attributes", topology=topology).num_attributes == 0
    assert host.call("TopologyDescription_Fingerprint", topology=topology).fingerprint == DEVICES
    host.call("TopologyDescription_Destroy", topology=topology)


def test_devices(host: Host) -> None:
    for i, device in enumerate(host.devices):
        description = host.call("Device_GetDescription", device=device).device_description
        one = {"device_description": description}
        assert host.call("DeviceDescription_Id", **one).id == i
        assert host.call("DeviceDescription_ProcessIndex", **one).process_index == 0
        assert host.call("DeviceDescription_Attributes", **one).num_attributes == 0
        assert host.text_of(host.call("DeviceDescription_Kind", **one), "device_kind") == b"cpu"
        debug = host.text_of(host.call("DeviceDescription_DebugString", **one), "debug_string")
        assert debug.decode() == f"cpu:{i}"
        assert (
            host.text_of(host.call("DeviceDescription_ToString", **one), "to_string").decode() == f"CpuDevice(id={i})"
        )
        assert host.call("Device_IsAddressable", device=device).is_addressable
        assert host.call("Device_LocalHardwareId", device=device).local_hardware_id == i
        memories = host.pointers(host.call("Device_AddressableMemories", device=device), "memories")
        assert memories == host.memories[3 * i : 3 * i + 3]
        assert host.call("Device_DefaultMemory", device=device).memory == memories[0]
        attributes = host.call("Device_GetAttributes", device=device)
        assert attributes.num_attributes == 0
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(attributes.attributes_deleter)(attributes.device_attributes)


def test_memories(host: Host) -> None:
    kinds = (b"device", b"pinned_host", b"unpinned_host")
    for i, memory in enumerate(host.memories):
        one = {"memory": memory}
        assert host.call("Memory_Id", **one).id == i
        assert host.call("Memory_Kind_Id", **one).kind_id == i % 3
        assert host.text_of(host.call("Memory_Kind", **one), "kind") == kinds[i % 3]
        assert str(i).encode() in host.text_of(host.call("Memory_DebugString", **one), "debug_string")
        assert str(i).encode() in host.text_of(host.call("Memory_ToString", **one), "to_string")
        devices = host.pointers(host.call("Memory_AddressableByDevices", **one), "devices")
        assert devices == [host.devices[i // 3]]


def test_user_data_of_memories(host: Host) -> None:
    """A host keeps data with a memory, by key, through the functions that the object begins with."""
    vtable = ctypes.c_int64.from_address(host.memories[1]).value
    functions = interface.structure("Memory_FunctionTable").from_address(vtable)
    get = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(functions.get_user_data)
    put = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(functions.set_user_data)
    assert get(host.memories[1], 77) == 0
    put(host.memories[1], 77, 123, 0)
    put(host.memories[1], 78, 456, 0)
    assert [get(host.memories[1], key) for key in (77, 78, 79)] == [123, 456, 0]
    put(host.memories[1], 77, 124, 0)
    assert [get(host.memories[1], key) for key in (77, 78)] == [124, 456]
    assert get(host.memories[2], 77) == 0


# ---------------------------------------------------------------------- errors and events
def test_errors_have_functions_of_their_own(host: Host) -> None:
    """Newer hosts ask the error itself: it begins with a table of the same functions."""
    args = record("Client_LookupDevice", client=host.client, id=99)
    error = host.functions["Client_LookupDevice"](ctypes.addressof(args))
    table = interface.structure("Error_FunctionTable").from_address(ctypes.c_int64.from_address(error).value)
    assert table.message == host.addresses["Error_Message"]
    assert (table.get_code, table.destroy) == (host.addresses["Error_GetCode"], host.addresses["Error_Destroy"])
    host.call("Error_ForEachPayload", error=error)
    with pytest.raises(Refused, match="no device 99"):
        host.check(error)


def test_events(host: Host) -> None:
    """The event of an array that stays with the host happens when the array's memory is no longer needed."""
    seen: list[Any] = []
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(lambda error, number: seen.append((error, number)))
    called = ctypes.cast(call, ctypes.c_void_p).value
    given = {"dims": numbers([4]), "num_dims": 1, "type": TYPES["f32"], "device": host.devices[0]}
    args = host.call("Client_BufferFromHostBuffer", client=host.client, data=X, host_buffer_semantics=2, **given)
    event = args.done_with_host_buffer
    assert not host.call("Event_IsReady", event=event).is_ready
    for number in (5, 6):
        host.call("Event_OnReady", event=event, callback=called, user_arg=number)
    assert seen == []
    host.destroy(args.buffer)
    assert sorted(seen) == [(None, 5), (None, 6)]
    assert host.call("Event_IsReady", event=event).is_ready
    host.call("Event_Await", event=event)
    host.call("Event_Error", event=event)
    host.call("Event_OnReady", event=event, callback=called, user_arg=7)
    assert seen[-1] == (None, 7)
    host.call("Event_Destroy", event=event)


# ---------------------------------------------------------------------- arrays
def test_buffers(host: Host) -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    buffer = host.put(array, device=host.devices[2])
    np.testing.assert_array_equal(host.get(buffer), array)
    unpadded = host.call("Buffer_UnpaddedDimensions", buffer=buffer)
    assert [*(ctypes.c_int64 * unpadded.num_dims).from_address(unpadded.unpadded_dims)] == [2, 3]
    assert host.call("Buffer_DynamicDimensionIndices", buffer=buffer).num_dynamic_dims == 0
    assert host.call("Buffer_Device", buffer=buffer).device == host.devices[2]
    assert host.call("Buffer_Memory", buffer=buffer).memory == host.memories[6]
    assert host.call("Buffer_IsOnCpu", buffer=buffer).is_on_cpu
    assert host.call("Event_IsReady", event=host.call("Buffer_ReadyEvent", buffer=buffer).event).is_ready
    place = host.call("Buffer_UnsafePointer", buffer=buffer).buffer_pointer
    assert place == host.call("Buffer_OpaqueDeviceMemoryDataPointer", buffer=buffer).device_memory_ptr
    assert [*(ctypes.c_double * 6).from_address(place)] == [*range(6)]
    host.call("Buffer_IncreaseExternalReferenceCount", buffer=buffer)
    host.call("Buffer_Delete", buffer=buffer)
    assert host.call("Buffer_IsDeleted", buffer=buffer).is_deleted
    assert [*(ctypes.c_double * 6).from_address(place)] == [*range(6)]
    host.call("Buffer_DecreaseExternalReferenceCount", buffer=buffer)
    host.call("Buffer_Delete", buffer=buffer)
    host.destroy(buffer)


def test_copies(host: Host) -> None:
    buffer = host.put(X)
    there = host.call("Buffer_CopyToDevice", buffer=buffer, dst_device=host.devices[3]).dst_buffer
    pinned = host.call("Buffer_CopyToMemory", buffer=buffer, dst_memory=host.memories[4]).dst_buffer
    assert host.call("Buffer_Device", buffer=there).device == host.devices[3]
    assert host.call("Buffer_Memory", buffer=pinned).memory == host.memories[4]
    assert host.call("Buffer_Device", buffer=pinned).device == host.devices[1]
    host.destroy(buffer)
    for copy in (there, pinned):
        np.testing.assert_array_equal(host.get(copy), X)
    part = numbers([0, 0], np.float32)
    host.call("Buffer_CopyRawToHost", buffer=there, dst=part, offset=4, transfer_size=8)
    assert part.tolist() == [1, 2]
    host.destroy(there, pinned)


def test_uninitialized(host: Host) -> None:
    given = {"shape_dims": numbers([3, 5]), "shape_num_dims": 2, "shape_element_type": TYPES["i16"]}
    args = host.call("Client_CreateUninitializedBuffer", client=host.client, device=host.devices[0], **given)
    assert host.get(args.buffer).shape == (3, 5)
    host.destroy(args.buffer)


def test_views(host: Host) -> None:
    """Views of other owners' memory: in place if it is row-major, else copied. The owner is notified when it is no
    longer needed."""
    told: list[int] = []
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(lambda data, number: told.append(number))
    called = ctypes.cast(call, ctypes.c_void_p).value
    home = np.zeros(64 + 24, np.uint8)
    data = home[-home.__array_interface__["data"][0] % 64 :][:24].view(np.int32)
    data[:] = np.arange(6)
    given = {"client": host.client, "device_buffer_ptr": data, "dims": numbers([2, 3]), "num_dims": 2}
    given |= {"element_type": TYPES["i32"], "device": host.devices[1], "on_delete_callback": called}
    buffer = host.call("Client_CreateViewOfDeviceBuffer", on_delete_callback_arg=1, **given).buffer
    data[0] = 9
    assert host.get(buffer).tolist() == [[9, 1, 2], [3, 4, 5]]
    assert told == []
    host.destroy(buffer)
    assert told == [1]
    columns = record("MemoryLayout", type=interface.TILED, minor_to_major=numbers([0, 1]), minor_to_major_size=2)
    strides = record("MemoryLayout", type=interface.STRIDES, minor_to_major=numbers([4, 8]), minor_to_major_size=2)
    for number, layout in enumerate((columns, strides), 2):
        buffer = host.call(
            "Client_CreateViewOfDeviceBuffer", on_delete_callback_arg=number, layout=layout, **given
        ).buffer
        assert told[-1] == number
        assert host.get(buffer).tolist() == [[9, 2, 4], [1, 3, 5]]
        host.destroy(buffer)


# ---------------------------------------------------------------------- programs
def test_programs(host: Host) -> None:
    loaded = host.compile(ADD, options(devices=[[2]]))
    executable = host.call("LoadedExecutable_GetExecutable", loaded_executable=loaded).executable
    one = {"executable": executable}
    assert host.text_of(host.call("Executable_Name", **one), "executable_name") == b"main"
    assert host.call("Executable_NumReplicas", **one).num_replicas == 1
    assert host.call("Executable_NumPartitions", **one).num_partitions == 1
    assert host.call("Executable_NumOutputs", **one).num_outputs == 1
    assert host.call("Executable_SizeOfGeneratedCodeInBytes", **one).size_in_bytes == -1
    costs = host.call("Executable_GetCostAnalysis", **one)
    rows = (interface.structure("NamedValue") * costs.num_properties).from_address(costs.properties)
    found = {ctypes.string_at(r.name, r.name_size): np.int32(r.value & 0xFFFFFFFF).view(np.float32) for r in rows}
    assert (found[b"flops"], found[b"transcendentals"], found[b"bytes accessed"]) == (4, 0, 48)
    kinds = host.call("Executable_OutputMemoryKinds", **one)
    assert kinds.num_outputs == 1
    assert ctypes.string_at(ctypes.c_int64.from_address(kinds.memory_kinds).value, 6) == b"device"
    assert host.call("Executable_ParameterMemoryKinds", **one).num_parameters == 2
    types = host.call("Executable_OutputElementTypes", **one)
    assert [*(ctypes.c_int32 * types.num_output_types).from_address(types.output_types)] == [TYPES["f32"]]
    dims = host.call("Executable_OutputDimensions", **one)
    assert ctypes.c_int64.from_address(dims.dims).value == 4
    assert ctypes.c_int64.from_address(dims.dim_sizes).value == 1
    fingerprint = host.text_of(host.call("Executable_Fingerprint", **one), "executable_fingerprint")
    same = host.text_of(host.call("LoadedExecutable_Fingerprint", executable=loaded), "executable_fingerprint")
    assert len(fingerprint) == 64 and same == fingerprint
    stats = host.call("Executable_GetCompiledMemoryStats", **one)
    assert (stats.argument_size_in_bytes, stats.output_size_in_bytes, stats.alias_size_in_bytes) == (32, 16, 0)
    assert stats.peak_memory_in_bytes >= 48 and stats.peak_unpadded_heap_bytes == 0
    devices = host.call("LoadedExecutable_AddressableDevices", executable=loaded)
    assert host.pointers(devices, "addressable_devices") == [host.devices[2]]
    ids = host.call("LoadedExecutable_AddressableDeviceLogicalIds", executable=loaded)
    assert ids.num_addressable_device_logical_ids == 1
    assert [*(ctypes.c_int32 * 2).from_address(ids.addressable_device_logical_ids)] == [0, 0]
    x, y = host.put(X), host.put(Y)
    [[made]] = host.run(loaded, [x, y])
    np.testing.assert_array_equal(host.get(made), X + Y)
    assert host.call("Buffer_Device", buffer=made).device == host.devices[2]
    assert host.call("Buffer_Memory", buffer=made).memory == host.memories[6]
    [[again]] = host.run(loaded, [x, y], execute_device=host.devices[2])
    with pytest.raises(Refused, match="execute_device"):
        host.run(loaded, [x, y], execute_device=host.devices[1])
    host.destroy(x, y, made, again)
    assert not host.call("LoadedExecutable_IsDeleted", executable=loaded).is_deleted
    host.call("LoadedExecutable_Delete", executable=loaded)
    assert host.call("LoadedExecutable_IsDeleted", executable=loaded).is_deleted
    with pytest.raises(Refused, match="executable.*deleted"):
        host.run(loaded, [])
    host.call("Executable_Destroy", executable=executable)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_events_of_calls(host: Host) -> None:
    loaded = host.compile(ADD)
    x, events = host.put(X), numbers([0])
    [[made]] = host.run(loaded, [x, x], device_complete_events=events)
    assert host.call("Event_IsReady", event=int(events[0])).is_ready
    host.call("Event_Destroy", event=int(events[0]))
    host.destroy(x, made)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def owned(host: Host, args: Any, owner: str) -> bytes:
    """Returns bytes that the host receives. They outlive the executable, and the host frees them."""
    data = host.text_of(args, "serialized_bytes")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(getattr(args, f"{owner}_deleter"))(getattr(args, owner))
    return data


def test_serialized(host: Host) -> None:
    given = options(xla_flag=b"\x10\x01")
    loaded = host.compile(ADD, given)
    args = host.call("Executable_Serialize", executable=loaded)
    compiled = owned(host, host.call("Executable_GetCompileOptions", executable=loaded), "serialized_compile_options")
    assert compiled == given
    asked = record("Program")
    host.call("Executable_OptimizedProgram", executable=loaded, program=asked)
    room = text(b"\0" * asked.code_size)
    host.call(
        "Executable_OptimizedProgram", executable=loaded, program=record("Program", code=room, code_size=len(room))
    )
    assert room.tobytes() == ADD
    host.call("LoadedExecutable_Destroy", executable=loaded)
    host.call("LoadedExecutable_Destroy", executable=host.compile(ADD))
    data = owned(host, args, "serialized_executable")
    bytes_ = {"serialized_executable": text(data), "serialized_executable_size": len(data)}
    again = host.call("Executable_DeserializeAndLoad", client=host.client, **bytes_).loaded_executable
    x = host.put(X)
    [[made]] = host.run(again, [x, x])
    np.testing.assert_array_equal(host.get(made), X + X)
    host.destroy(x, made)
    host.call("LoadedExecutable_Destroy", executable=again)


def test_donation(host: Host) -> None:
    loaded = host.compile(DONATES)
    x, y = host.put(X), host.put(Y)
    place = host.call("Buffer_UnsafePointer", buffer=x).buffer_pointer
    [[made]] = host.run(loaded, [x, y])
    assert host.call("Buffer_IsDeleted", buffer=x).is_deleted
    assert host.call("Buffer_UnsafePointer", buffer=made).buffer_pointer == place
    np.testing.assert_array_equal(host.get(made), X + Y)
    with pytest.raises(Refused, match="argument.*deleted or donated"):
        host.run(loaded, [x, y])
    with pytest.raises(Refused, match="donated.*second time"):
        host.run(loaded, [y, y])
    kept = record("ExecuteOptions", non_donatable_input_indices=numbers([0]), num_non_donatable_input_indices=1)
    [[second]] = host.run(loaded, [y, y], options=kept)
    np.testing.assert_array_equal(host.get(second), Y + Y)
    np.testing.assert_array_equal(host.get(y), Y)
    host.destroy(x, y, made, second)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_several_devices(host: Host) -> None:
    loaded = host.compile(ON_PARTS, options(partitions=4, devices=[[0], [1], [2], [3]]))
    assert host.call("Executable_NumPartitions", executable=loaded).num_partitions == 4
    data = owned(
        host,
        host.call("LoadedExecutable_GetDeviceAssignment", executable=loaded),
        "serialized_device_assignment",
    )
    assert data == bytes.fromhex("08011004 1a030a0100 1a030a0101 1a030a0102 1a030a0103")
    parts = [host.put(np.float32([i]), device=device) for i, device in enumerate(host.devices)]
    rows = host.run(loaded, *[[part] for part in parts])
    for device, [made] in zip(host.devices, rows, strict=True):
        assert host.get(made).tolist() == [6]
        assert host.call("Buffer_Device", buffer=made).device == device
        host.destroy(made)
    with pytest.raises(Refused, match="1 arguments on 4 devices.*1 on 1"):
        host.run(loaded, [parts[0]])
    wide = host.put(X)
    with pytest.raises(Refused, match="expects 1xf32, got 4xf32"):
        host.run(loaded, [wide], *[[part] for part in parts[1:]])
    host.destroy(wide, *parts)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_the_extension_for_shardings(host: Host) -> None:
    extension = interface.structure("Shardings_Extension").from_address(host.head[1])
    assert (extension.struct_size, extension.type) == (ctypes.sizeof(extension), 19)
    loaded = host.compile(ON_PARTS, options(partitions=4))
    for name, at in zip(EXTENSIONS[:2], (extension.parameter_shardings, extension.output_shardings), strict=True):
        args = record(name, executable=loaded)
        host.check(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(at)(ctypes.addressof(args)))
        count = args.num_parameters if "Parameter" in name else args.num_outputs
        size = ctypes.c_int64.from_address(args.sharding_sizes).value
        said = ctypes.string_at(ctypes.c_int64.from_address(args.shardings).value, size)
        assert count == 1 and said == bytes.fromhex("0803 1a0104 220400010203")
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_the_extension_for_layouts(host: Host) -> None:
    """Layouts of an array, of a request, and of a program's arguments and results all follow from the rank."""
    last = interface.structure("Shardings_Extension").from_address(host.head[1])
    extension = interface.structure("Layouts_Extension").from_address(last.next)
    assert (extension.struct_size, extension.type, extension.next) == (ctypes.sizeof(extension), 4, None)

    def call(at: int, name: str, **fields: object) -> Any:
        args = record(name, **fields)
        host.check(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(at)(ctypes.addressof(args)))
        return args

    def text(layout: int) -> bytes:
        said = call(extension.serialize, "MemoryLayout_Serialize", layout=layout)
        call(extension.destroy, "MemoryLayout_Destroy", layout=layout)
        return ctypes.string_at(said.serialized_bytes, said.serialized_bytes_size)

    for shape, order in (((), b"{}"), ((4,), b"{0}"), ((2, 3, 4), b"{2,1,0}")):
        buffer = host.put(np.zeros(shape, np.float32))
        assert text(call(extension.buffer_layout, "Buffer_MemoryLayout", buffer=buffer).layout) == order
        host.destroy(buffer)
        found = call(extension.client_default, "Client_GetDefaultLayout", type=11, num_dims=len(shape))
        assert text(found.layout) == order
    with pytest.raises(Refused, match="64 dimensions.*65"):
        call(extension.client_default, "Client_GetDefaultLayout", type=11, num_dims=65)
    loaded = host.compile(ON_PARTS, options(partitions=4))
    outputs = call(extension.output_layouts, "Executable_GetOutputLayouts", executable=loaded)
    inputs = call(extension.parameter_layouts, "Executable_GetParameterLayouts", executable=loaded)
    for count, layouts in ((outputs.num_outputs, outputs.layouts), (inputs.num_parameters, inputs.layouts)):
        assert count == 1 and text(ctypes.c_int64.from_address(layouts).value) == b"{0}"
    host.call("LoadedExecutable_Destroy", executable=loaded)
