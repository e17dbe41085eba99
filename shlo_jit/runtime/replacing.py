"""Files that are written beside their places, and are there once they are whole."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path of a file to write, which takes the place of `path` once it is whole. Raises OSError at once where
    nothing can be written there, or what is there is no regular file."""
    with _folder_beside(path) as folder:
        made = Path(folder) / path.name
        yield made
        made.replace(path)


def check_replaceable(path: Path) -> None:
    """Raise OSError where `replacing` would at once."""
    _folder_beside(path).cleanup()


def _folder_beside(path: Path) -> tempfile.TemporaryDirectory[str]:
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, f"{path.name} is no regular file", str(path))
    try:
        return tempfile.TemporaryDirectory(dir=path.parent, prefix=".shlo_jit-")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
