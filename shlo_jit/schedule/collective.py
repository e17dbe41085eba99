"""Collective ops: who hears from whom, by which algorithm, in which memory.

Every op is one exchange of messages between the ranks (see `kernels/collective/`), and then a copy or a reduction of
what was found. Ranks that share memory read each other's operands in place; small ones are posted inline. The ways:

    one step      every rank reads all operands of its group; an all_reduce of a small message is reduced by all
    in parts      rank i reduces part i of the operands of all, and writes it into the results of all; of an op that was
                  started earlier, or where results of others cannot be written to, the parts are gathered afterwards

Operands are reduced in the order of the group, whoever does it, so all ranks get the same bits in every run.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep, lines_of
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.kernels.collective.board import PAYLOAD_BYTES, POINTERS
from shlo_jit.ops.collective import channel_id
from shlo_jit.schedule.bodies import choose_lanes
from shlo_jit.schedule.choice import Choice, Note
from shlo_jit.schedule.kernel import NOTHING, KernelSchedule
from shlo_jit.schedule.reducers import accumulator, simple_op
from shlo_jit.schedule.schedule import Context
from shlo_jit.schedule.scratch import ALIGN, Scratch
from shlo_jit.schedule.site import Site

REDUCING = {"stablehlo.all_reduce", "stablehlo.reduce_scatter", "stablehlo.collective_reduce"}
ROOTED = {"stablehlo.collective_broadcast", "stablehlo.collective_reduce"}


class Meeting(NamedTuple):
    """What a rank does in an exchange."""

    sources: tuple[int, ...] = ()
    """Ranks that it hears from, in the order of the group, maybe with itself."""
    targets: tuple[int, ...] = ()
    """Ranks that read what it posts, without itself."""


@dataclass(frozen=True, kw_only=True)
class CollectiveSchedule(KernelSchedule):
    """A collective op with everything decided."""

    meetings: tuple[Meeting, ...]
    """Of each rank."""
    positions: tuple[int, ...]
    """Of each rank in its group; 0 where it is in none."""
    groups: tuple[int, ...]
    """Of each rank a number for its group: ranks that meet have the same."""
    signature: int
    """A number for what the op is: those that meet have the same."""
    site: Site
    inline: Choice[bool]
    in_parts: Choice[bool]
    """Of an all_reduce: whether each rank reduces a part."""
    pushes: bool = False
    """Whether it then writes that into the results of the others."""
    width: int = 1
    """Lanes of a reduction."""
    channel: int | None = None
    """The handle of a send's or recv's."""
    copied: tuple[int, ...] = ()
    """Operands that others cannot reach where they are, and that are copied into scratch memory."""

    @property
    def most_sources(self) -> int:
        return max(len(m.sources) for m in self.meetings)

    @property
    def sources(self) -> int | None:
        """How many ranks each hears from, where that is the same for all."""
        counts = {len(m.sources) for m in self.meetings}
        return counts.pop() if len(counts) == 1 else None

    @property
    def notes(self) -> list[Note]:
        hears = self.sources
        out = [
            Note("meets", f"{self.most_sources} of {len(self.meetings)} ranks" if hears is None else f"{hears} ranks"),
            Note("message", f"{self.site.nbytes:,} bytes {'inline' if self.inline.value else 'in place'}",
                 self.inline.why),
        ]  # fmt: skip
        if self.in_parts.value:
            out.append(Note("way", "each rank reduces a part", self.in_parts.why))
        return out


@dataclass(frozen=True, kw_only=True)
class RankSchedule(KernelSchedule):
    """The number of the process."""


def schedule_rank(step: OpStep, context: Context) -> KernelSchedule:
    return RankSchedule()


def schedule_collective(step: OpStep, context: Context) -> KernelSchedule:
    """Raises UnsupportedError at an op with more operands than a message has addresses."""
    op = step.op
    operands = data_operands(op)
    nbytes = sum(v.tensor.nbytes for v in operands)
    if nbytes == 0:
        return NOTHING
    if 2 * len(operands) > POINTERS:
        raise UnsupportedError(diagnose(f"{op.name} of more than {POINTERS // 2} operands", op.span))
    groups = groups_of(op)
    meetings = [_meeting(op, groups, rank) for rank in range(context.processes)]
    inline = _inline(operands, nbytes)
    return CollectiveSchedule(
        meetings=tuple(meetings),
        positions=tuple(next((g.index(r) for g in groups if r in g), 0) for r in range(context.processes)),
        groups=tuple(_group_number(op, groups, rank) for rank in range(context.processes)),
        signature=signature_of(op),
        site=site_of(op, operands, nbytes),
        inline=inline,
        in_parts=_in_parts(op, inline),
        pushes=context.reaches and "started" not in op.attributes,
        width=_width(op, context) if op.name in REDUCING else 1,
        channel=channel_id(op) if op.name in ("stablehlo.send", "stablehlo.recv") else None,
        **_scratch(op, operands, inline.value),
    )


def data_operands(op: Op) -> list[Value]:
    """The operands that are tensors of data: without tokens and dynamic roots. Of a recv, its results."""
    values = op.results if op.name == "stablehlo.recv" else op.operands
    found = [v for v in values if isinstance(v.type, TensorType)]
    return found[:-1] if op.attributes.get("has_dynamic_root") else found


def groups_of(op: Op) -> list[list[int]]:
    """The process groups; of a permute none."""
    attr = op.attributes.get("replica_groups")
    return [] if attr is None else [[int(n) for n in row if n >= 0] for row in attr.array]


def pairs_of(op: Op) -> list[tuple[int, int]]:
    """Sender and receiver of each message."""
    return [(int(a), int(b)) for a, b in op.attributes["source_target_pairs"].array]


def _meeting(op: Op, groups: list[list[int]], rank: int) -> Meeting:
    if "source_target_pairs" in op.attributes:
        pairs = pairs_of(op)
        sources = tuple(a for a, b in pairs if b == rank and op.name != "stablehlo.send")
        targets = tuple(b for a, b in pairs if a == rank and op.name != "stablehlo.recv")
        return Meeting(sources, tuple(t for t in targets if t != rank))
    group = next((tuple(g) for g in groups if rank in g), None)
    if group is None:
        return Meeting()
    others = tuple(r for r in group if r != rank)
    if op.name not in ROOTED or op.attributes.get("has_dynamic_root"):
        return Meeting(group, others)
    root = group[0]
    if op.name == "stablehlo.collective_broadcast":
        return Meeting((root,), others if rank == root else ())
    return Meeting(group) if rank == root else Meeting((), (root,))


def _group_number(op: Op, groups: list[list[int]], rank: int) -> int:
    if "source_target_pairs" in op.attributes:
        return 0 if op.name != "stablehlo.collective_permute" else number_of("pairs", pairs_of(op))
    return number_of("group", next((g for g in groups if rank in g), []))


def number_of(*what: object) -> int:
    """A number for a value, the same in all processes."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "little", signed=True)


def signature_of(op: Op) -> int:
    """What those that meet must have in common: the op, its types, and what is done with them."""
    name = "transfer" if op.name in ("stablehlo.send", "stablehlo.recv") else op.name
    types = [(str(v.tensor.storage), v.tensor.extents) for v in data_operands(op)]
    body = [inner.name for inner in op.block().ops] if op.regions else []
    names = ("all_gather_dim", "scatter_dimension", "has_dynamic_root")
    return number_of(name, types, body, [op.attributes.get(n) for n in names])


def site_of(op: Op, operands: list[Value], nbytes: int) -> Site:
    types = ", ".join(f"{v.tensor.storage.name}[{','.join(map(str, v.tensor.extents))}]" for v in operands)
    return Site(op.name.removeprefix("stablehlo."), types, nbytes, lines_of([op]))


def _inline(operands: list[Value], nbytes: int) -> Choice[bool]:
    needed = sum(-(-v.tensor.nbytes // ALIGN) * ALIGN for v in operands)
    if needed <= PAYLOAD_BYTES:
        return Choice(True, f"{PAYLOAD_BYTES:,} bytes are copied faster than waited for")
    return Choice(False, f"more than {PAYLOAD_BYTES:,} bytes")


def _in_parts(op: Op, inline: Choice[bool]) -> Choice[bool]:
    if op.name != "stablehlo.all_reduce":
        return Choice(False, "")
    if inline.value:
        return Choice(False, "the message is small")
    return Choice(True, "the message is large")


def _width(op: Op, context: Context) -> int:
    """Lanes of the accumulators."""
    dtype = accumulator(op, simple_op(op))
    return choose_lanes(context.target, [dtype], max(v.tensor.size for v in op.results))


def _scratch(op: Op, operands: list[Value], inline: bool) -> dict[str, object]:
    """Memory for what others cannot reach: constants, and what is sent, which must be there after the step."""
    if inline:
        return {}
    if op.name == "stablehlo.send":
        return {"scratch": Scratch(sum(map(_aligned, operands))), "lasting": True, "copied": _all(operands)}
    copied = tuple(i for i, v in enumerate(operands) if v.op is not None and v.op.name == "stablehlo.constant")
    return {"scratch": Scratch(sum(_aligned(operands[i]) for i in copied)), "copied": copied} if copied else {}


def _all(operands: list[Value]) -> tuple[int, ...]:
    return tuple(range(len(operands)))


def _aligned(value: Value) -> int:
    return math.ceil(value.tensor.nbytes / ALIGN) * ALIGN
