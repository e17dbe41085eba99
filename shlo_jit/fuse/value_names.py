"""Short names of values, for people: the same at every stage that prints them."""

from __future__ import annotations

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.text.printer import value_names


class Names:
    """Those that a function has where it is printed in core ops. Values of separate regions that share one are told
    apart by a number behind it; values that planning adds (the state of a loop) are named when they are met."""

    def __init__(self, core: Op) -> None:
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()
        for value, name in value_names(core).items():
            self._add(value, name)

    def __call__(self, value: Value) -> str:
        return self.names.get(value) or self._add(value, f"%{value.name}")

    def _add(self, value: Value, base: str) -> str:
        name, k = base, 1
        while name in self.used:
            name, k = f"{base}.{k}", k + 1
        self.names[value] = name
        self.used.add(name)
        return name


def type_text(value: Value) -> str:
    """`8x16xf32`; of what is no tensor, its type."""
    t = value.type
    if not isinstance(t, TensorType):
        return str(t)
    return "x".join([*(str(e) for e in t.extents), t.storage.name])
