"""Orders of dimensions in memory: arguments with features last, and what a forward pass saves."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F
from torch import nn

from shlo_jit.torch.dynamo import backend

STRICT = {"fallback": False}


class Images(nn.Module):
    """Convolutions, norms, pooling, a result that is also saved, and a linear layer, whose input is no image."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.narrow = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.norm, self.head = nn.GroupNorm(4, 16), nn.Linear(16, 5)

    def forward(self, x):
        y = F.silu(self.first(x))
        z = F.max_pool2d(F.silu(self.norm(self.second(y))), 2)
        z = z + F.gelu(self.narrow(z))
        return self.head(z.mean((2, 3))), y


def step(run, model, x):
    x = x.detach().requires_grad_()
    out, y = run(x)
    (out.square().sum() + y.sin().sum()).backward()
    return [out, y, x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_training_step_with_features_last(is_last):
    model = Images()
    other = copy.deepcopy(model)
    x = torch.randn(2, 3, 12, 10)
    x = x.to(memory_format=torch.channels_last) if is_last else x
    run = torch.compile(model, backend=backend, options=STRICT)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        found = step(run, model, x)
    wanted = step(other, other, x)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert found[1].stride() == wanted[1].stride()
    images = [t for t in saved if t.ndim == 4 and t.shape[1] == 16 and t.shape[2] > 1]
    assert images and all(t.is_contiguous(memory_format=torch.channels_last) for t in images)
    assert all(t.is_contiguous() for t in saved if t.ndim == 2)


def test_arguments_in_other_orders():
    x = torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)
    w = torch.randn(7, 4).t()

    def function(x, w):
        return x * 2, x.permute(0, 2, 3, 1).reshape(10, 21) @ torch.ones(21, 4), w @ x[0, 0].t()

    run = torch.compile(function, backend=backend, options=STRICT)
    for scale in (1.0, 2.0):  # the second call may find the arrays of the first
        for a, b in zip(run(x * scale, w), function(x * scale, w), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()


def test_arguments_whose_order_changes():
    run = torch.compile(lambda x: x.sin() + x.sum(1, keepdim=True), backend=backend, options=STRICT)
    x = torch.randn(2, 3, 4, 5)
    for given in (x, x.to(memory_format=torch.channels_last), x.mT.contiguous().mT, x[:, :, ::2], x.expand(2, 3, 4, 5)):
        torch.testing.assert_close(run(given), given.sin() + given.sum(1, keepdim=True))
