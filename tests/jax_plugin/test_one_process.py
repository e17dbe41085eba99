"""`jax.distributed` with the platform: one process runs, several are refused with an exception."""

from __future__ import annotations

import os
import subprocess
import sys

import portpicker
import pytest
from platform_process import ROOT, run

pytest.importorskip("jax", reason="the platform is JAX's")

SCRIPT = """
import sys
import jax, jax.numpy as jnp, numpy as np
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
try:
    print("ran", jax.process_count(), len(jax.devices()), jnp.sum(jax.jit(jnp.square)(jnp.arange(3.0))))
except Exception as error:
    print(type(error).__name__, error)
try:
    jax.devices("shlo")
except Exception as error:
    print(type(error).__name__, error)
jax.distributed.shutdown()
"""


def addresses() -> str:
    return f"localhost:{portpicker.pick_unused_port()}"


def test_one_process_runs() -> None:
    done = run("-c", SCRIPT, addresses(), "1", "0", timeout=120)
    assert (done.returncode, done.stdout) == (0, "ran 1 4 5.0\n"), done.stderr[-3000:]


def several(platforms: str) -> list[list[str]]:
    """Returns the lines that each of two processes prints."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "JAX_PLATFORMS": platforms, "PYTHONPATH": path}
    command, place = [sys.executable, "-c", SCRIPT], addresses()
    children = [
        subprocess.Popen([*command, place, "2", str(i)], env=environment, stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    outputs = [child.communicate(timeout=120)[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    return outputs


def test_several_processes_are_refused() -> None:
    for lines in several("shlo"):
        assert len(lines) == 2
        assert all(line.startswith("RuntimeError ") and "one process, but 2" in line for line in lines)


def test_programs_that_do_not_ask_for_it_run_in_several_processes() -> None:
    """If the package is installed, and the platform is not requested, XLA's CPU works as without it."""
    for lines in several(""):
        assert lines[0] == "ran 2 2 5.0"
        assert "one process, but 2" in lines[1]
