"""Arguments that stay in the memory of the calling process, and ranks that read them there."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from collective_programs import Name, Writer, arguments_of_ranks, assert_same, meaning
from guarded import NONE, Pages, guarded, protect, read_only

import shlo_jit
from shlo_jit.codegen.program import Reader
from shlo_jit.errors import WorkerError
from shlo_jit.runtime import distributed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets processes read each other's memory")
GROUP = [[0, 1, 2]]
RING = [[0, 1], [1, 2], [2, 0]]
EXTENT = 30_003
"""Extent of a message that is not inline, and that no block of a reduction divides."""


def every_op(dtype: str) -> Writer:
    """Writes each op on a separate argument, and one argument that several ops read."""
    p = Writer()

    def x() -> Name:
        return p.argument((EXTENT,), dtype)

    p.give(p.all_gather(x(), 0, GROUP), *p.all_reduce([x(), x()], "add", GROUP), *p.all_to_all([x()], 0, 0, GROUP))
    p.give(p.reduce_scatter(x(), "add", 0, GROUP), *p.permute([x()], RING), *p.permute([x()], [[0, 0], [1, 2]]))
    p.give(*p.broadcast([x()], [[2, 0, 1]]), *p.reduce([x()], "add", [[1, 0, 2]]))
    shared = x()
    p.give(p.elementwise("negate", shared), p.all_gather(shared, 0, GROUP), *p.permute([shared], RING))
    table = p.argument((6, EXTENT // 3), dtype)
    p.give(p.all_gather(table, 1, GROUP), p.reduce_scatter(table, "add", 1, [[0], [1], [2]]))
    return p


@pytest.mark.parametrize("dtype", ["f32", "i8", "bf16", "c64", "i4", "i1"])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.sampled(4)
def test_all_ops_read_what_lies_against_inaccessible_pages(
    dtype: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not stays:  # as if the system did not permit it
        monkeypatch.setattr(distributed, "_not_shared", lambda team, rank: set())
    p = logical() if dtype == "i1" else every_op(dtype)
    given = arguments_of_ranks(3, 3, p.arguments)
    want = meaning(p.text(), given, 3, 1)
    with shlo_jit.compile(p.text(), num_replicas=3, time_out=20.0) as exe:
        for place in (guarded, read_only):
            for at_end in (False, True):
                assert_same(exe([tuple(place(x, at_end) for x in arrays) for arrays in given]), want)


def logical() -> Writer:
    p = Writer()
    x, y = (p.argument((EXTENT,), "i1") for _ in range(2))
    p.give(*p.all_reduce([x], "or", GROUP), *p.permute([y], RING), p.reduce_scatter(x, "and", 0, GROUP))
    return p


def test_who_reads_an_argument() -> None:
    p = Writer()
    readers = []

    def x(reader: Reader, shape: tuple[int, ...] = (EXTENT,)) -> Name:
        readers.append(reader)
        return p.argument(shape, "f32")

    p.give(p.all_gather(x(Reader.NOBODY), 0, GROUP), p.elementwise("negate", x(Reader.RANK)))
    both, given, unused = x(Reader.RANK), x(Reader.RANK), x(Reader.NOBODY)
    p.give(p.elementwise("negate", both), *p.permute([both], RING), *p.permute([given], RING), given)
    p.give(p.all_gather(x(Reader.OTHERS, (3, EXTENT)), 1, GROUP), p.all_gather(x(Reader.RANK, (3,)), 0, GROUP))
    (view,) = p.op("reshape", [x(Reader.NOBODY, (3, EXTENT))], [((3 * EXTENT,), "f32")], "")
    p.give(*p.permute([view], RING), *p.all_reduce([x(Reader.OTHERS)], "add", [[0, 1], [2]]))
    assert unused.shape == (EXTENT,)
    with shlo_jit.compile(p.text(), num_replicas=3) as exe:
        program = exe._team.crew.programs[0]
        assert list(program.readers) == readers
        arguments = arguments_of_ranks(0, 3, p.arguments)
        assert_same(exe(arguments), meaning(p.text(), arguments, 3, 1))


def test_programs_that_differ_fetch_nothing_from_each_other() -> None:
    """A rank may be unable to access arguments that another one leaves in the caller's memory."""
    first, second = Writer("first"), Writer("second")
    a, b = first.argument((EXTENT,), "f32"), second.argument((EXTENT,), "f32")
    first.give(*first.all_reduce([a], "add", [[0, 1]]))
    second.give(*second.all_reduce([second.elementwise("negate", b)], "add", [[0, 1]]))
    x, y = arguments_of_ranks(0, 2, [a])
    with shlo_jit.compile(first.text() + second.text(), programs=[["first"], ["second"]]) as exe:
        assert [program.readers for program in exe._team.crew.programs] == [(Reader.OTHERS,), (Reader.RANK,)]
        assert_same(exe([x, y]), [[x[0] - y[0]]] * 2)


def test_what_cannot_be_read_is_an_error_that_says_so() -> None:
    p = Writer()
    p.give(*p.permute([p.argument((EXTENT,), "f32")], [[1, 1]]))
    pages = Pages(4 * EXTENT)
    hidden = pages.view(0, 4 * EXTENT).view(np.float32)
    with shlo_jit.compile(p.text(), num_replicas=2, time_out=20.0) as exe:
        ones = np.ones(EXTENT, np.float32)
        assert_same(exe([(hidden,), (ones,)]), [[0 * ones], [ones]])  # no rank reads that of rank 0
        protect(pages.address, pages.nbytes, NONE)
        with pytest.raises(WorkerError, match="rank 1: .*read"):
            exe([(ones,), (hidden,)])
        with pytest.raises(shlo_jit.ExecutionError, match="could not read"):
            exe([(ones,), (ones,)])
