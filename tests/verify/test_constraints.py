"""Every rule of every op: a program that satisfies it is valid; one with an edit that breaks it is rejected by label.

Ids are `dot_general-C5-good` and `dot_general-C5-bad`, with a number from the second pair on.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import cases_collective  # noqa: F401  (fills CASES)
import cases_contract  # noqa: F401
import cases_control  # noqa: F401
import cases_elementwise  # noqa: F401
import cases_index  # noqa: F401
import cases_linalg  # noqa: F401
import cases_reduce  # noqa: F401
import cases_shape  # noqa: F401
import pytest
from table import CASES, Case, program

import shlo_jit
from shlo_jit.ops import OPS
from shlo_jit.ops.constraints import registry
from shlo_jit.text.parser import parse_module
from shlo_jit.verify.verifier import verify_module


def _parameters() -> list:
    seen: Counter[tuple[str, str]] = Counter()
    out = []
    for case in CASES:
        seen[case.op, case.label] += 1
        number = seen[case.op, case.label]
        name = f"{case.op.removeprefix('stablehlo.')}-{case.label}{f'-{number}' if number > 1 else ''}"
        out += [pytest.param(case, True, id=f"{name}-good"), pytest.param(case, False, id=f"{name}-bad")]
    return out


@pytest.mark.parametrize(("case", "good"), _parameters())
def test_constraint(case: Case, good: bool) -> None:
    found = verify_module(parse_module(case.good if good else case.bad))
    if good:
        assert found == []
    else:
        assert [(d.op, d.label) for d in found] == [(case.op, case.label)], [d.message for d in found]
        assert found[0].rule == OPS[case.op].constraints[case.label]
        assert found[0].line > 0


def test_every_constraint_has_tests() -> None:
    tested = {(case.op, case.label) for case in CASES}
    wanted = {(op, label) for op, record in OPS.items() for label in record.constraints}
    assert sorted(wanted - tested) == []
    assert sorted(tested - wanted) == []


def test_constraints_are_of_ops() -> None:
    shared = {f"<{rules}>" for record in OPS.values() for rules in record.rules}
    assert set(registry()) <= set(OPS) | shared
    assert shared <= set(registry())


EDGES = [
    line.split(" | ", 1)
    for line in Path(__file__).with_name("edges.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("label", "op"), EDGES, ids=[str(i + 1) for i in range(len(EDGES))])
def test_edge(label: str, op: str) -> None:
    found = shlo_jit.verify(program(op))
    assert [d.label for d in found] == [label] * (label != "ok"), [d.message for d in found]
