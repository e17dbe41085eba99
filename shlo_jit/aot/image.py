"""Contents of a library: the functions of a program for every target, and their constants, each stored once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shlo_jit import pipeline
from shlo_jit.aot.c_names import c_word, unique
from shlo_jit.aot.sized import Shapes, Sized, Unknown, read_calls
from shlo_jit.codegen import abi
from shlo_jit.codegen.library_format import WEIGHTS_ALIGNMENT
from shlo_jit.codegen.objects import Constant
from shlo_jit.codegen.program import Callback, Port, Program
from shlo_jit.errors import Diagnostic, InternalError, StableHLOError
from shlo_jit.ir.core import Module
from shlo_jit.kernels.externals import LAPACK_PREFIX
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions, OptionError

INTERFACE = (
    *("create", "destroy", "memory_bytes", "set_threads", "call", "status_text"),
    *("failed_call", "set_callback", "set_pause", "set_symbol"),
)
"""Functions of every library, named after its prefix, in the order of the record that `description.py` writes."""
SIZED = "sized"
"""Function that describes the sized functions of a library that has any."""
RESERVED = (*INTERFACE, "instance", "library")
"""Names after the prefix that are taken. A program's function of that name gets an underscore."""


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


def make_image(
    module: Module,
    name: str,
    entries: Sequence[str],
    targets: Sequence[Target],
    options: CompileOptions,
    *,
    shapes: Mapping[str, Shapes] | None = None,
    weights_in_file: bool = False,
    on_step: Callable[[str], None] = lambda what: None,
) -> Image:
    """Lowers functions of a module for targets.

    A function with unknown dimensions is lowered to one program for each of `shapes`. Raises StableHLOError if the
    program is refused, and the errors of `read_calls`.
    """
    pool = _Pool()
    sources: list[_Source] = []
    for entry in entries:
        unknown = read_calls(module, replace(options, entry=entry), (shapes or {}).get(entry))
        sources.append(_Source(entry, unknown.modules if unknown else (module,), unknown))
    variants = []
    for target in sorted(targets, key=_demands, reverse=True):
        programs = []
        for source in sources:
            for number, static in enumerate(source.modules):
                on_step(f"lowering @{source.entry}{source.describe(number)} for {target.name}")
                programs.append(pipeline.lower(static, replace(options, entry=source.entry, target=target)).program)
        offsets = tuple(tuple(map(pool.offset, p.constants)) for p in programs)
        variants.append(Variant(target, tuple(replace(p, constants=[]) for p in programs), offsets))
    functions, sized = _functions(sources, variants)
    return Image(
        name,
        functions,
        sized,
        tuple(variants),
        pool.weights(),
        weights_in_file,
        tuple(dict.fromkeys(c.target for f in functions for c in f.callbacks if c.target not in BUILT_IN)),
        tuple(dict.fromkeys(s.removeprefix(LAPACK_PREFIX) for v in variants for p in v.programs for s in p.externals)),
    )


class _Source(NamedTuple):
    """A function before lowering."""

    entry: str
    modules: tuple[Module, ...]
    unknown: Unknown | None

    def describe(self, number: int) -> str:
        """Names for messages which of its programs is lowered; empty if there is only one."""
        return f" ({number + 1} of {len(self.modules)} shapes)" if self.unknown else ""


BUILT_IN = ("shape_assertion",)
"""Custom calls that the library implements."""


def _demands(target: Target) -> tuple[int, int]:
    """Returns a sort key: how demanding a target is."""
    return target.vector_bits, target.features.count("+")


def _functions(
    sources: Sequence[_Source], variants: Sequence[Variant]
) -> tuple[tuple[Function, ...], tuple[Sized, ...]]:
    found: list[Function] = []
    sized: list[Sized] = []
    c_names = {*RESERVED, *([SIZED] if any(s.unknown for s in sources) else [])}
    for source in sources:
        c_name = unique(c_word(source.entry), c_names)
        first = len(found)
        for _ in source.modules:
            found.append(_function(source.entry, "" if source.unknown else c_name, found, variants))
        if source.unknown:
            shapes_name = unique(f"{c_word(source.entry)}_shapes", c_names)
            sized.append(_sized(source.unknown, (source.entry, c_name, shapes_name), found[first:], first))
    return tuple(found), tuple(sized)


def _function(entry: str, c_name: str, before: Sequence[Function], variants: Sequence[Variant]) -> Function:
    """Returns the function that follows those in `before`."""
    programs = [v.programs[len(before)] for v in variants]
    first = programs[0]
    if any([c.target for c in p.callbacks] != [c.target for c in first.callbacks] for p in programs):
        raise InternalError(f"shlo_jit lowered @{entry} to different custom calls for different targets")
    if any(p.output_aliases != first.output_aliases or p.overwritten != first.overwritten for p in programs):
        raise InternalError(f"shlo_jit lowered @{entry} to different aliases for different targets")
    return Function(
        entry,
        c_name,
        first.inputs,
        first.outputs,
        first.output_aliases,
        tuple(first.overwritten),
        tuple(first.callbacks),
        sum(len(f.callbacks) for f in before),
        all(p.is_short for p in programs),
    )


def _sized(unknown: Unknown, names: tuple[str, str, str], functions: Sequence[Function], first: int) -> Sized:
    """Returns the sized function over `functions`. Raises OptionError if a result shares a donated argument's memory in
    only some of them."""
    aliases = functions[0].aliases
    if any(f.aliases != aliases for f in functions):
        raise OptionError(f"donate: @{names[0]} has results in donated memory for only some of the shapes")
    overwritten = sorted({i for f in functions for i in f.overwritten})
    ports = unknown.inputs, unknown.outputs
    return Sized(*names, *ports, unknown.by_value, unknown.calls, first, aliases, tuple(overwritten))


def check_entries(module: Module, entries: Sequence[str]) -> None:
    """Raises StableHLOError for an entry that the module does not have."""
    for entry in entries:
        if module.function(entry) is None:
            known = ", ".join("@" + f.attributes["sym_name"] for f in module.functions())
            message = f"no function @{entry}; the program has {known or 'none'}"
            raise StableHLOError(Diagnostic(message, module.source.name))


class _Pool:
    """Assigns offsets to constants."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._constants: list[Constant] = []
        self._offsets: list[int] = []
        self._end = 0

    def offset(self, array: np.ndarray) -> int:
        """Returns the offset of a constant among the weights: that of an equal constant, or a new one."""
        constant = Constant.of(array)
        key = constant.digest or hashlib.sha256(constant.data.data).hexdigest()
        if key not in self._known:
            self._known[key] = self._end
            self._constants.append(constant)
            self._offsets.append(self._end)
            self._end += -(-constant.data.nbytes // WEIGHTS_ALIGNMENT) * WEIGHTS_ALIGNMENT
        return self._known[key]

    def weights(self) -> Weights:
        return Weights(tuple(self._constants), tuple(self._offsets), self._end)


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
