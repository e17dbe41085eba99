"""The machine code of the plugin, as one object: what runs at every call of a program, and whatever a framework calls
while it raises an exception or takes objects apart, when no Python may run."""

from __future__ import annotations

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.pool import THREADS
from shlo_jit.pjrt.code.buffers import write_buffers
from shlo_jit.pjrt.code.executables import write_executables
from shlo_jit.pjrt.code.execute import MAIN_THREAD, write_execute
from shlo_jit.pjrt.code.holds import write_holds
from shlo_jit.pjrt.code.memory import LIMIT, write_memory
from shlo_jit.pjrt.code.objects import READY, write_objects
from shlo_jit.pjrt.code.row_major import LAYOUTS, write_row_major
from shlo_jit.pjrt.code.transfer import VIEW_ALIGNMENT, write_transfer
from shlo_jit.pjrt.code.writer import error, symbol
from shlo_jit.pjrt.interface import CANCELLED

OWN = (
    *("shlo_pjrt_error", "shlo_pjrt_take", "shlo_pjrt_give", "shlo_pjrt_take_dead"),
    *("shlo_pjrt_storage", "shlo_pjrt_drop", "shlo_pjrt_buffer"),
    *("shlo_pjrt_hold", "shlo_pjrt_let_go", "shlo_pjrt_delete"),
    *("shlo_pjrt_user_data", "shlo_pjrt_set_user_data"),
    *(READY.text[1:], LIMIT.text[1:], VIEW_ALIGNMENT.text[1:], MAIN_THREAD.text[1:]),
    *(LAYOUTS.text[1:], *map(symbol, ("MemoryLayout_Destroy", "MemoryLayout_Serialize", "Buffer_MemoryLayout"))),
    *("shlo_pjrt_nothing", "shlo_pjrt_nothing_void", "shlo_pjrt_ended"),
)


def build(module: ModuleText, target: Target) -> None:
    write_memory(module, target)
    write_objects(module)
    write_holds(module)
    write_buffers(module)
    write_row_major(module)
    write_transfer(module)
    write_executables(module)
    write_execute(module)
    for name, result in (("shlo_pjrt_nothing", "ptr"), ("shlo_pjrt_nothing_void", "void")):
        b = module.function(name, [("ptr", "args")], result, linkage="external", attributes="nounwind")
        b.line("ret ptr null" if result == "ptr" else "ret void")
        b.done()
    b = module.function("shlo_pjrt_ended", [("ptr", "args")], "ptr", linkage="external", attributes="nounwind")
    b.ret(error(module, b, CANCELLED, "the interpreter has ended"))


MACHINE_CODE = (
    *("Error_Destroy", "Error_Message", "Error_GetCode", "Error_ForEachPayload"),
    *("Event_Destroy", "Event_IsReady", "Event_Error", "Event_Await", "Event_OnReady"),
    *("Buffer_Destroy", "Buffer_Delete", "Buffer_IsDeleted", "Buffer_ElementType", "Buffer_Dimensions"),
    *("Buffer_UnpaddedDimensions", "Buffer_DynamicDimensionIndices", "Buffer_OnDeviceSizeInBytes", "Buffer_Device"),
    *("Buffer_Memory", "Buffer_IsOnCpu", "Buffer_ReadyEvent", "Buffer_UnsafePointer"),
    *("Buffer_OpaqueDeviceMemoryDataPointer", "Buffer_IncreaseExternalReferenceCount"),
    *("Buffer_DecreaseExternalReferenceCount", "Buffer_ToHostBuffer", "Buffer_CopyRawToHost"),
    *("Buffer_CopyToDevice", "Buffer_CopyToMemory"),
    *("Client_BufferFromHostBuffer", "Client_CreateViewOfDeviceBuffer", "Client_CreateUninitializedBuffer"),
    *("Executable_NumReplicas", "Executable_NumPartitions", "Executable_NumOutputs", "Executable_Destroy"),
    *("LoadedExecutable_Execute", "LoadedExecutable_GetExecutable", "LoadedExecutable_Destroy"),
    *("LoadedExecutable_Delete", "LoadedExecutable_IsDeleted", "Memory_Kind"),
)
"""The functions of the interface that are."""
PLUGIN = Routine("pjrt", (*OWN, *map(symbol, MACHINE_CODE)), build, (THREADS,))
