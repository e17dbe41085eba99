"""Short names of values for display: the same at every stage that prints them."""

from __future__ import annotations

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.text.printer import value_names


class Names:
    """Names of the values of a function, as printed in core ops. Values of separate regions with the same name are
    distinguished by a number appended to it. Values that planning adds (the state of a loop) are named when they first
    occur."""

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
    """Returns `8x16xf32`, `8x16xi4 packed` for a packed constant, or the type of a value that is not a tensor."""
    t = value.type
    if not isinstance(t, TensorType):
        return str(t)
    return "x".join([*(str(e) for e in t.extents), t.storage.name]) + (" packed" if t.is_packed else "")
