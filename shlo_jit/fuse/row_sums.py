"""Products that sum over rows, such as those in the gradient of attention. A row program reads two products and
computes the weights and their gradient. These are multiplied by the keys row by row, and summed over all rows in
products with the gradient of the result and with the queries.

    w = softmax(q @ k^T); dw = do @ v^T; ds = w * (dw - sum(w * dw))
    dq = ds @ k; dk = ds^T @ q; dv = w^T @ do
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import is_wide
from shlo_jit.fuse.plan import NestStep, OpStep, SegmentsStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.regroup import Steps
from shlo_jit.ir.core import Value
from shlo_jit.ops.row_tasks import has_too_few_tasks, row_parts
from shlo_jit.ops.runs import extents_of, is_split, roles_of
from shlo_jit.sizes import Size, equal

PRODUCT = "stablehlo.dot_general"


class Sums(NamedTuple):
    """The products around a row program, some of which sum over its rows."""

    firsts: tuple[OpStep, ...]
    """Products that it reads, and nobody else."""
    seconds: tuple[OpStep, ...]
    """Products that multiply its results row by row."""
    sums: tuple[OpStep, ...]
    refusal: Refusal | None

    @property
    def following(self) -> tuple[OpStep, ...]:
        return (*self.seconds, *self.sums)

    def unfit_work(self) -> Refusal | None:
        """Returns why one step would be slower."""
        batch, m, n, k = extents_of(self.firsts[0].op)
        if any(isinstance(x, Size) for x in (batch, m, n, k)):
            return Refusal("dynamic-size", "its rows are known only when the program is called")
        nbytes = sum(step.op.operands[1].tensor.nbytes for step in self.firsts) // max(1, batch)
        if nbytes > tuning.ATTENTION_OPERAND_BYTES:
            return Refusal(
                "large-operands",
                f"every row re-reads {nbytes:,} bytes of right operands, more than {tuning.ATTENTION_OPERAND_BYTES:,}",
            )
        features = k + extents_of(self.seconds[-1].op)[2]
        if has_too_few_tasks(batch, m, n, k, features):
            tasks = batch * row_parts(batch, m, features)
            return Refusal("too-few-tasks", f"{tasks} tasks are too few for {batch * m * n * k:,} multiply-adds")
        return None


def find_sums(steps: Steps, rows: NestStep) -> Sums | None:
    """Returns the products around a row program, if some sum over its rows and some multiply them."""
    firsts = tuple(step for value in rows.reads if (step := _product_of(steps, value)) is not None)
    if not firsts:
        return None
    size = firsts[0].op.result.tensor.size
    made = [value for value in rows.writes if equal(value.tensor.size, size)]
    following = list(dict.fromkeys(step for value in made for step in steps.readers.get(value, [])))
    products = [step for step in following if isinstance(step, OpStep) and step.op.name == PRODUCT]
    if any(step.op.operands[0] not in made or step.op.operands[1] in made for step in products):
        return None
    sums = tuple(step for step in products if is_over_rows(step, firsts[0]))
    seconds = tuple(step for step in products if step not in sums)
    if not sums or not seconds:
        return None
    return Sums(firsts, seconds, sums, _unfit(firsts, rows, (*seconds, *sums), made))


def _product_of(steps: Steps, value: Value) -> OpStep | None:
    """Returns the step of a product whose only reader is a row program, or None."""
    step = steps.writer(value) if steps.is_private(value) else None
    return step if isinstance(step, OpStep) and step.op.name == PRODUCT and id(step) not in steps.gone else None


def _unfit(
    firsts: tuple[OpStep, ...], rows: NestStep, following: tuple[OpStep, ...], made: list[Value]
) -> Refusal | None:
    if any(extents_of(step.op)[:3] != extents_of(firsts[0].op)[:3] for step in firsts):
        return Refusal("products-have-other-rows", "the products that the row program reads differ in their rows")
    if any(isinstance(step, SegmentsStep) for step in (*firsts, *following)):
        return Refusal("reads-segments", "a product reads a concatenation in segments")
    written = [v for v in rows.writes if v not in made]
    if any(v in step.reads for v in written for step in following):
        text = "a following product also reads another result of the row program"
        return Refusal("next-product-reads-row-results", text)
    if any(v in step.reads for other in following for v in other.writes for step in following if step is not other):
        return Refusal("next-product-reads-another", "a following product reads the result of another one")
    if any(n.op.name == "stablehlo.reduce" and len(n.op.block().ops) > 2 for n in rows.nest.nodes.values()):
        return Refusal("compound-reduction", "the row program reduces with a body of several ops")
    if extents_of(firsts[0].op)[2] < tuning.ATTENTION_LEAST_COLUMNS:
        text = f"the row program's rows are shorter than {tuning.ATTENTION_LEAST_COLUMNS}"
        return Refusal("rows-differ", text)
    return None


def is_over_rows(step: OpStep, first: OpStep) -> bool:
    """Whether a step is a product of a transposed matrix with the shape of the first product: its sums run over all
    rows of each batch."""
    r, op = roles_of(step.op), step.op
    shape = op.operands[0].tensor.extents
    order = [d for d in (*r.lhs_batch, *r.lhs_contracting, *r.lhs_free) if is_wide(shape[d])]
    batch, m, n, _ = extents_of(first.op)
    own = extents_of(op)
    same = equal((own[0], own[3], own[1]), (batch, m, n))
    return same and order == sorted(order) and op.operands[0] is not op.operands[1] and not is_split(op)
