"""Registry of constraints: label and statement of every rule of every op, from `constraints.txt`.

Records refer to it (`OpDef.constraints`), diagnostics quote it, and a test requires a valid and an invalid program for
every label. The file is read on first use.

    dot_general:
      C5  0 <= lhs_batching_dimensions < rank(lhs)
      C12 >  shape(result) = ...

A name in angle brackets denotes rules shared by several ops, whose records refer to it (`define(..., rules=...)`).

A `>` marks the rule that stated results break if inference gives other types. It may be followed by the number of a
result (default: every result), and `s` or `e` if only its shape or element type is meant. A `~` marks rules that depend
on run-time facts, such as the number of processes: no verifier can check them, and no test is required.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_LINE = re.compile(r"  (?P<label>\w+)\s+(?:(?P<mark>>\d?[se]?|~)\s+)?(?P<statement>\S.*)")


@dataclass
class Constraints:
    """The constraints of one op."""

    statements: dict[str, str] = field(default_factory=dict)
    """Statements that a verifier can check, by label."""
    at_run_time: dict[str, str] = field(default_factory=dict)
    """Statements that can be checked only at run time, by label."""
    results: list[tuple[str, str]] = field(default_factory=list)
    """Marks (without `>`) and their labels, in the order of the file."""

    def result_label(self, index: int, part: str) -> str:
        """Returns the label of the rule that a stated result breaks. `index` is its number, `part` tells whether its
        shape (`s`) or elements (`e`) are wrong."""
        for mark, label in self.results:
            number, about = mark.rstrip("se"), mark.lstrip("0123456789")
            if number in ("", str(index)) and about in ("", part):
                return label
        return "type"


@functools.cache
def registry() -> dict[str, Constraints]:
    """Returns the constraints by op name."""
    text = importlib.resources.files("shlo_jit.ops").joinpath("constraints.txt").read_text("utf-8")
    found: dict[str, Constraints] = {}
    ops: list[Constraints] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            names = line.rstrip(":").split()
            ops = [found.setdefault(full_name(name), Constraints()) for name in names]
            continue
        m = _LINE.fullmatch(line)
        assert m, line
        for op in ops:
            _add(op, m["label"], m["mark"] or "", m["statement"])
    return found


def _add(op: Constraints, label: str, mark: str, statement: str) -> None:
    if mark == "~":
        op.at_run_time[label] = statement
        return
    assert label not in op.statements, label
    op.statements[label] = statement
    if mark:
        op.results.append((mark[1:], label))


def full_name(name: str) -> str:
    """Expands `add` to `stablehlo.add`; a name in brackets stays unchanged."""
    return name if "." in name or name[0] == "<" else f"stablehlo.{name}"


def constraints_of(name: str, shared: Sequence[str] = ()) -> Constraints:
    """Returns the constraints of an op by its full name, plus the `shared` ones (names without brackets)."""
    found = Constraints()
    for own in (registry().get(name), *(registry()[f"<{rules}>"] for rules in shared)):
        if own is not None:
            found.statements.update(own.statements)
            found.at_run_time.update(own.at_run_time)
            found.results.extend(own.results)
    return found


GENERAL = {
    "count": "the op has the declared number of operands and results",
    "type": "types of operands and results are of the declared kinds, and the stated ones match the inferred ones",
    "attribute": "required attributes are present, and all attributes are of the declared kinds",
    "region": "the op has the declared number of regions, each with one block that ends with stablehlo.return",
    "dominance": "values are defined before they are used, in a scope that is still open",
    "terminator": "functions end with func.return",
    "symbol": "every symbol has one definition, and every referenced symbol exists",
    "recursion": "functions do not call themselves, directly or indirectly",
    "unknown": "the op exists",
}
"""Rules that apply to every op; `tests/verify/test_structure.py` tests them."""
