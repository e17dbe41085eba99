"""Where JAX looks for plugins: see `shlo_jit/jax/plugin.py`."""

from shlo_jit.jax.plugin import initialize

__all__ = ["initialize"]
