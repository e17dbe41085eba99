"""Line tiles of a convolution: the parameter table for some lines of an image.

The lines above a tile act as padding that the windows never reach, so `pad_h` is smaller by their number. A tile is
therefore an ordinary convolution of the same input, and the routine computes it without changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.convolution.description import SYMBOLS
from shlo_jit.kernels.convolution.shape import FIELDS
from shlo_jit.kernels.llvm_values import V, i64


class LineTileTable:
    """A copy of a table in the caller's memory, updated for each line tile. `fields`: the table decided for the largest
    tile of an image."""

    def __init__(self, b: Builder, constant: V, fields: Mapping[str, int]):
        self.b, self.fields, self.variant = b, fields, tuple(SYMBOLS)[fields["kind"]]
        self.is_direct = self.variant.leaf == "direct"
        has_channels = self.is_direct and self.variant.lanes == "features" and not self.variant.has_groups
        assert (has_channels or self.variant.rows == "pixels") and fields["batch"] == 1 and fields["od"] == 1
        self.pointer = b.alloca("i64", len(FIELDS))
        b.memcpy(self.pointer, constant, 8 * len(FIELDS))
        whole = self.is_direct
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
        """Writes the table for `lines` lines of the image from `first` on. Returns the offset in bytes of the tile's
        input from the address of the image."""
        b, f = self.b, self.fields
        above = b.mul(first, f["stride_h"])
        self._set("oh", lines)
        self._set("rows", b.mul(lines, f["ow"]))
        self._set("row_chunk", b.mul(lines, f["ow"]) if self.variant.gathers else lines)
        self._set("pad_h", b.sub(f["pad_h"], above))
        if f["copy_tasks"]:
            reach = (f["kh"] - 1) * f["rdil_h"] + 1
            self._set("copy_lines", b.add(b.mul(b.sub(lines, 1), f["stride_h"]), reach))
        elif self.variant.gathers:
            return b.mul(above, f["a_h"])
        elif not self.is_direct:
            self._set("a_corner", b.add(b.mul(above, f["a_h"]), f["a_corner"]))
        return i64(0)
