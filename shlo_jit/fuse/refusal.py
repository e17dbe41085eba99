"""Why something was not fused."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """What stands in the way; the plan prints it."""

    reason: str
