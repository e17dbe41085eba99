"""Descriptions that a library contains: the records that C reads, and the metadata for tools that read the file.

The records are `shlo_library` and what it points to; see header.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_jit.aot import instances
from shlo_jit.aot.entry_points import alignment, public, result_alignment, run_symbol
from shlo_jit.aot.image import INTERFACE, SIZED, Function, Image, arena_terms, weights_of
from shlo_jit.aot.imports import custom_call_symbols
from shlo_jit.aot.sized import Sized, SizedPort
from shlo_jit.aot.tables import Field, Tables, text_bytes
from shlo_jit.aot.weights_code import weights_file_name
from shlo_jit.codegen.known_cpus import required_features
from shlo_jit.codegen.library_format import INTERFACE_VERSION, METADATA_OFFSET, NOTE_SECTION, TYPES, note
from shlo_jit.codegen.objects import write_callback, write_port
from shlo_jit.codegen.program import Port
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V
from shlo_jit.version import __version__


def library_symbol(name: str) -> str:
    """Symbol of the function that returns the record."""
    return f"{name}_library"


def sized_symbol(image: Image, number: int) -> str:
    """Symbol of the code of a sized function."""
    return f"{image.name}.sized.{number}"


def shapes_symbol(image: Image, number: int) -> str:
    """Symbol of the code that computes the shapes of a sized function's results."""
    return f"{image.name}.shapes.{number}"


def metadata(image: Image) -> dict[str, Any]:
    """Everything about a library that can be known without running it, as JSON."""
    return {
        "interface": INTERFACE_VERSION,
        "shlo_jit": __version__,
        "name": image.name,
        "functions": [_function(f) for f in image.functions],
        "sized": [_sized(s) for s in image.sized],
        "targets": [
            {
                "name": v.target.name,
                "triple": v.target.triple,
                "features": list(required_features(v.target)),
                "arena": arena_terms(v),
                "weights_bytes": nbytes,
                "own_weights_bytes": own,
            }
            for v, (nbytes, own) in zip(image.variants, weights_of(image), strict=True)
        ],
        "instance_bytes": instances.layout(image).nbytes,
        "weights": {
            "bytes": image.weights.nbytes,
            "constants": len(image.weights.constants),
            "file": weights_file_name(image.name) if image.weights_in_file else None,
            "identity": image.weights.identity.hex(),
        },
        "custom_calls": custom_call_symbols(image),
        "lapack": list(image.lapack),
    }


def _function(function: Function) -> dict[str, Any]:
    return {
        "name": function.name,
        "c_name": function.c_name,
        "inputs": [write_port(p) for p in function.inputs],
        "outputs": [write_port(p) for p in function.outputs],
        "aliases": sorted(function.aliases.items()),
        "overwritten": list(function.overwritten),
        "callbacks": [write_callback(c) for c in function.callbacks],
        "is_short": function.is_short,
    }


def _sized(sized: Sized) -> dict[str, Any]:
    """Description of a sized function. The functions for its `calls` are numbered consecutively from `first`."""
    return {
        "name": sized.name,
        "c_name": sized.c_name,
        "inputs": list(map(_write_port, sized.inputs)),
        "outputs": list(map(_write_port, sized.outputs)),
        "by_value": list(sized.by_value),
        "first": sized.first,
        "calls": [{"sizes": list(c.sizes), "values": [data.hex() for data in c.values]} for c in sized.calls],
    }


def _write_port(port: SizedPort) -> list[Any]:
    return [port.name, list(port.shape), port.dtype.name, port.bounds]


class Description:
    """Writes the records and the metadata."""

    def __init__(self, module: ModuleText, image: Image, tables: Tables) -> None:
        self.module = module
        self.image = image
        self.tables = tables

    def write(self) -> None:
        data = note(metadata(self.image))
        note_symbol = f"{self.image.name}.note"
        section = f', section "{NOTE_SECTION}"' if "elf" in self._format() else ""
        literal = f"[{len(data)} x i8] {text_bytes(data)}"
        self.module.define_global(note_symbol, f"internal constant {literal}{section}, align 4")
        self.module.define_global(
            "llvm.used", f'appending global [1 x ptr] [ptr @{note_symbol}], section "llvm.metadata"'
        )
        json_at = f"getelementptr (i8, ptr @{note_symbol}, i64 {METADATA_OFFSET})"
        functions = self.tables.records([self._function(i, f) for i, f in enumerate(self.image.functions)])
        fields: list[Field] = [
            ("i32", str(INTERFACE_VERSION)),
            ("i32", str(len(self.image.functions))),
            self.tables.string(self.image.name),
            functions,
            ("ptr", json_at),
            ("i64", str(len(data) - METADATA_OFFSET)),
            *(("ptr", f"@{self.image.name}_{name}") for name in INTERFACE),
        ]
        type, value = self.tables.record(fields)
        record = f"{self.image.name}.library"
        self.module.define_global(record, f"internal constant {type} {value}, align 8")
        b = public(self.module, library_symbol(self.image.name), [], self.image, "ptr")
        b.ret(V("ptr", f"@{record}"))
        if self.image.sized:
            self._write_sized()

    def _write_sized(self) -> None:
        """Writes the function that returns the records of sized functions. A record of zeros follows the last one."""
        rows = [self._sized(i, s) for i, s in enumerate(self.image.sized)]
        end: list[Field] = [(type, "null" if type == "ptr" else "0") for type, _ in rows[0]]
        b = public(self.module, f"{self.image.name}_{SIZED}", [], self.image, "ptr")
        b.ret(V(*self.tables.records([*rows, end])))

    def _sized(self, number: int, sized: Sized) -> list[Field]:
        return [
            self.tables.string(sized.name),
            ("i32", str(len(sized.inputs))),
            ("i32", str(len(sized.outputs))),
            self.tables.records([self._sized_port(p, p.dtype.part.itemsize) for p in sized.inputs]),
            self.tables.records(
                [self._sized_port(p, result_alignment(self.image, sized, i)) for i, p in enumerate(sized.outputs)]
            ),
            ("ptr", f"@{sized_symbol(self.image, number)}"),
            ("ptr", f"@{shapes_symbol(self.image, number)}"),
            ("i32", str(sized.first)),
            ("i32", str(len(sized.calls))),
        ]

    def _format(self) -> str:
        """Format of object files."""
        triple = self.image.variants[0].target.triple
        return "other" if any(s in triple for s in ("windows", "darwin", "macos", "wasm")) else "elf"

    def _function(self, number: int, function: Function) -> list[Field]:
        return [
            self.tables.string(function.name),
            ("i32", str(len(function.inputs))),
            ("i32", str(len(function.outputs))),
            self.tables.records([self._port(p, False) for p in function.inputs]),
            self.tables.records([self._port(p, True) for p in function.outputs]),
            ("ptr", f"@{run_symbol(self.image, number)}"),
        ]

    def _port(self, port: Port, is_result: bool) -> list[Field]:
        return self._record(port, port.shape, port.nbytes, alignment(port, is_result))

    def _sized_port(self, port: SizedPort, multiple: int) -> list[Field]:
        return self._record(port, [-1 if n is None else n for n in port.shape], 0, multiple)

    def _record(self, port: Port | SizedPort, shape: Sequence[int], nbytes: int, multiple: int) -> list[Field]:
        return [
            self.tables.string(port.name),
            self.tables.string(port.dtype.name),
            ("i32", str(TYPES.index("i64" if port.dtype.name == "index" else port.dtype.name))),
            ("i32", str(len(shape))),
            self.tables.array("i64", shape),
            ("i64", str(nbytes)),
            ("i64", str(multiple)),
        ]
