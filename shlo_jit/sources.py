"""Conversion of program arguments (a text, a file, bytes or a Module) to a text, portable artifact or Module.

Other formats (HLO, an archive) are recognized and refused with advice.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from io import FileIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shlo_jit.errors import Diagnostic, ParseError, UsageTypeError, check_text, decode_text
from shlo_jit.foreign_files import EMPTY, GLANCE, Foreign, foreign_bytes, foreign_text, object_hint
from shlo_jit.runtime import known_files
from shlo_jit.runtime.cache import ObjectCache, default_cache
from shlo_jit.runtime.constants import bring
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.text.literals import (
    Characters,
    Cut,
    Found,
    Literal,
    characters,
    characters_of_file,
    cut_bytes,
    cut_string,
    identity,
)

if TYPE_CHECKING:
    from shlo_jit.bytecode.long_literals import Read
    from shlo_jit.bytecode.stream import Bytes
    from shlo_jit.ir.core import Module
    from shlo_jit.text.literals import Decode

LONGEST_PATH = 4096
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NAME = r"[^\n{}()%@\"=<>#]*"
PATH = re.compile(rf"(?!\s*(//|func\.func\b|builtin\.module\b)){_NAME}(/{_NAME}|\.[A-Za-z]\w{{0,9}})")
"""A slash or a suffix, and nothing that every program contains or that a program starts with."""
PIPE_WAIT = 10.0
"""Seconds to wait for a writer of a named pipe."""


class Text(NamedTuple):
    """A program that has not been parsed, and its name."""

    text: str
    name: str
    cuts: tuple[Cut, ...] = ()
    """Long literals, which are cut out of the text."""


class Artifact(NamedTuple):
    """A program in bytecode that has not been read, and its name."""

    data: Bytes
    name: str
    literals: Mapping[int, Literal]
    """Long literals, by the offset of their bytes, which are cut out of the data."""
    rest: bytes
    """The data without them."""


Check: TypeAlias = Callable[[], None]
"""Raises OSError if data that a program was made of has changed."""


def unchecked() -> None:
    """Checks nothing: the data of most programs cannot change."""


class Derived(NamedTuple):
    """A program that is derived from another one on demand."""

    name: str
    identity: Callable[[], bytes]
    """Identifies the program: a digest of its origin and of its derivation."""
    make: Callable[[], Module]
    literals: Sequence[Literal] = ()
    """Long literals of the text of its origin."""
    check: Check = unchecked


Given: TypeAlias = "Text | Artifact | Module"
ProgramSource: TypeAlias = "Given | Derived"


def read_source(source: object, known: bool = False) -> Given:
    """Reads the text or artifact of a program; a Module is returned unchanged.

    `source`: a text, a path, or bytes, whose first bytes determine the format, or an object of JAX that has a text.
    `known`: whether the object cache may know the text of a file.

    Raises OSError for a file that cannot be read, ParseError for data that is not a text or is in another language, and
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
    if isinstance(artifact, bytes):  # the bytes of a jax.export.Exported; its own reader trusts its input
        return _read(artifact, f"<{type(source).__name__}>")
    text = _own_text(source)
    if text is not None:
        return _text(text, f"<{type(source).__name__}>")
    expected = "expected StableHLO text, a path, bytes, a Module, or an object with mlir_module() or as_text()"
    hint = object_hint(source)
    raise UsageTypeError(f"{expected}, got {type(source).__name__}", code="argument.program", hint=hint)


def with_own_weights(source: object, constants: Any) -> tuple[object, Any]:
    """Replaces an ExportedProgram of PyTorch by its Module, and adds its weights to the constants."""
    if not type(source).__module__.startswith("torch.export"):
        return source, constants
    module, weights = import_module("shlo_jit.torch.exported").with_weights(source)
    return module, {**weights, **(constants or {})}


def _own_text(source: object) -> str | None:
    """Result of `mlir_module()` or `as_text()` (of a `jax.stages.Lowered`), with locations if possible: they have the
    arguments' names."""
    if isinstance(source, type):
        return None
    method = getattr(source, "mlir_module", None)
    if callable(method):
        text = method()
    elif callable(method := getattr(source, "as_text", None)):
        try:
            text = method(debug_info=True)
        except TypeError:  # it has no such option
            text = method()
    else:
        return None
    return text if isinstance(text, str) else None


def _is_path(text: str) -> bool:
    """Whether the text is the path of an existing file, or looks like one, such as `modle.mlir`."""
    if not text or len(text) > LONGEST_PATH or "\n" in text:
        return False
    return os.path.exists(text) or PATH.fullmatch(text) is not None


# ---------------------------------------------------------------------- files
def read_file(name: str) -> bytes:
    """Reads the bytes of a file or pipe. Raises OSError, also for a device, which may have no end."""
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
        raise OSError(errno.EINVAL, "expected a file or a pipe, got a device", name)
    return file.readall()


def _read_path(name: str, known: bool) -> Text | Artifact:
    """Reads the program in a file. Long literals of a text are never held in memory."""
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
    """The artifact in a file. Its long literals are read from the file on demand."""
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
    """The artifact in some bytes, and its start and end there."""
    from shlo_jit.bytecode.inspect_bytes import artifact_in

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
    given = characters_of_file(file.fileno(), status.st_size, name, _fast_decoder)
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


def _known_cut(again: Callable[[int, int], Found], at: int, start: int, digest: str, nbytes: int) -> Cut:
    return Cut(at, Literal(None, digest, nbytes, partial(again, start, start + 2 * nbytes)), start)


def _first_of_pipe(descriptor: int, name: str) -> bytes:
    """Current contents of a pipe; empty if the writer has not written yet. A named pipe without a writer does not
    block."""
    end = time.monotonic() + PIPE_WAIT
    while time.monotonic() < end:
        try:
            found = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return b""
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError(errno.ETIMEDOUT, f"no data arrived in the pipe for {PIPE_WAIT:g} s", name)


# ---------------------------------------------------------------------- bytes and texts
def _read(data: bytes, name: str) -> Text | Artifact:
    found = _artifact(lambda a, b: data[a:b], len(data), name, lambda a, b: data[a:b])
    return _text_of(characters(data), name) if found is None else found[0]


def _text_of(given: Characters, name: str) -> Text:
    """Decodes a text. Raises ParseError for data that is not a text, or not UTF-8."""
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
        decode_text(given.read(0, given.size), name)  # raises with the location
        raise
    marks = len(text) - len(text := text.removeprefix("\ufeff"))
    bring(c.literal for c in cuts)
    return Text(_checked(text, name), name, tuple(c._replace(at=c.at - marks) for c in cuts))


def _text(text: str, name: str) -> Text:
    """Checks a text. Raises ParseError for an unpaired surrogate."""
    left, cuts = cut_string(check_text(text, name), usable_cpus(), _fast_decoder)
    bring(c.literal for c in cuts)
    return Text(_checked(left, name), name, cuts)


def _fast_decoder() -> Decode:
    """Same as `text.literals.Fast`."""
    from shlo_jit.runtime.hexadecimal import decoder

    return decoder()


def content(source: Given) -> str | bytes:
    """Key data of a program in the object cache."""
    if isinstance(source, Text):
        return identity(source.text, source.cuts)
    if isinstance(source, Artifact):
        return source.rest + "".join(f" {at} {literal.digest}" for at, literal in source.literals.items()).encode()
    return str(source)


def may_be_unknown(source: Given) -> bool:
    """Whether the shape of a value may be unknown, according to a quick test."""
    if isinstance(source, Text):  # the letters may also occur in a string
        return "?" in source.text or "tensor<*" in source.text
    if isinstance(source, Artifact):
        from shlo_jit.bytecode.inspect_bytes import artifact_may_be_dynamic

        return artifact_may_be_dynamic(source.data, source.rest)
    from shlo_jit.ir.dynamic_values import has_dynamic_shapes

    return has_dynamic_shapes(source)


def _checked(text: str, name: str) -> str:
    """Returns the text, unless it starts like one of another language."""
    found = foreign_text(text)
    if found is not None:
        raise _refused(found, name)
    return text


def _refused(found: Foreign, name: str) -> ParseError:
    message = f"this is {found.what}"
    return ParseError(
        Diagnostic(message, name, 1, 1, label="syntax", found=found.what, hint=found.hint, code=found.code)
    )
