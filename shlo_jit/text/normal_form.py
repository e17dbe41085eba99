"""Normal form of a text for comparison: without comments, locations and the white space around lines.

    normal(text) == normal(other)   only if both mean the same

The text is not parsed, so only what is certainly irrelevant is removed: a location at the end of an op or argument,
and the alias of a location that nothing else uses. Anything irrelevant that remains merely makes two texts compare as
different. The location `loc("x")` of an argument stays because it is the argument's name (`text/argument_names.py`).
"""

from __future__ import annotations

import re

from shlo_jit.text.strings import STRING

_FLAT = rf'[^()"\n]*(?:{STRING}[^()"\n]*)*'
_DEEP = rf'[^()"\n]*(?:(?:{STRING}|\({_FLAT}\))[^()"\n]*)*'
_LOCATION = rf'loc\([^()"\n]*(?:(?:{STRING}|\({_DEEP}\))[^()"\n]*)*\)'
"""Regular expression of a location on one line, with brackets nested up to three levels."""
_COMMENTS = re.compile(rf"{STRING}|[ \t]*//[^\n]*")
_LOCATIONS = re.compile(
    rf"""{STRING}
    | (?<=[\w>)}}\]"])[ ]{_LOCATION}(?=\n[%}}"A-Za-z_\#^]|\n?\Z)      # after an op, at the end of its line
    | (?<=[\w>}}])[ ](?!loc\({STRING}\)){_LOCATION}(?=[,)])           # after an argument, unless it is a name
    """,
    re.VERBOSE,
)
_ALIASES = re.compile(rf"^(\#loc\d*) = {_LOCATION}$\n?", re.MULTILINE)
_LINES = re.compile(r"\n[ \t\r\n]*")


def normal(text: str) -> str:
    """Returns the text without comments, locations and surrounding white space."""
    if "//" in text:
        text = _COMMENTS.sub(_strings_only, text)
    text = _LINES.sub("\n", text).strip(" \t\r\n")
    if "loc(" in text:
        text = _LOCATIONS.sub(_strings_only, text)
        names = _ALIASES.findall(text)
        if names and len(set(names)) == len(names):
            without = _ALIASES.sub("", text)
            text = text if "#loc" in without else without.strip("\n")
    return text


def _strings_only(found: re.Match[str]) -> str:
    return found[0] if found[0][0] == '"' else ""
