"""The picture on the first page: one small program through the stages.

python docs/scripts/stages_picture.py    writes docs/pictures/stages.svg

Its dumps are those of the compiler for the target x86-64-v3. Colors follow the reader's light or dark setting.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from shlo_jit import pipeline, stages
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions
from shlo_jit.sources import Text

FILE = Path(__file__).parents[1] / "pictures" / "stages.svg"
PROGRAM = """\
func.func @main(%x: tensor<64x256xf32>, %w: tensor<256x128xf32>, %b: tensor<128xf32>) -> tensor<64x128xf32> {
  %xw = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : \
(tensor<64x256xf32>, tensor<256x128xf32>) -> tensor<64x128xf32>
  %bs = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<128xf32>) -> tensor<64x128xf32>
  %s = stablehlo.add %xw, %bs : tensor<64x128xf32>
  %y = stablehlo.tanh %s : tensor<64x128xf32>
  return %y : tensor<64x128xf32>
}
"""
WIDTH, LEFT, LINE, GAP = 860, 190, 17, 22
"""Pixels: width of the picture, width of the labels on its left, height of a line, space between panels."""
STYLE = """
svg { --ink: #1f2328; --soft: #59636e; --panel: #f6f8fa; --edge: #d1d9e0; --mark: #0969da; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9198a1; --panel: #151b23; --edge: #3d444d; --mark: #4493f8; }
}
text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12px; fill: var(--ink); }
.name { font-family: system-ui, sans-serif; font-size: 16px; font-weight: 600; fill: var(--mark); }
.what { font-family: system-ui, sans-serif; font-size: 12.5px; fill: var(--soft); }
rect { fill: var(--panel); stroke: var(--edge); }
path { fill: none; stroke: var(--mark); stroke-width: 1.6; }
"""


class Panel(NamedTuple):
    name: str
    what: list[str]
    lines: list[str]


def panels() -> list[Panel]:
    """The panels in the order of the stages."""
    target = resolve("x86-64-v3")
    lowered = pipeline.lower(pipeline.parsed(Text(PROGRAM, "dense.mlir")), CompileOptions(target))
    plan, schedule, asm = (stages.show(lowered, stage, target).splitlines() for stage in ("plan", "schedule", "asm"))
    text = [re.sub(" : .*", "", line)[2:] for line in PROGRAM.splitlines()[1:5]]
    steps = [without_reasons(line)[2:] for line in plan[1:]]
    decisions = [part for line in schedule[1:] if wanted(line) for part in in_lines(line[2:])]
    return [
        Panel("StableHLO", ["as text, or as an", "artifact of JAX's"], text),
        Panel("plan", ["what runs together", "in one loop or kernel"], steps),
        Panel("schedule", ["how each step runs,", "and why"], decisions),
        Panel("machine code", ["for this CPU, by LLVM;", "kept in a cache"], vectors(asm)),
    ]


def without_reasons(line: str) -> str:
    return re.sub(r" +\(.*\)", "", line)


def wanted(line: str) -> bool:
    return re.match(r"\s+(0|product|tile|tasks|epilogue|lanes) ", line) is not None


def in_lines(line: str) -> list[str]:
    """Wraps a line; further lines are indented to the beginning of its reason or of its text."""
    most = (WIDTH - LEFT - 24) // 8
    value = re.match(r"\s*\S+\s+", line)
    indent = " " * (line.index("(") + 1 if "(" in line[: most // 2] else value.end() if value else 0)
    return textwrap.wrap(line, most, subsequent_indent=indent, drop_whitespace=True) or [line]


def vectors(asm: list[str]) -> list[str]:
    """Lines from the first vector addition on: the loop after the product."""
    first = next(i for i, line in enumerate(asm) if re.match(r"\tvaddps\t.*ymm", line))
    return [line.strip().replace("\t", "  ") for line in asm[first : first + 4]] + ["..."]


def picture(shown: list[Panel]) -> str:
    """The picture as SVG."""
    heights = [max(len(p.lines) * LINE + 18, 58) for p in shown]
    height = sum(heights) + GAP * (len(shown) - 1) + 2
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height}", role="img")
    SubElement(svg, "title").text = "One small program as StableHLO, plan, schedule and machine code"
    SubElement(svg, "style").text = STYLE
    y = 1
    for i, (panel, tall) in enumerate(zip(shown, heights, strict=True)):
        group = SubElement(svg, "g", transform=f"translate(1 {y})")
        SubElement(group, "text", {"class": "name", "x": "0", "y": "22"}).text = panel.name
        for k, words in enumerate(panel.what):
            SubElement(group, "text", {"class": "what", "x": "0", "y": str(41 + 15 * k)}).text = words
        SubElement(group, "rect", x=str(LEFT), y="0", width=str(WIDTH - LEFT - 2), height=str(tall), rx="6")
        for k, line in enumerate(panel.lines):
            at = {"x": str(LEFT + 12), "y": str(21 + LINE * k), "xml:space": "preserve"}
            SubElement(group, "text", at).text = line
        if i + 1 < len(shown):
            arrow = f"M {LEFT + 30} {tall + 3} v {GAP - 6} m -5 -6 l 5 6 l 5 -6"
            SubElement(group, "path", d=arrow)
        y += tall + GAP
    indent(svg)
    return tostring(svg, encoding="unicode") + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(picture(panels()), encoding="utf-8")
    print(f"wrote {FILE}")
