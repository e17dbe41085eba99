"""Ctrl-C on JAX's platform is a KeyboardInterrupt at the call, and no other exception."""

from __future__ import annotations

import pytest
from platform_process import run

pytest.importorskip("jax", reason="the platform is JAX's")

START = """
import collections, itertools, os, signal, threading, time
import jax, jax.numpy as jnp, numpy as np

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may ignore it
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
P = jax.sharding.PartitionSpec
f = jax.jit(lambda x: x + 1)
ones = f(jnp.zeros(4))
LONG = 2**31 - 1
started = threading.Event()

def loop(body):
    return jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda i, a: body(a), x))

def in_shards(body):
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i")))

def callback(function, call=jax.pure_callback, **options):
    return jax.jit(lambda x: call(function, jax.ShapeDtypeStruct((4,), np.float32), x, **options))

def sleeps(x):
    started.set()
    time.sleep(40)
    return x

def times(work, waits=False):
    'What the clauses of a `try` see of a call that is interrupted, and whether that took long.'
    def send():
        if waits:
            started.wait(60)
        time.sleep(0.4)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    sent = []
    started.clear()
    sender = threading.Thread(target=send)
    sender.start()
    seen = []
    try:
        try:
            work()
            seen.append("ran")
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
            time.sleep(1)
        except KeyboardInterrupt as error:
            seen.append("interrupted" if time.monotonic() - sent[0] < LATE else "late")
            if error.__context__ is not None:
                seen.append(f"context: {error.__context__!r}")
        time.sleep(0.01)
    except BaseException as error:
        seen.append(f"outside: {error!r}")
    sender.join()
    assert f(ones)[0] == 2 and np.asarray(f(ones))[3] == 2
    print("; ".join(seen))

LATE = 20
small, large = loop(jnp.cos), loop(lambda a: jnp.cos(a @ a))
square = jnp.ones((3, 3))
for g in (small, large):
    g(square, 2)
"""
CALLS = {
    "a call": "times(lambda: large(square, LONG))\n",
    "a small program": "times(lambda: small(square, LONG))\n",
    "again": "times(lambda: large(square, LONG))\n",
    "a call that is waited for": "times(lambda: small(square, LONG).block_until_ready())\n",
    "a call whose result is read": "times(lambda: np.asarray(small(square, LONG)))\n",
    "the first call": "first = loop(jnp.sin)\ntimes(lambda: first(square, LONG))\n",
    "a compiled program": "c = small.lower(square, LONG).compile()\ntimes(lambda: c(square, LONG).block_until_ready())\n",
    "a call by another function": "times(lambda: jax.tree.map(lambda x: small(x, LONG), {'a': square}))\n",
    "calls without Python between them": "times(lambda: list(map(small, [square] * 3, [LONG] * 3)))\n",
    "a donated argument": (
        "d = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda i, a: jnp.cos(a), x), donate_argnums=0)\n"
        "given = jnp.ones(5)\ntimes(lambda: d(given, LONG))\nassert given.is_deleted()\n"
    ),
    "a function that is called": "p = callback(sleeps)\ntimes(lambda: p(ones).block_until_ready(), True)\n",
    "a function that is called in order": (
        "from jax.experimental import io_callback\n"
        "o = callback(sleeps, io_callback, ordered=True)\ntimes(lambda: o(ones), True)\n"
        "print(np.asarray(callback(np.square, io_callback, ordered=True)(ones * 3))[0])\n"
    ),
    "a program within a function": (
        "def inner(x):\n    started.set()\n    return np.asarray(small(jnp.asarray(x), LONG))\n"
        "q = callback(inner)\ntimes(lambda: q(ones), True)\n"
    ),
    "several devices": (
        "s = in_shards(lambda x: jax.lax.fori_loop(0, 10**8, lambda i, v: v + jax.lax.psum(v, 'i') * 0, x))\n"
        "parts = jax.device_put(jnp.ones(4), jax.NamedSharding(mesh, P('i')))\n"
        "c = s.lower(parts).compile()\ntimes(lambda: c(parts))\n"
    ),
    "a handler of its own": (
        "class Stop(BaseException): pass\n"
        "def handler(*_): raise Stop\n"
        "signal.signal(signal.SIGALRM, handler)\nsignal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "try: small(square, LONG)\nexcept Stop: print('stopped')\n"
    ),
    "a compilation": (
        "def much(x):\n"
        "    for i in range(60):\n        x = jnp.sin(x) @ jnp.cos(x + i) + jnp.sort(x, axis=i % 2)\n"
        "    return x\n"
        "m = jax.jit(much).lower(jnp.ones((16, 16)))\ntimes(m.compile)\n"
    ),
}
EXPECTED = {"a function that is called in order": ["interrupted", "9.0"], "a handler of its own": ["stopped"]}


def check(calls: dict[str, str], before: str = "") -> None:
    done = run("-c", START + before + "".join(calls.values()), timeout=240)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    found = done.stdout.splitlines()
    assert found == [line for name in calls for line in EXPECTED.get(name, ["interrupted"])], done.stderr[-3000:]


def test_interrupts() -> None:
    check(CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("what", CALLS)
def test_an_interrupt(what: str) -> None:
    check({what: CALLS[what]})


@pytest.mark.slow
def test_interrupts_at_any_time() -> None:
    """Sends many interrupts, also at the beginnings and ends of short calls: each is one KeyboardInterrupt, and the
    results are right, or deleted."""
    script = """
import random
random.seed(3)
signal.signal(signal.SIGALRM, signal.default_int_handler)
count, results, wrong = 0, [], []
for k in range(300):
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.02 * random.random())
        while time.monotonic() - begin < 5:
            results[:] = [small(square, 300 + k % 7), f(ones), jnp.add(ones, 1)]
        wrong.append("never")
    except KeyboardInterrupt:
        count += 1
    except BaseException as error:
        wrong.append(repr(error))
    good = [x for x in results if not x.is_deleted()]
    if not all(np.isfinite(np.asarray(x)).all() for x in good) or f(ones)[0] != 2:
        wrong.append("results")
print(count, wrong[:3])
"""
    done = run("-c", START + script, timeout=400)
    assert done.stdout.splitlines() == ["300 []"], done.stdout[-1000:] + done.stderr[-3000:]
