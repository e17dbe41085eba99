"""How every helper begins."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import Builder, ModuleText

ATTRIBUTES = 'nounwind "no-builtins"'
"""`no-builtins`: a loop that copies must not be recognised as memcpy."""


def begin(module: ModuleText, name: str, params: Sequence[tuple[str, str]], ret: str) -> Builder:
    """A Builder for a helper: (type, name) of each parameter, the type of the result."""
    return module.function(name, params, ret, attributes=ATTRIBUTES)
