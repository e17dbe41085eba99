"""Arrays are split into parts and assembled again."""

from __future__ import annotations

import numpy as np
import pytest

from shlo_jit.distributed.tiles import TileAssignment


@pytest.mark.parametrize("seed", range(50))
def test_parts_make_the_whole(seed: int) -> None:
    """Each device's part starts where `starts` says; a group's parts are adjacent; all make up the array."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 4))
    tiles = tuple(rng.integers(1, 4, rank).tolist())
    count = int(rng.integers(1, 4) * np.prod(tiles))
    cut = TileAssignment(tiles, tuple(rng.permutation(count).tolist()))
    shape = tuple((np.array(tiles, int) * rng.integers(0, 4, rank)).tolist())
    array = np.arange(int(np.prod(shape))).reshape(shape)
    parts = [cut.part(array, d) for d in range(count)]
    assert all(isinstance(part, np.ndarray) and (np.shares_memory(part, array) or not part.size) for part in parts)
    np.testing.assert_array_equal(cut.assemble(parts), array)
    for dimension, extent in enumerate(shape):
        starts = cut.starts(dimension, extent)
        groups = cut.groups(dimension)
        assert sorted(groups.reshape(-1)) == list(range(count))
        for group in groups:
            assert list(starts[group]) == [i * (extent // tiles[dimension]) for i in range(tiles[dimension])]


@pytest.mark.parametrize("seed", range(20))
def test_summands_make_the_whole(seed: int) -> None:
    """The summands of a tile add up to it, whatever they are. When a tile is split here, one summand is the tile."""
    rng = np.random.default_rng(seed)
    tiles = tuple(rng.integers(1, 3, int(rng.integers(0, 3))).tolist())
    summands, replicas = (int(n) for n in rng.integers(1, 4, 2))
    count = int(np.prod(tiles)) * summands * replicas
    cut = TileAssignment(tiles, tuple(rng.permutation(count).tolist()), summands)
    array = rng.integers(0, 100, tuple(2 * n for n in tiles))
    parts = [cut.part(array, d) for d in range(count)]
    np.testing.assert_array_equal(cut.assemble(parts), array)
    groups = cut.summand_groups()
    assert groups.shape == (count // summands, summands) and sorted(groups.reshape(-1)) == list(range(count))
    assert [d for d in range(count) if cut.is_first(d)] == sorted(groups[:, 0])
    for group in groups:
        assert len({cut.device_tile(d) for d in group}) == 1
        assert not any(parts[d].any() for d in group[1:])
    whole = np.zeros_like(array)
    for n in range(summands):
        addend = rng.integers(0, 100, array.shape)
        whole += addend
        for group in groups:
            parts[group[n]] = TileAssignment(tiles, cut.devices).part(addend, group[n])
    np.testing.assert_array_equal(cut.assemble(parts), whole)
    assert cut.is_whole == (count == replicas)
    assert cut.same_parts(TileAssignment(tiles, cut.devices, summands))
    assert summands == 1 or not cut.same_parts(TileAssignment(tiles, cut.devices))


def test_first_replica_is_taken() -> None:
    cut = TileAssignment((2,), (3, 0, 1, 2))
    np.testing.assert_array_equal(cut.assemble([np.array([d]) for d in range(4)]), [3, 1])


def test_refused() -> None:
    cut = TileAssignment((2, 1), (0, 1))
    with pytest.raises(ValueError, match=r"rank 2.*\(4,\)"):
        cut.part(np.zeros(4), 0)
    with pytest.raises(ValueError, match="dimension 0.* 3.* 2 "):
        cut.part(np.zeros((3, 4)), 0)
    with pytest.raises(ValueError, match="2 devices.*device 2"):
        cut.part(np.zeros((4, 4)), 2)
    with pytest.raises(ValueError, match="2 parts.*got 1"):
        cut.assemble([np.zeros((2, 4))])
    with pytest.raises(ValueError, match=r"float64\[2, 4\].*float32\[2, 4\].*device 1"):
        cut.assemble([np.zeros((2, 4)), np.zeros((2, 4), np.float32)])
