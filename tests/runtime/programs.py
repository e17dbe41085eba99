"""Small programs written by hand, in the form that lowering produces."""

from __future__ import annotations

import numpy as np

from shlo_jit.codegen import abi
from shlo_jit.codegen.program import Callback, Port, Program
from shlo_jit.codegen.target import resolve
from shlo_jit.ir.types import DTYPES
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i32, i64

TARGET = resolve()


def main(module: ModuleText) -> Builder:
    return module.function(abi.ENTRY, abi.PARAMETERS, "i32", linkage="external")


def pointer(b: Builder, array: V, index: int) -> V:
    return b.load("ptr", b.offset(array, 8 * index))


def program(module: ModuleText, inputs, outputs, **fields) -> Program:
    defaults = {"arena_bytes": 0, "scratch": (), "constants": [], "callbacks": [], "routines": ()}
    return Program(module.text(), tuple(inputs), tuple(outputs), **{**defaults, **fields})


def port(name: str, shape: tuple[int, ...], dtype: str = "f32") -> Port:
    return Port(name, shape, DTYPES[dtype])


def binary(n: int, op: str = "fadd") -> Program:
    """Returns z = x + y on f32[n]; with `op` another op of the builder."""
    m = ModuleText(TARGET)
    b = main(m)
    args, results, *_ = b.params
    x, y, z = pointer(b, args, 0), pointer(b, args, 1), pointer(b, results, 0)
    with b.loop(0, n) as i:
        u, v = b.load("float", b.element(x, "float", i)), b.load("float", b.element(y, "float", i))
        b.store(getattr(b, op)(u, v), b.element(z, "float", i))
    b.ret(i32(0))
    return program(m, [port("x", (n,)), port("y", (n,))], [port("z", (n,))])


def copies(shape: tuple[int, ...], dtype: str, results: int = 1, **fields) -> Program:
    """Returns a program whose results are all copies of its one argument."""
    p = port("x", shape, dtype)
    m = ModuleText(TARGET)
    b = main(m)
    for r in range(results):
        b.memcpy(pointer(b, b.params[1], r), pointer(b, b.params[0], 0), p.nbytes)
    b.ret(i32(0))
    return program(m, [p], [port("", shape, dtype)] * results, **fields)


def arena_sum(n: int, arena_bytes: int) -> Program:
    """Returns z = x + 1 by way of the arena, all of which is written; it is wrong if two calls share one."""
    m = ModuleText(TARGET)
    b = main(m)
    args, results, _, arena, _ = b.params
    x, z = pointer(b, args, 0), pointer(b, results, 0)
    words = arena_bytes // 4
    with b.loop(0, words) as i:
        v = b.load("float", b.element(x, "float", b.urem(i, i64(n))))
        b.store(b.fadd(v, const("float", 1)), b.element(arena, "float", i))
    with b.loop(0, n) as i:
        v = b.load("float", b.element(arena, "float", b.add(b.sub(i64(words - n), b.urem(i64(words - n), n)), i)))
        b.store(v, b.element(z, "float", i))
    b.ret(i32(0))
    return program(m, [port("x", (n,))], [port("z", (n,))], arena_bytes=arena_bytes)


def constant(values: np.ndarray) -> Program:
    """Returns a program without arguments, whose result is the constant."""
    dtype = {d.numpy: n for n, d in DTYPES.items() if n != "index"}[values.dtype]
    m = ModuleText(TARGET)
    b = main(m)
    b.memcpy(pointer(b, b.params[1], 0), abi.load_constant(b, b.params[-1], 0), values.nbytes)
    b.ret(i32(0))
    return program(m, [], [port("", values.shape, dtype)], constants=[values])


def callback(shape: tuple[int, ...] = (4,), target: str = "f", attributes=None, results: int = 1) -> Program:
    """Returns a program with one custom call of the arguments x and y."""
    p = port("", shape)
    m = ModuleText(TARGET)
    b = main(m)
    args, outs, _, _, instance = b.params
    function, handle = abi.load(b, instance, "callback"), abi.load(b, instance, "handle")
    status = b.call_pointer("i32", function, [handle, i64(0), args, outs])
    b.ret(status)
    call = Callback(target, (p, p), (p,) * results, attributes or {})
    ports = [port("x", shape), port("y", shape)]
    return program(m, ports, [p] * results, callbacks=[call])


def parallel(n: int, tasks: int) -> Program:
    """Returns z = x + x, with the work split into tasks."""
    assert n % tasks == 0
    m = ModuleText(TARGET)
    b = m.function("task", [("ptr", "frame"), ("i64", "index"), ("i64", "worker")])
    frame, index, _ = b.params
    x, z = pointer(b, frame, 0), pointer(b, frame, 1)
    start = b.mul(index, n // tasks)
    with b.loop(0, n // tasks) as i:
        at = b.add(start, i)
        v = b.load("float", b.element(x, "float", at))
        b.store(b.fadd(v, v), b.element(z, "float", at))
    b.ret()
    b = main(m)
    args, results, _, _, instance = b.params
    frame = b.alloca("ptr", 2)
    b.store(pointer(b, args, 0), frame)
    b.store(pointer(b, results, 0), b.offset(frame, 8))
    threads = abi.load(b, instance, "threads")
    b.call("void", "shlo_parallel", [V("ptr", "@task"), frame, i64(tasks), threads])
    b.ret(i32(0))
    return program(m, [port("x", (n,))], [port("z", (n,))])
