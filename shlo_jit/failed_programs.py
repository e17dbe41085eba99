"""Programs that failed are written to the temporary folder for the analysis."""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections.abc import Callable

from shlo_jit import tuning
from shlo_jit.ir.core import Module, walk
from shlo_jit.ir.dynamic_values import has_dynamic_shapes
from shlo_jit.ir.types import TensorType


def keep(program: Callable[[], Module], entry: str) -> tuple[str, list[str]]:
    """Writes the program to a file; returns its path, or nothing, and lines for the message."""
    try:
        module = program()
        if _constant_bytes(module) > tuning.KEPT_PROGRAM_BYTES:
            return "", [f"Its constants have more than {tuning.KEPT_PROGRAM_BYTES >> 20} MiB: it is not kept."]
        path = _write(str(module).encode())
    except OSError as error:
        return "", [f"It could not be kept in a file: {error.strerror or error}"]
    except Exception:  # it cannot even be read or printed: report the original error
        return "", []
    if has_dynamic_shapes(module):  # programs with unknown dimensions are only compiled when they are called
        return path, [f"The program is in {path}"]
    how = "" if entry == "main" else f" --entry {shlex.quote(entry)}"
    command = f"shlo-jit reduce {shlex.quote(path)}{how} --crash -o small.mlir"
    return path, [f"The program is in {path}; this makes it smaller:", f"  {command}"]


def _constant_bytes(module: Module) -> int:
    constants = (r.type for op in walk(module.body) if op.name == "stablehlo.constant" for r in op.results)
    return sum(t.nbytes for t in constants if isinstance(t, TensorType))


def _write(text: bytes) -> str:
    """Returns the file with a program's text, the same one for the same program.

    It is written atomically, even if another process writes it or the disk is full. Raises OSError.
    """
    folder = tempfile.gettempdir()
    name = f"shlo_jit-{os.getuid()}-{hashlib.sha256(text).hexdigest()[:12]}"
    path = os.path.join(folder, f"{name}.mlir")
    if _is_ours(path):
        return path
    descriptor, own = tempfile.mkstemp(".mlir", f"{name}-", folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(text)
    except OSError:
        os.unlink(own)
        raise
    try:
        os.replace(own, path)
    except OSError:  # another user's file has the name
        return own
    return path


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return found.st_uid == os.getuid() and os.path.isfile(path) and not os.path.islink(path)
