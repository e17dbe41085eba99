"""Random programs of collective ops, with elementwise ops between."""

from __future__ import annotations

import itertools
import math
import random

from collective_programs import CROSS_PARTITION, GLOBAL, Groups, Name, Writer

MOST_ELEMENTS = 60_000
WORDS = ["add", "maximum", "minimum"]


class RandomProgram:
    """`count` collective ops on replicas x partitions processes. All values are i32, whose sums are exact in any
    order."""

    def __init__(self, seed: int, count: int, replicas: int, partitions: int) -> None:
        self.rng = random.Random(seed)
        self.replicas, self.partitions = replicas, partitions
        self.writer = Writer()
        n = replicas * partitions
        shapes = [(n, 6), (2, n, 2), (self.rng.choice([1, 5, 700, 3000]),)]
        self.values = [self.writer.argument(s, "i32") for s in shapes]
        self.collectives = 0
        while self.collectives < count:
            self.step()
        self.writer.give(*self.values[-6:])

    def text(self) -> str:
        return self.writer.text()

    def step(self) -> None:
        x = self.rng.choice(self.values[-8:])
        if self.rng.random() < 0.3:
            y = self.rng.choice([v for v in self.values if v.shape == x.shape])
            name = self.rng.choice(["add", "subtract", "maximum", "xor"])
            self.values.append(self.writer.elementwise(name, x, y))
            return
        found = self.rng.choice([self.reduced, self.gathered, self.scattered, self.exchanged, self.rooted, self.moved])(
            x
        )
        self.values += [v for v in found if math.prod(v.shape) <= MOST_ELEMENTS]
        self.collectives += bool(found)

    def cut(self, count: int, *, uneven: bool = False, partial: bool = False) -> Groups:
        """Returns ids up to `count` in groups."""
        ids = self.rng.sample(range(count), count)
        if partial:
            ids = ids[: self.rng.randint(1, count)]
        if uneven:
            cuts = sorted({0, len(ids), self.rng.randint(0, len(ids))})
            return [ids[a:b] for a, b in itertools.pairwise(cuts)]
        size = self.rng.choice([n for n in range(1, len(ids) + 1) if len(ids) % n == 0])
        return [ids[i : i + size] for i in range(0, len(ids), size)]

    def shared(self, *, uneven: bool = False) -> tuple[Groups, str, int]:
        """Returns groups of an op that supports all strategies, the strategy's attributes, and the size of the first
        group."""
        more = self.rng.choice(["", CROSS_PARTITION, GLOBAL])
        groups = self.cut(self.replicas * (self.partitions if more == GLOBAL else 1), uneven=uneven)
        return groups, more, len(groups[0]) * (self.partitions if more == CROSS_PARTITION else 1)

    def crossing(self, *, partial: bool = False) -> tuple[Groups, str]:
        """Returns groups across replicas or partitions."""
        more = self.rng.choice(["", CROSS_PARTITION])
        return self.cut(self.partitions if more else self.replicas, partial=partial), more

    # ------------------------------------------------------------------ ops: their results, nothing if they don't fit
    def reduced(self, x: Name) -> list[Name]:
        groups, more, _ = self.shared(uneven=True)
        others = [v for v in self.values[-8:] if self.rng.random() < 0.2]
        return self.writer.all_reduce([x, *others], self.rng.choice(WORDS), groups, more)

    def gathered(self, x: Name) -> list[Name]:
        groups, more, size = self.shared()
        if math.prod(x.shape) * size > MOST_ELEMENTS:
            return []
        return [self.writer.all_gather(x, self.rng.randrange(len(x.shape)), groups, more, size)]

    def scattered(self, x: Name) -> list[Name]:
        groups, more, size = self.shared()
        dims = [d for d, n in enumerate(x.shape) if n % size == 0]
        if not dims:
            return []
        d = self.rng.choice(dims)
        return [self.writer.reduce_scatter(x, self.rng.choice(WORDS), d, groups, more, size)]

    def exchanged(self, x: Name) -> list[Name]:
        groups, more = self.crossing()
        dims = [d for d, n in enumerate(x.shape) if n % len(groups[0]) == 0]
        if not dims:
            return []
        concat = self.rng.randrange(len(x.shape))
        return self.writer.all_to_all([x], self.rng.choice(dims), concat, groups, more)

    def rooted(self, x: Name) -> list[Name]:
        groups, more = self.crossing(partial=True)
        if self.rng.random() < 0.5:
            return self.writer.broadcast([x], groups, more)
        if more:
            groups = self.cut(self.replicas, partial=True)
        return self.writer.reduce([x], self.rng.choice(WORDS), groups, more)

    def moved(self, x: Name) -> list[Name]:
        more = self.rng.choice(["", CROSS_PARTITION])
        count = self.partitions if more else self.replicas
        sources, targets = (self.rng.sample(range(count), count) for _ in range(2))
        pairs = list(zip(sources, targets, strict=True))[: self.rng.randint(0, count)]
        return self.writer.permute([x], pairs, more)
