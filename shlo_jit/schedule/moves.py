"""Moves: the decisions of a schedule as data.

A schedule of a loop nest, a matrix product, a convolution, or of steps that run block by block is a tuple of moves.
Each move does one thing to the loops, as the calls on a Halide `Func` do (Ragan-Kelley et al., PLDI 2013), and has the
reason for it. Moves can be printed, written as JSON, read back and replayed: `schedule_nest(nest, target, moves=moves)`
gives the schedule again.

A loop of a nest is named by its variable, as in the printed schedule (`v2`). The loops of a product are m, n and k,
that of row blocks is m, that of line tiles is lines, and those of a convolution have words (LOOPS).
Loads, stores and values are named by their number in the nest's lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from shlo_jit.reasons import Reason


@dataclass(frozen=True)
class Move:
    """One decision. The reason is no part of it: moves that do the same are equal."""

    kind: ClassVar[str] = ""
    why: Reason | None = field(default=None, compare=False, kw_only=True)

    @property
    def arguments(self) -> dict[str, Any]:
        """The fields of the kind of move, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "why"}

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.arguments.items())})"


@dataclass(frozen=True)
class Reorder(Move):
    """The order of the loops, outermost first: those of rows, then the reduced ones."""

    kind = "reorder"
    loops: tuple[int, ...]


@dataclass(frozen=True)
class Fuse(Move):
    """Two adjacent loops become one, under the inner loop's name."""

    kind = "fuse"
    outer: int
    inner: int


@dataclass(frozen=True)
class Vectorize(Move):
    """The iterations of a loop run in the lanes of vectors. Without such a move, elements are computed one by one."""

    kind = "vectorize"
    loop: int | str
    lanes: int


@dataclass(frozen=True)
class Transpose(Move):
    """Loads that are contiguous along `across`, not along the lanes, are transposed in registers: `tiles` tiles of
    `side` x `side` elements per iteration."""

    kind = "transpose"
    across: int
    side: int
    tiles: int


@dataclass(frozen=True)
class Unroll(Move):
    """Several iterations become one: of the vector loop `by` vectors, of another loop all `by` iterations. A register
    tile has `by` rows of a convolution's loop."""

    kind = "unroll"
    loop: int | str
    by: int


@dataclass(frozen=True)
class Interleave(Move):
    """All iterations of a short loop are unrolled, and their results, which lie between those of adjacent lanes, are
    stored as one run."""

    kind = "interleave"
    loop: int


@dataclass(frozen=True)
class BatchRows(Move):
    """As many rows as there are lanes run together, and combine the lanes of their accumulators with each other."""

    kind = "batch_rows"
    loop: int


@dataclass(frozen=True)
class Split(Move):
    """A loop is cut into chunks of `by` elements. Chunks of a nest's loop are the units of work; those of a reduced
    loop leave partial results, which are combined in order. Chunks of the rows m and columns n of a product are the
    units of work; the terms k are added up chunk by chunk. A convolution is cut along lines or pixels and features, and
    long lines are cut along their width. All stages of row blocks or line tiles run on a chunk of rows m or of lines
    before the next chunk."""

    kind = "split"
    loop: int | str
    by: int


@dataclass(frozen=True)
class Parallel(Move):
    """Threads share the units of work, in tasks of `grain` units. Without such a move, one thread does the work. A task
    of a product has a rectangle of `grain` products of a batch; the units of row blocks are rows, those of line tiles
    are lines."""

    kind = "parallel"
    grain: int


@dataclass(frozen=True)
class Repeat(Move):
    """Up to `iterations` iterations of the `while` loop around the nest run on a tile before the next tile."""

    kind = "repeat"
    iterations: int


@dataclass(frozen=True)
class Peel(Move):
    """The interior of the iteration space, in which the conditions on places are decided, gets code of its own."""

    kind = "peel"


@dataclass(frozen=True)
class Keep(Move):
    """A value that several passes over a row need is kept in a buffer of the row."""

    kind = "keep"
    value: int


@dataclass(frozen=True)
class Prefetch(Move):
    """A load is prefetched, `distance` bytes ahead."""

    kind = "prefetch"
    load: int
    distance: int


@dataclass(frozen=True)
class Stream(Move):
    """A store writes past the caches."""

    kind = "stream"
    store: int


@dataclass(frozen=True)
class UseLeaf(Move):
    """The innermost loops of a product are those of a kernel: register tiles, tiles of few rows that read B in place
    (`skinny`), or vectors. `any` chooses between tiles and vectors at the call. A convolution has register tiles, sums
    that run along the lanes (`dot`), or sums in each lane of its own products (`direct`)."""

    kind = "use_leaf"
    leaf: str


@dataclass(frozen=True)
class Pack(Move):
    """Where an operand of a product, a or b, is packed: `in_place` (nowhere), `private` (by each task), `shared` (once
    for all tasks), `loop` (before the loop around the product) or `ahead` (when the program is compiled). Those of a
    convolution are its kernel, its image, which is copied with padding (`margins`: only where windows reach beyond it),
    and the pixels of a register tile."""

    kind = "pack"
    operand: str
    where: str


@dataclass(frozen=True)
class ComputeAt(Move):
    """The loop that finishes a product, its epilogue, runs on each `tile` while that is in the cache, or `after` the
    product. An epilogue that only moves the result runs `inline`: the product is written to its final place."""

    kind = "compute_at"
    what: str
    at: str


@dataclass(frozen=True)
class SkipPadding(Move):
    """Lines of a convolution's window that read only padding are left out."""

    kind = "skip_padding"


@dataclass(frozen=True)
class EdgeTiles(Move):
    """At the ends of lines, columns of a convolution's window that read only padding are left out, by register tiles of
    fewer pixels. One that is `height` pixels high is compiled for it; 1: none is; 0: no column is left out."""

    kind = "edge_tiles"
    height: int


WORDS = {
    "leaf": ("tiles", "skinny", "vectors", "any", "dot", "direct"),
    "operand": ("a", "b", "image", "pixels", "kernel"),
    "where": ("in_place", "private", "shared", "loop", "ahead", "margins"),
    "what": ("epilogue",),
    "at": ("tile", "after", "inline"),
}
"""The words that fields of moves may have. All other fields are numbers."""
LOOPS: dict[type[Move], tuple[str, ...]] = {
    Split: ("m", "n", "k", "lines", "pixels", "features", "width"),
    Vectorize: ("pixels", "features", "k"),
    Unroll: ("pixels", "features", "images", "window"),
}
"""The loops of other steps than nests that moves may name. Those of a nest have numbers."""
MOVES: dict[str, type[Move]] = {move.kind: move for move in Move.__subclasses__()}
"""Kind -> class."""
M = TypeVar("M", bound=Move)


class IllegalMove(ValueError):
    """A move that the step does not allow."""

    def __init__(self, move: Move, why: Reason, place: str = "") -> None:
        super().__init__(f"{place}: {move}: {why}" if place else f"{move}: {why}")
        self.move, self.why, self.place = move, why, place

    def at(self, place: str) -> IllegalMove:
        """The same error with the place of the step in its message, if it has none yet."""
        return self if self.place else IllegalMove(self.move, self.why, place)


def of_kind(moves: Iterable[Move], kind: type[M]) -> list[M]:
    """The moves of a kind, in order."""
    return [move for move in moves if isinstance(move, kind)]


def check_once(moves: Iterable[Move]) -> None:
    """Raises IllegalMove for a move about the same thing as one before."""
    seen: set[object] = set()
    for move in moves:
        subject = move.kind, move.arguments.get("loop")
        if subject in seen:
            raise IllegalMove(move, Reason("move-without-use", "a move before decides the same"))
        seen.add(subject)


def to_json(moves: Sequence[Move]) -> list[dict[str, Any]]:
    """Objects of JSON: `{"move": "unroll", "loop": 2, "by": 4, "why": "..."}`."""
    found = []
    for move in moves:
        arguments = {name: list(v) if isinstance(v, tuple) else v for name, v in move.arguments.items()}
        why = {} if move.why is None else {"why": str(move.why)}
        found.append({"move": move.kind, **arguments, **why})
    return found


def from_json(given: object) -> tuple[Move, ...]:
    """The moves that such objects describe; reasons are not read. Raises ValueError, which says what is wrong."""
    if not isinstance(given, list):
        raise ValueError(f"expected a list of moves, got {type(given).__name__}")
    return tuple(_move(item) for item in given)


def _move(given: object) -> Move:
    if not isinstance(given, dict) or not isinstance(given.get("move"), str):
        raise ValueError(f'expected an object such as {{"move": "unroll", "loop": 2, "by": 4}}, got {given!r}')
    kind = MOVES.get(given["move"])
    if kind is None:
        raise ValueError(f"no move is called {given['move']!r}; the moves are {', '.join(sorted(MOVES))}")
    names = [f.name for f in fields(kind) if f.name != "why"]
    arguments = {name: value for name, value in given.items() if name not in ("move", "why")}
    if sorted(arguments) != sorted(names):
        raise ValueError(f"{kind.kind} takes {', '.join(names) or 'nothing'}; got {', '.join(arguments) or 'nothing'}")
    values: dict[str, Any] = {name: _value(kind, name, value) for name, value in arguments.items()}
    return kind(**values)


def _value(kind: type[Move], name: str, value: object) -> object:
    words = WORDS.get(name, ())
    loops = LOOPS.get(kind, ()) if name == "loop" else ()
    if value in words or value in loops:
        return value
    if words:
        raise ValueError(f"{kind.kind}: {name} is {' or '.join(words)}, got {value!r}")
    is_list = name == "loops"
    items = value if is_list and isinstance(value, list) else [value]
    if is_list != isinstance(value, list) or not all(type(item) is int and item >= 0 for item in items):
        expected = "a list of whole numbers" if is_list else "a whole number"
        also = f" (or {', '.join(loops)}, where there is such a loop)" if loops else ""
        raise ValueError(f"{kind.kind}: {name} is {expected} from 0 on{also}, got {value!r}")
    return tuple(items) if is_list else value
