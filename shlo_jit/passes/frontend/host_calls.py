"""Communication with the host as custom calls of reserved names, which the run time answers (`runtime/host.py`).

Needs: nothing. Guarantees: no infeed, outfeed, and no send or recv that is a host transfer.

    %x, %u = infeed(%t)   ->   %x, %u = custom_call @stablehlo.infeed(%t) {has_side_effect}
    %u = send(%x, %t) {channel 7, is_host_transfer}   ->   %u = custom_call @stablehlo.send(%x, %t) {channel = 7}
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import DictAttr, IntegerAttr
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ops.collective import channel_id
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

FEEDS = {"stablehlo.infeed", "stablehlo.outfeed"}
TRANSFERS = {"stablehlo.send", "stablehlo.recv"}


def host_calls(function: Op, _: Context) -> Op:
    """The function with its host communication as custom calls."""

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if not _is_host(op):
            return None
        config = DictAttr((("channel", IntegerAttr(channel_id(op))),) if op.name in TRANSFERS else ())
        attributes = {"call_target_name": op.name, "has_side_effect": True, "backend_config": config}
        attributes["api_version"] = IntegerAttr(4, "i32")  # whose backend_config is a dictionary
        return rw.emit("stablehlo.custom_call", operands, [r.type for r in op.results], attributes)

    return rewrite(function, visit) if any(map(_is_host, walk(function.block()))) else function


def _is_host(op: Op) -> bool:
    return op.name in FEEDS or (op.name in TRANSFERS and bool(op.attributes.get("is_host_transfer")))
