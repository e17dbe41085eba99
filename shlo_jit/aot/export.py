"""`shlo_jit.export`: a program to a library for C."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shlo_jit.aot import modules, weights
from shlo_jit.aot.archive import Archive
from shlo_jit.aot.header import header
from shlo_jit.aot.image import Image, check_entries, make_image
from shlo_jit.aot.interface import public_symbols
from shlo_jit.aot.linking import link_shared
from shlo_jit.aot.weights_code import weights_file_name
from shlo_jit.deep import deeply
from shlo_jit.errors import ExportError
from shlo_jit.forking import compiling
from shlo_jit.ir.core import Module
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions

SHARED = {".so": "linux", ".dylib": "macos", ".dll": "windows"}
OBJECTS = (".o", ".obj")
ARCHIVES = (".a",)
WASM = ".wasm"
"""Endings."""


class ExportOptions(NamedTuple):
    """What `export` was asked for besides the program; see `api.export`."""

    path: Path
    header: Path | None
    name: str
    entries: tuple[str, ...]
    targets: tuple[Target, ...]
    weights_in_file: bool
    threads: bool
    linker: str
    compile: CompileOptions


class Exported(NamedTuple):
    """What `export` has written: paths, and what linked the library (empty for objects and archives)."""

    library: Path
    header: Path | None
    weights: Path | None
    linker: str


Progress = Callable[[str, int, int], None]
"""Hears what is being done, and of how many bytes how many are written (0 of 0 where that says nothing)."""


@deeply
@compiling()
def export_module(module: Module, options: ExportOptions, progress: Progress = lambda *_: None) -> Exported:
    """Write the files. Raises StableHLOError where the program is refused, OptionError, ExportError where no linker
    can link it, and OSError where a file cannot be written."""
    check_kind(options.path, options.targets[0])
    if options.header is not None and options.header.resolve() == options.path.resolve():
        raise ExportError(f"{options.header}: the library and its header cannot be one file")
    check_entries(module, options.entries)
    image = make_image(
        module,
        options.name,
        options.entries,
        options.targets,
        options.compile,
        weights_in_file=options.weights_in_file,
        on_step=lambda what: progress(what, 0, 0),
    )
    progress("generating code", 0, 0)
    is_linked = options.path.suffix in SHARED or options.path.suffix == WASM
    code = modules.emit(image, threads=options.threads, may_miss_symbols=is_linked)
    written = _Written(image, progress)
    linker = ""
    if is_linked:
        with tempfile.TemporaryDirectory(prefix="shlo_jit-") as folder:
            object = Path(folder) / f"{image.name}.o"
            with open(object, "wb") as file:
                written.object(file, code)
            progress("linking", 0, 0)
            with _replacing(options.path) as made:
                symbols, target = public_symbols(image), options.targets[0]
                linker = link_shared(object, made, options.path.name, target, symbols, options.linker)
    else:
        with _replacing(options.path) as made, open(made, "wb") as file:
            if options.path.suffix in ARCHIVES:
                _write_archive(file, code, image, written)
            else:
                written.object(file, code)
    weights_path = None
    if image.weights_in_file and image.weights.nbytes:
        weights_path = options.path.parent / weights_file_name(image)
        with _replacing(weights_path) as made, open(made, "wb") as file:
            weights.write_file(file, image, written.note)
    if options.header is not None:
        with _replacing(options.header) as made:
            made.write_text(header(image), encoding="utf-8")
    return Exported(options.path, options.header, weights_path, linker)


def check_kind(path: Path, target: Target) -> None:
    """Raise ExportError where a target has no such files."""
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
        raise ExportError(f"{path.name}: the target {target.name!r} has libraries that end in {known}")


class _Written:
    """Writes objects, and tells of it."""

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


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """The path of a file to write, which takes the place of `path` once it is whole."""
    handle, name = tempfile.mkstemp(dir=path.parent or ".", prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    made = Path(name)
    try:
        yield made
        umask = os.umask(0)
        os.umask(umask)
        made.chmod((0o777 if path.suffix in SHARED else 0o666) & ~umask)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
