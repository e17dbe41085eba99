"""Reason codes in the printed stages: each is in brackets after its sentence."""

from __future__ import annotations

import re

CODE = re.compile(r"\[([a-z]+(?:-[a-z0-9]+)*)\]")


def codes(text: str, label: str = "") -> list[str]:
    """The codes in a printed stage, in order; with a `label`, those of lines that begin with it."""
    lines = [line for line in text.splitlines() if line.lstrip().startswith(label)]
    return [code for line in lines for code in CODE.findall(line)]


def in_memory(plan: str) -> str:
    """The lines of a printed plan that name values in memory: those that steps read and write."""
    return "\n".join(line for line in plan.splitlines() if line.lstrip().startswith(("reads ", "writes ")))
