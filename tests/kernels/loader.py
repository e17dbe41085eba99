"""Loading of routines into the process without the run time: LLJIT and a serial `shlo_parallel`."""

from __future__ import annotations

import ctypes
import functools

import llvmlite.binding as llvm

from shlo_jit.codegen.target import target_machine
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target

HEADER = 'target triple = "{}"\n'


def routine_text(routine: Routine, target: Target) -> str:
    """Returns the LLVM text of a routine."""
    module = ModuleText(target)
    routine.build(module, target)
    return module.text(HEADER.format(target.triple))


def compile_object(text: str, target: Target) -> bytes:
    """Returns object code; the text needs no optimizer."""
    machine = target_machine(target)
    module = llvm.parse_assembly(text)
    module.verify()
    return machine.emit_object(module)


def assembly(routine: Routine, target: Target) -> str:
    return target_machine(target).emit_assembly(llvm.parse_assembly(routine_text(routine, target)))


def parallel_text(triple: str, workers: int = 1) -> str:
    """Returns a `shlo_parallel` that runs the tasks in order, with the worker numbers of `workers` alternating
    threads."""
    m = ModuleText()
    params = [("ptr", "task"), ("ptr", "frame"), ("i64", "tasks"), ("i64", "threads")]
    b = m.function("shlo_parallel", params, linkage="")
    task, frame, tasks, threads = b.params
    with b.loop(0, tasks) as i:
        b.call_pointer("void", task, [frame, i, b.urem(b.mul(i, workers), threads)])
    b.ret()
    return m.text(HEADER.format(triple))


class Loaded:
    """Symbols of some routines as callable functions."""

    def __init__(self, routines: tuple[Routine, ...], target: Target, parallel: int | None = None):
        self.jit = llvm.create_lljit_compiler(target_machine(target))
        builder = llvm.JITLibraryBuilder().add_current_process()
        todo, seen = list(routines), set[str]()
        while todo:
            routine = todo.pop()
            if routine.name in seen:
                continue
            seen.add(routine.name)
            builder.add_object_img(compile_object(routine_text(routine, target), target))
            todo += routine.needs
        if parallel is None:
            builder.add_object_img(compile_object(parallel_text(target.triple), target))
        else:
            builder.import_symbol("shlo_parallel", parallel)
        symbols = [s for r in routines for s in r.symbols]
        for symbol in symbols:
            builder.export_symbol(symbol)
        self.tracker = builder.link(self.jit, "kernels")
        self.address = {s: self.tracker[s] for s in symbols}

    def function(self, symbol: str, pointers: str) -> ctypes._CFuncPtr:  # type: ignore[name-defined]
        """Returns the function of a symbol. `pointers`: a `p` or `i` per argument."""
        types = [ctypes.c_void_p if c == "p" else ctypes.c_int64 for c in pointers]
        return ctypes.CFUNCTYPE(None, *types)(self.address[symbol])


@functools.cache
def load(routine: Routine, target: Target) -> Loaded:
    return Loaded((routine,), target)


__all__ = ["Loaded", "V", "assembly", "compile_object", "load", "routine_text"]
