"""Regions of images in a fixed size, as torchvision's detection models read them, compared with matrices of weights."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from shlo_jit.torch.dynamo import backend

try:
    import torchvision  # noqa: F401  defines the operators
except ImportError:
    SCHEMAS = (
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
        " int sampling_ratio, bool aligned) -> Tensor",
        "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
        " SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor",
    )
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        LIBRARY.define(schema)
    LIBRARY.impl("roi_align", lambda x, rois, scale, h, w, *_: x.new_empty((rois.shape[0], x.shape[1], h, w)), "Meta")
    LIBRARY.impl("_roi_align_backward", lambda g, rois, scale, h, w, *sizes: g.new_empty(sizes[:4]), "Meta")

IMAGES, FEATURES, HEIGHT, WIDTH = 2, 5, 13, 17
BOXES = [
    [0, 1.3, 2.1, 9.7, 8.2],
    [1, 0.0, 0.0, 16.0, 12.0],
    [1, -7.5, -3.0, 4.0, 2.5],  # partly outside
    [0, 12.0, 9.0, 40.0, 30.0],
    [0, -90.0, -80.0, 120.0, 150.0],  # larger than the image
    [1, 50.0, 50.0, 60.0, 60.0],  # outside
    [0, 5.0, 5.0, 5.0, 5.0],  # empty
    [1, 9.0, 8.0, 3.0, 2.0],  # ends before it begins
]


def line_weights(low, high, bins, extent, ratio, aligned):
    """The weights of the pixels of a line in the sums of each bin, and the number of points of a bin."""
    length = high - low if aligned else max(high - low, 1.0)
    points = ratio if ratio > 0 else math.ceil(length / bins)
    found = np.zeros((bins, extent))
    for i in range(bins):
        for j in range(points):
            at = low + length / bins * (i + (j + 0.5) / points)
            if -1 <= at <= extent:
                at = min(max(at, 0.0), extent - 1.0)
                pixel = min(int(at), extent - 1)
                found[i, pixel] += 1 - (at - pixel)
                found[i, min(pixel + 1, extent - 1)] += at - pixel
    return found, points


def weights_of(box, scale, outs, ratio, aligned):
    """The image of a box, the matrices of weights along both dimensions, and the number of points of a bin."""
    image, left, top, right, bottom = box
    left, top, right, bottom = (x * scale - (0.5 if aligned else 0.0) for x in (left, top, right, bottom))
    rows, count = line_weights(top, bottom, outs[0], HEIGHT, ratio, aligned)
    columns, other = line_weights(left, right, outs[1], WIDTH, ratio, aligned)
    return int(image), rows, columns, max(count * other, 1)


def expected(x, boxes, *given):
    """The regions of the images."""
    found = [(x[i] * 1.0, rows, columns, count) for i, rows, columns, count in (weights_of(b, *given) for b in boxes)]
    return np.stack([rows @ image @ columns.T / count for image, rows, columns, count in found])


def expected_gradient(gradient, boxes, *given):
    """The gradient of the images."""
    found = np.zeros((IMAGES, FEATURES, HEIGHT, WIDTH))
    for g, box in zip(gradient, boxes, strict=True):
        i, rows, columns, count = weights_of(box, *given)
        found[i] += rows.T @ g @ columns / count
    return found


def compiled(function, *arguments, threads=None):
    options = {"fallback": False} | ({"threads": threads} if threads else {})
    return torch.compile(function, backend=backend, options=options)(*arguments)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [1, 2, 3, 0, -1])
def test_regions(ratio, aligned):
    given = (0.7, (3, 4), ratio, aligned)
    x, boxes = torch.randn(IMAGES, FEATURES, HEIGHT, WIDTH, dtype=torch.float64), torch.tensor(BOXES, dtype=torch.float64)

    def align(x, boxes):
        return torch.ops.torchvision.roi_align(x, boxes, 0.7, 3, 4, ratio, aligned)

    wanted = expected(x.numpy(), BOXES, *given)
    np.testing.assert_allclose(compiled(align, x, boxes).numpy(), wanted, atol=1e-12)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-2)):
        found = compiled(align, x.to(dtype), boxes.float().to(dtype))
        assert found.dtype == dtype
        rounded = boxes.float().to(dtype).double().tolist()
        np.testing.assert_allclose(found.double().numpy(), expected(x.numpy(), rounded, *given), atol=tolerance)


@pytest.mark.parametrize("ratio", [2, 3, 0])
def test_gradient_of_regions(ratio):
    gradient, boxes = torch.randn(len(BOXES), FEATURES, 3, 4, dtype=torch.float64), torch.tensor(BOXES, dtype=torch.float64)

    def backward(gradient, boxes):
        return torch.ops.torchvision._roi_align_backward(
            gradient, boxes, 0.7, 3, 4, IMAGES, FEATURES, HEIGHT, WIDTH, ratio, True
        )

    wanted = expected_gradient(gradient.numpy(), BOXES, 0.7, (3, 4), ratio, True)
    np.testing.assert_allclose(compiled(backward, gradient, boxes).numpy(), wanted, atol=1e-12)


def test_regions_have_the_same_bits_for_any_number_of_threads():
    x, boxes = torch.randn(IMAGES, 64, HEIGHT, WIDTH), torch.tensor(BOXES * 40)

    def align(x, boxes):
        return [torch.ops.torchvision.roi_align(x, boxes, 1.0, 7, 7, ratio, False) for ratio in (2, 0)]

    first = compiled(align, x, boxes, threads=1)
    for threads in (2, 3, 8):
        torch._dynamo.reset()
        for y, z in zip(first, compiled(align, x, boxes, threads=threads), strict=True):
            assert torch.equal(y, z)


def test_regions_without_boxes_and_with_boxes_that_are_no_numbers():
    def align(x, boxes):
        return torch.ops.torchvision.roi_align(x, boxes, 1.0, 2, 2, -1, False)

    x = torch.randn(1, 3, 5, 6)
    assert compiled(align, x, torch.zeros(0, 5)).shape == (0, 3, 2, 2)
    boxes = torch.tensor([[0, math.nan, 1, 2, 3], [0, 1, 1, math.inf, math.inf], [0, -1e30, -1e30, 1e30, 1e30]])
    found = compiled(align, x, boxes)
    assert found.shape == (3, 3, 2, 2)
    assert torch.equal(found[2], torch.zeros(3, 2, 2))  # hardly any of its points are near the image
