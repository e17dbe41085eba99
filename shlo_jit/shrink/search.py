"""The search: edits are tried in a fixed order, and the first that still fails is kept, independent of parallelism."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from shlo_jit.deep import deeply
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Module, walk
from shlo_jit.shrink.copies import clean, copied, entry_of, ops_of
from shlo_jit.shrink.edits import EDITS, Edit, NotApplicable, types_of
from shlo_jit.verify.verifier import verify_module

Fails = Callable[[str], bool]
"""Whether a program, given as text, still fails. Several threads call it."""


class Size(NamedTuple):
    """Size of a program, in lexicographic order: fewer ops, then fewer results, ..."""

    ops: int
    results: int
    states: int
    """Values that loops carry."""
    varied: int
    """Elements of constants that are not all equal."""
    elements: int
    """Elements of all values together."""
    extras: int
    """Number of attributes."""


class Progress(NamedTuple):
    """State of the search."""

    what: str
    """Kind of things that the search tries to remove."""
    tried: int
    """Number of programs that were run."""
    size: Size
    first: Size


def size_of(module: Module, entry: str) -> Size:
    ops = ops_of(module)
    tensors = [t for t in types_of(module) if t.is_static]
    constants = [op.attributes.get("value") for op in ops if op.name == "stablehlo.constant"]
    return Size(
        len(ops),
        len(entry_of(module, entry).block().terminator.operands),
        sum(len(op.operands) for op in ops if op.name == "stablehlo.while"),
        sum(c.array.size for c in constants if isinstance(c, Dense) and not c.is_splat),
        sum(t.size for t in tensors),
        sum(len(op.attributes) + (op.location is not None) for op in walk(module.body)) + len(module.op.attributes),
    )


class Search:
    """Makes a module smaller. The result depends on the module and on `fails`, but not on `jobs`."""

    def __init__(
        self,
        module: Module,
        entry: str,
        fails: Fails,
        jobs: int = 1,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`fails` must hold for the module.

        `on_progress` receives the progress, in this thread. `stop` ends running calls of `fails` when the search is
        interrupted.
        """
        self.entry, self.fails, self.jobs, self.on_progress, self.stop = entry, fails, jobs, on_progress, stop
        self.module = module
        self.size = self.first = size_of(module, entry)
        self.tried = 0
        self._seen = {_digest(str(module))}
        """Digests of programs that do not fail: none is run twice."""

    def run(self) -> Module:
        """Returns the smallest module that still fails and that edits can reach.

        `module` is set to it, and to the best so far if the search is interrupted.
        """
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                self._search(pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.stop()  # otherwise the pool waits for them
                raise
        return self.module

    def _search(self, pool: ThreadPoolExecutor) -> None:
        before = None
        while before != self.size:
            before = self.size
            for edits in EDITS:
                grain: int | None = 1 << 60
                while grain is not None:  # chunks that were too large before still are
                    left = (edit for edit in edits(self.module, self.entry) if edit.grain <= grain)
                    grain = self._improved(left, pool)

    def _improved(self, edits: Iterator[Edit], pool: ThreadPoolExecutor) -> int | None:
        """Applies the first edit that helps and returns its grain; None if there is no such edit."""
        candidates = self._candidates(edits)
        waiting: list[tuple[Edit, Module, Size, bytes, Future[bool]]] = []

        def start(count: int) -> None:
            for edit, module, size, text in islice(candidates, count):
                self.on_progress(Progress(edit.what, self.tried, self.size, self.first))
                waiting.append((edit, module, size, _digest(text), pool.submit(self.fails, text)))

        start(self.jobs)
        while waiting:
            edit, module, size, digest, future = waiting.pop(0)
            self.tried += 1
            if future.result():
                for *_, other in waiting:  # they edit the previous program, so their results are useless
                    other.cancel()
                self.module, self.size = module, size
                return edit.grain
            self._seen.add(digest)
            start(1)
        return None

    def _candidates(self, edits: Iterator[Edit]) -> Iterator[tuple[Edit, Module, Size, str]]:
        """Valid programs that are smaller, and have not been run before."""
        for edit in edits:
            made = edited(self.module, self.entry, edit)
            if made is None:
                continue
            size = size_of(made, self.entry)
            if size >= self.size or not is_valid(made):
                continue
            text = str(made)
            if _digest(text) not in self._seen:
                yield edit, made, size, text


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@paused_collector()
def edited(module: Module, entry: str, edit: Edit) -> Module | None:
    """Applies an edit to a copy; None if it does not apply."""
    made = copied(module)
    try:
        edit.apply(made)
    except NotApplicable:
        return None
    clean(made, entry)
    return made


@deeply
def is_valid(module: Module) -> bool:
    """Whether a module is valid. Custom calls are not checked."""
    return not verify_module(module, is_registered=lambda target: True)
