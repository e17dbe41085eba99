"""Code for every size of the leading unknown dimension, the batch: compiled once for a range of sizes.

The code is identified by the shapes of the arguments without the batch. Other unknown dimensions are fixed in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.codegen.abi import AT_CALL
from shlo_jit.errors import InternalError, StableHLOError
from shlo_jit.log import log
from shlo_jit.runtime.code_table import CodeTable
from shlo_jit.runtime.executable import Executable
from shlo_jit.runtime.ports import DynamicPort
from shlo_jit.sizes import NotSymbolic, Symbol

Shape = tuple[int, ...]
Make = Callable[[Sequence[Shape], Symbol], Executable]
"""Builds the executable for shapes, in which AT_CALL represents the symbol. Raises NotSymbolic if that is
impossible."""


class Pattern(NamedTuple):
    """Key of the code."""

    shapes: tuple[Shape, ...]
    """Shapes of all arguments, with AT_CALL for the batch."""
    symbol: Symbol


class SymbolicCode:
    """Executables by pattern. Threads may share it."""

    def __init__(self, ports: Sequence[DynamicPort], make: Make) -> None:
        self._ports = tuple(ports)
        self._leading = [i for i, port in enumerate(ports) if port.shape and port.shape[0] is None]
        """Arguments whose leading dimension is not known."""
        self._make = make
        self._table: CodeTable[Pattern, Executable | str] = CodeTable()

    def prepare(self) -> None:
        """Compiles the code in advance, if only leading dimensions are unknown."""
        if any(port.shape is None or None in port.shape[1:] for port in self._ports):
            return
        for symbol in tuning.SYMBOLIC_SIZES:
            shapes = [tuple(symbol.hint if n is None else n for n in port.shape or ()) for port in self._ports]
            self.find(shapes)

    def find(self, shapes: Sequence[Shape]) -> Executable | str:
        """Returns the code for a call, or the reason why there is none."""
        if not self._leading:
            return "no argument has a leading dimension that is unknown"
        size = shapes[self._leading[0]][0]
        symbol = next((s for s in tuning.SYMBOLIC_SIZES if s.low <= size <= s.high), None)
        if symbol is None:
            return f"code for any size is not made for size {size}"
        marked = list(shapes)
        for i in self._leading:
            if shapes[i][0] == size:
                marked[i] = (AT_CALL, *shapes[i][1:])
        pattern = Pattern(tuple(marked), symbol)
        return self._table.find(pattern, lambda: self._made(pattern))

    def _made(self, pattern: Pattern) -> Executable | str:
        try:
            return self._make(*pattern)
        except NotSymbolic as refusal:
            return str(refusal)
        except InternalError as error:  # fixed sizes may work; if not, they report it
            log().warning("code for any size: %s", error)
            return str(error)
        except StableHLOError as error:
            first = error.diagnostics[0]
            return f"for any size the program is not supported: {first.message} [{first.label}]"
