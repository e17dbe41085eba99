"""Hosts of other versions: their argument records are smaller or larger than ours, and never overrun."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys

import numpy as np
import pytest
from plugin_host import ADD, Host, Refused, record, record_bytes, text

from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.python import EXTENSIONS

DESCRIBED = [name for name, fields in interface.FUNCTIONS.items() if fields is not None]
VOID = ("Error_Destroy", "Error_Message")
FILLER = 0xA5


@pytest.mark.parametrize("name", DESCRIBED)
def test_records_that_are_too_small(host: Host, name: str) -> None:
    """Only their size is read, and the error has the expected size. The two functions that cannot return an error do
    nothing."""
    needed = interface.needed_bytes(name)
    for size in (8, 15, needed - 1):
        if name in VOID:
            host.call_void(name, nbytes=size)
            continue
        with pytest.raises(Refused) as caught:
            host.call(name, nbytes=size)
        assert str(caught.value).startswith(f"{name}: ") and str(caught.value).endswith(f"{size}")
        assert f"{needed} bytes" in str(caught.value)
        assert caught.value.code == interface.INVALID_ARGUMENT


def test_records_of_extensions_that_are_too_small(host: Host) -> None:
    extension = interface.structure("Shardings_Extension").from_address(host.head[1])
    for name, at in zip(EXTENSIONS[:2], (extension.parameter_shardings, extension.output_shardings), strict=True):
        args = record(name, 47)
        with pytest.raises(Refused, match=f"{name}: .*48 bytes.*got 47"):
            host.check(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(at)(ctypes.addressof(args)))


def test_older_hosts(host: Host) -> None:
    """Fields that were added later are neither read nor written."""
    older = {n for n in DESCRIBED if interface.needed_bytes(n) < record_bytes(n)}
    assert older == {"Client_Create", "Executable_DeserializeAndLoad", "Executable_GetCompiledMemoryStats"}
    assert host.call("Client_Create", nbytes=72).client == host.client
    loaded = host.compile(ADD)
    stats = host.call("Executable_GetCompiledMemoryStats", nbytes=104, executable=loaded)
    assert (stats.argument_size_in_bytes, stats.host_temp_size_in_bytes) == (32, 0)
    stats = host.call("Executable_GetCompiledMemoryStats", nbytes=112, executable=loaded)
    assert stats.peak_memory_in_bytes >= 48
    data = host.text_of(host.call("Executable_Serialize", executable=loaded), "serialized_bytes")
    given = {"client": host.client, "serialized_executable": text(data), "serialized_executable_size": len(data)}
    again = host.call("Executable_DeserializeAndLoad", nbytes=48, **given).loaded_executable
    x = host.put(np.ones(4, np.float32))
    shorter = record("ExecuteOptions", nbytes=interface.needed_bytes("ExecuteOptions"))
    [[made]] = host.run(again, [x, x], options=shorter)
    assert host.get(made).tolist() == [2] * 4
    with pytest.raises(Refused, match="ExecuteOptions: .*72 bytes.*got 64"):
        host.run(again, [x, x], options=record("ExecuteOptions", nbytes=64))
    host.destroy(x, made)
    for executable in (loaded, again):
        host.call("LoadedExecutable_Destroy", executable=executable)


def test_newer_hosts(host: Host) -> None:
    """Bytes after the known fields are not changed."""
    loaded, buffer = host.compile(ADD), host.put(np.ones((2, 3), np.float32))
    objects = {"client": host.client, "device": host.devices[0], "device_description": host.devices[0]}
    objects |= {"memory": host.memories[0], "topology": host.client, "executable": loaded, "buffer": buffer}
    left_out = {
        "Buffer_Destroy",
        "Buffer_Delete",
        "Executable_Destroy",
        "LoadedExecutable_Destroy",
        "Buffer_CopyToMemory",
    }
    left_out |= {
        "LoadedExecutable_Delete",
        "LoadedExecutable_Execute",
        "Client_Compile",
        "Executable_DeserializeAndLoad",
    }
    left_out |= {
        "Buffer_CopyToDevice",
        "Buffer_CopyRawToHost",
        "Executable_OptimizedProgram",
        "Client_DefaultDeviceAssignment",
    }
    left_out |= {"Client_BufferFromHostBuffer", "Client_CreateViewOfDeviceBuffer", "Client_CreateUninitializedBuffer"}
    left_out |= {"Buffer_DecreaseExternalReferenceCount", "Buffer_IncreaseExternalReferenceCount"}
    tried = 0
    for name in DESCRIBED:
        fields = interface.fields_of(name)
        given = {field: value for field, value in objects.items() if field in fields}
        if name in left_out or [*fields, *objects][1] not in objects:
            continue
        size = record_bytes(name) + 40
        args = record(name, nbytes=size, **given)
        view = args.pages[1]
        view[-40:] = FILLER
        host.check(host.functions[name](ctypes.addressof(args)))
        assert (view[-40:] == FILLER).all(), name
        tried += 1
    assert tried > 50
    host.destroy(buffer)
    host.call("LoadedExecutable_Destroy", executable=loaded)


WITHOUT_MEMORY = """
import ctypes
from shlo_jit.pjrt.plugin import plugin
error = plugin(lambda: 1).client.library.addresses["shlo_pjrt_error"]
ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64)(error)(3, b"", 1 << 60)
"""


def test_a_process_without_memory_for_a_record_aborts() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, timeout=100, check=False)
    assert ended.returncode == -signal.SIGABRT
    assert ended.stderr.endswith(b"shlo_jit: there is no memory left\n")
