"""Models of `torch.export`: as modules, as functions of tensors, as executables and as libraries."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn

import shlo_jit
from shlo_jit.torch import compile as compile_model
from shlo_jit.torch import from_exported


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))


def test_arguments_have_the_names_of_the_model(model):
    exported = torch.export.export(model.eval(), (torch.randn(3, 8),))
    module, signature = from_exported(exported)
    exe = shlo_jit.compile(module)
    assert signature.arguments[:2] == ("0.weight", "0.bias")
    assert signature.arguments[-1] == "input"
    x = torch.randn(3, 8)
    weights = [signature.weights[name].detach() for name in signature.arguments[:-1]]
    np.testing.assert_allclose(exe(*weights, x), model(x).detach(), atol=1e-6)


def test_changed_buffers_are_the_first_results_and_donations(model):
    module, signature = from_exported(torch.export.export(model.train(), (torch.randn(3, 8),)))
    assert signature.mutated == ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert str(module).count("tf.aliasing_output") == 3
    assert len(shlo_jit.compile(module).outputs) == 4


def test_a_compiled_model_updates_its_buffers(model):
    x, twin = torch.randn(5, 8), copy.deepcopy(model.train())
    run = compile_model(twin, (x,))
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x).detach())
    for found, wanted in zip(twin.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_trees_of_arguments_and_results():
    class Pair(nn.Module):
        def forward(self, x, *, other):
            return {"sum": x + other["y"], "both": (x, other["y"] * 2)}

    x, y = torch.randn(3), torch.randn(3)
    run = compile_model(Pair(), (x,), {"other": {"y": y}})
    found = run(x, other={"y": y})
    torch.testing.assert_close(found, {"sum": x + y, "both": (x, y * 2)})
    with pytest.raises(TypeError, match="exported for arguments"):
        run(x)


def test_dynamic_dimensions_are_compiled_for_each_size(model):
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(model.eval(), (torch.randn(3, 8),), dynamic_shapes=({0: batch},))
    run = compile_model(exported)
    for n in (2, 7):
        x = torch.randn(n, 8)
        torch.testing.assert_close(run(x), model(x).detach())
    with pytest.raises(ValueError, match="between 2 and 64"):
        run(torch.randn(65, 8))
    with pytest.raises(ValueError, match="inputs="):
        from_exported(exported)
    assert "5x8xf32" in str(from_exported(exported, inputs=[(5, 8)])[0])


def test_frozen_weights_are_constants_and_others_are_read_at_each_call(model):
    x = torch.randn(3, 8)
    frozen, free = compile_model(model.eval(), (x,)), compile_model(model, (x,), freeze=False)
    before = model(x).detach()
    with torch.no_grad():
        model[0].weight.zero_()
    torch.testing.assert_close(frozen(x), before)
    torch.testing.assert_close(free(x), model(x).detach())


def test_compile_takes_an_exported_program(model):
    x = torch.randn(3, 8)
    exe = shlo_jit.compile(torch.export.export(model.eval(), (x,)))
    assert len(exe.inputs) == 1
    np.testing.assert_allclose(exe(x), model(x).detach(), atol=1e-6)


@pytest.mark.parametrize("weights", ["embedded", "file"])
def test_a_library_with_weights(model, tmp_path, weights):
    x = torch.randn(3, 8)
    shlo_jit.export(torch.export.export(model.eval(), (x,)), tmp_path / "model.so", weights=weights)
    exe = shlo_jit.load(tmp_path / "model.so")
    np.testing.assert_allclose(exe(x), model(x).detach(), atol=1e-6)


def test_weights_in_eight_bits():
    class Quantized(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randint(-127, 127, (16, 8), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(16, 1) / 127)

        def forward(self, x):
            return x @ (self.weight.to(x.dtype) * self.scales.to(x.dtype)).T

    model = Quantized()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        x = torch.randn(3, 8, dtype=dtype)
        torch.testing.assert_close(compile_model(model, (x,))(x), model(x), atol=tolerance, rtol=tolerance)
