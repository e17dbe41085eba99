"""Source locations of operations: the line of Python outside of this package that called the builder.

An op stores it twice: as the source that errors, profiles and plans quote, and as `loc(...)` in the text.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import CodeType, FrameType

from shlo_jit.errors import Source, Span

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
Position = tuple[int | None, int | None, int | None, int | None]
"""Position of code: first line, last line, first column, last column."""
OPERATORS = {
    "__add__": "+", "__radd__": "+", "__sub__": "-", "__rsub__": "-", "__mul__": "*", "__rmul__": "*",
    "__truediv__": "/", "__rtruediv__": "/", "__floordiv__": "//", "__rfloordiv__": "//", "__mod__": "%",
    "__rmod__": "%", "__pow__": "**", "__rpow__": "**", "__matmul__": "@", "__rmatmul__": "@", "__and__": "&",
    "__rand__": "&", "__or__": "|", "__ror__": "|", "__xor__": "^", "__rxor__": "^", "__lshift__": "<<",
    "__rlshift__": "<<", "__rshift__": ">>", "__rrshift__": ">>", "__eq__": "==", "__ne__": "!=", "__lt__": "<",
    "__le__": "<=", "__gt__": ">", "__ge__": ">=", "__neg__": "-", "__pos__": "+", "__invert__": "~", "__abs__": "abs",
    "__getitem__": "[]", "__init__": "function", "__call__": "call", "__bool__": "bool", "__exit__": "with",
    "__getattr__": "argument", "__setitem__": "[]=", "__divmod__": "divmod", "__rdivmod__": "divmod",
    "__round__": "round", "__array_function__": "value", "_unknown": "value",
    "__len__": "len", "_call": "call", "make_tuple": "tuple", "__iter__": "iter",
}  # fmt: skip
"""Methods that Python calls for operators, and the operators as their callers wrote them."""


class PythonSource(Source):
    """A Python file. If its text is unavailable, offsets are line numbers."""

    def __init__(self, name: str):
        super().__init__("".join(linecache.getlines(name)), name)
        self.label = os.path.basename(name)

    def line_column(self, offset: int) -> tuple[int, int]:
        return super().line_column(offset) if self.text else (offset, 1)

    def line_text(self, line: int) -> str:
        return super().line_text(line) if self.text else ""

    def offset(self, line: int, column: int) -> int:
        """Offset of a 1-based line and a 0-based column, which counts bytes as Python's compiler does."""
        if not self.text:
            return line
        self.line_column(0)
        starts = self._line_starts
        assert starts is not None
        if line > len(starts):
            return len(self.text)
        return starts[line - 1] + len(self.line_text(line).encode()[:column].decode(errors="ignore"))


@dataclass(frozen=True)
class Place:
    """The caller's code, and the function of this package that it called."""

    source: PythonSource
    start: int
    end: int
    function: str

    @property
    def span(self) -> Span:
        return Span(self.source, self.start, self.end)

    @cached_property
    def text(self) -> str:
        """The place as an MLIR location."""
        line, column = self.source.line_column(self.start)
        name = self.source.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'loc("{name}":{line}:{column})'


_stated: ContextVar[Place | None] = ContextVar("shlo_jit.builder.place", default=None)


@contextmanager
def located_at(place: Place | None) -> Iterator[None]:
    """Gives all operations that are added meanwhile this place: a translator knows the line of the original program.
    None leaves it as it was."""
    before = _stated.set(place or _stated.get())
    try:
        yield
    finally:
        _stated.reset(before)


def line_of_file(name: str, line: int, function: str) -> Place:
    """The place of a whole line in a Python file."""
    source = _source(name)
    text = source.line_text(line)
    at = source.offset(line, 0)
    return Place(source, at + len(text) - len(text.lstrip()), at + max(len(text), 1), function)


def caller() -> Place:
    """The innermost line of Python that is not in this package, or the place that `located_at` states."""
    stated = _stated.get()
    if stated is not None:
        return stated
    frame: FrameType = sys._getframe(1)
    inside = frame.f_code
    while frame.f_back is not None and _is_ours(frame.f_code):
        inside = frame.f_code
        frame = frame.f_back
    return _place(frame.f_code, frame.f_lasti, frame.f_lineno, OPERATORS.get(inside.co_name, inside.co_name))


def place_of(function: object) -> Place | None:
    """Location of the start of a Python function."""
    code = getattr(function, "__code__", None)
    return None if code is None else _place(code, -1, code.co_firstlineno, "function")


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGE) or code.co_filename.endswith(("contextlib.py", "functools.py"))


@cache
def _source(name: str) -> PythonSource:
    return PythonSource(name)


@lru_cache(4096)
def _place(code: CodeType, instruction: int, line: int, function: str) -> Place:
    source = _source(code.co_filename)
    first, last, start, end = _positions(code, instruction)
    if first is None or last is None or start is None or end is None:
        at = source.offset(line, 0)
        text = source.line_text(line)
        return Place(source, at + len(text) - len(text.lstrip()), at + max(len(text), 1), function)
    if last != first:  # a call over several lines: use its first line
        end = len(source.line_text(first).encode())
    return Place(source, source.offset(first, start), source.offset(first, end), function)


def _positions(code: CodeType, instruction: int) -> Position:
    """Lines and columns of an instruction, by its offset in bytes."""
    found = _all_positions(code)
    return found[instruction // 2] if 0 <= instruction // 2 < len(found) else (None, None, None, None)


@lru_cache(256)
def _all_positions(code: CodeType) -> tuple[Position, ...]:
    return tuple(code.co_positions())
