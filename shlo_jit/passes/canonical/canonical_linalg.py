"""Bring cholesky and triangular_solve into the one form that has a kernel.

Needs: nothing. Guarantees: element types have parts of at least 32 bits; every cholesky has lower = false, every
triangular_solve has left_side = true and does not conjugate (transpose_a is NO_TRANSPOSE or TRANSPOSE).

    cholesky(a), lower = true     ->   transpose(cholesky(transpose(a)))           A = L L^H  <=>  A^T = (L^T)^H L^T
    x op(a) = b                   ->   op(a)^T x^T = b^T
    op(a) = a^H                   ->   conj(a)^T
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import F32, tensor
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite


def canonical_linalg(function: Op, _: Context) -> Op:
    """The function with every cholesky and triangular_solve in its kernel's form."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        rule = {"stablehlo.cholesky": _cholesky, "stablehlo.triangular_solve": _solve}.get(op.name)
        if rule is None:
            return None
        dtype = op.result.tensor.storage
        narrow = dtype.is_float and dtype.bits < 32
        wide = [mk.convert(rw, v, F32) if narrow else v for v in operands]
        return [mk.convert(rw, rule(rw, op, wide), dtype)]

    return rewrite(function, visit)


def _cholesky(rw: Rewriter, op: Op, operands: list[Value]) -> Value:
    lower = bool(op.attributes.get("lower", False))
    a = _swap_rows_and_columns(rw, operands[0]) if lower else operands[0]
    result = rw.emit1(op.name, [a], a.type, {"lower": False})
    return _swap_rows_and_columns(rw, result) if lower else result


def _solve(rw: Rewriter, op: Op, operands: list[Value]) -> Value:
    a, b = operands
    kind, left = op.attributes["transpose_a"].value, bool(op.attributes["left_side"])
    if kind == "ADJOINT" and a.tensor.storage.is_complex:
        a = _conjugate(rw, a)
    transposed = (kind != "NO_TRANSPOSE") == left
    attributes: dict[str, Any] = {
        "left_side": True,
        "lower": bool(op.attributes["lower"]),
        "unit_diagonal": bool(op.attributes["unit_diagonal"]),
        "transpose_a": EnumAttr("stablehlo", "transpose", "TRANSPOSE" if transposed else "NO_TRANSPOSE"),
    }
    b = b if left else _swap_rows_and_columns(rw, b)
    x = rw.emit1(op.name, [a, b], b.type, attributes)
    return x if left else _swap_rows_and_columns(rw, x)


def _swap_rows_and_columns(rw: Rewriter, value: Value) -> Value:
    """Swaps the rows and columns."""
    n = value.tensor.rank
    return mk.transpose(rw, value, (*range(n - 2), n - 1, n - 2))


def _conjugate(rw: Rewriter, value: Value) -> Value:
    part = tensor(value.tensor.extents, value.tensor.storage.part)
    re, im = (rw.emit1(f"stablehlo.{name}", [value], part) for name in ("real", "imag"))
    minus = rw.emit1("stablehlo.negate", [im], part)
    return rw.emit1("stablehlo.complex", [re, minus], value.type)
