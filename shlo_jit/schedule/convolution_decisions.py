"""Decisions about a convolution: the leaf, the layout of its operands, the sizes of tiles and tasks.

`decide` makes them once per convolution, one after the other. A move that the caller gave decides; if there is none,
the shape does, and what is decided already. The result is a description, which the routine gets, and the same as moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar, cast

from shlo_jit import tuning
from shlo_jit.kernels.convolution.computed_kernel import how_computed
from shlo_jit.kernels.convolution.description import GATHERED, IN_PLACE, Description, Variant
from shlo_jit.kernels.convolution.geometry import Geometry
from shlo_jit.kernels.convolution.legality import against_edge, against_field, against_image, against_variant
from shlo_jit.kernels.convolution.narrow import pixels_together
from shlo_jit.kernels.convolution.table import conv_table, form_of, number_of_tasks
from shlo_jit.kernels.gemm.known_sizes import register_tile
from shlo_jit.reasons import Reason
from shlo_jit.schedule import convolution_tasks as tasks
from shlo_jit.schedule.convolution_edges import edge_tile
from shlo_jit.schedule.moves import (
    EdgeTiles,
    IllegalMove,
    Move,
    Pack,
    Parallel,
    SkipPadding,
    Split,
    Unroll,
    UseLeaf,
    Vectorize,
    of_kind,
)
from shlo_jit.schedule.space import GIVEN, OMITTED
from shlo_jit.sizes import Size, hint_of

M = TypeVar("M", bound=int | str)
WHY_VARIANT = {
    Variant("direct", "features", window=3): Reason("depthwise-small-window", "one contiguous channel each, 3 x 3"),
    Variant("direct", "features", window=5): Reason("depthwise-small-window", "one contiguous channel each, 5 x 5"),
    Variant("direct", "features"): Reason("depthwise-channels", "one input channel per result channel, contiguous"),
    Variant("direct", "features", has_groups=True): Reason("small-groups", "groups of channels divide the lanes"),
    Variant("direct", "pixels"): Reason("depthwise-pixels", "one input channel per result channel, in planes"),
    Variant("tiles", "features", "images"): Reason("images-contiguous", "images are contiguous in the input"),
    Variant("dot", "k", "pixels"): Reason(
        "few-channels", f"at most {tuning.CONV_FEW_FEATURES} result channels, and window lines that fill the lanes"
    ),
    IN_PLACE: Reason("lines-fill-tiles", "channels are contiguous, and lines leave few rows of tiles idle"),
    GATHERED: Reason("lines-leave-idle-rows", "channels are contiguous, and lines would leave rows of tiles idle"),
    Variant("tiles", "pixels", "features", gathers=True): Reason("pixels-contiguous", "pixels are contiguous"),
}
"""The variants in the order in which they are preferred, and why each is chosen."""
WHY_PACK = {
    "in_place": Reason("windows-inside", "all windows lie inside the image"),
    "margins": Reason("few-margins", "most windows lie inside the image"),
    "shared": Reason("padded-copy", "no pixel needs a bounds check then"),
}
WHY_PANELS = {
    "ahead": Reason("constant-operand", "it is constant"),
    "shared": Reason("tiles-read-panels", "register tiles read panels of it"),
}
NO_PANELS = Reason("leaf-not-there", "the kernel is computed while it is packed, and this leaf reads it in place")
PER_CALL = Reason("terms-per-call", f"up to {tuning.CONV_CALL_K:,} terms, one run, or one line of the window")
CUT_LINE = Reason("line-cut", "a single line is cut, so that there are tasks for all threads")
FINITE = Reason("constant-finite-kernel", "the kernel is constant and finite, so its products with padding are zero")
LITTLE = Reason("edges-save-little", "edge tiles would save too little")
BY_WORK = Reason("tasks-by-work", "tasks have about the same work, and are equal if they are few")
BY_PIXELS = Reason("tasks-by-pixels", "several pixels, so that operands are not re-read for each")


class Problem(NamedTuple):
    """The facts that decisions depend on."""

    geometry: Geometry
    is_constant: bool
    """Whether the kernel is known when the program is compiled."""
    is_finite: bool = False
    """Whether it is known to have only finite numbers, so that its products with padding are zero."""
    calls: int = 1
    """Approximate number of calls with this shape."""
    computes: str = ""
    """How the kernel is best computed while it is packed; empty if it is in memory."""


class Decisions(NamedTuple):
    """What is decided about a convolution."""

    description: Description
    table: tuple[int, ...]
    """The same as the table of the routine."""
    moves: tuple[Move, ...]
    """The same as moves, in the order in which they are made."""
    why_tasks: Reason
    is_alone: bool
    """Whether moves leave work to one thread that threads would share."""


def decide(p: Problem, moves: Sequence[Move] | None = None) -> Decisions:
    """Returns the decisions about a convolution. `moves`: those of a caller, if there are any; some may be of no use.
    Raises IllegalMove, and ValueError if neither features nor pixels of the output are adjacent."""
    d = _Decider(p, moves or ()).decide()
    table = conv_table(p.geometry, d)
    made, why = [*moves_of(p, d)], _why_tasks(p, d, number_of_tasks(table))
    parallel = next(iter(of_kind(moves or (), Parallel)), None)
    is_small = why.code == "too-little-work"
    if is_small and parallel is not None:
        raise IllegalMove(parallel, why)
    is_alone = moves is not None and parallel is None and not is_small
    if not is_small and not is_alone:
        made.append(Parallel(1, why=why))
    made = [replace(move, why=GIVEN) if move in (moves or ()) else move for move in made]
    return Decisions(d, table, tuple(made), OMITTED if is_alone else why, is_alone)


def _why_tasks(p: Problem, d: Description, number: int) -> Reason:
    work = tasks.work_of(p.geometry)
    if not isinstance(work, Size) and work <= d.serial:
        return Reason("too-little-work", f"{work:,} multiply-adds; the caller does up to {d.serial:,} alone")
    each = hint_of(work) // max(1, hint_of(number))
    if d.variant.rows == "images":
        return BY_PIXELS._replace(text=f"{work:,} multiply-adds, {each:,} per task; {BY_PIXELS.text}")
    aim = tasks.work_per_task(d.variant)
    cut = f"whole lines of about {aim:,} at most, and equal tasks if they are few"
    return BY_WORK._replace(text=f"{work:,} multiply-adds, {each:,} per task; {cut}")


# ---------------------------------------------------------------------- descriptions and moves
def moves_of(p: Problem, d: Description) -> Iterator[Move]:
    """Yields the moves that lead to a description, except `parallel`."""
    g, v, why = p.geometry, d.variant, WHY_VARIANT[d.variant]
    run = g.runs(d.image, v.lanes).run
    yield from (UseLeaf(v.leaf, why=why), Vectorize(v.lanes, g.plan.lanes, why=why))
    if v.leaf == "direct" and v.lanes == "features" and not v.has_groups:
        yield Unroll("window", v.window or 1, why=why)
    if v.leaf == "dot":
        yield Unroll("pixels", pixels_together(g.shape.co, g.target)[0], why=why)
    if v.leaf == "tiles":
        yield Unroll(v.rows, d.tile if v == IN_PLACE else g.plan.mr, why=register_tile(g.plan))
    yield Pack("image", d.image, why=WHY_PACK[d.image])
    if v.leaf == "tiles":
        yield Pack("pixels", "private" if v.gathers else "in_place", why=why)
    yield Pack("kernel", d.kernel, why=why if d.kernel == "in_place" else WHY_PANELS[d.kernel])
    if d.skips_lines and _reads_lines(v):
        yield SkipPadding(why=FINITE)
    if against_field(g, d, "edge", is_constant=p.is_constant, is_finite=p.is_finite) is None:
        yield EdgeTiles(d.edge, why=FINITE if d.edge else LITTLE)
    if d.runs and not isinstance(run, Size) and run > 0:
        yield Split("k", d.runs * run, why=PER_CALL)
    if d.part:
        yield Split("width", d.part, why=CUT_LINE)
    why = BY_PIXELS if v.rows == "images" else BY_WORK
    if v.rows == "features":
        yield Split("features", d.rows, why=why)
    else:
        yield Split("lines" if v.leaf != "tiles" or v == IN_PLACE else "pixels", d.rows, why=why)
    if d.columns and v.leaf != "dot":
        yield Split("pixels" if v.rows == "features" else "features", d.columns, why=why)


def _reads_lines(v: Variant) -> bool:
    return v == IN_PLACE or v.leaf == "dot"


def _field_of(move: Move) -> str:
    """Returns the field of a description that a move decides; empty if it is about the variant, or decides nothing."""
    if isinstance(move, Pack):
        return move.operand if move.operand in ("image", "kernel") else ""
    if isinstance(move, EdgeTiles):
        return "edge"
    if isinstance(move, Unroll):
        return "tile" if move.loop == "pixels" else ""
    fields = {"k": "runs", "width": "part", "lines": "rows", "pixels": "rows", "features": "columns"}
    return fields.get(str(move.loop), "") if isinstance(move, Split) else ""


def _agrees(v: Variant, move: Move) -> bool:
    """Whether a variant does what a move asks for, as far as variants differ in it."""
    if isinstance(move, UseLeaf):
        return move.leaf == v.leaf
    if isinstance(move, Vectorize):
        return move.loop == v.lanes
    if isinstance(move, Unroll):
        if move.loop == "window":
            return v.leaf == "direct" and v.lanes == "features" and not v.has_groups and move.by == (v.window or 1)
        return move.loop == v.rows
    if isinstance(move, Pack) and move.operand == "pixels":
        return v.leaf == "tiles" and move.where == ("private" if v.gathers else "in_place")
    if isinstance(move, Pack) and move.operand == "kernel":
        return (move.where == "in_place") == (v.leaf == "direct" or v.rows == "images")
    if isinstance(move, Split) and move.loop in ("lines", "pixels"):
        return (move.loop == "lines") == (v.leaf != "tiles" or v == IN_PLACE)
    is_of_lines = isinstance(move, SkipPadding) or (isinstance(move, Split) and move.loop == "width")
    if is_of_lines or (isinstance(move, Pack) and move.where == "margins"):
        return _reads_lines(v)
    return v == IN_PLACE if isinstance(move, EdgeTiles) else True


# ---------------------------------------------------------------------- decisions
class _Decider:
    def __init__(self, p: Problem, moves: Sequence[Move]):
        self.p, self.g, self.moves = p, p.geometry, moves
        self.given: dict[str, tuple[Move, int | str]] = {}
        """For a field of the description, the caller's first move about it, with the value."""
        for move in moves:
            field = _field_of(move)
            value = next(reversed(move.arguments.values())) if field else 0
            if field and field != "edge" and value == 0:
                raise IllegalMove(move, Reason("split-out-of-range", "expected 1 or more"))
            if field:
                self.given.setdefault(field, (move, value))

    def decide(self) -> Description:
        """Returns the description. Raises IllegalMove for a field that the routine cannot carry out."""
        v, options = self._variant()
        if v.leaf == "direct":
            d = self._direct(v)
        elif v.leaf == "dot":
            d = self._dot(v)
        elif v.rows == "pixels":
            d = self._pixels([v for v in options if v in (IN_PLACE, GATHERED)])
        else:
            d = self._images(v) if v.rows == "images" else self._features(v)
        for field, (move, _) in self.given.items():
            why = against_field(self.g, d, field, is_constant=self.p.is_constant, is_finite=self.p.is_finite)
            if why is not None:
                raise IllegalMove(move, why)
        is_bound_by_memory = v.leaf != "tiles" and not v.has_groups
        return d._replace(serial=tuning.PARALLEL_WORK if is_bound_by_memory else tuning.GEMM_SERIAL)

    def _or(self, field: str, decided: M) -> M:
        """Returns the caller's value of a field if there is one."""
        return cast(M, self.given[field][1]) if field in self.given else decided

    def _variant(self) -> tuple[Variant, list[Variant]]:
        """Returns the variant, and all that can compute the convolution and agree with the moves."""
        g, is_constant = self.g, self.p.is_constant
        refusals = {v: against_variant(g, v, self._image(), is_constant=is_constant) for v in WHY_VARIANT}
        if self.p.computes:
            refusals |= {v: NO_PANELS for v in WHY_VARIANT if v.leaf == "direct" or v.rows == "images"}
        options, asked = [v for v, why in refusals.items() if why is None], [*WHY_VARIANT]
        if not options:
            raise ValueError("expected a convolution output with adjacent features or adjacent pixels, found neither")
        for move in self.moves:
            asked = [v for v in asked if _agrees(v, move)]
            options = [v for v in options if v in asked]
            if not options:
                none = Reason("leaf-not-there", "no kernel of a convolution has these loops")
                raise IllegalMove(move, next((why for v in asked if (why := refusals[v])), none))
        return next((v for v in options if self._pays(v)), options[0]), options

    def _pays(self, v: Variant) -> bool:
        """Whether a variant that can compute the convolution is as fast as those after it in WHY_VARIANT."""
        s, (_, kh, kw) = self.g.shape, self.g.window
        if v.rows == "images":
            return s.batch >= tuning.CONV_ADJACENT_IMAGES and kh * kw >= tuning.CONV_ADJACENT_WINDOW
        if v.leaf == "dot":
            return s.co <= tuning.CONV_FEW_FEATURES and hint_of(self.g.k) >= tuning.CONV_FEW_STEPS * s.co
        return v != Variant("direct", "pixels") or s.co <= tuning.CONV_PLANE_FEATURES

    # ------------------------------------------------------------------ variants
    def _direct(self, v: Variant) -> Description:
        image = self._or("image", "in_place")
        if v.lanes == "pixels":
            return Description(v, image, "in_place", self._or("rows", tasks.task_of_planes(self.g).rows))
        task = tasks.task_of_channels(self.g)
        return Description(v, image, "in_place", self._or("rows", task.rows), self._or("columns", task.columns))

    def _images(self, v: Variant) -> Description:
        image = self._or("image", "in_place" if self.g.with_images_as_channels.reads_in_place else "shared")
        rows = self._or("rows", tasks.pixels_of_images(self.g))
        return Description(v, image, "in_place", rows, copy_bytes=tuning.CONV_COPY_BYTES)

    def _features(self, v: Variant) -> Description:
        d, g = self._product(v), self.g
        columns = self._or("rows", tasks.pixels_of_features(g, max(1, g.runs(d.image, v.lanes).run * d.runs)))
        return d._replace(columns=columns, rows=self._or("columns", tasks.features_of_task(g, columns)))

    def _dot(self, v: Variant) -> Description:
        d, co = self._product(v), self.g.shape.co
        part = self._or("part", tasks.part_of_line(self.g, tasks.pixels_of_dot(self.g), co, self.p.calls))
        width = max(1, part or self.g.output[2])
        rows = self._or("rows", tasks.lines_of_dot(self.g, self._lines(part), width))
        return d._replace(rows=rows, columns=co, tile=width, part=part)

    def _pixels(self, options: Sequence[Variant]) -> Description:
        """Decides for tiles whose rows are pixels, read in place or gathered as `options` allow."""
        g, calls, d = self.g, self.p.calls, self._product(options[0])
        task = tasks.task_of_pixels(g, max(1, g.runs(d.image).run * d.runs))
        task = task._replace(columns=self._or("columns", task.columns))
        part = tasks.part_of_line(g, task.rows, task.columns, calls) if IN_PLACE in options else 0
        part = self._or("part", part)
        width = max(1, part or g.output[2])
        tile = tasks.tile_of_line(g, width, calls)[0]
        if GATHERED in options and not (IN_PLACE in options and tasks.fills_tiles(g, width, task.columns, calls)):
            task = tasks.gathered_of_task(g, task)
            return d._replace(variant=GATHERED, rows=self._or("rows", task.rows), columns=task.columns, tile=tile)
        tile = self._or("tile", tile)
        task = tasks.lines_of_task(g, self._lines(part), width, tile, task, is_fixed="columns" in self.given)
        d = d._replace(variant=IN_PLACE, rows=self._or("rows", task.rows), columns=task.columns, tile=tile, part=part)
        few = against_image(g, d._replace(image="margins")) is None and tasks.has_small_margins(g, tile, task.columns)
        d = d._replace(image=self._or("image", "margins" if few else d.image))
        return d._replace(edge=self._or("edge", self._edge(d)))

    # ------------------------------------------------------------------ operands and sizes
    def _image(self, rows: str = "pixels") -> str:
        """Returns how the image is read, unless the margins are few."""
        in_place = self.g.reads_lines_in_place if rows == "features" else self.g.reads_in_place
        return self._or("image", "in_place" if in_place else "shared")

    def _product(self, v: Variant) -> Description:
        """Returns what all products have that read panels of the kernel, without the sizes of tiles and tasks."""
        g, image = self.g, self._image(v.rows)
        run, number, _ = g.runs(image, v.lanes)
        runs = tasks.runs_of_call(g, run, number, v)
        if "runs" in self.given:
            move, terms = self.given["runs"]
            runs, rest = (0, 1) if isinstance(run, Size) or run < 1 else divmod(int(terms), run)
            if rest:
                raise IllegalMove(move, Reason("split-out-of-range", f"a call has a multiple of {run} terms"))
        skips = self.p.is_finite and g.window[0] == 1 and g.has_idle_positions(1)
        kernel = self._or("kernel", "ahead" if self.p.is_constant else "shared")
        panels = tuning.CONV_WINDOW_PANELS if g.window_size > 1 else tuning.CONV_PIXEL_PANELS
        d = Description(v, image, kernel, rows=0, runs=runs, skips_lines=skips, panels=panels)
        return d._replace(copy_bytes=tuning.CONV_COPY_BYTES, computes=how_computed(g.plan, v, self.p.computes))

    def _lines(self, part: int) -> int:
        """Returns the lines of all images; parts of lines count as lines."""
        g = self.g
        return g.shape.batch * g.output[0] * (-(-g.output[2] // part) if part else g.output[1])

    def _edge(self, d: Description) -> int:
        """Returns the height of the dedicated tile for the ends of lines; see `Description.edge`."""
        g, line = self.g, self.g.line(2)
        if line is None or against_edge(g, d, is_finite=self.p.is_finite) is not None:
            return 0
        steps = g.shape.ci * (hint_of(d.runs) if g.runs(d.image).are_lines else 1)
        work = hint_of(tasks.work_of(g)) * self.p.calls
        return edge_tile(g.plan, line, d.tile, form_of(g, d).specialized, steps, work)
