"""What a user gives as a program (a text, a file, bytes or a Module) to its text, its portable artifact, or the Module.
What is something else (HLO, an archive) is named, with what to do about it."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from shlo_jit.errors import Diagnostic, ParseError, UsageTypeError, check_text, decode_text
from shlo_jit.foreign_files import EMPTY, GLANCE, Foreign, foreign_bytes, foreign_text, object_hint
from shlo_jit.runtime import known_files
from shlo_jit.runtime.cache import ObjectCache, default_cache
from shlo_jit.runtime.constants import bring
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.text.literals import (
    Characters,
    Cut,
    Literal,
    characters,
    cut_bytes,
    cut_string,
    file_characters,
    identity,
)

if TYPE_CHECKING:
    import numpy as np

    from shlo_jit.bytecode.long_literals import Read
    from shlo_jit.bytecode.stream import Bytes
    from shlo_jit.ir.core import Module
    from shlo_jit.text.literals import Decode

LONGEST_PATH = 4096
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NAME = r"[^\n{}()%@\"=<>#]*"
PATH = re.compile(rf"(?!\s*(//|func\.func\b|builtin\.module\b)){_NAME}(/{_NAME}|\.[A-Za-z]\w{{0,9}})")
"""A slash or a suffix, and nothing that is in every program, nor what one begins with."""
PIPE_WAIT = 10.0
"""Seconds to wait for somebody to write to a named pipe."""


class Text(NamedTuple):
    """A program that has not been parsed, and a name for it."""

    text: str
    name: str
    cuts: tuple[Cut, ...] = ()
    """Long literals, which are not in the text."""


class Artifact(NamedTuple):
    """A program in bytecode that has not been read, and a name for it."""

    data: Bytes
    name: str
    literals: Mapping[int, Literal]
    """Long literals, by the place of their bytes, which are not in the data."""
    rest: bytes
    """The data without them."""


class Derived(NamedTuple):
    """A program that is made of another one, when it is wanted."""

    name: str
    identity: Callable[[], bytes]
    """Says which program it is: a digest of what it is made of, and how."""
    make: Callable[[], Module]


Given: TypeAlias = "Text | Artifact | Module"
ProgramSource: TypeAlias = "Given | Derived"


def read_source(source: object, known: bool = False) -> Given:
    """The text or artifact of a text, a path or bytes, whose first bytes say which it is, or of an object of JAX's that
    has a text; a Module as it is. `known`: the object cache may know what a file's text is.

    Raises OSError for a file that cannot be read, ParseError for what is no text or that of another language, and
    TypeError for any other object.
    """
    if isinstance(source, str) and not _is_path(source):
        return _text(source.removeprefix("\ufeff"), "<text>")
    if isinstance(source, str | os.PathLike):
        return _read_path(os.fsdecode(source), known)
    if isinstance(source, bytes | bytearray | memoryview):
        return _read(bytes(source), "<bytes>")
    from shlo_jit.ir.core import Module

    if isinstance(source, Module):
        return source
    artifact = None if isinstance(source, type) else getattr(source, "mlir_module_serialized", None)
    if isinstance(artifact, bytes):  # of a jax.export.Exported, whose own reader trusts what it reads
        return _read(artifact, f"<{type(source).__name__}>")
    text = _own_text(source)
    if text is not None:
        return _text(text, f"<{type(source).__name__}>")
    expected = "expected StableHLO text, a path, bytes, a Module, or an object with mlir_module() or as_text()"
    hint = object_hint(source)
    raise UsageTypeError(f"{expected}, got {type(source).__name__}", code="argument.program", hint=hint)


def _own_text(source: object) -> str | None:
    """What `mlir_module()` or `as_text()` (of a `jax.stages.Lowered`) gives; with locations where it can, which have
    the arguments' names."""
    if isinstance(source, type):
        return None
    method = getattr(source, "mlir_module", None)
    if callable(method):
        text = method()
    elif callable(method := getattr(source, "as_text", None)):
        try:
            text = method(debug_info=True)
        except TypeError:  # it knows no such option
            text = method()
    else:
        return None
    return text if isinstance(text, str) else None


def _is_path(text: str) -> bool:
    """A file that is there, or one that was meant, such as `modle.mlir`."""
    if not text or len(text) > LONGEST_PATH or "\n" in text:
        return False
    return os.path.exists(text) or PATH.fullmatch(text) is not None


# ---------------------------------------------------------------------- files
def read_file(name: str) -> bytes:
    """The bytes of a file or pipe. Raises OSError; a device, which may have no end, is none of the two."""
    with _opened(name) as file:
        return _whole(file, name)


def _opened(name: str) -> FileIO:
    if os.path.isdir(name or "."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    return open(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)


def _whole(file: FileIO, name: str) -> bytes:
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISFIFO(mode):
        first = _first_of_pipe(file.fileno(), name)
        os.set_blocking(file.fileno(), True)
        return first + file.readall()
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a program is read from a file or a pipe, and this is a device", name)
    return file.readall()


def _read_path(name: str, known: bool) -> Text | Artifact:
    """The program in a file. Of one that is a text as far as its beginning tells, long literals are never in memory."""
    with _opened(name) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size and not os.pread(file.fileno(), 64, 0).count(0):
            return _text_in(file, status, name, default_cache() if known else None)
        if stat.S_ISREG(status.st_mode):
            found = _artifact_in(file, status, name, default_cache() if known else None)
            if found is not None:
                return found
        return _read(_whole(file, name), name)


def _artifact_in(file: FileIO, status: os.stat_result, name: str, cache: ObjectCache | None) -> Artifact | None:
    """The artifact in a file, whose long literals are read anew from it."""
    path = os.path.abspath(name)

    def again(start: int, end: int) -> bytes:
        with open(path, "rb", buffering=0) as again:
            return os.pread(again.fileno(), end - start, start)

    if cache is not None:
        found = known_files.find(status, name, known_files.ARTIFACT, cache)
        if found is not None:
            from shlo_jit.bytecode.long_literals import with_known

            noted, rest = found
            data, literals = with_known(rest, noted["literals"], _part(again, *noted["place"]))
            bring(literals.values())
            return Artifact(data, name, literals, rest)
    made = _artifact(lambda start, end: os.pread(file.fileno(), end - start, start), status.st_size, name, again)
    if made is None:
        return None
    artifact, place = made
    if cache is not None and artifact.literals:
        rows = [(at, literal.digest, literal.nbytes) for at, literal in artifact.literals.items()]
        noted = {"place": place, "literals": rows}
        after = os.fstat(file.fileno())
        known_files.note(status, after, name, known_files.ARTIFACT, noted, artifact.rest, cache)
    return artifact


def _artifact(read: Read, size: int, name: str, again: Read) -> tuple[Artifact, tuple[int, int]] | None:
    """The artifact in some bytes, and where it begins and ends there."""
    from shlo_jit.bytecode.glance import artifact_in

    place = artifact_in(read, size)
    if place is None:
        return None
    from shlo_jit.bytecode.long_literals import rest_of, without_literals

    begin, end = place = place[0], min(place[1], size)
    data, literals = without_literals(_part(read, *place), end - begin, _part(again, *place), usable_cpus())
    bring(literals.values())
    return Artifact(data, name, literals, rest_of(data, literals)), place


def _part(read: Read, begin: int, end: int) -> Read:
    return lambda a, b: read(begin + a, min(begin + b, end))


def _text_in(file: FileIO, status: os.stat_result, name: str, cache: ObjectCache | None) -> Text:
    given = file_characters(file.fileno(), status.st_size, name, _fast_decoder)
    assert given.again is not None
    if cache is not None:
        found = known_files.find(status, name, known_files.TEXT, cache)
        if found is not None:
            noted, data = found
            return _text_left(data, tuple(_known_cut(given.again, *row) for row in noted["cuts"]), given, name)
    data, cuts = _cut(given, name)
    text = _text_left(data, cuts, given, name)
    if cache is not None and cuts:
        rows = [(c.at, c.start, c.literal.digest, c.literal.nbytes) for c in cuts]
        after = os.fstat(file.fileno())
        known_files.note(status, after, name, known_files.TEXT, {"cuts": rows}, data, cache)
    return text


def _known_cut(again: Callable[[int, int], np.ndarray], at: int, start: int, digest: str, nbytes: int) -> Cut:
    return Cut(at, Literal(None, digest, nbytes, partial(again, start, start + 2 * nbytes)), start)


def _first_of_pipe(descriptor: int, name: str) -> bytes:
    """What a pipe has now; empty when a writer has not written yet. A named pipe without a writer does not hang."""
    end = time.monotonic() + PIPE_WAIT
    while time.monotonic() < end:
        try:
            found = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return b""
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError(errno.ETIMEDOUT, f"nobody wrote to the pipe for {PIPE_WAIT:g} s", name)


# ---------------------------------------------------------------------- bytes and texts
def _read(data: bytes, name: str) -> Text | Artifact:
    found = _artifact(lambda a, b: data[a:b], len(data), name, lambda a, b: data[a:b])
    return _text_of(characters(data), name) if found is None else found[0]


def _text_of(given: Characters, name: str) -> Text:
    """The text in bytes. Raises ParseError for what is none, or not in UTF-8."""
    return _text_left(*_cut(given, name), given, name)


def _cut(given: Characters, name: str) -> tuple[bytes, tuple[Cut, ...]]:
    start = given.read(0, GLANCE).removeprefix(BYTE_ORDER_MARK)
    found = foreign_bytes(start) if start.strip() or given.size > GLANCE else EMPTY
    if found is not None:
        raise _refused(found, name)
    return cut_bytes(given, usable_cpus(), _fast_decoder)


def _text_left(data: bytes, cuts: tuple[Cut, ...], given: Characters, name: str) -> Text:
    try:
        text = decode_text(data, name)
    except ParseError:
        decode_text(given.read(0, given.size), name)  # which knows the place
        raise
    marks = len(text) - len(text := text.removeprefix("\ufeff"))
    bring(c.literal for c in cuts)
    return Text(_checked(text, name), name, tuple(c._replace(at=c.at - marks) for c in cuts))


def _text(text: str, name: str) -> Text:
    """A text that is one already. Raises ParseError for half of a character."""
    left, cuts = cut_string(check_text(text, name), usable_cpus(), _fast_decoder)
    bring(c.literal for c in cuts)
    return Text(_checked(left, name), name, cuts)


def _fast_decoder() -> Decode:
    """As `text.literals.Fast`."""
    from shlo_jit.runtime.hexadecimal import decoder

    return decoder()


def content(source: Given) -> str | bytes:
    """What a program is known by in the object cache."""
    if isinstance(source, Text):
        return identity(source.text, source.cuts)
    if isinstance(source, Artifact):
        return source.rest + "".join(f" {at} {literal.digest}" for at, literal in source.literals.items()).encode()
    return str(source)


def may_be_unknown(source: Given) -> bool:
    """Whether the shape of any value is not known, as far as can be seen quickly."""
    if isinstance(source, Text):  # it may also be that just a string has such letters
        return "?" in source.text or "tensor<*" in source.text
    if isinstance(source, Artifact):
        from shlo_jit.bytecode.glance import artifact_may_be_unknown

        return artifact_may_be_unknown(source.data, source.rest)
    from shlo_jit.ir.unknown import has_unknown

    return has_unknown(source)


def _checked(text: str, name: str) -> str:
    """The text, unless it begins as those of other languages do."""
    found = foreign_text(text)
    if found is not None:
        raise _refused(found, name)
    return text


def _refused(found: Foreign, name: str) -> ParseError:
    message = f"this is {found.what}"
    return ParseError(
        Diagnostic(message, name, 1, 1, label="syntax", found=found.what, hint=found.hint, code=found.code)
    )
