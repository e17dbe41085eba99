"""How data-parallel training scales by the model of `network.py`: compute of a step against the all_reduce of its
gradients, which is waited for.

In weak scaling every host has the same number of samples, in strong scaling all hosts share them. Efficiency is the
speed-up over one host, by the number of hosts.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.network import Formula, Network, cheapest, ours
from shlo_jit import tuning

RATE = 1e12
"""Operations a second of a host in training. Assumed: 32 cores that reach a third of what a product does."""


class Model(NamedTuple):
    name: str
    parameters: float
    """Of f32."""
    operations: float
    """Of a training step for one sample: three times those of the result, two for each multiply-add."""
    samples: int
    """Of a host in weak scaling."""
    together: int
    """Of all hosts in strong scaling."""


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
