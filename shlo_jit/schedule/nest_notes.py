"""The printed schedule of a nest: the decisions and their reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit import tuning
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note, count
from shlo_jit.schedule.passes import Passes
from shlo_jit.schedule.space import Space

if TYPE_CHECKING:
    from shlo_jit.schedule.nest import NestSchedule


def nest_notes(s: NestSchedule) -> list[Note]:
    """The decisions in the order of the printed schedule."""
    return [*_vectors(s), *_rows(s), *_tasks(s), *_memory(s)]


def _vectors(s: NestSchedule) -> list[Note]:
    """Notes on loops and lanes, and on unrolled iterations."""
    space = s.space
    lanes = f"{space.width} along v{space.vector}" if space.vector is not None else "none"
    out = [Note("loops", _loops(space)), Note("lanes", lanes, space.why_lanes)]
    if s.tile is None and space.vector is not None:
        out.append(Note("unroll", count(s.unroll.value, "vector"), s.unroll.why))
    if s.unrolled:
        extents = " x ".join(str(space.extents[v]) for v in s.unrolled)
        variables = ", ".join(f"v{v}" for v in s.unrolled)
        why = Reason("short-reduction", f"{variables}: few iterations of few ops")
        out.append(Note("unrolls", f"{extents} iterations", why))
    if s.row_batching is not None:
        why = Reason("short-rows", f"the lanes of {space.width} short rows are combined along v{s.row_batching}")
        out.append(Note("row batching", f"{space.width} rows at a time", why))
    return out


def _rows(s: NestSchedule) -> list[Note]:
    """Notes on the order in which elements are visited, where it differs from the plain loops."""
    out: list[Note] = []
    if s.nest.interchange is not None:
        why = Reason("all-iterations", "all iterations of the loop")
        if s.most_iterations != s.nest.interchange.count:
            text = f"after {tuning.INTERCHANGE_WORK:,} vector operations the loop checks for interrupts"
            why = Reason("interruptible", text)
        out.append(Note("iterations", f"{s.most_iterations:,} on a tile in registers", why))
    if (table := s.scalar_table) is not None:
        text = f"those of an iteration cost {table.cost} additions, at least {tuning.SCALAR_TABLE_COST}"
        values = count(len(table.values), "scalar")
        out.append(Note("scalar table", f"{values} of an iteration", Reason("scalars-of-iterations", text)))
    if s.transposed_loads is not None:
        side, loads = s.transposed_loads.side, count(len(s.transposed_loads.loads), "load")
        text = f"{loads} contiguous along v{s.transposed_loads.across}, not along the lanes"
        out.append(Note("transposes", f"tiles of {side} x {side} in registers", Reason("transposed-loads", text)))
    if s.interleaved is not None:
        text = f"results along v{s.interleaved} lie between those of adjacent lanes"
        vectors = f"{s.space.extents[s.interleaved]} vectors"
        out.append(Note("interleaves", vectors, Reason("interleaved-results", text)))
        if s.batches_rows:
            why = Reason("rows-stored-as-one-run", "elements of these rows are stored as one run")
            out.append(Note("row batch", f"{vectors} of rows", why))
    if s.jammed is not None:
        text = f"what does not depend on v{s.jammed} is computed once for all of its iterations"
        rows = count(s.space.extents[s.jammed], "row")
        out.append(Note("unroll and jam", rows, Reason("shared-by-rows", text)))
    if s.space.inner:
        done = [what for p in range(s.passes.count + 1) if (what := _pass_text(s.passes, p))]
        out.append(Note("passes", f"{len(done)} over the row: {', then '.join(done)}"))
    return out


def _tasks(s: NestSchedule) -> list[Note]:
    """Notes on the units that threads share, temporal tiling, and the interior without bounds checks."""
    out: list[Note] = []
    if s.tile is None:
        of = "chunk of the row" if s.split else f"chunk of {s.chunk}" if s.chunk else "row"
        out.append(s.tasks.note("stripe" if s.transposed_loads is not None else of))
    if s.blocks is not None:
        out.append(s.blocks.note)
    if s.no_blocks is not None:
        out.append(Note("temporal tiling", "none", s.no_blocks))
    if s.interior is not None:
        box = ", ".join(f"v{v} in [{low}, {high})" for v, (low, high) in s.interior.box.items())
        known = count(len(s.interior.truth), "condition")
        out.append(Note("interior", box or "everywhere", Reason("interior-conditions", f"{known} decided there")))
    return out


def _memory(s: NestSchedule) -> list[Note]:
    """Notes on values that are kept between passes, prefetched, or written past the caches."""
    out: list[Note] = []
    caches = s.target.caches
    if s.stash:
        ops = ", ".join(s.nest.nodes[key].op.name.partition(".")[2] for key in s.stash)
        text = f"several passes need them, and they cost at least {tuning.ROW_BUFFER_COST} additions per element"
        kept = f"{ops}: {count(sum(s.stash.values()), 'byte')}"
        out.append(Note("row buffer", kept, Reason("needed-by-several-passes", text)))
    if s.prefetches:
        distances = ", ".join(f"{n:,}" for n in sorted(set(s.prefetches.values())))
        text = f"operands of at least {caches.bytes_of(tuning.PREFETCH_BYTES):,} bytes come from memory"
        far = f"{count(len(s.prefetches), 'load')}, {distances} bytes ahead"
        out.append(Note("prefetches", far, Reason("streams-from-memory", text)))
    if s.streams:
        text = f"results of at least {caches.bytes_of(tuning.STREAM_BYTES):,} bytes, which no cache holds"
        past = f"{count(len(s.streams), 'result')} past the caches"
        out.append(Note("streams", past, Reason("exceeds-cache", text)))
    if s.no_streams is not None:
        out.append(Note("streams", "none" if not s.streams else "no others", s.no_streams))
    return out


def _pass_text(passes: Passes, p: int) -> str:
    """The reductions and results that a pass over the row computes."""
    made = [op.name.partition(".")[2] for r in passes.reductions(p) for op in r.op.block().ops[:-1]]
    made += ["results"] if passes.inner_stores(p) else []
    return " and ".join(dict.fromkeys(made))


def _loop(space: Space, v: int) -> str:
    """A loop with its trip count, and the loops that were fused into it."""
    fused = sorted(other for other in space.dropped if space.final(other) == v)
    names = f" (with {', '.join(f'v{other}' for other in fused)})" if fused else ""
    return f"v{v}={space.extents[v]}{names}"


def _loops(space: Space) -> str:
    rows = " ".join(_loop(space, v) for v in space.rows) or "1 row"
    inner = " ".join(_loop(space, v) for v in space.inner)
    return f"{rows} over {inner}" if inner else rows
