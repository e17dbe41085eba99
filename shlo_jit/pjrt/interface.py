"""PJRT, the C interface between a framework and a plugin for a device, as data: version 0.114; hosts of 0.112 accept
it.

A plugin is a table of functions `Error *f(Args *)`. Every argument record begins with its size and a list of
extensions, 16 bytes. The other fields are listed here, by the name of the function: `name` is a pointer, `name:i64` a
number. Fields after a `|` were added later, and records of older hosts end before them. Functions that we do not
implement have no fields here.
"""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

MAJOR_VERSION, MINOR_VERSION = 0, 114
API_HEAD_BYTES = 40
"""Bytes before the functions in the table: its size, extensions, and the version."""

FUNCTIONS: dict[str, str | None] = {
    "Error_Destroy": "error",
    "Error_Message": "error message message_size:i64",
    "Error_GetCode": "error code:i32",
    "Plugin_Initialize": "",
    "Plugin_Attributes": "attributes num_attributes:i64",
    "Event_Destroy": "event",
    "Event_IsReady": "event is_ready:i8",
    "Event_Error": "event",
    "Event_Await": "event",
    "Event_OnReady": "event callback user_arg",
    "Client_Create": (
        "create_options num_options:i64 kv_get_callback kv_get_user_arg kv_put_callback kv_put_user_arg "
        "client | kv_try_get_callback kv_try_get_user_arg"
    ),
    "Client_Destroy": "client",
    "Client_PlatformName": "client platform_name platform_name_size:i64",
    "Client_ProcessIndex": "client process_index:i32",
    "Client_PlatformVersion": "client platform_version platform_version_size:i64",
    "Client_Devices": "client devices num_devices:i64",
    "Client_AddressableDevices": "client addressable_devices num_addressable_devices:i64",
    "Client_LookupDevice": "client id:i32 device",
    "Client_LookupAddressableDevice": "client local_hardware_id:i32 addressable_device",
    "Client_AddressableMemories": "client addressable_memories num_addressable_memories:i64",
    "Client_Compile": "client program compile_options compile_options_size:i64 executable",
    "Client_DefaultDeviceAssignment": (
        "client num_replicas:i32 num_partitions:i32 default_assignment_size:i64 default_assignment"
    ),
    "Client_BufferFromHostBuffer": (
        "client data type:i32 dims num_dims:i64 byte_strides num_byte_strides:i64 host_buffer_semantics:i32 "
        "device memory device_layout done_with_host_buffer buffer"
    ),
    "DeviceDescription_Id": "device_description id:i32",
    "DeviceDescription_ProcessIndex": "device_description process_index:i32",
    "DeviceDescription_Attributes": "device_description num_attributes:i64 attributes",
    "DeviceDescription_Kind": "device_description device_kind device_kind_size:i64",
    "DeviceDescription_DebugString": "device_description debug_string debug_string_size:i64",
    "DeviceDescription_ToString": "device_description to_string to_string_size:i64",
    "Device_GetDescription": "device device_description",
    "Device_IsAddressable": "device is_addressable:i8",
    "Device_LocalHardwareId": "device local_hardware_id:i32",
    "Device_AddressableMemories": "device memories num_memories:i64",
    "Device_DefaultMemory": "device memory",
    "Device_MemoryStats": None,
    "Memory_Id": "memory id:i32",
    "Memory_Kind": "memory kind kind_size:i64",
    "Memory_DebugString": "memory debug_string debug_string_size:i64",
    "Memory_ToString": "memory to_string to_string_size:i64",
    "Memory_AddressableByDevices": "memory devices num_devices:i64",
    "Executable_Destroy": "executable",
    "Executable_Name": "executable executable_name executable_name_size:i64",
    "Executable_NumReplicas": "executable num_replicas:i64",
    "Executable_NumPartitions": "executable num_partitions:i64",
    "Executable_NumOutputs": "executable num_outputs:i64",
    "Executable_SizeOfGeneratedCodeInBytes": "executable size_in_bytes:i64",
    "Executable_GetCostAnalysis": "executable num_properties:i64 properties",
    "Executable_OutputMemoryKinds": "executable num_outputs:i64 memory_kinds memory_kind_sizes",
    "Executable_OptimizedProgram": "executable program",
    "Executable_Serialize": (
        "executable serialized_bytes serialized_bytes_size:i64 serialized_executable serialized_executable_deleter"
    ),
    "LoadedExecutable_Destroy": "executable",
    "LoadedExecutable_GetExecutable": "loaded_executable executable",
    "LoadedExecutable_AddressableDevices": "executable addressable_devices num_addressable_devices:i64",
    "LoadedExecutable_Delete": "executable",
    "LoadedExecutable_IsDeleted": "executable is_deleted:i8",
    "LoadedExecutable_Execute": (
        "executable options argument_lists num_devices:i64 num_args:i64 output_lists device_complete_events "
        "execute_device"
    ),
    "Executable_DeserializeAndLoad": (
        "client serialized_executable serialized_executable_size:i64 loaded_executable | "
        "overridden_serialized_compile_options overridden_serialized_compile_options_size:i64 load_options"
    ),
    "LoadedExecutable_Fingerprint": "executable executable_fingerprint executable_fingerprint_size:i64",
    "Buffer_Destroy": "buffer",
    "Buffer_ElementType": "buffer type:i32",
    "Buffer_Dimensions": "buffer dims num_dims:i64",
    "Buffer_UnpaddedDimensions": "buffer unpadded_dims num_dims:i64",
    "Buffer_DynamicDimensionIndices": "buffer dynamic_dim_indices num_dynamic_dims:i64",
    "Buffer_GetMemoryLayout": None,
    "Buffer_OnDeviceSizeInBytes": "buffer on_device_size_in_bytes:i64",
    "Buffer_Device": "buffer device",
    "Buffer_Memory": "buffer memory",
    "Buffer_Delete": "buffer",
    "Buffer_IsDeleted": "buffer is_deleted:i8",
    "Buffer_CopyToDevice": "buffer dst_device dst_buffer",
    "Buffer_ToHostBuffer": "src host_layout dst dst_size:i64 event",
    "Buffer_IsOnCpu": "buffer is_on_cpu:i8",
    "Buffer_ReadyEvent": "buffer event",
    "Buffer_UnsafePointer": "buffer buffer_pointer:i64",
    "Buffer_IncreaseExternalReferenceCount": "buffer",
    "Buffer_DecreaseExternalReferenceCount": "buffer",
    "Buffer_OpaqueDeviceMemoryDataPointer": "buffer device_memory_ptr",
    "CopyToDeviceStream_Destroy": None,
    "CopyToDeviceStream_AddChunk": None,
    "CopyToDeviceStream_TotalBytes": None,
    "CopyToDeviceStream_GranuleSize": None,
    "CopyToDeviceStream_CurrentBytes": None,
    "TopologyDescription_Create": None,
    "TopologyDescription_Destroy": "topology",
    "TopologyDescription_PlatformName": "topology platform_name platform_name_size:i64",
    "TopologyDescription_PlatformVersion": "topology platform_version platform_version_size:i64",
    "TopologyDescription_GetDeviceDescriptions": "topology descriptions num_descriptions:i64",
    "TopologyDescription_Serialize": None,
    "TopologyDescription_Attributes": "topology attributes num_attributes:i64",
    "Compile": None,
    "Executable_OutputElementTypes": "executable output_types num_output_types:i64",
    "Executable_OutputDimensions": "executable num_outputs:i64 dims dim_sizes",
    "Buffer_CopyToMemory": "buffer dst_memory dst_buffer",
    "Client_CreateViewOfDeviceBuffer": (
        "client device_buffer_ptr dims num_dims:i64 element_type:i32 layout device on_delete_callback "
        "on_delete_callback_arg stream:i64 buffer memory"
    ),
    "Executable_Fingerprint": "executable executable_fingerprint executable_fingerprint_size:i64",
    "Client_TopologyDescription": "client topology",
    "Executable_GetCompiledMemoryStats": (
        "executable generated_code_size_in_bytes:i64 argument_size_in_bytes:i64 output_size_in_bytes:i64 "
        "alias_size_in_bytes:i64 temp_size_in_bytes:i64 host_generated_code_size_in_bytes:i64 "
        "host_argument_size_in_bytes:i64 host_output_size_in_bytes:i64 host_alias_size_in_bytes:i64 "
        "host_temp_size_in_bytes:i64 | peak_memory_in_bytes:i64 total_size_in_bytes:i64 "
        "total_allocation_bytes:i64 indefinite_allocations:i64 peak_unpadded_heap_bytes:i64"
    ),
    "Memory_Kind_Id": "memory kind_id:i32",
    "ExecuteContext_Create": None,
    "ExecuteContext_Destroy": None,
    "Buffer_CopyRawToHost": "buffer dst offset:i64 transfer_size:i64 event",
    "AsyncHostToDeviceTransferManager_Destroy": None,
    "AsyncHostToDeviceTransferManager_TransferData": None,
    "Client_CreateBuffersForAsyncHostToDevice": None,
    "AsyncHostToDeviceTransferManager_RetrieveBuffer": None,
    "AsyncHostToDeviceTransferManager_Device": None,
    "AsyncHostToDeviceTransferManager_BufferCount": None,
    "AsyncHostToDeviceTransferManager_BufferSize": None,
    "AsyncHostToDeviceTransferManager_SetBufferError": None,
    "AsyncHostToDeviceTransferManager_AddMetadata": None,
    "Client_DmaMap": None,
    "Client_DmaUnmap": None,
    "Client_CreateUninitializedBuffer": (
        "client shape_dims shape_num_dims:i64 shape_element_type:i32 shape_layout device memory buffer"
    ),
    "Client_UpdateGlobalProcessInfo": "client process_infos num_process_infos:i64",
    "TopologyDescription_Deserialize": None,
    "Client_CreateAliasBuffer": None,
    "Client_FulfillAliasBuffer": None,
    "LoadedExecutable_GetDeviceAssignment": (
        "executable serialized_bytes serialized_bytes_size:i64 serialized_device_assignment "
        "serialized_device_assignment_deleter"
    ),
    "Client_CreateErrorBuffer": None,
    "AsyncHostToDeviceTransferManager_TransferLiteral": None,
    "Buffer_CopyRawToHostFuture": None,
    "Device_PoisonExecution": None,
    "Device_CreateAsyncTrackingEvent": None,
    "AsyncTrackingEvent_Destroy": None,
    "Executable_GetCompileOptions": (
        "executable serialized_bytes serialized_bytes_size:i64 serialized_compile_options "
        "serialized_compile_options_deleter"
    ),
    "Buffer_DonateWithControlDependency": None,
    "Event_Create": None,
    "Event_Set": None,
    "Device_GetAttributes": "device attributes num_attributes:i64 device_attributes attributes_deleter",
    "Client_Load": None,
    "LoadedExecutable_AddressableDeviceLogicalIds": (
        "executable addressable_device_logical_ids num_addressable_device_logical_ids:i64"
    ),
    "Buffer_Bitcast": None,
    "Error_ForEachPayload": "error visitor user_arg",
    "TopologyDescription_Fingerprint": "topology fingerprint:i64",
    "Executable_ParameterMemoryKinds": "executable num_parameters:i64 memory_kinds memory_kind_sizes",
    "Device_ClearMemoryStats": None,
    "TopologyDescription_MakeCanonicalShapeForMemorySpace": None,
    "TopologyDescription_GetMemorySpaceKindIds": None,
}
"""Functions in the order of the table."""

RECORDS = {
    "NamedValue": "extension_start name name_size:i64 type:i32 value:i64 value_size:i64",
    "Program": "extension_start code code_size:i64 format format_size:i64",
    "ExecuteOptions": (
        "extension_start send_callbacks recv_callbacks num_send_ops:i64 num_recv_ops:i64 launch_id:i32 "
        "non_donatable_input_indices num_non_donatable_input_indices:i64 | context call_location"
    ),
    "MemoryLayout": (
        "extension_start tiled_size:i64 tiled_extension minor_to_major minor_to_major_size:i64 tile_dims "
        "tile_dim_sizes num_tiles:i64 type:i32"
    ),
    "Error_FunctionTable": "instance_size:i64 extension_start destroy message get_code for_each_payload",
    "Memory_FunctionTable": "extension_start instance_struct_size:i64 get_user_data set_user_data",
    "Extension": "type:i32 next",
    "Shardings_Extension": "type:i32 next parameter_shardings output_shardings",
    "Executable_ParameterShardings": "extension_start executable num_parameters:i64 shardings sharding_sizes",
    "Executable_OutputShardings": "extension_start executable num_outputs:i64 shardings sharding_sizes",
    "Layouts_Extension": (
        "type:i32 next destroy serialize client_default buffer_layout topology_default output_layouts parameter_layouts"
    ),
    "MemoryLayout_Destroy": "extension_start layout",
    "MemoryLayout_Serialize": (
        "extension_start layout serialized_bytes serialized_bytes_size:i64 serialized_layout serialized_layout_deleter"
    ),
    "Client_GetDefaultLayout": "extension_start client type:i32 dims num_dims:i64 layout",
    "Buffer_MemoryLayout": "extension_start buffer layout",
    "Topology_GetDefaultLayout": "extension_start topology type:i32 dims num_dims:i64 layout",
    "Executable_GetOutputLayouts": "extension_start executable num_outputs:i64 layouts",
    "Executable_GetParameterLayouts": "extension_start executable num_parameters:i64 layouts",
}
"""Other records, which begin with their size as well."""


class Kind(NamedTuple):
    """Kind of a field."""

    nbytes: int
    ctype: type


KINDS = {
    "ptr": Kind(8, ctypes.c_void_p),
    "i64": Kind(8, ctypes.c_int64),
    "i32": Kind(4, ctypes.c_int32),
    "i8": Kind(1, ctypes.c_bool),
}


class Field(NamedTuple):
    """Byte offset of a field in its record, and its LLVM type."""

    offset: int
    type: str


def _fields_text(name: str) -> str:
    text = RECORDS.get(name)
    if text is None:
        if FUNCTIONS[name] is None:
            raise KeyError(name)
        text = f"extension_start {FUNCTIONS[name]}"
    return text


@functools.cache
def fields_of(name: str) -> dict[str, Field]:
    """Returns the fields of a function's arguments, or of another record, without the size. Raises KeyError for
    functions that are left out."""
    found, at = {}, 8
    for word in _fields_text(name).replace("|", "").split():
        field, _, type = word.partition(":")
        size = KINDS[type or "ptr"].nbytes
        at = -(-at // size) * size
        found[field] = Field(at, type or "ptr")
        at += size
    return found


def needed_bytes(name: str) -> int:
    """Returns the size of a record from the oldest host: up to the last field that all hosts have. Raises KeyError as
    `fields_of`."""
    count = len(_fields_text(name).partition("|")[0].split())
    offset, type = [*fields_of(name).values()][count - 1]
    return offset + KINDS[type].nbytes


@functools.cache
def structure(name: str) -> type[ctypes.Structure]:
    """Returns the record as a ctypes structure that begins with `struct_size`."""
    fields = [(field, KINDS[type].ctype) for field, (_, type) in fields_of(name).items()]
    return type(name, (ctypes.Structure,), {"_fields_": [("struct_size", ctypes.c_size_t), *fields]})


ELEMENT_TYPES = {
    **{name: i for i, name in enumerate(("i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"), 1)},
    **{name: i for i, name in enumerate(("f16", "f32", "f64", "bf16", "complex<f32>", "complex<f64>"), 10)},
    **{name: i for i, name in enumerate(("f8E5M2", "f8E4M3FN", "f8E4M3B11FNUZ", "f8E5M2FNUZ", "f8E4M3FNUZ"), 16)},
    **{"i4": 21, "ui4": 22, "token": 23, "i2": 24, "ui2": 25, "f8E4M3": 26, "f8E3M4": 27, "f8E8M0FNU": 28},
    **{"f4E2M1FN": 29, "f6E2M3FN": 32, "f6E3M2FN": 33},
}
"""Numbers of dtypes, by our names."""
CANCELLED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 1, 3, 8, 9
UNIMPLEMENTED, INTERNAL = 12, 13
"""Error codes."""
INT64, INT64_LIST, FLOAT = 1, 2, 3
"""Types of a NamedValue that we use."""
TILED, STRIDES = 0, 1
"""Types of a MemoryLayout: an order of its dimensions, or strides, in the field `minor_to_major`."""
IMMUTABLE_ZERO_COPY, MUTABLE_ZERO_COPY = 2, 3
"""Values of `host_buffer_semantics` that permit the use of a host's array in place. For 0 and 1, it is copied."""
