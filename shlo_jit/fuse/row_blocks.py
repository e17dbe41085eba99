"""Row blocks: products and the loops around them run one block of rows at a time.

Needs: the ordered steps of a block, before epilogues. A group of products and loops becomes one step if each of them
computes a row of its results from the same row of the results of the others. Values between them are then never
materialized as a whole; a block of their rows stays in the cache.

    softmax(q @ k^T) @ v                        attention
    gelu(x @ w1) @ w2                           feed-forward
    softmax(x @ w), norm(x) @ w, (x @ a) @ b    a product with a row program, products with a small inner size

Some products may also sum over the rows: the gradient of attention, which `row_sums.py` finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from shlo_jit import tuning
from shlo_jit.fuse.computed_operands import Candidate, computed_operand, matrix_as_computed
from shlo_jit.fuse.epilogue import HOSTS, unrolled_copies
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.operand_views import is_contiguous
from shlo_jit.fuse.plan import NestStep, OpStep, PlanBlock, RowBlocksStep, SegmentsStep, Step, ViewStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.regroup import Steps
from shlo_jit.fuse.row_places import in_row_order, rows_of, shared_widths
from shlo_jit.fuse.row_ranges import ranges_of
from shlo_jit.fuse.row_sums import Sums, find_sums
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.row_tasks import min_rows_per_task
from shlo_jit.ops.runs import extents_of, is_split
from shlo_jit.sizes import Size, equal, hint_of
from shlo_jit.traits import Traits

PRODUCT = "stablehlo.dot_general"
WINDOWS = ("stablehlo.convolution", "stablehlo.reduce_window")
Stage = NestStep | OpStep


def form_row_blocks(block: PlanBlock, traits: Traits) -> None:
    """Makes groups of steps run by blocks of rows. The block's steps stay in a valid order. Sizes of caches decide
    nothing here, because a row program in a group may add up in another order than alone."""
    if any(is_product(step) for step in block.steps):
        _Forming(block, traits).run()


def is_product(step: Step | None) -> TypeGuard[OpStep]:
    return isinstance(step, OpStep) and step.op.name == PRODUCT


class Group:
    """Steps that may run by blocks of rows together."""

    def __init__(self, steps: _Forming, stages: Iterable[Stage], sums: tuple[OpStep, ...] = ()):
        self.all = steps
        self.stages = sorted(dict.fromkeys(stages), key=lambda s: steps.place[id(s)])
        self.sums = sums
        self.views: dict[Value, Value] = {}
        self.view_steps: list[ViewStep] = []
        self.written = {v: s for s in self.stages for v in s.writes}
        self.written_once = all(steps.writer(v) is not None for v in self.written)
        for value in dict.fromkeys(v for s in self.stages for v in s.reads):
            source, views = steps.source(value)
            if views and source in self.written:
                self.views[value] = source
                self.view_steps += [v for v in views if v not in self.view_steps]
        self.moved = {s: steps.moved[id(s)] for s in self.products if id(s) in steps.moved}

    @property
    def moves(self) -> list[Step]:
        """The loops that would copy right operands, and the views of these."""
        return [step for found in self.moved.values() for step in (found.writer, *found.views)]

    @property
    def products(self) -> list[OpStep]:
        return [s for s in self.stages if isinstance(s, OpStep) and s not in self.sums]

    @property
    def nests(self) -> list[NestStep]:
        return [s for s in self.stages if isinstance(s, NestStep)]

    @property
    def units(self) -> int:
        batch, m, *_ = extents_of(self.products[0].op)
        return batch * m

    def source(self, value: Value) -> Value:
        return self.views.get(value, value)

    def is_shared(self, value: Value) -> bool:
        """Whether a value is written by one stage and read by another."""
        return self.source(value) in self.written

    @property
    def inside(self) -> list[Value]:
        """The values that only stages read."""
        members = {id(s) for s in (*self.stages, *self.view_steps)}
        found = [v for v in self.written if v not in self.all.returned and self.all.readers.get(v)]
        return [v for v in found if all(id(s) in members for s in self.all.readers[v])]

    # ------------------------------------------------------------------ legality
    def unfit(self) -> Refusal | None:
        """Returns why the stages cannot run by blocks of rows."""
        if not self.written_once:
            return Refusal("writes-part", "several steps write parts of a value")
        refusal = self._unfit_products()
        for step in self.nests:
            refusal = refusal or self._unfit_nest(step.nest)
        if refusal is not None:
            return refusal
        found = self.all.order_around([*self.stages, *self.view_steps, *self.moves])
        return found if isinstance(found, Refusal) else None

    def _unfit_products(self) -> Refusal | None:
        first = extents_of(self.products[0].op)
        for step in self.products:
            op = step.op
            if is_split(op):
                text = "free dimensions of an operand lie on both sides of the contracted ones"
                return Refusal("split-dimensions", text)
            batch, m, n, k = extents_of(op)
            if any(isinstance(x, Size) for x in (m, n, k)):
                return Refusal("dynamic-size", "its rows or columns are known only when the program is called")
            if equal(batch * m * n * k, 0):
                return Refusal("empty-product", "the products have no elements")
            if not equal((batch, m), first[:2]):
                return Refusal("products-have-other-rows", "the products differ in their rows")
            left, right = op.operands
            if left is right:
                return Refusal("next-product-reads-row-results", "the product multiplies a matrix by itself")
            if self.is_shared(right) or any(self.is_shared(v) for v in step.parts_of(right)):
                text = "the next product also reads another result of the row program"
                return Refusal("next-product-reads-row-results", text)
            if self.is_shared(left) and not in_row_order(op):
                return Refusal("other-row-order", "the next product reads the rows in another order")
        for step in self.sums:
            if any(self._is_read(v) for v in step.writes):
                return Refusal("sums-end-last", "the sums are complete only after the last rows")
            if self.is_shared(step.op.operands[1]):
                return Refusal("next-product-reads-another", "a following product reads the result of another one")
        return None

    def _unfit_nest(self, nest: Nest) -> Refusal | None:
        widths = shared_widths(nest, self.stages, self.source, self.units)
        if any(n.op.name == "stablehlo.reduce" and is_ordered(n.op) for n in nest.nodes.values()):
            return Refusal("compound-reduction", "the row program reduces with a body of several ops")
        if None in widths.values():
            return Refusal("rows-differ", "the loop's values do not have the rows of the products")
        found = rows_of(nest, {v: width for v, width in widths.items() if width is not None}, self.units)
        return found if isinstance(found, Refusal) else None

    def _is_read(self, value: Value) -> bool:
        return any(self.source(v) is value for s in self.stages for v in s.reads)

    # ------------------------------------------------------------------ profit
    def unfit_work(self) -> Refusal | None:
        """Returns why fusion would be slower: the other operands do not stay in the cache, or there are too few tasks
        for the work."""
        sizes = [tuple(map(hint_of, extents_of(step.op))) for step in self.products]
        batch, m = sizes[0][:2]
        if self._reads_ranges(batch, m):
            return None
        nbytes = sum(hint_of(s.op.operands[1].tensor.nbytes) for s in self.products) // max(1, batch)
        if nbytes > tuning.ATTENTION_OPERAND_BYTES:
            return Refusal(
                "large-operands",
                f"every row re-reads {nbytes:,} bytes of right operands, more than {tuning.ATTENTION_OPERAND_BYTES:,}",
            )
        rows = min_rows_per_task(features_of(self.products))
        # With a single batch, few rows take as long as GEMM_LEAST_ROWS: reading the matrices dominates.
        least = tuning.GEMM_LEAST_ROWS if equal(batch, 1) else 1
        tasks, work = batch * -(-m // rows), batch * max(m, least) * max(n * k for _, _, n, k in sizes)
        if tasks < tuning.ATTENTION_LEAST_TASKS and work > tuning.GEMM_TASK:
            text = f"{tasks} blocks of {rows} rows are too few tasks for {work:,} multiply-adds"
            return Refusal("too-few-tasks", text)
        return None

    def _reads_ranges(self, batch: int, rows: int) -> bool:
        """Whether several products of few rows each leave out keys: a task reads those of a product once, and threads
        without one share the columns of others (`schedule/shared_columns.py`)."""
        leaves_out = any(s.key_range is not None for s in self.products)
        return leaves_out and batch > 1 and rows <= tuning.COMPUTED_OPERAND_ROWS


def features_of(products: Sequence[OpStep]) -> int:
    """Returns the multiply-adds of all products of a row, for each element of the first product's row."""
    sizes = [tuple(map(hint_of, extents_of(step.op))) for step in products]
    return sum(n * k for _, _, n, k in sizes) // max(1, sizes[0][2])


class _Forming(Steps):
    def __init__(self, block: PlanBlock, traits: Traits):
        super().__init__(block)
        self.traits = traits
        self.before_copies: dict[int, Nest] = {}
        """Id of a loop's step -> its nest before `unrolled_copies`."""
        products = [s for s in block.steps if is_product(s)]
        self.moved = {id(s): found for s in products if (found := self.moved_operand(s)) is not None}
        """For products, by id: the loop that would copy a right operand which is part of another array."""
        self.in_place = {id(s) for s in products if id(s) not in self.moved and self.reads_in_place(s)}
        """Ids of products that are no stages, because they compute or read an operand in place."""

    def run(self) -> None:
        for step in self.block.steps:
            if isinstance(step, NestStep) and step.nest.reduce_vars and id(step) not in self.gone:
                self.gradient(step)
        for step in self.block.steps:
            if self.is_free(step):
                self.attention(step)
        for step in self.block.steps:
            if self.is_free(step):
                self.large(step)
        self.finish()

    def reads_in_place(self, product: OpStep) -> bool:
        """Whether a product computes its right operand where it reads it, or reads it in registers, and is no stage for
        that reason: it has few rows, or an operand that is larger than a block's."""
        found = computed_operand(self, product)
        if not isinstance(found, Candidate):
            found = matrix_as_computed(self, product, self.traits)
        if not isinstance(found, Candidate) or not found.operand.side:
            return False
        rows, nbytes = extents_of(product.op)[1], product.op.operands[1].tensor.nbytes
        return rows <= tuning.COMPUTED_OPERAND_ROWS or nbytes > tuning.ROW_BLOCK_OPERAND_BYTES

    def moved_operand(self, product: OpStep) -> Candidate | None:
        """Returns the loop that would copy the right operand of a product which needs a range of keys. As a stage, the
        product reads it where it is."""
        if product.key_range is None:
            return None
        found = computed_operand(self, product)
        if not isinstance(found, Candidate) or not found.operand.side or not found.writer.writes:
            return None
        return found if is_contiguous(found.nest, found.operand) else None

    def is_free(self, step: Step | None) -> TypeGuard[OpStep]:
        """Whether a step is a product that may be a stage of row blocks, and is none yet."""
        return is_product(step) and id(step) not in self.gone and id(step) not in self.in_place

    # ------------------------------------------------------------------ where groups begin
    def attention(self, second: OpStep) -> None:
        """Forms a group of two products with a row program between them, and of what else belongs to it. If there are
        such steps and they do not fit, the refusal is recorded at the first product."""
        left, right = second.op.operands
        value, _ = self.source(left)
        rows = self.writer(value) if self.is_private(value) and left is not right else None
        if not isinstance(rows, NestStep) or not rows.nest.reduce_vars or id(rows) in self.gone:
            return
        for read in rows.reads:
            first = self.writer(self.source(read)[0])
            if not self.is_free(first):
                continue
            if not self.only(first.op.result, [rows]):
                first.refuse("row blocks", Refusal("product-not-private", "other steps read the product"))
                continue
            if extents_of(first.op)[2] < tuning.ATTENTION_LEAST_COLUMNS:
                text = f"the row program's rows are shorter than {tuning.ATTENTION_LEAST_COLUMNS}"
                first.refuse("row blocks", Refusal("rows-differ", text))
                continue
            refusal = self.form(Group(self, [first, rows, second]))
            if refusal is None:
                return
            first.refused.setdefault("row blocks", refusal)

    def gradient(self, rows: NestStep) -> None:
        """Forms a group of a row program and all products around it, some of which sum over its rows. The refusal is
        recorded at the products before."""
        found = find_sums(self, rows)
        if not isinstance(found, Sums):
            return
        group = Group(self, [*found.firsts, rows, *found.following], found.sums)
        refusal = found.refusal or group.unfit() or found.unfit_work() or self.commit(self.grown(group))
        for first in found.firsts:
            first.refuse("row blocks", refusal)

    def large(self, step: OpStep) -> None:
        """Forms a group of a product and the steps that it shares large values with."""
        if self.is_beside_images(step) or not self.may_be_stage(step):
            return
        group = self.grown(Group(self, [step]))
        first = self.place[id(step)]
        programs = [s for s in group.nests if s.nest.reduce_vars or self.place[id(s)] < first]
        is_worth = len(group.products) > 1 or bool(programs)
        if len(group.stages) > 1 and is_worth and group.unfit_work() is None and self.commit(group) is None:
            return
        for nest in group.nests:  # they stay separate loops
            nest.nest = self.before_copies.get(id(nest), nest.nest)

    def form(self, group: Group) -> Refusal | None:
        """Makes one step of a group and the steps that can be added to it; returns the refusal if the group does not
        fit."""
        refusal = group.unfit() or group.unfit_work()
        return refusal or self.commit(self.grown(group))

    # ------------------------------------------------------------------ growth
    def grown(self, group: Group) -> Group:
        """The group with the steps around it that read or write large values of it."""
        tried: set[int] = set()
        while True:
            found = next((s for s in self.around(group) if id(s) not in tried), None)
            if found is None:
                return group
            tried.add(id(found))
            if isinstance(found, NestStep):
                self.before_copies[id(found)] = found.nest
                found.nest = unrolled_copies(found.nest)
            larger = Group(self, [*group.stages, found], group.sums)
            if larger.unfit() is None and (found in larger.nests or larger.unfit_work() is None):
                group = larger
            elif isinstance(found, NestStep):
                found.nest = self.before_copies[id(found)]

    def around(self, group: Group) -> Iterator[Stage]:
        """Steps that may be added to a group: loops without reductions over the result of a product, and steps at the
        other end of a large value."""
        members = {id(s) for s in group.stages}
        for value in [v for s in group.stages for v in s.writes]:
            if value in self.returned:
                continue
            readers = [s for s, _ in self.seen_by(value)]
            if any(id(s) in members for s in readers):
                readers = [s for s in readers if id(s) not in members]
            for s in readers:
                is_loop = isinstance(s, NestStep) and not s.nest.reduce_vars and len(readers) == 1
                if self.may_be_stage(s) and (is_loop or self.is_large(value)):
                    yield s
        for step in group.stages:
            values = [step.op.operands[0]] if isinstance(step, OpStep) else step.reads
            for value in values:
                source, _ = self.source(value)
                writer = self.writer(source)
                if writer is None or id(writer) in members or source in self.returned:
                    continue
                is_ours = self.is_large(source) and self.only(source, group.stages)
                if is_ours and self.may_be_stage(writer) and not self.is_epilogue(writer, members):
                    yield writer

    def is_epilogue(self, step: Step, members: set[int]) -> bool:
        """Whether a loop can run on the tiles of a product or convolution that is no member."""
        if not isinstance(step, NestStep) or step.nest.reduce_vars:
            return False
        return any(
            isinstance(w, OpStep) and w.op.name in HOSTS and id(w) not in members and self.only(v, [step])
            for v in step.reads
            if (w := self.writer(v)) is not None
        )

    def is_beside_images(self, product: OpStep) -> bool:
        """Whether windows over lines are the next to read a product's result, or the last to make its operand: such
        steps run by line tiles."""
        around = [w for v in self.through_loops(product.op.operands[0], back=True) if (w := self.writer(v)) is not None]
        around += [r for v in self.through_loops(product.op.result, back=False) for r in self.readers.get(v, [])]
        return any(isinstance(s, OpStep) and s.op.name in WINDOWS for s in around)

    def through_loops(self, value: Value, *, back: bool) -> list[Value]:
        """A value, and those that loops without reductions compute it from (`back`), or from it."""
        nests = [self.writer(value)] if back else self.readers.get(value, [])
        loops = [s for s in nests if isinstance(s, NestStep) and not s.nest.reduce_vars]
        return [value, *(v for s in loops for v in (s.reads if back else s.writes))]

    def only(self, value: Value, steps: Sequence[Step]) -> bool:
        """Whether a value is not returned, and no other steps than these read it."""
        return value not in self.returned and all(s in steps for s, _ in self.seen_by(value))

    def may_be_stage(self, step: Step) -> TypeGuard[Stage]:
        """Whether a step may be added to a group for a large value between them."""
        if isinstance(step, NestStep):
            return True
        if not is_product(step) or isinstance(step, SegmentsStep) or id(step) in self.in_place:
            return False
        nbytes = step.op.operands[1].tensor.nbytes
        return not isinstance(nbytes, Size) and nbytes <= tuning.ROW_BLOCK_OPERAND_BYTES

    def is_large(self, value: Value) -> bool:
        """Whether a value does not stay in the second-level caches from one step to the next."""
        nbytes = value.tensor.nbytes
        return not isinstance(nbytes, Size) and nbytes >= tuning.ROW_BLOCK_BYTES

    # ------------------------------------------------------------------ the step
    def commit(self, group: Group) -> Refusal | None:
        """Replaces the steps of a group by one step."""
        batch, m, *_ = extents_of(group.products[0].op)
        inside = group.inside
        moved = {s.op.operands[1]: (found.nest, found.operand) for s, found in group.moved.items()}
        made = {*group.written, *group.views, *(v for s in group.moves for v in s.writes)}
        reading = [*group.stages, *(found.writer for found in group.moved.values())]
        step = RowBlocksStep(
            reads=[v for v in dict.fromkeys(v for s in reading for v in s.reads) if v not in made],
            writes=[v for v in group.written if v not in inside],
            position=max(s.position for s in group.stages),
            after=[a for s in (*group.stages, *group.view_steps, *group.moves) for a in s.after],
            why={v: why for s in group.stages for v, why in s.why.items() if v not in inside},
            stages=tuple(group.stages),
            sums=group.sums,
            batch=batch,
            rows=m,
            inside=tuple(inside),
            views=group.views,
            moved=moved,
            ranges=ranges_of(group.stages, group.inside, group.source, self.readers),
        )
        return self.replace([*group.stages, *group.view_steps, *group.moves], step)


def is_ordered(op: Op) -> bool:
    """Whether a reduction may depend on the order of a row's elements: it has a body of several ops, and is no
    selection."""
    return len(op.results) == 1 and len(op.block().ops) > 2
