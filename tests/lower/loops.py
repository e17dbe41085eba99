"""Compiles bodies over registers into loops over numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numpy as np

from shlo_jit.codegen.target import resolve, target_machine
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, vector

ARRAYS = {"float": np.float32, "double": np.float64, "half": np.float16, "i8": np.int8, "i16": np.int16,
          "i32": np.int32, "i64": np.int64}  # fmt: skip
Body = Callable[..., V | Sequence[V]]


def compiled(body: Body, inputs: Sequence[str], outputs: str | Sequence[str], n: int) -> Callable[..., np.ndarray]:
    """Returns a function of arrays (of LLVM element types `inputs`, a multiple of n elements) that runs `body` on n
    lanes at a time; several outputs give a tuple of arrays."""
    results = [outputs] if isinstance(outputs, str) else list(outputs)
    module = ModuleText(resolve())
    params = [("ptr", f"out{k}") for k in range(len(results))] + [("ptr", f"in{k}") for k in range(len(inputs))]
    b = module.function("run", [*params, ("i64", "count")], linkage="dso_local")
    *pointers, count = b.params
    outs, ins = pointers[: len(results)], pointers[len(results) :]
    with b.loop(0, count, n) as i:
        args = [b.load(vector(t, n), b.element(p, t, i)) for t, p in zip(inputs, ins, strict=True)]
        values = body(b, *args)
        for t, p, v in zip(results, outs, [values] if isinstance(values, V) else values, strict=True):
            b.store(v, b.element(p, t, i))
    b.ret()
    engine, run = _link(module, len(params))

    def call(*arrays: np.ndarray):
        assert engine and arrays[0].size % n == 0
        data = [np.ascontiguousarray(a) for a in arrays]
        made = [np.empty(arrays[0].size, ARRAYS[t]) for t in results]
        run(*[a.ctypes.data for a in (*made, *data)], arrays[0].size)
        return made[0] if isinstance(outputs, str) else tuple(made)

    return call


def _link(module: ModuleText, pointers: int):
    machine = target_machine(resolve())
    parsed = llvm.parse_assembly(module.text(f'target triple = "{resolve().triple}"'))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, target_machine(resolve()))
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers, ctypes.c_int64)
    return engine, signature(engine.get_function_address("run"))
