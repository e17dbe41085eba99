"""Values of a sum over groups that are the same for all outputs, such as the scales of the vectors: computed once for
each vector and group, with lanes along the groups, before the outputs (see `groups_by_outputs.py`)."""

from __future__ import annotations

from shlo_jit.fuse.nest import Key
from shlo_jit.ir.index import variables
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.registers import Reg, from_memory, memory_type, to_memory
from shlo_jit.lower.kernels.group_terms import GroupTerms
from shlo_jit.lower.nest.position import Position

MOST_BYTES = 1 << 16
"""Maximum bytes of these values on the stack. With more, they are computed where they are read."""


class ValuesOfVectors:
    """The values, in arrays [vectors, groups] on the stack."""

    def __init__(self, terms: GroupTerms):
        self.t, self.b, self.s = terms, terms.b, terms.s
        keys, count = _values(terms), terms.s.rows * terms.s.groups
        if sum(key[0].tensor.storage.itemsize for key in keys) * count > MOST_BYTES:
            keys = []
        self.arrays = {key: self.b.alloca(memory_type(key[0].tensor.storage), count) for key in keys}

    def write(self) -> None:
        """Emits the loops that compute the values."""
        if not self.arrays:
            return
        b, s = self.b, self.s
        ev, n = self.t.totals(s.total_space), s.total_space.width
        with b.loop(0, s.rows, 1, "vector") as r, b.loop(0, s.groups, n, "groups") as at:
            g = at if s.groups % n == 0 else b.min_(at, s.groups - n)
            position = Position(self.t.places(i64(0), [r])[0] | {s.variables[2]: g}, n)
            for key in self.arrays:
                x, dtype = ev.value(position, key), key[0].tensor.storage
                assert isinstance(x, V)
                b.store(to_memory(b, dtype, b.splat(x, n)), self._address(key, r, g), align=dtype.itemsize)

    def at(self, r: V, g: V) -> dict[Key, Reg]:
        """The values of a vector and a group."""
        found: dict[Key, Reg] = {}
        for key in self.arrays:
            dtype = key[0].tensor.storage
            found[key] = from_memory(self.b, dtype, self.b.load(memory_type(dtype), self._address(key, r, g)))
        return found

    def _address(self, key: Key, r: V, g: V) -> V:
        number = self.b.add(self.b.mul(r, self.s.groups), g)
        return self.b.element(self.arrays[key], memory_type(key[0].tensor.storage), number)


def _values(terms: GroupTerms) -> list[Key]:
    """The values that are the same for all outputs, and that others are computed from which are not."""
    nest, outputs = terms.nest, set(terms.s.variables[1])

    def differs(key: Key) -> bool:
        return key in (terms.dot, terms.total) or bool(outputs & set(variables(key[1])))

    differing = {key for key in (*nest.nodes, *nest.loads) if differs(key)}
    while True:
        more = {k for k, node in nest.nodes.items() if k not in differing and differing & set(node.operands)}
        if not more:
            break
        differing |= more
    read = {o for key, node in nest.nodes.items() if key in differing for o in node.operands}
    same = [k for k, node in nest.nodes.items() if k in read and k not in differing and variables(k[1])]
    return [k for k in same if not k[0].tensor.storage.is_complex and nest.nodes[k].op.name != "stablehlo.constant"]
