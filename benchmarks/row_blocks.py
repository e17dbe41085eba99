"""Products and the loops around them by blocks of rows, against separate steps, measured alternately in one run.

    python -m benchmarks.row_blocks [WORD ...]      cases with one of the words in their names; without words, all
    python -m benchmarks.row_blocks --threads 1

The separate steps are those of the same program with ROW_BLOCK_BYTES out of reach. Both must give the same bits.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_jit
from benchmarks.programs import normalized, rms_norm
from benchmarks.timing import interleave
from shlo_jit import tuning

NEVER = 1 << 60


def weights(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 20).astype(np.float32)


A, B, C = weights(64, 256), weights(256, 64), weights(64, 256) + 0.01
SMALL_A, SMALL_B = weights(32, 128), weights(128, 32)
DOWN, UP = weights(64, 16), weights(16, 64)
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "softmax of a product": (lambda x: jax.nn.softmax(x @ weights(64, 1024)), (16384, 64)),
    "sums of a product's rows": (lambda x: (x @ weights(64, 1024)).sum(1), (16384, 64)),
    "argmax over a vocabulary": (lambda x: (x @ weights(64, 4096)).argmax(1), (8192, 64)),
    "feed-forward": (lambda x: jax.nn.relu(x @ A) @ B, (65536, 64)),
    "feed-forward, few features": (lambda x: jax.nn.relu(x @ SMALL_A) @ SMALL_B, (65536, 32)),
    "gated feed-forward": (lambda x: (jax.nn.silu(x @ A) * (x @ C)) @ B, (32768, 64)),
    "layer norm, product": (lambda x: normalized(x) @ B, (32768, 256)),
    "RMS norm, product": (lambda x: rms_norm(x) @ weights(128, 128), (32768, 128)),
    "small inner size": (lambda x: x @ DOWN @ UP, (262144, 64)),
    "norm, feed-forward, residual": (lambda x: x + jax.nn.gelu(normalized(x) @ A) @ B, (32768, 64)),
}
"""Name -> function of one array, and the array's shape."""


def compiled(text: str, least: int, threads: int) -> Any:
    usual = tuning.ROW_BLOCK_BYTES
    tuning.ROW_BLOCK_BYTES = least
    try:
        return shlo_jit.compile(text, cache=False, threads=threads)
    finally:
        tuning.ROW_BLOCK_BYTES = usual


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each program")
    given = parser.parse_args()
    table = Table("case", *("separate ms", "row blocks ms", "ratio"), title=f"{given.threads} threads")
    for column in table.columns[1:]:
        column.justify = "right"
    logs = []
    for name, (function, shape) in CASES.items():
        if given.words and not any(word in name for word in given.words):
            continue
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        text = jax.jit(function).lower(jnp.asarray(x)).as_text()
        separate, blocks = (compiled(text, least, given.threads) for least in (NEVER, tuning.ROW_BLOCK_BYTES))
        assert np.asarray(separate(x)).tobytes() == np.asarray(blocks(x)).tobytes(), name
        assert "row_blocks" in blocks.text("plan"), name
        times = interleave(
            {"separate": lambda f=separate, x=x: f(x), "blocks": lambda f=blocks, x=x: f(x)}, given.seconds
        )
        before, after = times["separate"].median, times["blocks"].median
        logs.append(math.log(before / after))
        table.add_row(name, f"{before * 1e3:.2f}", f"{after * 1e3:.2f}", f"{before / after:.2f}")
    if logs:
        table.add_row("geometric mean", "", "", f"{math.exp(sum(logs) / len(logs)):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
