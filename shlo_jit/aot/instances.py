"""Memory layout of an instance of a library.

An instance has a lock, a head with the fields FIELDS, the entries of its functions, and their records of
`codegen/abi.py`. The arena is allocated separately, or follows the records if the host provides the memory. Fields are
8 bytes apart on every machine, including pointers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.aot.image import Image, record_bytes
from shlo_jit.aot.services import LOCK_BYTES
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V
from shlo_jit.schedule.scratch import ALIGN

FIELDS = {
    "threads": "i64",
    "variant": "i64",  # the variant whose code this processor runs
    "arena": "ptr",
    "arena_bytes": "i64",
    "owns_memory": "i64",  # 1, or 0 if head and arena belong to the host
    "callback": "ptr",  # the host's, for custom calls; null: functions by name
    "context": "ptr",  # the first argument of the callback
    "weights": "ptr",
    "mapped_bytes": "i64",  # of the mapped file of weights; 0 if none is mapped
    "failed_call": "i64",  # number of the custom call that last made a call fail; -1 if none
}


class Layout(NamedTuple):
    """Byte offsets in an instance."""

    entries: int
    """Offset of the addresses of the functions' code."""
    records: tuple[int, ...]
    nbytes: int
    """Size of the instance without the arena."""


def layout(image: Image) -> Layout:
    """Layout of the instances of a library."""
    entries = LOCK_BYTES + 8 * len(FIELDS)
    end = entries + 8 * len(image.functions)
    records = []
    for function in range(len(image.functions)):
        end = -(-end // ALIGN) * ALIGN
        records.append(end)
        end += record_bytes(image, function)
    return Layout(entries, tuple(records), -(-end // ALIGN) * ALIGN)


def place(b: Builder, instance: V, name: str) -> V:
    """Address of a field of the head."""
    return b.offset(instance, LOCK_BYTES + 8 * list(FIELDS).index(name))


def load(b: Builder, instance: V, name: str) -> V:
    return b.load(FIELDS[name], place(b, instance, name))


def store(b: Builder, instance: V, values: Sequence[tuple[str, V]]) -> None:
    """Stores fields of the head."""
    for name, value in values:
        assert value.type == FIELDS[name]
        b.store(value, place(b, instance, name))
