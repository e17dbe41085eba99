"""Checks of refused programs: the exception's kind, the label of its first diagnostic, and its location."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shlo_jit import StableHLOError


@contextmanager
def refused(
    kind: type[StableHLOError], label: str | tuple[str, ...], place: tuple[int, int] | None = None, shows: str = ""
) -> Iterator[pytest.ExceptionInfo[StableHLOError]]:
    """Checks that the block raises this exception.

    `label`: the label, or several of which one must occur. `place`: line and column. `shows`: a name or number in the
    message.
    """
    with pytest.raises(kind) as caught:
        yield caught
    first = caught.value.diagnostics[0]
    assert first.label in ((label,) if isinstance(label, str) else label), first
    assert place is None or (first.line, first.column) == place, first
    assert shows in first.message, first
