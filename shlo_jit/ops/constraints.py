"""The registry of constraints: label and statement of every rule of every op, from `constraints.txt`.

Records refer to it (`OpDef.constraints`), diagnostics quote it, and a test fails when a label in it has no program that
keeps the rule and no program that breaks it. The file is read when it is first asked for.

    dot_general:
      C5  0 <= lhs_batching_dimensions < rank(lhs)
      C12 >  shape(result) = ...

A name in angle brackets is that of rules which several ops share: their records name it (`define(..., rules=...)`).

Behind `>` stand the stated results that are held against this rule when inference gives other types: a result's number
(every result without one), and `s` or `e` when only shape or element type is meant. A `~` marks what is known only when
the program runs (how many processes there are): no verifier can check it, and no test is asked for.
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
    """Of one op."""

    statements: dict[str, str] = field(default_factory=dict)
    """By label, what a verifier can check."""
    at_run_time: dict[str, str] = field(default_factory=dict)
    """What it cannot."""
    results: list[tuple[str, str]] = field(default_factory=list)
    """Marks without `>`, each with its label, in the order of the file."""

    def result_label(self, index: int, part: str) -> str:
        """The rule a stated result breaks: its number, and whether its shape (`s`) or elements (`e`) are wrong."""
        for mark, label in self.results:
            number, about = mark.rstrip("se"), mark.lstrip("0123456789")
            if number in ("", str(index)) and about in ("", part):
                return label
        return "type"


@functools.cache
def registry() -> dict[str, Constraints]:
    """By op name."""
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
    """`add` to `stablehlo.add`; a name in brackets is left alone."""
    return name if "." in name or name[0] == "<" else f"stablehlo.{name}"


def constraints_of(name: str, shared: Sequence[str] = ()) -> Constraints:
    """Of an op by its full name, with those shared ones it names (without brackets); empty when there are none."""
    found = Constraints()
    for own in (registry().get(name), *(registry()[f"<{rules}>"] for rules in shared)):
        if own is not None:
            found.statements.update(own.statements)
            found.at_run_time.update(own.at_run_time)
            found.results.extend(own.results)
    return found


GENERAL = {
    "count": "as many operands and results as the op has",
    "type": "types of operands and results are of the kinds that the op declares, and the stated ones as inferred",
    "attribute": "required attributes are there, and all of them are of the kinds that the op declares",
    "region": "as many regions as the op has, each with one block that ends with stablehlo.return",
    "dominance": "values are defined before they are used, in a scope that is still open",
    "terminator": "functions end with func.return",
    "symbol": "symbols have one definition, and those that are referred to exist",
    "recursion": "functions do not call themselves, directly or not",
    "unknown": "the op exists",
}
"""Rules that hold for every op; `tests/verify/test_structure.py` has their tests."""
