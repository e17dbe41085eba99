"""A model of what collective ops take within one machine, fitted to what `benchmarks.collectives` has measured.

    seconds = rounds * round + messages * message + bytes moved / bandwidth + bytes reduced / rate

What is counted follows from what programs do (`schedule/collective.py`): `usage` says how often a rank waits for
others, how many it tells, and how many bytes it reads and writes. The prices are fitted, for each transport.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.collectives import Point, elements
from shlo_jit import tuning
from shlo_jit.schedule.scratch import ALIGN

NEAR_BYTES, FAR_BYTES = 1 << 20, 32 << 20
"""Bytes of the buffers of a CPU's ranks that are taken to be in its own cache, and in that of all. Chosen for a second
level of 2 MiB, half of which others need, and a third that is shared with strangers."""
DISTURBED = 0.5
"""Logarithm of the ratio from which on a point is taken to be disturbed: another program had a CPU all the time."""
PRICES = ("round", "crowded round", "message", "near byte", "far byte", "memory byte", "reduced byte")
"""A round of ranks that have a CPU each, or of more; bytes in a CPU's cache, in that of all, or in memory."""


class Usage(NamedTuple):
    """What a rank does for one op."""

    rounds: int
    """How often it waits for others."""
    messages: int
    """Ranks that it tells something."""
    moved: float
    """Bytes that it reads and writes."""
    reduced: float
    """Bytes that it adds to others."""


def usage(op: str, ranks: int, nbytes: int, transport: str, inline_bytes: int = tuning.INLINE_MESSAGE_BYTES) -> Usage:
    """Of an op among ranks, where the larger buffer has so many bytes, and of what the benchmark's program does around
    it."""
    operand = 4 * elements(op, ranks, nbytes)
    inline = -(-operand // ALIGN) * ALIGN <= inline_bytes
    posted = 2 * operand if inline else 0
    part, others = operand / ranks, ranks - 1
    rounds, messages = (1, others) if inline else (2, 2 * others)
    if op == "all_reduce" and inline:
        return Usage(rounds, messages, posted + (ranks + 1) * operand, others * operand)
    if op == "all_reduce":
        twice = 2 if transport == "mpi" else 1
        return Usage(twice * rounds, twice * messages, 2 * operand, others * part)
    if op == "all_gather":
        return Usage(rounds, messages, posted + 2 * ranks * operand + 2 * operand, 0)
    if op == "reduce_scatter":
        return Usage(rounds, messages, posted + operand + part + 2 * part, others * part)
    if op == "collective_broadcast" and inline:  # nobody waits for who reads
        return Usage(0, others, posted + 2 * operand, 0)
    if op in ("collective_permute", "collective_broadcast"):
        return Usage(rounds, 1 if op == "collective_permute" else messages, posted + 2 * operand, 0)
    return Usage(rounds, messages, posted + 2 * operand, 0)


def counts(used: Usage, ranks: int, nbytes: int, cpus: int) -> list[float]:
    """How often each of PRICES is paid. Where there are more ranks than CPUs, these take turns."""
    turns = max(1.0, ranks / cpus)
    rounds = (used.rounds, 0) if ranks <= cpus else (0, used.rounds * turns)
    together = 2 * nbytes * turns
    near, cached = (min(1.0, nbytes / together) for nbytes in (NEAR_BYTES, FAR_BYTES))
    moved = (used.moved * turns * share for share in (near, cached - near, 1 - cached))
    return [*rounds, used.messages * turns, *moved, used.reduced * turns]


class Fit(NamedTuple):
    """Seconds of each of PRICES; zero for those that nothing was measured of."""

    prices: np.ndarray
    cpus: int
    transport: str

    def seconds(self, op: str, ranks: int, nbytes: int, inline_bytes: int = tuning.INLINE_MESSAGE_BYTES) -> float:
        used = usage(op, ranks, nbytes, self.transport, inline_bytes)
        return float(np.dot(counts(used, ranks, nbytes, self.cpus), self.prices))


def solve(rows: np.ndarray, seconds: np.ndarray, turns: int = 200) -> np.ndarray:
    """Prices, none below zero, of which `rows @ prices` is nearest to `seconds`, by the squares of the logarithms of
    the ratios; beyond DISTURBED they count as they are, not squared. By Levenberg and Marquardt's way, over the
    logarithms of the prices."""
    used = np.array([bool(column.any()) for column in rows.T])
    rows = rows[:, used]
    # Each price alone for everything is too much, and so the start is a fraction of it.
    x = np.array([np.median(np.log(seconds[c > 0] / c[c > 0])) for c in rows.T]) - math.log(rows.shape[1])
    damping = 1e-2

    def off(x: np.ndarray) -> np.ndarray:
        return np.log(rows @ np.exp(x)) - np.log(seconds)

    e = off(x)
    for _ in range(turns):
        slope = rows * np.exp(x) / (rows @ np.exp(x))[:, None]
        weights = DISTURBED / np.maximum(DISTURBED, np.abs(e))
        square = slope.T @ (weights[:, None] * slope)
        step = np.linalg.solve(square + damping * np.eye(len(x)), -slope.T @ (weights * e))
        tried = np.clip(x + step, -40, 10)
        new = off(tried)
        if _loss(new) < _loss(e):
            x, e, damping = tried, new, max(damping / 3, 1e-9)
        else:
            damping = min(damping * 4, 1e6)
    found = np.zeros(len(used))
    found[used] = np.exp(x)
    return found


def _loss(e: np.ndarray) -> float:
    size = np.abs(e)
    return float(np.where(size < DISTURBED, e * e, DISTURBED * (2 * size - DISTURBED)).sum())


def fit(points: Sequence[Point], transport: str, cpus: int) -> Fit:
    """Prices for in-loop times of a transport. Points whose difference was lost in noise (0 s) say nothing."""
    mine = [p for p in points if p.transport == transport and p.loop > 0]
    rows = [counts(usage(p.op, p.ranks, p.nbytes, transport), p.ranks, p.nbytes, cpus) for p in mine]
    return Fit(solve(np.array(rows), np.array([p.loop for p in mine])), cpus, transport)


def errors(found: Fit, points: Sequence[Point]) -> np.ndarray:
    """By which factor each point of the transport is off, 1 or more."""
    mine = [p for p in points if p.transport == found.transport and p.loop > 0]
    return np.exp([abs(math.log(found.seconds(p.op, p.ranks, p.nbytes) / p.loop)) for p in mine])
