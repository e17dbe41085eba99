"""SVG drawings: shapes whose classes determine their colors, in light and dark mode."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager

SVG = "http://www.w3.org/2000/svg"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
LIGHT = {
    "page": "#ffffff", "card": "#f6f7f9", "line": "#c9ced6", "ink": "#1c2430", "dim": "#5b6675", "edge": "#8a94a3",
    "box": "#fbfbfd", "product": "#2f6fde", "loop": "#2c9c69", "row": "#8a5cd0", "control": "#b7791f",
    "other": "#697586", "heat1": "#fff6e0", "heat2": "#ffeabf", "heat3": "#ffdc9c", "heat4": "#ffc98a",
    "heat5": "#ffb08a", "value": "#cfe0fb", "scratch": "#e8dcf8", "mark": "#d2352b",
}  # fmt: skip
DARK = {
    "page": "#14181f", "card": "#1f252e", "line": "#3b4553", "ink": "#e6eaf0", "dim": "#9aa6b5", "edge": "#6d7a8a",
    "box": "#191e26", "product": "#6fa2ff", "loop": "#55c592", "row": "#b795f0", "control": "#e0aa55",
    "other": "#93a0b0", "heat1": "#2d2a20", "heat2": "#3d351f", "heat3": "#4f3f1e", "heat4": "#60411e",
    "heat5": "#713a24", "value": "#27456f", "scratch": "#44335f", "mark": "#ff7b72",
}  # fmt: skip
HEATS = (0.005, 0.02, 0.05, 0.12, 0.25)
"""Minimum share of the time for an element to have the color of the class `heat1`, `heat2`, ..."""

_RULES = """
svg { font-family: %s; }
[class*=heat] ~ .dim { fill: var(--ink); fill-opacity: .8; }
.ink { fill: var(--ink); } .dim { fill: var(--dim); } .mark { fill: var(--mark); }
.s11 { font-size: 11px; } .s12 { font-size: 12px; } .s13 { font-size: 13px; } .s16 { font-size: 16px; }
.bold { font-weight: 600; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.card { fill: var(--card); stroke: var(--line); } .box { fill: var(--box); stroke: var(--line); }
.edge { fill: none; stroke: var(--edge); stroke-width: 1.3; } .tip { fill: var(--edge); }
.grid { stroke: var(--line); stroke-width: 1; } .axis { stroke: var(--dim); stroke-width: 1; }
.page { fill: var(--page); }
.value { fill: var(--value); stroke: var(--product); stroke-width: .6; }
.scratch { fill: var(--scratch); stroke: var(--row); stroke-width: .6; }
.roof { fill: none; stroke: var(--dim); stroke-width: 1.5; } .cache { stroke-dasharray: 5 4; }
.leader { stroke: var(--dim); stroke-width: .8; }
.point { stroke: var(--page); stroke-width: 1; fill-opacity: .75; }
.halo { paint-order: stroke; stroke: var(--page); stroke-width: 3px; stroke-linejoin: round; pointer-events: none; }
.lit, g:hover > .edge { stroke: var(--mark); stroke-width: 2; }
a { text-decoration: none; }
"""


def style() -> str:
    """The style sheet of pictures and pages."""

    def colours(table: dict[str, str]) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in table.items())

    heats = " ".join(f".heat{i} {{ fill: var(--heat{i}); stroke: var(--line); }}" for i in range(1, len(HEATS) + 1))
    kinds = " ".join(f".{kind} {{ fill: var(--{kind}); }}" for kind in ("product", "loop", "row", "control", "other"))
    return (
        f":root {{ {colours(LIGHT)} color-scheme: light dark; }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {colours(DARK)} }} }}" + _RULES % FONT + f"{heats}\n{kinds}\n"
    )


class Drawing:
    """Shapes with coordinates in pixels, from the left and from the top."""

    def __init__(self) -> None:
        self.root = ET.Element("g")
        self._open = [self.root]

    def add(self, tag: str, kind: str = "", text: str = "", **attributes: object) -> ET.Element:
        """Adds an element of the class `kind`; in names of attributes, `_` is replaced by `-`."""
        given = {"class": kind, **{name.replace("_", "-"): _plain(value) for name, value in attributes.items()}}
        made = ET.SubElement(self._open[-1], tag, {name: value for name, value in given.items() if value})
        made.text = clean(text) or None
        return made

    @contextmanager
    def group(self, tip: str = "", **attributes: object) -> Iterator[None]:
        """Groups everything drawn inside; `tip` is the tooltip."""
        self._open.append(self.add("g", **attributes))  # type: ignore[arg-type]
        if tip:
            self.add("title", text=tip)
        yield
        self._open.pop()

    def rect(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 6) -> None:
        self.add("rect", kind, x=x, y=y, width=max(0.0, width), height=max(0.0, height), rx=radius)

    def text(self, x: float, y: float, text: str, kind: str = "ink s12") -> None:
        self.add("text", kind, text, x=x, y=y)

    def clipped_text(self, x: float, y: float, width: float, height: float, text: str, kind: str) -> None:
        """Draws a line of text at the top of a rectangle, clipped to it."""
        window = self.add("svg", x=x, y=y, width=width, height=height)
        made = ET.SubElement(window, "text", {"class": kind, "x": "4", "y": "12"})
        made.text = clean(text)

    def line(self, x: float, y: float, x2: float, y2: float, kind: str) -> None:
        self.add("path", kind, d=f"M{_plain(x)} {_plain(y)}L{_plain(x2)} {_plain(y2)}")

    def path(self, points: str, kind: str) -> None:
        self.add("path", kind, d=points)

    def arrow(self, x: float, y: float, *, left: bool = False) -> None:
        """Draws an arrowhead that ends there, pointing down or to the left."""
        x, y = round(x, 1), round(y, 1)
        corners = "l7 -4v8z" if left else "l-4 -7h8z"
        self.add("path", "tip", d=f"M{_plain(x)} {_plain(y)}{corners}")

    def moved(self, other: Drawing, x: float, y: float) -> None:
        """Draws another drawing in this one, at an offset."""
        other.root.set("transform", f"translate({_plain(x)} {_plain(y)})")
        self._open[-1].append(other.root)

    def svg(self, width: float, height: float, *, label: str, alone: bool = False) -> ET.Element:
        """The SVG element. `label`: its accessible name. `alone`: a standalone file, with colors and a background."""
        size = {"width": _plain(width), "height": _plain(height), "viewBox": f"0 0 {_plain(width)} {_plain(height)}"}
        made = ET.Element("svg", {"role": "img", "aria-label": clean(label), **size})
        if alone:
            made.set("xmlns", SVG)
            ET.SubElement(made, "title").text = clean(label)
            ET.SubElement(made, "style").text = style()
            ET.SubElement(made, "rect", {"class": "page", "width": "100%", "height": "100%"})
        made.append(self.root)
        return made


def _plain(value: object) -> str:
    """Formats a value; numbers have at most one decimal."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


_UNFIT = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML cannot represent."""


def clean(text: str) -> str:
    """Replaces characters that XML cannot represent: names of a program may have any characters."""
    return _UNFIT.sub("\ufffd", text)


def written(svg: ET.Element) -> str:
    """Text of an SVG file."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(svg, encoding="unicode") + "\n"


_WIDE, _NARROW = frozenset("mwMW%@—←→…"), frozenset("ijlI.,:;|!'()[]{} ")


def text_width(text: str, size: float = 12) -> float:
    """Upper bound of a text's width in pixels, in the fonts of `FONT`."""
    ems = sum(0.98 if c in _WIDE else 0.4 if c in _NARROW else 0.7 if c.isupper() else 0.635 for c in text)
    return ems * size


def shortened(text: str, width: float, size: float = 12) -> str:
    """Shortens a text to a width in pixels."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrapped(text: str, width: float, size: float = 12, most: int = 3) -> list[str]:
    """Wraps a text to lines of a width in pixels; the last of `most` lines is shortened."""
    lines: list[str] = []
    line = ""
    words = text.split(" ")
    for number, word in enumerate(words):
        longer = f"{line} {word}" if line else word
        if not line or text_width(longer, size) <= width:
            line = longer
        elif len(lines) + 1 == most:
            return [*lines, shortened(" ".join([line, *words[number:]]), width, size)]
        else:
            lines.append(line)
            line = word
    return [*lines, shortened(line, width, size)]


def heat(share: float | None) -> str:
    """Class for a share of the time; empty if it is small or was not measured."""
    level = sum((share or 0.0) >= least for least in HEATS)
    return f"heat{level}" if level else ""


def bytes_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def time_text(microseconds: float) -> str:
    for unit in ("us", "ms"):
        if microseconds < 1000:
            return f"{microseconds:.3g} {unit}"
        microseconds /= 1000
    return f"{microseconds:.3g} s"


def count_text(count: float) -> str:
    """Formats a count: `1.2 M`."""
    for unit in ("", " k", " M", " G"):
        if count < 1000:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} T"
