"""Structures of XLA's foreign function interface, version 0.5, and our own structures of a call.

The names of fields are those of its header `xla/ffi/api/c_api.h`. Every structure begins with its size, up to the last
field that a version knows, and a list of extensions.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_size_t, c_uint32, c_void_p

VERSION = (0, 5)
"""Major and minor version. Handlers of a lower minor version find the fields that they know."""
INSTANTIATE, PREPARE, INITIALIZE, EXECUTE = range(4)
METADATA = 1
"""The type of the extension that asks a handler for its version."""
CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""Codes of errors, by number."""
TOKEN = 17
DATA_TYPES = {
    "i1": 1, "i2": 26, "i4": 21, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "index": 5,
    "ui2": 27, "ui4": 22, "ui8": 6, "ui16": 7, "ui32": 8, "ui64": 9,
    "f16": 10, "f32": 11, "f64": 12, "bf16": 16, "complex<f32>": 15, "complex<f64>": 18,
    "f8E5M2": 19, "f8E3M4": 29, "f8E4M3": 28, "f8E4M3FN": 20, "f8E4M3B11FNUZ": 23, "f8E5M2FNUZ": 24,
    "f8E4M3FNUZ": 25, "f8E8M0FNU": 33, "f4E2M1FN": 32,
}  # fmt: skip
"""Numbers of element types."""
BUFFER = 1
"""The type of an argument, or of a result."""
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4
"""Types of attributes."""

Pointers = ctypes.POINTER(c_void_p)


class Struct(ctypes.Structure):
    """A structure that begins with its size."""

    def __init__(self, **fields: object) -> None:
        super().__init__(struct_size=self.known_bytes(), **fields)

    @classmethod
    def known_bytes(cls) -> int:
        """Returns the value of `struct_size`."""
        return ctypes.sizeof(cls)


_HEAD = [("struct_size", c_size_t), ("extension_start", c_void_p)]


class Version(Struct):
    _fields_ = [*_HEAD, ("major_version", c_int32), ("minor_version", c_int32)]


class Metadata(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("api_version", Version),
        ("traits", c_uint32),
        ("state_type_id", c_int64),
    ]


class MetadataExtension(Struct):
    _fields_ = [("struct_size", c_size_t), ("type", c_int32), ("next", c_void_p), ("metadata", c_void_p)]


class ByteSpan(ctypes.Structure):
    _fields_ = [("ptr", c_void_p), ("len", c_size_t)]


class Scalar(ctypes.Structure):
    _fields_ = [("dtype", c_int32), ("value", c_void_p)]


class Array(ctypes.Structure):
    _fields_ = [("dtype", c_int32), ("size", c_size_t), ("data", c_void_p)]


class Buffer(Struct):
    _fields_ = [*_HEAD, ("dtype", c_int32), ("data", c_void_p), ("rank", c_int64), ("dims", c_void_p)]


class Values(Struct):
    """XLA_FFI_Args and XLA_FFI_Rets: their number, their types, and pointers to them."""

    _fields_ = [*_HEAD, ("size", c_int64), ("types", c_void_p), ("values", c_void_p)]


class Attrs(Struct):
    """Attributes by ascending name."""

    _fields_ = [*_HEAD, ("size", c_int64), ("types", c_void_p), ("names", c_void_p), ("attrs", c_void_p)]


class CallFrame(Struct):
    _fields_ = [
        *_HEAD,
        ("api", c_void_p),
        ("ctx", c_void_p),
        ("stage", c_int32),
        ("args", Values),
        ("rets", Values),
        ("attrs", Attrs),
        ("future", c_void_p),
    ]

    @classmethod
    def known_bytes(cls) -> int:
        return cls.future.offset


class TypeInfo(Struct):
    _fields_ = [*_HEAD, ("deleter", c_void_p)]


FUNCTIONS = (
    "Error_Create", "Error_GetDetails", "Error_Destroy", "Handler_Register", "Stream_Get", "Type_Register",
    "InvokeContext_Get", "State_Set", "State_Get", "DeviceMemory_Allocate", "DeviceMemory_Free",
    "ThreadPool_Schedule", "ThreadPool_NumThreads", "Future_Create", "Future_SetAvailable", "Future_SetError",
    "RunId_Get", "DeviceOrdinal_Get", "InvokeContext_FindExtension", "CustomOptions_Get",
)  # fmt: skip
"""Functions that handlers may call, in the order of the table; their names begin with `XLA_FFI_`. Up to version 0.3,
GetDetails is called GetMessage and gives no code, and InvokeContext is called ExecutionContext."""


class Api(Struct):
    """The table of these functions."""

    _fields_ = [
        *_HEAD,
        ("api_version", Version),
        ("internal_api", c_void_p),
        *((name, c_void_p) for name in FUNCTIONS),
    ]


# ---------------------------------------------------------------------- arguments of the functions
def _arguments(name: str, *fields: tuple[str, type]) -> type[Struct]:
    return type(name, (Struct,), {"_fields_": [*_HEAD, *fields]})


_CTX = ("ctx", c_void_p)
ARGUMENTS = {
    name: _arguments(name, *fields)
    for name, fields in {
        "Error_Create": [("message", c_void_p), ("errc", c_int32)],
        "Error_GetDetails": [("error", c_void_p), ("message", c_void_p), ("errc", c_int32)],
        "Error_Destroy": [("error", c_void_p)],
        "Type_Register": [("name", ByteSpan), ("type_id", c_void_p), ("type_info", c_void_p)],
        "State_Set": [_CTX, ("stage", c_int32), ("type_id", c_void_p), ("state", c_void_p)],
        "State_Get": [_CTX, ("stage", c_int32), ("type_id", c_void_p), ("state", c_void_p)],
        "DeviceMemory_Allocate": [_CTX, ("size", c_size_t), ("alignment", c_size_t), ("data", c_void_p)],
        "DeviceMemory_Free": [_CTX, ("size", c_size_t), ("data", c_void_p)],
        "ThreadPool_Schedule": [_CTX, ("task", c_void_p), ("data", c_void_p)],
        "ThreadPool_NumThreads": [_CTX, ("num_threads", c_void_p)],
        "Future_Create": [("future", c_void_p)],
        "Future_SetAvailable": [("future", c_void_p)],
        "Future_SetError": [("future", c_void_p), ("error", c_void_p)],
        "DeviceOrdinal_Get": [_CTX, ("device_ordinal", c_int32)],
        "InvokeContext_FindExtension": [_CTX, ("extension_type", c_int64), ("extension", c_void_p)],
        "CustomOptions_Get": [_CTX, ("attrs", c_void_p)],
    }.items()
}
"""Argument records of those functions of the table that read them."""


def least_bytes(name: str) -> int:
    """Returns the minimum `struct_size` of a function's arguments. For two functions, XLA's size excludes the last
    field."""
    fields = [field[0] for field in ARGUMENTS[name]._fields_]
    last = getattr(ARGUMENTS[name], fields[-1])
    return last.offset + (0 if name in ("Future_Create", "Type_Register") else last.size)


# ---------------------------------------------------------------------- our own
class State(ctypes.Structure):
    """State that a stage has left for later ones; its type is 0 if there is none."""

    _fields_ = [("type_id", c_int64), ("state", c_void_p), ("deleter", c_void_p)]


class Context(ctypes.Structure):
    """XLA_FFI_ExecutionContext, of one call."""

    _fields_ = [
        ("call", c_void_p),
        ("lock", c_int32),  # guards `blocks`
        ("blocks", c_void_p),  # memory that the handler has allocated: the last block, each linked to the one before it
        ("prepared", State),
        ("initialized", State),
    ]


class Call(ctypes.Structure):
    """A custom call of an executable. A block is all memory that a run writes to: a CallFrame, a Context, pointers to
    the buffers of the arguments and results, and the buffers."""

    _fields_ = [
        ("block", c_void_p),  # taken and returned by runs; null while one has it
        ("template", c_void_p),  # the same bytes, for concurrent runs
        ("base", c_void_p),  # the address of the block, to which its pointers refer
        ("block_bytes", c_int64),
        ("buffers", c_int64),  # number of pointers to buffers
        ("operands", c_int64),  # number of addresses that a run has, in `operands` and in `results`
        ("results", c_int64),
        ("places", c_void_p),  # offsets in the block of the addresses: an i64 each, first those of the operands
        ("prepare", c_void_p),  # handlers; null if there is none
        ("initialize", c_void_p),
        ("execute", c_void_p),
        ("instantiated", State),
        ("threads", c_int64),  # maximum number
        ("device_ordinal", c_int32),
    ]


class Table(ctypes.Structure):
    """The custom calls of an instance, which its program has as `handle`."""

    _fields_ = [
        ("handle", c_int64),  # handle of the table of Python's calls
        ("trampoline", c_void_p),  # runs Python's calls
        ("first", c_int64),  # the number of the first call
        ("calls", c_void_p),  # for each call a Call, or null if Python makes it
    ]


class RegisteredType(ctypes.Structure):
    """A type that states may have; the last in the list has the number 0."""

    _fields_ = [("type_id", c_int64), ("deleter", c_void_p)]


class Error(ctypes.Structure):
    """XLA_FFI_Error. The message follows it and ends with a 0."""

    _fields_ = [("code", c_int64)]


class Future(ctypes.Structure):
    """The structure XLA_FFI_Future."""

    _fields_ = [
        ("state", c_int32),  # 0 while pending; then 1 on success, 2 with an error
        ("owners", c_int32),  # the setter and the waiter: the last one frees it
        ("error", c_void_p),
    ]
