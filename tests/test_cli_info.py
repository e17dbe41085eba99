"""The command `info`."""

from __future__ import annotations

import json
import subprocess
import sys

from shlo_jit import tuning
from shlo_jit.codegen.target import resolve


def info(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shlo_jit", "info", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_facts_and_thresholds() -> None:
    found = json.loads(info("--target", "znver5", "--json").stdout)
    assert found["second_level_bytes"] == 1 << 20
    assert found["last_level_bytes_of_a_core"] == 4 << 20
    assert found["vector_bits"] == 512
    assert found["thresholds"]["LINE_BUFFER_BYTES"] == resolve("znver5").bytes_of(tuning.LINE_BUFFER_BYTES) == 512 << 10


def test_table() -> None:
    text = info().stdout
    assert f"{resolve().caches.l2:,}" in text
    assert f"{resolve().bytes_of(tuning.STREAM_BYTES):,}" in text
    assert str(tuning.STREAM_BYTES) in text


def test_an_unknown_target() -> None:
    done = info("--target", "no-such-cpu")
    assert done.returncode != 0
    assert "no-such-cpu" in done.stderr
