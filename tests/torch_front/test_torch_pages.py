"""The pages on PyTorch: their code runs and prints what they say, and the list of operators is that of the records."""

import importlib.util
from pathlib import Path

import page_runner
import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["pytorch.md", "tutorials/from_pytorch.md"])
def test_the_code_of_a_page_prints_what_the_page_says(page, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    if absent := page_runner.missing((DOCS / page).read_text()):
        pytest.skip(f"needs {', '.join(absent)}")
    monkeypatch.chdir(tmp_path)
    assert [(block.line, printed) for block, printed in page_runner.differences(DOCS / page, tmp_path)] == []


def test_the_list_of_operators_is_current():
    spec = importlib.util.spec_from_file_location("aten_operators", DOCS / "scripts" / "aten_operators.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = (DOCS / "aten_operators.md").read_text()
    assert script.written_into(text) == text, "run: python docs/scripts/aten_operators.py --write"
