"""Constants in files: within an object, or in a file of their own.

LLVM takes seconds and gigabytes for 100 MB of constants. So it gets a placeholder, and the constants are written to the
object afterwards. In ELF, the placeholder's section is moved to the end of the file, where the constants are streamed.
In other formats the placeholder is as large as the constants and is overwritten.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np

from shlo_jit.aot.image import Image, Weights
from shlo_jit.aot.tables import text_bytes
from shlo_jit.aot.weights_code import weights_header, weights_symbol
from shlo_jit.codegen.library_format import WEIGHTS_ALIGNMENT
from shlo_jit.errors import InternalError
from shlo_jit.kernels.builder import ModuleText

FAR_BYTES = 1 << 30
"""Size from which constants are in a section of x86-64 that linkers place separately, so that code and other data stay
within reach of near addresses."""
_HEADER = struct.Struct("<40xQ10xHHH")
"""Fields of an ELF header: offset of the section table, size of its entries, their number, and that of the name
section."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2

Note = Callable[[int], None]
"""Callback for the number of bytes that were written."""


def define_placeholder(module: ModuleText, image: Image, is_elf: bool, is_x86: bool) -> None:
    """Writes the global that `write_object` will replace."""
    mark = image.weights.identity * 2
    if is_elf:
        extra = f', section "{_section_name(image, is_x86)}"'
        text = f"[{len(mark)} x i8] {text_bytes(mark)}{extra}"
    else:
        rest = max(0, image.weights.nbytes - len(mark))
        types = f"[{len(mark)} x i8]", f"[{rest} x i8]"
        text = f"<{{{', '.join(types)}}}> <{{{types[0]} {text_bytes(mark)}, {types[1]} zeroinitializer}}>"
    module.define_global(weights_symbol(image), f"hidden constant {text}, align {WEIGHTS_ALIGNMENT}")


def _section_name(image: Image, is_x86: bool) -> str:
    far = is_x86 and image.weights.nbytes >= FAR_BYTES
    return ".lrodata.shlo_jit" if far else ".rodata.shlo_jit"


def write_object(
    file: BinaryIO, code: bytes, image: Image, is_elf: bool, is_x86: bool, on_bytes: Note = lambda n: None
) -> None:
    """Writes the object with the constants in place of the placeholder."""
    if not image.weights.nbytes or image.weights_in_file:
        file.write(code)
        return
    if not is_elf:
        file.write(_overwritten(code, image))
        return
    head = bytearray(code)
    start = -(-len(head) // WEIGHTS_ALIGNMENT) * WEIGHTS_ALIGNMENT
    _point_section(head, _section_name(image, is_x86), weights_symbol(image), start, image.weights.nbytes)
    file.write(head)
    file.write(bytes(start - len(head)))
    _stream(file, image.weights, on_bytes)


def write_file(file: BinaryIO, image: Image, on_bytes: Note = lambda n: None) -> None:
    """Writes the file of weights."""
    file.write(weights_header(image))
    _stream(file, image.weights, on_bytes)


CHUNK = 16 << 20
"""Bytes that are written between reports of progress."""


def _stream(file: BinaryIO, weights: Weights, on_bytes: Note) -> None:
    for constant in weights.constants:
        for at in range(0, constant.data.nbytes, CHUNK):
            chunk = constant.data[at : at + CHUNK]
            file.write(chunk.data)
            on_bytes(chunk.nbytes)
        file.write(bytes(-constant.data.nbytes % WEIGHTS_ALIGNMENT))


def _overwritten(code: bytes, image: Image) -> bytearray:
    mark = image.weights.identity * 2
    at = code.find(mark)
    if at < 0 or code.find(mark, at + 1) >= 0:
        raise InternalError("cannot find the placeholder of the constants in the object")
    found = bytearray(code)
    view = np.frombuffer(found, np.uint8)
    view[at : at + len(mark)] = 0
    for constant, offset in zip(image.weights.constants, image.weights.offsets, strict=True):
        view[at + offset : at + offset + constant.data.nbytes] = constant.data
    return found


def _point_section(data: bytearray, section: str, symbol: str, offset: int, nbytes: int) -> None:
    """Points a section of a relocatable ELF object, and its one symbol, to `nbytes` bytes at an offset in the file."""
    rows = list(_sections(data))
    for _, row in rows:
        if row[1] == _SYMTAB:
            texts = rows[row[6]][1]
            for place in range(row[4], row[4] + row[5], _SYMBOL.size):
                fields = _SYMBOL.unpack_from(data, place)
                if _text(data, texts[4] + fields[0]) == symbol:
                    _SYMBOL.pack_into(data, place, *fields[:5], nbytes)
    _, _, names_at = _table(data)
    names = rows[names_at][1][4]
    for at, row in rows:
        if _text(data, names + row[0]) == section:
            _SECTION.pack_into(data, at, *row[:4], offset, nbytes, *row[6:])
            return
    raise InternalError(f"LLVM wrote an object without the section {section}")


def _table(data: bytes | bytearray) -> tuple[int, int, int]:
    """Offset of the section table, number of sections, and number of the name section."""
    start, _, count, names = _HEADER.unpack_from(data)
    return start, count, names


def _sections(data: bytes | bytearray) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Offset and fields of every row of the section table."""
    start, count, _ = _table(data)
    for at in range(start, start + count * _SECTION.size, _SECTION.size):
        yield at, _SECTION.unpack_from(data, at)


def _text(data: bytes | bytearray, at: int) -> str:
    return bytes(data[at : data.index(b"\0", at)]).decode()
