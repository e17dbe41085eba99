"""Schedule of the sum over a batch of products (see `fuse/summed_products.py`): a loop on the tiles of each product."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.fuse.plan import ComputedOperandStep
from shlo_jit.fuse.summed_products import on_one_product
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import tensor
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.epilogue import Epilogue
from shlo_jit.schedule.nest import schedule_nest
from shlo_jit.schedule.product_layout import ProductLayout
from shlo_jit.schedule.scratch import aligned
from shlo_jit.schedule.space import Tile

SUMMED = Reason("sum-of-products", "only the sum over the products is wanted: a task adds them up in order")


class Totals(NamedTuple):
    """The loop that adds each product to the sums."""

    epilogue: Epilogue
    buffer: Value
    """The results of one product: its rows, one after the other."""
    total: Value
    """The sums, which are zero before the first product."""

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer, which is in the step's scratch memory."""
        return aligned(self.buffer.tensor.nbytes)

    @property
    def note(self) -> Note:
        return Note("sum", "over the products, on their tiles", SUMMED)


def schedule_totals(step: ComputedOperandStep, layout: ProductLayout, target: Target) -> Totals | None:
    """Returns the schedule; None if the products themselves are wanted."""
    if step.summed is None:
        return None
    result = step.product.op.result
    buffer = Value(tensor((layout.result.m, layout.result.n), result.tensor.dtype), None, 0, result.name)
    nest = on_one_product(step.summed, result, buffer)
    tile = Tile(step.summed.batch, step.summed.rows, step.summed.columns)
    epilogue = Epilogue(step.summed.step, schedule_nest(nest, target, tile))
    return Totals(epilogue, buffer, nest.stores[0].target)
