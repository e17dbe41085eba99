"""Some lines of an image by a convolution's routine: its table for them.

What is above them is padding that they do not reach, `pad_h` lines less of it; so they are a convolution like any
other, of the same input, which the routine makes of its own accord when the table says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.shape import (
    DEPTHWISE,
    DEPTHWISE_3X3,
    DEPTHWISE_5X5,
    FEATURES_FEW,
    FIELDS,
    LAST_GATHER,
    LAST_IN_PLACE,
)
from shlo_jit.kernels.llvm_values import V, i64

BY_CHANNELS = (DEPTHWISE, DEPTHWISE_3X3, DEPTHWISE_5X5)
BY_LINES = (*BY_CHANNELS, FEATURES_FEW, LAST_GATHER, LAST_IN_PLACE)
"""Ways that some lines can go: features are adjacent."""


class BandTable:
    """A copy of a table in memory of the caller's, and what is written to it for some lines. `fields`: the table, as it
    was decided for the most lines that there are, of one image."""

    def __init__(self, b: Builder, constant: V, fields: Mapping[str, int]):
        assert fields["kind"] in BY_LINES and fields["batch"] == 1 and fields["od"] == 1
        self.b, self.fields = b, fields
        self.pointer = b.alloca("i64", len(FIELDS))
        b.memcpy(self.pointer, constant, 8 * len(FIELDS))
        whole = fields["kind"] in BY_CHANNELS
        self._set("row_chunks", 1)
        self._set("column_chunks", 1 if whole else fields["column_chunks"])
        self._set("main_tasks", 1 if whole else fields["column_chunks"] * fields["groups"])
        if whole:
            self._set("nc", fields["groups"])

    def _set(self, name: str, value: V | int) -> None:
        b = self.b
        b.store(
            i64(value) if isinstance(value, int) else value, b.offset(self.pointer, 8 * FIELDS.index(name)), align=8
        )

    def set(self, first: V, lines: V) -> V:
        """Write what stands for so many lines of the image from `first` on. How many bytes behind the address of the
        image the input is."""
        b, f = self.b, self.fields
        above = b.mul(first, f["stride_h"])
        self._set("oh", lines)
        self._set("rows", b.mul(lines, f["ow"]))
        self._set("row_chunk", b.mul(lines, f["ow"]) if f["kind"] == LAST_GATHER else lines)
        self._set("pad_h", b.sub(f["pad_h"], above))
        if f["copy_tasks"]:
            reach = (f["kh"] - 1) * f["rdil_h"] + 1
            self._set("copy_lines", b.add(b.mul(b.sub(lines, 1), f["stride_h"]), reach))
        elif f["kind"] == LAST_GATHER:
            return b.mul(above, f["a_h"])
        elif f["kind"] not in BY_CHANNELS:
            self._set("a_corner", b.add(b.mul(above, f["a_h"]), f["a_corner"]))
        return i64(0)
