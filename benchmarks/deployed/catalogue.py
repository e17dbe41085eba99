"""The measured models, each with practical sizes, and small ones for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.deployed import images, sequences
from benchmarks.deployed.graph import Graph, Value

F32, BF16, I8 = 1e-3, 6e-2, 3e-2
"""Tolerances by the type of the computation, relative to the value plus the root mean square of all values.

Rounding errors add up over the layers, and quantized values may fall on either side of a half.
"""


@dataclass(frozen=True)
class Model:
    name: str
    build: Callable[..., list[Value]]
    small: Mapping[str, Any]
    """Sizes for tests."""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Sizes that differ from the defaults."""
    floats: str = "f32"
    """Element type of the computation: f32 or bf16; `kind` also covers products of i8."""

    @property
    def kind(self) -> str:
        """Element type of most products: f32, bf16, i8."""
        return "i8" if self.build is sequences.mlp_i8 else self.floats

    @property
    def tolerance(self) -> float:
        return {"f32": F32, "bf16": BF16, "i8": I8}[self.kind]

    def graph(self, is_small: bool = False) -> Graph:
        graph = Graph()
        graph.outputs = self.build(graph, **(self.small if is_small else self.sizes))
        return graph


def select(only: str = "") -> list[Model]:
    """Selects models with a word of `only` (separated by commas) in the name; all if it is empty."""
    words = [w.lower() for w in only.split(",") if w]
    return [m for m in MODELS if not words or any(w in m.name.lower() for w in words)]


_LAYERS = {"width": 32, "layers": 2, "heads": 4}
_MLP = {"widths": (20, 24, 8)}
_IMAGE = {"side": 32, "classes": 10}
MODELS = (
    Model("MLP batch 1", sequences.mlp, _MLP),
    Model("MLP batch 64", sequences.mlp, _MLP | {"batch": 3}, {"batch": 64}),
    Model("int8 MLP batch 1", sequences.mlp_i8, _MLP),
    Model("int8 MLP batch 64", sequences.mlp_i8, _MLP | {"batch": 3}, {"batch": 64}),
    Model("int8 feed-forward 128 rows", sequences.mlp_i8, _MLP | {"batch": 3},
          {"batch": 128, "widths": (768, 3072, 768)}),
    Model("LSTM 128 steps", sequences.lstm, {"time": 5, "width": 8}),
    Model("MobileNetV2", images.mobilenet, _IMAGE | {"stages": ((1, 8, 1, 1), (2, 12, 2, 2)), "last": 16}),
    Model("EfficientNet-B0", images.efficientnet, _IMAGE | {"stages": ((1, 3, 8, 1, 1), (2, 5, 12, 2, 2)), "last": 16}),
    Model("ResNet-50", images.resnet, _IMAGE | {"stages": ((1, 8, 1), (2, 12, 2))}),
    Model("U-Net 256x256", images.unet, {"side": 16, "width": 4, "depth": 2}),
    Model("YOLOv3-tiny 416x416", images.detector, {"side": 64, "width": 4, "classes": 3}),
    Model("ViT-S/16", sequences.vit, _LAYERS | {"side": 32, "patch": 8, "classes": 10}),
    Model("BERT-base 128 tokens", sequences.bert, _LAYERS | {"tokens": 6, "words": 50}),
    Model("BERT-base bf16", sequences.bert, _LAYERS | {"tokens": 6, "words": 50}, floats="bf16"),
    Model("T5-small encoder", sequences.t5, _LAYERS | {"tokens": 6, "words": 50, "wide": 48}),
    Model("GPT-2 one token", sequences.gpt, _LAYERS | {"cached": 7, "words": 50}),
    Model("DLRM batch 128", sequences.dlrm,
          {"batch": 4, "tables": 3, "rows": 20, "bottom": (5, 8, 6), "top": (8, 1)}, {}),
    Model("WaveNet 4000 samples", sequences.wavenet, {"time": 40, "width": 6, "skipped": 8, "layers": 3}),
)  # fmt: skip
