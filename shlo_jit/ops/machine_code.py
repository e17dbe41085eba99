"""What a call of `known_calls.CODE` runs: machine code of the user's that is compiled with the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.kernels.routine import Routine
from shlo_jit.reasons import Reason


@dataclass(frozen=True)
class MachineCode(OpaqueAttr):
    """A routine with one function, which takes two arrays of pointers to dense buffers: `i64 f(ptr operands, ptr
    results)`; or, by elements, also the range of them that it shall compute, `(..., i64 first, i64 last)`.

    The function returns 0, or what went wrong."""

    target: str
    """Of the custom call that it is made in place of."""
    name: str
    """The user's function, for people: `wave (model.py:12)`."""
    routine: Routine
    by_elements: bool
    why: Reason | None = None
    """Why elementwise code was not lifted to ops."""
    errors: tuple[str, ...] = ()
    """What each number from 1 on means; none where a number is all that is known."""
    cost: int = 1
    """Of an element, in additions, roughly."""

    @classmethod
    def of(cls, target: str, name: str, routine: Routine, **others: Any) -> MachineCode:
        """One whose text is the function's name."""
        return cls(f'#shlo_jit.code<"{name}">', target, name, routine, **others)

    @property
    def symbol(self) -> str:
        return self.routine.symbols[0]
