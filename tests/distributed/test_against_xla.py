"""Programs of shard_map give the results of XLA on as many devices of this host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from collective_programs import results_of

import shlo_jit

pytestmark = pytest.mark.xla
NAMES = ["psum", "gathered", "scattered", "exchanged", "moved", "looped", "scanned", "slope", "nested"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the programs and XLA's results."""
    pytest.importorskip("jax")
    found = tmp_path_factory.mktemp("xla")
    script = Path(__file__).with_name("xla_programs.py")
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, str(script), str(found)], env=environment, check=True, timeout=120)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_same_as_xla(folder: Path, name: str) -> None:
    with np.load(folder / f"{name}.npz") as saved:
        x, *want = (saved[key] for key in saved.files)
    assert want
    with shlo_jit.compile(folder / f"{name}.mlir", transport="threads", time_out=20.0) as exe:
        got = results_of(exe(x))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
