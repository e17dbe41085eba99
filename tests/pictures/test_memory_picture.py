"""The memory plan as a picture: a rectangle for each storage, without overlaps."""

from __future__ import annotations

import re

import pytest
from pictured import PROGRAMS, Page, of_kind, planned, read_svg, words

from shlo_jit.pictures.memory import HEIGHT, LEFT, TOP, WIDTH, lives_of, memory_html, memory_svg


@pytest.mark.parametrize("name", PROGRAMS)
def test_simultaneous_lifetimes_do_not_overlap(name: str) -> None:
    for function in planned(PROGRAMS[name]):
        lives = lives_of(function)
        for i, a in enumerate(lives[:200]):
            for b in lives[i + 1 : 200]:
                meet = a.first <= b.last and b.first <= a.last
                assert not meet or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
        assert all(life.offset + life.nbytes <= function.memory.arena_bytes for life in lives if life.kind == "value")


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_is_drawn_within_the_plane(name: str) -> None:
    functions = planned(PROGRAMS[name])
    root = read_svg(memory_svg(name, functions))
    drawn = of_kind(root, "value") + of_kind(root, "scratch")
    hidden = sum(int(n) for w in words(root) for n in re.findall(r"(\d+) too small to be seen", w))
    assert len(drawn) + hidden == sum(len(lives_of(f)) for f in functions)
    for rect in drawn:
        x, y, width, height = (float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
        assert x >= LEFT - 0.1 and x + width <= LEFT + WIDTH + 0.2
        assert y >= TOP - 0.1 and y + height <= TOP + HEIGHT + 0.2
    if not drawn:
        assert "the arena is empty" in words(root)


@pytest.mark.parametrize("name", PROGRAMS)
def test_pages_list_the_largest(name: str) -> None:
    functions = planned(PROGRAMS[name])
    page = Page(memory_html(name, "about", [functions]))
    lives = lives_of(functions[-1])
    rows = [tag for tag, _ in page.tags].count("tr")
    assert (rows > 1) == bool(any(lives_of(f) for f in functions))
    if lives:
        assert lives[0].what in page.texts("td")


def test_lines_are_at_powers_of_two() -> None:
    said = words(read_svg(memory_svg("mlp", planned(PROGRAMS["mlp"]))))  # 256 KiB
    assert [w for w in said if w.endswith("KiB") and w[0].isdigit()] == [f"{64 * i}.0 KiB" for i in range(1, 5)]
    assert "0 B" in said
