"""Programs whose loops update a small part of a large state: the cases of `benchmarks.stateful_loops`.

Each takes a size `n` and returns a function and its arguments. The work of an iteration does not grow with `n`, except
where the docstring says so, thus a copy of the state shows as a ratio that grows.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import stateful_inputs as inputs
from benchmarks.stateful_inputs import Case, floats, places_in, rng
from benchmarks.stateful_numerics import NUMERICS


# ---------------------------------------------------------------------------- updates under conditions
def select_row(n: int) -> Case:
    """A row is written where a scalar condition holds."""

    def f(x, places):
        def body(i, s):
            k = places[i]
            return jnp.where(k % 3 > 0, s.at[k].set(s[(k + 1) % n] * 0.5), s)

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (floats(n, 8), places_in(inputs.ROUNDS, n))


def select_old_first(n: int) -> Case:
    """The old state is the side for true."""

    def f(x, places):
        return lax.fori_loop(
            0, inputs.ROUNDS, lambda i, s: jnp.where(s[places[i]] > 0, s, s.at[places[i]].add(1.0)), x
        )

    return f, (floats(n), places_in(inputs.ROUNDS, n))


def nested_selects(n: int) -> Case:
    """Two conditions, one inside of the other."""

    def f(x, places):
        def body(i, s):
            k = places[i]
            inner = jnp.where(s[k] > 0, s.at[k].multiply(0.5), s.at[(k + 7) % n].add(1.0))
            return jnp.where(i % 5 > 0, inner, s)

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (floats(n), places_in(inputs.ROUNDS, n))


def conditional_swap(n: int) -> Case:
    """Two elements are swapped by `where` if they are out of order."""

    def f(x, a, b):
        def body(i, s):
            j, k = a[i], b[i]
            return jnp.where(s[j] > s[k], s.at[j].set(s[k]).at[k].set(s[j]), s)

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (floats(n), places_in(inputs.ROUNDS, n), places_in(2 * inputs.ROUNDS, n)[inputs.ROUNDS:])


def cond_swap(n: int) -> Case:
    """Two rows are swapped by `cond` if they are out of order."""

    def f(x, a, b):
        def body(i, s):
            j, k = a[i], b[i]

            def swap(s):
                return s.at[j].set(s[k]).at[k].set(s[j])

            return lax.cond(s[j, 0] > s[k, 0], swap, lambda s: s, s)

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (floats(n, 4), places_in(inputs.ROUNDS, n), places_in(2 * inputs.ROUNDS, n)[inputs.ROUNDS:])


def switch_states(n: int) -> Case:
    """`switch` with three branches, which update one of two states or none."""

    def f(x, y, places):
        def body(i, s):
            k = places[i]
            branches = [
                lambda x, y: (x.at[k].set(y[k]), y),
                lambda x, y: (x, y.at[k].add(x[(k + 3) % n])),
                lambda x, y: (x, y),
            ]
            return lax.switch(k % 3, branches, *s)

        return lax.fori_loop(0, inputs.ROUNDS, body, (x, y))

    return f, (floats(n), floats(n) + 1, places_in(inputs.ROUNDS, n))


def nested_cond(n: int) -> Case:
    """A `cond` in a `cond`; both outer branches update the state."""

    def f(x, places):
        def body(i, s):
            k = places[i]
            return lax.cond(
                s[k] > 0,
                lambda s: lax.cond(s[k] > 1, lambda s: s.at[k].set(0.0), lambda s: s, s),
                lambda s: lax.dynamic_update_slice(s, jnp.ones(4), (k,)),
                s,
            )

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (floats(n), places_in(inputs.ROUNDS, n))


def early_stop(n: int) -> Case:
    """A decoder: tokens are written until one is the last, several states are kept by the same condition."""

    def f(w, x):
        def body(s):
            i, done, token, out, score = s
            new = (token * 31 + 7) % 1009
            stop = done | (new == 5)
            out = jnp.where(done, out, out.at[i].set(new))
            score = jnp.where(done, score, lax.dynamic_update_slice(score, w[:1] * new, (i,)))
            return i + 1, stop, jnp.where(done, token, new), out, score

        first = (0, jnp.array(False), jnp.int32(3), x, w)
        return lax.while_loop(lambda s: s[0] < inputs.ROUNDS, body, first)

    return f, (floats(n), np.zeros(n, np.int32))


# ---------------------------------------------------------------------------- data structures
def stack(n: int) -> Case:
    """A stack: push or pop, by data."""

    def f(x, data):
        def body(i, s):
            buffer, top, total = s
            push = data[i] % 3 > 0
            pushed = buffer.at[top].set(data[i])
            popped = jnp.where(push, 0, buffer[jnp.maximum(top - 1, 0)])
            return jnp.where(push, pushed, buffer), jnp.maximum(top + jnp.where(push, 1, -1), 0), total + popped

        return lax.fori_loop(0, inputs.ROUNDS, body, (x, 0, 0))

    return f, (np.zeros(n, np.int32), places_in(inputs.ROUNDS, 1000))


def ring_buffer(n: int) -> Case:
    """A ring buffer that is read at a distance and written at its end; each read is emitted as a row."""

    def f(x, data):
        def body(s, v):
            buffer, k = s
            old = lax.dynamic_index_in_dim(buffer, (k + 5) % n, keepdims=False)
            return (lax.dynamic_update_index_in_dim(buffer, old * 0.9 + v, k, 0), (k + 1) % n), old

        return lax.scan(body, (x, 0), data)

    return f, (floats(n, 16), floats(inputs.ROUNDS, 16))


def heap(n: int) -> Case:
    """Sifts elements up a binary heap: a loop in a loop."""

    def f(x, data):
        def sift(s):
            heap, k = s
            up = (k - 1) // 2
            a, b = heap[k], heap[up]
            return heap.at[k].set(b).at[up].set(a), up

        def body(i, heap):
            k = n - inputs.ROUNDS + i
            first = heap.at[k].set(data[i])
            return lax.while_loop(lambda s: (s[1] > 0) & (s[0][s[1]] < s[0][(s[1] - 1) // 2]), sift, (first, k))[0]

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (np.sort(floats(n)), floats(inputs.ROUNDS))


def union_find(n: int) -> Case:
    """Union-find with path halving."""

    def f(parent, a, b):
        def root(s):
            parent, k = s
            return parent.at[k].set(parent[parent[k]]), parent[k]

        def body(i, parent):
            def cond(s):
                return s[0][s[1]] != s[1]

            parent, p = lax.while_loop(cond, root, (parent, a[i]))
            parent, q = lax.while_loop(cond, root, (parent, b[i]))
            return lax.cond(p != q, lambda t: t.at[p].set(q), lambda t: t, parent)

        return lax.fori_loop(0, inputs.ROUNDS, body, parent)

    ends = places_in(2 * inputs.ROUNDS, n)
    return f, (np.arange(n, dtype=np.int32), ends[: inputs.ROUNDS], ends[inputs.ROUNDS :])


def hash_table(n: int) -> Case:
    """Linear probing in two tables; the keys are counted."""

    def f(keys, counts, data):
        def body(i, s):
            keys, counts = s
            k = data[i]
            slot = lax.while_loop(lambda j: (keys[j] != k) & (keys[j] != 0), lambda j: (j + 1) % n, k * 7919 % n)
            return keys.at[slot].set(k), counts.at[slot].add(1)

        return lax.fori_loop(0, inputs.ROUNDS, body, (keys, counts))

    return f, (np.zeros(n, np.int32), np.zeros(n, np.int32), 1 + places_in(inputs.ROUNDS, 200))


def queue_search(n: int) -> Case:
    """Breadth-first search on a grid of n cells, with a queue and distances (n grows with the work)."""

    def f(blocked):
        width = int(n**0.5)

        def visit(d, s):
            queue, tail, distance, cell = s
            to = cell + jnp.array([1, -1, width, -width])[d]
            fine = (to >= 0) & (to < n) & (distance[to] < 0) & ~blocked[to]
            queue = jnp.where(fine, queue.at[tail].set(to), queue)
            distance = jnp.where(fine, distance.at[to].set(distance[cell] + 1), distance)
            return queue, tail + fine, distance, cell

        def body(s):
            queue, head, tail, distance = s
            queue, tail, distance, _ = lax.fori_loop(0, 4, visit, (queue, tail, distance, queue[head]))
            return queue, head + 1, tail, distance

        first = jnp.zeros(n, jnp.int32), 0, 1, jnp.full(n, -1).at[0].set(0)
        return lax.while_loop(lambda s: (s[1] < s[2]) & (s[1] < inputs.ROUNDS), body, first)[3]

    return f, (rng().random(n) < 0.2,)


# ---------------------------------------------------------------------------- overlapping windows
def shifted_window(n: int) -> Case:
    """A window is read at one place and written at the next."""

    def f(x):
        def body(i, s):
            return lax.dynamic_update_slice(s, lax.dynamic_slice(s, (i,), (64,)) * 0.9, (i + 1,))

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (floats(n),)


def insertion(n: int) -> Case:
    """Insertion into a sorted buffer: 32 elements move by one place, then one is written."""

    def f(x, places):
        def body(i, s):
            k = places[i]
            s = lax.dynamic_update_slice(s, lax.dynamic_slice(s, (k,), (32,)), (k + 1,))
            return s.at[k].set(0.5)

        return lax.fori_loop(0, inputs.ROUNDS, body, x)

    return f, (floats(n), places_in(inputs.ROUNDS, n - 40))


def rows_combined(n: int) -> Case:
    """A row becomes a combination of two others (elimination), and the old row is emitted."""

    def f(x, a, b):
        def body(s, places):
            j, k = places
            return s.at[j].set(s[j] * 0.5 - s[k] * s[j, 0]), s[j]

        return lax.scan(body, x, (a, b))

    return f, (floats(n, 16), places_in(inputs.ROUNDS, n), places_in(2 * inputs.ROUNDS, n)[inputs.ROUNDS:])


def pivoting(n: int) -> Case:
    """Gaussian elimination of 24 columns with pivots: rows are swapped, then all rows are updated (n grows with the
    work)."""

    def f(x):
        def body(k, a):
            p = jnp.argmax(jnp.where(jnp.arange(n) >= k, jnp.abs(a[:, k]), -1.0))
            a = a.at[jnp.array([0, 0]) + jnp.stack([k, p])].set(a[jnp.stack([p, k])])
            factors = jnp.where(jnp.arange(n) > k, a[:, k] / a[k, k], 0.0)
            return a - factors[:, None] * a[k]

        return lax.fori_loop(0, 24, body, x)

    return f, (floats(n, 24),)


def swap_states(n: int) -> Case:
    """Two buffers change their roles in each iteration, and one of them is updated."""

    def f(x, y, places):
        def body(i, s):
            a, b = s
            return b.at[places[i]].add(a[places[i]]), a

        return lax.fori_loop(0, inputs.ROUNDS, body, (x, y))

    return f, (floats(n), floats(n) + 1, places_in(inputs.ROUNDS, n))


def exchanged_elements(n: int) -> Case:
    """Two buffers exchange an element where a condition holds: each update reads the other's old state."""

    def f(x, y, places):
        def body(i, s):
            a, b = s
            k = places[i]
            p = a[k] > b[k]
            return jnp.where(p, a.at[k].set(b[k]), a), jnp.where(p, b.at[k].set(a[k]), b)

        return lax.fori_loop(0, inputs.ROUNDS, body, (x, y))

    return f, (floats(n), floats(n)[::-1].copy(), places_in(inputs.ROUNDS, n))


def later_reads(n: int) -> Case:
    """Elements of the old and of the new state are combined after the update."""

    def f(x, places):
        def body(s, k):
            new = s.at[k].set(s[(k + 1) % n] + 1)
            return new, new[(k * 3) % n] * s[k] + s[(k + 2) % n]

        return lax.scan(body, x, places)

    return f, (floats(n), places_in(inputs.ROUNDS, n))


def exchanged_visits(n: int) -> Case:
    """Simulated annealing of a tour: two visits are exchanged, the lengths around both are read before and after, and
    the tour is kept or not."""

    def f(where, places, limits):
        def length(tour, i):
            return jnp.sqrt(((where[tour[i]] - where[tour[(i + 1) % n]]) ** 2).sum() + 1e-9)

        def around(tour, k):
            return sum(length(tour, (i + d) % n) for i in (k[0], k[1]) for d in (0, -1))

        def body(state, step):
            tour, heat = state
            k, limit = step
            new = tour.at[k[0]].set(tour[k[1]]).at[k[1]].set(tour[k[0]])
            change = around(new, k) - around(tour, k)
            kept = (change < 0) | (limit < jnp.exp(-change / heat))
            return (jnp.where(kept, new, tour), heat * 0.99), kept

        return lax.scan(body, (jnp.arange(n), 1.0), (places, limits))

    places = places_in(2 * inputs.ROUNDS, n).reshape(-1, 2)
    return f, (floats(n, 2), places, rng().random(inputs.ROUNDS, np.float32))


def optimized_rows(n: int) -> Case:
    """Adam on the rows of a table that a batch reads."""

    def f(table, first, second, rows, gradients):
        def body(state, step):
            table, first, second = state
            i, g = step
            m, v = 0.9 * first[i] + 0.1 * g, 0.99 * second[i] + 0.01 * g * g
            table = table.at[i].add(-0.01 * m / (jnp.sqrt(v) + 1e-8))
            return (table, first.at[i].set(m), second.at[i].set(v)), m.sum()

        return lax.scan(body, (table, first, second), (rows, gradients))

    zeros = np.zeros((n // 16, 16), np.float32)
    rows = places_in(4 * inputs.ROUNDS, n // 16).reshape(-1, 4)
    return f, (floats(n // 16, 16), zeros, zeros, rows, floats(inputs.ROUNDS, 4, 16))


def linear_sieve(n: int) -> Case:
    """The least prime factor of each number: a table, a list of primes, and a loop that ends by both."""

    def f():
        def outer(i, state):
            least, primes, count = state
            is_prime = least[i] == 0
            least = least.at[i].set(jnp.where(is_prime, i, least[i]))
            primes = primes.at[jnp.where(is_prime, count, n)].set(i, mode="drop")
            count = count + is_prime

            def more(inner):
                return (inner[1] < count) & (primes[inner[1]] <= least[i]) & (primes[inner[1]] * i < n)

            def mark(inner):
                prime = primes[inner[1]]
                return inner[0].at[prime * i].set(prime), inner[1] + 1

            return lax.while_loop(more, mark, (least, 0))[0], primes, count

        start = jnp.zeros(n, jnp.int32), jnp.zeros(n // 2, jnp.int32), 0
        return lax.fori_loop(2, n, outer, start)[0]

    return f, ()


PROGRAMS = (
    select_row, select_old_first, nested_selects, conditional_swap, cond_swap, switch_states, nested_cond,
    early_stop, stack, ring_buffer, heap, union_find, hash_table, queue_search, shifted_window, insertion,
    rows_combined, pivoting, swap_states, exchanged_elements, later_reads, exchanged_visits, optimized_rows,
    linear_sieve,
    *NUMERICS,
)  # fmt: skip
