"""Reasons of decisions: a stable code and a sentence.

Every decision that the printed stages show has a `Reason`. Programs and tests use the code, people read the sentence,
which may be reworded at any time. `docs/reasons.md` explains each code. A code is a literal where the reason is
created, so that a test finds all of them in the source.
"""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """Why a decision was made, or an optimization was not applied."""

    code: str
    """Lower-case words joined by hyphens; each code has one meaning."""
    text: str
    """The sentence for people, without the code."""
    cause: Reason | None = None
    """A reason that led to this one."""

    def __str__(self) -> str:
        own = f"{self.text} [{self.code}]"
        return own if self.cause is None else f"{own}; {self.cause}"

    @property
    def codes(self) -> tuple[str, ...]:
        """The code, and those of its causes."""
        return (self.code,) if self.cause is None else (self.code, *self.cause.codes)

    def then(self, cause: Reason | None) -> Reason:
        """Returns the same reason with another cause at the end of its chain."""
        if cause is None:
            return self
        return self._replace(cause=cause if self.cause is None else self.cause.then(cause))


FIXED = Reason("reproducible-sum", "the order of a reproducible sum depends on its own elements alone")
