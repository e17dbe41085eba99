"""JAX functions and exported programs, compiled by shlo_jit: `shlo_jit.jax.jit(f)`, `shlo_jit.jax.from_exported(e)`.

Needs JAX (`pip install shlo_jit[jax]`), which nothing else of the package imports.
"""

from shlo_jit.jax.exported import Exported, from_exported
from shlo_jit.jax.function import Compiled, Jitted, Lowered, jit

__all__ = ["Compiled", "Exported", "Jitted", "Lowered", "from_exported", "jit"]
