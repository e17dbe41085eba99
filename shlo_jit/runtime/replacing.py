"""Files that are written next to their destination, and moved there once they are complete."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields the path of a file to write, which replaces `path` once it is complete. Raises OSError immediately if
    nothing can be written there, or if `path` exists and is not a regular file."""
    with _folder_beside(path) as folder:
        made = Path(folder) / path.name
        yield made
        made.replace(path)


def check_replaceable(path: Path) -> None:
    """Raises the OSError that `replacing` would raise immediately."""
    _folder_beside(path).cleanup()


def _folder_beside(path: Path) -> tempfile.TemporaryDirectory[str]:
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, f"{path.name} is not a regular file", str(path))
    try:
        return tempfile.TemporaryDirectory(dir=path.parent, prefix=".shlo_jit-")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
