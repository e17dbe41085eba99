"""The only exception that the builder raises."""

from __future__ import annotations

from shlo_jit.builder.locations import Place, caller
from shlo_jit.errors import Diagnostic, StableHLOError, diagnose


class BuilderError(StableHLOError):
    """Raised for arguments that a function of the builder cannot accept.

    The message has the caller's file and line and the function. `argument` has the name of the wrong argument: several
    are separated by commas, and it is empty if there is none.
    """

    family = "builder"

    def __init__(self, diagnostic: Diagnostic, function: str = "", argument: str = "") -> None:
        super().__init__(diagnostic)
        self.function = function
        self.argument = argument


def wrong(argument: str, message: str, *, hint: str = "", place: Place | None = None) -> BuilderError:
    """Makes the error of an argument, at the caller's line."""
    place = place or caller()
    said = f"{place.function}: {argument}: {message}" if argument else f"{place.function}: {message}"
    found = diagnose(said, place.span, op=place.function, label="argument", hint=hint)
    return BuilderError(found, place.function, argument)
