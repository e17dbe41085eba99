"""A page with a roofline chart of a program's steps, and a table of them beside it.

The x axis is the arithmetic intensity of a step, the y axis its speed. The roofs bound the speed: the sloping ones are
the bandwidths of memory and of the caches, the level ones the peak rates of the element types.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.pictures.drawing import Drawing, bytes_text, text_width, time_text
from shlo_jit.pictures.labels import Box, Circle, Labels
from shlo_jit.pictures.page import element, page, table
from shlo_jit.runtime.limits import Limits
from shlo_jit.runtime.profile import StepTime

WIDTH, HEIGHT, LEFT, TOP = 540, 420, 58, 34
"""Pixels: size of the plane, and margins around it."""
LISTED = 200
"""Maximum rows of the table; longer programs list the steps that take most time."""
MEMORY = "memory"
NAMED = 0.08
"""Minimum share of the time for a point to have a label."""
KINDS = {"dot_general": "product", "convolution": "product", "attention": "product", "gradient": "product",
         "row_blocks": "product", "line_tiles": "product",
         "loop": "loop", "interchanged": "loop", "row": "row", "reduce": "row"}  # fmt: skip


class Point(NamedTuple):
    """A step that computes and moves something."""

    step: StepTime
    row: str
    """Id of its row in the table."""
    intensity: float
    """Operations per byte."""
    speed: float
    """10^9 operations per second."""


class Plane(NamedTuple):
    """The plane of the chart. Both axes are logarithmic, and their bounds are powers of ten."""

    left: float
    right: float
    low: float
    high: float

    def x(self, intensity: float) -> float:
        return LEFT + WIDTH * (math.log10(intensity) - self.left) / (self.right - self.left)

    def y(self, speed: float) -> float:
        return TOP + HEIGHT * (1 - (math.log10(speed) - self.low) / (self.high - self.low))


def roofline_html(name: str, about: str, steps: Sequence[StepTime], limits: Limits) -> str:
    """The page. `limits`: measured with as many threads as the steps were run with."""
    counted = [s for s in steps if s.share]
    shown = sorted(counted, key=lambda s: -s.share)[:LISTED]
    rows = {id(s): f"step-{i}" for i, s in enumerate(shown)}
    points = [
        Point(s, rows[id(s)], s.gigaflops / s.gigabytes_per_second, s.gigaflops)
        for s in shown
        if s.gigaflops and s.gigabytes_per_second
    ]
    used = _used(steps, limits)
    left = len(counted) - len(shown)
    note = f"; {left} more take {100 * sum(s.share for s in counted if id(s) not in rows):.1f} %" if left else ""
    body = [
        element("div", "beside", children=[
            element("div", "fit", children=[_picture(points, used)]),
            element("div", "rows", children=[_table(shown, rows, limits)]),
        ]),
        element("p", text=f"{_roofs_text(limits)}. Steps by their share of the time{note}; a step that is not in "
                "the chart has no known number of operations, or moves nothing. Operations are the flops and the "
                "transcendentals of cost_analysis, bytes its bytes accessed: the minimum a step moves. A step that "
                "finds them in the caches may be above the roof of memory."),
    ]  # fmt: skip
    return page(name, about, body, _LIGHT_ROWS)


_LIGHT_ROWS = """
for (const link of document.querySelectorAll("a[data-row]")) {
  const row = document.getElementById(link.dataset.row);
  const light = on => () => { row.classList.toggle("lit", on); if (on) row.scrollIntoView({block: "nearest"}); };
  link.addEventListener("mouseenter", light(true));
  link.addEventListener("mouseleave", light(false));
}
"""


def _roofs_text(limits: Limits) -> str:
    peaks = ", ".join(f"{kind} {rate / 1e9:.3g}" for kind, rate in _peaks(limits).items())
    reads = ", ".join(f"{rate / 1e9:.3g} GB/s of {bytes_text(size)}" for size, rate in limits.reads)
    threads = f"{limits.threads} thread{'s' if limits.threads > 1 else ''}"
    return f"Limits of this machine with {threads}, measured: GFLOP/s of {peaks}; {reads}"


def _used(steps: Sequence[StepTime], limits: Limits) -> Limits:
    """The limits without the element types that no kernel has in its name."""
    names = " ".join(name for s in steps for name in s.kernels)
    return limits._replace(peaks={kind: r for kind, r in limits.peaks.items() if kind == "f32" or f"_{kind}" in names})


def _peaks(limits: Limits) -> dict[str, float]:
    """Peak rates, without those that equal that of f32, which comes first."""
    rates = {kind: rate for kind, rate in limits.peaks.items() if kind == "f32" or rate != limits.peaks["f32"]}
    return dict(sorted(rates.items(), key=lambda row: row[0] != "f32"))


def _picture(points: Sequence[Point], limits: Limits) -> ET.Element:
    plane = _plane(points, limits)
    out = Drawing()
    _axes(out, plane)
    _roofs(out, plane, limits)
    for point in sorted(points, key=lambda p: -p.step.share):
        s = point.step
        rates = f"{point.speed:.3g} GFLOP/s, {s.gigabytes_per_second or 0:.3g} GB/s"
        tip = f"{s.label} {s.title}: {100 * s.share:.1f} %, {time_text(s.median_us)}\n{s.ops}\n{rates}"
        tip += f", {point.intensity:.3g} operations a byte"
        link = element("a", href=f"#{point.row}")
        link.set("data-row", point.row)
        circle = element("circle", f"point {KINDS.get(s.title, 'other')}", children=[element("title", text=tip)])
        for key, value in (("cx", plane.x(point.intensity)), ("cy", plane.y(point.speed)), ("r", _radius(s))):
            circle.set(key, f"{value:.1f}")
        link.append(circle)
        out.root.append(link)
    _name_roofs(out, plane, limits)
    _name_points(out, plane, points, limits)
    if not points:
        out.text(LEFT + WIDTH / 2, TOP + HEIGHT / 2, "no step has a known number of operations", "dim s13 middle")
    return out.svg(LEFT + WIDTH + 20, TOP + HEIGHT + 48, label="steps under the roofs of the machine")


def _radius(s: StepTime) -> float:
    return 4 + 16 * math.sqrt(s.share)


def _name_points(out: Drawing, plane: Plane, points: Sequence[Point], limits: Limits) -> None:
    """Labels the steps that take much time: next to their points if there is room, else further away with a leader
    line."""
    circles = [Circle(plane.x(p.intensity), plane.y(p.speed), _radius(p.step)) for p in points]
    room = Labels(Box(LEFT, TOP, LEFT + WIDTH, TOP + HEIGHT), circles, _boxes_of_roofs(plane, limits))
    for point, circle in zip(points, circles, strict=True):
        if point.step.share <= NAMED:
            continue
        place = room.place(circle, point.step.label, 11)
        if place.line is not None:
            out.line(*place.line, "leader")
        out.text(place.x, place.y, point.step.label, "ink s11 halo")


def _boxes_of_roofs(plane: Plane, limits: Limits) -> list[Box]:
    """Boxes that the names of roofs cover; sloping ones are split into several."""
    found = []
    for kind, rate in _peaks(limits).items():
        width, y = text_width(_name_of_peak(kind, rate), 11), plane.y(rate / 1e9)
        found.append(Box(LEFT + WIDTH - 4 - width, y - 16, LEFT + WIDTH - 4, y - 2))
    for where, bandwidth in _slopes(limits).items():
        x, y, angle = _slope_at(plane, bandwidth)
        for along in range(0, int(text_width(_name_of_slope(where, bandwidth), 11)), 8):
            left = x + along * math.cos(math.radians(angle))
            up = y + along * math.sin(math.radians(angle))
            found.append(Box(left - 2, up - 11, left + 10, up + 3))
    return found


def _plane(points: Sequence[Point], limits: Limits) -> Plane:
    """The plane from whole powers of ten around all points and the corners of the roofs."""
    top = max(limits.peaks.values()) / 1e9
    slowest = min(rate for _, rate in limits.reads) / 1e9
    across = [p.intensity for p in points] + [0.1, 1.5 * top / slowest]
    up = [p.speed for p in points] + [1.2 * top, top / 100]
    sides = [math.floor(math.log10(min(across))), math.ceil(math.log10(max(across)))]
    return Plane(sides[0], sides[1], math.floor(math.log10(min(up))), math.ceil(math.log10(max(up))))


def _axes(out: Drawing, plane: Plane) -> None:
    for power in range(int(plane.left), int(plane.right) + 1):
        x = plane.x(10.0**power)
        out.line(x, TOP, x, TOP + HEIGHT, "grid")
        out.text(x, TOP + HEIGHT + 16, f"{10.0**power:,g}", "dim s11 middle")
    for power in range(int(plane.low), int(plane.high) + 1):
        y = plane.y(10.0**power)
        out.line(LEFT, y, LEFT + WIDTH, y, "grid")
        out.text(LEFT - 7, y + 4, f"{10.0**power:,g}", "dim s11 end")
    out.text(LEFT + WIDTH / 2, TOP + HEIGHT + 36, "operations a byte", "dim s11 middle")
    out.text(LEFT - 40, TOP - 12, "GFLOP/s", "dim s11")


def _roofs(out: Drawing, plane: Plane, limits: Limits) -> None:
    """Draws the level of each element type, and the slope of each memory level up to the highest level."""
    peaks = _peaks(limits)
    top = max(peaks.values()) / 1e9
    for rate in peaks.values():
        y = plane.y(rate / 1e9)
        out.line(LEFT, y, LEFT + WIDTH, y, "roof")
    for where, bandwidth in _slopes(limits).items():
        start, end = _start(plane, bandwidth), top / bandwidth
        kind = "roof" if where == MEMORY else "roof cache"
        out.line(plane.x(start), plane.y(start * bandwidth), plane.x(end), plane.y(top), kind)


def _name_roofs(out: Drawing, plane: Plane, limits: Limits) -> None:
    """Writes the names along the roofs, over the points."""
    for kind, rate in _peaks(limits).items():
        text = _name_of_peak(kind, rate)
        out.text(LEFT + WIDTH - 4, plane.y(rate / 1e9) - 5, text, "dim s11 end halo")
    for where, bandwidth in _slopes(limits).items():
        x, y, angle = _slope_at(plane, bandwidth)
        text = _name_of_slope(where, bandwidth)
        out.add("text", "dim s11 halo", text, x=x, y=y, transform=f"rotate({angle:.1f} {x:.1f} {y:.1f})")


def _name_of_peak(kind: str, rate: float) -> str:
    return f"{kind}: {rate / 1e9:.3g} GFLOP/s"


def _name_of_slope(where: str, bandwidth: float) -> str:
    return f"{where}: {bandwidth:.3g} GB/s"


def _slope_at(plane: Plane, bandwidth: float) -> tuple[float, float, float]:
    """Start of the name of a slope, and its angle in degrees."""
    at = 1.3 * _start(plane, bandwidth)
    across, up = plane.x(10 * at) - plane.x(at), plane.y(10 * at * bandwidth) - plane.y(at * bandwidth)
    return plane.x(at), plane.y(at * bandwidth) - 6, math.degrees(math.atan2(up, across))


def _slopes(limits: Limits) -> dict[str, float]:
    """Maps the memory that is read to 10^9 bytes per second."""
    largest = max(size for size, _ in limits.reads)
    return {
        MEMORY if size == largest else f"caches ({bytes_text(size)})": rate / 1e9
        for size, rate in sorted(limits.reads, reverse=True)
    }


def _start(plane: Plane, bandwidth: float) -> float:
    """Point where a slope enters the plane."""
    return max(10.0**plane.left, 10.0**plane.low / bandwidth)


def _table(shown: Sequence[StepTime], rows: dict[int, str], limits: Limits) -> ET.Element:
    heads = ("step", "", "share", "median us", "GB/s", "GFLOP/s", "op/B", "of the roof", "ops")
    cells = [
        (
            s.label,
            s.title,
            f"{100 * s.share:.1f} %",
            f"{s.median_us:,.2f}",
            _figure(s.gigabytes_per_second),
            _figure(s.gigaflops),
            _figure(s.gigaflops / s.gigabytes_per_second if s.gigaflops and s.gigabytes_per_second else None),
            _of_roof(s, limits),
            s.ops,
        )
        for s in shown
    ]
    return table(heads, cells, [rows[id(s)] for s in shown], kind="words")


def _figure(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def _of_roof(s: StepTime, limits: Limits) -> str:
    """Share of the attainable speed that a step reaches, if its elements are f32.

    Its bytes come from the smallest cache that holds them.
    """
    if not s.gigabytes_per_second:
        return ""
    bandwidth = limits.reading(1e3 * s.gigabytes_per_second * s.median_us) / 1e9
    if not s.gigaflops:
        return f"{100 * s.gigabytes_per_second / bandwidth:.0f} %"
    possible = min(limits.peaks["f32"] / 1e9, bandwidth * s.gigaflops / s.gigabytes_per_second)
    return f"{100 * s.gigaflops / possible:.0f} %"
