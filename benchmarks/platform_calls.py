"""Costs of a call, and of moving arrays, on the platform `shlo` and on XLA:CPU, alternating in one process.

    python -m benchmarks.platform_calls [--rounds 15]

A row's time is the least mean of all rounds, which disturbances do not affect. Rounds of the two alternate. Needs jax.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

PLATFORMS = {"shlo_jit": "shlo", "XLA": "xla_cpu"}


def rows(device: Any) -> dict[str, tuple[Callable[[], Any], int]]:
    """The timed functions for a device, by name, and their number of calls per round."""
    import jax
    import numpy as np

    random = np.random.default_rng(0)
    small, large = (random.standard_normal(n).astype(np.float32) for n in ((16, 16), 4 << 20))

    def many(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(a + 1 for a in arrays)

    with jax.default_device(device):
        f, g = jax.jit(lambda a: a @ a + 1), jax.jit(many)
        x, xs = jax.device_put(small, device), [jax.device_put(small, device) for _ in range(20)]
        jax.block_until_ready((f(x), g(*xs)))
    return {
        "f(x), 16x16": (lambda: f(x), 2000),
        "f(x), waited for": (lambda: f(x).block_until_ready(), 2000),
        "np.asarray(f(x))": (lambda: np.asarray(f(x)), 2000),
        "20 arguments and results": (lambda: jax.block_until_ready(g(*xs)), 500),
        "device_put of 1 KiB": (lambda: jax.device_put(small, device), 500),
        "device_put of 16 MiB": (lambda: jax.device_put(large, device).block_until_ready(), 5),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    os.environ["JAX_PLATFORMS"] = ",".join(PLATFORMS.values())
    import jax

    timed = {peer: rows(jax.devices(platform)[0]) for peer, platform in PLATFORMS.items()}
    least: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for peer, cases in timed.items():
            for name, (run, count) in cases.items():
                begin = time.perf_counter()
                for _ in range(count):
                    run()
                took = (time.perf_counter() - begin) / count * 1e6
                least[name, peer] = min(took, least.get((name, peer), took))
    print(f"{'microseconds':26}{'ours':>10}{'XLA':>10}{'ours / XLA':>12}")
    for name in timed["XLA"]:
        ours, theirs = (least[name, peer] for peer in PLATFORMS)
        print(f"{name:26}{ours:10.2f}{theirs:10.2f}{ours / theirs:12.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
