"""Schedules that were found by measuring (`shlo_jit.tune`), in the object cache: for a program, its options, this
processor and a number of threads."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from shlo_jit.codegen import processor
from shlo_jit.options import CompileOptions, GivenMoves, StoredSchedule
from shlo_jit.runtime.cache import ObjectCache, schedule_key

STORED: tuple[StoredSchedule, ...] = get_args(StoredSchedule)
"""The words for a stored schedule, in the place of moves."""
EXACT, ANY_ROUNDING = STORED


def key_of(program: bytes, options: CompileOptions, kind: StoredSchedule) -> str:
    """Returns the key of a program's schedule. `program` identifies the program."""
    return schedule_key(program, options, _processor(), kind)


def find(program: bytes, options: CompileOptions, kind: StoredSchedule, cache: ObjectCache) -> GivenMoves | None:
    """Returns the stored schedule of a program, or None. If any rounding is allowed but no such schedule is stored, it
    is the one that keeps the bits."""
    for word in (kind, EXACT):
        found = cache.read(key_of(program, options, word), _read)
        if found is not None:
            return found
    return None


def store(key: str, moves: GivenMoves, cache: ObjectCache) -> bool:
    """Stores a schedule. Returns False if that failed."""
    from shlo_jit.schedule.moves import to_json

    return cache.store(key, {"kind": "schedule", "moves": {label: to_json(found) for label, found in moves}}, [])


def _read(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> GivenMoves:
    from shlo_jit.schedule.moves import from_json

    if header["kind"] != "schedule" or blobs:
        raise ValueError("no schedule")
    return tuple((str(label), from_json(found)) for label, found in sorted(header["moves"].items()))


@functools.cache
def _processor() -> bytes:
    return processor.description() or b""
