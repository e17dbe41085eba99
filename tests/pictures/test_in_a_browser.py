"""Pages in headless Chromium, if it is installed: scripts run, and pages are not blank."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from pictured import CONTROL, chain, planned

from shlo_jit.pictures.graph import graph_html, graph_svg
from shlo_jit.pictures.memory import memory_html
from shlo_jit.pictures.roofline import roofline_html
from shlo_jit.pictures.steps import regions_of
from shlo_jit.runtime.limits import Limits
from shlo_jit.runtime.profile import StepTime

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
pytestmark = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
MACHINE = Limits(2, {"f32": 100e9, "bf16": 100e9, "i8": 400e9}, [(1 << 21, 80e9), (1 << 27, 20e9)])
STEP = StepTime("0", "loop", ("kernel",), 1, 10.0, 9.0, 10.0, 1.0, 10.0, 50.0, "add (line 1)")


def chromium(folder: Path, page: Path, *options: str, where: str = "") -> str:
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [str(BROWSER), *QUIET, f"--user-data-dir={profile}", *options, f"{page.as_uri()}{where}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(f"Chromium does not run here: {done.stderr[-200:]}")
    return done.stdout


PAGES = {
    "graph": lambda: graph_html("control", "about", regions_of(planned(CONTROL))),
    "long": lambda: graph_html("long", "about", regions_of(planned(chain(300)))),
    "memory": lambda: memory_html("control", "about", [planned(CONTROL)]),
    "roofline": lambda: roofline_html("x", "about", [STEP], MACHINE),
}


@pytest.mark.parametrize("name", PAGES)
def test_scripts_run(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGES[name](), encoding="utf-8")
    found = chromium(tmp_path, page, "--dump-dom")
    assert "</svg>" in found
    if name != "memory":  # has none
        assert 'data-script="ran"' in found


@pytest.mark.parametrize("width", [500, 1280])  # 500: no window is narrower
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.sampled(3)
def test_pages_are_as_wide_as_their_window(name: str, width: int, tmp_path: Path) -> None:
    """Wider content scrolls within the page."""
    page = tmp_path / "page.html"
    measure = "<script>document.body.dataset.width = document.documentElement.scrollWidth</script></body>"
    page.write_text(PAGES[name]().replace("</body>", measure), encoding="utf-8")
    found = chromium(tmp_path, page, "--dump-dom", f"--window-size={width},800")
    assert int(found.partition('data-width="')[2].partition('"')[0]) <= width


def test_links_open_sections(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGES["long"](), encoding="utf-8")
    assert chromium(tmp_path, page, "--dump-dom").count("<details id") == 8
    name = "steps--main-114"
    assert f'id="{name}"' in page.read_text()
    found = chromium(tmp_path, page, "--dump-dom", where=f"#{name}")
    (section,) = [line for line in found.split("<details ") if line.startswith(f'id="{name}"')]
    assert section.startswith(f'id="{name}" open=""')


@pytest.mark.parametrize("dark", [False, True])
def test_something_is_to_be_seen(dark: bool, tmp_path: Path) -> None:
    picture, page = tmp_path / "picture.png", tmp_path / "graph.svg"
    page.write_text(graph_svg("control", regions_of(planned(CONTROL))), encoding="utf-8")
    options = ["--force-dark-mode"] if dark else []
    chromium(tmp_path, page, "--window-size=600,800", *options, f"--screenshot={picture}")
    assert picture.stat().st_size > 10_000  # a blank picture has some 2,000 bytes
