"""Rounding to integers, as in libm. Zeros keep their sign, a NaN becomes quiet."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.compiler_helpers.function import begin
from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.kernels.target import Target


def _write(module: ModuleText, name: str, target: Target) -> None:
    type = "float" if name.endswith("f") else "double"
    b = begin(module, name, [(type, "x")], type)
    (x,) = b.params
    size = b.intrinsic("fabs", type, [x])
    limit = const(type, 2.0**23 if type == "float" else 2.0**52)  # from here on all numbers are integers
    near = b.fsub(b.fadd(size, limit), limit)  # ties to even
    rounded = b.intrinsic("copysign", type, [_adjusted(b, name.removesuffix("f"), x, size, near), x])
    result = b.select(b.fcmp("olt", size, limit), rounded, x)
    b.ret(b.select(b.fcmp("uno", x, x), b.fadd(x, x), result))


def _adjusted(b: Builder, kind: str, x: V, size: V, near: V) -> V:
    """Returns the integer that `kind` asks for, from the nearest integer; the sign does not matter."""
    zero, one = const(x.type, 0.0), const(x.type, 1.0)
    if kind in ("roundeven", "rint", "nearbyint"):
        return near
    if kind == "trunc":
        return b.fsub(near, b.select(b.fcmp("ogt", near, size), one, zero))
    signed = b.intrinsic("copysign", x.type, [near, x])
    if kind == "floor":
        return b.fsub(signed, b.select(b.fcmp("ogt", signed, x), one, zero))
    return b.fadd(signed, b.select(b.fcmp("olt", signed, x), one, zero))


WRITERS = {
    f"{kind}{suffix}": _write
    for kind in ("floor", "ceil", "trunc", "roundeven", "rint", "nearbyint")
    for suffix in ("", "f")
}
