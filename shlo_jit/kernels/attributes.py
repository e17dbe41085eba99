"""Attributes of the functions of kernels."""

from __future__ import annotations

from shlo_jit.kernels.target import Target


def attributes(target: Target) -> str:
    """Returns the attributes: no unwinding, and vectors as wide as the target's."""
    wide = f' "prefer-vector-width"="{target.vector_bits}"' if target.vector_bits == 512 else ""
    return f"nounwind{wide}"
