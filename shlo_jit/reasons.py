"""Reasons of decisions: a stable code and a sentence.

Every decision that the printed stages show comes with a `Reason`. Programs and tests go by the code, people read the
sentence, which may be reworded at any time. `docs/reasons.md` explains each code; a code is a literal where the reason
is created, so that a test finds all of them in the source.
"""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """Why something was decided, or was not done."""

    code: str
    """Lower-case words joined by hyphens; one meaning each."""
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
        """The same reason with a cause after those that it has."""
        if cause is None:
            return self
        return self._replace(cause=cause if self.cause is None else self.cause.then(cause))
