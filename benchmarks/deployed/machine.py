"""The limits of this machine, measured for longer than `shlo-jit profile --html` does.

python -m benchmarks.deployed.machine
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from shlo_jit.runtime import limits

EFFORT = limits.Effort(tuple(1 << k for k in range(17, 30)), 0.004, 60)


def measure(threads: int) -> dict[str, Any]:
    """`peaks` and `reads` as of `limits.Limits`."""
    return _plain(limits.measure(threads, EFFORT))


def better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The higher figures of two measurements."""
    return _plain(limits.better(limits.Limits(**one), limits.Limits(**other)))


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
