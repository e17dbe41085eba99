"""From what a framework hands over, an artifact and options, to a program that it can run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from shlo_jit.api import parse
from shlo_jit.codegen.target import resolve
from shlo_jit.ir.core import Module, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.ops.call_record import configuration
from shlo_jit.ops.known_calls import call_record, stands_for
from shlo_jit.options import CompileOptions as Options
from shlo_jit.pipeline import lower
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.callbacks import CALLBACKS
from shlo_jit.pjrt.executables import Calls, Program, SingleProgram, Source
from shlo_jit.pjrt.nesting import within_callback
from shlo_jit.pjrt.options import CompileOptions
from shlo_jit.pjrt.several import SeveralProgram
from shlo_jit.pjrt.table import PluginError

Handlers = Callable[[], Mapping[str, Any]]
"""Gives the handlers of custom calls (see `register_custom_call`) by name."""
MAGIC = b"shlo_jit program 1\0"
"""That serialized programs begin with."""


def compile_program(source: Source, options: CompileOptions, callbacks: Sequence[Any], handlers: Handlers) -> Program:
    """`options`: those of the source, as they were read. `handlers`: what a user has registered with the framework.
    Raises StableHLOError, UnsupportedError and PluginError."""
    program = _compiled(source.code, options, callbacks, handlers)
    program.source = None if callbacks else source
    return program


def _compiled(code: bytes, options: CompileOptions, callbacks: Sequence[Any], handlers: Handlers) -> Program:
    module = parse(code)
    calls: Calls = dict.fromkeys(CALLBACKS, _caller(callbacks, _ordered(module)))
    calls |= _handlers_of(module, handlers)
    digest = hashlib.sha256(code + repr(options).encode()).hexdigest()
    if options.num_replicas > 1:
        raise PluginError(interface.UNIMPLEMENTED, f"programs of {options.num_replicas} replicas")
    if options.num_partitions > 1:
        return SeveralProgram(module, options, digest, calls)
    return SingleProgram(module, options, digest, calls)


def write_program(program: Program) -> bytes:
    """What `read_program` makes the program of again, in another process too: it is compiled anew, but for what the
    object cache has. Raises PluginError for a program that calls functions of this process."""
    if program.source is None:
        raise PluginError(interface.UNIMPLEMENTED, "a program that calls Python functions cannot be serialized")
    code, options = program.source
    return MAGIC + len(options).to_bytes(8, "little") + options + code


def read_program(data: bytes) -> Source:
    """Raises PluginError for other bytes."""
    size = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    start = len(MAGIC) + 8
    if data[: len(MAGIC)] != MAGIC or start + size > len(data):
        raise PluginError(interface.INVALID_ARGUMENT, "the bytes are no program that shlo_jit has serialized")
    return Source(data[start + size :], data[start : start + size])


def cost_of(program: Program) -> dict[str, float]:
    """What a program on one device computes and moves at least, by JAX's names. Raises PluginError where that is not
    known."""
    if program.source is None or program.options.num_partitions > 1:
        raise PluginError(interface.UNIMPLEMENTED, "the cost of this program is not known")
    options = Options(resolve(), profile=True, calls=frozenset(CALLBACKS))
    steps = [step for step in lower(parse(program.source.code), options).program.timed if step.counts]
    operations, moved = sum(step.operations or 0 for step in steps), sum(step.nbytes for step in steps)
    return {"flops": float(operations), "bytes accessed": float(moved)}


def _handlers_of(module: Module, handlers: Handlers) -> Calls:
    """Those that the program calls and that stand for nothing we know."""
    names = {
        op.attributes["call_target_name"]
        for op in walk(module.body)
        if op.name == "stablehlo.custom_call" and call_record(op) is None and stands_for(op) is None
    }
    names -= {*CALLBACKS}
    known = handlers() if names else {}
    return {name: known[name] for name in names & {*known}}


def _ordered(module: Module) -> set[int]:
    """Numbers of the framework's functions that are called in an order, and so take a token and give one."""
    found = set()
    for op in walk(module.body):
        is_callback = op.name == "stablehlo.custom_call" and op.attributes["call_target_name"] in CALLBACKS
        if is_callback and any(not isinstance(value.type, TensorType) for value in op.operands):
            found.add(int(configuration(op)["index"]))
    return found


def _caller(callbacks: Sequence[Any], ordered: Container[int]) -> Any:
    """The custom call that calls a framework's function."""

    def call(*operands: Any, index: int) -> Any:
        with within_callback():
            if index in ordered:
                return callbacks[index](None, *operands)[1:]
            return callbacks[index](*operands)

    return call
