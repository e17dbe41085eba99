"""Image models, with the sizes of the papers as defaults.

Each function takes a graph and sizes, and returns the results.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.deployed.graph import Graph, Value

Stage = tuple[int, int, int, int]


def _unit(g: Graph, x: Value, name: str, channels: int, size: int = 1, stride: int = 1, *, groups: int = 1,
          after: str = "", gain: float = 1.0) -> Value:  # fmt: skip
    """A convolution, a normalization, and optionally an activation."""
    x = g.batch_norm(g.conv(x, name, channels, size, stride, groups=groups), name, gain)
    return g.unary(after, x) if after else x


def _scores(g: Graph, x: Value, classes: int) -> list[Value]:
    return [g.linear(g.pixels(g.mean_of_image(x)), "scores", classes)]


def mobilenet(
    g: Graph,
    batch: int = 1,
    side: int = 224,
    classes: int = 1000,
    stages: Sequence[Stage] = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ),
    last: int = 1280,
) -> list[Value]:  # fmt: skip
    """MobileNetV2. A stage: expansion of a block, channels, blocks, stride of the first."""
    x = _unit(g, g.input((batch, side, side, 3)), "stem", 32, 3, 2, after="relu6")
    for i, (wider, channels, blocks, first) in enumerate(stages):
        for j in range(blocks):
            name, inside, stride = f"block{i}.{j}", wider * x.shape[3], first if j == 0 else 1
            y = _unit(g, x, f"{name}.wide", inside, after="relu6") if wider > 1 else x
            y = _unit(g, y, f"{name}.depth", inside, 3, stride, groups=inside, after="relu6")
            y = _unit(g, y, f"{name}.narrow", channels, gain=0.7)
            x = g.add(x, y) if x.shape == y.shape else y
    return _scores(g, _unit(g, x, "last", last, after="relu6"), classes)


def resnet(
    g: Graph,
    batch: int = 1,
    side: int = 224,
    classes: int = 1000,
    stages: Sequence[tuple[int, int, int]] = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)),
) -> list[Value]:
    """ResNet-50, with strides in the 3x3 convolutions. A stage: blocks, inner channels, stride of the first."""
    x = _unit(g, g.input((batch, side, side, 3)), "stem", stages[0][1], 7, 2, after="relu")
    x = g.max_pool(x, 3, 2, 1)
    for i, (blocks, channels, first) in enumerate(stages):
        for j in range(blocks):
            name, stride = f"block{i}.{j}", first if j == 0 else 1
            y = _unit(g, x, f"{name}.a", channels, after="relu")
            y = _unit(g, y, f"{name}.b", channels, 3, stride, after="relu")
            y = _unit(g, y, f"{name}.c", 4 * channels, gain=0.4)
            beside = _unit(g, x, f"{name}.beside", 4 * channels, 1, stride, gain=0.7) if j == 0 else x
            x = g.unary("relu", g.add(beside, y))
    return _scores(g, x, classes)


def efficientnet(
    g: Graph,
    batch: int = 1,
    side: int = 224,
    classes: int = 1000,
    stages: Sequence[tuple[int, int, int, int, int]] = (
        (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
        (6, 3, 320, 1, 1),
    ),
    last: int = 1280,
) -> list[Value]:  # fmt: skip
    """EfficientNet-B0: blocks of SiLU, with squeeze and excitation.

    A stage: expansion of a block, size of the filters, channels, blocks, stride of the first.
    """
    x = _unit(g, g.input((batch, side, side, 3)), "stem", 32, 3, 2, after="silu")
    for i, (wider, size, channels, blocks, first) in enumerate(stages):
        for j in range(blocks):
            name, inside, stride = f"block{i}.{j}", wider * x.shape[3], first if j == 0 else 1
            y = _unit(g, x, f"{name}.wide", inside, after="silu") if wider > 1 else x
            y = _unit(g, y, f"{name}.depth", inside, size, stride, groups=inside, after="silu")
            y = _excited(g, y, name, max(1, x.shape[3] // 4))
            y = _unit(g, y, f"{name}.narrow", channels, gain=0.7)
            x = g.add(x, y) if x.shape == y.shape else y
    return _scores(g, _unit(g, x, "last", last, after="silu"), classes)


def _excited(g: Graph, x: Value, name: str, channels: int) -> Value:
    """Squeeze and excitation: channels scaled by weights computed from their means."""
    y = g.bias(g.conv(g.mean_of_image(x), f"{name}.squeeze", channels), f"{name}.squeeze")
    y = g.bias(g.conv(g.unary("silu", y), f"{name}.excite", x.shape[3]), f"{name}.excite")
    return g.multiply(x, g.unary("sigmoid", y))


def unet(g: Graph, batch: int = 1, side: int = 256, width: int = 32, depth: int = 4) -> list[Value]:
    """A U-Net with normalization that returns a mask of one channel."""

    def pair(x: Value, name: str, channels: int) -> Value:
        x = _unit(g, x, f"{name}.a", channels, 3, after="relu")
        return _unit(g, x, f"{name}.b", channels, 3, after="relu")

    x, kept = g.input((batch, side, side, 3)), []
    for i in range(depth):
        kept.append(pair(x, f"down{i}", width << i))
        x = g.max_pool(kept[-1], 2, 2)
    x = pair(x, "bottom", width << depth)
    for i in reversed(range(depth)):
        x = _unit(g, g.twice_as_large(x), f"up{i}", width << i, 3, after="relu")
        x = pair(g.concatenate([kept[i], x], 3), f"joined{i}", width << i)
    return [g.unary("sigmoid", g.bias(g.conv(x, "mask", 1), "mask"))]


def detector(
    g: Graph, batch: int = 1, side: int = 416, width: int = 16, classes: int = 80, anchors: int = 3
) -> list[Value]:
    """YOLOv3-tiny, without its pooling of stride 1: scores of boxes on two grids."""
    x, found = g.input((batch, side, side, 3)), []
    for i in range(6):
        found.append(_unit(g, x, f"down{i}", width << i, 3, after="leaky_relu"))
        x = g.max_pool(found[-1], 2, 2) if i < 5 else found[-1]
    features = anchors * (5 + classes)
    x = _unit(g, x, "wide", width << 6, 3, after="leaky_relu")
    x = _unit(g, x, "narrow", width << 4, after="leaky_relu")
    coarse = _unit(g, x, "coarse", width << 5, 3, after="leaky_relu")
    fine = g.twice_as_large(_unit(g, x, "up", width << 3, after="leaky_relu"))
    fine = _unit(g, g.concatenate([fine, found[4]], 3), "fine", width << 4, 3, after="leaky_relu")
    return [g.bias(g.conv(y, f"boxes{i}", features), f"boxes{i}") for i, y in enumerate((coarse, fine))]
