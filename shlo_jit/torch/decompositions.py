"""Decompositions of ATen's operators that have no record, by PyTorch's own tables, and of whole layers of attention,
which those do not have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch  # type: ignore[import-not-found]
import torch.nn.functional as F  # type: ignore[import-not-found]
from torch._decomp import core_aten_decompositions, global_decomposition_table  # type: ignore[import-not-found]

from shlo_jit.torch.aten import load


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions of all operators that have no record."""
    records = load()
    table = {**global_decomposition_table["post_autograd"], **core_aten_decompositions(), **_layers()}
    return {
        op: function
        for op, function in table.items()
        if isinstance(op, torch._ops.OpOverload) and str(op) not in records and not _is_primitive(op)
    }


def _is_primitive(op: Any) -> bool:
    """Whether it is an operator of the dialect `prims`, which functionalization needs as they are."""
    return op.namespace == "prims"


class Decompositions(Mapping[Any, Callable[..., Any]]):
    """The table of `decompositions`, which is made when it is first read: a graph that is in a cache needs none."""

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, operator: Any) -> Callable[..., Any]:
        return decompositions()[operator]

    def __iter__(self) -> Iterator[Any]:
        return iter(decompositions())

    def __len__(self) -> int:
        return len(decompositions())


# ---------------------------------------------------------------------------- layers of attention
def _layers() -> dict[Any, Callable[..., Any]]:
    """The operators that PyTorch's modules of attention call for inference."""
    aten = torch.ops.aten
    return {
        aten._native_multi_head_attention.default: _attention_module,
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    }


def _attention_module(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, width: int, heads: int,
    qkv_weight: torch.Tensor, qkv_bias: torch.Tensor, out_weight: torch.Tensor, out_bias: torch.Tensor,
    mask: torch.Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """The results of `torch.nn.MultiheadAttention` for batches, and the weights, or their means over the heads."""
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    if query is key and key is value:
        parts = F.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        parts = [F.linear(*given) for given in zip((query, key, value), weights, biases, strict=True)]
    q, k, v = (x.view(*x.shape[:2], heads, width // heads).transpose(1, 2) for x in parts)
    scores = (q / (width // heads) ** 0.5) @ k.mT
    if mask is not None:
        left_out = mask if mask.dtype == torch.bool else mask != 0
        if mask_type == _KEYS:
            left_out = left_out[:, None, None, :]
        # A query without keys has no weights.
        shares = scores.masked_fill(left_out, -torch.inf).softmax(-1).masked_fill(left_out, 0)
    else:
        shares = scores.softmax(-1)
    found = (shares @ v).transpose(1, 2).reshape(*query.shape[:2], width)
    seen = (shares.mean(1) if average_attn_weights else shares) if need_weights else None
    return F.linear(found, out_weight, out_bias), seen


_KEYS = 1
"""The kind of mask that has a row of keys for each text; others have a matrix for all texts, or for each head."""


def _encoder_layer(
    x: torch.Tensor, width: int, heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
    out_weight: torch.Tensor, out_bias: torch.Tensor, use_gelu: bool, norm_first: bool, eps: float,
    *parameters: Any, mask: torch.Tensor | None = None, mask_type: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """The results of `torch.nn.TransformerEncoderLayer`. `parameters`: weights and biases of two norms and of two
    linear layers, and possibly the mask and its kind."""
    *first_norm, second_scale, second_shift, up, up_bias, down, down_bias = parameters[:8]
    given = parameters[8:]
    mask = given[0] if given else mask
    mask_type = given[1] if len(given) > 1 else mask_type

    def attended(x: torch.Tensor) -> torch.Tensor:
        parts = (qkv_weight, qkv_bias, out_weight, out_bias)
        return _attention_module(x, x, x, width, heads, *parts, mask, False, mask_type=mask_type)[0]

    def fed(x: torch.Tensor) -> torch.Tensor:
        inner = F.linear(x, up, up_bias)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), down, down_bias)

    def normed(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (width,), scale, shift, eps)

    if norm_first:
        x = x + attended(normed(x, *first_norm))
        return x + fed(normed(x, second_scale, second_shift))
    x = normed(x + attended(x), *first_norm)
    return normed(x + fed(x), second_scale, second_shift)
