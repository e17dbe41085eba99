"""Compiles an artifact and options, passed by a framework, to a program that it can run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from shlo_jit.api import parse
from shlo_jit.ir.core import Module, walk
from shlo_jit.ops.known_calls import call_record, equivalent_op
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.executables import Calls, Program, SingleProgram, Source
from shlo_jit.pjrt.multi_device import MultiDeviceProgram
from shlo_jit.pjrt.options import CompileOptions
from shlo_jit.pjrt.table import PluginError

Handlers = Callable[[], Mapping[str, Any]]
"""Returns the handlers of custom calls (see `register_custom_call`) by name."""
MAGIC = b"shlo_jit program 1\0"
"""Start of serialized programs."""


def compile_program(source: Source, options: CompileOptions, own: Calls, handlers: Handlers) -> Program:
    """Compiles a program. `options` are those of the source, parsed; `own` has custom calls of this program; `handlers`
    returns those that a user registered with the framework. Raises StableHLOError, UnsupportedError and PluginError."""
    module = parse(source.code)
    calls = _handlers_of(module, handlers) | own
    program = _compiled(module, source.code, options, calls)
    program.source, program.calls, program.is_bound = source, frozenset(calls), bool(own)
    return program


def _compiled(module: Module, code: bytes, options: CompileOptions, calls: Calls) -> Program:
    digest = hashlib.sha256(code + repr(options).encode()).hexdigest()
    if options.num_devices > 1:
        return MultiDeviceProgram(module, options, digest, calls)
    return SingleProgram(module, options, digest, calls)


def write_program(program: Program) -> bytes:
    """Returns bytes from which `read_program` restores the program, in another process too. It is then compiled again,
    except for the parts in the object cache. Raises PluginError for a program that calls functions of this process."""
    if program.is_bound:
        raise PluginError(interface.UNIMPLEMENTED, "a program that calls Python functions cannot be serialized")
    code, options = program.source
    return MAGIC + len(options).to_bytes(8, "little") + options + code


def read_program(data: bytes) -> Source:
    """Raises PluginError for bytes that are not a serialized program."""
    size = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    start = len(MAGIC) + 8
    if data[: len(MAGIC)] != MAGIC or start + size > len(data):
        raise PluginError(
            interface.INVALID_ARGUMENT, "expected a program that shlo_jit has serialized, got other bytes"
        )
    return Source(data[start + size :], data[start : start + size])


def _handlers_of(module: Module, handlers: Handlers) -> Calls:
    """Returns the handlers that the program calls and that are not custom calls we know."""
    names = {
        op.attributes["call_target_name"]
        for op in walk(module.body)
        if op.name == "stablehlo.custom_call" and call_record(op) is None and equivalent_op(op) is None
    }
    known = handlers() if names else {}
    return {name: known[name] for name in names & {*known}}
