"""Graphs of steps: every step of the plan is drawn once, and files are well-formed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from pictured import CONTROL, PROGRAMS, UNFIT, UNKNOWN, Page, chain, of_kind, planned, read_svg, words

import shlo_jit
from shlo_jit.fuse.plan import all_steps, labels_of
from shlo_jit.lower.planned import PlannedFunction
from shlo_jit.pictures.drawing import text_width, wrapped
from shlo_jit.pictures.graph import (
    SECTION,
    WIDTH,
    draw_nodes,
    graph_dot,
    graph_html,
    graph_svg,
    sections_of,
    views_of,
)
from shlo_jit.pictures.steps import Node, regions_of, shares_of


def labels(functions: list[PlannedFunction]) -> set[str]:
    """Labels of all steps that run code, as they are drawn."""
    *callees, entry = functions
    found = set()
    for function in (entry, *callees):
        prefix = "" if function is entry else f"@{function.name} "
        of = labels_of(function.plan)
        found |= {f"{prefix}{of[id(s)]}  {s.title}" for s in all_steps(function.plan) if s.title != "view"}
    return found


def heads(texts: list[str]) -> list[str]:
    return [text for text in texts if re.match(r"(@\w+ )?\d+(\.\d+)*  \w", text)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_a_page_has_every_step_once(name: str) -> None:
    functions = planned(PROGRAMS[name])
    page = Page(graph_html(name, "about", regions_of(functions)))
    drawn = heads(page.texts("text"))
    assert sorted(drawn) == sorted(labels(functions))
    sections = [attrs for tag, attrs in page.tags if tag == "details"]
    links = {str(attrs["href"]) for tag, attrs in page.tags if tag == "a"}
    assert links <= {f"#{section['id']}" for section in sections}
    assert len({section["id"] for section in sections}) == len(sections)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_picture_alone(name: str) -> None:
    functions = planned(PROGRAMS[name])
    text = graph_svg(name, regions_of(functions))
    root = read_svg(text)
    drawn = heads(words(root))
    if name == "long":  # a box for each section
        assert drawn == [] and len(of_kind(root, "card")) > 1
        assert any(word.endswith("--steps show each") for word in words(root))
        assert len(text) < 100_000
    else:
        assert sorted(drawn) == sorted(labels(functions))


def test_some_steps_alone() -> None:
    regions = regions_of(planned(PROGRAMS["long"]))
    drawn = heads(words(read_svg(graph_svg("long", regions, (500, 520)))))
    assert [word.split()[0] for word in drawn] == [str(i) for i in range(500, 521)]
    dot = graph_dot("long", regions, (3, 4))
    assert dot.count("[label=") == 3 and '"3" -> "4"' in dot


def test_boxes_are_nested_or_disjoint() -> None:
    """Steps in loops and branches: two boxes only overlap if one is inside the other."""
    root = read_svg(graph_svg("control", regions_of(planned(CONTROL))))
    boxes: list[tuple[float, float, float, float]] = []

    def visit(element: ET.Element, x: float, y: float) -> None:
        moved = re.match(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        x, y = (x + float(moved[1]), y + float(moved[2])) if moved else (x, y)
        if element.tag.endswith("rect") and {"card", "box"} & {*element.get("class", "").split()}:
            left, top = x + float(element.get("x", 0)), y + float(element.get("y", 0))
            boxes.append((left, top, left + float(element.get("width", 0)), top + float(element.get("height", 0))))
        for child in element:
            visit(child, x, y)

    visit(root, 0, 0)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert len(boxes) > 8
    for i, (a0, b0, a1, b1) in enumerate(boxes):
        assert 0 <= a0 < a1 <= width and 0 <= b0 < b1 <= height
        for c0, d0, c1, d1 in boxes[i + 1 :]:
            apart = a1 <= c0 or c1 <= a0 or b1 <= d0 or d1 <= b0
            assert apart or (a0 < c0 and c1 < a1 and b0 < d0 and d1 < b1)


def test_loops_and_branches_are_boxes() -> None:
    drawn = words(read_svg(graph_svg("control", regions_of(planned(CONTROL)))))
    assert {"condition", "body", "true", "false", "nothing runs"} <= {*drawn}
    (tips,) = [
        e.text or ""
        for e in read_svg(graph_svg("c", regions_of(planned(CONTROL)))).iter()
        if (e.text or "").startswith("step 1: while")
    ]
    assert "reads %n" in tips.replace("%arg1", "%n")


def node(label: str, *sources: Node) -> Node:
    return Node(label, "loop", "loop", "", [], [], [], sources=list(sources))


def test_values_that_go_past_a_step_have_lanes_of_their_own() -> None:
    a = node("0")
    b, c = node("1", a), node("2")
    d = node("3", a, b, c)
    drawn = draw_nodes([a, b, c, d]).drawing
    paths = [e.get("d", "") for e in drawn.root.iter("path") if e.get("class") == "edge"]
    lanes = {m[1] for p in paths if (m := re.search(r"H([\d.]+)q5", p))}
    assert len(paths) == 4 and len(lanes) == 2  # a to b, c to d; past others: a to d, b to d
    again = node("4", a)
    assert len([e for e in draw_nodes([a, b, c, d, again]).drawing.root.iter("path") if e.get("class") == "edge"]) == 5


def test_long_bodies_have_sections_of_their_own() -> None:
    sections = sections_of(regions_of(planned(PROGRAMS["long inside"])))
    assert [s.title for s in sections][:1] == ["@main"]
    assert all(len(s.nodes) <= SECTION for s in sections)
    assert sum(len(s.nodes) for s in sections if s.title.startswith("body of step ")) > 100


def test_times_colour_steps() -> None:
    exe = shlo_jit.compile(CONTROL)
    with exe.profile() as p:
        for _ in range(20):
            exe(np.ones((16, 64), np.float32) / 64, np.int32(50), np.bool_(True))
    regions = regions_of(planned(CONTROL), times=shares_of(p.steps, 20))
    drawn = [n for r in regions for n in r.all_nodes()]
    assert 0.5 < sum(n.share or 0 for n in drawn) < 1.001  # the rest are copies
    page = Page(graph_html("control", "", regions))
    assert any("% of the time" in text for text in page.texts("span"))
    assert any(page.with_class(f"heat{i}") for i in range(1, 6))
    assert "share of the time, at least:" in page.texts("span")  # the scale of colours
    loop = next(n for n in drawn if n.label.count(".") == 2)  # in a loop of 50 iterations
    runs = {s.label: s.calls / 20 for s in p.steps}[loop.label]
    assert any(f"in {runs:,.3g} runs" in detail for detail in loop.details)


def test_wrapped_texts() -> None:
    text = "one two three four five six"
    assert " ".join(wrapped(text, 60, 12, 9)) == text
    assert all(text_width(line) <= 60 for line in wrapped(text, 60, 12, 9))
    short = wrapped(text, 60, 12, 2)
    assert len(short) == 2 and short[-1].endswith("…") and text_width(short[-1]) <= 60
    assert wrapped("", 60) == [""] and wrapped("incomprehensibilities", 60)[0].endswith("…")


VIEWS = """func.func @main(%x: tensor<4x6xf32>) -> tensor<2x12xf32> {
  %0 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32>
  %1 = stablehlo.tanh %0 : tensor<24xf32>
  %2 = stablehlo.reshape %1 : (tensor<24xf32>) -> tensor<2x12xf32>
  return %2 : tensor<2x12xf32>
}"""


def test_steps_not_drawn_are_mentioned() -> None:
    functions = planned(VIEWS)
    views = sum(s.title == "view" for s in all_steps(functions[-1].plan))
    assert views
    regions = regions_of(functions)
    assert views_of(regions) == views
    said = [*Page(graph_html("views", "", regions)).texts("p"), *words(read_svg(graph_svg("views", regions)))]
    assert len([text for text in said if "not drawn" in text]) == 2


def test_texts_of_boxes_are_whole() -> None:
    """Every line of a step with many ops fits, and nothing is omitted."""
    long = Node("0", "loop", "loop", " ".join(f"operation_{i}" for i in range(12)), ["%argument"] * 8, [], [])
    drawn = [e.text or "" for e in draw_nodes([long]).drawing.root.iter("text")]
    assert " ".join(drawn).count("operation_") == 12 and "…" not in " ".join(drawn)
    assert max(text_width(line, 11) for line in drawn[1:]) <= WIDTH


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphviz_files_balance(name: str) -> None:
    functions = planned(PROGRAMS[name])
    text = graph_dot(name, regions_of(functions))
    outside = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    assert outside.count("{") == outside.count("}") and '"' not in outside.replace('""', "")
    assert len(re.findall(r'^ *"" \[label=""\];$', outside, re.M)) == len(labels(functions))


def test_names_with_any_characters() -> None:
    name = next(f for f in shlo_jit.parse(UNFIT).functions()).attributes["sym_name"]
    regions = regions_of(planned(UNFIT, name))
    root = read_svg(graph_svg(name, regions))
    assert any("<b>&" in word for word in words(root))
    page = Page(graph_html(name, name, regions))
    assert any("<b>&" in text for text in page.texts("h1")) and not [tag for tag, _ in page.tags if tag == "b"]


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
def test_unknown_sizes(dynamic: str) -> None:
    ((_, functions),) = shlo_jit.compile(UNKNOWN, dynamic=dynamic).planned([(8, 64)])
    drawn = words(read_svg(graph_svg("x", regions_of(functions))))
    assert heads(drawn) == ["0  loop"]


def test_a_thousand_steps_take_little() -> None:
    text = graph_html("long", "", regions_of(planned(chain(1000))))
    assert len(text) < 1_000_000
    assert text.count("<details") == 25 and text.count(' open="open"') == 1
