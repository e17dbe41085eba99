"""Attention: products of queries, keys and values with a softmax between."""

from __future__ import annotations

import math
from typing import Any

from shlo_jit import builder as b
from shlo_jit.builder import DotDimensionNumbers, Value
from shlo_jit.torch.aten.creation import triangle
from shlo_jit.torch.aten.registry import Call, Unsupported, aten
from shlo_jit.torch.aten.values import BOOL, broadcast_to, cast, expanded, filled, number, sizes, wide


def _scores(query: Value, key: Value, mask: Value | None, is_causal: bool, scale: float | None) -> Value:
    """The scaled products of queries and keys, in the wide element type, with the mask added."""
    rank = query.ndim
    batch = tuple(range(rank - 2))
    dtype = wide(query.element_type)
    factor = 1 / math.sqrt(sizes(query)[-1]) if scale is None else scale
    numbers = DotDimensionNumbers((rank - 1,), (rank - 1,), batch, batch)
    found = b.dot_general(query, key, numbers, preferred_element_type=dtype) * number(factor, dtype)
    if is_causal:
        inside = triangle(sizes(found)[-2:], 0, True)
        inside = b.broadcast_in_dim(inside, sizes(found), (rank - 2, rank - 1))
        found = b.select(inside, found, filled(sizes(found), -math.inf, dtype))
    if mask is not None:
        spread = broadcast_to(mask, sizes(found))
        if mask.element_type == BOOL:
            found = b.select(spread, found, filled(sizes(found), -math.inf, dtype))
        else:
            found = found + cast(spread, dtype)
    return found


def attend(
    query: Value, key: Value, value: Value, mask: Value | None, is_causal: bool, scale: float | None
) -> tuple[Value, Value]:
    """Attention, and the logarithms of the sums of exponentials. Rows of which everything is masked become 0."""
    rank = query.ndim
    scores = _scores(query, key, mask, is_causal, scale)
    dtype = scores.element_type
    last = (rank - 1,)
    top = b.reduce_max(scores, last)
    top = b.select(top == number(-math.inf, dtype), filled(sizes(top), 0, dtype), top)
    shares = b.exp(scores - expanded(top, last, sizes(scores)))
    total = b.reduce_sum(shares, last)
    safe = b.select(total == number(0, dtype), filled(sizes(total), 1, dtype), total)
    weights = cast(shares / expanded(safe, last, sizes(shares)), value.element_type)
    batch = tuple(range(rank - 2))
    numbers = DotDimensionNumbers((rank - 1,), (rank - 2,), batch, batch)
    return b.dot_general(weights, value, numbers), b.log(total) + top


def _heads_as(x: Value, like: Value) -> Value:
    """Keys or values repeated so that there are as many heads as queries have."""
    heads, wanted = sizes(x)[-3], sizes(like)[-3]
    if heads == wanted:
        return x
    shape = sizes(x)
    d = x.ndim - 3
    split = (*shape[: d + 1], wanted // heads, *shape[d + 1 :])
    spread = b.broadcast_in_dim(x, split, [*range(d + 1), *range(d + 2, x.ndim + 1)])
    return b.reshape(spread, (*shape[:d], wanted, *shape[d + 1 :]))


def _summed_heads(x: Value, heads: int) -> Value:
    """The sums of the gradients of heads that are copies of one."""
    shape = sizes(x)
    if shape[-3] == heads:
        return x
    d = x.ndim - 3
    return b.reduce_sum(b.reshape(x, (*shape[:d], heads, shape[d] // heads, *shape[d + 1 :])), (d + 1,))


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    call: Call, query: Value, key: Value, value: Value, mask: Value | None = None, dropout: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """Softmax of the products of queries and keys, times values."""
    if dropout:
        raise Unsupported("dropout within attention is not supported")
    if query.ndim > 2:
        key, value = (_heads_as(x, query) for x in (key, value))
    return attend(query, key, value, mask, is_causal, scale)[0]


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    call: Call, query: Value, key: Value, value: Value, dropout: float = 0.0, is_causal: bool = False, *,
    attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    """Attention, and the logarithms of the sums, which its gradient reads."""
    if dropout:
        raise Unsupported("dropout within attention is not supported")
    key, value = (_heads_as(x, query) for x in (key, value))
    found, total = attend(query, key, value, attn_mask, is_causal, scale)
    return found, cast(total, call.dtypes[1] or total.element_type)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    call: Call, gradient: Value, query: Value, key: Value, value: Value, out: Value, total: Value, dropout: float,
    is_causal: bool, *, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """The gradients of attention by queries, keys and values."""
    if dropout:
        raise Unsupported("dropout within attention is not supported")
    rank, heads = query.ndim, sizes(key)[-3]
    key, value = (_heads_as(x, query) for x in (key, value))
    last, batch = (rank - 1,), tuple(range(rank - 2))
    scores = _scores(query, key, attn_mask, is_causal, scale)
    dtype = scores.element_type
    sums = cast(total, dtype)
    sums = b.select(sums == number(-math.inf, dtype), filled(sizes(sums), 0, dtype), sums)
    weights = b.exp(scores - expanded(sums, last, sizes(scores)))
    g, v, o = (cast(x, dtype) for x in (gradient, value, out))
    over_rows = DotDimensionNumbers((rank - 2,), (rank - 2,), batch, batch)
    over_columns = DotDimensionNumbers((rank - 1,), (rank - 1,), batch, batch)
    plain = DotDimensionNumbers((rank - 1,), (rank - 2,), batch, batch)
    by_value = b.dot_general(weights, g, over_rows)
    by_weights = b.dot_general(g, v, over_columns)
    own = b.reduce_sum(g * o, last)
    factor = 1 / math.sqrt(sizes(query)[-1]) if scale is None else scale
    by_scores = weights * (by_weights - expanded(own, last, sizes(weights))) * number(factor, dtype)
    by_query = b.dot_general(by_scores, cast(key, dtype), plain)
    by_key = b.dot_general(by_scores, cast(query, dtype), over_rows)
    by_key, by_value = (_summed_heads(x, heads) for x in (by_key, by_value))
    found: list[Any] = [cast(x, like.element_type) for x, like in ((by_query, query), (by_key, key), (by_value, value))]
    return found[0], found[1], found[2]
