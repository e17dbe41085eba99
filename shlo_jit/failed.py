"""Programs that the compiler failed on, kept in the temporary folder for whoever looks into that."""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from shlo_jit import tuning
from shlo_jit.errors import InternalError

if TYPE_CHECKING:
    from shlo_jit.ir.core import Module


def with_program(error: InternalError, module: Callable[[], Module], entry: str) -> InternalError:
    """The error, with where the program is and how it is made smaller. It says no more where that cannot be told."""
    try:
        path = _write(module())
    except Exception:  # the error counts, not what goes wrong while it is told
        return error
    if path is None:
        return error
    how = "" if entry == "main" else f" --entry {shlex.quote(entry)}"
    command = f"shlo-jit reduce {shlex.quote(path)}{how} --crash -o small.mlir"
    made = InternalError(f"{error}\nThe program is in {path}; this makes it smaller:\n  {command}")
    made.__cause__ = error.__cause__ or error
    return made


def _write(module: Module) -> str | None:
    """The file with a program's text; None of one that is large."""
    from shlo_jit.ir.core import walk
    from shlo_jit.ir.types import TensorType

    constants = (r.type for op in walk(module.body) if op.name == "stablehlo.constant" for r in op.results)
    if sum(t.nbytes for t in constants if isinstance(t, TensorType)) > tuning.KEPT_PROGRAM_BYTES:
        return None
    text = str(module).encode()
    digest = hashlib.sha256(text).hexdigest()[:12]
    path = os.path.join(tempfile.gettempdir(), f"shlo_jit-{os.getuid()}-{digest}.mlir")
    if _is_ours(path):  # it failed before
        return path
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return path


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return found.st_uid == os.getuid() and os.path.isfile(path) and not os.path.islink(path)
