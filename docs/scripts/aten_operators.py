"""The list of ATen's operators that have a record, generated from the records. PyTorch need not be installed.

python docs/scripts/aten_operators.py            prints the generated part
python docs/scripts/aten_operators.py --write    writes it into docs/aten_operators.md
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from shlo_jit.torch.aten import SUBJECTS, Record, load

PAGE = Path(__file__).parents[1] / "aten_operators.md"
BEGIN, END = "<!-- operators: begin -->", "<!-- operators: end -->"


def markdown() -> str:
    """A section for each file of records, in the order in which they are loaded."""
    records = load().values()
    return "\n\n".join(section(subject, [r for r in records if r.subject == subject]) for subject in SUBJECTS)


def section(subject: str, records: list[Record]) -> str:
    """The file's description, and a row for each record."""
    about = (import_module(f"shlo_jit.torch.aten.{subject}").__doc__ or "").strip()
    by_function: dict[int, list[Record]] = {}
    for record in records:
        by_function.setdefault(id(record.function), []).append(record)
    rows = [f"| {_names(same)} | {same[0].meaning.replace('|', '&#124;')} |" for same in by_function.values()]
    title = subject.replace("_", " ").capitalize()
    return "\n".join([f"## {title}", "", about, "", "| operators | meaning |", "|---|---|", *rows])


def _names(records: list[Record]) -> str:
    return ", ".join(f"`{r.name.removeprefix('aten.').removesuffix('.default')}`" for r in records)


def written_into(text: str) -> str:
    """A page with the generated part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(written_into(PAGE.read_text()))
    else:
        print(markdown())
