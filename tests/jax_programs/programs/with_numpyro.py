"""NumPyro: NUTS, HMC, discrete variables summed out, variational inference, predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, MCMC, NUTS, SVI, Predictive, Trace_ELBO, autoguide, log_likelihood

Array = jax.Array
jax.config.update("jax_enable_x64", True)
"""A sampler decides by comparing: with 64 bits, rounding does not change the path of short chains."""


def _eight_schools(sigma: Array, y: Any = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(sigma)):
        raw = numpyro.sample("raw", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean + spread * raw, sigma), obs=y)


_SIGMA = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])
_EFFECT = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])


def hierarchical_nuts() -> Any:
    chains = MCMC(
        NUTS(_eight_schools), num_warmup=10, num_samples=8, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    chains.run(jax.random.key(0), _SIGMA, y=_EFFECT, extra_fields=("potential_energy", "num_steps"))
    samples = chains.get_samples()
    drawn = Predictive(_eight_schools, samples)(jax.random.key(1), _SIGMA)["y"]
    likely = log_likelihood(_eight_schools, samples, _SIGMA, y=_EFFECT)
    summary = numpyro.diagnostics.summary(chains.get_samples(group_by_chain=True))
    return samples, chains.get_extra_fields(), drawn, likely, summary


def logistic_hmc() -> Any:
    x = jax.random.normal(jax.random.key(2), (60, 3))
    y = (jax.nn.sigmoid(x @ jnp.array([1.0, -2.0, 0.5])) > jax.random.uniform(jax.random.key(3), (60,))).astype(int)

    def model(x: Array, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1).to_event(1))
        b = numpyro.sample("b", dist.Normal(0, 1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)

    chain = MCMC(HMC(model, num_steps=8), num_warmup=20, num_samples=20, progress_bar=False)
    chain.run(jax.random.key(4), x, y)
    return chain.get_samples()


def mixture_summed_out() -> Any:
    data = jnp.concatenate(
        [jax.random.normal(jax.random.key(5), (20,)) - 3, jax.random.normal(jax.random.key(6), (30,)) + 2]
    )

    def model(data: Array) -> None:
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("parts", 2):
            means = numpyro.sample("means", dist.Normal(0, 5))
        with numpyro.plate("data", len(data)):
            numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, 1.0)), obs=data)

    chain = MCMC(NUTS(model, max_tree_depth=5), num_warmup=20, num_samples=15, progress_bar=False)
    chain.run(jax.random.key(7), data)
    return chain.get_samples()


def variational() -> Any:
    """Runs steps of Adam on the evidence bound, with a diagonal and a multivariate normal guide."""
    results = []
    for kind in (autoguide.AutoNormal, autoguide.AutoMultivariateNormal, autoguide.AutoLaplaceApproximation):
        guide = kind(_eight_schools)
        svi = SVI(_eight_schools, guide, numpyro.optim.Adam(0.05), Trace_ELBO(num_particles=2))
        found = svi.run(jax.random.key(8), 60, _SIGMA, y=_EFFECT, progress_bar=False)
        results.append((found.params, found.losses))
    return results


def distributions() -> Any:
    key = jax.random.key(9)
    kinds = [
        dist.LKJCholesky(3, 1.5), dist.StudentT(4.0), dist.NegativeBinomial2(3.0, 2.0), dist.ZeroInflatedPoisson(0.3, 2.0),
        dist.MultivariateStudentT(5.0, jnp.zeros(2), jnp.eye(2)), dist.VonMises(0.5, 2.0), dist.BetaBinomial(2.0, 3.0, 10),
        dist.GaussianRandomWalk(0.3, 6), dist.TruncatedNormal(0.0, 1.0, low=-0.5, high=2.0), dist.Weibull(2.0, 1.5),
        dist.InverseGamma(3.0, 2.0), dist.Wishart(5.0, jnp.eye(2)), dist.OrderedLogistic(0.2, jnp.array([-1.0, 0.5])),
        dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.SigmoidTransform()), dist.Gompertz(1.0, 2.0),
        dist.Multinomial(12, jnp.array([0.2, 0.5, 0.3])), dist.LowRankMultivariateNormal(jnp.zeros(3), jnp.ones((3, 1)), jnp.ones(3)),
    ]  # fmt: skip
    return [(x := kind.sample(key, (4,)), kind.log_prob(x)) for kind in kinds]
