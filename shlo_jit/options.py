"""Options of `compile` besides the program: one value that is passed through all stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from shlo_jit.kernels.target import Target

if TYPE_CHECKING:
    from shlo_jit.custom.functions import CustomCode
    from shlo_jit.schedule.moves import Move


GivenMoves: TypeAlias = "tuple[tuple[str, tuple[Move, ...]], ...]"
"""Moves by the label of their step, in order of the labels."""
StoredSchedule: TypeAlias = Literal["tuned", "tuned-any-rounding"]
"""The schedule that `tune` has stored for the program and this machine; the second one may change the bits of
results."""


class Arithmetic(TypedDict, total=False):
    """Options of `compile` and `export` that may change the bits of results; see `docs/accuracy.md`."""

    fold_scales: bool
    round_activations: str | None
    assume_finite: bool
    reproducible: bool


class OptionError(ValueError):
    """Raised for an option that is invalid for the program."""


@dataclass(frozen=True)
class CompileOptions:
    """Options of a compilation.

    Every field that is compared changes the code, and so is part of the program's key in the object cache: equal
    options give the same code. Fields with `compare=False` only determine how the code is loaded.
    """

    target: Target
    entry: str = "main"
    """The function to run, without `@`."""
    donate: tuple[int, ...] | Literal["program"] = ()
    """Indices of arguments whose memory results may reuse, ascending; or `program` for those that the program marks."""
    calls: frozenset[str] = frozenset()
    """Names of the custom calls (and of composites, see `passes/frontend/inline.py`) that users have implemented."""
    code: tuple[tuple[str, CustomCode], ...] = ()
    """Implementations among `calls` that are code compiled with the program, sorted by name."""
    num_replicas: int = 1
    num_partitions: int = 1
    """The grid of processes that run the program."""
    channels: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Senders and receivers of channels whose sends and receives do not specify them.

    Each entry is (handle, (sender, receiver), ...), by ascending handle, in process numbers.
    """

    same_program: bool = True
    """Whether all processes run the same function."""
    reaches: bool = True
    """Whether the processes can write to each other's memory."""

    has_lapack: bool | None = None
    """Whether the program can call LAPACK; None: if this process has it."""
    fold_scales: bool = False
    """Whether factors of channels are multiplied into constant weights, which changes results by rounding
    (`docs/accuracy.md`)."""
    round_activations: Literal["int8"] | None = None
    """The type to which activations of products with low-bit weights are rounded (`docs/accuracy.md`)."""
    assume_finite: bool = False
    """Whether numbers that a mask by position leaves out are taken as finite (`docs/accuracy.md`)."""
    reproducible: bool = False
    """Whether the bits of a row of results depend neither on other rows nor on the target (`docs/accuracy.md`)."""
    schedule: GivenMoves | StoredSchedule = ()
    """Given moves of steps; see `schedule/moves.py`. Or a stored schedule, which the pipeline looks
    up for each program that it compiles."""
    profile: bool = False
    """Whether the code records the duration of each of its steps."""

    dynamic: str = field(default="specialize", compare=False)
    """Strategy for programs with unknown dimensions: `specialize` or `symbolic`."""
    threads: int = field(default=1, compare=False)
    """Maximum threads of a call."""
    implementations: Mapping[str, Callable[..., Any]] = field(default_factory=dict, compare=False)
    """Implementations among `calls` that were given to `compile`; others are looked up when the program is loaded."""
    host: Any = field(default=None, compare=False)
    """The queues of infeeds and similar (`runtime/host.py`), if several executables share them."""
    cache: bool = field(default=True, compare=False)
    """Whether to use the object cache."""

    def __post_init__(self) -> None:
        """The target carries `reproducible` too, since every kernel and routine is generated for a target."""
        if self.target.reproducible != self.reproducible:
            object.__setattr__(self, "target", replace(self.target, reproducible=self.reproducible))

    @property
    def elementwise_code(self) -> frozenset[str]:
        """Names of code whose results have the shape of its operands."""
        return frozenset(name for name, code in self.code if code.is_elementwise)

    @property
    def processes(self) -> int:
        """Number of processes in the grid."""
        return self.num_replicas * self.num_partitions

    def identity(self) -> str:
        """The fields that are compared, as a text that is equal in every process."""
        return repr([(f.name, _stable(getattr(self, f.name))) for f in fields(self) if f.compare])


def _stable(value: object) -> object:
    if isinstance(value, Target):
        return value.identity
    if isinstance(value, tuple) and value and isinstance(value[0], tuple) and hasattr(value[0][1], "digest"):
        return [(name, code.digest) for name, code in value]
    return sorted(value) if isinstance(value, frozenset) else value


def check_donated(indices: Iterable[int], arguments: int) -> None:
    """Raises OptionError for a donated argument that the program does not have."""
    for index in indices:
        if not 0 <= index < arguments:
            takes = f"takes {arguments} argument{'' if arguments == 1 else 's'}"
            known = f", numbered from 0 to {arguments - 1}" if arguments > 1 else ""
            raise OptionError(f"donate: there is no argument {index}: the program {takes}{known}")
