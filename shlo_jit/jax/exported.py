"""Compiles programs that `jax.export` wrote: `from_exported`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.export
import numpy as np
from jax._src import core
from jax._src.random.prng import PRNGKeyArray

from shlo_jit.api import compile, parse
from shlo_jit.bytecode.stream import Damaged
from shlo_jit.ir.attributes import DictAttr, IntegerAttr
from shlo_jit.jax.arrays import putters, taken
from shlo_jit.jax.exported_bytes import ReadExported, read_exported
from shlo_jit.passes.frontend.first_platform import CHOSEN, NAME, PLATFORM

_VALUES = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)


def from_exported(exported: Any, *, constants: Mapping[int | str, Any] | None = None, **options: Any) -> Exported:
    """Returns a callable that takes trees of arrays, as `exported.call` does, and runs our machine code.

    exported: a `jax.export.Exported`, or its `.serialize()` bytes. constants: trees of arrays by argument, by position
    or keyword. Calls do not pass these arguments, and the arrays become constants of the program. `options`: of
    `shlo_jit.compile`. A program with symbolic shapes is compiled for the shapes of each call, or with
    `dynamic="symbolic"` for any batch. Raises ValueError for a program that was not exported for the CPU (among
    others), or for several devices, and for bytes that are not an exported program; StableHLOError for a program that
    is damaged or wrong.
    """
    if isinstance(exported, bytes | bytearray | memoryview):
        exported = _deserialized(bytes(exported))
    if not isinstance(exported, jax.export.Exported | ReadExported):
        raise TypeError(f"expected a jax.export.Exported, or its bytes, got {type(exported).__name__}")
    return Exported(exported, options, constants or {})


def _deserialized(data: bytes) -> ReadExported:
    try:
        return read_exported(data)
    except Damaged as damage:
        message = f"these bytes are not a jax.export program, or are damaged: byte {damage.at}: {damage.message}"
        raise ValueError(message) from None


class Exported:
    """A compiled program with the structure of arguments and results that it was exported with."""

    def __init__(
        self, exported: Any, options: dict[str, Any], constants: Mapping[int | str, Any] = MappingProxyType({})
    ) -> None:
        """Raises as `from_exported`, and StableHLOError if the program is refused."""
        if "cpu" not in exported.platforms:
            where = ", ".join(exported.platforms)
            raise ValueError(f"{exported.fun_name} was exported for {where}: export it with platforms=['cpu']")
        if exported.nr_devices != 1:
            raise ValueError(f"{exported.fun_name} was exported for {exported.nr_devices} devices")
        self.in_avals = exported.in_avals
        self.out_tree, self.out_avals = exported.out_tree, exported.out_avals
        self._name = exported.fun_name
        self.in_tree, given = _bound(exported.in_tree, constants)
        in_program = {leaf: index for index, leaf in enumerate(exported.module_kept_var_idx)}
        arrays = {in_program[i]: _physical(leaf) for i, leaf in given.items() if i in in_program}
        self.executable = compile(_for_cpu(exported), constants=arrays, **options)
        """Takes the program's own arguments as arrays, one after the other."""
        kept = [i for i in exported.module_kept_var_idx if i not in given]
        _check_ports(self._name, "argument", [self.in_avals[i] for i in kept], self.executable.inputs)
        _check_ports(self._name, "result", self.out_avals, self.executable.outputs)
        dtypes = [port.dtype for port in self.executable.inputs]
        passed = {leaf: n for n, leaf in enumerate(i for i in range(len(self.in_avals)) if i not in given)}
        self._arguments = [(i, passed[i], dtype) for i, dtype in zip(kept, dtypes, strict=True)]
        """The number of each argument among all leaves and among those of a call, and its dtype."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the program. Raises TypeError for arguments of another structure or dtype, and as a call of an
        Executable does. Values that JAX does not know, such as torch tensors, are passed on to the executable."""
        leaves, tree = jax.tree.flatten((args, named))
        if tree != self.in_tree:
            raise TypeError(f"{self._name} was exported for arguments {self.in_tree}, got {tree}")
        results = self.executable(*(self._argument(i, leaves[n], dtype) for i, n, dtype in self._arguments))
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


def _bound(tree: Any, constants: Mapping[int | str, Any]) -> tuple[Any, dict[int, Any]]:
    """Returns the structure of calls that do not pass these arguments, and the leaves of the constants by their number
    among all leaves. Raises ValueError for arguments that the program does not have, TypeError for trees of another
    structure."""
    args, named = jax.tree.unflatten(tree, range(tree.num_leaves))
    found: dict[int, Any] = {}
    for key, value in constants.items():
        if not (key in named if isinstance(key, str) else 0 <= key < len(args)):
            known = ", ".join([*map(str, range(len(args))), *map(repr, named)]) or "none"
            raise ValueError(f"constants: the program has no argument {key!r}; it has {known}")
        numbers, expected = jax.tree.flatten(named[key] if isinstance(key, str) else args[key])
        leaves, structure = jax.tree.flatten(value)
        if structure != expected:
            raise TypeError(f"constants: argument {key!r} was exported as {expected}, got {structure}")
        found |= zip(numbers, leaves, strict=True)
    left = tuple(a for i, a in enumerate(args) if i not in constants)
    return jax.tree.structure((left, {n: a for n, a in named.items() if n not in constants})), found


def _physical(leaf: Any) -> Any:
    """Returns the array of the program for a leaf."""
    return leaf._base_array if isinstance(leaf, PRNGKeyArray) else leaf


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
