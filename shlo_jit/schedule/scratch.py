"""Scratch memory of steps, in a separate file: loading a program needs it, and nothing else of a plan.

A kernel states its scratch memory as fields with names and sizes, once, where it is scheduled. Memory planning adds
them up, and lowering asks for the address of a field by its name (`lower/scratch.py`): no offset and no size is
computed a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ALIGN = 64
"""Alignment of everything in the arena, in bytes."""


class ScratchBytes(NamedTuple):
    """Bytes of scratch memory of a step."""

    fixed: int = 0
    per_thread: int = 0
    """Additional bytes per thread that a call may use. The number of threads is unknown before a program is loaded."""

    def nbytes(self, threads: int) -> int:
        return self.fixed + threads * self.per_thread


class Field(NamedTuple):
    """A part of a step's scratch memory."""

    name: str
    nbytes: int
    """Size in bytes; may be a size that is known only at the call."""
    align: int = ALIGN
    """Alignment of the offset, in bytes: a divisor of ALIGN."""


@dataclass(frozen=True)
class Scratch:
    """The fields of a step's scratch memory: first those that all threads share, then the private ones of each
    thread."""

    shared: tuple[Field, ...] = ()
    worker: tuple[Field, ...] = ()
    """Private fields of each thread that works on the step's tasks."""
    routine: ScratchBytes | None = None
    """Memory whose layout the routine decides; a step with such memory has no fields."""

    def __post_init__(self) -> None:
        assert self.routine is None or not (self.shared or self.worker), "fields beside a routine's own memory"

    @classmethod
    def of(cls, nbytes: Callable[[int], int]) -> Scratch:
        """A routine's memory: a number of bytes that grows linearly with the number of threads."""
        one, two = nbytes(1), nbytes(2)
        return cls(routine=ScratchBytes(2 * one - two, two - one))

    @cached_property
    def bytes(self) -> ScratchBytes:
        """Total size."""
        if self.routine is not None:
            return self.routine
        return ScratchBytes(total(self.shared), total(self.worker))

    @property
    def fixed(self) -> int:
        return self.bytes.fixed

    @property
    def per_thread(self) -> int:
        return self.bytes.per_thread

    @cached_property
    def shared_offsets(self) -> Mapping[str, int]:
        """Bytes from the beginning of the memory to each shared field."""
        return _offsets(self.shared)

    @cached_property
    def worker_offsets(self) -> Mapping[str, int]:
        """Bytes from the beginning of a thread's part to each of its fields."""
        return _offsets(self.worker)


def aligned(nbytes: int, align: int = ALIGN) -> int:
    """Rounds up to a multiple of an alignment, by default that of everything in the arena."""
    return -(-nbytes // align) * align


def total(fields: Iterable[Field]) -> int:
    """Bytes of consecutive fields, with the end aligned for the next allocation."""
    end = 0
    for field in fields:
        end = aligned(end, field.align) + field.nbytes
    return aligned(end)


def _offsets(fields: Iterable[Field]) -> dict[str, int]:
    found: dict[str, int] = {}
    end = 0
    for field in fields:
        assert field.name not in found, f"two fields named {field.name}"
        found[field.name] = aligned(end, field.align)
        end = found[field.name] + field.nbytes
    return found
