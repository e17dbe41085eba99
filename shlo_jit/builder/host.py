"""Transfers to and from the host (`exe.infeed`, `exe.outfeed`, `exe.channel`), and from one process to another.

Transfers of one function are ordered as they are written: each takes the token of the previous one. Functions whose
names end in `with_token` or `with_tokens` take a token and return another one, for other orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import channel, pairs, text
from shlo_jit.builder.control import create_token, token_of, values_of
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.records import ChannelHandle, record_of
from shlo_jit.builder.scope import emit, emit1, frame
from shlo_jit.builder.shapes import ShapeLike, type_of
from shlo_jit.ir.types import TOKEN, TupleType, Type

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

Pairs = Sequence[Sequence[int]] | None
DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE = 1, 2, 3


# ---------------------------------------------------------------------------- streams
def infeed(shape: ShapeLike, config: str = "") -> Any:
    """Reads the next item, of that shape, from the host's stream; a tuple of values for a tuple shape (document:
    Infeed)."""
    data, token = infeed_with_token(_token(), shape, config)
    frame().token = token
    return data


def infeed_with_token(token: Value, shape: ShapeLike, config: str = "") -> tuple[Any, Value]:
    """Performs `infeed` after a token; returns the data and a token. An empty tuple reads nothing."""
    types, several = _types(shape)
    if not types:
        return (), token_of(token, "token")
    attributes = {"infeed_config": text(config, "config")}
    found = emit("stablehlo.infeed", [token_of(token, "token")], attributes, results=[*types, TOKEN])
    return (found[:-1] if several else found[0]), found[-1]


def outfeed(operand: Any, shape_with_layout: ShapeLike | None = None, outfeed_config: str = "") -> None:
    """Writes a tree of values as one item to the host's stream.

    `shape_with_layout`: if given, the shape of the operand, which must be a single value (document: Outfeed).
    """
    if shape_with_layout is not None:
        types, _ = _types(shape_with_layout, "shape_with_layout")
        if types != [v.type for v in values_of(operand, "operand")[0]]:
            raise wrong("shape_with_layout", "the operand has another shape")
    frame().token = outfeed_with_token(operand, _token(), outfeed_config)


def outfeed_with_token(operand: Any, token: Value, outfeed_config: str = "") -> Value:
    """Performs `outfeed` after a token; returns a token."""
    values, _ = values_of(operand, "operand")
    attributes = {"outfeed_config": text(outfeed_config, "outfeed_config")}
    operands = [*values, token_of(token, "token")]
    return emit1("stablehlo.outfeed", operands, attributes, names={"inputs": "operand"})


# ---------------------------------------------------------------------------- channels
def send(operand: Any, handle: int | ChannelHandle, source_target_pairs: Pairs = None) -> Value:
    """Sends a tree of values on a channel.

    The receiver is the target of this process in `source_target_pairs`, or the host if the handle's type is
    DEVICE_TO_HOST (2). Returns the token of the transfer, for `send_done` (document: Send).
    """
    frame().token = token = send_with_tokens(operand, _token(), handle, source_target_pairs)
    return token


def send_with_tokens(
    operand: Any, token: Value, handle: int | ChannelHandle, source_target_pairs: Pairs = None
) -> Value:
    """Performs `send` after a token; returns a token."""
    values, _ = values_of(operand, "operand")
    operands = [*values, token_of(token, "token")]
    names = {"inputs": "operand", "channel_handle": "handle", "is_host_transfer": "handle"}
    return emit1("stablehlo.send", operands, _transfer(handle, DEVICE_TO_HOST, source_target_pairs), names=names)


def send_to_host(operand: Any, handle: int) -> Value:
    """Performs `send` to the host, which receives it by `exe.channel(handle).get()` (document: SendToHost)."""
    return send(operand, ChannelHandle(handle, DEVICE_TO_HOST))


def send_done(token: Value) -> Value:
    """Token of a completed `send` (document: SendDone)."""
    return token_of(token, "token")


def recv(shape: ShapeLike, handle: int | ChannelHandle, source_target_pairs: Pairs = None) -> Any:
    """Receives values of a shape on a channel.

    The sender is the process whose target is this one in `source_target_pairs`, or the host if the handle's type is
    HOST_TO_DEVICE (3) (document: Recv).
    """
    data, token = recv_with_tokens(_token(), shape, handle, source_target_pairs)
    frame().token = token
    return data


def recv_with_tokens(
    token: Value, shape: ShapeLike, handle: int | ChannelHandle, source_target_pairs: Pairs = None
) -> tuple[Any, Value]:
    """Performs `recv` after a token; returns the data and a token."""
    types, several = _types(shape)
    attributes = _transfer(handle, HOST_TO_DEVICE, source_target_pairs)
    names = {"channel_handle": "handle", "is_host_transfer": "handle"}
    found = emit("stablehlo.recv", [token_of(token, "token")], attributes, results=[*types, TOKEN], names=names)
    return (found[:-1] if several else found[0]), found[-1]


def recv_to_host(shape: ShapeLike, handle: int) -> Any:
    """Performs `recv` from the host, which sends by `exe.channel(handle).put(x)`. The name is the document's (document:
    RecvToHost)."""
    return recv(shape, ChannelHandle(handle, HOST_TO_DEVICE))


def recv_done(data: Any) -> Any:
    """Data of a completed `recv` (document: RecvDone)."""
    values_of(data, "data")
    return data


# ---------------------------------------------------------------------------- arguments
def _token() -> Value:
    """The token of the last transfer of the function, or a new one."""
    opened = frame()
    if opened.token is None:
        opened.token = create_token()
    return opened.token


def _types(shape: ShapeLike, argument: str = "shape") -> tuple[list[Type], bool]:
    """Types of the values of an item, and whether it is a tuple."""
    t = type_of(shape, argument)
    return (list(t.types), True) if isinstance(t, TupleType) else ([t], False)


def _transfer(handle: int | ChannelHandle, host: int, source_target_pairs: Pairs) -> dict[str, Any]:
    if isinstance(handle, int) and not isinstance(handle, bool):
        handle = ChannelHandle(handle)
    said = record_of(handle, ChannelHandle, "handle")
    if said.type == 0:
        said = ChannelHandle(said.handle, DEVICE_TO_DEVICE if source_target_pairs is not None else host)
    found: dict[str, Any] = {
        "channel_handle": channel(said, "handle"),
        "is_host_transfer": said.type == host,
    }
    if source_target_pairs is not None:
        found["source_target_pairs"] = pairs(source_target_pairs, "source_target_pairs")
    return found
