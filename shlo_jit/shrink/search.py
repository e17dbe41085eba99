"""The search: edits are tried in one order, and the first that still fails is kept, however many are tried at once."""

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
"""Whether a program, a text, still fails. It is called by several threads."""


class Size(NamedTuple):
    """How large a program is. The order is what a smaller program is: fewer ops, then fewer results, ..."""

    ops: int
    results: int
    states: int
    """Values that loops carry."""
    varied: int
    """Elements of constants that are not all the same."""
    elements: int
    """Of all values together."""
    extras: int
    """Attributes."""


class Progress(NamedTuple):
    """Where the search is."""

    what: str
    """That is being tried to be without."""
    tried: int
    """Programs that were run."""
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
    """Makes a module smaller. What it finds depends on the module and on what fails, not on `jobs`."""

    def __init__(
        self,
        module: Module,
        entry: str,
        fails: Fails,
        jobs: int = 1,
        tell: Callable[[Progress], None] = lambda progress: None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`fails` must be so of the module; `tell` hears how it goes, in this thread; `stop` ends the runs of `fails`
        that are under way, when the search is interrupted."""
        self.entry, self.fails, self.jobs, self.tell, self.stop = entry, fails, jobs, tell, stop
        self.module = module
        self.size = self.first = size_of(module, entry)
        self.tried = 0
        self._seen = {_digest(str(module))}
        """Programs that do not fail, by digest: none is run twice."""

    def run(self) -> Module:
        """The smallest module that still fails, as far as edits go; that is `module` then, and the best so far when
        this is interrupted."""
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                self._search(pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.stop()  # or the pool waits for them
                raise
        return self.module

    def _search(self, pool: ThreadPoolExecutor) -> None:
        before = None
        while before != self.size:
            before = self.size
            for edits in EDITS:
                grain: int | None = 1 << 60
                while grain is not None:  # where many at once were too many before, they still are
                    left = (edit for edit in edits(self.module, self.entry) if edit.grain <= grain)
                    grain = self._improved(left, pool)

    def _improved(self, edits: Iterator[Edit], pool: ThreadPoolExecutor) -> int | None:
        """Make the first edit that helps; its grain. None where there is no such edit."""
        candidates = self._candidates(edits)
        waiting: list[tuple[Edit, Module, Size, bytes, Future[bool]]] = []

        def start(count: int) -> None:
            for edit, module, size, text in islice(candidates, count):
                self.tell(Progress(edit.what, self.tried, self.size, self.first))
                waiting.append((edit, module, size, _digest(text), pool.submit(self.fails, text)))

        start(self.jobs)
        while waiting:
            edit, module, size, digest, future = waiting.pop(0)
            self.tried += 1
            if future.result():
                for *_, other in waiting:  # they are of the program before; what they say is of no use
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
    """A copy with an edit made; None where there is no place for it."""
    made = copied(module)
    try:
        edit.apply(made)
    except NotApplicable:
        return None
    clean(made, entry)
    return made


@deeply
def is_valid(module: Module) -> bool:
    """Custom calls may be anything."""
    return not verify_module(module, is_registered=lambda target: True)
