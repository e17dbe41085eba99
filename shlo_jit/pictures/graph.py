"""The steps of a program as a graph.

Each step is a box, in execution order. Values are lines beside the boxes; loops and branches are boxes around their
steps. Long programs are drawn in sections: on a page each can be expanded, in a standalone picture a section is one
box.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shlo_jit.pictures.drawing import HEATS, Drawing, bytes_text, count_text, heat, shortened, wrapped, written
from shlo_jit.pictures.page import element, page, table
from shlo_jit.pictures.steps import Node, Region

WIDTH, LINE, PAD, GAP = 470, 17, 9, 16
"""Pixels: width of a step, height of a line of its text, padding of its box, gap between boxes."""
LINES = 4
"""Maximum lines of each text of a step."""
LANE = 11
"""Pixels between lines that pass steps."""
SECTION = 40
"""Steps of a section: about two screens."""
WHOLE = 160
"""Maximum steps of a standalone picture that shows every step."""


class Section(NamedTuple):
    """Consecutive steps."""

    title: str
    nodes: list[Node]

    @property
    def name(self) -> str:
        """Name for links."""
        return "steps-" + "".join(c if c.isalnum() else "-" for c in f"{self.title}-{self.nodes[0].label}")

    @property
    def span(self) -> str:
        first, last = self.nodes[0].label, self.nodes[-1].label
        return f"step {first}" if first == last else f"steps {first} to {last}"

    @property
    def counted(self) -> str:
        """`30 steps: 20 loop, 10 dot_general`, including those inside control flow."""
        found = Counter(n.title for node in self.nodes for n in _with_inner(node))
        kinds = ", ".join(f"{n} {title}" for title, n in found.most_common(5)) + (", ..." if len(found) > 5 else "")
        return f"{found.total()} step{'s' if found.total() > 1 else ''}: {kinds}"

    @property
    def share(self) -> float | None:
        shares = [n.share for node in self.nodes for n in _with_inner(node) if n.share is not None]
        return sum(shares) if shares else None


def _with_inner(node: Node) -> Iterator[Node]:
    yield node
    for region in node.regions:
        yield from region.all_nodes()


def sections_of(regions: Sequence[Region]) -> list[Section]:
    """Sections of the regions. Long regions have several; long inner regions follow the section that contains them."""
    found = []
    for region in regions:
        nodes = region.nodes
        count = -(-len(nodes) // SECTION)
        size = -(-len(nodes) // max(1, count))
        for i in range(0, len(nodes), size or 1):
            found.append(Section(region.title, nodes[i : i + size]))
            for node in (n for top in nodes[i : i + size] for n in _with_inner(top)):
                inner = [Region(f"{r.title} of step {node.label}", r.nodes) for r in node.regions if _is_long(r)]
                found += sections_of(inner)
    return found


def _is_long(region: Region) -> bool:
    return len(region.nodes) > SECTION


# ---------------------------------------------------------------------- drawings
class Drawn(NamedTuple):
    drawing: Drawing
    width: float
    height: float


def draw_nodes(nodes: Sequence[Node]) -> Drawn:
    """Draws steps below each other, with lines beside them for values that are not read by the next step."""
    out, boxes, y = Drawing(), [_draw_node(node) for node in nodes], 0.0
    place: dict[Node, tuple[float, float]] = {}
    width = max((box.width for box in boxes), default=0.0)
    lines = Drawing()
    for number, (node, box) in enumerate(zip(nodes, boxes, strict=True)):
        out.moved(box.drawing, 0, y)
        place[node] = (y, box.width)
        if number and nodes[number - 1] in node.sources:
            with lines.group(tip=_tip(nodes[number - 1], node)):
                lines.line(WIDTH / 2, y - GAP, WIDTH / 2, y - 5, "edge")
                lines.arrow(WIDTH / 2, y)
        y += box.height + GAP
    lanes = _draw_lanes(lines, nodes, place, width)
    out.moved(lines, 0, 0)
    return Drawn(out, width + LANE * (lanes + 1) if lanes else width, max(0.0, y - GAP))


def _tip(source: Node, reader: Node) -> str:
    return f"{source.label} to {reader.label}: {reader.values.get(source.label, '')}"


def _draw_lanes(lines: Drawing, nodes: Sequence[Node], place: dict[Node, tuple[float, float]], width: float) -> int:
    """Draws a lane for each step whose values are read further down; returns the number of lanes side by side."""
    number = {node: i for i, node in enumerate(nodes)}
    readers: dict[Node, list[Node]] = {}
    for node in nodes:
        for source in node.sources:
            if source in number and number[node] > number[source] + 1:
                readers.setdefault(source, []).append(node)
    ends: list[int] = []
    """For each lane, the step at which it is free again."""
    for source in sorted(readers, key=lambda n: number[n]):
        start, last = number[source], number[readers[source][-1]]
        lane = next((k for k, end in enumerate(ends) if end <= start), len(ends))
        ends[lane : lane + 1] = [last]
        x = width + LANE * (lane + 1)
        y, right = place[source]
        top = y + LINE + 8
        with lines.group(tip="\n".join(_tip(source, reader) for reader in readers[source])):
            for reader in readers[source]:
                below, edge = place[reader]
                lines.path(
                    f"M{right:g} {top:g}H{x - 5:g}q5 0 5 5V{below + 7:g}q0 5 -5 5H{edge + 5:g}", "edge"
                )  # fmt: skip
                lines.arrow(edge, below + 12, left=True)
    return len(ends)


def _draw_node(node: Node) -> Drawn:
    """Draws a step's box."""
    out, words = Drawing(), _lines(node)
    inner = [_draw_region(region) for region in node.regions]
    width = max([WIDTH, *(r.width + 2 * PAD for r in inner)])
    height = 2 * PAD + LINE * len(words) - 3
    for region in inner:
        height += region.height + GAP
    with out.group(tip="\n".join(node.details)):
        out.rect(0, 0, width, height, "box" if inner else f"card {heat(node.share)}".strip())
        out.rect(0, 0, 5, height, node.kind, 2)
        out.text(PAD + 6, PAD + 10, f"{node.label}  {node.title}", "ink s13 bold")
        if node.time:
            out.text(width - PAD, PAD + 10, node.time, "ink s12 end")
        for i, word in enumerate(words[1:]):
            out.text(PAD + 6, PAD + 10 + LINE * (i + 1), word, "dim s11")
        y = 2 * PAD + LINE * len(words) - 3
        for region in inner:
            out.moved(region.drawing, PAD, y)
            y += region.height + GAP
    return Drawn(out, width, height)


def _words(node: Node) -> list[str]:
    writes = "; ".join(node.writes[:3]) + (f"; {len(node.writes) - 3} more" if len(node.writes) > 3 else "")
    shown = ", ".join(node.reads[:8]) + (f", {len(node.reads) - 8} more" if len(node.reads) > 8 else "")
    return [node.title, *filter(None, [node.ops, shown and f"← {shown}", writes and f"→ {writes}"])]


def _lines(node: Node) -> list[str]:
    """The texts of a step's box, wrapped to its width."""
    title, *texts = _words(node)
    return [title, *(line for text in texts for line in wrapped(text, WIDTH - 2 * PAD - 8, 11, LINES))]


def _draw_region(region: Region) -> Drawn:
    """Draws a box with the steps of a region, or with their number."""
    out = Drawing()
    if _is_long(region):
        inner = Drawn(Drawing(), WIDTH, LINE)
        inner.drawing.text(0, 12, f"{len(region.nodes)} steps, in separate sections", "dim s11")
    elif region.nodes:
        inner = draw_nodes(region.nodes)
    else:
        inner = Drawn(Drawing(), WIDTH, LINE)
        inner.drawing.text(0, 12, "nothing runs", "dim s11")
    width, height = inner.width + 2 * PAD, inner.height + LINE + 2 * PAD
    out.rect(0, 0, width, height, "box")
    out.text(PAD, PAD + 9, region.title, "dim s11 bold")
    out.moved(inner.drawing, PAD, PAD + LINE)
    return Drawn(out, width, height)


# ---------------------------------------------------------------------- files
def graph_svg(name: str, regions: Sequence[Region], only: tuple[int, int] | None = None) -> str:
    """A standalone picture. `only`: a range of the entry's steps, each drawn individually."""
    regions = _only(regions, only)
    sections = sections_of(regions)
    is_whole = only is not None or sum(len(s.nodes) for s in sections) <= WHOLE
    out, y, width = Drawing(), 46.0, 560.0
    out.text(16, 26, shortened(name, 520, 16), "ink s16 bold")
    if not is_whole:
        count = sum(len(s.nodes) for s in sections)
        out.text(16, y + 4, f"{count:,} steps, in sections; a page (html) and --steps show each", "dim s12")
        y += 22
    views = views_of(regions)
    if views and only is None:
        out.text(16, y + 4, _not_drawn(views), "dim s12")
        y += 22
    if any(s.share is not None for s in sections):
        _draw_scale(out, 16, y - 6)
        y += 22
    title = ""
    for section in sections:
        if section.title != title:
            title = section.title
            out.text(16, y + 8, title, "ink s13 bold")
            y += 22
        if is_whole:
            drawn = draw_nodes(section.nodes)
        else:
            drawn = _draw_summary(section)
        out.moved(drawn.drawing, 16, y)
        y += drawn.height + GAP
        width = max(width, drawn.width + 32)
    if not sections:
        out.text(16, y + 8, "no steps", "dim s12")
        y += 22
    return written(out.svg(width, y + 8, label=f"steps of {name}", alone=True))


def _draw_scale(out: Drawing, x: float, y: float) -> None:
    """Draws the legend of the colors."""
    out.text(x, y + 10, "share of the time, at least:", "dim s11")
    x += 150
    for level, least in enumerate(HEATS, 1):
        out.rect(x, y, 14, 12, f"heat{level}", 3)
        out.text(x + 19, y + 10, f"{100 * least:g} %", "dim s11")
        x += 62


def _only(regions: Sequence[Region], only: tuple[int, int] | None) -> Sequence[Region]:
    """The steps of the entry that have these numbers."""
    if only is None:
        return regions
    numbers = range(only[0], only[1] + 1)
    first = regions[0]
    return [Region(first.title, [n for n in first.nodes if int(n.label.rpartition(" ")[2]) in numbers], first.views)]


def _draw_summary(section: Section) -> Drawn:
    out = Drawing()
    with out.group(tip="\n".join(f"{n.label} {n.title} {n.ops}" for n in section.nodes)):
        out.rect(0, 0, WIDTH, 2 * PAD + 2 * LINE - 3, f"card {heat(section.share)}".strip())
        out.text(PAD + 6, PAD + 10, f"{section.span}: {len(section.nodes)} steps", "ink s13 bold")
        if section.share is not None:
            out.text(WIDTH - PAD, PAD + 10, f"{100 * section.share:.1f} %", "ink s12 end")
        out.text(PAD + 6, PAD + 10 + LINE, shortened(section.counted, WIDTH - 20, 11), "dim s11")
    return Drawn(out, WIDTH, 2 * PAD + 2 * LINE - 3)


def graph_html(name: str, about: str, regions: Sequence[Region]) -> str:
    """A page of sections. The first one and those that take long are expanded."""
    sections = sections_of(regions)
    body = [_legend(regions), *_notes(regions)]
    if len(sections) > 1:
        body.append(_strip(sections))
    body += [_section(s, is_open=i == 0 or (s.share or 0) > 0.05) for i, s in enumerate(sections)]
    if not sections:
        body.append(element("p", text="no steps"))
    return page(name, about, body, _OPEN_LINKED)


_OPEN_LINKED = """
function show() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
}
addEventListener("hashchange", show);
show();
"""
"""Script that expands a section when a link to it is followed."""


def _section(section: Section, *, is_open: bool) -> ET.Element:
    drawn = draw_nodes(section.nodes)
    out = Drawing()
    out.moved(drawn.drawing, 8, 8)
    share = f", {100 * section.share:.1f} % of the time" if section.share is not None else ""
    said = element("span", text=f"{section.counted}{share}")
    head = element("summary", text=f"{section.title}, {section.span}", children=[said])
    svg = out.svg(drawn.width + 16, drawn.height + 16, label=f"{section.title}, {section.span}")
    beside = [element("div", "scroll", children=[svg]), element("div", "rows", children=[_figures(section)])]
    made = element("details", children=[head, element("div", "beside graph", children=beside)], id=section.name)
    if is_open:
        made.set("open", "open")
    return made


def _figures(section: Section) -> ET.Element:
    """Table of the bytes, operations and time of each step that the section draws."""
    rows = [
        (
            n.label,
            n.title,
            n.time.partition(" · ")[0],
            f"{100 * n.share:.1f} %" if n.share else "",
            bytes_text(n.nbytes) if n.nbytes else "",
            count_text(n.operations) if n.operations else "",
        )
        for node in section.nodes
        for n in _drawn_in(node)
    ]
    heads = ("step", "", "time", "share", "moved", "operations")
    used = [i for i in range(len(heads)) if i < 2 or any(row[i] for row in rows)]
    return table([heads[i] for i in used], [[row[i] for i in used] for row in rows])


def _drawn_in(node: Node) -> Iterator[Node]:
    """A step and its inner steps, except for those in separate sections."""
    yield node
    for region in node.regions:
        if not _is_long(region):
            for inner in region.nodes:
                yield from _drawn_in(inner)


def _strip(sections: Sequence[Section]) -> ET.Element:
    """All steps side by side, colored like their boxes, with links to their sections."""
    measured = any(s.share is not None for s in sections)
    ticks = []
    for section in sections:
        for node in section.nodes:
            colour = (heat(node.share) or "line") if measured else node.kind
            tick = element("a", title=f"{node.label} {node.title} {node.time}".strip(), href=f"#{section.name}")
            tick.set("style", f"background: var(--{colour})")
            ticks.append(tick)
    return element("div", "strip", children=ticks)


def _legend(regions: Sequence[Region]) -> ET.Element:
    kinds = dict.fromkeys(n.kind for region in regions for n in region.all_nodes())
    words = {
        "product": "products and convolutions", "loop": "loops", "row": "reductions", "control": "control flow",
        "other": "other kernels",
    }  # fmt: skip
    made = element("p", "legend")
    for kind in kinds:
        colour = element("i", style=f"background: var(--{kind})")
        colour.tail = words[kind]
        made.append(element("span", children=[colour]))
    said = element("span", text="← what a step reads (steps, arguments, constants)   → what it writes")
    made.append(said)
    return made


def _notes(regions: Sequence[Region]) -> Iterator[ET.Element]:
    """Legend of the colors if times were measured, and a note on steps that are not drawn."""
    if any(n.share is not None for region in regions for n in region.all_nodes()):
        scale = element("p", "legend", children=[element("span", text="share of the time, at least:")])
        for level, least in enumerate(HEATS, 1):
            colour = element("i", style=f"background: var(--heat{level})")
            colour.tail = f"{100 * least:g} %"
            scale.append(element("span", children=[colour]))
        yield scale
    views = views_of(regions)
    if views:
        yield element("p", text=f"{_not_drawn(views)}.")


def views_of(regions: Sequence[Region]) -> int:
    """Number of steps that are not drawn."""
    inner = [r for region in regions for node in region.all_nodes() for r in node.regions]
    return sum(region.views for region in (*regions, *inner))


def _not_drawn(views: int) -> str:
    what = "1 step only renames memory, runs" if views == 1 else f"{views:,} steps only rename memory, run"
    return f"{what} no code and {'is' if views == 1 else 'are'} not drawn"


# ---------------------------------------------------------------------- Graphviz
def graph_dot(name: str, regions: Sequence[Region], only: tuple[int, int] | None = None) -> str:
    """Text for Graphviz: clusters are functions, loops and branches. `only`: as in `graph_svg`."""
    regions = _only(regions, only)
    lines = [f"digraph {_quoted(name)} {{", "  node [shape=box, style=rounded];"]
    for region in regions:
        lines += _cluster(region, "  ")
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(region: Region, pad: str) -> list[str]:
    name = _quoted(f"cluster {region.title} {region.nodes[0].label if region.nodes else ''}")
    lines = [f"{pad}subgraph {name} {{", f"{pad}  label={_quoted(region.title)};"]
    for node in region.nodes:
        words = "\n".join([f"{node.label} {node.title}", *_words(node)[1:], *([node.time] if node.time else [])])
        lines.append(f"{pad}  {_quoted(node.label)} [label={_quoted(words)}];")
        for inner in node.regions:
            lines += _cluster(inner, pad + "  ")
        for source in (s for s in node.sources if s in region.nodes):
            said = node.values.get(source.label, "")
            lines.append(f"{pad}  {_quoted(source.label)} -> {_quoted(node.label)} [label={_quoted(said)}];")
    return [*lines, f"{pad}}}"]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
