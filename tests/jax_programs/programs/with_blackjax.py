"""BlackJAX: samplers of several kinds, with their adaptation, in 64 bits so that short chains take the same path."""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from jax.scipy import stats

Array = jax.Array
jax.config.update("jax_enable_x64", True)
_DATA = 1 + 2 * jax.random.normal(jax.random.key(0), (40,))


def _log_density(x: dict[str, Array]) -> Array:
    scale = jnp.exp(x["log_scale"])
    return stats.norm.logpdf(_DATA, x["place"], scale).sum() + x["log_scale"] - x["place"] ** 2 / 50


_START = {"place": jnp.array(0.0), "log_scale": jnp.array(0.0)}


def _chain(step: Any, state: Any, count: int = 25) -> Any:
    @jax.jit
    def run(state: Any, keys: Array) -> Any:
        return jax.lax.scan(lambda s, k: (step(k, s)[0], s.position), state, keys)

    return run(state, jax.random.split(jax.random.key(1), count))[1]


def adapted_nuts() -> Any:
    warmup = blackjax.window_adaptation(blackjax.nuts, _log_density)
    (state, parameters), _ = warmup.run(jax.random.key(2), _START, num_steps=60)
    return parameters, _chain(blackjax.nuts(_log_density, **parameters).step, state)


def several_kinds() -> Any:
    mass = jnp.array([0.3, 0.2])
    made = [
        blackjax.hmc(_log_density, 0.2, mass, 10),
        blackjax.mala(_log_density, 0.01),
        blackjax.additive_step_random_walk(_log_density, blackjax.mcmc.random_walk.normal(mass)),
        blackjax.barker_proposal(_log_density, 0.1),
        blackjax.ghmc(_log_density, 0.1, mass, 0.2, 0.3),
    ]
    return [
        _chain(kind.step, kind.init(_START, jax.random.key(3)) if i == 4 else kind.init(_START))
        for i, kind in enumerate(made)
    ]


def tempered_particles() -> Any:
    prior = lambda x: stats.norm.logpdf(x, 0, 3).sum()  # noqa: E731
    likelihood = lambda x: stats.norm.logpdf(jnp.linalg.norm(x), 2.0, 0.3)  # noqa: E731
    smc = blackjax.adaptive_tempered_smc(
        prior, likelihood, blackjax.hmc.build_kernel(), blackjax.hmc.init,
        blackjax.smc.extend_params({"step_size": 0.1, "inverse_mass_matrix": jnp.ones(2), "num_integration_steps": 5}),
        blackjax.smc.resampling.systematic, 0.5, num_mcmc_steps=2,
    )  # fmt: skip
    state = smc.init(3 * jax.random.normal(jax.random.key(4), (50, 2)))

    @jax.jit
    def run(state: Any, key: Array) -> Any:
        def step(carry: Any) -> Any:
            state, key, count = carry
            key, own = jax.random.split(key)
            return smc.step(own, state)[0], key, count + 1

        return jax.lax.while_loop(lambda c: c[0].tempering_param < 1, step, (state, key, 0))

    state, _, count = run(state, jax.random.key(5))
    return state.particles, count


def slices_and_flows() -> Any:
    elliptical = blackjax.elliptical_slice(
        lambda x: stats.norm.logpdf(x, 1.0, 0.5).sum(), mean=jnp.zeros(3), cov=jnp.eye(3)
    )
    noisy = blackjax.sgld(lambda x, batch: jax.grad(lambda v: stats.norm.logpdf(batch, v, 2.0).sum())(x))
    walk, place = [], jnp.array(0.0)
    for i in range(5):
        place = noisy.step(jax.random.key(i), place, _DATA[8 * i : 8 * i + 8], 0.01)
        walk.append(place)
    return _chain(elliptical.step, elliptical.init(jnp.zeros(3))), walk
