"""A host of the plugin, in Python: it calls the functions of the table with records and arrays that end right before
inaccessible pages, so that a byte read or written beyond ends the process."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from guarded import Pages, guarded

from shlo_jit.pjrt import interface, proto
from shlo_jit.pjrt.plugin import plugin

DEVICES = 4
TYPES = interface.ELEMENT_TYPES
NUMPY_TYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16,
    "ui32": np.uint32, "ui64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": ml_dtypes.bfloat16, "complex<f32>": np.complex64, "complex<f64>": np.complex128,
}  # fmt: skip
ADD = b"func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.add %a, %b : tensor<4xf32> return %0 : tensor<4xf32> }"
DONATES = b"func.func @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.add %a, %b : tensor<4xf32> return %0 : tensor<4xf32> }"
ON_PARTS = b"""
module @parts attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%p: tensor<1xf32>) {
      %s = "stablehlo.all_reduce"(%p) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %t = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %t : tensor<f32>
      }) : (tensor<1xf32>) -> tensor<1xf32>
      sdy.return %s : tensor<1xf32>
    } : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


class Refused(Exception):
    """An error of the interface."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def record_bytes(name: str) -> int:
    return max(field.offset + interface.KINDS[field.type].nbytes for field in interface.fields_of(name).values())


def record(name: str, nbytes: int | None = None, **fields: Any) -> Any:
    """Returns a record at the end of a page, with its fields; `nbytes` is its size for a host of another version."""
    size = record_bytes(name) if nbytes is None else nbytes
    pages = Pages(size)
    view = pages.view((pages.nbytes - size) // 8 * 8, size)
    view[...] = 0
    made = interface.structure(name).from_address(view.__array_interface__["data"][0])
    made.pages = pages, view, fields
    made.struct_size = size
    for field, value in fields.items():
        setattr(made, field, address(value))
    return made


def address(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.__array_interface__["data"][0]
    return ctypes.addressof(value) if isinstance(value, ctypes.Structure | ctypes.Array) else value


def numbers(values: Sequence[int], dtype: Any = np.int64) -> np.ndarray:
    """Returns an array that ends before an inaccessible page."""
    return guarded(np.array(values, dtype), at_end=True)


def text(data: bytes) -> np.ndarray:
    return guarded(np.frombuffer(data, np.uint8), at_end=True)


class Host:
    """Calls the table's functions, and raises their errors."""

    def __init__(self) -> None:
        self.plugin = plugin(_count)
        words = (ctypes.c_uint64 * (5 + len(interface.FUNCTIONS))).from_address(self.plugin.table.address)
        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        self.head = [*words[:5]]
        self.addresses = dict(zip(interface.FUNCTIONS, words[5:], strict=True))
        self.functions = {name: kind(at) for name, at in self.addresses.items()}
        self.client = self.call("Client_Create").client
        self.devices = self.pointers(self.call("Client_Devices", client=self.client), "devices")
        self.memories = self.pointers(
            self.call("Client_AddressableMemories", client=self.client), "addressable_memories"
        )

    def call(self, function: str, nbytes: int | None = None, **fields: Any) -> Any:
        """Returns the argument record as the function leaves it. Raises Refused."""
        args = record(function, nbytes, **fields)
        self.check(self.functions[function](ctypes.addressof(args)))
        return args

    def check(self, error: int | None) -> None:
        if error:
            found = self.call_void("Error_Message", error=error)
            message = ctypes.string_at(found.message, found.message_size).decode()
            code = self.call("Error_GetCode", error=error).code
            self.call_void("Error_Destroy", error=error)
            raise Refused(code, message)

    def call_void(self, function: str, nbytes: int | None = None, **fields: Any) -> Any:
        args = record(function, nbytes, **fields)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        kind(self.addresses[function])(ctypes.addressof(args))
        return args

    @staticmethod
    def pointers(args: Any, field: str) -> list[int]:
        return [*(ctypes.c_int64 * getattr(args, f"num_{field}")).from_address(getattr(args, field))]

    @staticmethod
    def text_of(args: Any, field: str, size: str | None = None) -> bytes:
        return ctypes.string_at(getattr(args, field), getattr(args, size or f"{field}_size"))

    # ------------------------------------------------------------------ arrays
    def put(self, array: np.ndarray, semantics: int = 0, type: int | None = None, **fields: Any) -> int:
        """Creates a buffer from a host array, by its strides."""
        names = {np.dtype(dtype): name for name, dtype in NUMPY_TYPES.items()}
        given = {
            "client": self.client,
            "data": array,
            "type": TYPES[names[array.dtype]] if type is None else type,
            "dims": numbers(array.shape),
            "num_dims": array.ndim,
            "byte_strides": numbers(array.strides),
            "num_byte_strides": array.ndim,
            "host_buffer_semantics": semantics,
            "device": self.devices[0],
        }
        args = self.call("Client_BufferFromHostBuffer", **{**given, **fields})
        self.call("Event_Destroy", event=args.done_with_host_buffer)
        return args.buffer

    def get(self, buffer: int) -> np.ndarray:
        """Returns the array of a buffer, as it is copied to the host."""
        number = self.call("Buffer_ElementType", buffer=buffer).type
        dtype = next(NUMPY_TYPES[name] for name, n in TYPES.items() if n == number)
        dims = self.call("Buffer_Dimensions", buffer=buffer)
        shape = [*(ctypes.c_int64 * dims.num_dims).from_address(dims.dims)]
        array = guarded(np.zeros(shape, dtype), at_end=True)
        size = self.call("Buffer_ToHostBuffer", src=buffer).dst_size
        assert size == array.nbytes == self.call("Buffer_OnDeviceSizeInBytes", buffer=buffer).on_device_size_in_bytes
        if size:
            args = self.call("Buffer_ToHostBuffer", src=buffer, dst=array, dst_size=array.nbytes)
            assert self.call("Event_IsReady", event=args.event).is_ready
        return array

    def destroy(self, *buffers: int) -> None:
        for buffer in buffers:
            self.call("Buffer_Destroy", buffer=buffer)

    # ------------------------------------------------------------------ programs
    def compile(self, code: bytes, options: bytes = b"", format: bytes = b"mlir") -> int:
        program = record("Program", code=text(code), code_size=len(code), format=text(format), format_size=len(format))
        given = {"compile_options": text(options), "compile_options_size": len(options)}
        return self.call("Client_Compile", client=self.client, program=program, **given).executable

    def run(self, executable: int, *rows: Sequence[int], results: int = 1, **fields: Any) -> list[list[int]]:
        """Returns buffers of the results by device, given those of the arguments."""
        given = [numbers(row) for row in rows]
        made = [numbers([0] * results) for _ in rows]
        lists = {
            "options": record("ExecuteOptions"),
            "argument_lists": numbers([address(x) for x in given]),
            "num_devices": len(rows),
            "num_args": len(rows[0]) if rows else 0,
            "output_lists": numbers([address(x) for x in made]),
        }
        self.call("LoadedExecutable_Execute", executable=executable, **{**lists, **fields})
        return [x.tolist() for x in made]


def _count() -> int:
    return DEVICES


def options(replicas: int = 1, partitions: int = 1, devices: Sequence[Sequence[int]] = (), **overrides: bytes) -> bytes:
    """Returns a CompileOptionsProto. `devices` has, for each partition, those of its replicas."""
    build = proto.write(4, replicas) + proto.write(5, partitions)
    if devices:
        assignment = proto.write(1, replicas) + proto.write(2, partitions)
        build += proto.write(9, assignment + b"".join(proto.write(3, proto.write_packed(1, ids)) for ids in devices))
    entries = (proto.write(7, proto.write(1, k.encode()) + proto.write(2, v)) for k, v in overrides.items())
    return proto.write(3, build) + b"".join(entries)
