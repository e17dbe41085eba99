"""Tables, simulations and gradients whose loops update a small part of a large state; see `stateful_programs.py`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import stateful_inputs as inputs
from benchmarks.stateful_inputs import Case, floats, places_in, rng


# ---------------------------------------------------------------------------- tables
def knapsack(n: int) -> Case:
    """A knapsack with a table that is filled element by element (n grows with the work)."""

    def f(weights, values):
        def item(i, table):
            def fill(c, t):
                w = weights[i]
                best = jnp.where(c >= w, jnp.maximum(t[i, c], t[i, c - w] + values[i]), t[i, c])
                return t.at[i + 1, c].set(best)

            return lax.fori_loop(0, n // 16, fill, table)

        return lax.fori_loop(0, 16, item, jnp.zeros((17, n // 16)))

    return f, (1 + places_in(16, 9), np.abs(floats(16)))


def edit_distance(n: int) -> Case:
    """The edit distance of two words, element by element in a table (n grows with the work)."""
    length = int(n**0.5)

    def f(a, b):
        table = jnp.zeros((length + 1, length + 1), jnp.int32)
        table = table.at[0].set(jnp.arange(length + 1)).at[:, 0].set(jnp.arange(length + 1))

        def row(i, t):
            def cell(j, t):
                same = t[i, j] + (a[i] != b[j])
                return t.at[i + 1, j + 1].set(jnp.minimum(same, 1 + jnp.minimum(t[i, j + 1], t[i + 1, j])))

            return lax.fori_loop(0, length, cell, t)

        return lax.fori_loop(0, length, row, table)

    return f, (places_in(length, 4), places_in(2 * length, 4)[length:])


def longest_subsequence(n: int) -> Case:
    """The longest common subsequence with `cond` in the inner loop (n grows with the work)."""
    length = int(n**0.5)

    def f(a, b):
        def row(i, t):
            def cell(j, t):
                return lax.cond(
                    a[i] == b[j],
                    lambda t: t.at[i + 1, j + 1].set(t[i, j] + 1),
                    lambda t: t.at[i + 1, j + 1].set(jnp.maximum(t[i, j + 1], t[i + 1, j])),
                    t,
                )

            return lax.fori_loop(0, length, cell, t)

        return lax.fori_loop(0, length, row, jnp.zeros((length + 1, length + 1), jnp.int32))

    return f, (places_in(length, 4), places_in(2 * length, 4)[length:])


# ---------------------------------------------------------------------------- simulations
def particle_cells(n: int) -> Case:
    """Particles enter lists of neighbours: counts of cells, and a row per cell, which may be full."""

    def f(cells, count, places):
        def body(i, s):
            cells, count = s
            k = places[i]
            free = count[k] < 4
            cells = jnp.where(free, cells.at[k, count[k]].set(i), cells)
            return cells, jnp.where(free, count.at[k].add(1), count)

        return lax.fori_loop(0, inputs.ROUNDS, body, (cells, count))

    return f, (np.zeros((n, 4), np.int32), np.zeros(n, np.int32), places_in(inputs.ROUNDS, n // 64 + 1))


def ising(n: int) -> Case:
    """Metropolis steps on a line of spins, with several states and a running energy."""

    def f(spins, places, chances):
        def body(s, step):
            spins, energy = s
            k, chance = step
            cost = 2 * spins[k] * (spins[(k + 1) % n] + spins[(k - 1) % n])
            flip = (cost < 0) | (chance < jnp.exp(-cost))
            spins = lax.cond(flip, lambda s: s.at[k].multiply(-1.0), lambda s: s, spins)
            return (spins, energy + jnp.where(flip, cost, 0.0)), flip

        return lax.scan(body, (spins, 0.0), (places, chances))

    spins = np.sign(floats(n))
    return f, (spins, places_in(inputs.ROUNDS, n), rng().random(inputs.ROUNDS).astype(np.float32))


def metropolis(n: int) -> Case:
    """A changed row is read to decide whether the change is kept, by `where` on the whole state."""

    def f(x, changes, places):
        def body(i, s):
            x, energy = s
            k = places[i]
            new = x.at[k].add(changes[i])
            later = energy + jnp.sum(new[k] ** 2) - jnp.sum(x[k] ** 2)
            keep = later < energy + changes[i]
            return jnp.where(keep, new, x), jnp.where(keep, later, energy)

        return lax.fori_loop(0, inputs.ROUNDS, body, (x, jnp.float32(0)))

    return f, (floats(n // 8, 8), floats(inputs.ROUNDS), places_in(inputs.ROUNDS, n // 8))


def best_so_far(n: int) -> Case:
    """A walk that keeps its best state, of which few iterations find one."""

    def f(x, changes, places):
        def body(i, s):
            x, best, least = s
            x = x.at[places[i]].add(changes[i])
            cost = x[places[i]]
            return x, jnp.where(cost < least, x, best), jnp.minimum(cost, least)

        return lax.fori_loop(0, inputs.ROUNDS, body, (x, x, jnp.float32(0)))[1:]

    return f, (floats(n), floats(inputs.ROUNDS), places_in(inputs.ROUNDS, n))


def batched_select(n: int) -> Case:
    """vmap of an update under a condition: 4 states of n / 4 elements."""

    def one(x, places):
        def body(i, s):
            k = places[i]
            return jnp.where(s[k] > 0, s.at[k].multiply(0.5), s)

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return jax.vmap(one), (floats(4, n // 4), places_in(4 * inputs.ROUNDS, n // 4).reshape(4, inputs.ROUNDS))


def batched_cond(n: int) -> Case:
    """vmap of `cond` with updates of windows in both branches: 4 states of n / 4 elements."""

    def one(x, places):
        def body(i, s):
            k = places[i]
            return lax.cond(
                s[k] > 0,
                lambda s: lax.dynamic_update_slice(s, s[k] * jnp.ones(4), (k + 1,)),
                lambda s: s.at[k].set(1.0),
                s,
            )

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return jax.vmap(one), (floats(4, n // 4), places_in(4 * inputs.ROUNDS, n // 4).reshape(4, inputs.ROUNDS))


def batched_while(n: int) -> Case:
    """vmap of a while loop that ends at different times: the states of those that are done are selected."""

    def one(x, limit):
        def body(s):
            i, x = s
            return i + 1, x.at[i].set(x[i] * 0.5 + 1)

        return lax.while_loop(lambda s: s[0] < limit, body, (0, x))[1]

    return jax.vmap(one), (floats(4, n // 4), np.array([inputs.ROUNDS, 30, 10, 200], np.int32))


# ---------------------------------------------------------------------------- sums into slices, uniform conditions
def gradient_of_layers(n: int) -> Case:
    """The gradient of a loop that indexes n / 256 layers of 16 x 16 weights (n grows with the work)."""
    layers = n // 256

    def f(w):
        return lax.fori_loop(0, layers, lambda i, x: jnp.tanh(w[i] @ x), jnp.ones(16)).sum()

    return jax.grad(f), (floats(layers, 16, 16) * 0.3,)


def gradient_of_table(n: int) -> Case:
    """The gradient of a loop that looks up single rows of a table."""

    def f(x, places):
        return lax.fori_loop(0, inputs.ROUNDS, lambda i, y: jnp.sin(y + x[places[i]]), jnp.ones(8)).sum()

    return jax.grad(f), (floats(n, 8), places_in(inputs.ROUNDS, n))


def gradient_of_state(n: int) -> Case:
    """The gradient of a scan that writes rows of its state in place."""
    rows = n // 100

    def f(p):
        state = jnp.concatenate([p[None], jnp.zeros([rows - 1, 10, 10])])
        state, _ = lax.scan(lambda s, i: (s.at[i].set(s[i - 1]), None), state, jnp.arange(2, rows))
        return jnp.sum(state[-1])

    return jax.grad(f), (floats(10, 10),)


def descent(n: int) -> Case:
    """Steps of gradient descent inside of a loop, each of which changes one of n / 256 layers of weights."""
    layers = n // 256

    def f(w, x, places):
        def step(w, i):
            gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(w[places[i]] @ x)))(w)
            return w - 0.1 * gradient, None

        return lax.scan(step, w, jnp.arange(64))[0]

    return f, (floats(layers, 16, 16), floats(16), places_in(64, layers))


def sieve(n: int) -> Case:
    """A sieve of primes: whole arrays are computed where a scalar condition holds (n grows with the work)."""

    def f(s):
        def body(i, s):
            return jnp.where(s[i], s & ~((jnp.arange(n) > i) & (jnp.arange(n) % i == 0)), s)

        return lax.fori_loop(2, 40, body, s)

    return f, (np.ones(n, bool),)


def rare_rebuild(n: int) -> Case:
    """A whole array is computed again in one of 16 iterations (n grows with the work)."""

    def f(x, places):
        def body(i, s):
            x, k = s
            x = jnp.where(i % 16 == 0, jnp.sin(x) * jnp.exp(-x * x), x)
            return x.at[places[i]].add(1.0), k + 1

        return lax.fori_loop(0, 64, body, (x, 0))[0]

    return f, (floats(n), places_in(64, n))


NUMERICS = (
    knapsack, edit_distance, longest_subsequence, particle_cells, ising, metropolis, best_so_far, batched_select,
    batched_cond, batched_while, gradient_of_layers, gradient_of_table, gradient_of_state, descent, sieve, rare_rebuild,
)  # fmt: skip
