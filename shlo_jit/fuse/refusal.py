"""Refusals: reasons against fusion."""

from __future__ import annotations

from shlo_jit.reasons import Reason


class Refusal(Reason):
    """A reason against fusing two steps, or against working in place; the plan prints it."""

    __slots__ = ()
