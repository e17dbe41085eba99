"""Message-level simulation of collective algorithms between hosts, with late hosts and shared links.

A host executes steps. In each it sends, waits for what it receives, and reduces it. A message passes through ports, one
message at a time each: the sender's, the up and down links of racks if these are shared, and the receiver's. Its head
moves on as soon as a port is free: an undisturbed message takes `Network.one`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.network import REDUCED_BYTE, Network, rounds
from shlo_jit import tuning


class Step(NamedTuple):
    """Concurrent actions of a host."""

    sends: Sequence[tuple[int, float]] = ()
    """Targets, and bytes."""
    sources: Sequence[int] = ()
    reduced: float = 0
    """Bytes that are added when all messages have arrived."""


Algorithm = Callable[[int, int, float], Sequence[Step]]
"""Function from a host, the number of hosts, and a number of bytes to the host's steps."""


@dataclass(frozen=True)
class Disturbance:
    """Deviations from uniform hosts and links."""

    late: Mapping[int, float] = field(default_factory=dict)
    """Seconds by which hosts start later."""
    slow: Mapping[int, float] = field(default_factory=dict)
    """Factors by which the ports of hosts are slower."""
    rack: int = 0
    """Hosts that share the link to all others; 0 where none do."""
    uplink: float = 1.0
    """Bandwidth of that link, relative to that of a host."""


class _Port:
    def __init__(self, overhead: float, byte: float) -> None:
        self.overhead, self.byte, self.free = overhead, byte, 0.0

    def take(self, now: float, nbytes: float) -> float:
        """Reserves the port; returns the time when the message begins to pass."""
        begun = max(now, self.free)
        self.free = begun + self.overhead + nbytes * self.byte
        return begun


class _Host:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps, self.at = steps, 0
        self.sent = 0.0
        """Time when everything that this step sends has left."""
        self.missing: Counter[int] = Counter()
        """Messages that this step waits for, by source."""
        self.early: Counter[int] = Counter()
        """Messages that arrived before their step."""
        self.is_waiting = False
        self.finished: float | None = None


class Simulation:
    """One run of an algorithm."""

    def __init__(self, net: Network, steps: Sequence[Sequence[Step]], uneven: Disturbance | None = None) -> None:
        self.net, self.uneven = net, uneven or Disturbance()
        self._hosts = [_Host(s) for s in steps]
        byte, slow = 1 / net.bandwidth, self.uneven.slow
        self._out, self._in = (
            [_Port(net.overhead, byte * slow.get(h, 1.0)) for h in range(len(steps))] for _ in range(2)
        )
        racks = -(-len(steps) // self.uneven.rack) if self.uneven.rack else 0
        self._up, self._down = ([_Port(0, byte / self.uneven.uplink) for _ in range(racks)] for _ in range(2))
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = itertools.count()

    def run(self) -> list[float]:
        """Returns the time when each host is done."""
        for h in range(len(self._hosts)):
            self._at(self.uneven.late.get(h, 0.0), self._begin, h)
        while self._events:
            now, _, what, arguments = heapq.heappop(self._events)
            what(now, *arguments)
        assert all(host.finished is not None for host in self._hosts), "hosts wait for messages that no host sends"
        return [host.finished or 0.0 for host in self._hosts]

    def _at(self, time: float, what: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (time, next(self._number), what, arguments))

    def _begin(self, now: float, h: int) -> None:
        host, port = self._hosts[h], self._out[h]
        if host.at == len(host.steps):
            host.finished = now
            return
        host.sent = now
        for target, nbytes in host.steps[host.at].sends:
            begun = port.take(now, nbytes)
            host.sent = port.free
            ports = [*self._links(h, target), self._in[target]]
            end = port.free + self.net.latency
            self._at(begun + self.net.overhead + self.net.latency, self._pass, h, target, nbytes, ports, end)
        host.missing = Counter(host.steps[host.at].sources) - host.early
        host.early -= Counter(host.steps[host.at].sources)
        host.is_waiting = True
        self._go_on(now, h)

    def _links(self, a: int, b: int) -> list[_Port]:
        if not self._up or a // self.uneven.rack == b // self.uneven.rack:
            return []
        return [self._up[a // self.uneven.rack], self._down[b // self.uneven.rack]]

    def _pass(self, now: float, source: int, target: int, nbytes: float, ports: list[_Port], end: float) -> None:
        """Handles the head of a message at the first of the ports; its end will be there at `end` or later."""
        begun = ports[0].take(now, nbytes)
        end = max(ports[0].free, end + ports[0].overhead)
        if len(ports) > 1:
            self._at(begun, self._pass, source, target, nbytes, ports[1:], end)
        else:
            self._at(end, self._deliver, source, target)

    def _deliver(self, now: float, source: int, target: int) -> None:
        host = self._hosts[target]
        if host.missing[source]:
            host.missing[source] -= 1
            if not host.missing[source]:
                del host.missing[source]
            self._go_on(now, target)
        else:
            host.early[source] += 1

    def _go_on(self, now: float, h: int) -> None:
        """Starts the next step when all messages of this one have arrived."""
        host = self._hosts[h]
        if host.missing or not host.is_waiting:
            return
        host.is_waiting = False
        reduced = host.steps[host.at].reduced * REDUCED_BYTE
        host.at += 1
        self._at(max(now, host.sent) + reduced, self._begin, h)


def simulate(net: Network, algorithm: Algorithm, hosts: int, nbytes: float, uneven: Disturbance | None = None) -> float:
    """Seconds until the last host is done."""
    return max(Simulation(net, [algorithm(h, hosts, nbytes) for h in range(hosts)], uneven).run())


# ---------------------------------------------------------------------- algorithms
def ring(h: int, n: int, s: float, reduces: bool = False) -> list[Step]:
    """Each host sends a part to the next one, then passes on the part that it received."""
    return [Step([((h + 1) % n, s / n)], [(h - 1) % n], s / n if reduces else 0)] * (n - 1)


def doubling(h: int, n: int, s: float) -> list[Step]:
    """Each host sends what it has to a partner at distance 1, 2, 4, ..."""
    return [Step([(h ^ (1 << k), s / n * (1 << k))], [h ^ (1 << k)]) for k in range(rounds(n))]


def halving(h: int, n: int, s: float) -> list[Step]:
    """Each host sends half of what is left to a partner, beginning with the most distant one."""
    parts = ((1 << k, s / n * (1 << k)) for k in reversed(range(rounds(n))))
    return [Step([(h ^ distance, nbytes)], [h ^ distance], nbytes) for distance, nbytes in parts]


def direct(h: int, n: int, s: float, reduces: bool = False) -> list[Step]:
    """Each host sends a part to every other host, beginning with the next one."""
    others = [(h + i) % n for i in range(1, n)]
    return [Step([(t, s / n) for t in others], others, s * (n - 1) / n if reduces else 0)]


def doubling_everything(h: int, n: int, s: float) -> list[Step]:
    """Each host exchanges everything with a partner, log N times."""
    return [Step([(h ^ (1 << k), s)], [h ^ (1 << k)], s) for k in range(rounds(n))]


def bruck(h: int, n: int, s: float) -> list[Step]:
    """Each host sends half of everything to the host at distance 1, 2, 4, ..."""
    return [Step([((h + (1 << k)) % n, s / 2)], [(h - (1 << k)) % n]) for k in range(rounds(n))]


def pairwise(h: int, n: int, s: float) -> list[Step]:
    """Each host sends a part to one other host after the other."""
    return [Step([((h + i) % n, s / n)], [(h - i) % n]) for i in range(1, n)]


def tree(h: int, n: int, s: float) -> list[Step]:
    """A binomial tree from host 0: in each round, hosts that have the data send it to distant hosts that do not."""
    low = h & -h if h else n
    received = [Step((), [h - low])] if h else []
    sends = [Step([(h + (1 << k), s)]) for k in reversed(range(rounds(low)))]
    return received + sends


def root_to_all(h: int, n: int, s: float) -> list[Step]:
    """Host 0 sends the data to one host after the other."""
    return [Step((), [0])] if h else [Step([(t, s) for t in range(1, n)])]


def ours(h: int, n: int, s: float, rotated: bool = False) -> list[Step]:
    """An all_reduce of transport="mpi": each host begins with host 0. `rotated`: with the next host."""
    others = [(h + i) % n for i in range(1, n)] if rotated else [t for t in range(n) if t != h]
    if s <= tuning.INLINE_MESSAGE_BYTES:
        return [Step([(t, s) for t in others], others, s * (n - 1))]
    parts = [message for t in others for message in ((t, 0.0), (t, s / n))]
    twice = [t for t in others for _ in range(2)]
    return [Step(parts, twice, s * (n - 1) / n), Step(parts, twice)]


SIMULATED: Mapping[str, Mapping[str, Algorithm]] = {
    "all_reduce": {
        "recursive doubling": doubling_everything,
        "halving and doubling": lambda h, n, s: halving(h, n, s) + doubling(h, n, s),
        "ring": lambda h, n, s: ring(h, n, s, True) + ring(h, n, s),
        "direct, in parts": lambda h, n, s: direct(h, n, s, True) + direct(h, n, s),
        "everyone to everyone": lambda h, n, s: direct(h, n, n * s, True),
    },
    "all_gather": {"recursive doubling": doubling, "ring": ring, "direct": direct},
    "reduce_scatter": {
        "recursive halving": halving,
        "ring": lambda h, n, s: ring(h, n, s, True),
        "direct": lambda h, n, s: direct(h, n, s, True),
    },
    "all_to_all": {"Bruck": bruck, "pairwise exchange": pairwise, "direct": direct},
    "broadcast": {"root to everyone": root_to_all, "tree": tree},
}
"""The simulated ones of `network.ALGORITHMS`."""
