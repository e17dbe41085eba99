"""PyTorch's modules of attention, which call operators of whole layers for inference."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn

from shlo_jit.torch.dynamo import backend

STRICT = {"fallback": False}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masks", ["none", "keys", "matrix", "both"])
def test_an_encoder_layer(norm_first, masks):
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu" if norm_first else "relu", batch_first=True,
                                       norm_first=norm_first).eval()  # fmt: skip
    x = torch.randn(3, 6, 16)
    keys = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] + [True] * 5])
    matrix = nn.Transformer.generate_square_subsequent_mask(6)
    given = {
        "none": {}, "keys": {"src_key_padding_mask": keys}, "matrix": {"src_mask": matrix},
        "both": {"src_key_padding_mask": keys, "src_mask": matrix.isinf()},
    }[masks]  # fmt: skip
    with torch.no_grad():
        found = torch.compile(layer, backend=backend, options=STRICT)(x, **given)
        torch.testing.assert_close(found, layer(x, **given))


@pytest.mark.parametrize("averages", [False, True])
def test_attention_with_its_weights(averages):
    module = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    keys = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])

    def run(x):
        own = module(x, x, x, key_padding_mask=keys, average_attn_weights=averages)
        return own, module(x, x, x, need_weights=False)[0]

    with torch.no_grad():
        found = torch.compile(run, backend=backend, options=STRICT)(x)
        torch.testing.assert_close(found, run(x))


def test_the_operators_themselves():
    weights = [torch.randn(*s) for s in ((24, 8), (24,), (8, 8), (8,))]
    q, k, v = (torch.randn(2, 4, 8) for _ in range(3))
    matrix = torch.ones(4, 4, dtype=torch.bool).triu(1)

    def run(q, k, v):
        attend = torch.ops.aten._native_multi_head_attention
        return attend(q, k, v, 8, 2, *weights, None, True, False), attend(q, q, q, 8, 2, *weights, matrix, True, True, 0)

    with torch.no_grad():
        found = torch.compile(run, backend=backend, options=STRICT)(q, k, v)
        torch.testing.assert_close(found, run(q, k, v))
