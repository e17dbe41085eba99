"""Programs and routines as object code: compiled from their LLVM text, written to and read from flat files.

A `Compiled` is all that is needed to load and call a program; it does not refer to earlier stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.codegen.program import Callback, CodeCall, Port, Program, Reader, TimedStep
from shlo_jit.ir.digests import digest
from shlo_jit.ir.dtypes import DTYPES
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.scratch import ScratchBytes
from shlo_jit.schedule.site import Site
from shlo_jit.sizes import Symbol

if TYPE_CHECKING:
    from shlo_jit.codegen.background import Background

Blob = bytes | memoryview | np.ndarray


class Constant(NamedTuple):
    """An array that a program reads at run time, besides its arguments."""

    data: np.ndarray
    """Its bytes, u8[n]."""
    digest: str
    """SHA-256 of the bytes, in hexadecimal; empty if there are fewer than SHARED_CONSTANT_BYTES."""

    @classmethod
    def of(cls, array: np.ndarray) -> Constant:
        """A constant that does not change with the array."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if data.flags.writeable:
            data = data.copy()
        return cls(data, digest(data) if data.nbytes >= tuning.SHARED_CONSTANT_BYTES else "")


@dataclass(frozen=True)
class Compiled:
    """A program as machine code. The fields are those of `Program`, with `objects` in place of its text."""

    objects: tuple[bytes, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_bytes: int
    scratch: tuple[ScratchBytes, ...]
    constants: tuple[Constant, ...]
    callbacks: tuple[Callback, ...]
    routines: tuple[str, ...]
    """Names of the routines it links against."""
    output_aliases: Mapping[int, int] = field(default_factory=dict)
    overwritten: tuple[int, ...] = ()
    externals: tuple[str, ...] = ()
    is_short: bool = False
    symbol: Symbol | None = None
    timed: tuple[TimedStep, ...] = ()
    sites: tuple[Site, ...] = ()
    channels: tuple[int, ...] = ()
    readers: tuple[Reader, ...] = ()
    codes: tuple[CodeCall, ...] = ()


@dataclass(frozen=True)
class CompiledRoutine:
    """A routine as machine code."""

    name: str
    symbols: tuple[str, ...]
    needs: tuple[str, ...]
    objects: tuple[bytes, ...]


def compile_program(
    program: Program,
    target: Target,
    level: int | None = None,
    verify: bool = True,
    parts: int = 1,
    background: Background | None = None,
) -> Compiled:
    """Optimizes a program's text and generates code for it. A large program is split into at most `parts` parts; all
    but the last run in the background if there is one. Raises InternalError if LLVM refuses the text."""
    from shlo_jit.codegen.optimize import DEFAULT_LEVEL
    from shlo_jit.codegen.split import split

    level = DEFAULT_LEVEL if level is None else level
    jobs = [partial(generate, text, target, level, verify) for text in split(program.text, parts)]
    if background is not None:
        jobs = [*(background.start(job).result for job in jobs[:-1]), jobs[-1]]
    last = jobs[-1]()
    if background is not None:
        background.help()
    names = [routine.name for routine in program.routines]
    if uses_pool_functions(program.text) and "threads" not in names:
        names.append("threads")
    return Compiled(
        objects=(*(job() for job in jobs[:-1]), last),
        inputs=program.inputs,
        outputs=program.outputs,
        arena_bytes=program.arena_bytes,
        scratch=program.scratch,
        constants=tuple(map(Constant.of, program.constants)),
        callbacks=tuple(program.callbacks),
        routines=tuple(names),
        output_aliases=dict(program.output_aliases),
        overwritten=tuple(program.overwritten),
        externals=tuple(program.externals),
        is_short=program.is_short,
        symbol=program.symbol,
        timed=program.timed,
        sites=program.sites,
        channels=program.channels,
        readers=program.readers,
        codes=program.codes,
    )


def generate(text: str, target: Target, level: int, verify: bool = True) -> bytes:
    """Returns the object code of an LLVM text. May run in any thread. Raises InternalError if LLVM refuses it."""
    from shlo_jit.codegen import optimize

    return optimize.emit_object(optimize.optimize(text, target, level, verify), target)


def uses_pool_functions(text: str) -> bool:
    """Whether an LLVM text calls functions of `kernels/threads/pool.py`."""
    return "@shlo_parallel" in text or "@shlo_is_stopped" in text


def routine_text(routine: Routine, target: Target) -> str:
    """Returns the LLVM text of a routine."""
    from shlo_jit.kernels.builder import ModuleText

    module = ModuleText(target)
    routine.build(module, target)
    return module.text()


def begin_routine(
    routine: Routine, target: Target, parts: int = 1, background: Background | None = None
) -> Callable[[], CompiledRoutine]:
    """Writes a routine, in at most `parts` parts, and begins to generate code for it if there is a `background`. The
    returned function waits for the code, and raises InternalError if LLVM refuses the text."""
    from shlo_jit.codegen.optimize import DEFAULT_LEVEL
    from shlo_jit.codegen.split import split

    text = routine_text(routine, target)
    needs = [need.name for need in routine.needs]
    if uses_pool_functions(text) and "shlo_parallel" not in routine.symbols and "threads" not in needs:
        needs.append("threads")
    jobs = [partial(generate, part, target, DEFAULT_LEVEL) for part in split(text, parts)]
    if background is not None:
        jobs = [background.start(job).result for job in jobs]
    return lambda: CompiledRoutine(routine.name, routine.symbols, tuple(needs), tuple(job() for job in jobs))


def compile_routine(routine: Routine, target: Target) -> CompiledRoutine:
    """Writes a routine and generates code for it. Raises InternalError if LLVM refuses the text."""
    return begin_routine(routine, target)()


# ---------------------------------------------------------------------- to and from files
def program_entry(compiled: Compiled) -> tuple[dict[str, Any], list[Blob]]:
    """Returns a header (JSON) and blobs, without the constants that have a digest; `read_program` is the inverse."""
    header = {
        "kind": "program",
        "objects": len(compiled.objects),
        "inputs": [write_port(p) for p in compiled.inputs],
        "outputs": [write_port(p) for p in compiled.outputs],
        "arena_bytes": compiled.arena_bytes,
        "scratch": compiled.scratch,
        "constants": [c.digest for c in compiled.constants],
        "callbacks": [{**write_callback(c), "place": c.place} for c in compiled.callbacks],
        "routines": list(compiled.routines),
        "output_aliases": sorted(compiled.output_aliases.items()),
        "overwritten": list(compiled.overwritten),
        "externals": list(compiled.externals),
        "is_short": compiled.is_short,
        "symbol": compiled.symbol,
        "sites": compiled.sites,
        "channels": compiled.channels,
        "readers": compiled.readers,
        "codes": compiled.codes,
    }
    return header, [*compiled.objects, *(c.data for c in compiled.constants if not c.digest)]


def read_program(
    header: Mapping[str, Any],
    blobs: Sequence[memoryview],
    find: Callable[[str], np.ndarray | None] = lambda digest: None,
) -> Compiled:
    """Reads the program of an entry; `find` returns the bytes of constants by digest. Raises KeyError, TypeError or
    ValueError for an invalid header, and KeyError for a constant that is not found."""
    if header["kind"] != "program":
        raise ValueError("not a program")
    n = header["objects"]
    own = map(_read_bytes, blobs[n:])
    constants = [_found(digest, find) if digest else Constant(next(own), "") for digest in header["constants"]]
    if any(True for _ in own):
        raise ValueError("more blobs than constants")
    return Compiled(
        objects=tuple(bytes(b) for b in blobs[:n]),
        inputs=tuple(read_port(p) for p in header["inputs"]),
        outputs=tuple(read_port(p) for p in header["outputs"]),
        arena_bytes=header["arena_bytes"],
        scratch=tuple(ScratchBytes(*row) for row in header["scratch"]),
        constants=tuple(constants),
        callbacks=tuple(read_callback(c) for c in header["callbacks"]),
        routines=tuple(header["routines"]),
        output_aliases={int(r): int(a) for r, a in header["output_aliases"]},
        overwritten=tuple(map(int, header["overwritten"])),
        externals=tuple(header["externals"]),
        is_short=header["is_short"],
        symbol=None if header["symbol"] is None else Symbol(*header["symbol"]),
        sites=tuple(Site(*row) for row in header["sites"]),
        channels=tuple(header["channels"]),
        readers=tuple(map(Reader, header["readers"])),
        codes=tuple(CodeCall(target, place, tuple(errors)) for target, place, errors in header["codes"]),
    )


def _found(digest: str, find: Callable[[str], np.ndarray | None]) -> Constant:
    data = find(digest)
    if data is None:
        raise KeyError(f"constant {digest}")
    return Constant(data, digest)


def _read_bytes(blob: memoryview) -> np.ndarray:
    return np.frombuffer(blob, np.uint8)


def constant_entry(constant: Constant) -> tuple[dict[str, Any], list[Blob]]:
    """Returns header and blobs of a constant with a digest, like `program_entry`."""
    return {"kind": "constant"}, [constant.data]


def read_constant(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> np.ndarray:
    """Reads the bytes of a constant, like `read_program`."""
    if header["kind"] != "constant":
        raise ValueError("not a constant")
    (blob,) = blobs
    return _read_bytes(blob)


def routine_entry(routine: CompiledRoutine) -> tuple[dict[str, Any], list[Blob]]:
    """Returns header and blobs of a routine, like `program_entry`."""
    symbols, needs = list(routine.symbols), list(routine.needs)
    return {"kind": "routine", "name": routine.name, "symbols": symbols, "needs": needs}, list(routine.objects)


def read_routine(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> CompiledRoutine:
    """Reads a routine, like `read_program`."""
    if header["kind"] != "routine":
        raise ValueError("not a routine")
    objects = tuple(bytes(blob) for blob in blobs)
    return CompiledRoutine(header["name"], tuple(header["symbols"]), tuple(header["needs"]), objects)


def _dtype_name(dtype: np.dtype) -> str:
    return next((name for name, d in DTYPES.items() if d.numpy == dtype), dtype.str)


def _dtype(name: str) -> np.dtype:
    return DTYPES[name].numpy if name in DTYPES else np.dtype(name)


def write_port(port: Port) -> list[Any]:
    return [port.name, list(port.shape), port.dtype.name]


def read_port(row: Sequence[Any]) -> Port:
    name, shape, dtype = row
    return Port(name, tuple(shape), DTYPES[dtype])


def write_callback(callback: Callback) -> dict[str, Any]:
    return {
        "target": callback.target,
        "operands": [write_port(p) for p in callback.operands],
        "results": [write_port(p) for p in callback.results],
        "attributes": _write_value(callback.attributes),
        "orders": [callback.operand_orders, callback.result_orders],
        "aliases": list(callback.aliases.items()),
        "api_version": callback.api_version,
        "attribute_types": callback.attribute_types,
        "tokens": [callback.operand_tokens, callback.result_tokens],
    }


def read_callback(row: Mapping[str, Any]) -> Callback:
    operands, results = (tuple(read_port(p) for p in row[k]) for k in ("operands", "results"))
    before, after = (tuple(tuple(order) for order in side) for side in row["orders"])
    tokens = [tuple(side) for side in row.get("tokens", ((), ()))]
    return Callback(
        row["target"],
        operands,
        results,
        _read_value(row["attributes"]),
        before,
        after,
        dict(row["aliases"]),
        row.get("place", ""),
        row.get("api_version", 1),
        row.get("attribute_types", {}),
        *tokens,
    )


def _write_value(value: Any) -> Any:
    """Returns an attribute's value in JSON. Values that JSON cannot hold become a list whose head names the type.
    Raises TypeError for types that attributes do not have."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, list | tuple):
        return ["list" if isinstance(value, list) else "tuple", *map(_write_value, value)]
    if isinstance(value, dict):
        return ["dict", *([_write_value(k), _write_value(v)] for k, v in value.items())]
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return [kind, _dtype_name(array.dtype), list(array.shape), array.tobytes().hex()]
    raise TypeError(f"cannot write an attribute of type {type(value).__name__}")


def _read_value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind == "complex":
        return complex(*rest)
    if kind == "dict":
        return {_read_value(k): _read_value(v) for k, v in rest}
    if kind in ("array", "scalar"):
        name, shape, data = rest
        array = np.frombuffer(bytes.fromhex(data), _dtype(name)).reshape(shape)
        return array.copy() if kind == "array" else array[()]
    items = [_read_value(v) for v in rest]
    return items if kind == "list" else tuple(items)
