"""Parameters of a function under `jit` that have the same value in every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.random.prng import PRNGKeyArray

from shlo_jit.builder.bound_parameters import by_parameter, full_call, position_left, without
from shlo_jit.runtime.given_arrays import given_arrays

FIRST = inspect.Parameter("constants", inspect.Parameter.POSITIONAL_ONLY)
"""The parameter that has the values."""


class BoundParameters:
    """Values of parameters, and the function that takes them as its first argument, which JAX traces."""

    def __init__(self, f: Callable[..., Any], given: Mapping[int | str, Any]) -> None:
        """NumPy arrays that may change are copied. Raises ValueError for parameters that the function does not have,
        and TypeError for leaves that are no arrays."""
        signature = self._signature = inspect.signature(f)
        leaves, tree = jax.tree.flatten(by_parameter(signature, given))
        self._kept = sorted(given_arrays(dict(enumerate(map(_array, leaves)))), key=lambda array: array.key)
        self.leaves = [array.value for array in self._kept]
        """Arrays of the program's types."""
        settled = zip(leaves, self.leaves, strict=True)
        self.values = tree.unflatten([new if isinstance(old, np.ndarray) else old for old, new in settled])
        """Trees of arrays by the name of the parameter, as JAX takes them."""

        def function(constants: dict[str, Any], /, *args: Any, **named: Any) -> Any:
            full, keywords = full_call(signature, constants, args, named)
            return f(*full, **keywords)

        left = without(signature, self.values)
        function.__signature__ = left.replace(parameters=[FIRST, *left.parameters.values()])  # type: ignore[attr-defined]
        function.__name__ = getattr(f, "__name__", "function")
        self.function = function

    def positions(self, given: int | Sequence[int] | None) -> tuple[int, ...] | None:
        """Returns positions of the function's parameters as positions for JAX. Raises ValueError for one that is
        bound."""
        if given is None:
            return None
        count = len(self._signature.parameters)
        numbers = [given] if isinstance(given, int) else [*given]
        return tuple(1 + position_left(self._signature, self.values, n + count if n < 0 else n) for n in numbers)

    def names(self, given: str | Iterable[str] | None) -> list[str] | None:
        """Returns the names of parameters unchanged. Raises ValueError for one that is bound."""
        if given is None:
            return None
        found = [given] if isinstance(given, str) else [*given]
        for name in found:
            if name in self.values:
                position_left(self._signature, self.values, [*self._signature.parameters].index(name))
        return found


def _array(leaf: Any) -> Any:
    """Returns the array of a program that JAX makes of a value. NumPy's arrays are not copied if JAX has their type."""
    if isinstance(leaf, PRNGKeyArray):
        return leaf._base_array
    if isinstance(leaf, np.ndarray) and leaf.dtype == jax.dtypes.canonicalize_dtype(leaf.dtype):
        return leaf
    return jax.numpy.asarray(leaf)
