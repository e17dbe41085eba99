"""A cost model of collective ops within one machine, fitted to the measurements of `benchmarks.collectives`.

    seconds = rounds * round + messages * message + bytes moved / bandwidth + bytes reduced / rate

The counts follow from the implementation (`schedule/collective.py`): `usage` returns how often a rank waits for others,
how many ranks it notifies, and how many bytes it reads and writes. The prices are fitted for each transport.
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
"""Maximum bytes of the buffers of a CPU's ranks that are assumed to be in its own cache, and in the shared cache.

Chosen for a second level of 2 MiB, half of which others need, and a third that is shared with other programs.
"""
DISTURBED = 0.5
"""Logarithm of the ratio from which a point is assumed to be disturbed: another program had a CPU all the time."""
PRICES = ("round", "crowded round", "message", "near byte", "far byte", "memory byte", "reduced byte")
"""Unit prices: a round of ranks with a CPU each, or with fewer CPUs; bytes in a CPU's cache, in the shared cache, or in
memory."""


class Usage(NamedTuple):
    """Counts of a rank for one op."""

    rounds: int
    """Number of times it waits for others."""
    messages: int
    """Number of ranks that it notifies."""
    moved: float
    """Bytes that it reads and writes."""
    reduced: float
    """Bytes that it adds to others."""


def usage(op: str, ranks: int, nbytes: int, transport: str, inline_bytes: int = tuning.INLINE_MESSAGE_BYTES) -> Usage:
    """Counts of an op among ranks, where `nbytes` is the size of the larger buffer, including the benchmark's loop
    around it."""
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
    if op == "collective_broadcast" and inline:  # no rank waits for the readers
        return Usage(0, others, posted + 2 * operand, 0)
    if op in ("collective_permute", "collective_broadcast"):
        return Usage(rounds, 1 if op == "collective_permute" else messages, posted + 2 * operand, 0)
    return Usage(rounds, messages, posted + 2 * operand, 0)


def counts(used: Usage, ranks: int, nbytes: int, cpus: int) -> list[float]:
    """Number of times that each of PRICES is paid. If there are more ranks than CPUs, ranks run in turn."""
    turns = max(1.0, ranks / cpus)
    rounds = (used.rounds, 0) if ranks <= cpus else (0, used.rounds * turns)
    together = 2 * nbytes * turns
    near, cached = (min(1.0, nbytes / together) for nbytes in (NEAR_BYTES, FAR_BYTES))
    moved = (used.moved * turns * share for share in (near, cached - near, 1 - cached))
    return [*rounds, used.messages * turns, *moved, used.reduced * turns]


class Fit(NamedTuple):
    """Seconds of each of PRICES; zero for those without measurements."""

    prices: np.ndarray
    cpus: int
    transport: str

    def seconds(self, op: str, ranks: int, nbytes: int, inline_bytes: int = tuning.INLINE_MESSAGE_BYTES) -> float:
        used = usage(op, ranks, nbytes, self.transport, inline_bytes)
        return float(np.dot(counts(used, ranks, nbytes, self.cpus), self.prices))


def solve(rows: np.ndarray, seconds: np.ndarray, iterations: int = 200) -> np.ndarray:
    """Fits prices, none negative, so that `rows @ prices` is close to `seconds`.

    The loss is the sum of the squared logarithms of the ratios, but linear beyond DISTURBED. The method is
    Levenberg-Marquardt over the logarithms of the prices.
    """
    used = np.array([bool(column.any()) for column in rows.T])
    rows = rows[:, used]
    # Each price alone explains all of the time, which is too much, so the start is a fraction of it.
    x = np.array([np.median(np.log(seconds[c > 0] / c[c > 0])) for c in rows.T]) - math.log(rows.shape[1])
    damping = 1e-2

    def off(x: np.ndarray) -> np.ndarray:
        return np.log(rows @ np.exp(x)) - np.log(seconds)

    e = off(x)
    for _ in range(iterations):
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
    """Fits prices for in-loop times of a transport. Points whose difference was lost in noise (0 s) are ignored."""
    mine = [p for p in points if p.transport == transport and p.loop > 0]
    rows = [counts(usage(p.op, p.ranks, p.nbytes, transport), p.ranks, p.nbytes, cpus) for p in mine]
    return Fit(solve(np.array(rows), np.array([p.loop for p in mine])), cpus, transport)


def errors(found: Fit, points: Sequence[Point]) -> np.ndarray:
    """Factor by which each point of the transport differs from the model, at least 1."""
    mine = [p for p in points if p.transport == found.transport and p.loop > 0]
    return np.exp([abs(math.log(found.seconds(p.op, p.ranks, p.nbytes) / p.loop)) for p in mine])
