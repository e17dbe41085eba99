"""The iteration at which a nest's values are computed."""

from __future__ import annotations

from collections.abc import Mapping

from shlo_jit.fuse.nest import Key
from shlo_jit.ir.index import Condition
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.elements.registers import Reg


class Position:
    """The current iteration: the values of the loop variables, the lanes, and the values computed here.

    A child position sees what its parents have computed. Its own values disappear with it, because it stands for a loop
    body.
    """

    def __init__(self, variables: dict[int, V], width: int, mask: V | None = None, parent: Position | None = None):
        self.variables = variables
        self.width = width
        self.mask = mask
        """i1 lanes that exist, for a tail; None if all do."""
        self.memo: dict[Key, Reg] = {}
        self.parent = parent
        self.slot = parent.slot if parent is not None else 0
        """Index of this position among those that advance along a row together."""
        self.truth: Mapping[Condition, bool] = parent.truth if parent is not None else {}
        """Conditions whose truth is known here."""

    def child(self, variables: dict[int, V] | None = None) -> Position:
        return Position({**self.variables, **(variables or {})}, self.width, self.mask, self)

    def find(self, key: Key) -> Reg | None:
        position: Position | None = self
        while position is not None:
            found = position.memo.get(key)
            if found is not None:
                return found
            position = position.parent
        return None
