"""The k smallest records of a line, in order, kept in a sorted array.

An insertion needs no branch: for every place j, new[j] = max(old[j - 1], min(x, old[j])), a vector at a time from the
end on. The array is preceded by a smallest record and followed by largest ones.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i64, vector


def array_bytes(k: int, lanes: int) -> int:
    """Returns the bytes of the array, including the records before and after it."""
    return 8 * (lanes + _padded(k, lanes))


def _padded(k: int, lanes: int) -> int:
    return -(-k // lanes) * lanes


def begin(b: Builder, memory: V, k: int, lanes: int) -> V:
    """Initializes an empty array in `memory`. Returns its address."""
    kind = vector("i64", lanes)
    b.store(const(kind, 0), memory)
    array = b.element(memory, "i64", lanes)
    for j in range(0, _padded(k, lanes), lanes):
        b.store(const(kind, -1), b.element(array, "i64", j))
    return array


def insert(b: Builder, array: V, record: V, k: int, lanes: int) -> None:
    """Inserts a record into the array; the largest record of the array is dropped."""
    kind = vector("i64", lanes)
    x = b.splat(record, lanes)
    count = _padded(k, lanes) // lanes
    with b.loop(0, count, 1, "insert") as nth:
        at = b.element(array, "i64", b.mul(b.sub(i64(count - 1), nth), lanes))
        own, before = b.load(kind, at), b.load(kind, b.element(at, "i64", -1))
        new = b.intrinsic("umax", kind, [before, b.intrinsic("umin", kind, [x, own])])
        b.store(new, at)


def insert_function(module: ModuleText, k: int, lanes: int) -> str:
    """Returns the name of `i64 (ptr array, i64 record)`, which inserts and returns the largest record that remains."""
    name = f"top_k_insert.{k}"
    if name not in module.functions:
        b = module.function(name, [("ptr", "array"), ("i64", "record")], "i64", attributes="nounwind")
        insert(b, b.params[0], b.params[1], k, lanes)
        b.ret(b.load("i64", b.element(b.params[0], "i64", k - 1)))
    return name
