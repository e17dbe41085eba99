"""The objects that a framework holds pointers to, as records: machine code and Python both read and write them.

All fields are 64 bits. A record of an object that jaxlib looks into begins with what the interface says of it.
"""

from __future__ import annotations

import ctypes

RecordFields = dict[str, int]
"""Byte offset of each field."""


def _record(*names: str) -> RecordFields:
    return {name: 8 * i for i, name in enumerate(names)}


ERROR = _record("vtable", "code", "message", "message_size")
"""The text lies behind it."""
EVENT = _record("references", "is_ready", "waiting")
"""Something that will have happened; `waiting`: a list of WAITER."""
WAITER = _record("next", "callback", "argument")
STORAGE = _record("references", "data", "nbytes", "release", "argument", "is_own")
"""Memory that buffers refer to. With the last reference `release(data, argument)` is called, if it is not null; else it
is a block of ours. `is_own`: it may be written to, since nobody else knows it."""
BUFFER = _record(
    *("storage", "data", "nbytes", "type", "rank", "dims", "device", "memory"),
    *("external", "state"),  # references of others to its memory; see `code/holds.py`
)
"""An array; its dimensions lie behind the record."""
DEVICE = _record("memory", "number")
MEMORY = _record("vtable", "device", "kind", "kind_size", "user_data", "number")
"""`user_data`: a list of USER_DATA, which the framework keeps with it."""
USER_DATA = _record("next", "key", "data")
LAYOUT = _record("text", "text_size")
EXECUTABLE = _record(
    *("main", "instance", "arena_bytes", "device"),
    *("arguments", "argument_count", "inputs"),  # ARGUMENT each; how many of the interface's, and of the program's
    *("results", "result_count"),  # RESULT each
    *("num_replicas", "num_partitions"),
    *("references", "is_deleted"),
    *("number", "next"),  # what Python knows it by; of those that were destroyed
    *("fail", "run_many"),  # Python: why a call failed; a call of several devices
    *("input_count", "output_count"),
)
"""A loaded program: the interface's Executable and LoadedExecutable both."""
ARGUMENT = _record("input", "nbytes", "is_donated", "result", "type", "rank", "dims")
"""`input`: the program's, or -1 for a token; `result`: that takes its memory over, or -1."""
RESULT = _record("output", "nbytes", "type", "rank", "dims", "argument", "memory")
"""`output`: the program's, or -1 for a token; `argument`: whose memory it takes over, or -1."""


def structure(fields: RecordFields) -> type[ctypes.Structure]:
    """The record for ctypes."""
    return type("Record", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_int64) for name in fields]})


def nbytes(fields: RecordFields) -> int:
    return 8 * len(fields)
