"""Comparison of two pieces of code whose times alternate, on a machine that others use, too."""

from __future__ import annotations

import math
import statistics

LEAST_GAIN = 0.02
"""Smallest gain for which a schedule is changed, relative to the time before."""
LEAST_PAIRS = 10
"""Number of pairs from which on a difference counts as a gain."""
CERTAIN = 3.0
"""Number of standard errors by which a gain must exceed zero: one trial in a thousand wins by chance."""
NOISE = 0.01
"""Difference that counts as none, if it is not certain."""
HOPELESS = math.log(1.1)
"""If the first few pairs are all slower by that much, there is no need for more of them."""


class Comparison:
    """Pairs of times, before and after a change. Each pair was measured one directly after the other, so that whatever
    else the machine does affects both alike."""

    def __init__(self) -> None:
        self.before: list[float] = []
        self.after: list[float] = []
        self._ratios: list[float] = []
        """Logarithms of after / before."""

    def add(self, before: float, after: float) -> None:
        """Adds a pair of times in seconds. A time that is too short for the clock counts as one nanosecond."""
        before, after = max(before, 1e-9), max(after, 1e-9)
        self.before.append(before)
        self.after.append(after)
        self._ratios.append(math.log(after / before))

    @property
    def difference(self) -> float:
        """Median of the logarithms of the ratios: below zero if the change is faster."""
        return statistics.median(self._ratios)

    @property
    def ratio(self) -> float:
        """Median of the time before, divided by the time after: 2.0 means half of the time."""
        return math.exp(-self.difference)

    @property
    def error(self) -> float:
        """Standard error of `difference`, from the median absolute deviation, which outliers do not affect."""
        middle = self.difference
        deviation = statistics.median(abs(ratio - middle) for ratio in self._ratios)
        return 1.2533 * 1.4826 * deviation / math.sqrt(len(self._ratios))

    @property
    def wins(self) -> bool:
        """Whether the change is faster, by more than the noise."""
        if len(self._ratios) < LEAST_PAIRS:
            return False
        return self.difference < min(math.log1p(-LEAST_GAIN), -CERTAIN * self.error)

    @property
    def loses(self) -> bool:
        """Whether the change gains too little to win, or nothing: more pairs would hardly make it win."""
        if len(self._ratios) < 3:
            return False
        if min(self._ratios) > HOPELESS:
            return True
        return len(self._ratios) >= LEAST_PAIRS // 2 and self.difference - 2 * self.error > math.log1p(-LEAST_GAIN)

    @property
    def is_slower(self) -> bool:
        """Whether the change is slower, by more than the noise."""
        return self.difference > max(NOISE, 2 * self.error)

    @property
    def is_faster(self) -> bool:
        """Whether the change is faster at all: enough for one that has won before."""
        return self.difference < 0
