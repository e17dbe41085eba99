"""Express communication with the host and between processes as custom calls with reserved names.

Needs: nothing. Guarantees: no infeed, outfeed, send or recv. The runtime handles the calls to the host
(`runtime/host.py`). A transfer whose channel is in the context's `channels` goes to a process, even if it is marked as
a host transfer.

    %x, %u = infeed(%t)   ->   %x, %u = custom_call @stablehlo.infeed(%t) {has_side_effect}
    %u = send(%x, %t) {channel 7, is_host_transfer}   ->   %u = custom_call @stablehlo.send(%x, %t) {channel = 7}
    %u = send(%x, %t) {channel 7, source_target_pairs = [[0, 1]]}
        ->   %u = custom_call @shlo_jit.send(%x, %t) {channel = 7, source_target_pairs = [[0, 1]]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_jit.ir.attributes import DictAttr, IntegerAttr
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ops.collective import channel_id
from shlo_jit.ops.known_calls import RECV, SEND
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

FEEDS = {"stablehlo.infeed", "stablehlo.outfeed"}
TRANSFERS = {"stablehlo.send": SEND, "stablehlo.recv": RECV}
"""Transfers -> the targets of transfers to and from another process."""


def host_calls(function: Op, context: Context) -> Op:
    """The function with its transfers as custom calls."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if not _is_transfer(op):
            return None
        target, config = _call(op, context)
        attributes = {"call_target_name": target, "has_side_effect": True, "backend_config": DictAttr(config)}
        attributes["api_version"] = IntegerAttr(4, "i32")  # in this version, backend_config is a dictionary
        return rw.emit("stablehlo.custom_call", operands, [r.type for r in op.results], attributes)

    return rewrite(function, visit) if any(map(_is_transfer, walk(function.block()))) else function


def _is_transfer(op: Op) -> bool:
    return op.name in FEEDS or op.name in TRANSFERS


def _call(op: Op, context: Context) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Returns the target that represents a transfer, and its configuration."""
    if op.name in FEEDS:
        return op.name, ()
    channel = channel_id(op)
    config = (("channel", IntegerAttr(channel)),)
    if op.attributes.get("is_host_transfer") and channel not in context.channels:
        return op.name, config
    pairs = op.attributes.get("source_target_pairs")
    return TRANSFERS[op.name], config if pairs is None else (*config, ("source_target_pairs", pairs))
