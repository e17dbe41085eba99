"""Schedules of collective ops: the sources and targets of each rank, the algorithm, and the memory.

Every op is one exchange of messages between the ranks (see `kernels/collective/`), followed by a copy or a reduction of
the operands received. Ranks that share memory read each other's operands in place; small ones are posted inline. The
algorithms:

    one step      every rank reads all operands of its group; for a small message, every rank reduces all of an
                  all_reduce
    in parts      if all groups have the same size, rank i reduces part i of all operands and writes it into the
                  results of all ranks; for an op that was started earlier, or if the results of other ranks are
                  not writable, the parts are gathered afterwards

Operands are reduced in the order of the group, whichever rank does it, so all ranks get the same bits in every run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from shlo_jit import tuning
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep, lines_of
from shlo_jit.ir.attribute_text import attribute_text
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.collective.board import PAYLOAD_BYTES, POINTERS
from shlo_jit.ops.call_record import configuration
from shlo_jit.ops.collective import WRITTEN_ALONG
from shlo_jit.ops.known_calls import RAGGED_ALL_TO_ALL, RECV, SEND
from shlo_jit.reasons import Reason
from shlo_jit.schedule.bodies import choose_lanes
from shlo_jit.schedule.choice import Choice, Note
from shlo_jit.schedule.context import Context
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.reducers import accumulator, simple_op
from shlo_jit.schedule.scratch import Field, Scratch, aligned
from shlo_jit.schedule.site import Site
from shlo_jit.schedule.tasks import Tasks, cut
from shlo_jit.sizes import NotSymbolic

REDUCING = {"all_reduce", "reduce_scatter", "collective_reduce"}
ROOTED = {"collective_broadcast", "collective_reduce"}
CALLS = {SEND: "send", RECV: "recv", RAGGED_ALL_TO_ALL: "ragged_all_to_all"}
"""Custom calls that are collective ops, with their kinds."""
SAME = ("all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension", WRITTEN_ALONG, "has_dynamic_root")
"""Attributes that are equal on all ranks that take part in an exchange."""


class Peers(NamedTuple):
    """The part of one rank in an exchange."""

    sources: tuple[int, ...] = ()
    """Ranks that this rank receives from, in the order of the group; may include itself."""
    targets: tuple[int, ...] = ()
    """Ranks that read what this rank posts, without itself."""


@dataclass(frozen=True, kw_only=True)
class CollectiveSchedule(KernelSchedule):
    """Schedule of a collective op."""

    kind: str
    """The kind of op, as `kind_of` returns it."""
    peers: tuple[Peers, ...]
    """For each rank, its part in the exchange."""
    positions: tuple[int, ...]
    """For each rank, its position in its group; 0 if it is in no group."""
    groups: tuple[int, ...]
    """For each rank, a number that identifies its group."""
    signature: int
    """A hash of the op: equal on all ranks that take part in the exchange."""
    site: Site
    inline: Choice[bool]
    in_parts: Choice[bool]
    """For an all_reduce, whether each rank reduces a part."""
    pushes: bool = False
    """Whether each rank then writes its part into the results of the others."""
    fetches: bool = False
    """Whether the operands may be arguments in memory that only their caller reaches, which the other ranks fetch."""
    width: int = 1
    """Lanes of the reduction."""
    block: int = 1
    """Elements of a unit of the reduction."""
    fetched_blocks: int = 1
    """Units for which operands of other ranks are fetched at a time, if they are."""
    unrolls_sources: bool = False
    """Whether the reduction has code for each source; otherwise, it loops over them."""
    unrolled_targets: int | None = None
    """For a reduction that writes its part to all ranks, their number if it has code for each of them."""
    channel: int | None = None
    """The channel handle of a send or recv."""
    copied: tuple[int, ...] = ()
    """Operands that are copied into scratch memory because other ranks cannot reach them in place."""

    @property
    def most_sources(self) -> int:
        return max(len(m.sources) for m in self.peers)

    @property
    def sources(self) -> int | None:
        """Number of ranks that each rank receives from; None if ranks differ."""
        counts = {len(m.sources) for m in self.peers}
        return counts.pop() if len(counts) == 1 else None

    def reduction_tasks(self, elements: int) -> Tasks:
        """The tasks that reduce up to so many elements."""
        return cut(-(-elements // self.block), elements * (self.sources or 2))

    @property
    def notes(self) -> list[Note]:
        hears = self.sources
        out = [
            Note("ranks", f"up to {self.most_sources} of {len(self.peers)}" if hears is None else f"{hears}"),
            Note("message", f"{self.site.nbytes:,} bytes {'inline' if self.inline.value else 'in place'}",
                 self.inline.why),
        ]  # fmt: skip
        if self.in_parts.value:
            out.append(Note("strategy", "each rank reduces a part", self.in_parts.why))
        return out


@dataclass(frozen=True, kw_only=True)
class RankSchedule(KernelSchedule):
    """Schedule of an op that returns the number of the process."""


def schedule_rank(step: OpStep, context: Context) -> KernelSchedule:
    return RankSchedule()


def schedule_collective(step: OpStep, context: Context) -> KernelSchedule:
    """Schedules a collective op. Raises UnsupportedError if the op has more operands than a message has addresses."""
    op, kind = step.op, kind_of(step.op)
    operands = data_operands(op)
    if not all(v.tensor.is_fixed for v in operands):
        raise NotSymbolic("fixed-shapes-only", f"{kind} among processes takes arrays of fixed shapes only")
    nbytes = sum(v.tensor.nbytes for v in operands)
    if nbytes == 0:
        return NOTHING
    if 2 * len(operands) > POINTERS:
        raise UnsupportedError(
            diagnose(
                f"{kind} has {len(operands)} operands; at most {POINTERS // 2} are supported",
                op.span,
                label="too-many-operands",
            )
        )
    groups = groups_of(op)
    ranks = range(context.processes)
    inline = _inline(operands, nbytes)
    in_parts = _in_parts(kind, inline, groups)
    pushes = in_parts.value and context.reaches and "started" not in op.attributes
    peers = tuple(_peers(op, groups, rank) for rank in ranks)
    return CollectiveSchedule(
        kind=kind,
        peers=peers,
        positions=tuple(next((g.index(r) for g in groups if r in g), 0) for r in ranks),
        groups=tuple(_group_number(op, groups, rank) for rank in ranks),
        signature=number_of(signature_of(op), pushes),  # what is posted depends on `pushes`
        site=Site(kind, _types_text(operands), nbytes, lines_of([op])),
        inline=inline,
        in_parts=in_parts,
        pushes=pushes,
        fetches=context.reaches and not inline.value and _can_fetch(op, operands, peers),
        **_reduction(op, context, peers),
        channel=int(configuration(op)["channel"]) if kind in ("send", "recv") else None,
        **_memory(kind, operands, inline.value),
    )


def rows_of(op: Op) -> int:
    """Number of segments that one member's part has in an operand or a result. The op works along a dimension."""
    name = "all_gather_dim" if kind_of(op) == "all_gather" else "scatter_dimension"
    return math.prod(data_operands(op)[0].tensor.extents[: op.int(name)])


def _can_fetch(op: Op, operands: list[Value], peers: tuple[Peers, ...]) -> bool:
    """Whether the op reads the operands of other ranks in large chunks."""
    kind = kind_of(op)
    if kind in ("all_gather", "reduce_scatter") and rows_of(op) > 1:
        return False
    if kind in REDUCING:
        (most, *more) = {len(m.sources) for m in peers}
        itemsize = max(v.tensor.storage.itemsize for v in operands)
        return not more and most * itemsize * tuning.REDUCTION_BLOCK <= tuning.FETCHED_BYTES
    return kind in ("all_gather", "all_to_all", "collective_broadcast", "collective_permute")


def kind_of(op: Op) -> str:
    """The kind of a collective op: its name without the dialect."""
    if op.name == "stablehlo.custom_call":
        return CALLS[op.attributes["call_target_name"]]
    return op.name.removeprefix("stablehlo.")


def data_operands(op: Op) -> list[Value]:
    """The operands that are sent to other ranks; for a recv, the results. Excludes tokens, dynamic roots, and operands
    that only the rank itself reads."""
    kind = kind_of(op)
    found = [v for v in (op.results if kind == "recv" else op.operands) if isinstance(v.type, TensorType)]
    if kind == "ragged_all_to_all":
        given, _, offsets, sizes, output_offsets, _ = found
        return [given, offsets, sizes, output_offsets]
    return found[:-1] if op.attributes.get("has_dynamic_root") else found


def groups_of(op: Op) -> list[list[int]]:
    """The process groups; empty for ops that communicate along pairs."""
    attr = _attribute(op, "replica_groups")
    return [] if attr is None else [[int(n) for n in row if n >= 0] for row in attr.array]


def pairs_of(op: Op) -> list[tuple[int, int]] | None:
    """Source and target of each message; None if the op does not list such pairs."""
    attr = _attribute(op, "source_target_pairs")
    return None if attr is None else [(int(a), int(b)) for a, b in attr.array]


def _attribute(op: Op, name: str) -> Any:
    return configuration(op).get(name) if op.name == "stablehlo.custom_call" else op.attributes.get(name)


def _peers(op: Op, groups: list[list[int]], rank: int) -> Peers:
    kind, pairs = kind_of(op), pairs_of(op)
    if pairs is not None:
        sources = tuple(a for a, b in pairs if b == rank and kind != "send")
        targets = tuple(b for a, b in pairs if a == rank and kind != "recv")
        return Peers(sources, tuple(t for t in targets if t != rank or kind == "send"))
    group = next((tuple(g) for g in groups if rank in g), None)
    if group is None:
        return Peers()
    at = group.index(rank)
    others = group[at + 1 :] + group[:at]  # each rank begins with another one: over a network, all are busy
    if kind not in ROOTED or op.attributes.get("has_dynamic_root"):
        return Peers(group, others)
    root = group[0]
    if kind == "collective_broadcast":
        return Peers((root,), others if rank == root else ())
    return Peers(group) if rank == root else Peers((), (root,))


def _group_number(op: Op, groups: list[list[int]], rank: int) -> int:
    pairs = pairs_of(op)
    if pairs is not None:
        return number_of("pairs", pairs) if kind_of(op) == "collective_permute" else 0
    return number_of("group", next((g for g in groups if rank in g), []))


def number_of(*what: object) -> int:
    """A hash of the given values that is the same in all processes."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "little", signed=True)


def signature_of(op: Op) -> int:
    """A hash of all that ranks in one exchange must have in common: the op, its types, and its regions and
    attributes."""
    kind = kind_of(op)
    name = "transfer" if kind in ("send", "recv") else kind
    types = [(v.tensor.storage.name, v.tensor.extents) for v in data_operands(op)]
    bodies = [_body(region.block) for region in op.regions]
    return number_of(name, types, bodies, [op.attributes.get(n) for n in SAME])


def _body(block: Block) -> list[tuple[object, ...]]:
    """A description of a region's ops that does not depend on the names of its values."""
    numbers: dict[Value, int] = {}
    lines: list[tuple[object, ...]] = []
    for value in block.arguments:
        numbers[value] = len(numbers)
    for op in block.ops:
        attributes = sorted((name, attribute_text(attr)) for name, attr in op.attributes.items())
        inner = [_body(each) for region in op.regions for each in region.blocks]
        operands = [numbers.get(value, -1) for value in op.operands]
        lines.append((op.name, operands, [str(r.type) for r in op.results], attributes, inner))
        for value in op.results:
            numbers[value] = len(numbers)
    return lines


def _types_text(operands: list[Value]) -> str:
    return ", ".join(f"{v.tensor.storage.name}[{','.join(map(str, v.tensor.extents))}]" for v in operands)


def _inline(operands: list[Value], nbytes: int) -> Choice[bool]:
    if sum(aligned(v.tensor.nbytes) for v in operands) <= PAYLOAD_BYTES:
        return Choice(
            True, Reason("small-message", f"up to {PAYLOAD_BYTES:,} bytes are cheaper to copy than to wait for")
        )
    return Choice(False, Reason("large-message", f"more than {PAYLOAD_BYTES:,} bytes"))


def _in_parts(kind: str, inline: Choice[bool], groups: list[list[int]]) -> Choice[bool]:
    if kind != "all_reduce":
        return Choice(False, Reason("not-all-reduce", "only an all_reduce is reduced in parts"))
    if len(set(map(len, groups))) > 1:
        return Choice(False, Reason("uneven-groups", "the groups differ in size"))
    if inline.value:
        return Choice(False, Reason("small-message", "the message is small"))
    return Choice(True, Reason("large-message", "the message is large"))


def _reduction(op: Op, context: Context, peers: tuple[Peers, ...]) -> dict[str, Any]:
    """How operands are reduced, if the op reduces them."""
    if kind_of(op) not in REDUCING:
        return {}
    dtype, block = accumulator(op, simple_op(op)), tuning.REDUCTION_BLOCK
    counts = {len(m.sources) for m in peers}
    nbytes = max(1, max(counts) * op.results[0].tensor.storage.itemsize * block)
    return {
        "width": choose_lanes(context.target, [dtype], max(v.tensor.size for v in op.results)),
        "block": block,
        "fetched_blocks": max(1, tuning.FETCHED_BYTES // nbytes),
        "unrolls_sources": len(counts) == 1 and max(counts) <= tuning.UNROLLED_SOURCES,
        "unrolled_targets": max(counts) if len(counts) == 1 and max(counts) <= tuning.UNROLLED_TARGETS else None,
    }


def _memory(kind: str, operands: list[Value], inline: bool) -> dict[str, Any]:
    """Memory for operands that other ranks cannot reach: constants, and the operands of a send, which must remain valid
    after the step."""
    if inline or kind == "recv":
        return {}
    if kind == "send":
        copied = tuple(range(len(operands)))
        return {"scratch": _copies(operands, copied), "lasting": True, "copied": copied}
    copied = tuple(i for i, v in enumerate(operands) if v.op is not None and v.op.name == "stablehlo.constant")
    return {"scratch": _copies(operands, copied), "copied": copied} if copied else {}


def _copies(operands: list[Value], copied: Iterable[int]) -> Scratch:
    """A scratch field for the copy of each copied operand."""
    return Scratch(tuple(Field(copy_of(i), operands[i].tensor.nbytes) for i in copied))


def copy_of(operand: int) -> str:
    """Name of the field with the copy of an operand."""
    return f"copy of operand {operand}"
