"""Partition of an array into equal parts over devices: the part of each device, and how the whole is assembled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np


@dataclass(frozen=True)
class TileAssignment:
    """Partition of an array: dimension i is split into `tiles[i]` equal tiles; each device has one tile of the array.

    Devices that have the same tile are replicas of it. The devices with replica number r of each tile form the groups
    that assemble the array. Alternatively, several devices have summands, which add up to the tile.
    """

    tiles: tuple[int, ...]
    """Number of tiles along each dimension."""
    devices: tuple[int, ...]
    """Device numbers, tile by tile in row-major order; the replicas of a tile, or of a summand, are adjacent."""
    summands: int = 1
    """Number of summands of each tile. If a value is not split into summands yet, the first is the tile, and the others
    are zeros."""

    @staticmethod
    def whole(rank: int, devices: int) -> TileAssignment:
        """Returns the assignment in which every device has the whole array."""
        return TileAssignment((1,) * rank, tuple(range(devices)))

    @property
    def is_whole(self) -> bool:
        """Whether every device has the whole array."""
        return prod(self.tiles) == self.summands == 1

    @cached_property
    def table(self) -> np.ndarray:
        """Device numbers by tile index and replica, or summand and replica, of shape `(*tiles, others)`."""
        return np.array(self.devices).reshape(*self.tiles, len(self.devices) // prod(self.tiles))

    @cached_property
    def _tile_of(self) -> dict[int, tuple[int, ...]]:
        return {int(device): place[:-1] for place, device in np.ndenumerate(self.table)}

    def device_tile(self, device: int) -> tuple[int, ...]:
        """Returns the index of a device's tile along each dimension. Raises ValueError for a device that has none."""
        found = self._tile_of.get(device)
        if found is None:
            raise ValueError(f"expected one of {len(self.devices)} devices, got device {device}")
        return found

    def same_parts(self, other: TileAssignment) -> bool:
        """Whether each device has the same part under both."""
        if self.summands > 1 or other.summands > 1:
            return self == other
        return self.tiles == other.tiles and self._tile_of == other._tile_of

    def groups(self, dimension: int) -> np.ndarray:
        """Returns the devices whose adjacent parts make up a dimension, of shape `(groups, tiles[dimension])`."""
        return np.moveaxis(self.table, dimension, -1).reshape(-1, self.tiles[dimension])

    def summand_groups(self) -> np.ndarray:
        """Returns the devices whose summands make up a tile, of shape `(groups, summands)`."""
        return np.swapaxes(self.table.reshape(prod(self.tiles), self.summands, -1), 1, 2).reshape(-1, self.summands)

    def is_first(self, device: int) -> bool:
        """Whether a device has the first summand of its tile."""
        return device in self.summand_groups()[:, 0]

    def starts(self, dimension: int, extent: int) -> np.ndarray:
        """Returns, for each device, the first index of its part along a dimension of a whole array."""
        length = extent // self.tiles[dimension]
        return np.array([self.device_tile(d)[dimension] * length for d in range(len(self.devices))])

    def part_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of a part of a whole. Raises ValueError for another rank, or if parts would be unequal."""
        if len(shape) != len(self.tiles):
            raise ValueError(f"expected an array of rank {len(self.tiles)}, got shape {tuple(shape)}")
        for dimension, (extent, tiles) in enumerate(zip(shape, self.tiles, strict=True)):
            if extent % tiles:
                raise ValueError(
                    f"dimension {dimension} has size {extent}, which cannot be cut into {tiles} equal parts"
                )
        return tuple(extent // tiles for extent, tiles in zip(shape, self.tiles, strict=True))

    def part(self, array: np.ndarray, device: int) -> np.ndarray:
        """Returns a device's part of a whole array, as a view if it has elements of the array. Raises ValueError if the
        array cannot be split like this."""
        part = array[(..., *self._place(device, self.part_shape(array.shape)))]  # with "..." never a scalar
        return part if self.is_first(device) else np.zeros_like(part)

    def _place(self, device: int, part: tuple[int, ...]) -> tuple[slice, ...]:
        """Returns the slices of the whole that are a device's part."""
        tile = self.device_tile(device)
        return tuple(slice(at * n, (at + 1) * n) for at, n in zip(tile, part, strict=True))

    def assemble(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Returns a new whole array, assembled from each device's part or summand; of replicas, the first is used.
        Raises ValueError unless there is one part per device, all of one shape and dtype."""
        if len(parts) != len(self.devices):
            raise ValueError(f"expected {len(self.devices)} parts, one per device, got {len(parts)}")
        shape, dtype = parts[0].shape, parts[0].dtype
        if len(shape) != len(self.tiles):
            raise ValueError(f"expected parts of rank {len(self.tiles)}, got shape {shape}")
        for device, part in enumerate(parts):
            if part.shape != shape or part.dtype != dtype:
                expected, got = f"{dtype}{list(shape)}", f"{part.dtype}{list(part.shape)}"
                raise ValueError(
                    f"expected parts of one type, {expected} as on device 0, got {got} from device {device}"
                )
        array = np.empty(tuple(n * tiles for n, tiles in zip(shape, self.tiles, strict=True)), dtype)
        for first, *others in self.summand_groups().tolist()[:: self.table.shape[-1] // self.summands]:
            place = (..., *self._place(first, shape))
            array[place] = parts[first]
            for device in others:
                array[place] += parts[device]
        return array
