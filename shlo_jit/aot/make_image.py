"""Lowers the functions of a module for all targets of a library, and stores each constant once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shlo_jit import pipeline
from shlo_jit.aot.c_names import c_word, unique
from shlo_jit.aot.image import BUILT_IN, RESERVED, SIZED, Function, Image, Variant, Weights
from shlo_jit.aot.read_calls import read_calls
from shlo_jit.aot.sized import Shapes, Sized, Unknown
from shlo_jit.bind_constants import bound, donated_left
from shlo_jit.codegen.library_format import WEIGHTS_ALIGNMENT
from shlo_jit.codegen.objects import Constant
from shlo_jit.errors import Diagnostic, InternalError, StableHLOError
from shlo_jit.ir.core import Module
from shlo_jit.kernels.externals import LAPACK_PREFIX
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions, OptionError
from shlo_jit.runtime.given_arrays import GivenArray


def make_image(
    module: Module,
    name: str,
    entries: Sequence[str],
    targets: Sequence[Target],
    options: CompileOptions,
    *,
    shapes: Mapping[str, Shapes] | None = None,
    constants: Mapping[str, Sequence[GivenArray]] | None = None,
    weights_in_file: bool = False,
    on_step: Callable[[str], None] = lambda what: None,
) -> Image:
    """Lowers functions of a module for targets.

    A function with unknown dimensions is lowered to one program for each of `shapes`. `constants`: arrays for arguments
    of functions. Raises StableHLOError if the program is refused, and the errors of `read_calls` and `bound`.
    """
    pool = _Pool()
    sources: list[_Source] = []
    for entry in entries:
        given, own = (constants or {}).get(entry, ()), replace(options, entry=entry)
        program = bound(module, own, given) if given else module
        own = donated_left(module, own, given) if given else own
        unknown = read_calls(program, own, (shapes or {}).get(entry))
        sources.append(_Source(own, unknown.modules if unknown else (program,), unknown))
    variants = []
    for target in sorted(targets, key=_demands, reverse=True):
        programs = []
        for source in sources:
            for number, static in enumerate(source.modules):
                on_step(f"lowering @{source.entry}{source.describe(number)} for {target.name}")
                programs.append(pipeline.lower(static, replace(source.options, target=target)).program)
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

    options: CompileOptions
    modules: tuple[Module, ...]
    unknown: Unknown | None

    @property
    def entry(self) -> str:
        return self.options.entry

    def describe(self, number: int) -> str:
        """Names for messages which of its programs is lowered; empty if there is only one."""
        return f" ({number + 1} of {len(self.modules)} shapes)" if self.unknown else ""


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
