"""Processes on JAX's platform that fork, or end while their threads are busy."""

from __future__ import annotations

import pytest
from platform_process import run

pytest.importorskip("jax", reason="the platform is JAX's")

START = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np

mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
P = jax.sharding.PartitionSpec
f = jax.jit(lambda x: x + 1)
ones = f(jnp.zeros(4))

def in_shards(body):
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i")))

def calls(function):
    return jax.jit(lambda x: jax.pure_callback(function, jax.ShapeDtypeStruct((4,), np.float32), x))

def large(turns):
    def body(x):
        for i in range(turns):
            x = jnp.sin(x) @ jnp.cos(x + i) + jnp.sort(x, axis=i % 2)
        return x
    return jax.jit(body).lower(jnp.ones((16, 16)))

def in_threads(*works):
    def forever(work):
        while True:
            work()
    for work in works:
        threading.Thread(target=forever, args=(work,), daemon=True).start()
    time.sleep(0.5)
"""
ASLEEP = """
started = threading.Event()
def sleeps(x):
    started.set()
    time.sleep(40)
    return x
"""
THREADS = {
    "execute": "g1 = jax.jit(lambda x: x @ x)\nx1 = g1(jnp.ones((300, 300)))\nin_threads(*[lambda: g1(x1)] * 3)\n",
    "callback": "g2 = calls(lambda x: np.asarray(x))\ng2(ones)\nin_threads(*[lambda: g2(ones)] * 2)\n",
    "a callback that sleeps": ASLEEP + "in_threads(lambda: calls(sleeps)(ones))\nstarted.wait(60)\n",
    "device_put": "a3 = np.ones((500, 500), np.float32)\nin_threads(lambda: jax.device_put(a3), lambda: jax.device_put(a3.T))\n",
    "arguments": "a4 = np.ones(4, np.float32)\nin_threads(*[lambda: f(a4)] * 3)\n",
    "reading": "in_threads(lambda: np.asarray(f(ones)).sum(), ones.copy)\n",
    "several devices": "g5 = in_shards(lambda x: jax.lax.psum(x, 'i'))\ng5(jnp.ones(4))\nin_threads(*[lambda: g5(jnp.ones(4))] * 2)\n",
    "a compilation": "a6 = large(60)\nin_threads(a6.compile)\n",
}


def check(script: str, code: int = 0) -> list[str]:
    done = run("-c", START + script, timeout=120)
    assert done.returncode == code, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout.split("\n")[:-1]


@pytest.mark.slow
def test_the_end_with_threads_in_everything() -> None:
    assert check("".join(THREADS.values()) + "print('end')\nsys.exit(3)\n", 3) == ["end"]


@pytest.mark.slow
@pytest.mark.parametrize("end", ("", "os._exit(4)", "raise ValueError"))
@pytest.mark.parametrize("where", THREADS)
def test_the_end_with_threads(where: str, end: str) -> None:
    check(THREADS[where] + end, 4 if "_exit" in end else 1 if end else 0)


def test_a_fork() -> None:
    """In the child, compiled programs run; JAX's compiling threads do not exist."""
    script = """
g = jax.jit(lambda x: x @ x)
x = g(jnp.ones((300, 300)))
stop = threading.Event()
def work():
    while not stop.is_set():
        jax.device_put(columns)
columns = np.ones((300, 300), np.float32).T
jax.device_put(columns)  # the first one imports modules: a fork in the middle of that leaves its lock closed
thread = threading.Thread(target=work)
thread.start()
for i in range(10):
    child = os.fork()
    if not child:
        good = np.asarray(f(ones)).tolist() == [2] * 4 and np.asarray(g(x))[0, 0] == 300.0**3
        good = good and np.asarray(jax.device_put(np.ones(100_000, np.float32))).sum() == 100_000
        os._exit(7 if good else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert f(ones)[0] == 2
stop.set()
thread.join()
"""
    check(script)
