"""Training loops of Flax on the platform `shlo` and on XLA:CPU, in turns in one process.

    python -m benchmarks.flax_training                      every model, 200 steps
    python -m benchmarks.flax_training --only mlp,cnn --steps 50

Both start from the same state and see the same batches. They take turns by blocks of steps, so that what disturbs one
disturbs both; a step's time is the median of its blocks. Compilation is timed with an empty object cache. Exit status 1
where losses differ by more than LIMIT, or a model is slower than with XLA. Needs flax and optax.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

OURS, XLA = "shlo_jit", "XLA"
PLATFORMS = {OURS: "shlo", XLA: "xla_cpu"}
LIMIT = 1e-2
"""Of the relative difference of losses: both round, and training makes more of that with every step."""
BLOCK = 10
"""Steps."""


class Result(NamedTuple):
    """Of one model; by peer."""

    blocks: dict[str, list[float]]
    """Seconds of a step in each block."""
    compile: dict[str, float]
    """Seconds."""
    losses: dict[str, list[float]]

    def median(self, peer: str) -> float:
        return statistics.median(self.blocks[peer])

    def least(self, peer: str) -> float:
        return min(self.blocks[peer])

    @property
    def ratio(self) -> float:
        """How many times as long as ours XLA takes."""
        return self.median(XLA) / self.median(OURS)

    @property
    def difference(self) -> float:
        """The largest relative one of the losses of a step."""
        return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(self.losses[OURS], self.losses[XLA], strict=True))


class Loop:
    """A training on one platform, as far as it has come."""

    def __init__(self, training: Any, platform: str) -> None:
        import jax
        import numpy as np

        self.state = jax.device_put(jax.tree.map(np.array, training.state), jax.devices(platform)[0])
        self.step: Any = jax.jit(training.step, donate_argnums=0)
        self.losses: list[Any] = []

    def compile(self, batch: Any) -> float:
        """Seconds from the lowered program to one that can be called."""
        lowered = self.step.lower(self.state, batch)
        start = time.perf_counter()
        self.step = lowered.compile()
        return time.perf_counter() - start

    def run(self, batches: Sequence[Any]) -> float:
        """Seconds of a step."""
        import jax

        start = time.perf_counter()
        for batch in batches:
            self.state, loss = self.step(self.state, batch)
            self.losses.append(loss)
        jax.block_until_ready(self.state)
        return (time.perf_counter() - start) / len(batches)


def measure(name: str, steps: int) -> Result:
    import numpy as np

    from benchmarks.flax_models import MODELS

    training = MODELS[name]()
    random = np.random.default_rng(0)
    batches = [training.batch(random) for _ in range(steps)]
    loops = {peer: Loop(training, platform) for peer, platform in PLATFORMS.items()}
    compile_seconds = {peer: loop.compile(batches[0]) for peer, loop in loops.items()}
    blocks: dict[str, list[float]] = {peer: [] for peer in loops}
    order = list(loops)
    for first in range(0, steps, BLOCK):
        for peer in order:
            blocks[peer].append(loops[peer].run(batches[first : first + BLOCK]))
        order.reverse()
    losses = {peer: [float(x) for x in loop.losses] for peer, loop in loops.items()}
    return Result(blocks, compile_seconds, losses)


def line(name: str, found: Result) -> str:
    cells = [f"{1e3 * found.median(peer):.2f}" for peer in (OURS, XLA)]
    cells += [f"{found.ratio:.2f}", f"{found.least(XLA) / found.least(OURS):.2f}"]
    cells += [f"{found.compile[peer]:.2f}" for peer in (OURS, XLA)]
    cells += [f"{found.losses[OURS][-1]:.4f}", f"{found.difference:.0e}"]
    return f"| {name:32} | " + " | ".join(f"{cell:>8}" for cell in cells) + " |"


HEAD = ("ours ms", "XLA ms", "ratio", "of least", "compile", "of XLA", "loss", "differs")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("flax_training", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default="", metavar="WORDS", help="models with a word in the name, divided by commas")
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
        print(f"| {'model':32} | " + " | ".join(f"{cell:>8}" for cell in HEAD) + " |")
        print("|---|" + "--:|" * len(HEAD), flush=True)
        results = []
        for name in names:
            results.append(measure(name, options.steps))
            print(line(name, results[-1]), flush=True)
    return 1 if any(found.difference > LIMIT or found.ratio < 1 for found in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
