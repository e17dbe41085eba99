"""Tests that a masked store writes exactly the lanes of its mask, whatever LLVM knows about the mask."""

from __future__ import annotations

import ctypes

import guarded
import llvmlite.binding as llvm
import numpy as np
import pytest
from loader import compile_object

from shlo_jit.codegen.target import resolve, target_machine
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V, vector

HEADER = 'target triple = "{}"\n'
WIDTHS = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
NARROWED = [
    ("i16", "i8"),
    ("i32", "i8"),
    ("i32", "i16"),
    ("i64", "i8"),
    ("i64", "i16"),
    ("i64", "i32"),
    ("double", "float"),
]


def stored(wide: str, narrow: str, n: int, lanes: list[int], target: str, at_end: bool) -> np.ndarray:
    """Returns the memory where n elements, narrowed from 1, 2, ... n, were stored with a mask of `lanes`."""
    machine = resolve(target)
    module = ModuleText(machine)
    b = module.function("run", [("ptr", "out"), ("ptr", "x")], linkage="")
    t = vector(wide, n)
    mask = V(vector("i1", n), "<" + ", ".join(f"i1 {'true' if k in lanes else 'false'}" for k in range(n)) + ">")
    x = b.cast("fptrunc" if wide == "double" else "trunc", b.load(t, b.params[1]), narrow)
    b.masked_store(x, b.params[0], mask)
    b.ret()
    jit = llvm.create_lljit_compiler(target_machine(machine))
    library = llvm.JITLibraryBuilder().add_current_process()
    library.add_object_img(compile_object(module.text(HEADER.format(machine.triple)), machine)).export_symbol("run")
    tracker = library.link(jit, "stores")
    integers = wide[0] == "i"
    x = np.arange(1, n + 1, dtype=f"{'i' if integers else 'f'}{WIDTHS[wide]}")
    # The array covers the mask's first to last lane. The pages around these lanes are inaccessible.
    first, last = min(lanes), max(lanes) + 1
    out = guarded.guarded(np.zeros(last - first, f"{'i' if integers else 'f'}{WIDTHS[narrow]}"), at_end)
    start = guarded.address(out) - first * WIDTHS[narrow]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(tracker["run"])(start, guarded.address(x))
    return out


@pytest.mark.parametrize("wide, narrow", NARROWED)
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.sampled(4)
def test_a_constant_mask(wide: str, narrow: str, target: str) -> None:
    for n in (4, 8, 16, 32, 64):
        for lanes in ([0], [1], [n - 1], [0, 1], [n // 2], [0, n - 1], list(range(n // 2 + 1))):
            for at_end in (True, False):
                got = stored(wide, narrow, n, lanes, target, at_end)
                want = [k + 1 if k in lanes else 0 for k in range(min(lanes), max(lanes) + 1)]
                assert got.tolist() == want, (n, lanes)
