"""Shardings and programs on global arrays as JAX writes them, compared with JAX's results on eight devices."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_grid import run_local

import shlo_jit
from shlo_jit.distributed.global_arrays import grid_of, local_program
from shlo_jit.distributed.hlo_sharding import hlo_tile_assignment
from shlo_jit.distributed.shardy import shardings_of
from shlo_jit.distributed.tiled_axes import tile_assignment
from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Op

pytest.importorskip("jax")
pytestmark = pytest.mark.xla

HERE = Path(__file__).parent
X = np.arange(128, dtype=np.float32).reshape(8, 16)
NAMES = ["sums", "two_axes", "partial", "nested", "scan", "jit", "cond", "grad", "no_arguments", "constraint"]


@pytest.fixture(scope="module")
def found() -> Any:
    script = subprocess.run([sys.executable, HERE / "jax_shardings.py"], capture_output=True, check=True)
    return np.load(io.BytesIO(script.stdout))


def places(tiles: TileAssignment, shape: tuple[int, ...]) -> list[list[list[int]]]:
    """Returns start and end of each device's part."""
    part = tiles.part_shape(shape)
    every = [tiles.device_tile(d) for d in range(8)]
    return [[[at * n, (at + 1) * n] for at, n in zip(tile, part, strict=True)] for tile in every]


def test_shardings(found: Any) -> None:
    """Both spellings of a sharding give each device the part that JAX gives it."""
    cases = json.loads(str(found["shardings"]))
    for case in cases:
        rank = len(case["places"][0])
        mesh = Op("sdy.mesh", [], [], {"mesh": OpaqueAttr("#sdy.mesh" + case["mesh"])})
        text = OpaqueAttr(f"#sdy.sharding_per_value<[{case['sdy']}]>")
        op = Op("sdy.manual_computation", [], [], {"in_shardings": text})
        (sharding,) = shardings_of(op, "in_shardings", {"mesh": mesh})
        tiles = tile_assignment(op, sharding, tuple(sharding.mesh.axes), 8)
        assert places(tiles, (8,) * rank) == case["places"], case
        numbered = hlo_tile_assignment(op, case["hlo"], rank, 8)  # by position in the mesh
        assert places(numbered, (8,) * rank) == [case["places"][d] for d in case["order"]], case
        listed = (
            "["
            + ",".join(map(str, (*tiles.tiles, 8 // np.prod(tiles.tiles))))
            + "]"
            + ",".join(map(str, tiles.devices))
        )
        assert hlo_tile_assignment(op, f"{{devices={listed} last_tile_dims={{manual}}}}", rank, 8) == tiles
    assert len({case["sdy"] for case in cases}) > 50


@pytest.mark.parametrize("name", NAMES)
def test_programs(found: Any, name: str) -> None:
    texts = json.loads(str(found["texts"]))
    assert list(texts) == NAMES
    module = shlo_jit.parse(texts[name])
    assert grid_of(module) == (1, 8)
    local = local_program(module, "main", 8)
    assert local is not None and not shlo_jit.verify(str(local.module))
    arguments = [X] * len(local.inputs)
    want = [found[key] for key in found.files if key.startswith(name + ".")]
    got = run_local(local, arguments, 8)
    assert len(got) == len(want) > 0
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
