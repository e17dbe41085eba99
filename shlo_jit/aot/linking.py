"""Linking objects to shared libraries and WebAssembly modules with an installed linker."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shlo_jit.errors import ExportError
from shlo_jit.kernels.target import Target

ZIG_SYSTEMS = {"linux": "linux-gnu", "macos": "macos", "windows": "windows-gnu"}
LIBRARY_FLAGS = (
    *("-shared", "-nostartfiles"),  # without the compiler's start files, nothing runs when the library is loaded
    *("-Wl,-z,noexecstack", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-Bsymbolic", "-Wl,--as-needed"),
)
BARE = ("ld", "ld.lld", "mold")
BARE_FLAGS = ("-shared", "-z", "noexecstack", "-z", "relro", "-Bsymbolic")
"""Flags of plain `ld`, which may not know where libc is: undefined symbols are looked up in the process."""

WASM_FLAGS = ("--no-entry", "--stack-first", "-z", "stack-size=1048576", "--allow-undefined")
"""Flags of wasm-ld: a stack that traps on overflow and holds the stack frames of our code."""
LARGE_BYTES = 64 << 20
"""Object size from which GNU's linker takes seconds and LLVM's does not."""

Command = tuple[str, list[str]]
"""Name of a linker, and its command line."""


def link_shared(object: Path, output: Path, name: str, target: Target, symbols: Sequence[str], linker: str = "") -> str:
    """Links an object to a shared library (ELF, Mach-O, DLL) or WebAssembly module, with the first linker that can.

    `name`: name of the library, independent of `output`. `symbols`: exported symbols. `linker`: the command to use.
    Returns the name of the linker. Raises ExportError if no linker succeeds.
    """
    failures = []
    for tool, command in _commands(object, output, name, target, symbols, linker):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            failures.append(f"{tool}: {error.strerror}")
            continue
        if done.returncode == 0:
            return tool
        failures.append(f"$ {shlex.join(command)}\n{done.stderr.strip() or f'status {done.returncode}'}")
    if failures:
        raise ExportError("cannot link the library:\n" + "\n".join(failures))
    raise ExportError(f"no linker for {target.triple} was found: {_advice(target, linker)}")


def _advice(target: Target, linker: str) -> str:
    if linker:
        return f"there is no command {linker!r}"
    ziglang = "pip install ziglang, which links for all systems"
    if target.arch == "wasm32":
        return f"{ziglang}, or install lld for wasm-ld; an object (.o) needs none"
    return f"install a C compiler (gcc or clang), or lld, or {ziglang}; an object (.o) or archive (.a) needs none"


def _commands(
    object: Path, output: Path, soname: str, target: Target, symbols: Sequence[str], linker: str
) -> Iterator[Command]:
    files = ["-o", str(output), str(object)]
    if target.arch == "wasm32":
        exports = [*WASM_FLAGS, *(f"--export={s}" for s in symbols), "--export=__heap_base"]
        for name in [linker] if linker else ["wasm-ld", "wasm-ld-14"]:
            if shutil.which(name):
                yield name, [name, *exports, *files]
        if not linker and _has_zig():
            yield "ziglang", [*_zig("wasm-ld"), *exports, *files]
        return
    bare = [linker] if Path(linker).name.split("-")[-1] in BARE else []
    compilers = [linker] if linker and not bare else []
    if target.system == "linux" and not linker:
        compilers, bare = _compilers(target), _bare_linkers(target)
    for name in filter(shutil.which, compilers):
        extra = [f"--target={target.triple}"] if "clang" in name else []
        command = [name, *extra, *LIBRARY_FLAGS, f"-Wl,-soname,{soname}", *files, "-lm"]
        if object.stat().st_size >= LARGE_BYTES and shutil.which("ld.lld"):
            yield f"{name} with ld.lld", [*command, "-fuse-ld=lld"]
        yield name, command
    if not linker and _has_zig() and target.system in ZIG_SYSTEMS:
        system = "linux-musl" if "musl" in target.triple else ZIG_SYSTEMS[target.system]
        extra = ["-nostartfiles", f"-Wl,-soname,{soname}", "-lm"] if target.system == "linux" else []
        yield "ziglang", [*_zig("cc"), "-target", f"{target.arch}-{system}", "-shared", *files, *extra]
    for name in filter(shutil.which, bare):
        yield name, [name, *BARE_FLAGS, f"-soname={soname}", *files]


def _prefix(target: Target) -> str:
    """Prefix of tool names for a Linux target."""
    return f"{target.arch}-linux-{'musl' if 'musl' in target.triple else 'gnu'}"


def _compilers(target: Target) -> list[str]:
    """Names of compilers that may link for a Linux target, the best first."""
    is_musl = "musl" in target.triple
    native = [] if not _is_native(target) else ["musl-gcc"] if is_musl else ["cc", "gcc", "clang"]
    return [*native, f"{_prefix(target)}-gcc"]


def _bare_linkers(target: Target) -> list[str]:
    return ["ld.lld", f"{_prefix(target)}-ld", *(["ld"] if _is_native(target) else [])]


def _is_native(target: Target) -> bool:
    import platform

    return sys.platform == "linux" and platform.machine() == target.arch


def _has_zig() -> bool:
    return importlib.util.find_spec("ziglang") is not None


def _zig(command: str) -> list[str]:
    return [sys.executable, "-m", "ziglang", command]
