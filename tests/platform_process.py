"""Processes in which JAX uses the platform."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, timeout: float = 600, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a separate Python with the platform."""
    environment = {**os.environ, "JAX_PLATFORMS": "shlo", "JAX_NUM_CPU_DEVICES": "4", **variables}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
