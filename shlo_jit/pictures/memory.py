"""The memory plan as a picture: bytes of the arena over time, with a rectangle for each allocation."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.fuse.plan import all_steps, labels_of
from shlo_jit.fuse.value_names import Names, type_text
from shlo_jit.ir.core import Value
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.memory.storage import Storage
from shlo_jit.pictures.drawing import Drawing, bytes_text, shortened, written
from shlo_jit.pictures.page import element, page, table
from shlo_jit.sizes import hint_of

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1040, 460, 84, 54, 40
"""Pixels: size of the plane, and margins around it."""
LEAST = 0.3
"""Minimum height in pixels of a rectangle to be drawn."""
LARGEST = 40
"""Maximum rows of the table."""


class Life(NamedTuple):
    """A range of bytes allocated for some time."""

    what: str
    kind: str
    """value or scratch."""
    offset: int
    nbytes: int
    first: int
    last: int
    steps: str
    """Lifetime, as in the printed plan."""


def lives_of(function: PlannedFunction) -> list[Life]:
    """Allocations in the arena, the largest first."""
    memory, names, labels = function.memory, Names(function.core), labels_of(function.plan)
    clock = _clock(function, labels)
    held: dict[int, list[Value]] = {}
    storages: dict[int, Storage] = {}
    for value, storage in memory.storage.items():
        held.setdefault(id(storage), []).append(value)
        storages[id(storage)] = storage
    found = []
    for key, s in storages.items():
        if s.kind == "arena" and s.last >= 0 and s.nbytes:
            values = held[key]
            more = f" and {len(values) - 1} more" if len(values) > 1 else ""
            found.append(_life(f"{names(values[0])} {type_text(values[0])}{more}", "value", s, clock))
    for key, s in memory.scratch.items():
        if s.nbytes and s.last >= 0:
            found.append(_life(f"scratch of step {labels[key]}", "scratch", s, clock))
    return sorted(found, key=lambda life: (-life.nbytes, life.first, life.offset))


def _life(what: str, kind: str, s: Storage, clock: dict[int, str]) -> Life:
    first, last = clock.get(s.first, "start"), clock.get(s.last, "end")
    steps = first if first == last else f"{first} to {last}"
    return Life(what, kind, hint_of(s.number), hint_of(s.nbytes), s.first, s.last, steps)


def _clock(function: PlannedFunction, labels: dict[int, str]) -> dict[int, str]:
    """Maps a moment to the label of the innermost step that runs."""
    clock: dict[int, str] = {}
    for step in all_steps(function.plan):
        begin, end = function.memory.times[id(step)]
        clock |= dict.fromkeys(range(begin, end + 1), labels[id(step)])
    return clock


def _summary(function: PlannedFunction) -> str:
    sizes = {"argument": 0, "result": 0, "constant": 0}
    for storage in {id(s): s for s in function.memory.storage.values()}.values():
        if storage.kind in sizes:
            sizes[storage.kind] += hint_of(storage.nbytes)
    words = [f"arena {bytes_text(hint_of(function.memory.arena_bytes))}"]
    return ", ".join([*words, *(f"{kind}s {bytes_text(n)}" for kind, n in sizes.items() if n)])


def _draw(function: PlannedFunction) -> tuple[Drawing, float, float]:
    out, lives = Drawing(), lives_of(function)
    title = f"@{function.name}: {_summary(function)}"
    out.text(LEFT, 24, title, "ink s13 bold")
    if not lives:
        out.text(LEFT, 44, "the arena is empty", "dim s12")
        return out, LEFT + WIDTH + 20, TOP + 10
    total = max([hint_of(function.memory.arena_bytes), *(life.offset + life.nbytes for life in lives), 1])
    clock = _clock(function, labels_of(function.plan))
    begin, end = min([*clock, *(life.first for life in lives)]), max([*clock, *(life.last for life in lives)]) + 1
    across, up = WIDTH / (end - begin), HEIGHT / total
    hidden = [life for life in lives if life.nbytes * up < LEAST]
    said = f"; {len(hidden)} too small to be seen" if hidden else ""
    scratch = "; violet: scratch" if any(life.kind == "scratch" for life in lives) else ""
    out.text(LEFT, 42, f"bytes of the arena against steps; blank: not in use{scratch}{said}", "dim s11")
    _axes(out, clock, begin, end, total)
    for life in lives:
        if life in hidden:
            continue
        x, width = LEFT + (life.first - begin) * across, (life.last - life.first + 1) * across
        y, height = TOP + HEIGHT - (life.offset + life.nbytes) * up, life.nbytes * up
        tip = f"{life.what}\n{bytes_text(life.nbytes)} at {life.offset:,}\nsteps {life.steps}"
        with out.group(tip=tip):
            out.rect(x, y, width, height, life.kind, min(3.0, height / 3, width / 3))
            if height > 13 and width > 46:
                out.clipped_text(x, y, width, height, shortened(life.what, width - 8, 11), "ink s11")
    return out, LEFT + WIDTH + 20, TOP + HEIGHT + BOTTOM


def _axes(out: Drawing, clock: dict[int, str], begin: int, end: int, total: int) -> None:
    apart = 1 << max(0, math.ceil(math.log2(total / 6)))  # four to seven lines
    for count in range(0, total + 1, apart):
        y = TOP + HEIGHT * (1 - count / total)
        out.line(LEFT, y, LEFT + WIDTH, y, "grid")
        out.text(LEFT - 8, y + 4, bytes_text(count), "dim s11 end")
    shown = -1e9
    before = ""
    for moment in range(begin, end):
        label = clock.get(moment, "")
        x = LEFT + (moment - begin + 0.5) * WIDTH / (end - begin)
        if label and label != before and x - shown > 14 + 7 * len(label):
            out.text(x, TOP + HEIGHT + 16, label, "dim s11 middle")
            shown = x
        before = label
    out.text(LEFT + WIDTH / 2, TOP + HEIGHT + 34, "step", "dim s11 middle")


def memory_svg(name: str, functions: Sequence[PlannedFunction]) -> str:
    """A standalone picture of all functions below each other."""
    *callees, entry = functions
    out, y, width = Drawing(), 36.0, 0.0
    out.text(16, 26, shortened(name, WIDTH, 16), "ink s16 bold")
    for function in (entry, *callees):
        drawing, wide, high = _draw(function)
        out.moved(drawing, 0, y)
        y, width = y + high, max(width, wide)
    return written(out.svg(width, y, label=f"memory of {name}", alone=True))


def memory_html(name: str, about: str, programs: Sequence[Sequence[PlannedFunction]]) -> str:
    """A page of the pictures, with a table of the largest allocations."""
    body: list[ET.Element] = []
    for *callees, entry in programs:
        for function in (entry, *callees):
            drawing, width, height = _draw(function)
            svg = drawing.svg(width, height, label=f"memory of @{function.name}")
            body.append(element("div", "fit wide", children=[svg]))
            lives = lives_of(function)
            if lives:
                rows = [(x.what, x.steps, bytes_text(x.nbytes), f"{x.offset:,}") for x in lives[:LARGEST]]
                many = f"the {LARGEST} largest of {len(lives)}" if len(lives) > LARGEST else f"all {len(lives)}"
                head = f"{many} in the arena of @{function.name}"
                body.append(element("h2", text=head))
                body.append(element("div", "rows", children=[table(("what", "steps", "bytes", "at"), rows)]))
    return page(name, about, body)
