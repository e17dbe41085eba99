"""Attributes of Shardy (its `bytecode.td`), read as the texts that they are elsewhere in this package.

The parts of an attribute are texts too, without the `#sdy.x<...>` around them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shlo_jit.bytecode.fields import (
    ATTRIBUTE, ATTRIBUTES, BYTE, OPTIONAL_ATTRIBUTE, OPTIONAL_COUNT, SIGNED, SIGNEDS, STRING,
)  # fmt: skip
from shlo_jit.bytecode.kinds import Kind, dialect
from shlo_jit.ir.attribute_text import string_text, symbol_text
from shlo_jit.ir.attributes import OpaqueAttr

SDY = dialect("sdy", (), ())
