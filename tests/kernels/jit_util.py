"""Compilation of functions of `shlo_jit.kernels.math` into loops over numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from shlo_jit.codegen.target import resolve, target_machine
from shlo_jit.kernels import math
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i64, vector

Body = Callable[..., V]


def loop_text(body: Body, element: str, arity: int, n: int, target: str = "native", *, result: str = "") -> ModuleText:
    """Returns a module with `void @run(ptr out, ptr in0, ..., i64 count)`; count is a multiple of the lanes `n`."""
    module = ModuleText(resolve(target))
    params = [("ptr", "out"), *[("ptr", f"in{k}") for k in range(arity)], ("i64", "count")]
    b = module.function("run", params, linkage="dso_local", attributes='"prefer-vector-width"="512"')
    out, *inputs, count = b.params
    with b.loop(0, count, n) as i:
        args = [b.load(vector(element, n), b.element(p, element, i)) for p in inputs]
        b.store(body(b, *args), b.element(out, result or element, i))
    b.ret()
    return module


def compile_text(text: str, target: str = "native", level: int = 2) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Parses, verifies and optimizes, without vectorizers."""
    machine = target_machine(resolve(target))
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


class Compiled:
    """A compiled loop; keeps the code alive."""

    def __init__(self, module: ModuleText, arity: int):
        target = module.target.name if module.target else "native"
        optimized, machine = compile_text(module.text(f'target triple = "{resolve(target).triple}"'), target)
        self.assembly = machine.emit_assembly(optimized)
        self._engine = llvm.create_mcjit_compiler(optimized, target_machine(resolve(target)))
        self._engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)
        self._run = signature(self._engine.get_function_address("run"))

    def into(self, out: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
        self._run(out.ctypes.data, *[a.ctypes.data for a in inputs], inputs[0].size)
        return out


@cache
def compiled(name: str, bits: int, n: int = 16, target: str = "native") -> Compiled:
    element = {32: "float", 64: "double"}[bits]
    arity = arity_of(name)
    result = "i8" if name == "is_finite" else ""

    def body(b: Builder, *args: V) -> V:
        y = math.call(b, name, *args)
        return b.cast("zext", y, "i8") if result else y

    return Compiled(loop_text(body, element, arity, n, target, result=result), arity)


def arity_of(name: str) -> int:
    return math.ARITY.get(name, 1)


def evaluate(name: str, *inputs: np.ndarray, n: int = 16, target: str = "native") -> np.ndarray:
    """Evaluates a function over arrays of f32 or f64, `n` lanes at a time."""
    first = inputs[0]
    bits = first.dtype.itemsize * 8
    padded = [np.concatenate([np.ravel(a), np.ones(-a.size % n, a.dtype)]) for a in np.broadcast_arrays(*inputs)]
    out = np.empty(padded[0].size, np.bool_ if name == "is_finite" else first.dtype)
    compiled(name, bits, n, target).into(out, *padded)
    return out[: padded[0].size - (-first.size % n)].reshape(first.shape)


__all__ = ["Compiled", "compile_text", "compiled", "evaluate", "i64", "loop_text"]
