"""Numba's code for a function of scalars, compiled by LLVM as it is, except for undefined cases. It is the reference of
lifted functions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from shlo_jit.custom import numba_text
from shlo_jit.custom.code_routine import scalar_loop
from shlo_jit.custom.defined import defined
from shlo_jit.custom.llvm_text import KERNEL
from shlo_jit.ir.dtypes import DTYPES


def computed(function: Any, operands: Sequence[str], result: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Computes the function of every element. Raises Refused if Numba rejects it."""
    given, made = [DTYPES[name] for name in operands], [DTYPES[result]]
    text = defined(numba_text.scalar_text(function, given, made, []).text)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text + scalar_loop([(d, False) for d in given], made), llvm.create_context())
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0, jit=True)
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        kernel = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)(
            engine.get_function_address(KERNEL)
        )
        out = np.zeros(len(arrays[0]), made[0].numpy)
        assert kernel(_pointers(arrays), _pointers([out]), 0, len(out)) == 0
    return out


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[x.ctypes.data for x in arrays])
