"""Computed operands: a product computes an operand from smaller arrays where it reads it, so that the operand is never
in memory as a whole.

    w: 4096x4096xi8, s: 4096xf32        dot(x, convert(w) * broadcast(s))

The loop that computes the operand writes 64 MB and the product reads them again, while the weights have 16 MB. Any loop
without reductions will do that visits each element of the operand once: conversions, scales, zero points, numbers that
are unpacked by shifts. Legality: which product, term and column does an iteration of the loop compute. Profit: the loop
reads fewer bytes than it writes, or only moves elements that the product can read where they lie (`operand_views.py`).
One operand is computed so. Both may be read where they lie, if one of them lies there as in a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest, Store, covers, is_wide, space_of
from shlo_jit.fuse.operand_views import is_contiguous, is_gathered, source_of, view_of
from shlo_jit.fuse.plan import ComputedOperand, ComputedOperandStep, NestStep, OpStep, PlanBlock, ViewStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.regroup import Steps
from shlo_jit.fuse.summed_products import summed
from shlo_jit.ir import index as ix
from shlo_jit.ir.attributes import ConvDims
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At, strides_of, variables
from shlo_jit.ops.convolution_shape import reversals
from shlo_jit.ops.grouped import grouped_of
from shlo_jit.ops.runs import outer_of, roles_of, run_of
from shlo_jit.sizes import Size
from shlo_jit.traits import Traits

PRODUCT, CONVOLUTION = "stablehlo.dot_general", "stablehlo.convolution"
FLOATS = ("f32", "f64", "bf16", "f16")
"""Element types of matrices that are read in registers: those of sums, or converted to them by few instructions."""


def form_computed_operands(block: PlanBlock, traits: Traits) -> None:
    """Moves loops that compute an operand of a product into the product's step, and those that copy an image or a
    kernel into the convolution's."""
    grouped = [s for s in block.steps if isinstance(s, OpStep) and (g := grouped_of(s.op)) and not g.sums]
    products = [s for s in block.steps if isinstance(s, OpStep) and s.kind == PRODUCT]
    images = [s for s in block.steps if isinstance(s, OpStep) and s.op.name == CONVOLUTION]
    if grouped or products or images:
        steps = Steps(block)
        for convolution in images:
            found = _view_of_convolution(steps, convolution) or computed_kernel(steps, convolution)
            found = _commit(steps, convolution, found) if isinstance(found, Candidate) else found
            convolution.refuse("computed operand", found)
        for product in grouped:
            found = _candidate_of(steps, product, 1)
            found = _commit(steps, product, found) if isinstance(found, Candidate) else found
            product.refuse("computed operand", found)
        for product in products:
            found = computed_operand(steps, product)
            is_committed = isinstance(found, Candidate)
            if isinstance(found, Candidate):
                found = _commit(steps, product, found, _other_view(steps, product, found))
                is_committed = found is None
            product.refuse("computed operand", found)
            if not is_committed and (candidate := matrix_as_computed(steps, product, traits)) is not None:
                _commit(steps, product, candidate)
        steps.finish()


class Candidate(NamedTuple):
    """A loop that computes an operand, and may move into the product's step."""

    saved: int
    """Bytes that are read less."""
    writer: NestStep
    views: list[ViewStep]
    """Views between the loop's result and the operand."""
    nest: Nest
    """The loop, with variables that do not span dimensions of the operand."""
    operand: ComputedOperand


def matrix_as_computed(steps: Steps, product: OpStep, traits: Traits) -> Candidate | None:
    """Returns a loop that only reads the matrix of a product of a few vectors, as if it computed the matrix. The matrix
    is then read once, in registers, and nothing is packed. A sum over such products runs on their tiles. None if the
    product packs the matrix, or has it packed once for many products."""
    op = product.op
    if not op.result.tensor.is_fixed or op.operands[0] is op.operands[1] or product.kind != PRODUCT:
        return None
    side = 1 if _vectors(op, 1) <= _vectors(op, 0) else 0
    matrix = op.operands[side]
    are_bytes = all(map(_is_byte, op.operands))
    if matrix.tensor.nbytes < tuning.COMPUTED_OPERAND_BYTES:
        return None
    is_summed = are_bytes and summed(steps, product) is not None
    if _vectors(op, side) > tuning.COMPUTED_OPERAND_ROWS and not is_summed:
        return None
    # Four terms share a lane of panels: without instructions for that, adjacent terms are read in registers.
    takes_panels = traits.sums_bytes or not _has_adjacent_terms(op, side)
    if are_bytes and not is_summed and _is_constant(matrix) and takes_panels:
        return None
    if not are_bytes and (_is_packed_once(steps, matrix) or _is_computed(steps, matrix)):
        return None
    nest = Nest([])
    at = space_of(nest, matrix.tensor.extents)
    nest.loads[matrix, at] = None
    nest.stores.append(Store(matrix, at, matrix, at.index))
    placed = _placed(nest, op, side)
    if isinstance(placed, Refusal):
        return None
    view = view_of(*placed)
    if not are_bytes and (view is None or not reads_floats_once(product, side, view.value)):
        return None
    writer = NestStep(reads=[matrix], position=product.position, nest=nest)
    return Candidate(0, writer, [], *placed)


def _has_adjacent_terms(op: Op, side: int) -> bool:
    """Whether the terms of an operand's last sum are adjacent in memory."""
    r = roles_of(op)
    contracting = r.rhs_contracting if side else r.lhs_contracting
    return bool(contracting) and contracting[-1] == op.operands[side].tensor.rank - 1


def _is_packed_once(steps: Steps, matrix: Value) -> bool:
    """Whether panels of a matrix serve many products: it is a constant, or comes from outside of a loop."""
    return _is_constant(matrix) or matrix in steps.block.outside


def _is_constant(value: Value) -> bool:
    """Whether a value is a constant, which is packed at compile time."""
    return value.op is not None and value.op.name == "stablehlo.constant"


def _is_computed(steps: Steps, matrix: Value) -> bool:
    """Whether a step of the block computes all of a matrix. Such a matrix consists of activations, not of weights or
    cached keys, and it is in a cache of the processor."""
    value = steps.source(matrix)[0]
    if value not in steps.writers:
        return False
    writer = steps.writer(value)
    return not isinstance(writer, NestStep) or writer.nest.overwrites is None


def reads_floats_once(product: OpStep, side: int, source: Value) -> bool:
    """Whether a product of floats takes less time if it reads the elements of its matrix from an array in registers. A
    product of one vector and one matrix has a routine that does the same, and one of which a mask leaves
    out terms or columns has another one. The first operand's rows may be the pixels of an image, which line tiles cut:
    their bits must not depend on that."""
    op, r = product.op, roles_of(product.op)
    if side == 0 or product.key_range is not None:
        return False
    if not all(v.tensor.storage.name in FLOATS for v in (*op.operands, source)):
        return False
    terms = math.prod(op.operands[0].tensor.extents[d] for d in r.lhs_contracting)
    return terms >= tuning.FLOATS_READ_TERMS and (_vectors(op, side) > 1 or bool(r.lhs_batch))


def computed_operand(steps: Steps, product: OpStep) -> Candidate | Refusal | None:
    """Returns the loop that computes an operand of a product where the product reads it; of two, the one that saves
    more bytes. Returns the refusal if there is such a loop and it has to run before the product."""
    found: list[Candidate] = []
    refusal = None
    for side in (0, 1):
        candidate = _candidate_of(steps, product, side)
        if isinstance(candidate, Refusal):
            refusal = candidate
        elif candidate is not None:
            found.append(candidate)
    return max(found, key=lambda candidate: candidate.saved, default=refusal)


def _other_view(steps: Steps, product: OpStep, first: Candidate) -> Candidate | None:
    """Returns the loop that only copies the other operand, if both are views and the product can read both where they
    lie. One of them lies there as it does in a copy, so that nothing is slower: rows of a longer matrix."""
    other = _candidate_of(steps, product, 1 - first.operand.side)
    if not isinstance(other, Candidate) or not first.writer.writes or other.writer is first.writer:
        return None
    both = [(c.nest, c.operand) for c in (first, other)]
    is_few = any(_is_few(product.op, side) for side in (0, 1))
    if is_few or all(map(_is_byte, product.op.operands)) or product.key_range is not None:
        return None
    are_views = all(view_of(*one) is not None for one in both)
    return other if are_views and any(is_contiguous(*one) for one in both) else None


def _view_of_convolution(steps: Steps, convolution: OpStep) -> Candidate | None:
    """Returns the loop that only copies an image or a kernel which the convolution can read where it lies; of two, the
    one that copies more."""
    found: list[Candidate] = []
    for side, operand in enumerate(convolution.op.operands):
        value, views = steps.source(operand)
        writer = steps.writer(value)
        if not isinstance(writer, NestStep) or source_of(writer.nest) is None or not steps.is_private(value):
            continue
        placed = _placed(writer.nest, convolution.op, side)
        if not isinstance(placed, Refusal) and view_of(*placed) is not None:
            found.append(Candidate(operand.tensor.nbytes, writer, views, *placed))
    return max(found, key=lambda candidate: candidate.saved, default=None)


def computed_kernel(steps: Steps, convolution: OpStep) -> Candidate | Refusal | None:
    """Returns the loop that computes the kernel of a convolution where it is packed. Returns the refusal if there is
    such a loop and it has to run before the convolution."""
    op = convolution.op
    dims, groups = op.attributes["dimension_numbers"], op.int("feature_group_count", 1) * op.int("batch_group_count", 1)
    assert isinstance(dims, ConvDims)
    found = _candidate_of(steps, convolution, 1)
    if not isinstance(found, Candidate):
        return found
    kernel = op.operands[1].tensor.extents
    ci, co = kernel[dims.kernel_input_feature_dimension], kernel[dims.kernel_output_feature_dimension] // groups
    if groups > 1 and min(ci, co) < tuning.COMPUTED_KERNEL_FEATURES:
        return Refusal("kernel-in-place", "convolutions with small groups read the kernel in place")
    if dims.input_batch_dimension == len(kernel) - 1:
        return Refusal("kernel-in-place", "convolutions with adjacent images read the kernel in place")
    if any(reversals(op)):
        return Refusal("reversed-window", "the window is reversed")
    return found


def _candidate_of(steps: Steps, product: OpStep, side: int) -> Candidate | Refusal | None:
    """Returns the loop that computes an operand of a product where the product reads it; None if there is no loop."""
    operands = product.op.operands
    value, views = steps.source(operands[side])
    writer = steps.writer(value)
    if not isinstance(writer, NestStep) or _is_constant(value) or operands[0] is operands[1]:
        return None
    return _candidate(steps, product, side, writer, views)


def _candidate(
    steps: Steps, product: OpStep, side: int, writer: NestStep, views: list[ViewStep]
) -> Candidate | Refusal:
    op, operand = product.op, product.op.operands[side]
    if not steps.is_private(steps.source(operand)[0]):
        return Refusal("other-readers", "other steps read the operand too")
    placed = _placed(writer.nest, op, side)
    if isinstance(placed, Refusal):
        return placed
    saved = operand.tensor.nbytes if _is_moved(product, *placed) else _saved_bytes(writer.nest, op, side)
    return saved if isinstance(saved, Refusal) else Candidate(saved, writer, views, *placed)


def _is_moved(product: OpStep, nest: Nest, operand: ComputedOperand) -> bool:
    """Whether the loop only moves elements, and the product can read them where they are."""
    if view_of(nest, operand) is not None:
        return True
    source, side = source_of(nest), operand.side
    if source is None or operand.is_of_convolution or not _is_few(product.op, side):
        return False
    return is_gathered(nest, operand) or reads_floats_once(product, side, source[0])


def _saved_bytes(nest: Nest, op: Op, side: int) -> int | Refusal:
    """Returns how many bytes the loop reads less than it writes; each element that it reads counts once."""
    operand = op.operands[side]
    written = operand.tensor.nbytes
    sizes = [_read_bytes(nest, value) for value in dict.fromkeys(v for v, _ in nest.loads)]
    if isinstance(written, Size) or any(isinstance(n, Size) for n in sizes):
        return Refusal("dynamic-size", "its size is known only when the program is called")
    read = sum(sizes)
    # A few vectors are multiplied by bytes as fast as these are read: writing them first only costs time.
    are_few_bytes = op.name == PRODUCT and _is_byte(operand) and _is_few(op, side)
    share = max(tuning.COMPUTED_OPERAND_SHARE, 1.0 if are_few_bytes else 0.0)
    if written < tuning.COMPUTED_OPERAND_BYTES or read > share * written:
        text = f"the loop that computes it reads {read:,} bytes and writes {written:,}"
        return Refusal("saves-too-little", text)
    return written - read


def _read_bytes(nest: Nest, value: Value) -> int | Size:
    """Returns an upper bound of the bytes of a value that a loop reads: a slice of it may be all."""
    places = [at for v, at in nest.loads if v is value]
    read = sum(math.prod(nest.extents[v] for v in variables(at)) for at in places)
    return min(value.tensor.nbytes, read * value.tensor.storage.itemsize)


def _vectors(op: Op, side: int) -> int:
    """The vectors that an operand is multiplied by: rows if it is the second one, else columns. Of a grouped product,
    any group may have all rows."""
    if (g := grouped_of(op)) is not None:
        return op.operands[0].tensor.extents[g.ragged]
    r, shape = roles_of(op), op.result.tensor.extents
    batch, rows = len(r.lhs_batch), len(r.lhs_batch) + len(r.lhs_free)
    return math.prod(shape[batch:rows] if side else shape[rows:])


def _is_few(op: Op, side: int) -> bool:
    """Whether an operand is multiplied by so few vectors that it is computed in registers."""
    return _vectors(op, side) <= tuning.COMPUTED_OPERAND_ROWS


def _is_byte(value: Value) -> bool:
    return value.tensor.storage.name in ("i8", "ui8")


def _placed(nest: Nest, op: Op, side: int) -> tuple[Nest, ComputedOperand] | Refusal:
    """Returns the loop, whose variables may have been split, and how they number the elements of the operand."""
    shape = op.operands[side].tensor.extents
    unknown = any(isinstance(n, Size) for v in (*op.operands, op.result) for n in v.tensor.extents)
    if unknown:
        return Refusal("dynamic-size", "its size is known only when the program is called")
    if op.result.tensor.storage.is_complex or op.result.tensor.size == 0:
        return Refusal("complex-or-empty", "the product is one of complex numbers, or empty")
    if nest.reduce_vars or nest.interchange is not None:
        return Refusal("producer-reduces", "the loop that computes it reduces")
    if nest.overwrites is not None or nest.after is not None or len(nest.stores) != 1:
        return Refusal("writes-part", "the loop that computes it writes other values too, or only a part of it")
    store = nest.stores[0]
    if covers(nest, At(store.index), store.target.tensor.extents) is None:
        return Refusal("not-each-element-once", "the loop that computes it does not visit each element once")
    if not all(_are_runs(op, s) for s in (0, 1)):
        return Refusal("batch-not-strided", "dimensions of the product do not form runs")
    nest = replace(nest, extents=list(nest.extents), stores=[replace(store)])
    if not _split_at_dimensions(nest, shape):
        return Refusal("loop-spans-rows-and-columns", "one of its loops spans two dimensions of the operand")
    parts = tuple(_numbers(nest, nest.stores[0], shape, dims) for dims in _roles(op, side))
    return nest, ComputedOperand(side, parts, op.name == CONVOLUTION)


def _roles(op: Op, side: int) -> tuple[tuple[int, ...], ...]:
    """The dimensions of an operand that number products, terms, and rows or columns; each dimension of a convolution's.
    The products of the second operand of a grouped product are numbered by its groups first."""
    if op.name == CONVOLUTION:
        return tuple((d,) for d in range(op.operands[side].tensor.rank))
    if (g := grouped_of(op)) is not None:
        assert side and g.group is not None
        return (g.group, *g.rhs_batch), g.rhs_sum, g.rhs_free(op.operands[1].tensor.rank)
    r = roles_of(op)
    return (r.rhs_batch, r.rhs_contracting, r.rhs_free) if side else (r.lhs_batch, r.lhs_contracting, r.lhs_free)


def _are_runs(op: Op, side: int) -> bool:
    """Whether the dimensions of each role of an operand form a run of equal stride. Those of grouped products do;
    their tasks number the products one by one. Convolutions read each dimension by a stride of its own."""
    if grouped_of(op) is not None or op.name == CONVOLUTION:
        return True
    shape, roles = op.operands[side].tensor.extents, _roles(op, side)
    return all(run_of(shape, dims) is not None for dims in roles) and not outer_of(shape, roles[2])


def _split_at_dimensions(nest: Nest, shape: Sequence[int]) -> bool:
    """Splits variables that run through several dimensions of the operand. Returns whether none is left."""
    strides = strides_of(tuple(shape))
    while True:
        store = nest.stores[0]
        offset = ix.linearize(store.index, store.target.tensor.extents)
        spanning = ((v, _room(c, shape, strides)) for v, c in offset.terms)
        first = next(((v, room) for v, room in spanning if room is None or nest.extents[v] > room), None)
        if first is None:
            return True
        v, room = first
        if room is None or room < 2 or nest.extents[v] % room:
            return False
        nest.split(v, room)


def _room(coefficient: int, shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The iterations that a variable with this coefficient can have within one dimension; None if it begins inside of
    an element of that dimension."""
    d = _dimension(coefficient, shape, strides)
    step, rest = divmod(coefficient, strides[d])
    return None if rest or shape[d] % step else shape[d] // step


def _dimension(coefficient: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """The dimension that a variable with this coefficient runs through."""
    inside = [d for d, n in enumerate(shape) if is_wide(n) and strides[d] <= coefficient]
    return min(inside)


def _numbers(nest: Nest, store: Store, shape: Sequence[int], dims: tuple[int, ...]) -> dict[int, int]:
    """Maps the variables that run through some dimensions, of which the first is outermost, to their coefficients in
    the number of an element along these."""
    strides = strides_of(tuple(shape))
    offset = ix.linearize(store.index, store.target.tensor.extents)
    found: dict[int, int] = {}
    for v, c in offset.terms:
        d = _dimension(c, shape, strides)
        if d in dims:
            inner = math.prod(shape[x] for x in dims[dims.index(d) + 1 :])
            found[v] = c // strides[d] * inner
    return found


def _commit(steps: Steps, product: OpStep, candidate: Candidate, other: Candidate | None = None) -> Refusal | None:
    """Replaces the loop and the product by one step. `other`: a loop that copies the other operand, and goes along."""
    _, writer, views, nest, operand = candidate
    more = [] if other is None else [other.writer]
    views = [*views, *(other.views if other is not None else [])]
    is_view = writer.writes and view_of(nest, operand) is not None
    are_bytes = all(map(_is_byte, product.op.operands))
    total = None if (is_view and not are_bytes) or product.op.name != PRODUCT else summed(steps, product)
    parts = [*([writer] if writer.writes else []), *more, *views, product, *([total[0]] if total is not None else [])]
    inside = [v for s in (writer, *more, *views, *([product] if total is not None else [])) for v in s.writes]
    last = parts[-1]
    step = ComputedOperandStep(
        reads=[v for v in dict.fromkeys(v for s in parts if s not in views for v in s.reads) if v not in inside],
        writes=list(last.writes),
        position=last.position,
        after=[a for s in parts for a in s.after],
        why=dict(last.why),
        inside=tuple(inside),
        producer=writer,
        product=product,
        operand=operand,
        other=None if other is None else (other.writer, other.operand),
        summed=None if total is None else total[2],
    )
    refusal = steps.replace(parts, step)
    if refusal is None:
        writer.nest = nest
        if other is not None:
            other.writer.nest = other.nest
        if total is not None:
            total[0].nest = total[1]
    return refusal
