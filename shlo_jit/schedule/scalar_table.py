"""The scalars of an interchanged loop's iterations in a table, which is computed once for all tiles.

The nest runs many iterations on a tile before the next tile (`loop_interchange.py`). Scalars that are the same for all
elements, such as powers of the iteration's number, would be computed again for each tile. If they are expensive, the
calling thread computes them before the tiles begin: those of each iteration that elements are computed from, and the
number of iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.fuse.choices import CHOICES
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest
from shlo_jit.ir import index as ix
from shlo_jit.ir.index import At, Expr
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.scratch import Field
from shlo_jit.schedule.space import Space
from shlo_jit.sizes import hint_of

COUNT = "iterations"
"""The field with the number of iterations in the table."""


@dataclass(frozen=True)
class ScalarTable:
    """The scalars of an iteration that its elements are computed from."""

    values: tuple[Key, ...]
    capacity: int
    """Maximum number of iterations in the table."""
    cost: int
    """Cost of all scalars of an iteration, in additions."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The scratch memory: the number of iterations, and an array for each value."""
        arrays = [Field(f"scalar {i}", n * self.capacity) for i, n in enumerate(map(_bytes_of, self.values))]
        return (Field(COUNT, 8), *arrays)


def scalar_table(nest: Nest, space: Space, target: Target) -> ScalarTable | None:
    """Returns the table of a nest whose scalars are expensive compared with loading them, for several tiles."""
    if nest.interchange is None or nest.reduce_vars or space.vector is None:
        return None
    if hint_of(nest.rows) < 2 * tuning.INTERCHANGE_VECTORS * space.width:
        return None
    scalars = changing_scalars(nest)
    work = sum(cost(nest.nodes[key].op) for key in scalars if key in nest.nodes)
    values = _read_by_elements(nest, scalars)
    if work < tuning.SCALAR_TABLE_COST or not values or any(value.tensor.is_packed for value, _ in values):
        return None
    room = target.bytes_of(tuning.SCALAR_TABLE_BYTES)
    return ScalarTable(values, max(1, room // sum(map(_bytes_of, values))), work)


def changing_scalars(nest: Nest) -> set[Key]:
    """Returns the values that are the same for all elements, and change from iteration to iteration."""
    same = {key for key in nest.loads if not ix.variables(key[1])}
    constants = {key for key, node in nest.nodes.items() if node.op.name == "stablehlo.constant"}
    same |= constants
    for key, node in reversed(nest.nodes.items()):
        is_computed = bool(node.operands) and node.op.name not in CHOICES
        if not ix.variables(key[1]) or (is_computed and all(o in same for o in node.operands)):
            same.add(key)
    return same - unchanged(nest) - constants


def unchanged(nest: Nest) -> set[Key]:
    """Returns the values of a nest that do not depend on any state of its loop, excluding constants."""
    assert nest.interchange is not None
    states, fixed = set(nest.interchange.states), set[Key]()

    def settle(key: Key) -> None:
        if key[0] not in states and all(place in fixed for place in _places(key[1])):
            fixed.add(key)

    # loads at places that depend on no value, then values (producers first), and the loads between them
    constants = {k for k, n in nest.nodes.items() if n.op.name == "stablehlo.constant"}
    for key in nest.loads:
        settle(key)
    for key, node in reversed(nest.nodes.items()):
        for operand in node.operands:
            if operand in nest.loads:
                settle(operand)
        if all(o in fixed or o in constants for o in node.operands):
            settle(key)
    return fixed - constants


def _places(at: At) -> list[Key]:
    """The values that an index depends on."""
    exprs: list[Expr] = [*at.index, *(c.expr for c in at.conditions)]
    return [(s.value, s.at) for e in exprs for s in e.syms]


def _read_by_elements(nest: Nest, scalars: set[Key]) -> tuple[Key, ...]:
    """The scalars that other values than scalars read, as operands or in indices."""
    found: dict[Key, None] = {}
    todo, seen = [(s.value, s.at) for s in nest.stores if s.index], set[Key]()
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        if key in scalars:
            found[key] = None
            continue
        todo += _places(key[1])
        todo += nest.nodes[key].operands if key in nest.nodes else []
    return tuple(found)


def _bytes_of(key: Key) -> int:
    return key[0].tensor.storage.itemsize
