"""Packing of a kernel that a function of the caller computes: box by box, as `kernels/gemm/computed.py` packs operands
of products, so that the kernel as a whole is never in memory.

A box has some output features by some terms. It is computed `by_position`: the terms are input features of one window
position. Or, if the window positions of a feature are adjacent in the arrays that the function reads, as in OIHW
kernels, `by_rows`: the terms are all positions of some input features, and are transposed in registers.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.convolution.description import BY_POSITION, BY_ROWS, Variant
from shlo_jit.kernels.convolution.input import FRAME, TASK_PARAMS, copy_symbols, packers
from shlo_jit.kernels.convolution.kernel_panels import WeightsTask, emit_spread, spread_symbol
from shlo_jit.kernels.gemm.computed import BOX_TERMS, BOX_WIDTH
from shlo_jit.kernels.gemm.micro import attributes
from shlo_jit.kernels.gemm.precision import GemmPlan, GemmTypes, itemsize
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.kernels.target import Target

COMPUTED_PARAMS = (("ptr", "compute"), ("ptr", "computing"), ("i64", "box_k"), ("i64", "box_j"))
"""Parameters of the routine after the others. `compute` is `void (ptr computing, i64 position, i64 j0, i64 j1, i64 k0,
i64 k1, ptr box)`, which writes the elements of the kernel for these output features j (of all groups) and terms k of a
window position, or, by rows, for position 0 and the terms input feature * positions + position. `box_k` and `box_j` are
the strides of the box in elements, of which one is 1."""
ROW_TERMS = 256
"""About how many terms a box has by rows: as many bytes as by position, with as many output features as lanes."""


def panel_width(plan: GemmPlan, v: Variant) -> int:
    """Returns the output features of a panel."""
    return 1 if v.leaf == "dot" else plan.nr if v.rows == "pixels" else plan.mr


def how_computed(plan: GemmPlan, v: Variant, wanted: str) -> str:
    """Returns `wanted`, or by position if panels are not as wide as what is written by rows: several features and,
    without masks, whole vectors of them."""
    width = panel_width(plan, v)
    writes_panels = width > 1 if plan.masks else width % plan.lanes == 0
    return BY_POSITION if wanted == BY_ROWS and not writes_panels else wanted


def kernel_box(plan: GemmPlan, v: Variant, computes: str, positions: int) -> tuple[int, int]:
    """Returns the output features and the terms of a box. `positions`: of the window."""
    if computes == BY_ROWS:
        return plan.lanes, max(1, ROW_TERMS // positions) * positions
    width = panel_width(plan, v)
    return max(width, BOX_WIDTH // width * width), BOX_TERMS


def emit_computed_weights_task(module: ModuleText, types: GemmTypes, target: Target, v: Variant, computes: str) -> str:
    """Emits the task that computes and packs some panels of one group's features, for some window positions. Returns
    its name."""
    name = f"{copy_symbols(types)[1]}_computed"
    b = module.function(name, TASK_PARAMS, attributes=attributes(target))
    task = _ComputedTask(b, types, target)
    if computes == BY_ROWS:
        emit_spread(module, types, target)
        task.by_rows()
    else:
        task.by_boxes(panel_width(task.plan, v), *kernel_box(task.plan, v, computes, 1))
    b.ret()
    return name


class _ComputedTask(WeightsTask):
    """Some panels of one group's features, which are computed."""

    def by_boxes(self, width: int, columns: int, most: int) -> None:
        """Computes and packs one window position after the other. `width`: the features of a panel; `columns`, `most`:
        those of a box, and its terms."""
        b, size = self.b, itemsize(self.types.b)
        compute, computing, box_k, box_j = self._words()
        box = self._memory()
        first = b.mul(self.block, self.each)
        last = b.min_(b.add(first, self.each), self.positions)
        with (
            b.loop(first, last, hint="tap") as position,
            b.loop(0, self.count, columns, "columns") as j,
            b.loop(0, self.ci, most, "terms") as k,
        ):
            count, terms = b.min_(b.sub(self.count, j), columns), b.min_(b.sub(self.ci, k), most)
            start = b.add(self.first, j)
            b.call_pointer("void", compute, [computing, position, start, b.add(start, count), k, b.add(k, terms), box])
            to = b.offset(self.to, b.add(b.mul(position, self.step), b.mul(b.udiv(j, width), self.panel_bytes)))
            strides = [b.mul(box_j, size), b.mul(box_k, size)]
            args = [box, *strides, b.offset(to, b.mul(k, self.row)), i64(width), count, terms, self.panel_bytes]
            b.call("void", packers(self.types, self.target)[1].name, args)

    def by_rows(self) -> None:
        """Computes and packs all window positions of some features after the others."""
        b, n, size = self.b, self.plan.lanes, itemsize(self.types.b)
        compute, computing, _, box_j = self._words()
        box, features = self._memory(), b.max_(b.udiv(i64(ROW_TERMS), self.positions), 1)
        with b.loop(0, self.count, self.width, "panel") as j:
            width = b.min_(b.sub(self.count, j), self.width)
            panel = b.offset(self.to, b.mul(b.udiv(j, self.width), self.panel_bytes))
            with b.loop(0, width, n, "row") as r, b.loop(0, self.ci, features, "terms") as k:
                rows, some = b.min_(b.sub(width, r), n), b.min_(b.sub(self.ci, k), features)
                start, at = b.add(self.first, b.add(j, r)), b.mul(k, self.positions)
                run = b.mul(some, self.positions)
                b.call_pointer("void", compute, [computing, i64(0), start, b.add(start, rows), at, b.add(at, run), box])
                to = b.offset(panel, b.add(b.mul(r, self.plan.unit_bytes), b.mul(k, self.row)))
                args = [box, b.mul(box_j, size), rows, run, self.positions, to, self.step, self.row]
                b.call("void", spread_symbol(self.types), args)

    def _words(self) -> list[V]:
        """What the routine has added to the frame."""
        b = self.b
        types = [type for type, _ in COMPUTED_PARAMS]
        return [b.load(type, b.offset(self.g.frame, 8 * (len(FRAME) + i)), align=8) for i, type in enumerate(types)]

    def _memory(self) -> V:
        """The worker's memory."""
        b, g = self.b, self.g
        at = b.add(g.get("scratch_workers"), b.mul(self.worker, g.get("worker_bytes")))
        return b.offset(g.pointer("scratch"), at)
