"""Packing of a constant convolution kernel at compile time, with NumPy: the panels that `emit_weights_task` makes at
run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.kernels.gemm.prepacked import UNITS, bytes_of_zeros
from shlo_jit.kernels.target import Target


def prepack_kernel(
    kernel: np.ndarray,
    width: int,
    blocks: Sequence[int],
    types: GemmTypes,
    target: Target,
    zeros: Callable[[int], np.ndarray] = bytes_of_zeros,
) -> np.ndarray:
    """Returns the panels of a kernel [group, window position, input feature, output feature] (any strides), as bytes.

    Each panel has `width` output features. The order is: groups, blocks of k (`decision.kernel_blocks`), panels, and in
    a panel window positions, then input features; so data that is read together is contiguous. The last panel of a
    block is filled up with zeros. `zeros` allocates the memory: u8 of the given size."""
    groups, positions, ci, co = kernel.shape
    unit = UNITS[conv_plan(types, target).unit]
    panels, whole = -(-co // width), co // width
    out = zeros(groups * positions * ci * panels * width * unit.itemsize).view(unit).reshape(groups, -1)
    rows, at = kernel.reshape(groups, positions * ci, co), 0
    for k in blocks:
        size = k * panels * width
        block = out[:, at * panels * width :][:, :size].reshape(groups, panels, k, width)
        part = rows[:, at : at + k]
        block[:, :whole] = part[..., : whole * width].reshape(groups, k, whole, width).transpose(0, 2, 1, 3)
        if co % width:
            block[:, whole, :, : co % width] = part[..., whole * width :]
        at += k
    return out.view(np.uint8).reshape(-1)
