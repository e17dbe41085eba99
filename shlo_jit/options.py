"""What `compile` was asked for besides the program: one value that goes through all stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from shlo_jit.kernels.target import Target

if TYPE_CHECKING:
    from shlo_jit.custom.functions import CustomCode
    from shlo_jit.schedule.moves import Move


class OptionError(ValueError):
    """An option that this program cannot have."""


@dataclass(frozen=True)
class CompileOptions:
    """Every field that is compared changes the code, and so is part of the program's key in the object cache; options
    that are equal give the same code. The fields behind `compare=False` only say how the code is loaded."""

    target: Target
    entry: str = "main"
    """The function to run, without `@`."""
    donate: tuple[int, ...] | Literal["program"] = ()
    """Indices of arguments whose memory results may take over, ascending; or those that the program says."""
    calls: frozenset[str] = frozenset()
    """Names of the custom calls (and of composites, see `passes/frontend/inline.py`) that users have implemented."""
    code: tuple[tuple[str, CustomCode], ...] = ()
    """Those of `calls` that are code which is compiled with the program, by name, in the order of the names."""
    num_replicas: int = 1
    num_partitions: int = 1
    """The grid of processes that run the program."""
    channels: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Who sends to whom over the channels of sends and receives that do not say it: (handle, (sender, receiver), ...)
    by ascending handle, in process numbers."""

    same_program: bool = True
    """All processes run the same function."""
    reaches: bool = True
    """Whether the processes can write to each other's memory."""

    has_lapack: bool | None = None
    """Whether the program can call LAPACK; None: where this process has it."""
    fold_scales: bool = False
    """Factors of channels go into constant weights, which changes results by roundings (`docs/accuracy.md`)."""
    schedule: tuple[tuple[str, tuple[Move, ...]], ...] = ()
    """Moves of loop nests that are given, not chosen, by the label of the step; see `schedule/moves.py`."""
    profile: bool = False
    """The code notes how long each of its steps takes."""

    dynamic: str = field(default="specialize", compare=False)
    """Of programs with unknown dimensions: `specialize` or `symbolic`, what code is made for."""
    threads: int = field(default=1, compare=False)
    """How many a call may use."""
    implementations: Mapping[str, Callable[..., Any]] = field(default_factory=dict, compare=False)
    """Those of `calls` that were given to `compile`; the others are looked up when the program is loaded."""
    host: Any = field(default=None, compare=False)
    """The queues of infeeds and the like (`runtime/host.py`), where several executables share them."""
    cache: bool = field(default=True, compare=False)
    """Whether to look into the object cache, and to store there."""

    @property
    def elementwise_code(self) -> frozenset[str]:
        """Names of code whose results have the shape of its operands."""
        return frozenset(name for name, code in self.code if code.is_elementwise)

    @property
    def processes(self) -> int:
        """In the grid."""
        return self.num_replicas * self.num_partitions

    def identity(self) -> str:
        """The fields that are compared, as a text that is the same in every process."""
        return repr([(f.name, _stable(getattr(self, f.name))) for f in fields(self) if f.compare])


def _stable(value: object) -> object:
    if isinstance(value, Target):
        return value.identity
    if isinstance(value, tuple) and value and isinstance(value[0], tuple) and hasattr(value[0][1], "digest"):
        return [(name, code.digest) for name, code in value]
    return sorted(value) if isinstance(value, frozenset) else value


def check_donated(indices: Iterable[int], arguments: int) -> None:
    """Raise OptionError where a donated argument is none of the program's."""
    for index in indices:
        if not 0 <= index < arguments:
            takes = f"takes {arguments} argument{'' if arguments == 1 else 's'}"
            known = f", numbered from 0 to {arguments - 1}" if arguments > 1 else ""
            raise OptionError(f"donate: there is no argument {index}: the program {takes}{known}")
