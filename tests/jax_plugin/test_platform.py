"""JAX's platform: each file of `on_platform` runs in a separate process, in which JAX is set to use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from platform_process import run

pytest.importorskip("jax", reason="the platform is JAX's")
HERE = Path(__file__).parent / "on_platform"


@pytest.mark.parametrize("path", sorted(HERE.glob("check_*.py")), ids=lambda path: path.stem)
def test_on_the_platform(path: Path) -> None:
    done = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=", str(path))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


ENDS = {
    "with arrays alive": ("x = jnp.arange(8.0); y = jax.jit(lambda v: v + 1)(x)", 0),
    "with an exit code": ("x = jnp.ones(3) + 1; sys.exit(3)", 3),
    "with an exception": ("x = jnp.ones(3) + 1; raise ValueError('so')", 1),
    "with a thread that goes on": (
        "import threading\n"
        "f = jax.jit(lambda v: v * 2); x = f(jnp.ones(100))\n"
        "def work():\n"
        "    while True: f(x)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "import time; time.sleep(0.3)",
        0,
    ),
    "in the middle of all": ("x = jnp.ones(3) + 1; import os; os._exit(5)", 5),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_process_ends_cleanly(how: str) -> None:
    body, code = ENDS[how]
    done = run("-c", f"import sys, jax, jax.numpy as jnp\n{body}")
    assert done.returncode == code, done.stderr[-3000:]


def test_it_waits_until_it_is_asked_for() -> None:
    script = (
        "import jax; print(jax.default_backend(), jax.devices()[0].client.platform_version);"
        "print(jax.devices('shlo')[0].client.platform_version.splitlines()[-1])"
    )
    done = run("-c", script, JAX_PLATFORMS="")
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = done.stdout.splitlines()
    assert first == "cpu cpu"
    assert second.startswith("shlo_jit ")


def test_its_name_leads_to_it_and_the_usual_one_too() -> None:
    script = (
        "import jax; a, b = jax.devices('shlo')[0], jax.devices('cpu')[0]; assert a is b;"
        "from shlo_jit.jax.plugin import initialize; initialize(); initialize();"
        "print(jax.devices('xla_cpu')[0].client.platform_version)"
    )
    done = run("-c", script, JAX_PLATFORMS="shlo,xla_cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "cpu"
