"""Attention: a product, a row program over its rows and a product with the result, run one block of rows at a time.

Needs: the ordered steps of a block, with epilogues. If a row program reads each element of a product once, and only
another product reads its result, both move into the step of the second product. The values between the two products are
then never materialized as a whole; a block of their rows stays in the cache.

    softmax(q @ k^T + mask) @ v
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest, Store, covers, is_wide
from shlo_jit.fuse.plan import Attention, NestStep, OpStep, PlanBlock, Step, ViewStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At
from shlo_jit.ops.attention_rows import min_rows_per_task
from shlo_jit.ops.runs import extents_of, is_split, roles_of
from shlo_jit.sizes import Size, equal, hint_of

PRODUCT = "stablehlo.dot_general"


def form_attention(block: PlanBlock) -> None:
    """Moves products and row programs into the steps of the products that are their only readers. The block's steps
    stay in a valid order."""
    if sum(isinstance(step, OpStep) and step.op.name == PRODUCT for step in block.steps) > 1:
        _Forming(block).run()


class Forming:
    """The steps of a block, some of which become parts of others."""

    def __init__(self, block: PlanBlock):
        self.block = block
        self.steps: list[Step | None] = list(block.steps)
        """Steps in order; None for a step that has become part of another."""
        self.place = {id(step): i for i, step in enumerate(block.steps)}
        self.gone: dict[int, Step] = {}
        """Id of a step that is part of another -> that other step."""
        self.returned = set(block.results)
        self.writers: dict[Value, list[Step]] = {}
        self.readers: dict[Value, list[Step]] = {}
        for step in block.steps:
            for value in step.reads:
                self.readers.setdefault(value, []).append(step)
            for value in step.writes:
                self.writers.setdefault(value, []).append(step)
            for part in parts_of(step):
                self.gone[id(part)] = step

    def is_private(self, value: Value) -> bool:
        """Whether one step of the block writes a value, one reads it, and it is not returned."""
        one = len(self.writers.get(value, [])) == 1 == len(self.readers.get(value, []))
        return one and value not in self.returned

    # ------------------------------------------------------------------ the order of steps
    def before(self, step: Step) -> set[int]:
        """Returns the ids of the steps that must run before this one."""
        after = [*step.after, *(step.epilogue.after if isinstance(step, OpStep) and step.epilogue is not None else [])]
        return {id(self.now(s)) for s in after}

    def now(self, step: Step) -> Step:
        """Returns the step, or the one that it is part of."""
        while id(step) in self.gone:
            step = self.gone[id(step)]
        return step

    def move(self, attention: Attention, views: list[Step], second: OpStep) -> Refusal | None:
        """Moves the parts into the second product's step. Steps in between that depend on a part run after it."""
        parts = [*attention.steps, *views]
        places = [self.place[id(s)] for s in (*parts, second)]
        start, end = min(places), max(places)
        if end - start > tuning.EPILOGUE_DISTANCE:
            return Refusal("reader-too-far", f"the next product is more than {tuning.EPILOGUE_DISTANCE} steps later")
        inside = {id(s) for s in (*parts, second)}
        between = [s for s in self.steps[start:end] if s is not None and id(s) not in inside]
        late: set[int] = set()
        for s in between:
            if self.before(s) & (inside | late):
                late.add(id(s))
        if any(self.before(s) & late for s in (*parts, second)):
            return Refusal(
                "step-between-products", "a step between the two products needs the first and is needed by the second"
            )
        order = [*(s for s in between if id(s) not in late), second, *(s for s in between if id(s) in late)]
        self.steps[start : end + 1] = [*order, *[None] * (end + 1 - start - len(order))]
        self.place |= {id(s): i for i, s in enumerate(order, start)}
        self.gone |= {id(s): second for s in parts}
        self.join(attention, parts, second)
        return None

    def join(self, attention: Attention, parts: list[Step], second: OpStep) -> None:
        """Makes the step read and write what its parts do, except for values that they pass to each other."""
        second.attention = attention
        second.after += [s for part in parts for s in part.after]
        parts_that_write = (attention.rows, *attention.besides, *attention.sums)
        hidden = [v for v in attention.inside if v not in attention.kept]
        more = [v for part in parts_that_write for v in part.writes if v not in hidden]
        made = {v for part in parts for v in part.writes}
        reads = [v for part in attention.steps for v in part.reads] + second.reads
        second.reads = [v for v in dict.fromkeys(reads) if v not in made]
        second.writes += more
        second.why |= {v: part.why[v] for part in attention.steps for v in more if v in part.why}
        self.writers |= {v: [second] for v in more}
        for value in second.reads:
            others = [s for s in self.readers[value] if s not in parts and s is not second]
            self.readers[value] = [*others, second]


class _Forming(Forming):
    def run(self) -> None:
        for step in self.block.steps:
            if isinstance(step, OpStep) and step.op.name == PRODUCT:
                self.form(step)
        self.block.steps = [step for step in self.steps if step is not None]

    def form(self, second: OpStep) -> None:
        """Moves the producers of a product's left operand into its step. If these read a product, the refusal is
        recorded there."""
        value, other = second.op.operands
        views: list[Step] = []
        while self.is_private(value) and isinstance(self.writers[value][0], ViewStep) and value is not other:
            views += self.writers[value]
            (value,) = views[-1].reads
        rows = self.writers[value][0] if self.is_private(value) else None
        if not isinstance(rows, NestStep) or not rows.nest.reduce_vars or value is other:
            return
        for read in rows.reads:
            made = self.writers.get(read, [])
            first = made[0] if len(made) == 1 else None
            if not isinstance(first, OpStep) or first.op.name != PRODUCT or first.attention is not None:
                continue
            attention = Attention((first,), rows, value)
            first.no_attention = self.unfit(attention, second) or self.move(attention, views, second)
            if first.no_attention is None:
                return

    def unfit(self, attention: Attention, second: OpStep) -> Refusal | None:
        first, nest = attention.first, attention.rows.nest
        if not self.is_private(first.op.result) or first.epilogue is not None:
            return Refusal("product-not-private", "other steps read the product")
        return (
            unfit_nest(nest, first.op.result, attention.weights)
            or unfit_products(first.op, attention, second.op)
            or unfit_readers(attention, second)
            or unfit_work(first.op, second.op)
        )


def parts_of(step: Step) -> list[Step]:
    """Returns the steps that have become parts of a step."""
    if not isinstance(step, OpStep):
        return []
    parts = [step.epilogue, *(step.attention.steps if step.attention is not None else [])]
    return [p for part in parts if part is not None for p in (part, *parts_of(part))]


def unfit_nest(nest: Nest, scores: Value, weights: Value) -> Refusal | None:
    """Returns why a nest is not a row program that reads the scores and writes the weights at the same place of each
    row."""
    places, index = [at for v, at in nest.loads if v is scores], store_of(nest, weights).index
    syms = [s.value for _, at in (*nest.nodes, *nest.loads) for e in at.index for s in e.syms]
    if len(places) != 1 or scores in syms:
        return Refusal("read-at-several-indices", "the row program reads it at several indices")
    wide = {v for v, e in enumerate(nest.extents) if is_wide(e)}
    if any(covers(nest, at, v.tensor.extents) != wide for v, at in ((scores, places[0]), (weights, At(index)))):
        return Refusal("not-each-element-once", "the row program does not visit each of its elements exactly once")
    if ix.linearize(places[0].index, scores.tensor.extents) != ix.linearize(index, weights.tensor.extents):
        return Refusal("transposes-dimensions", "the row program changes the order of dimensions")
    if any(n.op.name == "stablehlo.reduce" and len(n.op.block().ops) > 2 for n in nest.nodes.values()):
        return Refusal("compound-reduction", "the row program reduces with a body of several ops")
    return None


def store_of(nest: Nest, value: Value) -> Store:
    """Returns the store by which a nest writes a value."""
    return next(s for s in nest.stores if s.target is value)


def unfit_products(first: Op, attention: Attention, second: Op) -> Refusal | None:
    """Returns why the rows of the nest, which are those of the first product, are not those of the second one."""
    nest = attention.rows.nest
    two = roles_of(second)
    if is_split(first) or is_split(second):
        return Refusal("split-dimensions", "free dimensions of an operand lie on both sides of the contracted ones")
    batch, m, n, k = extents_of(first)
    batches, rows, depth, columns = extents_of(second)
    if any(isinstance(x, Size) for x in (m, n, k, depth)):
        return Refusal("dynamic-size", "its rows or columns are known only when the program is called")
    if equal(batch * m * n * k * depth, 0):
        return Refusal("empty-product", "the products have no elements")
    offset = ix.linearize(store_of(nest, attention.weights).index, attention.weights.tensor.extents)
    along = all(offset.coefficient(v) < n for v in nest.reduce_vars)
    if n < tuning.ATTENTION_LEAST_COLUMNS or not equal(nest.reduced, n) or not along:
        return Refusal(
            "rows-differ",
            f"the row program's rows are not the product's, or shorter than {tuning.ATTENTION_LEAST_COLUMNS}",
        )
    order = [d for d in (*two.lhs_batch, *two.lhs_free, *two.lhs_contracting) if is_wide(_lhs(second)[d])]
    if order != sorted(order) or not equal((batch, m, n), (batches, rows, columns)):
        return Refusal("other-row-order", "the next product reads the rows in another order")
    return None


def unfit_readers(attention: Attention, second: OpStep) -> Refusal | None:
    """Returns why other results of the row program are not available when the second product's step reads them. For a
    row of its result, the step may read values that belong to the same row."""
    nest, epilogue = attention.rows.nest, second.epilogue
    rows = rows_of(nest, attention.weights, store_of(nest, attention.weights).index, nest.reduced)
    for value in (v for v in attention.rows.writes if v is not attention.weights and v in second.reads):
        same = value not in second.op.operands and epilogue is not None
        same = same and ix.linearize(store_of(nest, value).index, value.tensor.extents) == rows
        if same and epilogue is not None:
            ((_, at),) = [k for k in epilogue.nest.loads if k[0] is second.op.result]
            here = rows_of(epilogue.nest, second.op.result, at.index, extents_of(second.op)[2])
            places = [at for v, at in epilogue.nest.loads if v is value]
            same = all(not at.conditions and ix.linearize(at.index, value.tensor.extents) == here for at in places)
        if not same:
            return Refusal(
                "next-product-reads-row-results", "the next product also reads another result of the row program"
            )
    return None


def rows_of(nest: Nest, matrix: Value, index: tuple[ix.Expr, ...], n: int) -> ix.Expr:
    """Returns the index of the row of n elements that a place is in."""
    offset = ix.linearize(index, matrix.tensor.extents)
    return ix.Expr(0, tuple((v, c // n) for v, c in offset.terms if c >= n and is_wide(nest.extents[v])))


def _lhs(op: Op) -> tuple[int, ...]:
    return op.operands[0].tensor.extents


def unfit_work(first: Op, second: Op) -> Refusal | None:
    """Returns why fusion would be slower: the other operands do not stay in the cache, or there are too few tasks for
    the work."""
    batch, m, n, k = map(hint_of, extents_of(first))
    nbytes = sum(hint_of(op.operands[1].tensor.nbytes) for op in (first, second)) // max(1, batch)
    if nbytes > tuning.ATTENTION_OPERAND_BYTES:
        return Refusal(
            "large-operands",
            f"every row re-reads {nbytes:,} bytes of right operands, more than {tuning.ATTENTION_OPERAND_BYTES:,}",
        )
    rows = min_rows_per_task(k + extents_of(second)[2])
    # With a single batch, few rows take as long as GEMM_LEAST_ROWS: reading the matrices dominates.
    least = tuning.GEMM_LEAST_ROWS if equal(batch, 1) else 1
    tasks, work = batch * -(-m // rows), batch * max(m, least) * n * max(k, hint_of(extents_of(second)[2]))
    if tasks < tuning.ATTENTION_LEAST_TASKS and work > tuning.GEMM_TASK:
        return Refusal("too-few-tasks", f"{tasks} blocks of {rows} rows are too few tasks for {work:,} multiply-adds")
    return None
