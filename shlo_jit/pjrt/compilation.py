"""From what a framework hands over, an artifact and options, to a program that it can run."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from typing import Any

from shlo_jit.api import parse
from shlo_jit.ir.core import Module, walk
from shlo_jit.ir.types import TensorType
from shlo_jit.ops.call_record import configuration
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.executables import Calls, Program, SingleProgram
from shlo_jit.pjrt.options import CompileOptions
from shlo_jit.pjrt.several import SeveralProgram
from shlo_jit.pjrt.table import PluginError

CALLBACKS = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback")
"""The custom calls that stand for functions of the framework's, by `index`."""


def compile_program(code: bytes, options: CompileOptions, callbacks: Sequence[Any]) -> Program:
    """Raises StableHLOError, UnsupportedError and PluginError."""
    module = read(code)
    calls: Calls = dict.fromkeys(CALLBACKS, _caller(callbacks, _ordered(module)))
    digest = hashlib.sha256(code + repr(options).encode()).hexdigest()
    if options.num_replicas > 1:
        raise PluginError(interface.UNIMPLEMENTED, f"programs of {options.num_replicas} replicas")
    if options.num_partitions > 1:
        return SeveralProgram(module, options, digest, calls)
    return SingleProgram(module, options, digest, calls)


def read(code: bytes) -> Module:
    """A portable artifact."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo

    text = stablehlo.deserialize_portable_artifact(mlir.make_ir_context(), code).operation.get_asm(
        enable_debug_info=True
    )
    return parse(str(text))


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
        if index in ordered:
            return callbacks[index](None, *operands)[1:]
        return callbacks[index](*operands)

    return call
