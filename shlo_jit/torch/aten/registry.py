"""The table of records of ATen's operators, and what a record is called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shlo_jit.ir.dtypes import DType

if TYPE_CHECKING:
    from shlo_jit.builder import Value


class Unsupported(Exception):
    """Raised by a record for arguments that it does not take. The translator adds the operator and the line."""


@dataclass
class Call:
    """One call of an operator."""

    target: str
    """Name of the overload: `aten.add.Tensor`."""
    dtypes: Sequence[DType | None]
    """Element types of the results, as PyTorch's metadata has them; None for a result that is no tensor."""
    shapes: Callable[[], Sequence[tuple[int, ...] | None]]
    """Computes the shapes of the results."""
    random_key: Callable[[], Value]
    """Returns a new key of random numbers, u64[2]."""
    storage: Callable[[int], tuple[tuple[int, ...], tuple[int, ...], int]]
    """Returns the shape, the strides and the storage offset of the argument with this index."""
    is_used: Callable[[int], bool]
    """Whether the graph reads the result with this index."""
    lowered: Callable[..., Any]
    """Calls another record by name, with values: `call.lowered("aten.mm.default", x, y)`."""

    @property
    def dtype(self) -> DType:
        """Element type of the first result."""
        found = self.dtypes[0]
        assert found is not None
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        found = self.shapes()[0]
        assert found is not None
        return found


@dataclass(frozen=True)
class Record:
    """The translation of an overload."""

    name: str
    function: Callable[..., Any]

    @property
    def subject(self) -> str:
        """Name of the file that has the record."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def meaning(self) -> str:
        """The first line of the record's docstring."""
        return (self.function.__doc__ or "").partition("\n")[0]


RECORDS: dict[str, Record] = {}
"""Records by the name of the overload."""


def aten(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for overloads. A name without a dialect is ATen's, and without an overload the default."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            full = full_name(name)
            if full in RECORDS:
                raise ValueError(f"{full} has two records")
            RECORDS[full] = Record(full, function)
        return function

    return register


def full_name(name: str) -> str:
    """Completes a name: `add.Tensor` is `aten.add.Tensor`, and `mm` is `aten.mm.default`."""
    dialect, _, rest = name.rpartition("::")
    base, _, overload = rest.partition(".")
    return f"{dialect or 'aten'}.{base}.{overload or 'default'}"
