"""Elementwise ops on registers, as their records define them (`OpDef.machine`).

All registers (`registers.py`) have equal lanes; there is one for each operand, of the operand's dtype.
"""

from __future__ import annotations

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, scalar
from shlo_jit.lower.elements.floats import is_narrow
from shlo_jit.lower.elements.registers import Reg, exactly, from_f32, round_bf16_sum, to_f32
from shlo_jit.lower.elements.registers_machine import RegistersMachine
from shlo_jit.ops import OPS, OpDef
from shlo_jit.ops.integer_ranges import is_whole
from shlo_jit.ops.machine import ByKind, Computation

SIGN_ONLY = ("fneg", "fabs")
"""Computations that LLVM provides exactly for f16, too."""
NO_ROUNDING = ("fneg", "fabs", "fmax", "fmin")
"""Computations whose results need no rounding to the operands' format."""
ARITHMETIC = ("fadd", "fsub", "fmul", "fdiv")
"""Computations that are one instruction each."""


def emit(b: Builder, op: Op, args: list) -> Reg:
    """Computes an elementwise op. Raises UnsupportedError at the op's line if its record does not define how."""
    record = OPS.get(op.name)
    if record is None or record.machine is None:
        raise UnsupportedError(diagnose(f"{op.name} has no lowering", op.span, label="no-lowering"))
    dtype = op.operands[0].tensor.storage
    if isinstance(record.machine, ByKind) and dtype.kind not in record.machine.computations:
        raise UnsupportedError(
            diagnose(f"{op.name} of {dtype} is not supported", op.span, label="unsupported-element-type")
        )
    return _compute(b, record, dtype, args, op)


def apply(b: Builder, record: OpDef, dtype: DType, args: list) -> Reg:
    """Computes an op on operands of one dtype without an Op (for reducers)."""
    return _compute(b, record, dtype, args, None)


def _compute(b: Builder, record: OpDef, dtype: DType, args: list, op: Op | None) -> Reg:
    machine = record.machine
    assert machine is not None
    if not isinstance(machine, ByKind):
        return _run(b, machine, dtype, args, op)
    computation = machine.computations[dtype.kind]
    if not is_narrow(dtype) or (dtype.name == "f16" and computation in SIGN_ONLY):
        return _run(b, computation, dtype, args, op)
    y = _run(b, computation, dtype, [to_f32(b, dtype, x) for x in args], op)
    if not isinstance(y, V) or scalar(y.type) != "float":
        return y
    is_exact = computation in NO_ROUNDING or (op is not None and is_whole(op.result))
    if dtype.name in ("f16", "bf16") and is_exact:
        return exactly(b, dtype, y)
    if dtype.name == "bf16" and computation in ARITHMETIC:
        return round_bf16_sum(b, y)
    return from_f32(b, dtype, y)


def _run(b: Builder, computation: str | Computation, dtype: DType, args: list, op: Op | None) -> Reg:
    first = args[0]
    m = RegistersMachine(b, dtype, first.type if isinstance(first, V) else first[0].type, op)
    return getattr(m, computation)(*args) if isinstance(computation, str) else computation(m, *args)
