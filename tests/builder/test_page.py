"""`docs/builder.md`: its code blocks run in order, and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "builder.md"
PART = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.S)


def test_the_page_prints_what_it_shows() -> None:
    parts = PART.findall(PAGE.read_text(encoding="utf-8"))
    space: dict[str, Any] = {}
    for n, (code, shown) in enumerate(parts):
        name = f"<part {n} of builder.md>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, name, "exec"), space)
        assert out.getvalue() == shown
    assert len(parts) >= 6
