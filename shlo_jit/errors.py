"""Errors with locations: every refusal names the file, line and column, and shows the source line with a caret."""

from __future__ import annotations

import bisect
import dataclasses
from dataclasses import dataclass


class Source:
    """Program text with a name; converts offsets to line and column."""

    label = ""
    """Prefix of line numbers in plans and profiles; empty for the program's own text."""

    def __init__(self, text: str, name: str = "<text>"):
        self.text = text
        self.name = name
        self._line_starts: list[int] | None = None

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Range of an op's text, from the offsets of the op."""
        return start, end

    @property
    def inside(self) -> str:
        """Additional name of a location for messages: the function that an op was computed from."""
        return ""

    def within(self, what: str) -> Source:
        """Source of ops that were created from a construct that this text only names."""
        return Within(self, what)

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset (clamped into the text)."""
        if self._line_starts is None:
            starts = [0]
            at = self.text.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.text.find("\n", at + 1)
            self._line_starts = starts
        offset = max(0, min(offset, len(self.text)))
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def between(self, start: int, end: int) -> str:
        """The text of a range."""
        return self.text[start:end]

    def line_text(self, line: int) -> str:
        """Text of a 1-based line, without its line feed."""
        self.line_column(0)
        assert self._line_starts is not None
        start = self._line_starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)]


class Within(Source):
    """Locations of a source, for ops that were created from a construct named there."""

    def __init__(self, source: Source, what: str) -> None:
        self._source = source
        self._inside = what
        self.name = source.name
        self.label = source.label

    @property
    def text(self) -> str:  # type: ignore[override]
        return self._source.text

    @property
    def inside(self) -> str:
        return self._inside

    def place(self, start: int, end: int) -> tuple[int, int]:
        return self._source.place(start, end)

    def line_column(self, offset: int) -> tuple[int, int]:
        return self._source.line_column(offset)

    def between(self, start: int, end: int) -> str:
        return self._source.between(start, end)

    def line_text(self, line: int) -> str:
        return self._source.line_text(line)


NO_SOURCE = Source("", "<built>")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a source: half-open characters [start, end)."""

    source: Source
    start: int
    end: int


@dataclass(frozen=True)
class Diagnostic:
    """One finding: the problem and its location. `line` and `column` are 1-based; 0 if there is no text.

    Tools can rely on the fields alone: `op` and `label` name the broken rule (`stablehlo.dot_general`, `C5`), and
    `str()` is for people.
    """

    message: str
    file: str = "<text>"
    line: int = 0
    column: int = 0
    source_line: str = ""
    width: int = 1
    severity: str = "error"
    """`error`, or `warning` if the program is valid nevertheless."""
    op: str = ""
    """Name of the op; empty if the finding is not about one."""
    label: str = ""
    """The constraint of the specification (`C5`), or a word for the rule: `syntax`, `type`, `count`, `symbol` ..."""
    rule: str = ""
    """The constraint in the specification's notation, if the op's record has it."""
    hint: str = ""
    """Suggested correction, if it is obvious."""
    found: str = ""
    """Actual contents of the text there: a token, a type, the types of the op."""
    expected: str = ""
    """Expected contents: tokens, a type, the rule."""
    code: str = ""
    """Stable name of the kind of message, for tools and tests: `syntax.undefined_value`, `verify.transpose.C2`.

    The families are listed in `docs/messages.md`. Wording may change, codes do not. An exception fills in missing
    codes.
    """

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        lines = [printable(f"{self.file}{place}: {self.severity}: {self.message}")]
        if self.source_line:
            lines += _excerpt(self.source_line, self.column, self.width)
        if self.rule:
            lines.append(f"  rule: {self.rule}")
        if self.hint and self.hint not in self.message:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, str | int]:
        """The fields, for JSON."""
        return dataclasses.asdict(self)


def printable(text: str) -> str:
    """Makes a text printable on any terminal: control characters become visible ones of the same width.

    Tabs and line feeds are kept.
    """
    return text.translate(_VISIBLE)


_VISIBLE = {c: 0x2400 + c for c in range(32) if chr(c) not in "\t\n"} | {0x7F: 0x2421}
"""Unicode's symbols for control characters, and a sign for those that have none or reorder the line."""
_VISIBLE |= dict.fromkeys((*range(0x80, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
MOST_GARBAGE = 0.2
"""Minimum share of non-text characters for an excerpt to be omitted."""


def _excerpt(line: str, column: int, width: int) -> list[str]:
    """The part of a source line around a column and a line of carets below it; nothing for a binary file."""
    text, column = _window(line, column)
    shown = printable(text)
    changed = sum(a != b or a == "\ufffd" for a, b in zip(text, shown, strict=True))
    if changed > max(5, MOST_GARBAGE * len(text)):
        return []
    pad = "".join("\t" if c == "\t" else " " for c in shown[: column - 1])
    carets = "^" * max(1, min(width, len(shown) - column + 1))
    return [f"  {shown}", f"  {pad}{carets}"]


def _window(line: str, column: int, limit: int = 160) -> tuple[str, int]:
    """Part of a long line around `column`, and the column within that part."""
    if len(line) <= limit:
        return line, column
    start = max(0, column - 1 - limit // 2)
    part = line[start : start + limit]
    column -= start
    if start > 0:
        part, column = "..." + part, column + 3
    if len(line) > start + limit:
        part += "..."
    return part, column


def diagnose(
    message: str,
    span: Span | None,
    *,
    severity: str = "error",
    op: str = "",
    label: str = "",
    rule: str = "",
    hint: str = "",
    found: str = "",
    expected: str = "",
    code: str = "",
) -> Diagnostic:
    """Makes a Diagnostic for `span` (or without a location if there is none)."""
    place: tuple[str, int, int, str, int] = ("<text>", 0, 0, "", 1)
    if span is not None:
        line, column = span.source.line_column(span.start)
        place = (span.source.name, line, column, span.source.line_text(line), max(1, span.end - span.start))
    return Diagnostic(message, *place, severity, op, label, rule, hint, found, expected, code)


def rule_code(family: str, op: str, label: str) -> str:
    """Code of a message that has no more specific one.

    It is `verify.transpose.C2` for a constraint, which each op numbers separately, `verify.type` for a word, and the
    family alone without a label.
    """
    if not label or label == family:
        return family
    if op and label[1:].isdigit():
        return f"{family}.{op.rpartition('.')[2]}.{label}"
    return f"{family}.{label}"


class StableHLOError(ValueError):
    """Raised if the program is refused. `.diagnostics` has the reasons and their locations."""

    family = "program"
    """First word of the codes."""

    def __init__(self, diagnostics: list[Diagnostic] | Diagnostic):
        found = [diagnostics] if isinstance(diagnostics, Diagnostic) else diagnostics
        self.diagnostics = [d if d.code else self._with_code(d) for d in found]
        super().__init__("\n".join(str(d) for d in self.diagnostics))

    def _with_code(self, found: Diagnostic) -> Diagnostic:
        return dataclasses.replace(found, code=rule_code(self.family, found.op, found.label))

    @property
    def code(self) -> str:
        """Stable name of the first message's kind."""
        return self.diagnostics[0].code if self.diagnostics else ""

    @property
    def line(self) -> int:
        return self.diagnostics[0].line

    @property
    def column(self) -> int:
        return self.diagnostics[0].column


class ParseError(StableHLOError):
    """Raised if the text does not match the grammar."""

    family = "syntax"


class VerifyError(StableHLOError):
    """Raised if the program violates a rule of the specification."""

    family = "verify"


class UnsupportedError(StableHLOError):
    """Raised if the program is valid, but this compiler cannot lower it (yet)."""

    family = "unsupported"


class UsageError(Exception):
    """Raised for a wrong call of shlo_jit: an array, an option, an object that is not a program.

    `code` is the stable name of the kind of mistake (`argument.dtype`). `hint` is the suggested correction, which ends
    the message.
    """

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.code = code
        self.hint = hint


def at_place(error: Exception, place: str) -> Exception:
    """Returns the same error with the place before its message: `rank 1: expected ...`."""
    if isinstance(error, UsageError):
        message = str(error).removesuffix(f"; {error.hint}") if error.hint else str(error)
        return type(error)(f"{place}: {message}", code=error.code, hint=error.hint)
    return type(error)(f"{place}: {error}")


class UsageTypeError(UsageError, TypeError):
    """Raised for an argument of the wrong kind."""


class UsageValueError(UsageError, ValueError):
    """Raised for an argument of the right kind that is out of range or unknown."""


class InternalError(RuntimeError):
    """Raised if the compiler failed on a program that it should compile or refuse: a defect of the compiler.

    `.program` names the file that the program is kept in. It is empty if that was not possible, and None if it was not
    attempted.
    """

    def __init__(self, message: str, program: str | None = None) -> None:
        super().__init__(message)
        self.program = program


class ExecutionError(RuntimeError):
    """Raised if a compiled program could not finish: a custom call raised, a collective timed out."""


class WorkerError(ExecutionError):
    """Raised if a process of a grid could not finish: it died, raised, or its operation differed from that of the
    others."""

    def __init__(self, message: str, rank: int, op: str = "", place: str = "", remote: str = "") -> None:
        """`rank`: number of the failing process. `op`: its current op, and `place` the op's line, if these are known.

        After a time limit, `op` is the op at which another process waited for it. `remote`: the Python traceback of the
        process.
        """
        super().__init__(f"{message}\n\n{remote.rstrip()}" if remote else message)
        self.rank, self.op, self.place, self.remote = rank, op, place, remote


class WorkerTimeoutError(WorkerError, TimeoutError):
    """Raised if a process of a grid made no progress."""


class ExportError(RuntimeError):
    """Raised if a library cannot be written for reasons outside of the program: no linker, files of the wrong kind."""


class LibraryError(ValueError):
    """Raised if a file is not a library that can be loaded here."""


def check_text(text: str, name: str) -> str:
    """Returns the text. Raises ParseError at the first unpaired surrogate, which is not a character."""
    if text.isascii():  # avoids a copy of a text of a gigabyte
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        shown = Source(text.encode("utf-8", "replace").decode("utf-8"), name)
        message = f"the text is not Unicode: U+{ord(text[e.start]):04X} is half of a character"
        raise ParseError(diagnose(message, Span(shown, e.start, e.start + 1), label="encoding")) from None
    return text


def decode_text(data: bytes, name: str) -> str:
    """Decodes the bytes of a program's text. Raises ParseError at the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        shown = Source(data.decode("utf-8", "replace"), name)
        at = len(data[: e.start].decode("utf-8"))
        raise ParseError(diagnose("the text is not UTF-8", Span(shown, at, at + 1), label="encoding")) from None
