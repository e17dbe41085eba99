"""Run-time offsets of arrays: where all elements that a loop reads are moved by the same numbers, known at the call,
the address of the array is moved once instead of the index of each element.

    w[layer, o, k]      with `layer` a counter       ->      (w + layer * stride)[o, k]
"""

from __future__ import annotations

from dataclasses import replace

from shlo_jit.fuse.nest import Key, Nest, Node
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, Expr, Sym, variables
from shlo_jit.schedule.space import linear

UNIT = 32
"""Bits that an offset of bytes and smaller elements must be a multiple of: these may be read in words."""
Offsets = dict[Value, tuple[Sym, ...]]
"""The terms of the offset of each array, in elements."""


def take_offsets(nest: Nest) -> tuple[Nest, Offsets]:
    """Returns the nest without the offsets of some arrays, and these offsets."""
    keys: dict[Value, list[Key]] = {}
    for key in nest.loads:
        keys.setdefault(key[0], []).append(key)
    fixed = _read_for_indices(nest)
    offsets = {value: found for value, ks in keys.items() if value not in fixed and (found := _offset(value, ks))}
    if not offsets:
        return nest, {}

    def moved(key: Key) -> Key:
        value, at = key
        if value not in offsets or key not in nest.loads:
            return key
        return value, At(tuple(Expr(e.const, e.terms) for e in at.index), at.conditions)

    nodes = {key: Node(node.op, [moved(k) for k in node.operands]) for key, node in nest.nodes.items()}
    stores = list(nest.stores)
    for i, store in enumerate(stores):
        value, at = moved((store.value, store.at))
        stores[i] = replace(store, value=value, at=at)
    return replace(nest, nodes=nodes, loads={moved(key): None for key in nest.loads}, stores=stores), offsets


def _read_for_indices(nest: Nest) -> set[Value]:
    """Returns the arrays that indices are computed from. They keep their addresses: the offset of one array must not be
    computed from elements of another that is moved."""
    places = [at for _, at in (*nest.nodes, *nest.loads)]
    found, seen = set[Value](), set[Key]()
    while places:
        at = places.pop()
        todo: list[Key] = [(s.value, s.at) for e in (*at.index, *(c.expr for c in at.conditions)) for s in e.syms]
        while todo:
            key = todo.pop()
            if key in seen:
                continue
            seen.add(key)
            places.append(key[1])
            if key in nest.nodes:
                todo += nest.nodes[key].operands
            else:
                found.add(key[0])
    return found


def _offset(value: Value, keys: list[Key]) -> tuple[Sym, ...]:
    """Returns the terms by which all elements of an array are moved; none if they are not the same for all, or do not
    keep the array's units of memory together."""
    found = {linear(key).syms for key in keys}
    if len(found) != 1 or any(c.expr.syms for _, at in keys for c in at.conditions):
        return ()
    (syms,) = found
    bits = bits_in_memory(value)
    is_whole = bits > 8 or all(s.coefficient * bits % UNIT == 0 for s in syms)
    return syms if is_whole and not any(variables(s.at) for s in syms) else ()


def bits_in_memory(value: Value) -> int:
    """Returns the bits from one element of an array to the next."""
    storage = value.tensor.storage
    return storage.bits if value.tensor.is_packed else 8 * storage.itemsize


def is_run(value: Value, coefficient: int) -> bool:
    """Whether elements at this distance are one after the other in memory, or in units that are."""
    bits = bits_in_memory(value)
    return (coefficient == 1 and not value.tensor.is_packed) or (bits <= 8 and coefficient * bits in (8, 32))
