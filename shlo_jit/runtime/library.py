"""Loads exported libraries: objects of compiled programs with a C interface.

A loaded library is never unloaded while it can still be called, and its instance ends with the executable.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from shlo_jit.codegen import abi, jit
from shlo_jit.codegen.library_format import INTERFACE_VERSION, LibraryStatus
from shlo_jit.codegen.objects import Compiled, read_callback, read_port
from shlo_jit.errors import LibraryError
from shlo_jit.kernels.externals import LAPACK_PREFIX
from shlo_jit.runtime import lapack
from shlo_jit.runtime.cache import ObjectCache
from shlo_jit.runtime.callbacks import trampoline_address
from shlo_jit.runtime.dynamic import DynamicExecutable
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.fastcall import call_library
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.instance import Instance
from shlo_jit.runtime.library_file import LibraryFile, check_loadable, read_library
from shlo_jit.runtime.library_sized import sized_executable
from shlo_jit.runtime.library_weights import MappedWeights, mapped_weights
from shlo_jit.runtime.loaded import Loaded
from shlo_jit.runtime.machine import native

P, I32, U32, U64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64


class _Options(ctypes.Structure):
    """The structure shlo_options."""

    _fields_ = [
        ("bytes", U32),
        ("threads", I32),
        ("weights_path", ctypes.c_char_p),
        ("weights", P),
        ("weights_bytes", U64),
        ("memory", P),
        ("memory_bytes", U64),
    ]


class _Function(ctypes.Structure):
    """The structure shlo_function."""

    _fields_ = [("name", ctypes.c_char_p), ("inputs", I32), ("outputs", I32), ("ins", P), ("outs", P), ("run", P)]


class _Library(ctypes.Structure):
    """The structure shlo_library."""

    _fields_ = [
        ("interface_version", U32),
        ("function_count", U32),
        ("name", ctypes.c_char_p),
        ("functions", ctypes.POINTER(_Function)),
        ("metadata", P),
        ("metadata_bytes", U64),
        ("create", ctypes.CFUNCTYPE(I32, P, P)),
        ("destroy", ctypes.CFUNCTYPE(None, P)),
        ("memory_bytes", ctypes.CFUNCTYPE(U64, I32)),
        ("set_threads", ctypes.CFUNCTYPE(I32, P, I32)),
        ("call", P),
        ("status_text", P),
        ("failed_call", ctypes.CFUNCTYPE(I32, P)),
        ("set_callback", ctypes.CFUNCTYPE(I32, P, P, P)),
        ("set_pause", ctypes.CFUNCTYPE(I32, P, P)),
        ("set_symbol", ctypes.CFUNCTYPE(I32, ctypes.c_char_p, P)),
    ]


class OpenLibrary:
    """A library in this process, which all its functions share."""

    def __init__(self, file: LibraryFile, weights: str | None) -> None:
        """Opens the library. Raises LibraryError if it cannot be loaded."""
        self.file = file
        self.library, address = _open(file)
        make = ctypes.CFUNCTYPE(ctypes.POINTER(_Library))(address)
        self.c = make().contents
        if self.c.interface_version != INTERFACE_VERSION or self._metadata() != file.metadata:
            raise LibraryError(f"cannot load {file.path}: its code and its metadata do not agree")
        self.weights = weights or _weights_beside(file)
        for name in file.metadata["lapack"]:
            symbol = LAPACK_PREFIX + name
            self.c.set_symbol(f"{name}_".encode(), lapack.addresses([symbol])[symbol])

    def _metadata(self) -> object:
        """Returns the metadata of the code: the file may have been replaced since it was read."""
        return json.loads(ctypes.string_at(self.c.metadata or 0, self.c.metadata_bytes))


class LoadedLibrary(Loaded):
    """One function of a library in this process."""

    def __init__(self, opened: OpenLibrary, number: int) -> None:
        functions = opened.file.metadata["functions"]
        self.opened = opened
        self.file = opened.file
        self.constants = ()
        self.library = opened.library
        self.c = opened.c
        self.weights = opened.weights
        self.program = _program(functions[number])
        self.first_callback = sum(len(f["callbacks"]) for f in functions[:number])
        self.entry = self.c.functions[number].run

    def arena_bytes(self, threads: int) -> int:
        """Returns the size of arenas that the caller allocates: none, since the library has its own."""
        return 0

    @property
    def constant_bytes(self) -> int:
        return self.file.metadata["weights"]["bytes"]


class LibraryInstance(Instance):
    """An instance that the library created."""

    loaded: LoadedLibrary

    def _make_record(self, rank: int, communicator: int) -> int:
        c, pointer = self.loaded.c, P()
        weights = os.fsencode(self.loaded.weights) if self.loaded.weights else None
        options = _Options(bytes=ctypes.sizeof(_Options), threads=self.threads, weights_path=weights)
        mapped = self._mapped_weights()
        if mapped is not None:
            options.weights, options.weights_bytes = mapped.address, mapped.data.nbytes
        status = c.create(ctypes.byref(pointer), ctypes.byref(options))
        if status == LibraryStatus.NO_MEMORY:
            raise MemoryError(f"the library needs {c.memory_bytes(self.threads)} bytes")
        if status != LibraryStatus.OK or not pointer.value:
            raise LibraryError(f"cannot load {self.loaded.file.path}: {_status_text(status)}{self._needs(status)}")
        # The finalizer holds the library and the weights, which are released after it. If the garbage collector frees a
        # cycle, it fixes no order.
        self._end = weakref.finalize(self, _destroy, self.loaded.library, mapped, c.destroy, pointer.value)
        self._end.atexit = False  # another thread may be in a call until the very end
        if self._callbacks is not None:
            c.set_callback(pointer.value, self._callbacks.function, self._callbacks.handle)
        c.set_pause(pointer.value, self._functions.addresses["shlo_pause"])
        return pointer.value

    def _mapped_weights(self) -> MappedWeights | None:
        path = self.loaded.weights
        return mapped_weights(path, self.loaded.constant_bytes) if path else None

    def _needs(self, status: int) -> str:
        """Returns details of a refusal."""
        metadata = self.loaded.file.metadata
        if status == LibraryStatus.UNSUPPORTED_CPU:
            return " (it is for " + " or ".join(t["name"] for t in metadata["targets"]) + ")"
        if status in (LibraryStatus.NO_WEIGHTS, LibraryStatus.WRONG_WEIGHTS):
            return f" ({self.loaded.weights})"
        return ""

    @property
    def memory_bytes(self) -> int:
        return self.loaded.c.memory_bytes(self.threads)

    def failed_call(self) -> int:
        return self.loaded.c.failed_call(self.address) - self.loaded.first_callback

    def _status_text(self, status: int) -> str:
        return _status_text(status)


def _destroy(
    library: jit.Library, weights: MappedWeights | None, destroy: Callable[[int], None], instance: int
) -> None:
    """Ends an instance while its library and its weights are still in memory."""
    destroy(instance)


def load_library(
    path: str | os.PathLike[str],
    entry: str | None,
    *,
    threads: int,
    custom_calls: Mapping[str, Any] | None,
    weights: str | None,
    cache: ObjectCache | None,
) -> Executable | DynamicExecutable:
    """Returns a function of a library as an Executable; one that takes sizes as a DynamicExecutable. Raises
    LibraryError, OSError, ExecutionError if a custom call has no implementation or LAPACK is missing, and MemoryError.
    """
    file = read_library(path)
    check_loadable(file)
    target = native()
    name = _entry(file, entry)
    opened = OpenLibrary(file, weights)
    functions, host = call_library(target, cache), Host()

    def executable(number: int) -> Executable:
        loaded = LoadedLibrary(opened, number)
        return Executable(LibraryInstance(loaded, functions, threads, custom_calls, host=host), target, cache)

    sized = next((s for s in file.metadata.get("sized", ()) if s["name"] == name), None)
    if sized is not None:
        return sized_executable(sized, executable, threads, host)
    return executable([f["name"] for f in file.metadata["functions"]].index(name))


def _weights_beside(file: LibraryFile) -> str | None:
    """Returns the path of the file of weights in the library's folder, which an object in memory does not know."""
    name = file.metadata["weights"]["file"]
    return name and os.path.join(os.path.dirname(os.path.abspath(file.path)), name)


def _entry(file: LibraryFile, entry: str | None) -> str:
    """Returns the name of a function: if none is given, `main`, or the only one."""
    names = list(dict.fromkeys(f["name"] for f in file.metadata["functions"]))
    name = entry if entry is not None else names[0] if len(names) == 1 else "main"
    if name not in names:
        raise LibraryError(f"{file.path} has no function @{name}; it has {', '.join('@' + n for n in names)}")
    return name


def _open(file: LibraryFile) -> tuple[jit.Library, int]:
    """Returns an object that keeps the code in memory, and the address of the function that describes the library."""
    symbol = f"{file.metadata['name']}_library"
    if file.format == "ELF object":
        with open(file.path, "rb") as stream:
            code = stream.read()
        library = jit.load([code], [symbol], symbols=_symbols(file))
        return library, library.addresses[symbol]
    try:
        shared = _Shared(_new_spelling(os.path.abspath(file.path)))
        address = ctypes.cast(shared.library[symbol], P).value or 0
        return jit.Library(shared, {symbol: address}, ()), address
    except (OSError, AttributeError) as error:
        raise LibraryError(f"cannot load {file.path}: {error}") from None


_spellings = itertools.count(1)


def _new_spelling(path: str) -> str:
    """Returns the absolute path in a new spelling, with `/.` and `/` inside for the digits of a number.

    The dynamic linker compares names first: for a known path, it returns the library that it loaded from there, even if
    another file is at that path by now. It recognizes the same file under another name.
    """
    digits = bin(next(_spellings))[2:]
    folder, name = os.path.split(path)
    return os.path.join(folder, "".join("./" if digit == "1" else "/" for digit in digits), name)


class _Shared:
    """A shared library, closed with the last reference to it."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self._close = weakref.finalize(self, _close, self.library._handle)
        self._close.atexit = False


def _close(handle: int) -> None:
    from _ctypes import dlclose  # type: ignore[attr-defined]

    dlclose(handle)


def _symbols(file: LibraryFile) -> dict[str, int]:
    """Returns the external symbols of an object: LAPACK, and custom calls, which `set_callback` redirects."""
    names = file.metadata["lapack"]
    addresses = lapack.addresses([LAPACK_PREFIX + name for name in names])
    found = {f"{name}_": addresses[LAPACK_PREFIX + name] for name in names}
    return found | dict.fromkeys(file.metadata["custom_calls"].values(), trampoline_address)


def _program(function: Mapping[str, Any]) -> Compiled:
    return Compiled(
        objects=(),
        inputs=tuple(read_port(p) for p in function["inputs"]),
        outputs=tuple(read_port(p) for p in function["outputs"]),
        arena_bytes=0,
        scratch=(),
        constants=(),
        callbacks=tuple(read_callback(c) for c in function["callbacks"]),
        routines=(),
        output_aliases={int(r): int(a) for r, a in function["aliases"]},
        overwritten=tuple(function["overwritten"]),
        is_short=function["is_short"],
    )


def _status_text(status: int) -> str:
    if status in LibraryStatus._value2member_map_:
        return LibraryStatus(status).text
    return abi.status_text(status)
