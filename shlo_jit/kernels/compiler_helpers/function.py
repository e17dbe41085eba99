"""Definition of a helper function: its attributes and signature."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import Builder, ModuleText

ATTRIBUTES = 'nounwind "no-builtins"'
"""`no-builtins`: a loop that copies must not be recognised as memcpy."""


def begin(module: ModuleText, name: str, params: Sequence[tuple[str, str]], ret: str) -> Builder:
    """Returns a Builder for a helper with these parameters (type, name) and this type of the result."""
    return module.function(name, params, ret, attributes=ATTRIBUTES)
