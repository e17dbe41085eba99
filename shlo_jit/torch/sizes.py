"""Symbolic sizes of graphs, and their numbers for certain arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy  # type: ignore[import-not-found]
import torch  # type: ignore[import-not-found]

from shlo_jit.torch.aten.registry import Unsupported


class Bindings:
    """Numbers for the symbols of a graph."""

    def __init__(self) -> None:
        self._numbers: dict[Any, Any] = {}

    def bind(self, fake: Any, given: Any) -> None:
        """Takes the symbols of an argument, a symbolic number or a tensor, from what is given for it."""
        if isinstance(fake, torch.SymInt | torch.SymFloat):
            self._bind(fake, given)
        elif isinstance(fake, torch.Tensor):
            for size, number in zip(fake.shape, given, strict=True):
                self._bind(size, number)

    def _bind(self, size: Any, number: int) -> None:
        if isinstance(size, torch.SymInt | torch.SymFloat) and size.node.expr.is_symbol:
            self._numbers[size.node.expr] = sympy.sympify(number)

    def number(self, size: Any) -> Any:
        """The number of a symbolic size. Raises Unsupported for one that depends on data."""
        if not isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool):
            return size
        expression = sympy.sympify(size.node.expr).xreplace(self._numbers)
        if expression.free_symbols:
            raise Unsupported(f"the size {size} depends on data")
        kind = int if isinstance(size, torch.SymInt) else float if isinstance(size, torch.SymFloat) else bool
        return kind(expression)

    def shape(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """The numbers of several sizes."""
        return tuple(n if type(n) is int else self.number(n) for n in sizes)
