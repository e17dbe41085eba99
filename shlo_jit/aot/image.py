"""Contents of a library: the functions of a program for every target, and their constants, each stored once."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import NamedTuple

from shlo_jit.aot.sized import Sized
from shlo_jit.codegen import abi
from shlo_jit.codegen.objects import Constant
from shlo_jit.codegen.program import Callback, Port, Program
from shlo_jit.kernels.target import Target

INTERFACE = (
    *("create", "destroy", "memory_bytes", "set_threads", "call", "status_text"),
    *("failed_call", "set_callback", "set_pause", "set_symbol"),
)
"""Functions of every library, named after its prefix, in the order of the record that `description.py` writes."""
SIZED = "sized"
"""Function that describes the sized functions of a library that has any."""
RESERVED = (*INTERFACE, "instance", "library")
"""Names after the prefix that are taken. A program's function of that name gets an underscore."""


BUILT_IN = ("shape_assertion",)
"""Custom calls that the library implements."""


class Variant(NamedTuple):
    """All functions, lowered for one target."""

    target: Target
    programs: tuple[Program, ...]
    """One program per function, in the order of the functions."""
    constants: tuple[tuple[int, ...], ...]
    """For each program, the offsets of its constants among the weights."""


class Function(NamedTuple):
    """A function of the program for any target, or one specialization of a function with unknown dimensions."""

    name: str
    """Name in the StableHLO program."""
    c_name: str
    """Name after the prefix. Empty if the function is a specialization of a sized function."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    aliases: dict[int, int]
    """Maps a result to the donated argument whose pointer it shares."""
    overwritten: tuple[int, ...]
    callbacks: tuple[Callback, ...]
    first_callback: int
    """Number of the first of `callbacks` among all callbacks of the library."""
    is_short: bool
    """See `Program.is_short`."""


class Weights(NamedTuple):
    """The constants of all programs, each stored once."""

    constants: tuple[Constant, ...]
    offsets: tuple[int, ...]
    nbytes: int

    @property
    def identity(self) -> bytes:
        """32 bytes that identify the contents of the weights."""
        digests = (c.digest or hashlib.sha256(c.data.data).hexdigest() for c in self.constants)
        return hashlib.sha256("".join(digests).encode()).digest()


class Image(NamedTuple):
    """A library before code generation."""

    name: str
    """Prefix of all its symbols."""
    functions: tuple[Function, ...]
    sized: tuple[Sized, ...]
    variants: tuple[Variant, ...]
    """Variants in descending order of their demands. A library uses the first whose features the processor has."""
    weights: Weights
    weights_in_file: bool
    custom_calls: tuple[str, ...]
    """Targets of custom calls, which are C functions of the host."""
    lapack: tuple[str, ...]
    """Names of LAPACK and BLAS functions, without Fortran's underscore."""

    @property
    def callbacks(self) -> tuple[Callback, ...]:
        return tuple(c for f in self.functions for c in f.callbacks)

    @property
    def c_names(self) -> list[str]:
        """Names after the prefix: the C functions that run programs, and those about sizes."""
        about_sizes = [name for s in self.sized for name in (s.c_name, s.shapes_name)]
        return [*(f.c_name for f in self.functions if f.c_name), *about_sizes, *([SIZED] if self.sized else [])]


def weights_of(image: Image) -> list[tuple[int, int]]:
    """For each target, the bytes of the constants that its code reads, and the bytes that no other target's code reads.

    Weights are packed for the vectors and registers of a target.
    """
    sizes = {at: c.data.nbytes for at, c in zip(image.weights.offsets, image.weights.constants, strict=True)}
    used = [{offset for program in v.constants for offset in program} for v in image.variants]
    readers = Counter(offset for offsets in used for offset in offsets)
    return [
        (sum(sizes[at] for at in offsets), sum(sizes[at] for at in offsets if readers[at] == 1)) for offsets in used
    ]


def arena_terms(variant: Variant) -> list[tuple[int, int]]:
    """Returns (fixed, per thread) bytes for each demand on the arena, which needs the greatest of them.

    There is one for every step that needs scratch memory, and one for every function without scratch memory.
    """
    terms: dict[tuple[int, int], None] = {}
    for program in variant.programs:
        terms[program.arena_bytes, 0] = None
        for scratch in program.scratch:
            terms[program.arena_bytes + scratch.fixed, scratch.per_thread] = None
    return list(terms)


def record_bytes(image: Image, function: int) -> int:
    """Bytes of the record of a function's instance, for the variant with the most constants."""
    return abi.instance_bytes(max(len(v.constants[function]) for v in image.variants))
