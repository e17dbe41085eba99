"""Forms of the routine of tiles: who decides, and where its operands come from."""

from __future__ import annotations

from enum import Enum


class Form(Enum):
    """Form of a routine; the value is the end of its symbol."""

    USUAL = ""
    """The routine decides by shape."""
    GIVEN = "_given"
    """The caller's decisions are further arguments (see `given.py`)."""
    COMPUTES_A = "_computes_a"
    """As GIVEN, and a function of the caller computes the elements of A (see `computed.py`)."""
    COMPUTES_B = "_computes_b"

    @property
    def takes_decisions(self) -> bool:
        """Whether the caller's decisions are arguments."""
        return self is not Form.USUAL

    @property
    def computed(self) -> int | None:
        """The operand that a function of the caller computes: 0 for A, 1 for B; None if there is none."""
        return {Form.COMPUTES_A: 0, Form.COMPUTES_B: 1}.get(self)
