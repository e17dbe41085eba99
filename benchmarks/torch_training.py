"""Trains three small networks with eager PyTorch, Inductor and shlo_jit from the same weights on the same batches.

    python -m benchmarks.torch_training
    python -m benchmarks.torch_training --models gpt --backends shlo_jit --steps 20 --threads 2

Prints for each backend the largest difference of a loss from eager's, divided by it, the processor time of the first
step, which compiles, and the time of the shortest of the other steps: processor time with one thread, which other
programs disturb less, and time of day with several.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch  # type: ignore[import-not-found]
import torch.nn.functional as F  # type: ignore[import-not-found]
from torch import nn  # type: ignore[import-not-found]

BACKENDS = ("eager", "inductor", "shlo_jit")
CLASSES, WORDS, LENGTH = 10, 512, 64


class Block(nn.Module):
    """A residual block of two convolutions with batch norms."""

    def __init__(self, features: int, outs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(features, outs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outs) for _ in range(2))
        is_same = stride == 1 and features == outs
        self.shortcut = nn.Identity() if is_same else nn.Sequential(
            nn.Conv2d(features, outs, 1, stride, bias=False), nn.BatchNorm2d(outs)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.shortcut(x))


def resnet() -> nn.Module:
    """ResNet-18 for images of 32x32, with a max pooling after the first convolution."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    features = 64
    for outs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(features, outs, stride), Block(outs, outs, 1)]
        features = outs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


class Layer(nn.Module):
    """A layer of a transformer with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        split = self.parts(self.norms[0](x)).view(rows, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self, width: int = 192, layers: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.layers = nn.Sequential(*(Layer(width, 6) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.layers(x)).flatten(0, 1)


class UNet(nn.Module):
    """A U-Net of two levels with group norms."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()

        def convolutions(features: int, outs: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(features, outs, 3, 1, 1), nn.GroupNorm(8, outs), nn.SiLU())

        self.first, self.down = convolutions(3, width), convolutions(width, 2 * width)
        self.middle = convolutions(2 * width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.last = nn.Sequential(convolutions(2 * width, width), nn.Conv2d(width, 3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = self.first(x)
        inner = self.middle(self.down(F.max_pool2d(top, 2)))
        return self.last(torch.cat((top, self.up(inner)), 1))


def _images(rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 3, 32, 32), torch.randint(0, CLASSES, (rows,))


def _texts() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, WORDS, (4, LENGTH + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()


def _pictures() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 3, 32, 32), torch.randn(4, 3, 32, 32)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], Callable[..., torch.Tensor]]] = {
    "resnet18": (resnet, _images, F.cross_entropy),
    "gpt": (Gpt, _texts, F.cross_entropy),
    "unet": (UNet, _pictures, F.mse_loss),
}
"""By name: what makes a model, what makes a batch, and the loss of results and labels."""


def train(model: nn.Module, batches: Sequence[Any], loss_of: Callable[..., torch.Tensor], backend: str) -> Any:
    """Trains the model in place. Returns the losses, and the time of each step."""
    run, threads = model, torch.get_num_threads()
    clock = time.process_time if threads == 1 else time.perf_counter
    if backend != "eager":
        torch._dynamo.reset()
        run = torch.compile(model, backend=backend, options={"threads": threads} if backend == "shlo_jit" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses, times = [], []
    for x, y in batches:
        start = sum(os.times()[:4])
        precise = clock()
        optimizer.zero_grad()
        loss = loss_of(run(x), y)
        loss.backward()
        optimizer.step()
        times.append(clock() - precise if losses else sum(os.times()[:4]) - start)
        losses.append(loss.item())
    return losses, times


def compare(name: str, backends: Sequence[str], steps: int) -> dict[str, tuple[float, float, float]]:
    """The difference, the first step and the shortest step of each backend. Backends train one after another."""
    make, batch, loss_of = MODELS[name]
    torch.manual_seed(0)
    first = make().train()
    batches = [batch() for _ in range(steps)]
    wanted, _ = train(copy.deepcopy(first), batches, loss_of, "eager")
    found = {}
    for backend in backends:
        losses, times = train(copy.deepcopy(first), batches, loss_of, backend)
        off = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))
        found[backend] = off, times[0], min(times[1:])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the comparison and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    print(f"{'model':10} {'backend':10} {'difference':>10} {'first step':>11} {'other steps':>12}")
    for name in given.models.split(","):
        for backend, (off, first, other) in compare(name, given.backends.split(","), given.steps).items():
            print(f"{name:10} {backend:10} {off:10.1e} {first:9.1f} s {other * 1e3:9.1f} ms", flush=True)


if __name__ == "__main__":
    main()
