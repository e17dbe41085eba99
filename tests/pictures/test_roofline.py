"""The roofline chart, and the measured limits of a machine."""

from __future__ import annotations

import time

import numpy as np
import pytest
from pictured import CONTROL, Page

import shlo_jit
from shlo_jit import examples
from shlo_jit.pictures.labels import Box, Circle, Labels
from shlo_jit.pictures.roofline import LISTED, roofline_html
from shlo_jit.runtime import limits
from shlo_jit.runtime.limits import Limits
from shlo_jit.runtime.profile import StepTime

MACHINE = Limits(2, {"f32": 100e9, "bf16": 100e9, "i8": 400e9}, [(1 << 21, 80e9), (1 << 27, 20e9)])


def step(label: str, share: float, moved: float | None = 1.0, flops: float | None = 1.0) -> StepTime:
    return StepTime(label, "loop", ("kernel",), 1, 10.0, 9.0, 10.0, share, moved, flops, "add (line 1)")


def test_steps_are_points_and_rows() -> None:
    steps = [step("0", 0.6, 10, 50), step("1", 0.3, 2, 20), step("2", 0.1, 5, None), step("3", 0.0)]
    page = Page(roofline_html("x", "about", steps, MACHINE))
    circles = [attrs for tag, attrs in page.tags if tag == "circle"]
    assert len(circles) == 2
    (x0, y0, r0), (x1, y1, r1) = ([float(c[key] or 0) for key in ("cx", "cy", "r")] for c in circles)
    assert x0 < x1 and y0 < y1 and r0 > r1  # 5 against 10 operations a byte; 50 against 20 GFLOP/s
    cells = page.texts("td")
    rows = [attrs["id"] for tag, attrs in page.tags if tag == "tr" and "id" in attrs]
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert len(rows) == 3 and {str(link)[1:] for link in links} <= {*rows}
    assert "50 %" in cells and "6 %" in cells  # of f32's peak; of the caches, for 50 KB
    large = step("4", 0.5, 5, None)._replace(median_us=1e4)
    assert "25 %" in Page(roofline_html("x", "about", [large], MACHINE)).texts("td")  # of memory, for 50 MB


def test_the_table_has_the_ops() -> None:
    page = Page(roofline_html("x", "", [step("0", 1.0)], MACHINE))
    assert page.texts("th")[-1] == "ops" and page.texts("td")[-1] == "add (line 1)"


def crowded(seed: int) -> tuple[list[Circle], Labels]:
    rng = np.random.default_rng(seed)
    circles = [Circle(*rng.uniform((150, 150), (450, 350)), rng.uniform(4, 20)) for _ in range(12)]
    return circles, Labels(Box(0, 0, 600, 500), circles, [Box(0, 0, 600, 20)])


@pytest.mark.parametrize("seed", range(20))
def test_labels_cover_neither_points_nor_each_other(seed: int) -> None:
    circles, labels = crowded(seed)
    placed = []
    for i, circle in enumerate(circles):
        place = labels.place(circle, f"{i}.0", 11)
        placed.append(labels.taken[-1])
        assert place.line is None or len(place.line) == 4
    for i, box in enumerate(placed):
        assert not any(circle.covers(box) for circle in circles)
        assert not any(box.overlap(other) for other in [*placed[:i], *placed[i + 1 :], Box(0, 0, 600, 20)])
        assert box.left >= 0 and box.right <= 600 and box.top >= 0 and box.bottom <= 500


def test_a_label_is_right_beside_a_lonely_point() -> None:
    labels = Labels(Box(0, 0, 600, 500), [Circle(300, 250, 10)], [])
    place = labels.place(Circle(300, 250, 10), "7", 11)
    assert place.line is None and 310 < place.x < 316


def test_operations_a_byte_are_those_of_the_cost_analysis() -> None:
    for text in (CONTROL, examples.path("mlp").read_text(), examples.path("attention").read_text()):
        exe = shlo_jit.compile(text)
        with exe.profile() as p:
            exe(*(np.ones(i.shape, i.dtype) for i in exe.inputs))
        analysed = {row["step"]: row for row in exe.cost_analysis(per_step=True)}
        compared = 0
        for s in p.steps:
            if s.gigaflops and s.gigabytes_per_second:
                row = analysed[s.label]
                assert row["intensity"] == pytest.approx(s.gigaflops / s.gigabytes_per_second)
                moved = row["bytes accessed"]
                assert (row["flops"] + row["transcendentals"]) / moved == pytest.approx(row["intensity"])
                compared += 1
        assert compared


def test_roofs_are_those_measured() -> None:
    said = " ".join(Page(roofline_html("x", "", [step("0", 1.0)], MACHINE)).texts("text"))
    assert "f32: 100 GFLOP/s" in said and "i8" not in said and "bf16" not in said
    product = step("0", 1.0)._replace(kernels=("shlo_gemm_i8_i8_i32",))
    assert "i8: 400 GFLOP/s" in " ".join(Page(roofline_html("x", "", [product], MACHINE)).texts("text"))
    assert "memory: 20 GB/s" in said and "caches (2.0 MiB): 80 GB/s" in said


def test_long_programs_list_what_takes_most() -> None:
    steps = [step(str(i), 1 / 1000) for i in range(1000)]
    page = Page(roofline_html("x", "", steps, MACHINE))
    assert [tag for tag, _ in page.tags].count("circle") == LISTED
    assert any(f"{1000 - LISTED} more take 80.0 %" in text for text in page.texts("p"))


def test_programs_without_known_operations() -> None:
    for steps in ([], [step("0", 1.0, None, None)], [step("0", 1.0, 3.0, None)]):
        page = Page(roofline_html("x", "", steps, MACHINE))
        assert any(text.startswith("no step") for text in page.texts("text"))


@pytest.mark.parametrize("text", [CONTROL, examples.path("mlp").read_text()])
def test_profiles_of_programs(text: str) -> None:
    exe = shlo_jit.compile(text)
    with exe.profile() as p:
        exe(*(np.ones(i.shape, i.dtype) for i in exe.inputs))
    page = Page(roofline_html("x", "", p.steps, MACHINE))
    assert {s.label for s in p.steps if s.share} <= {*page.texts("td")}


# ---------------------------------------------------------------------- limits
def test_limits_are_measured_quickly_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))
    start = time.monotonic()
    first = limits.limits(1)
    assert time.monotonic() - start < 60  # on a busy machine
    assert set(first.peaks) == {"f32", "bf16", "i8"} and first.peaks["f32"] > 0
    assert [size for size, _ in first.reads] == [*limits.QUICK.sizes]
    assert all(0 < rate < 1e13 for _, rate in first.reads)
    for _ in range(limits.TIMES - 1):
        again = limits.limits(1)
        assert all(again.peaks[kind] >= first.peaks[kind] for kind in first.peaks)
        first = again
    monkeypatch.setattr(limits, "measure", pytest.fail)
    assert limits.limits(1) == first


def test_loops_read_what_they_say() -> None:
    """Twelve vectors a group, one after the other."""
    import ctypes

    target = limits.resolve()
    vector = f"<{target.lanes(32)} x float>"
    seen = []

    def add(b, s, x):
        return b.fadd(s, x)

    library = limits._loop(limits.Step(vector, vector, add, 0), target, is_reading=True)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.addresses["run"])
    group = 4 * target.lanes(32) * limits.SUMS
    array = np.ones(3 * group + 64, np.uint8)
    run((array.ctypes.data + 63) // 64 * 64, 3, 2)
    times = []
    for size in (1 << 14, 1 << 25):
        data = np.ones(size + 64, np.uint8)
        start = time.perf_counter()
        run((data.ctypes.data + 63) // 64 * 64, size // group, 1)
        times.append(time.perf_counter() - start)
    seen.append(times)
    assert times[1] > 10 * times[0]  # 2,048 times the bytes


def test_better() -> None:
    other = Limits(2, {"f32": 50e9, "bf16": 300e9, "i8": 1e9}, [(1 << 21, 90e9), (1 << 27, 10e9)])
    found = limits.better(MACHINE, other)
    assert found.peaks == {"f32": 100e9, "bf16": 300e9, "i8": 400e9}
    assert found.reads == [(1 << 21, 90e9), (1 << 27, 20e9)]


def test_names_of_points_do_not_overlap() -> None:
    steps = [step("0", 0.3, 10, 50), step("4.1", 0.3, 10, 50.1), step("2", 0.3, 2, 90)]
    page = Page(roofline_html("x", "", steps, MACHINE))
    assert {"0", "4.1", "2"} <= {*page.texts("text")}
    names = [attrs for tag, attrs in page.tags if tag == "text" and str(attrs.get("class")) == "ink s11 halo"]
    places = [(float(str(attrs["x"])), float(str(attrs["y"]))) for attrs in names]
    assert len(places) == 3
    for i, (x, y) in enumerate(places):
        assert all(abs(x - left) > 15 or abs(y - up) >= 12 for left, up in places[i + 1 :])
