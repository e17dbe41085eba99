"""Damaged bytes of `jax.export`: each results in one of the documented errors, or in another program."""

from __future__ import annotations

import dataclasses
import os
import random
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flatbuffers", reason="JAX writes with it")
import jax.numpy as jnp
from jax import export

import shlo_jit
import shlo_jit.jax as sj
from shlo_jit.bytecode.flatbuffer import Buffer
from shlo_jit.bytecode.stream import Damaged
from shlo_jit.jax.exported_bytes import read_exported

CASES = int(os.environ.get("SHLO_JIT_DAMAGE_CASES", "20000"))
"""Number of cases of the long run."""
WHOLE = 25
"""Interval of the readable cases that are also compiled."""
SLOW_SECONDS = 20.0


class Point(NamedTuple):
    x: Any
    y: Any


export.register_namedtuple_serialization(Point, serialized_name="tests.damage.Point")


def trees(p: Point, q: dict[str, Any]) -> Any:
    return {"a": [jnp.tanh(p.x), None, (q["b"] + 1,)], "c": Point(p.y, p.x * 2)}


def programs() -> list[bytes]:
    ones = jnp.ones((2, 3))
    (n,) = export.symbolic_shape("n")
    written = [
        export.export(jax.jit(trees))(Point(ones, ones), {"b": jnp.ones(4, jnp.bfloat16)}),
        export.export(jax.jit(jax.random.split))(jax.random.key(0)),
        export.export(jax.jit(lambda x, y: x * 2 + x.shape[0]), platforms=["tpu", "cpu"])(
            jax.ShapeDtypeStruct((n, 3), np.float32), 1.0
        ),
        export.export(jax.jit(lambda x: jnp.sort(x @ x.T)[:2]))(ones),
    ]
    data = [bytes(exported.serialize()) for exported in written]
    return [*data, bytes(written[3].serialize(vjp_order=1))]


# ---------------------------------------------------------------------- damage
def flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : rng.choice((len(data), at + 1, at + 4, at + rng.randrange(200)))]


def swap(rng: random.Random, data: bytearray) -> None:
    """Swaps two words, such as offsets of tables and vectors, or two halves, such as those of vtables."""
    size = rng.choice((2, 4))
    a, b = (rng.randrange(len(data) // size) * size for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def number(rng: random.Random, data: bytearray) -> None:
    """Makes a count or an offset much too large, too small, or point to another place."""
    at = rng.randrange(len(data) // 4) * 4
    value = rng.choice((0, 1, 2, 4, len(data), 2**31, 2**32 - 1, 2**32 - at, rng.randrange(len(data))))
    data[at : at + 4] = struct.pack("<I", value % 2**32)


def head(rng: random.Random, data: bytearray) -> None:
    """Damages the first bytes, which have the root's vtable and offsets."""
    start = bytearray(data[:160])
    rng.choice((flip, swap, number))(rng, start)
    data[:160] = start


def copy(rng: random.Random, data: bytearray) -> None:
    size = rng.randrange(1, 64)
    a, b = rng.randrange(len(data)), rng.randrange(len(data))
    data[b : b + size] = data[a : a + size]


DAMAGE: tuple[Callable[[random.Random, bytearray], None], ...] = (flip, cut, swap, number, head, copy)


def check(data: bytes, is_whole: bool) -> str:
    """Returns which of the documented outcomes occurs."""
    try:
        found = read_exported(data)
    except (Damaged, ValueError):
        with pytest.raises(ValueError, match=r"not a jax\.export program|the type '"):
            sj.from_exported(data)
        return "not read"
    try:
        if is_whole:
            sj.from_exported(data)
        else:
            shlo_jit.verify(shlo_jit.parse(found.mlir_module_serialized))
    except ValueError as error:  # StableHLOError is one
        assert str(error)
        return "refused"
    return "compiled" if is_whole else "taken"


def run(cases: int, seed: int) -> dict[str, int]:
    rng, given, seen = random.Random(seed), programs(), dict.fromkeys(("not read", "refused", "taken", "compiled"), 0)
    for i in range(cases):
        data = bytearray(rng.choice(given))
        for _ in range(rng.choice((1, 1, 2))):
            if len(data) > 8:
                rng.choice(DAMAGE)(rng, data)
        begin = time.process_time()
        try:
            seen[check(bytes(data), i % WHOLE == 0)] += 1
        except BaseException as error:
            error.add_note(f"case {i} of seed {seed}: {bytes(data).hex()}")
            raise
        assert time.process_time() - begin < SLOW_SECONDS, f"case {i} of seed {seed}: {bytes(data).hex()}"
    return seen


def test_damage() -> None:
    assert sum(run(400, 1).values()) == 400


@pytest.mark.slow
def test_much_damage() -> None:
    seen = run(CASES, 2)
    print(seen)
    assert min(seen[kind] for kind in ("not read", "refused", "taken")) > CASES / 50


# ---------------------------------------------------------------------- refused inputs
def test_every_prefix() -> None:
    data = programs()[0]
    for end in [*range(200), *range(200, len(data) - 4, 37)]:
        with pytest.raises(ValueError):
            sj.from_exported(data[:end])


def table(*fields: bytes) -> bytes:
    """Returns a root table with 4-byte fields."""
    vtable = struct.pack(
        f"<HH{len(fields)}H", 4 + 2 * len(fields), 4 + 4 * len(fields), *(4 + 4 * i for i in range(len(fields)))
    )
    vtable += b"\0" * (-len(vtable) % 4)
    return struct.pack("<I", 4 + len(vtable)) + vtable + struct.pack("<i", len(vtable)) + b"".join(fields)


def test_offsets_and_lengths() -> None:
    assert Buffer(table(struct.pack("<i", -7))).root().number(0, "<i") == -7
    for field in (0, 1, 5, 2**31, 2**32 - 1):
        with pytest.raises(Damaged):
            Buffer(table(struct.pack("<I", field))).root().bytes(0)
    assert Buffer(table(struct.pack("<I", 4)) + struct.pack("<I", 2) + b"ab").root().bytes(0) == b"ab"
    with pytest.raises(Damaged, match="longer than the flatbuffer"):
        Buffer(table(struct.pack("<I", 4)) + struct.pack("<I", 3) + b"ab").root().bytes(0)
    with pytest.raises(Damaged, match="a string is not UTF-8"):
        Buffer(table(struct.pack("<I", 4)) + struct.pack("<I", 2) + b"\xff\xfe").root().text(0)


def test_a_table_that_refers_to_itself() -> None:
    """Its children are the same vector again, which would never end."""
    data = bytearray(table(struct.pack("<I", 4)) + struct.pack("<II", 1, 0))
    struct.pack_into("<I", data, len(data) - 4, 2**32 - (len(data) - 4 - struct.unpack_from("<I", data, 0)[0]))
    with pytest.raises(Damaged):
        node = Buffer(bytes(data)).root()
        for _ in range(10_000):
            (node,) = node.tables(0)


def test_the_limit_covers_shared_tables() -> None:
    """Each level refers to the next one a hundred times."""
    levels, count = 12, 100
    size = 8 + 4 + 4 + 4 * count
    data = bytearray(4)
    struct.pack_into("<I", data, 0, 4 + 8)
    for level in range(levels):
        start = len(data)
        data += (
            struct.pack("<HHHH", 6, 8, 4, 0)
            + struct.pack("<iI", 8, 4)
            + struct.pack("<I", count if level < levels - 1 else 0)
        )
        for i in range(count):
            here = start + 20 + 4 * i
            data += struct.pack("<I", start + size + 8 + 4 - here if level < levels - 1 else 0)

    def walk(node: Any) -> int:
        return 1 + sum(map(walk, node.tables(0)))

    with pytest.raises(Damaged, match="too often"):
        walk(Buffer(bytes(data)).root())


def test_a_program_that_differs_from_its_description() -> None:
    data = programs()[3]
    found = read_exported(data)
    module = found.mlir_module_serialized
    assert data.count(module) == 1
    other = bytes(export.export(jax.jit(lambda x: x * 1.0))(jnp.ones((2, 3))).serialize())
    mine = read_exported(other).mlir_module_serialized
    wrong = other.replace(mine, mine.replace(b"main", b"niam"))
    with pytest.raises(ValueError):
        sj.from_exported(wrong)


def test_objects_whose_program_is_damaged() -> None:
    """JAX's own reader aborts on such programs; ours is used."""
    exported = export.export(jax.jit(lambda x: x + 1))(jnp.ones(3))
    module = exported.mlir_module_serialized
    for end in range(0, len(module) - 1, 29):
        wrong = dataclasses.replace(exported, mlir_module_serialized=module[:end] + b"\xff" * 3 + module[end + 3 :])
        for take in (shlo_jit.compile, shlo_jit.parse, sj.from_exported):
            try:
                take(wrong)
            except shlo_jit.StableHLOError as error:
                assert error.diagnostics
