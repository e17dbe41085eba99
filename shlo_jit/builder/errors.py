"""The one exception that building raises."""

from __future__ import annotations

from shlo_jit.builder.locations import Place, caller
from shlo_jit.errors import Diagnostic, StableHLOError, diagnose


class BuilderError(StableHLOError):
    """What a function of the builder was asked for cannot be. The message has the caller's file and line, the function
    and, in `argument`, the name of the argument that is wrong (several with commas between, empty where none is)."""

    family = "builder"

    def __init__(self, diagnostic: Diagnostic, function: str = "", argument: str = "") -> None:
        super().__init__(diagnostic)
        self.function = function
        self.argument = argument


def wrong(argument: str, message: str, *, hint: str = "", place: Place | None = None) -> BuilderError:
    """The error of an argument, at the caller's line."""
    place = place or caller()
    said = f"{place.function}: {argument}: {message}" if argument else f"{place.function}: {message}"
    found = diagnose(said, place.span, op=place.function, label="argument", hint=hint)
    return BuilderError(found, place.function, argument)
