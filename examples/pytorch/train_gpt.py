"""Trains a small GPT with PyTorch, its forward and backward pass compiled by shlo_jit.

python examples/pytorch/train_gpt.py                 trains on this file's own text, and prints the losses
python examples/pytorch/train_gpt.py --compare       trains a copy without compiling as well, and compares the losses
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Attention, and a network of two layers, both added to their input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.projections(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.before_network(x))


class GPT(nn.Module):
    """A model of the next byte. It returns the loss."""

    def __init__(self, width: int = 32, heads: int = 4, blocks: int = 2, length: int = 32) -> None:
        super().__init__()
        self.length = length
        self.bytes, self.places = nn.Embedding(256, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, text: Tensor, following: Tensor) -> Tensor:
        scores = self.head(self.norm(self.blocks(self.bytes(text) + self.places)))
        return nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def train(model: GPT, run: Callable[..., Tensor], steps: int) -> list[float]:
    """Trains on this file, and returns the losses."""
    data = torch.tensor(list(Path(__file__).read_bytes()))
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(data) - model.length - 1, (8,), generator=generator)
        text = torch.stack([data[s : s + model.length + 1] for s in starts])
        optimizer.zero_grad()
        loss = run(text[:, :-1], text[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, and prints every tenth loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compare", action="store_true")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    model = GPT()
    twin = copy.deepcopy(model)
    losses = train(model, torch.compile(model, backend="shlo_jit", options={"fallback": False}), given.steps)
    print("losses:", " ".join(f"{loss:.3f}" for loss in losses[:: max(1, given.steps // 10)]))
    if given.compare:
        plain = train(twin, twin, given.steps)
        print(f"greatest difference to PyTorch: {max(abs(x - y) for x, y in zip(losses, plain, strict=True)):.1e}")


if __name__ == "__main__":
    main()
