"""Arguments and results whose shapes are not known before a call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shlo_jit.ir.dtypes import DType
from shlo_jit.runtime.arguments import shape_text


class DynamicSignature(NamedTuple):
    """An argument or result of a program with unknown dimensions."""

    name: str
    """Empty if it has no name."""
    shape: tuple[int | None, ...] | None
    """Extents; an unknown one is None. The shape itself is None if even the rank is unknown."""
    dtype: np.dtype
    bounds: tuple[int | None, ...] | None = None
    """Upper bounds of unknown dimensions, if any has one."""

    def __str__(self) -> str:
        return f"{self.dtype.name}[{shape_text(self.shape, self.bounds)}]"


class DynamicPort(NamedTuple):
    """An argument or result. The fields are those of its signature, except the dtype."""

    name: str
    shape: tuple[int | None, ...] | None
    dtype: DType
    bounds: tuple[int | None, ...] | None = None

    @property
    def is_static(self) -> bool:
        return self.shape is not None and None not in self.shape

    @property
    def signature(self) -> DynamicSignature:
        return DynamicSignature(self.name, self.shape, self.dtype.numpy, self.bounds)
