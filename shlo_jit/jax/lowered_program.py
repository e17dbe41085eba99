"""A compiled program that JAX has lowered: from leaves of arguments to a tree of results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.mlir import ir

from shlo_jit.api import compile
from shlo_jit.jax.arrays import donated_argument, putters, taken
from shlo_jit.jax.host_calls import host_calls
from shlo_jit.runtime.executable import Executable
from shlo_jit.text.argument_names import DONATED


def lower(traced: Any) -> Any:
    """Lowers a `jax.stages.Traced` to a `jax.stages.Lowered`, for the CPU."""
    if traced._consts:
        raise NotImplementedError("the function closes over a value that JAX is tracing, or a mutable array")
    return traced.lower(lowering_platforms=("cpu",))


class Program:
    """A program that is called with the leaves of the arguments. Threads may share it."""

    def __init__(self, lowered: Any, options: dict[str, Any], given: Sequence[Any] = ()) -> None:
        """Compiles `lowered`, a `jax.stages.Lowered`. `options` are those of `shlo_jit.compile`. `given`: values of its
        first leaves, which are in its first argument, become constants; calls have the other leaves. Raises as
        `compile` does, and NotImplementedError."""
        lowering = lowered._lowering
        arguments = lowering.compile_args
        if arguments["mut"] is not None:
            raise NotImplementedError(
                "the function takes or closes over mutable arrays, which executables do not support"
            )
        self.in_tree = _without_first(lowered.in_tree) if given else lowered.in_tree
        self._avals = [info._aval for info in jax.tree.leaves(lowered.args_info)][len(given) :]
        constants = [np.asarray(c) for c in lowering.const_args]
        kept = sorted(i - len(constants) for i in arguments["kept_var_idx"])
        self._constants = [constants[i + len(constants)] for i in kept if i < 0]
        taken_up = [i for i in kept if 0 <= i < len(given)]
        self._kept = [i - len(given) for i in kept if i >= len(given)]
        donate = _donated(lowering)
        arrays = {len(self._constants) + n: given[i] for n, i in enumerate(taken_up)}
        functions, others = arguments["host_callbacks"], dict(options)
        calls = {**(host_calls(functions) if functions else {}), **(others.pop("custom_calls", None) or {})}
        executable = compile(lowered, donate=donate, custom_calls=calls, constants=arrays, **others)
        if not isinstance(executable, Executable):
            raise NotImplementedError("the function runs on several devices: shlo_jit.compile takes such programs")
        self.executable = executable
        dtypes = [port.dtype for port in self.executable.inputs[len(self._constants) :]]
        written = {self._kept[n - len(self._constants)] for n in self.executable.overwritten}
        self._arguments = [
            (i, donated_argument if i in written else taken, dtype) for i, dtype in zip(self._kept, dtypes, strict=True)
        ]
        first = len(self._constants) + len(taken_up)
        self._deleted = [i for i in (self._kept[n - first] for n in donate) if i not in written]
        """Donated arguments whose memory is not written to."""
        self._put = putters(arguments["global_out_avals"])
        self._unflatten = lowered.out_tree.unflatten

    def __call__(self, leaves: Sequence[Any]) -> Any:
        arrays = [take(leaves[i], dtype) for i, take, dtype in self._arguments]
        results = self.executable(*self._constants, *arrays)
        del arrays
        for i in self._deleted:
            if isinstance(leaves[i], jax.Array):
                leaves[i].delete()
        put = self._put
        if len(put) == 1:
            return self._unflatten((put[0](results),))
        return self._unflatten([p(r) for p, r in zip(put, results, strict=True)])

    def check(self, signatures: Sequence[tuple[Hashable, ...]]) -> None:
        """Raises TypeError if arguments have other shapes or dtypes."""
        if () in signatures:
            raise TypeError("JAX cannot transform compiled code")
        for i, ((shape, dtype, *_), aval) in enumerate(zip(signatures, self._avals, strict=True)):
            if (shape, dtype) != (aval.shape, aval.dtype):
                got = f"{dtype}[{','.join(map(str, shape))}]"  # type: ignore[arg-type]  a shape is one
                expected = f"{aval.dtype}[{','.join(map(str, aval.shape))}]"
                raise TypeError(f"argument {i} of {len(self._avals)}: compiled for {expected}, got {got}")


def _without_first(tree: Any) -> Any:
    """Returns the structure of a call's arguments without the first one."""
    args, named = jax.tree.unflatten(tree, range(tree.num_leaves))
    return jax.tree.structure((args[1:], named))


def _donated(lowering: Any) -> list[int]:
    """Returns the program's arguments that are donated. JAX donates those whose memory a result can use."""
    main: Any = ir.SymbolTable(lowering.stablehlo().operation)["main"]
    tokens = len(lowering.compile_args["ordered_effects"])
    return [i - tokens for i, said in enumerate(main.arg_attrs) if any(name in said for name in DONATED)]
