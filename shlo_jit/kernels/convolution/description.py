"""Description of how a convolution runs: the loops of its leaf, the layout of its operands, and its tasks.

A schedule decides all of it (`schedule/convolution_decisions.py`). The routine's code follows from the variant, and the
numbers in its table (`table.py`) from the description and the shape.
"""

from __future__ import annotations

from typing import NamedTuple


class Variant(NamedTuple):
    """The innermost loops, for which the routine has code."""

    leaf: str
    """`tiles`: register tiles of a product; `dot`: products whose sums run along the lanes; `direct`: no products, a
    sum per lane."""
    lanes: str
    """The loop that runs along the lanes: `features`, `pixels`, or `k` (the window and its input features)."""
    rows: str = ""
    """The loop that runs along the rows of a register tile: `pixels`, `features` or `images`."""
    gathers: bool = False
    """Whether tasks gather pixels into panels; otherwise pixels of a line are read at a constant distance."""
    window: int = 0
    """Height and width of windows whose weights stay in registers; 0 if they do not."""
    has_groups: bool = False
    """Whether the lanes hold several groups of a few channels."""


SYMBOLS = {
    Variant("tiles", "features", "pixels"): "pixels",
    Variant("tiles", "features", "pixels", gathers=True): "gathered",
    Variant("tiles", "pixels", "features", gathers=True): "first",
    Variant("direct", "features"): "depthwise",
    Variant("direct", "pixels"): "planes",
    Variant("tiles", "features", "images"): "images",
    Variant("direct", "features", window=3): "depthwise_3x3",
    Variant("direct", "features", window=5): "depthwise_5x5",
    Variant("dot", "k", "pixels"): "few",
    Variant("direct", "features", has_groups=True): "grouped",
}
"""All variants, in the order of their numbers in the table, with the end of the routine's symbol."""
IN_PLACE = Variant("tiles", "features", "pixels")
GATHERED = IN_PLACE._replace(gathers=True)
BY_POSITION, BY_ROWS = "by_position", "by_rows"
"""How kernels are computed; see `computed_kernel.py`."""
NUMBERS = {variant: number for number, variant in enumerate(SYMBOLS)}


class Description(NamedTuple):
    """How a convolution runs. The numbers do not depend on that of the threads."""

    variant: Variant
    image: str
    """How the image is read: `in_place`; from a padded copy that all tasks share (`shared`); or in place, with copies
    by the tasks of what windows beyond it read (`margins`)."""
    kernel: str
    """Where the kernel is packed: `in_place` (not at all), `shared` (by the first tasks), or `ahead` of all calls."""
    rows: int
    """Rows of a task: lines of pixels; pixels if they are gathered, or if images are rows; features if these are
    rows."""
    columns: int = 0
    """Columns of a task: features, or pixels if features are rows; 0 if there are no other tasks along them."""
    tile: int = 0
    """Pixels of a line that a register tile takes."""
    part: int = 0
    """Pixels of a part of a line that counts as a line of its own; 0 if lines are whole."""
    runs: int = 0
    """Contiguous runs of k per call of a register tile."""
    skips_lines: bool = False
    """Whether lines of the window that read only padding are left out."""
    edge: int = 0
    """Height of a dedicated tile for the ends of lines, where columns of the window that read only padding are left
    out; 1: without such a tile; 0: no column is left out."""
    copy_bytes: int = 0
    """Approximate bytes that a task copies of the image or packs of the kernel."""
    panels: int = 0
    """Panels that a task packs of the kernel, at most."""
    serial: int = 0
    """Multiply-adds that the caller does alone."""
    computes: str = ""
    """How the kernel is computed while it is packed: `by_position` or `by_rows`, see `computed_kernel.py`; empty if it
    is in memory."""


class Form(NamedTuple):
    """What the code of a routine depends on, besides types and target."""

    variant: Variant
    specialized: int = 0
    """The size that the code is specialized for: the height of a dedicated tile for the lines, the number of output
    features if sums run along the lanes, or the channels of a group; 0 if there is none."""
    edge: int = 0
    """See `Description.edge`."""
    serial: int = 0
    """See `Description.serial`."""
    computes: str = ""
    """See `Description.computes`."""
