"""What of a text says what it means: without comments, locations and the white space around lines.

    normal(text) == normal(other)   only if both mean the same

Only what is certain is taken away, without parsing: a location that stands where one may stand, at the end of an op or
of an argument, and the alias of a location where nothing else uses it. What stays merely keeps two texts apart. The
location `loc("x")` of an argument stays: it is its name (`text/port_names.py`).
"""

from __future__ import annotations

import re

from shlo_jit.text.strings import STRING

_FLAT = rf'[^()"\n]*(?:{STRING}[^()"\n]*)*'
_DEEP = rf'[^()"\n]*(?:(?:{STRING}|\({_FLAT}\))[^()"\n]*)*'
_LOCATION = rf'loc\([^()"\n]*(?:(?:{STRING}|\({_DEEP}\))[^()"\n]*)*\)'
"""With brackets in brackets in brackets, on one line."""
_COMMENTS = re.compile(rf"{STRING}|[ \t]*//[^\n]*")
_LOCATIONS = re.compile(
    rf"""{STRING}
    | (?<=[\w>)}}\]"])[ ]{_LOCATION}(?=\n[%}}"A-Za-z_\#^]|\n?\Z)      # behind an op, at the end of its line
    | (?<=[\w>}}])[ ](?!loc\({STRING}\)){_LOCATION}(?=[,)])           # behind an argument, unless it is a name
    """,
    re.VERBOSE,
)
_ALIASES = re.compile(rf"^(\#loc\d*) = {_LOCATION}$\n?", re.MULTILINE)
_LINES = re.compile(r"\n[ \t\r\n]*")


def normal(text: str) -> str:
    """The text without what does not matter."""
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
