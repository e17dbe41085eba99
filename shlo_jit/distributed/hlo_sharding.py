"""Converts shardings in XLA's string form, the `mhlo.sharding` of an op, to tile assignments.

sharding  ::= `{` (`replicated` | tiled) `}`
tiled     ::= `devices` `=` `[` integers `]` (`<=` `[` integers `]` (`T` `(` integers `)`)? | integers) last?
last      ::= `last_tile_dim_replicate` | `last_tile_dims` `=` `{` word (`,` word)* `}`
"""

from __future__ import annotations

from math import prod

import numpy as np

from shlo_jit.distributed.sharding_text import Reader
from shlo_jit.distributed.shardy import refuse
from shlo_jit.distributed.tiles import TileAssignment
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op

SUBGROUPS = ("manual", "replicated")
"""Kinds of device subgroups whose devices share a tile."""


def hlo_tile_assignment(op: Op, text: str, rank: int, devices: int) -> TileAssignment:
    """Returns how a value of some rank is split. Raises ParseError for another text, and VerifyError for an
    inconsistent one. Raises UnsupportedError for a sharding that gives a device no part, or that is for another number
    of devices."""
    r = Reader(op, text)
    r.expect("{")
    if r.accept("replicated"):
        found = TileAssignment.whole(rank, devices)
    elif r.token in ("manual", "maximal", "unreduced", "unknown"):
        what = f"{op.name}: the sharding {text} does not say how an array is cut into parts"
        raise UnsupportedError(diagnose(what, op.span, op=op.name, label="sharding"))
    else:
        found = _tiled(r, rank, devices)
    r.expect("}")
    r.done()
    return found


def _tiled(r: Reader, rank: int, devices: int) -> TileAssignment:
    """Parses tiled."""
    for token in ("devices", "=", "["):
        r.expect(token)
    tiles = r.integers("]")
    if prod(tiles) != devices:
        what = (
            f"{r.op.name}: its sharding has {prod(tiles)} devices, but the program is compiled for {devices} partitions"
        )
        hint = f"compile with num_partitions={prod(tiles)}"
        raise UnsupportedError(diagnose(what, r.op.span, op=r.op.name, label="mesh", hint=hint))
    ids = _iota(r, devices) if r.accept("<=") else _listed(r)
    last = _last(r)
    if len(tiles) != rank + last:
        refuse(r.op, f"the sharding {r.text} has rank {len(tiles) - last}, but the value has rank {rank}")
    if sorted(ids) != list(range(devices)):
        refuse(r.op, f"the sharding {r.text} should name each of {devices} devices once")
    return TileAssignment(tiles[:rank], ids)


def _iota(r: Reader, devices: int) -> tuple[int, ...]:
    """Parses `[` integers `]` (`T` `(` integers `)`)?"""
    r.expect("[")
    shape = r.integers("]")
    order = tuple(range(len(shape)))
    if r.accept("T"):
        r.expect("(")
        order = r.integers(")")
    if prod(shape) != devices or sorted(order) != list(range(len(shape))):
        refuse(r.op, f"the sharding {r.text} should name each of {devices} devices once")
    return tuple(np.arange(devices).reshape(shape).transpose(order).reshape(-1).tolist())


def _listed(r: Reader) -> tuple[int, ...]:
    """Parses integers."""
    found = [r.integer()]
    while r.accept(","):
        found.append(r.integer())
    return tuple(found)


def _last(r: Reader) -> int:
    """Parses last. Returns the number of trailing tile dimensions that are not dimensions of the value."""
    if r.accept("last_tile_dim_replicate"):
        return 1
    if not r.accept("last_tile_dims"):
        return 0
    r.expect("=")
    r.expect("{")
    count = 0
    while True:
        if r.token not in SUBGROUPS:
            r.fail("'manual' or 'replicated'")
        r.next()
        count += 1
        if r.accept("}"):
            return count
        r.expect(",")
