"""Type annotations of operators and functions of the builder: pyright accepts a user's file, and reports its
mistakes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_a_users_file_is_typed(tmp_path: Path) -> None:
    source = Path(__file__).with_name("typed_user.py").read_text(encoding="utf-8")
    (tmp_path / "user.py").write_text(source, encoding="utf-8")
    settings = {"extraPaths": [str(ROOT)], "reportUnnecessaryTypeIgnoreComment": "error"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    said = [f"{d['range']['start']['line'] + 1}: {d['message']}" for d in found["generalDiagnostics"]]
    assert not said and found["summary"]["filesAnalyzed"] == 1
