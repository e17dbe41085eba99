"""Environment variables of users, all read with the same rules.

Unset and empty variables mean the default. Invalid values raise a ValueError that names the variable.
"""

from __future__ import annotations

import os
import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B?)", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_TRUTH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def size(text: str, name: str, default: int) -> int:
    """Parses bytes: `12345`, `500M`, `1.5GiB`; K, M, G and T are powers of 1024. `text`: the value of the variable
    `name`."""
    text = text.strip()
    if not text:
        return default
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{name} must be a number of bytes such as 500M or 2GiB, got {text!r}")
    number, unit, _ = found.groups()
    scale = 1024 ** _POWERS[unit.upper()]
    return int(number) * scale if number.isdigit() else int(float(number) * scale)


def count(name: str) -> int | None:
    """Parses a positive integer; None if the variable is not set."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError(f"{name} must be a positive integer, got {text!r}")
    return int(text)


def flag(name: str) -> bool:
    """Parses a flag, which is off by default."""
    text = os.environ.get(name, "").strip()
    if not text:
        return False
    if text.lower() not in _TRUTH:
        raise ValueError(f"{name} must be 0 or 1, got {text!r}")
    return _TRUTH[text.lower()]
