"""Addresses of the fields of a step's scratch memory (see `schedule/scratch.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V
from shlo_jit.schedule.scratch import Scratch


class Fields:
    """Fields at a base address; `fields[name]` emits the address of one at the builder's place."""

    def __init__(self, b: Builder, base: V, offsets: Mapping[str, int]):
        self.b, self.base, self.offsets = b, base, offsets

    def __getitem__(self, name: str) -> V:
        return self.b.offset(self.base, self.offsets[name])


def shared_fields(b: Builder, scratch: Scratch, base: V) -> Fields:
    """The fields that all threads share, in memory that begins at `base`."""
    return Fields(b, base, scratch.shared_offsets)


def worker_fields(b: Builder, scratch: Scratch, base: V, worker: V) -> Fields:
    """The fields of one thread, in memory that begins at `base`."""
    place = b.mul(worker, scratch.per_thread)
    if scratch.shared:
        place = b.add(place, scratch.fixed)
    return Fields(b, b.offset(base, place), scratch.worker_offsets)
