"""Implementation of `shlo_jit.export`: compiles a program to a library for C."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shlo_jit.aot import modules, weights
from shlo_jit.aot.archive import Archive
from shlo_jit.aot.c_names import is_taken
from shlo_jit.aot.export_options import ExportOptions
from shlo_jit.aot.header import header
from shlo_jit.aot.image import Image
from shlo_jit.aot.interface import public_symbols
from shlo_jit.aot.linking import link_shared
from shlo_jit.aot.make_image import check_entries, make_image
from shlo_jit.aot.weights_code import weights_file_name
from shlo_jit.deep import deeply
from shlo_jit.errors import ExportError
from shlo_jit.forking import compiling
from shlo_jit.ir.core import Module
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.replacing import replacing

SHARED = {".so": "linux", ".dylib": "macos", ".dll": "windows"}
OBJECTS = (".o", ".obj")
ARCHIVES = (".a",)
WASM = ".wasm"
"""File suffixes of each kind of output."""


class Exported(NamedTuple):
    """Paths that `export` has written, and the linker of the library (empty for objects and archives)."""

    library: Path
    header: Path | None
    weights: Path | None
    linker: str

    def files(self) -> list[Path]:
        """The files that exist: the library first."""
        return [path for path in (self.library, self.header, self.weights) if path is not None]


Progress = Callable[[str, int, int], None]
"""Callback for progress: the current activity, the bytes written and the total bytes (0 of 0 if unknown)."""


@deeply
@compiling()
def export_module(module: Module, options: ExportOptions, progress: Progress = lambda *_: None) -> Exported:
    """Writes the files.

    Raises StableHLOError if the program is refused, TypeError and ValueError for shapes, OptionError, ExportError if no
    linker can link the library, and OSError if a file cannot be written.
    """
    check_kind(options.path, options.targets[0])
    _check_paths(options)
    check_entries(module, options.entries)
    image = make_image(
        module,
        options.name,
        options.entries,
        options.targets,
        options.compile,
        shapes=options.shapes,
        constants=options.constants,
        weights_in_file=options.weights_in_file,
        on_step=lambda what: progress(what, 0, 0),
    )
    _check_symbols(image)
    progress("generating code", 0, 0)
    is_linked = options.path.suffix in SHARED or options.path.suffix == WASM
    code = modules.emit(image, threads=options.threads, may_miss_symbols=is_linked)
    written = _Written(image, progress)
    linker = ""
    weights_path = _weights_path(options) if image.weights_in_file and image.weights.nbytes else None
    with contextlib.ExitStack() as whole:  # Moves the files to their final paths when all of them are written.
        made = whole.enter_context(replacing(options.path))
        if is_linked:
            linker = _link(made, code, image, written, options, progress)
        else:
            with open(made, "wb") as file:
                if options.path.suffix in ARCHIVES:
                    _write_archive(file, code, image, written)
                else:
                    written.object(file, code)
        if weights_path is not None:
            with open(whole.enter_context(replacing(weights_path)), "wb") as file:
                weights.write_file(file, image, written.note)
        if options.header is not None:
            whole.enter_context(replacing(options.header)).write_text(header(image), encoding="utf-8")
    return Exported(options.path, options.header, weights_path, linker)


def _weights_path(options: ExportOptions) -> Path:
    return options.path.parent / weights_file_name(options.name)


def _link(made: Path, code: bytes, image: Image, written: _Written, options: ExportOptions, progress: Progress) -> str:
    """Links the library and returns the name of the linker."""
    with tempfile.TemporaryDirectory(prefix="shlo_jit-") as folder:
        object = Path(folder) / f"{image.name[:100]}.o"
        with open(object, "wb") as file:
            written.object(file, code)
        progress("linking", 0, 0)
        symbols, target = public_symbols(image), options.targets[0]
        return link_shared(object, made, options.path.name, target, symbols, options.linker)


def check_kind(path: Path, target: Target) -> None:
    """Raises ExportError if the target has no such kind of file."""
    ending = path.suffix
    if ending in (*OBJECTS, *ARCHIVES):
        return
    if ending == WASM or target.arch == "wasm32":
        if ending != WASM or target.arch != "wasm32":
            raise ExportError(
                f"{path.name}: WebAssembly is .wasm or .o, and only that is; the target is {target.name!r}"
            )
        return
    if ending not in SHARED:
        known = ", ".join((*SHARED, WASM, *OBJECTS, *ARCHIVES))
        raise ExportError(f"{path.name}: expected a file that ends in one of {known}")
    if SHARED[ending] != target.system:
        known = next((e for e, system in SHARED.items() if system == target.system), ".o or .a")
        raise ExportError(f"{path.name}: the target {target.name!r} needs a library whose name ends in {known}")


class _Written:
    """Writes objects and reports progress."""

    def __init__(self, image: Image, progress: Progress) -> None:
        self._image = image
        self._progress = progress
        self._done = 0
        target = image.variants[0].target
        self._kind = target.is_elf, target.is_x86

    def note(self, nbytes: int) -> None:
        self._done += nbytes
        self._progress("writing weights", self._done, self._image.weights.nbytes)

    def object(self, file: BinaryIO, code: bytes) -> None:
        weights.write_object(file, code, self._image, *self._kind, self.note)


def _write_archive(file: BinaryIO, code: bytes, image: Image, written: _Written) -> None:
    archive = Archive(file, f"{image.name}.o", public_symbols(image))
    written.object(file, code)
    archive.finish()


def _check_paths(options: ExportOptions) -> None:
    """Raises ExportError if two outputs have the same path."""
    paths = [options.path]
    if options.header is not None:
        paths.append(options.header)
    if options.weights_in_file:
        paths.append(_weights_path(options))
    if len({p.resolve() for p in paths}) < len(paths):
        raise ExportError(f"expected a different path for each file; these coincide: {', '.join(map(str, paths))}")


def _check_symbols(image: Image) -> None:
    """Raises ExportError if the library would define a symbol of the C library or of the thread pool."""
    for symbol in public_symbols(image):
        if is_taken(symbol):
            raise ExportError(f"the library would define {symbol}, which is defined elsewhere: choose another name")
