"""Panels of a convolution's kernel made when a program is compiled, from a constant: what `emit_weights_task` makes at
run time, by NumPy."""

from __future__ import annotations

import numpy as np

from shlo_jit.kernels.convolution.shape import conv_plan
from shlo_jit.kernels.gemm.prepacked import UNITS
from shlo_jit.kernels.gemm.types import GemmTypes
from shlo_jit.kernels.target import Target


def prepack_kernel(kernel: np.ndarray, width: int, types: GemmTypes, target: Target) -> np.ndarray:
    """The panels of a kernel [group, tap, input feature, output feature] (any strides), `width` output features each,
    as bytes: group after group, panel after panel, tap after tap, input feature after input feature. What fills up the
    last panel of a group is zero."""
    groups, taps, ci, co = kernel.shape
    unit = UNITS[conv_plan(types, target).unit]
    panels = np.zeros((groups, -(-co // width), taps, ci, width), unit)
    whole = co // width
    main = kernel[..., : whole * width].reshape(groups, taps, ci, whole, width)
    panels[:, :whole] = main.transpose(0, 3, 1, 2, 4)
    if co % width:
        panels[:, whole, :, :, : co % width] = kernel[..., whole * width :]
    return panels.view(np.uint8).reshape(-1)
