"""Run as a script, with eight devices: prints JAX's results for shardings and programs on global arrays, as an npz.

`texts` are programs by name, as JSON, with `<name>.<i>` for the results of the array X. `shardings`, as JSON too, are
texts in the notations of Shardy and XLA, with the positions of the parts.
"""

from __future__ import annotations

import json
import os
import random
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESHES = [
    {"x": 8},
    {"x": 2, "y": 4},
    {"x": 4, "y": 2},
    {"x": 2, "y": 2, "z": 2},
    {"x": 1, "y": 8},
    {"x": 2, "y": 1, "z": 4},
]
X = np.arange(128, dtype=np.float32).reshape(8, 16)
MESH = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def mapped(body, ins, outs, **more):
    return jax.shard_map(body, mesh=MESH, in_specs=ins, out_specs=outs, **more)


def inner(part):
    return jax.shard_map(
        lambda a: a * 2 + lax.psum(a, "y"), in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"}
    )(part)


ring = mapped(lambda a: lax.ppermute(a, "x", [(0, 1), (1, 0)]) * 2, P("x", "y"), P("x", "y"))
halves = mapped(lambda a: lax.psum(a, "x"), P("x", None), P(), axis_names={"x"})
PROGRAMS = {
    "sums": mapped(lambda p: (lax.psum(p, "x"), lax.pmax(p, "y")), P("x", "y"), (P(None, "y"), P("x", None))),
    "two_axes": mapped(lambda p: p * lax.axis_index(("y", "x")), P(("y", "x"), None), P(("y", "x"), None)),
    "partial": lambda a: halves(a) * 2,
    "nested": mapped(inner, P("x", None), P("x", None), axis_names={"x"}),
    "scan": lambda a: lax.scan(lambda c, _: (ring(c) + 1, jnp.sum(c)), a, None, length=3),
    "jit": lambda a: (jax.jit(ring)(a), jax.jit(ring)(jax.jit(ring)(a)), a + 1),
    "cond": lambda a: lax.cond(a[0, 0] > 1, ring, lambda c: c, a),
    "grad": jax.grad(lambda a: jnp.sum(ring(a) ** 2)),
    "no_arguments": lambda a: mapped(lambda: lax.axis_index("y")[None], (), P("y"))(),
    "constraint": lambda a: ring(lax.with_sharding_constraint(a * 2, NamedSharding(MESH, P("x", None)))),
}


def sharding(rng: random.Random) -> dict:
    """Returns a random sharding of a value, in the notations of Shardy and XLA, and start and end of each device's
    part."""
    sizes = rng.choice(MESHES)
    axes = list(sizes)
    rng.shuffle(axes)
    rank = rng.randrange(1, 4)
    spec: list[list[str]] = [[] for _ in range(rank)]
    for axis in axes:
        if rng.random() < 0.7:
            spec[rng.randrange(rank)].append(axis)
    order = rng.sample(range(8), 8) if rng.random() < 0.5 else list(range(8))
    mesh = Mesh(np.array(jax.devices())[order].reshape(list(sizes.values())), tuple(sizes))
    named = NamedSharding(mesh, P(*[tuple(s) if s else None for s in spec]))
    shape = (8,) * rank
    places = named.devices_indices_map(shape)
    dims = ", ".join("{" + ", ".join(f'"{a}"' for a in s) + "}" for s in spec)
    ids = "" if order == sorted(order) else f", device_ids={order}"
    return {
        "mesh": f"<[{', '.join(f'{chr(34)}{a}{chr(34)}={n}' for a, n in sizes.items())}]{ids}>",
        "sdy": f"<@mesh, [{dims}]>",
        "hlo": str(named._to_xla_hlo_sharding(rank)),
        "order": order,
        "places": [[s.indices(8)[:2] for s in places[d]] for d in jax.devices()],
    }


def main() -> None:
    rng = random.Random(3)
    found = {"shardings": np.array(json.dumps([sharding(rng) for _ in range(200)]))}
    texts = {}
    for name, program in PROGRAMS.items():
        function = jax.jit(program)
        texts[name] = function.lower(X).as_text()
        for i, out in enumerate(jax.tree.leaves(function(X))):
            found[f"{name}.{i}"] = np.asarray(out)
    found["texts"] = np.array(json.dumps(texts))
    np.savez(sys.stdout.buffer, **found)


if __name__ == "__main__":
    main()
