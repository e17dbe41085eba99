"""Memory that steps work in, in a file of its own: whoever loads a program needs it, and nothing else of a plan.

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
"""Of everything in the arena."""


class ScratchBytes(NamedTuple):
    """Bytes of memory that a step works in."""

    fixed: int = 0
    per_thread: int = 0
    """More for each thread that a call may use, which is not known before a program is loaded."""

    def nbytes(self, threads: int) -> int:
        return self.fixed + threads * self.per_thread


class Field(NamedTuple):
    """A part of a step's scratch memory."""

    name: str
    nbytes: int
    """Also a size that is known at the call only."""
    align: int = ALIGN
    """Its offset is a multiple of this, a divisor of ALIGN."""


@dataclass(frozen=True)
class Scratch:
    """The fields of a step's scratch memory: first those that all threads share, then for each thread its own."""

    shared: tuple[Field, ...] = ()
    worker: tuple[Field, ...] = ()
    """Each thread that works on the step's tasks has these for itself."""
    routine: ScratchBytes | None = None
    """What a routine asks for, which divides it by itself; a step with such memory has no fields."""

    def __post_init__(self) -> None:
        assert self.routine is None or not (self.shared or self.worker), "fields beside a routine's own memory"

    @classmethod
    def of(cls, nbytes: Callable[[int], int]) -> Scratch:
        """A routine's memory: a count of bytes that grows evenly with the number of threads."""
        one, two = nbytes(1), nbytes(2)
        return cls(routine=ScratchBytes(2 * one - two, two - one))

    @cached_property
    def bytes(self) -> ScratchBytes:
        """How much it is."""
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
        """Bytes from the beginning of a thread's own part to each of its fields."""
        return _offsets(self.worker)


def aligned(nbytes: int, align: int = ALIGN) -> int:
    """The next multiple of an alignment, by default that of everything in the arena."""
    return -(-nbytes // align) * align


def total(fields: Iterable[Field]) -> int:
    """Bytes of fields one after the other, the end aligned for whatever follows."""
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
