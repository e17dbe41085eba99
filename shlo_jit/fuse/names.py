"""Short names of values, for people: the same at every stage that prints them."""

from __future__ import annotations

from shlo_jit.ir.core import Value
from shlo_jit.ir.types import TensorType


class Names:
    """A value's own name, made unique, or a number. In the order of first use, so whoever wants the same names walks
    the same values first (see `names_of` in `show.py`)."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()

    def __call__(self, value: Value) -> str:
        name = self.names.get(value)
        if name is None:
            base = value.name or "t"
            if value.op is not None and len(value.op.results) > 1:
                base += f"#{value.index}"
            name, k = base, 1
            while name in self.used:
                name, k = f"{base}.{k}", k + 1
            self.names[value] = name
            self.used.add(name)
        return "%" + name


def type_text(value: Value) -> str:
    """`8x16xf32`; of what is no tensor, its type."""
    t = value.type
    if not isinstance(t, TensorType):
        return str(t)
    return "x".join([*(str(e) for e in t.extents), t.storage.name])
