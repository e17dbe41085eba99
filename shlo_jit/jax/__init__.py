"""JAX functions and exported programs, compiled by shlo_jit: `shlo_jit.jax.jit(f)`, `shlo_jit.jax.from_exported(e)`.

Needs JAX (the extra `jax`), which nothing else in the package imports. The functions are imported on first use: JAX
imports this package wherever it is installed, for the platform in `plugin.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shlo_jit.jax.exported import Exported, from_exported
    from shlo_jit.jax.function import Compiled, Jitted, Lowered, jit

__all__ = ["Compiled", "Exported", "Jitted", "Lowered", "from_exported", "jit"]
_EXPORTED = ("Exported", "from_exported")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'exported' if name in _EXPORTED else 'function'}"), name)
