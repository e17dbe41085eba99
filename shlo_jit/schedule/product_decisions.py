"""Decisions about a matrix product: the leaf that computes it, what is packed where, passes over k, and tasks.

`decide` makes them one after the other. A move that the caller gave decides; if there is none, the shapes do, and what
is decided already. The routine makes the decisions that follow from shapes by itself, so only others are passed to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from shlo_jit import tuning
from shlo_jit.kernels.gemm import given as routine
from shlo_jit.kernels.gemm.known_sizes import (
    Layout,
    blocking_of,
    extents_of,
    is_parallel,
    is_phased,
    product_of,
    register_tile,
    skinny_blocking,
    vectors_of,
)
from shlo_jit.kernels.gemm.policy import (
    IN_PLACE,
    PREPACKED,
    PRIVATE,
    SHARED,
    Blocking,
    Extents,
    is_serial,
    is_serial_matrix,
)
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.gemm.staged_numbers import Ints, Reasoned
from shlo_jit.kernels.gemm.strategy import GemmStrategy, strategy_of
from shlo_jit.kernels.llvm_values import is_float
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.moves import IllegalMove, Move, Pack, Parallel, Split, UseLeaf, of_kind
from shlo_jit.schedule.space import GIVEN
from shlo_jit.sizes import Size, hint_of

LEAVES = {
    "tiles": GemmStrategy.TILES,
    "skinny": GemmStrategy.FEW,
    "vectors": GemmStrategy.VECTORS,
    "any": GemmStrategy.ANY,
}
"""The strategies by the names of leaves."""
MODES = {"in_place": IN_PLACE, "shared": SHARED, "private": PRIVATE}
"""How the routine reads an operand that is not packed before it, by the words of moves."""
AT_CALL = Reason("sizes-at-call", "the sizes are known only at the call, which decides")


class Product(NamedTuple):
    """The facts that decisions about a product depend on."""

    plan: GemmPlan
    target: Target
    extents: tuple[int, int, int, int]
    """Number of products, rows, columns, terms."""
    strides: Layout
    """Strides of the operands, before any packing."""
    is_near: bool
    """B is expected to be in a cache."""
    can_pack: tuple[str, ...]
    """Where B can be packed before the product: `ahead`, if it is a constant; `loop`, before the loop around it."""
    packs: str
    """Where it is packed unless moves say otherwise; empty if it is not."""

    @property
    def has_sizes(self) -> bool:
        """Whether the sizes of one product are known."""
        return not any(isinstance(number, Size) for number in (*self.extents[1:], *self.strides))

    @property
    def is_known(self) -> bool:
        """Whether the number of products is known as well."""
        return self.has_sizes and not isinstance(self.extents[0], Size)

    @property
    def leaf(self) -> GemmStrategy:
        """The strategy for a B that is not packed before. If sizes are known only at the call, the call decides."""
        return strategy_for(self.plan, self.extents, self.strides, is_near=self.is_near)

    def shape(self, panels: str) -> Extents:
        """The extents as the routine sees them, with likely sizes for those that are unknown."""
        strides = Layout(*map(hint_of, self.strides))
        return extents_of(self.plan, *map(hint_of, self.extents), strides, bool(panels))  # type: ignore[arg-type]


class Decisions(NamedTuple):
    """What is decided about a product."""

    leaf: GemmStrategy
    why_leaf: Reason | None
    panels: str
    """Where B is packed before the product; empty if it is not."""
    blocking: Blocking | None
    """Packing, passes and tasks; None if the routine decides at the call."""
    is_given: bool
    """Whether the routine would decide otherwise, so the blocking is passed to it."""
    is_parallel: bool
    """Whether threads share the work."""
    is_alone: bool
    """Whether moves leave work to one thread that threads would share."""

    @property
    def grain(self) -> int:
        return 1 if self.blocking is None else self.blocking.group


def strategy_for(plan: GemmPlan, extents: Sequence[int], strides: Layout, *, is_near: bool) -> GemmStrategy:
    """Returns the strategy of a product. If sizes are known only at the call, the call decides."""
    _, m, n, k = extents
    if any(isinstance(number, Size) for number in (m, n, k, *strides)):
        return GemmStrategy.ANY
    return strategy_of(plan, m, n, k, strides, is_near=is_near)


def decide(p: Product, moves: Sequence[Move] | None = None) -> Decisions:
    """Returns the decisions about a product. `moves`: those of a caller, if there are any. Raises IllegalMove."""
    given = Given(() if moves is None else moves)
    panels = _panels(p, given)
    leaf, why = _leaf(p, given, panels)
    if leaf in (GemmStrategy.VECTORS, GemmStrategy.ANY) or not p.is_known:
        return _decided_at_call(p, moves, given, Decisions(leaf, why, panels, None, False, True, False))
    s = p.shape(panels)
    own = skinny_blocking(p.plan, s) if leaf is GemmStrategy.FEW else blocking_of(p.plan, s)
    shares = _shares(s, own, leaf)
    if moves is None:
        return Decisions(leaf, why, panels, own, False, shares, False)
    blocking = _blocking(p, given, s, own, leaf, panels)
    parallel = given.parallel is not None and is_parallel(s, blocking)
    differs = blocking != own or (parallel and not shares)
    return Decisions(leaf, why, panels, blocking, differs, parallel, not parallel and (differs or shares))


class Given:
    """The moves about a product that a caller gave, by what they decide. Of several about one thing the first counts;
    the others are refused at the end, since the schedule does not have them."""

    def __init__(self, moves: Sequence[Move]):
        packs, splits = of_kind(moves, Pack), of_kind(moves, Split)
        self.leaf = next(iter(of_kind(moves, UseLeaf)), None)
        self.a, self.b = (next((pack for pack in packs if pack.operand == x), None) for x in "ab")
        self.m, self.n, self.k = (next((split for split in splits if split.loop == x), None) for x in "mnk")
        self.parallel = next(iter(of_kind(moves, Parallel)), None)

    @property
    def blocking(self) -> list[Move]:
        """The moves about packing, passes and tasks."""
        return [move for move in (self.a, self.b, self.m, self.n, self.k) if move is not None]


# ---------------------------------------------------------------------- leaf
def _panels(p: Product, given: Given) -> str:
    """Where B is packed before the product; empty if it is not."""
    move, leaf = given.b, given.leaf
    is_tiles = leaf is None or leaf.leaf == "tiles"
    if move is None:
        return p.packs if is_tiles else ""
    if move.where in MODES:
        return ""
    if move.where not in p.can_pack:
        text = "B is no constant" if move.where == "ahead" else "no loop around the product reads the same B"
        raise IllegalMove(move, Reason("operand-not-packed-there", text))
    if not is_tiles:
        raise IllegalMove(move, Reason("leaf-packs-nothing", "only tiles read an operand that is packed"))
    return move.where


def _leaf(p: Product, given: Given, panels: str) -> tuple[GemmStrategy, Reason | None]:
    """The leaf, and the reason for it."""
    move = given.leaf
    if move is None:
        leaf = GemmStrategy.TILES if panels else p.leaf
        return leaf, _why_leaf(p, leaf)
    leaf = LEAVES[move.leaf]
    refusal = _against_leaf(p, leaf)
    if refusal is not None:
        raise IllegalMove(move, refusal)
    return leaf, GIVEN


def _why_leaf(p: Product, leaf: GemmStrategy) -> Reason | None:
    if leaf is GemmStrategy.ANY:
        return AT_CALL
    if leaf is GemmStrategy.VECTORS:
        return Reason("memory-bound", "bound by memory: the matrix is read once")
    if leaf is GemmStrategy.FEW:
        return skinny_blocking(p.plan, p.shape("")).mode_b.why
    return register_tile(p.plan) or Reason("tile-registers-layout", "the processor has tile registers")


def _against_leaf(p: Product, leaf: GemmStrategy) -> Reason | None:
    """The reason against a leaf; None if it can compute the product."""
    if leaf is GemmStrategy.TILES:
        return None
    if leaf is GemmStrategy.ANY:
        known = Reason("leaf-not-there", "the sizes are known: tiles, skinny or vectors")
        return known if p.has_sizes else None
    if not p.has_sizes:
        return AT_CALL
    if leaf is GemmStrategy.FEW:
        return routine.against_skinny(p.plan, p.shape(""))
    if vectors_of(p.plan, *p.extents[1:], p.strides) is None:
        return Reason("leaf-not-there", "neither operand is a vector, or few of them, whose matrix is read in order")
    return None


# ---------------------------------------------------------------------- packing, passes and tasks
def _decided_at_call(p: Product, moves: Sequence[Move] | None, given: Given, d: Decisions) -> Decisions:
    """The decisions if the routine makes those about packing, passes and tasks at the call."""
    for move in given.blocking:
        if not (d.panels and move is given.b):
            nothing = Reason("leaf-packs-nothing", "vectors read the matrix once, as it is")
            raise IllegalMove(move, nothing if d.leaf is GemmStrategy.VECTORS else AT_CALL)
    if given.parallel is not None and given.parallel.grain != 1:
        _refuse_grain(given.parallel, "the routine decides which products a task has; the grain is 1")
    shares = True
    if d.leaf is GemmStrategy.VECTORS and p.is_known:
        batch, m, n, k = p.extents
        found = vectors_of(p.plan, m, n, k, p.strides)
        assert found is not None
        shares = not is_serial_matrix(Ints(), found[0].outputs, k, batch)
    if moves is None:
        return d._replace(is_parallel=shares)
    if given.parallel is not None and not shares:
        raise IllegalMove(given.parallel, Reason("too-little-work", "vectors take so little work on one thread"))
    parallel = given.parallel is not None
    return d._replace(is_parallel=parallel, is_alone=shares and not parallel)


def _shares(s: Extents, blocking: Blocking, leaf: GemmStrategy) -> bool:
    """Whether threads share the work if the routine decides."""
    if is_phased(blocking):
        return True
    product = s.m * s.n * s.k if leaf is GemmStrategy.FEW else product_of(s)
    return is_parallel(s, blocking) and not is_serial(Ints(), s, product)


def _blocking(p: Product, given: Given, s: Extents, own: Blocking, leaf: GemmStrategy, panels: str) -> Blocking:
    """The blocking that moves describe; what they leave out follows from the shapes."""
    if leaf is GemmStrategy.FEW:
        _refuse_for_skinny(given, s)
        found = own
    else:
        found = blocking_of(p.plan, s, _mode_of_b(p, given, s, panels), _mode_of_a(p, given, s))
    if given.m is not None and leaf is not GemmStrategy.FEW:
        found = found._replace(mc=_checked(given.m, routine.against_rows(p.plan, s, given.m.by)))
    if given.n is not None:
        found = found._replace(nc=_checked(given.n, routine.against_columns(p.plan, s, given.n.by)))
    if given.k is not None:
        if panels == "loop" and given.k.by != own.kc:
            text = f"panels that are packed before a loop have passes of {own.kc}"
            raise IllegalMove(given.k, Reason("passes-of-loop", text))
        found = found._replace(kc=_checked(given.k, routine.against_pass(p.plan, s, given.k.by)))
    if given.parallel is not None:
        found = found._replace(group=Reasoned.of(given.parallel.grain, GIVEN))
        if leaf is GemmStrategy.FEW and given.parallel.grain != 1:
            _refuse_grain(given.parallel, "a task of skinny tiles belongs to one product")
        refusal = routine.against_group(s, found)
        if refusal is not None:
            raise IllegalMove(given.parallel, refusal)
    return found


def _checked(move: Split, refusal: Reason | None) -> Reasoned:
    if refusal is not None:
        raise IllegalMove(move, refusal)
    return Reasoned.of(move.by, GIVEN)


def _mode_of_a(p: Product, given: Given, s: Extents) -> int | None:
    if given.a is None:
        return None
    mode = MODES.get(given.a.where, PREPACKED)
    refusal = routine.against_mode_of_a(p.plan, s, mode)
    if refusal is not None:
        raise IllegalMove(given.a, refusal)
    return Reasoned.of(mode, GIVEN)


def _mode_of_b(p: Product, given: Given, s: Extents, panels: str) -> int | None:
    if given.b is None or panels:
        return None if given.b is None else Reasoned.of(PREPACKED, GIVEN)
    mode = MODES[given.b.where]
    refusal = routine.against_mode_of_b(p.plan, s, mode)
    if refusal is not None:
        raise IllegalMove(given.b, refusal)
    return Reasoned.of(mode, GIVEN)


def _refuse_for_skinny(given: Given, s: Extents) -> None:
    """Refuses moves about what skinny tiles do in one way only."""
    for pack in (given.a, given.b):
        if pack is not None and pack.where != "in_place":
            raise IllegalMove(pack, Reason("leaf-packs-nothing", "skinny tiles read both operands in place"))
    if given.m is not None and given.m.by != s.m:
        raise IllegalMove(given.m, Reason("split-out-of-range", f"a task of skinny tiles has all {s.m} rows"))


def _refuse_grain(move: Parallel, text: str) -> NoReturn:
    raise IllegalMove(move, Reason("group-out-of-range", text))


# ---------------------------------------------------------------------- as moves
_LEAF_NAMES = {leaf: name for name, leaf in LEAVES.items()}
_MODE_NAMES = {mode: name for name, mode in MODES.items()}


def moves_of(d: Decisions) -> tuple[Move, ...]:
    """The moves that lead to these decisions, in the order in which they are made."""
    moves: list[Move] = [UseLeaf(_LEAF_NAMES[d.leaf], why=d.why_leaf)]
    c = d.blocking
    if c is not None:
        moves.append(Pack("a", _MODE_NAMES[c.mode_a], why=c.mode_a.why))
        if c.mode_b != PREPACKED:
            moves.append(Pack("b", _MODE_NAMES[c.mode_b], why=c.mode_b.why))
    if d.panels:
        moves.append(Pack("b", d.panels, why=WHY_PANELS[d.panels]))
    if c is not None:
        moves += [Split(loop, int(part), why=part.why) for loop, part in (("m", c.mc), ("n", c.nc), ("k", c.kc))]
    if d.is_parallel:
        at_call = AT_CALL if d.leaf is not GemmStrategy.VECTORS else _OUTPUTS
        moves.append(Parallel(int(d.grain), why=at_call if c is None else c.group.why))
    return tuple(moves)


_OUTPUTS = Reason("tasks-by-outputs", "a task computes some of the outputs, about as many as fit in a cache")
WHY_PANELS = {
    "ahead": Reason("constant-operand", "it is a constant"),
    "loop": Reason("loop-invariant", "products read it in every iteration"),
}
"""The reasons for panels that are packed before the product."""


def check_used(given: Sequence[Move], made: Sequence[Move]) -> None:
    """Raises IllegalMove for the first move that the schedule does not have."""
    for move in given:
        if move not in made:
            raise IllegalMove(move, Reason("move-without-use", "the product has no such loop, operand or choice"))


# ---------------------------------------------------------------------- bits
def order_of_sums(p: Product, d: Decisions) -> tuple[str | int, ...]:
    """What the order of additions depends on. Decisions for which it is equal give the same bits."""
    if not is_float(p.plan.acc):
        return ()
    if d.leaf is GemmStrategy.VECTORS and p.has_sizes and p.plan.kind == "plain":
        found = vectors_of(p.plan, *p.extents[1:], p.strides)
        if found is None or not found[1]:
            return ("lanes",)
        # Sums that accumulate together take the terms in one chain, as tiles do with few of them in one pass.
        is_chain = not p.plan.sums_in_blocks or p.extents[3] <= tuning.GEMM_SUM_TERMS
        return ("passes", p.extents[3]) if is_chain else ("chain",)
    if d.blocking is None:
        return (d.leaf.name, d.panels)
    return ("passes", min(d.blocking.kc, p.extents[3]))


def changes_bits(p: Product, before: Decisions, after: Decisions) -> bool:
    """Whether other decisions may change the last bits of a product. Packing, tasks and threads never do."""
    return order_of_sums(p, before) != order_of_sums(p, after)
