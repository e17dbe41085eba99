"""Run by `test_against_xla.py` as a script, with as many devices as the programs need: writes the text, the arguments
and XLA's results of each program to a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

LINE, SQUARE = (4,), (2, 2)


def psum(x: Any) -> Any:
    return lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmin(x, "i"), lax.pmean(x, "i")


def gathered(x: Any) -> Any:
    return lax.all_gather(x, "i"), lax.all_gather(x, "i", axis=1, tiled=True)


def scattered(x: Any) -> Any:
    wide = jnp.concatenate([x * (k + 1) for k in range(4)])
    return lax.psum_scatter(wide, "i", tiled=True), lax.psum_scatter(wide.reshape(4, *x.shape), "i")


def exchanged(x: Any) -> Any:
    wide = jnp.stack([x + k for k in range(4)])
    return lax.all_to_all(wide, "i", 0, 1), lax.all_to_all(wide, "i", 0, 2, tiled=True)


def moved(x: Any) -> Any:
    ring = lax.ppermute(x, "i", [(k, (k + 1) % 4) for k in range(4)])
    return ring, lax.ppermute(x, "i", [(0, 3), (2, 1)]), x * lax.axis_index("i")


def looped(x: Any) -> Any:
    return lax.fori_loop(0, 7, lambda k, y: lax.psum(y, "i") * 0.25 + k, x)


def scanned(x: Any) -> Any:
    def step(y: Any, k: Any) -> Any:
        y = lax.ppermute(y, "i", [(n, (n + 1) % 4) for n in range(4)]) + k
        return y, lax.pmax(y, "i")

    return lax.scan(step, x, jnp.arange(5.0))


def slope(x: Any) -> Any:
    return jax.grad(lambda y: jnp.sum(lax.psum(jnp.sin(y), "i") * y))(x)


def nested(x: Any) -> Any:
    rows, columns = lax.psum(x, "r"), lax.all_gather(x, "c", tiled=True)
    place = lax.axis_index("r") * 10 + lax.axis_index("c")
    return rows, columns, lax.psum(x, ("c", "r")), x + place, lax.psum_scatter(columns, "r", tiled=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    **{f.__name__: (f, LINE) for f in (psum, gathered, scattered, exchanged, moved, looped, scanned, slope)},
    "nested": (nested, SQUARE),
}


def main(folder: Path) -> None:
    for name, (function, mesh_shape) in PROGRAMS.items():
        axes = ("i",) if mesh_shape == LINE else ("r", "c")
        mesh = Mesh(np.array(jax.devices()[:4]).reshape(mesh_shape), axes)
        x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
        mapped = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P(axes), out_specs=P(axes), check_vma=False))
        if name == "scanned":
            specs = P(axes), P(None, axes)
            mapped = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P(axes), out_specs=specs, check_vma=False))
        results = jax.tree.leaves(mapped(x))
        (folder / f"{name}.mlir").write_text(mapped.lower(x).as_text())
        np.savez(folder / f"{name}.npz", x, *map(np.asarray, results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
