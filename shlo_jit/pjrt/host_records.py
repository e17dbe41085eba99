"""Records of the objects that a framework holds pointers to. Machine code and Python both read and write them.

All fields have 64 bits. The record of an object that jaxlib reads directly begins with the fields that the interface
defines.
"""

from __future__ import annotations

import ctypes

RecordFields = dict[str, int]
"""Byte offset of each field."""


def _record(*names: str) -> RecordFields:
    return {name: 8 * i for i, name in enumerate(names)}


ERROR = _record("vtable", "code", "message", "message_size")
"""An error. Its text follows the record."""
EVENT = _record("references", "is_ready", "waiting")
"""An event that will happen; `waiting` is a list of WAITER."""
WAITER = _record("next", "callback", "argument")
STORAGE = _record("references", "data", "nbytes", "release", "argument", "is_own")
"""Memory that buffers refer to. When the last reference is dropped, `release(data, argument)` is called if it is not
null; otherwise the memory is one of our blocks. `is_own`: it may be written to, since there are no other users."""
BUFFER = _record(
    *("storage", "data", "nbytes", "type", "rank", "dims", "device", "memory"),
    *("external", "state"),  # references of others to its memory; see `code/holds.py`
)
"""An array; its dimensions follow the record."""
DEVICE = _record("memory", "number")
MEMORY = _record("vtable", "device", "kind", "kind_size", "user_data", "number")
"""A memory. `user_data` is a list of USER_DATA, which the framework attaches to it."""
USER_DATA = _record("next", "key", "data")
LAYOUT = _record("text", "text_size")
EXECUTABLE = _record(
    *("main", "instance", "arena_bytes", "device"),
    *("arguments", "argument_count", "inputs"),  # ARGUMENT each; counts of the interface and of the program
    *("results", "result_count"),  # RESULT each
    *("num_replicas", "num_partitions"),
    *("references", "is_deleted"),
    *("number", "next"),  # number in Python; next in the list of destroyed ones
    *("fail", "run_many"),  # Python functions: reason of a failed call; a call on several devices
    *("input_count", "output_count"),
)
"""A loaded program: both the Executable and the LoadedExecutable of the interface."""
ARGUMENT = _record("input", "nbytes", "is_donated", "result", "type", "rank", "dims")
"""An argument. `input` is the program's, or -1 for a token; `result` is the one that takes over its memory, or -1."""
RESULT = _record("output", "nbytes", "type", "rank", "dims", "argument", "memory")
"""A result. `output` is the program's, or -1 for a token; `argument` is the one whose memory it takes over, or -1."""


def structure(fields: RecordFields) -> type[ctypes.Structure]:
    """Returns the record as a ctypes structure."""
    return type("Record", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_int64) for name in fields]})


def nbytes(fields: RecordFields) -> int:
    return 8 * len(fields)
