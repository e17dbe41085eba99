"""Processes in which JAX is told to use the platform."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "on_platform"


def run(*arguments: str, timeout: float = 600, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, with the platform."""
    environment = {**os.environ, "JAX_PLATFORMS": "shlo", "JAX_NUM_CPU_DEVICES": "4", **variables}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[2]), environment.get("PYTHONPATH", "")])
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
