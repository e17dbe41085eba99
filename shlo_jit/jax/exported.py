"""Compiles programs that `jax.export` wrote: `from_exported`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.export
import numpy as np
from jax._src import core

from shlo_jit.api import compile, parse
from shlo_jit.bytecode.stream import Damaged
from shlo_jit.ir.attributes import DictAttr, IntegerAttr
from shlo_jit.jax.arrays import putters, taken
from shlo_jit.jax.exported_bytes import ReadExported, read_exported
from shlo_jit.passes.frontend.first_platform import CHOSEN, NAME, PLATFORM

_VALUES = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)


def from_exported(exported: Any, **options: Any) -> Exported:
    """Returns a callable that takes trees of arrays, as `exported.call` does, and runs our machine code.

    exported: a `jax.export.Exported`, or its `.serialize()` bytes. `options`: of `shlo_jit.compile`. A program with
    symbolic shapes is compiled for the shapes of each call, or with `dynamic="symbolic"` for any batch. Raises
    ValueError for a program that was not exported for the CPU (among others), or for several devices, and for bytes
    that are not an exported program; StableHLOError for a program that is damaged or wrong.
    """
    if isinstance(exported, bytes | bytearray | memoryview):
        exported = _deserialized(bytes(exported))
    if not isinstance(exported, jax.export.Exported | ReadExported):
        raise TypeError(f"expected a jax.export.Exported, or its bytes, got {type(exported).__name__}")
    return Exported(exported, options)


def _deserialized(data: bytes) -> ReadExported:
    try:
        return read_exported(data)
    except Damaged as damage:
        message = f"these bytes are not a jax.export program, or are damaged: byte {damage.at}: {damage.message}"
        raise ValueError(message) from None


class Exported:
    """A compiled program with the structure of arguments and results that it was exported with."""

    def __init__(self, exported: Any, options: dict[str, Any]) -> None:
        """Raises as `from_exported`, and StableHLOError if the program is refused."""
        if "cpu" not in exported.platforms:
            where = ", ".join(exported.platforms)
            raise ValueError(f"{exported.fun_name} was exported for {where}: export it with platforms=['cpu']")
        if exported.nr_devices != 1:
            raise ValueError(f"{exported.fun_name} was exported for {exported.nr_devices} devices")
        self.in_tree, self.in_avals = exported.in_tree, exported.in_avals
        self.out_tree, self.out_avals = exported.out_tree, exported.out_avals
        self._name = exported.fun_name
        self.executable = compile(_for_cpu(exported), **options)
        """Takes the program's own arguments as arrays, one after the other."""
        kept = [self.in_avals[i] for i in exported.module_kept_var_idx]
        _check_ports(self._name, "argument", kept, self.executable.inputs)
        _check_ports(self._name, "result", self.out_avals, self.executable.outputs)
        dtypes = [port.dtype for port in self.executable.inputs]
        self._arguments = list(zip(exported.module_kept_var_idx, dtypes, strict=True))

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the program. Raises TypeError for arguments of another structure or dtype, and as a call of an
        Executable does. Values that JAX does not know, such as torch tensors, are passed on to the executable."""
        leaves, tree = jax.tree.flatten((args, named))
        if tree != self.in_tree:
            raise TypeError(f"{self._name} was exported for arguments {self.in_tree}, got {tree}")
        results = self.executable(*(self._argument(i, leaves[i], dtype) for i, dtype in self._arguments))
        made = results if isinstance(results, tuple) else (results,)
        avals = [a.update(shape=r.shape[: len(a.shape)]) for a, r in zip(self.out_avals, made, strict=True)]
        return self.out_tree.unflatten([put(r) for put, r in zip(putters(avals), made, strict=True)])

    def _argument(self, index: int, leaf: Any, dtype: np.dtype) -> Any:
        if not isinstance(leaf, _VALUES):
            return leaf
        got, expected = jax.typeof(leaf).dtype, self.in_avals[index].dtype
        if got != expected:
            raise TypeError(f"argument {index} of {len(self.in_avals)}: expected {expected}, got {got}")
        return taken(leaf, dtype)


def _check_ports(name: str, what: str, avals: Sequence[Any], ports: Sequence[Any]) -> None:
    """Raises ValueError if the program's arguments or results differ from its description."""
    if len(avals) != len(ports):
        raise ValueError(f"{name} is described with {len(avals)} {what}s, and its program has {len(ports)}")
    for i, (aval, port) in enumerate(zip(avals, ports, strict=True)):
        is_empty = aval.dtype == jax.dtypes.float0
        physical: Any = aval.update(dtype=np.dtype(bool)) if is_empty else core.physical_aval(aval)
        if (physical.dtype, len(physical.shape)) != (port.dtype, len(port.shape)):
            described, found = (f"{x.dtype} of rank {len(x.shape)}" for x in (physical, port))
            raise ValueError(f"{name} is described with {what} {i} as {described}, and its program has {found}")


def _for_cpu(exported: Any) -> Any:
    """Returns the program. If it is for several platforms and the CPU is not the first, the platform index is noted in
    it."""
    number, program = exported.platforms.index("cpu"), exported.mlir_module_serialized
    if number == 0:
        return program
    module = parse(program)
    main = module.function("main")
    assert main is not None
    main.attributes["arg_attrs"] = tuple(
        DictAttr((*a.items, (CHOSEN, IntegerAttr(number)))) if a.get(NAME) == PLATFORM else a
        for a in main.attributes["arg_attrs"]
    )
    return module
