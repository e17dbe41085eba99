"""Packing of a constant B at compile time, with NumPy: the panels that `pack.py` makes at run time.

The order is: products, blocks of k (`policy.k_block`), panels. A panel has the header of its columns first if the plan
has one, then the steps of k. The last panel and step are filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from shlo_jit.kernels.gemm.pack import pack_plans
from shlo_jit.kernels.gemm.policy import k_block
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.gemm.staged_numbers import Ints

UNITS = {"double": np.dtype(np.float64), "float": np.dtype(np.float32), "half": np.dtype(np.float16)}
UNITS |= {f"i{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)}
UNITS["bfloat"] = np.dtype(ml_dtypes.bfloat16)
"""NumPy types by LLVM type; the sign of an integer does not change its bits."""


def bytes_of_zeros(size: int) -> np.ndarray:
    return np.zeros(size, np.uint8)


def prepacked_bytes(plan: GemmPlan, n: int, k: int, kc: int | None = None) -> int:
    """Returns the bytes of one product's panels. `kc`: elements of k per pass, if they are given."""
    each = k_block(Ints(), plan, k, True) if kc is None else kc
    return -(-n // plan.nr) * sum(plan.panel_bytes(min(each, k - at)) for at in range(0, k, each))


def prepack(
    plan: GemmPlan, b: np.ndarray, zeros: Callable[[int], np.ndarray] = bytes_of_zeros, kc: int | None = None
) -> np.ndarray:
    """Returns the panels of `b` [batch, k, n] (any strides), which has the plan's element type, as bytes. Products
    follow each other, `prepacked_bytes` each, which is a multiple of the element's size. `zeros` allocates the memory:
    u8 of the given size. `kc`: elements of k per pass, if they are given."""
    batch, k, n = b.shape
    each = k_block(Ints(), plan, k, True) if kc is None else kc
    out, panels, at = zeros(batch * prepacked_bytes(plan, n, k, each)).reshape(batch, -1), -(-n // plan.nr), 0
    for first in range(0, k, each):
        block = b[:, first : first + each]
        size = panels * plan.panel_bytes(block.shape[1])
        _pack_block(plan, block, out[:, at : at + size].reshape(batch, panels, -1))
        at += size
    return out.reshape(-1)


def _pack_block(plan: GemmPlan, block: np.ndarray, out: np.ndarray) -> None:
    """Packs `block` [batch, k, n] into `out` [batch, panel, bytes], which is zero."""
    batch, k, n = block.shape
    pack = pack_plans(plan)[1]
    body = out[:, :, plan.header :]
    steps, whole = body.shape[2] // plan.b_step, n // plan.nr
    if plan.group > 1:
        # A unit holds `group` consecutive steps of k of a column.
        word = block.dtype if plan.kind != "pairs" else np.dtype(np.int16)
        units = body.reshape(*body.shape[:2], steps, plan.nr, plan.group, word.itemsize).view(word)[..., 0]
        source = block
        if k % plan.group:
            source = np.concatenate([block, np.zeros((batch, -k % plan.group, n), block.dtype)], 1)
        source = source.reshape(batch, -1, plan.group, n)
        used = source.shape[1]
        main = source[..., : whole * plan.nr].reshape(batch, used, plan.group, whole, plan.nr)
        units[:, :whole, :used] = main.transpose(0, 3, 1, 4, 2)
        if n % plan.nr:
            units[:, whole, :used, : n % plan.nr] = source[..., whole * plan.nr :].transpose(0, 1, 3, 2)
    else:
        # The real parts of a step, then the imaginary ones.
        parts = np.stack([np.real(block), np.imag(block)], axis=-1) if plan.parts == 2 else block[..., None]
        unit = UNITS[plan.unit]
        units = body.reshape(*body.shape[:2], steps, -1).view(unit).reshape(*body.shape[:2], steps, plan.parts, plan.nr)
        main = parts[:, :, : whole * plan.nr].reshape(batch, k, whole, plan.nr, plan.parts)
        units[:, :whole, :k] = main.transpose(0, 2, 1, 4, 3)
        if n % plan.nr:
            units[:, whole, :k, :, : n % plan.nr] = parts[:, :, whole * plan.nr :].transpose(0, 1, 3, 2)
    if pack.header:
        sums = block.sum(axis=1, dtype=np.int32) * np.int32(pack.header)
        heads = np.zeros((batch, out.shape[1] * plan.nr), np.int32)
        heads[:, :n] = sums
        out[:, :, : plan.header] = heads.reshape(batch, -1, plan.nr).view(np.uint8)
