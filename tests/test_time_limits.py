"""Time limits of tests, and tests about Ctrl-C in processes that ignore it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HANGS = """
import threading
def waits(): threading.Event().wait()
def test_it():
    threading.Thread(target=waits, daemon=True).start()
    waits()
"""
INTERRUPTED = """
import os, signal, time
import pytest
@pytest.mark.usefixtures("ctrl_c")
def test_it():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
def test_after():
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
@pytest.mark.slow
def test_slow(request):
    assert request.node.get_closest_marker("timeout").args == (4 * 3600,)
"""


def pytest_on(text: str, folder: Path, *options: str, before: str = "") -> subprocess.CompletedProcess[str]:
    path = folder / "test_of_a_test.py"
    path.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *options, str(path)]
    given = ["sh", "-c", f'{before} exec "$@"', "sh", *command]
    return subprocess.run(given, cwd=HERE.parent, capture_output=True, text=True, timeout=120, check=False)


def test_there_is_a_time_limit() -> None:
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["timeout"] > 0


def test_a_test_that_hangs_ends_with_all_stacks(tmp_path: Path) -> None:
    pytest.importorskip("pytest_timeout")
    config = ["-c", str(HERE.parent / "pyproject.toml"), "--rootdir", str(HERE.parent)]
    done = pytest_on(HANGS, tmp_path, *config, "-o", "timeout=2")
    assert done.returncode != 0
    assert (done.stdout + done.stderr).count("in waits") == 2


def test_interrupts_where_they_are_ignored(tmp_path: Path) -> None:
    """Processes ignore it in the background of a shell, and of some test runners."""
    done = pytest_on(INTERRUPTED, tmp_path, "-p", "conftest", before=f"trap '' INT; export PYTHONPATH={HERE};")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
