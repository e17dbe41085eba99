"""Scaling of data-parallel training by the model of `network.py`: compute of a step plus the blocking all_reduce of its
gradients.

In weak scaling every host has the same number of samples, in strong scaling all hosts share them. Efficiency is the
speed-up over one host, divided by the number of hosts.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.network import Formula, Network, cheapest, ours
from shlo_jit import tuning

RATE = 1e12
"""Operations per second of a host in training. Assumed: 32 cores at a third of the speed of a product."""


class Model(NamedTuple):
    name: str
    parameters: float
    """Number of f32 parameters."""
    operations: float
    """Operations of a training step for one sample: three times those of the forward pass, two for each
    multiply-add."""
    samples: int
    """Samples of a host in weak scaling."""
    together: int
    """Samples of all hosts in strong scaling."""


MODELS = (
    Model("CNN of two convolutions", 0.54e6, 11.6e6, 64, 8192),
    Model("ResNet-50", 25.6e6, 24.6e9, 32, 4096),
    Model("BERT-base, 128 tokens", 110e6, 84.5e9, 32, 4096),
)


def gradients(model: Model, net: Network, hosts: int, formula: Formula | None) -> float:
    """Seconds of the all_reduce ops of a step, of COMBINED_BYTES each; for None, of one by the fastest algorithm."""
    nbytes = 4 * model.parameters
    if formula is None:
        return cheapest("all_reduce", net, hosts, nbytes)[1]
    ops = max(1, round(nbytes / tuning.COMBINED_BYTES))
    return ops * formula(net, hosts, nbytes / ops)


def efficiency(model: Model, net: Network, hosts: int, is_weak: bool, formula: Formula | None = None) -> float:
    samples = model.samples if is_weak else model.together / hosts
    compute = samples * model.operations / RATE
    return compute / (compute + gradients(model, net, hosts, formula))


OURS = ours("all_reduce")
