"""shlo_jit compiles StableHLO, as text, as a portable artifact, or built in Python, to CPU machine code.

    exe = shlo_jit.compile(text)
    y = exe(x, w)

Importing the package loads only what a program from the object cache needs. LLVM and the stages of the compiler are
imported to compile a program that the cache does not have.
"""

from __future__ import annotations

from shlo_jit import startup  # isort: skip  # noqa: F401  first: Ctrl-C may come during the slow imports below
from shlo_jit import verify as _package  # isort: skip  # noqa: F401  a later import would replace the function
import importlib
from typing import TYPE_CHECKING, Any

from shlo_jit.api import compile, export, infer, load, parse, refine, tune, verify
from shlo_jit.custom.functions import LLVMFunction, array_function, elementwise
from shlo_jit.errors import (
    Diagnostic,
    ExecutionError,
    ExportError,
    InternalError,
    LibraryError,
    ParseError,
    StableHLOError,
    UnsupportedError,
    UsageError,
    VerifyError,
    WorkerError,
    WorkerTimeoutError,
)
from shlo_jit.runtime.callbacks import register_custom_call
from shlo_jit.version import __version__

if TYPE_CHECKING:
    from shlo_jit.builder.jit import jit
    from shlo_jit.runtime.array_files import mapped_arrays
    from shlo_jit.runtime.ffi.state_types import register_ffi_type

__all__ = [
    "Diagnostic",
    "ExecutionError",
    "ExportError",
    "InternalError",
    "LLVMFunction",
    "LibraryError",
    "ParseError",
    "StableHLOError",
    "UnsupportedError",
    "UsageError",
    "VerifyError",
    "WorkerError",
    "WorkerTimeoutError",
    "__version__",
    "array_function",
    "compile",
    "elementwise",
    "export",
    "infer",
    "jit",
    "load",
    "mapped_arrays",
    "parse",
    "refine",
    "register_custom_call",
    "register_ffi_type",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Imports some attributes on first access: the builder imports this module, and few programs use the others."""
    if name == "jit":
        return importlib.import_module("shlo_jit.builder.jit").jit
    if name == "builder":
        return importlib.import_module("shlo_jit.builder")
    if name == "mapped_arrays":
        return importlib.import_module("shlo_jit.runtime.array_files").mapped_arrays
    if name == "register_ffi_type":
        return importlib.import_module("shlo_jit.runtime.ffi.state_types").register_ffi_type
    raise AttributeError(f"module 'shlo_jit' has no attribute {name!r}")
