"""User code that a call of `known_calls.CODE` runs; it is compiled with the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.kernels.routine import Routine
from shlo_jit.reasons import Reason


@dataclass(frozen=True)
class MachineCode(OpaqueAttr):
    """A routine with one function, which takes two arrays of pointers to dense buffers.

    Its signature is `i64 f(ptr operands, ptr results)`. With `by_elements`, it also takes the range of elements to
    compute, `(..., i64 first, i64 last)`. The function returns 0 or an error number.
    """

    target: str
    """Target of the custom call that it replaces."""
    name: str
    """Readable name of the user's function: `wave (model.py:12)`."""
    routine: Routine
    by_elements: bool
    why: Reason | None = None
    """The reason why elementwise code was not lifted to ops."""
    errors: tuple[str, ...] = ()
    """Messages of the error numbers from 1 on; empty if only the number is known."""
    cost: int = 1
    """Approximate cost per element, in units of one addition."""

    @classmethod
    def of(cls, target: str, name: str, routine: Routine, **others: Any) -> MachineCode:
        """Creates an attribute whose text is the function's name."""
        return cls(f'#shlo_jit.code<"{name}">', target, name, routine, **others)

    @property
    def symbol(self) -> str:
        return self.routine.symbols[0]
