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
        self.numbers: dict[Any, Any] = {}
        """Numbers by symbol."""

    def bind(self, fakes: Sequence[Any], given: Sequence[Any]) -> None:
        """Takes the symbols of arguments, which are symbolic numbers and tensors, from the numbers and shapes that are
        given for them. A size such as `2*s0`, whose symbol is no size itself, is solved for it."""
        pairs = [pair for fake, x in zip(fakes, given, strict=True) for pair in _sizes_of(fake, x)]
        for size, number in pairs:
            if size.node.expr.is_symbol:
                self.numbers.setdefault(size.node.expr, sympy.sympify(number))
        for size, number in pairs:
            left = size.node.expr.xreplace(self.numbers)
            if len(left.free_symbols) == 1:
                self._solve(left, number)

    def _solve(self, expression: Any, number: Any) -> None:
        (symbol,) = expression.free_symbols
        slope = sympy.diff(expression, symbol)
        if slope.is_Integer and slope != 0:  # others stay free, and are refused where they are needed
            found = (number - expression.xreplace({symbol: sympy.Integer(0)})) / slope
            if found.is_Integer:
                self.numbers[symbol] = found

    def number(self, size: Any) -> Any:
        """The number of a symbolic size. Raises Unsupported for one that depends on data."""
        if not isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool):
            return size
        expression = sympy.sympify(size.node.expr).xreplace(self.numbers)
        if expression.free_symbols:
            raise Unsupported(f"the size {size} depends on data")
        kind = int if isinstance(size, torch.SymInt) else float if isinstance(size, torch.SymFloat) else bool
        return kind(expression)

    def shape(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """The numbers of several sizes."""
        return tuple(n if type(n) is int else self.number(n) for n in sizes)


def _sizes_of(fake: Any, given: Any) -> list[tuple[Any, Any]]:
    """The symbolic numbers of an argument, and what is given for them."""
    if isinstance(fake, torch.Tensor):
        pairs = list(zip(fake.shape, given, strict=True))
    else:
        pairs = [(fake, given)]
    return [(size, number) for size, number in pairs if isinstance(size, torch.SymInt | torch.SymFloat)]
