"""Training loops of Flax on the platform `shlo` and on XLA:CPU, alternating in one process.

    python -m benchmarks.flax_training                      every model, 200 steps
    python -m benchmarks.flax_training --only mlp,cnn --steps 50

Both start from the same state and see the same batches. They alternate by blocks of steps, so that a disturbance
affects both. A step's time is the median of its blocks, or that of the fastest one. Compilation is timed with an empty
object cache.

Losses are compared step by step. Training amplifies rounding with every step, so for comparison XLA also trains from
weights that are one unit in the last place larger. Exit status 1 if the losses of the first EARLY steps differ by more
than LIMIT, or a model is slower than with XLA. Needs flax and optax.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

OURS, XLA = "shlo_jit", "XLA"
PLATFORMS = {OURS: "shlo", XLA: "xla_cpu"}
EARLY, LIMIT = 20, 1e-4
"""Number of early steps, and maximum relative difference of their losses."""
BLOCK = 10
"""Steps of a block."""


class Result(NamedTuple):
    """Measurements of one model, by peer."""

    blocks: dict[str, list[float]]
    """Seconds per step in each block."""
    compile: dict[str, float]
    """Seconds of compilation."""
    losses: dict[str, list[float]]
    moved: list[float]
    """XLA's losses from weights that are slightly larger."""

    def median(self, peer: str) -> float:
        return statistics.median(self.blocks[peer])

    def least(self, peer: str) -> float:
        return min(self.blocks[peer])

    @property
    def ratio(self) -> float:
        """XLA's time relative to ours."""
        return self.median(XLA) / self.median(OURS)

    @property
    def early(self) -> float:
        """Difference of losses before training has amplified it."""
        return difference(self.losses[OURS][:EARLY], self.losses[XLA][:EARLY])


def difference(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference of a step."""
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(found, expected, strict=True))


class Loop:
    """A training on one platform and its current state."""

    def __init__(self, training: Any, platform: str, change: Callable[[Any], Any]) -> None:
        """`change`: applied to each array of the initial state."""
        import jax

        self.state = jax.device_put(jax.tree.map(change, training.state), jax.devices(platform)[0])
        self.step: Any = jax.jit(training.step, donate_argnums=0)
        self.losses: list[Any] = []

    def compile(self, batch: Any) -> float:
        """Seconds from the lowered program to a callable one."""
        lowered = self.step.lower(self.state, batch)
        start = time.perf_counter()
        self.step = lowered.compile()
        return time.perf_counter() - start

    def run(self, batches: Sequence[Any]) -> float:
        """Runs steps; returns seconds per step."""
        import jax

        start = time.perf_counter()
        for batch in batches:
            self.state, loss = self.step(self.state, batch)
            self.losses.append(loss)
        jax.block_until_ready(self.state)
        return (time.perf_counter() - start) / len(batches)


def one_unit_larger(x: Any) -> Any:
    import numpy as np

    x = np.array(x)
    return np.nextafter(x, np.inf, dtype=x.dtype) if x.dtype.kind == "f" else x


def measure(name: str, steps: int) -> Result:
    import numpy as np

    from benchmarks.flax_models import MODELS

    training = MODELS[name]()
    random = np.random.default_rng(0)
    batches = [training.batch(random) for _ in range(steps)]
    loops = {peer: Loop(training, platform, np.array) for peer, platform in PLATFORMS.items()}
    compile_seconds = {peer: loop.compile(batches[0]) for peer, loop in loops.items()}
    blocks: dict[str, list[float]] = {peer: [] for peer in loops}
    order = list(loops)
    for first in range(0, steps, BLOCK):
        for peer in order:
            blocks[peer].append(loops[peer].run(batches[first : first + BLOCK]))
        order.reverse()
    moved = Loop(training, PLATFORMS[XLA], one_unit_larger)
    moved.run(batches)
    losses = {peer: [float(x) for x in loop.losses] for peer, loop in loops.items()}
    return Result(blocks, compile_seconds, losses, [float(x) for x in moved.losses])


def line(name: str, found: Result) -> str:
    cells = [f"{1e3 * found.median(peer):.2f}" for peer in (OURS, XLA)]
    cells += [f"{found.ratio:.2f}", f"{found.least(XLA) / found.least(OURS):.2f}"]
    cells += [f"{found.compile[peer]:.2f}" for peer in (OURS, XLA)]
    theirs = found.losses[XLA]
    cells += [f"{found.losses[OURS][-1]:.4f}", f"{theirs[-1]:.4f}", f"{found.early:.0e}"]
    cells += [f"{difference(losses, theirs):.0e}" for losses in (found.losses[OURS], found.moved)]
    return row(name, cells)


def row(name: str, cells: Sequence[str]) -> str:
    return f"| {name:30} | " + " | ".join(f"{cell:>8}" for cell in cells) + " |"


TIMES = ("ours ms", "XLA ms", "ratio", "of least", "compile", "of XLA")
LOSSES = ("loss", "of XLA", f"first {EARLY}", "all", "moved")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("flax_training", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default="", metavar="WORDS", help="models with a word in the name, comma-separated")
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="default: %(default)s")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.environ["JAX_PLATFORMS"] = ",".join(PLATFORMS.values())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHLO_JIT_CACHE_DIR"] = folder
        from benchmarks.flax_models import MODELS

        words = options.only.lower().split(",")
        names = [name for name in MODELS if any(word in name.lower() for word in words)]
        if not names:
            print(f"no model matches {options.only!r}")
            return 2
        print(row("model", [*TIMES, *LOSSES]))
        print("|---|" + "--:|" * len([*TIMES, *LOSSES]), flush=True)
        results = []
        for name in names:
            results.append(measure(name, options.steps))
            print(line(name, results[-1]), flush=True)
    return 1 if any(found.early > LIMIT or found.ratio < 1 for found in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
