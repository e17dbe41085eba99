"""The gradient of attention by blocks of rows, like `attention.py`. A row program reads two products and computes the
weights and their gradient. These are multiplied by the keys row by row, and summed over all rows in products with the
gradient of the result and with the queries.

Needs: the ordered steps of a block, with epilogues and attention. The values between the products are never
materialized as a whole.

    w = softmax(q @ k^T); dw = do @ v^T; ds = w * (dw - sum(w * dw))
    dq = ds @ k; dk = ds^T @ q; dv = w^T @ do
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.attention import PRODUCT, Forming, store_of, unfit_nest, unfit_products
from shlo_jit.fuse.plan import Attention, NestStep, OpStep, PlanBlock
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.ops.attention_rows import has_too_few_tasks, row_parts
from shlo_jit.ops.runs import extents_of, is_split, roles_of
from shlo_jit.sizes import Size, equal


def form_gradients(block: PlanBlock) -> None:
    """Moves row programs, and all products before and after them, into the steps of the products that multiply their
    rows. The block's steps stay in a valid order."""
    if sum(isinstance(step, OpStep) and step.op.name == PRODUCT for step in block.steps) >= 3:
        _Forming(block).run()


class _Forming(Forming):
    def run(self) -> None:
        for step in self.block.steps:
            if isinstance(step, NestStep) and step.nest.reduce_vars:
                self.form(step)
        self.block.steps = [step for step in self.steps if step is not None]

    def form(self, rows: NestStep) -> None:
        """Moves a row program and all products around it into the step of a product that multiplies its results row by
        row. If something prevents that, the refusal is recorded at the products before."""
        firsts = tuple(step for value in rows.reads if (step := self.product_of(value)) is not None)
        if not firsts:
            return
        size = firsts[0].op.result.tensor.size
        made = [value for value in rows.writes if equal(value.tensor.size, size)]
        following = list(dict.fromkeys(step for value in made for step in self.readers.get(value, [])))
        products = [step for step in following if isinstance(step, OpStep) and step.op.name == PRODUCT]
        if any(step.op.operands[0] not in made or step.op.operands[1] in made for step in products):
            return
        made = [value for value in made if any(value in step.reads for step in products)]
        sums = tuple(step for step in products if is_over_rows(step, firsts[0]))
        others = [step for step in products if step not in sums]
        if not sums or not others:
            return
        *besides, second = sorted(others, key=lambda step: self.place[id(step)])
        others = [step for step in following if step not in products]
        kept = tuple(v for v in made if v in self.returned or any(v in step.reads for step in others))
        attention = Attention(firsts, rows, second.op.operands[0], sums, tuple(besides), kept)
        refusal = self.unfit(attention, made, second) or self.move(attention, [], second)
        for first in firsts:
            first.no_attention = refusal

    def product_of(self, value: Value) -> OpStep | None:
        """Returns the step of a product whose only reader is a row program, or None."""
        if not self.is_private(value):
            return None
        step = self.writers[value][0]
        if not isinstance(step, OpStep) or step.op.name != PRODUCT:
            return None
        return step if step.epilogue is None and step.attention is None else None

    def unfit(self, attention: Attention, made: list[Value], second: OpStep) -> Refusal | None:
        nest, first = attention.rows.nest, attention.first.op
        places = {ix.linearize(store_of(nest, v).index, v.tensor.extents) for v in made}
        following = (second, *attention.besides, *attention.sums)
        for step in attention.firsts:
            refusal = unfit_nest(nest, step.op.result, attention.weights)
            for other in (second, *attention.besides):
                refusal = refusal or unfit_products(step.op, attention, other.op)
            if refusal is not None:
                return refusal
        if len(places) != 1 or set(made) != set(attention.inside):
            return Refusal(
                "several-write-orders", "the row program writes its results in different orders of dimensions"
            )
        if any(extents_of(step.op)[:3] != extents_of(first)[:3] for step in attention.firsts):
            return Refusal("products-have-other-rows", "the products that the row program reads differ in their rows")
        if any(step.pieces is not None for step in (*attention.firsts, *following)):
            return Refusal("reads-segments", "a product reads a concatenation in segments")
        written = [v for v in attention.rows.writes if v not in made]
        if any(v in step.reads for v in written for step in following):
            return Refusal(
                "next-product-reads-row-results", "a following product also reads another result of the row program"
            )
        if any(v in step.reads for other in following for v in other.writes for step in following if step is not other):
            return Refusal("next-product-reads-another", "a following product reads the result of another one")
        return unfit_work(attention, second)


def is_over_rows(step: OpStep, first: OpStep) -> bool:
    """Whether a step is a product of a transposed matrix with the shape of the first product: its sums run over all
    rows of each batch."""
    r, op = roles_of(step.op), step.op
    shape = op.operands[0].tensor.extents
    order = [d for d in (*r.lhs_batch, *r.lhs_contracting, *r.lhs_free) if shape[d] != 1]
    batch, m, n, _ = extents_of(first.op)
    own = extents_of(op)
    same = equal((own[0], own[3], own[1]), (batch, m, n))
    return same and order == sorted(order) and op.operands[0] is not op.operands[1] and not is_split(op)


def unfit_work(attention: Attention, second: OpStep) -> Refusal | None:
    """Returns why fusion would be slower."""
    batch, m, n, k = extents_of(attention.first.op)
    if any(isinstance(x, Size) for x in (batch, m, n, k)):
        return Refusal("dynamic-size", "its rows are known only when the program is called")
    nbytes = sum(v.tensor.nbytes for step in attention.firsts for v in step.op.operands[1:]) // max(1, batch)
    if nbytes > tuning.ATTENTION_OPERAND_BYTES:
        return Refusal(
            "large-operands",
            f"every row re-reads {nbytes:,} bytes of right operands, more than {tuning.ATTENTION_OPERAND_BYTES:,}",
        )
    features = k + extents_of(second.op)[2]
    if has_too_few_tasks(batch, m, n, k, features):
        tasks = batch * row_parts(batch, m, features)
        return Refusal("too-few-tasks", f"{tasks} tasks are too few for {batch * m * n * k:,} multiply-adds")
    return None
