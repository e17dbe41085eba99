"""The limits of this machine, measured for longer than `shlo-jit profile --html` does, and its use by other programs.

python -m benchmarks.deployed.machine
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from shlo_jit.runtime import limits

EFFORT = limits.Effort(tuple(1 << k for k in range(17, 30)), 0.004, 60)


def measure(threads: int) -> dict[str, Any]:
    """`peaks` and `reads` as in `limits.Limits`."""
    return _plain(limits.measure(threads, EFFORT))


def better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The higher figures of two measurements."""
    return _plain(limits.better(limits.Limits(**one), limits.Limits(**other)))


def busy(seconds: float = 3.0) -> float:
    """Average number of CPUs that other programs use while this one is idle; 0 if the kernel does not report it.

    This is not the load average, which would include our own measurements of the last minutes.
    """
    try:
        idle, total = _times()
        time.sleep(seconds)
        later_idle, later_total = _times()
    except OSError:
        return 0.0
    share = 1 - (later_idle - idle) / max(later_total - total, 1)
    return max(0.0, share) * (os.cpu_count() or 1)


def _times() -> tuple[int, int]:
    """Ticks that all CPUs were idle, and all ticks, since boot."""
    ticks = [*map(int, Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9])]
    return ticks[3] + ticks[4], sum(ticks)


def _plain(found: limits.Limits) -> dict[str, Any]:
    return {"threads": found.threads, "peaks": dict(found.peaks), "reads": [*map(list, found.reads)]}


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.deployed.machine", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    print(json.dumps(measure(parser.parse_args().threads), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
