"""Calls any exported library with only the standard library of Python; NAME_library() describes its functions.

    python call.py ./libdigits.so           lists the functions
    python call.py ./libdigits.so main seven.pgm

Inputs are files that end with the bytes of the arrays, as raw files and pictures do. Outputs are printed.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path

FORMATS = {"i1": "?", "i8": "b", "ui8": "B", "i16": "h", "ui16": "H", "i32": "i", "ui32": "I", "i64": "q"} | {
    "ui64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
"""Format characters of the module struct for element types."""


class Port(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type_name", c_char_p),
        ("type", c_int32),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("bytes", c_uint64),
        ("alignment", c_uint64),
    ]

    def __str__(self) -> str:
        return f"{self.type_name.decode()}[{', '.join(map(str, self.shape[: self.rank]))}]"


class Function(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("inputs", POINTER(Port)),
        ("outputs", POINTER(Port)),
        ("run", c_void_p),
    ]

    def __str__(self) -> str:
        inputs = ", ".join(map(str, self.inputs[: self.input_count]))
        outputs = ", ".join(map(str, self.outputs[: self.output_count]))
        return f"{self.name.decode()}({inputs}) -> {outputs}"


class Library(Structure):
    _fields_ = [
        ("interface_version", c_uint32),
        ("function_count", c_uint32),
        ("name", c_char_p),
        ("functions", POINTER(Function)),
        ("metadata", c_void_p),
        ("metadata_bytes", c_uint64),
        ("create", CFUNCTYPE(c_int32, POINTER(c_void_p), c_void_p)),
        ("destroy", CFUNCTYPE(None, c_void_p)),
        ("memory_bytes", CFUNCTYPE(c_uint64, c_int32)),
        ("set_threads", CFUNCTYPE(c_int32, c_void_p, c_int32)),
        ("call", CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(c_void_p), POINTER(c_void_p))),
        ("status_text", CFUNCTYPE(c_char_p, c_int32)),
    ]
    """The first fields of the structure; the others are not used here."""

    def check(self, status: int) -> None:
        if status:
            sys.exit(f"{self.name.decode()}: {self.status_text(status).decode()}")


class Buffer:
    """Memory for one array, with the alignment of its port."""

    def __init__(self, port: Port, data: bytes = b"") -> None:
        self.port = port
        self._memory = ctypes.create_string_buffer(port.bytes + port.alignment)
        self.address = -(-ctypes.addressof(self._memory) // port.alignment) * port.alignment
        ctypes.memmove(self.address, data, len(data))

    def __str__(self) -> str:
        code = FORMATS[self.port.type_name.decode()]
        values = memoryview(ctypes.string_at(self.address, self.port.bytes)).cast(code).tolist()
        return ", ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values[:20])


def describe(path: str) -> Library:
    """A library's own description; its file is called NAME.so or libNAME.so."""
    name = Path(path).name.partition(".")[0].removeprefix("lib")
    if not Path(path).is_file():
        sys.exit(f"{path}: no such file; `make libdigits.so` makes one")
    try:
        function = ctypes.CDLL(str(Path(path).absolute()))[f"{name}_library"]
    except OSError as error:
        sys.exit(f"{path}: not a shared library for this machine ({error})")
    except AttributeError:
        sys.exit(f"{path}: no function {name}_library; `shlo-jit export ... -o {path}` writes such libraries")
    function.restype = POINTER(Library)
    return function().contents


def read(path: str, port: Port) -> bytes:
    """The bytes of an array at the end of a file."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}; `make seven.pgm` draws a picture")
    if len(data) < port.bytes:
        sys.exit(f"{path}: {port} has {port.bytes} bytes, and the file has {len(data)}")
    return data[-port.bytes :]


def call(library: Library, number: int, files: list[str]) -> list[Buffer]:
    function = library.functions[number]
    if len(files) != function.input_count:
        sys.exit(f"{function} takes {function.input_count} files, one for each input; got {len(files)}")
    ports = function.inputs[: function.input_count]
    inputs = [Buffer(port, read(file, port)) for port, file in zip(ports, files, strict=True)]
    outputs = [Buffer(port) for port in function.outputs[: function.output_count]]
    tables = [(c_void_p * max(1, len(buffers)))(*(b.address for b in buffers)) for buffers in (inputs, outputs)]
    instance = c_void_p()
    library.check(library.create(instance, None))
    try:
        library.check(library.call(instance, number, *tables))
    finally:
        library.destroy(instance)
    return outputs


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.exit("usage: call.py LIBRARY [FUNCTION [FILE ...]]")
    path, name, *files = [*arguments, ""] if len(arguments) == 1 else arguments
    library = describe(path)
    functions = library.functions[: library.function_count]
    if not name:
        print(*functions, sep="\n")
        return
    names = [f.name.decode() for f in functions]
    if name not in names:
        sys.exit(f"no function {name}; the library has {', '.join(names)}")
    print(*call(library, names.index(name), files), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
