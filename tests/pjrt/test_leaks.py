"""Creating and destroying objects leaks no memory, whether it succeeds or is refused."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from plugin_host import ADD, DONATES, ON_PARTS, TYPES, Host, Refused, address, numbers, options, record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
X = np.arange(4, dtype=np.float32)
ALLOWED_BYTES = 300_000
"""Permitted growth. In TIMES calls, this is less than 32 bytes per call, the smallest block of the heap."""
TIMES = 10_000


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def check_flat(work: Callable[[], object], times: int = TIMES) -> None:
    for _ in range(max(100, times // 10)):
        work()
    before = resident()
    for _ in range(times):
        work()
    grown = resident() - before
    assert grown < ALLOWED_BYTES, f"{grown / times:.1f} bytes a call"


class Prepared:
    """A call whose record is created once, so that the test itself allocates nothing."""

    def __init__(self, host: Host, name: str, **fields: object) -> None:
        self.args = record(name, **fields)
        self._place = ctypes.addressof(self.args)
        self._function = host.functions[name]
        self._host = host

    def __call__(self) -> None:
        self._host.check(self._function(self._place))


def test_arrays(host: Host) -> None:
    """Arrays are copied, in place, uninitialized, copied on the device; deleted, read, and asked for their event."""
    dims = numbers([4])
    given = {
        "client": host.client,
        "data": X,
        "type": TYPES["f32"],
        "dims": dims,
        "num_dims": 1,
        "device": host.devices[0],
    }
    for semantics in (0, 2):
        put = Prepared(host, "Client_BufferFromHostBuffer", host_buffer_semantics=semantics, **given)
        ended = Prepared(host, "Event_Destroy")
        copy = Prepared(host, "Buffer_CopyToDevice", dst_device=host.devices[1])
        delete, destroy = Prepared(host, "Buffer_Delete"), Prepared(host, "Buffer_Destroy")

        def work(put=put, ended=ended, copy=copy, delete=delete, destroy=destroy) -> None:
            put()
            ended.args.event = put.args.done_with_host_buffer
            ended()
            copy.args.buffer = delete.args.buffer = put.args.buffer
            copy()
            delete()
            for buffer in (put.args.buffer, copy.args.dst_buffer):
                destroy.args.buffer = buffer
                destroy()

        check_flat(work)


def test_large_arrays(host: Host) -> None:
    given = {"shape_dims": numbers([1 << 20]), "shape_num_dims": 1, "shape_element_type": TYPES["f64"]}
    make = Prepared(host, "Client_CreateUninitializedBuffer", client=host.client, device=host.devices[0], **given)
    destroy = Prepared(host, "Buffer_Destroy")

    def work() -> None:
        make()
        destroy.args.buffer = make.args.buffer
        destroy()

    check_flat(work)


@pytest.mark.parametrize("code", (ADD, DONATES), ids=("plain", "donating"))
def test_calls(host: Host, code: bytes) -> None:
    loaded = host.compile(code)
    given = {
        "type": TYPES["f32"],
        "dims": numbers([4]),
        "num_dims": 1,
        "device": host.devices[0],
        "client": host.client,
    }
    put = Prepared(host, "Client_BufferFromHostBuffer", data=X, **given)
    row, made = numbers([0, 0]), numbers([0])
    lists = {"argument_lists": numbers([address(row)]), "output_lists": numbers([address(made)])}
    run = Prepared(
        host,
        "LoadedExecutable_Execute",
        executable=loaded,
        options=record("ExecuteOptions"),
        num_devices=1,
        num_args=2,
        **lists,
    )
    destroy = Prepared(host, "Buffer_Destroy")

    def work() -> None:
        for i in range(2):
            put()
            row[i] = put.args.buffer
        run()
        for buffer in (*row.tolist(), *made.tolist()):
            destroy.args.buffer = buffer
            destroy()

    check_flat(work)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_refused_calls(host: Host) -> None:
    """The host frees errors; everything held for the call is released."""
    loaded, x, wrong = host.compile(DONATES), host.put(X), host.put(np.zeros(3, np.float32))

    def work() -> None:
        for row in ([x, wrong], [x, x], [x]):
            with pytest.raises(Refused):
                host.run(loaded, row)
        with pytest.raises(Refused):
            host.put(X, num_byte_strides=7)

    check_flat(work, 500)
    host.destroy(x, wrong)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_questions_about_programs(host: Host) -> None:
    """Answers live as long as the program, and are the same each time."""
    loaded = host.compile(ADD)
    names = (
        "OutputMemoryKinds",
        "ParameterMemoryKinds",
        "OutputElementTypes",
        "OutputDimensions",
        "Name",
        "Fingerprint",
    )
    asked = [Prepared(host, f"Executable_{name}", executable=loaded) for name in names]
    asked += [
        Prepared(host, f"LoadedExecutable_{name}", executable=loaded)
        for name in ("AddressableDevices", "AddressableDeviceLogicalIds")
    ]
    asked.append(Prepared(host, "Device_GetAttributes", device=host.devices[0]))

    def work() -> None:
        for ask in asked:
            ask()

    check_flat(work, 2000)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_serialized_bytes(host: Host) -> None:
    loaded = host.compile(ADD)
    made = [
        (Prepared(host, "Executable_Serialize", executable=loaded), "serialized_executable"),
        (Prepared(host, "LoadedExecutable_GetDeviceAssignment", executable=loaded), "serialized_device_assignment"),
        (Prepared(host, "Executable_GetCompileOptions", executable=loaded), "serialized_compile_options"),
    ]
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def work() -> None:
        for make, owner in made:
            make()
            free(getattr(make.args, f"{owner}_deleter"))(getattr(make.args, owner))

    check_flat(work, 5000)
    host.call("LoadedExecutable_Destroy", executable=loaded)


@pytest.mark.slow
def test_programs_that_are_refused(host: Host) -> None:
    def work() -> None:
        for code, given in ((b"nonsense", b""), (ADD, b"\x1a\xff"), (ADD, options(partitions=9))):
            with suppress(Refused):
                host.compile(code, given)
                raise AssertionError("a program that is none was taken")

    check_flat(work, 100)


@pytest.mark.slow
@pytest.mark.parametrize("code, partitions", ((ADD, 1), (ON_PARTS, 4)), ids=("one", "several"))
def test_programs(host: Host, code: bytes, partitions: int) -> None:
    """Programs are compiled, serialized, loaded again and destroyed: the last one stays until the next is created."""

    def work() -> None:
        loaded = host.compile(code, options(partitions=partitions))
        host.call("LoadedExecutable_Destroy", executable=loaded)

    check_flat(work, 10_000 if partitions == 1 else 300)
