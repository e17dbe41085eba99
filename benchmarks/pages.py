"""Markdown tables, and pages that have them between markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> list[str]:
    """A Markdown table with `words` columns of text, followed by figures; columns are padded to equal width."""
    cells = [list(head), *map(list, rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(head))]
    rule = ["-" * w if i < words else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    filled = [[c.ljust(w) if i < words else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
              for row in cells]  # fmt: skip
    return ["| " + " | ".join(row) + " |" for row in (filled[0], rule, *filled[1:])]


def written(page: str, name: str, lines: Sequence[str]) -> str:
    """Replaces the lines between the markers of a block on a page. Raises ValueError if there are no markers."""
    head, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    if not (begin and end):
        raise ValueError(f"no <!-- {name} --> ... <!-- end -->")
    return "\n".join([f"{head}{begin}", *lines, f"{end}{tail}"]).replace(f"{begin}\n", begin)
