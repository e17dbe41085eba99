"""Complex numbers and their parts."""

from __future__ import annotations

import math

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, filled, is_nan, number, pair, sizes


@aten("real")
def real(call: Call, x: Value) -> Value:
    """The real parts."""
    return b.real(x) if x.element_type.kind == "c" else x


@aten("imag")
def imag(call: Call, x: Value) -> Value:
    """The imaginary parts."""
    return b.imag(x)


@aten("complex")
def complex_(call: Call, x: Value, y: Value) -> Value:
    """Complex numbers of real and imaginary parts."""
    return b.complex(*pair(call.dtype.part, x, y))


@aten("polar")
def polar(call: Call, size: Value, angle: Value) -> Value:
    """Complex numbers of absolute values and angles."""
    r, phi = pair(call.dtype.part, size, angle)
    return b.complex(r * b.cos(phi), r * b.sin(phi))


@aten("conj", "_conj", "_conj_physical", "conj_physical", "resolve_conj", "prims::conj", "prims::conj_physical")
def conj(call: Call, x: Value) -> Value:
    """The conjugated numbers."""
    if x.element_type.kind != "c" or call.target.startswith("aten.resolve"):
        return x
    return b.conj(x)


@aten("view_as_real", "view_as_real_copy")
def view_as_real(call: Call, x: Value) -> Value:
    """Real and imaginary parts along a last dimension."""
    parts = [b.reshape(part, (*sizes(x), 1)) for part in (b.real(x), b.imag(x))]
    return b.concatenate(parts, x.ndim)


@aten("view_as_complex", "view_as_complex_copy")
def view_as_complex(call: Call, x: Value) -> Value:
    """Complex numbers of the parts along the last dimension."""
    shape = sizes(x)
    starts = [[0] * (x.ndim - 1) + [i] for i in (0, 1)]
    parts = [b.reshape(b.slice(x, s, [*shape[:-1], s[-1] + 1]), shape[:-1]) for s in starts]
    return b.complex(parts[0], parts[1])


@aten("angle")
def angle(call: Call, x: Value) -> Value:
    """The angles of complex numbers: 0 or pi for real ones."""
    if x.element_type.kind == "c":
        return b.atan2(b.imag(x), b.real(x))
    y = cast(x, call.dtype)
    negative = y < number(0, call.dtype)
    found = b.select(negative, *pair(call.dtype, filled(sizes(y), math.pi, call.dtype), 0))
    return b.select(is_nan(y), y, found) if y.element_type.kind == "f" else found + number(0, call.dtype)
