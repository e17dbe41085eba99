"""Models of `torch.export`: as modules, as functions of tensors, as executables and as libraries."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn

import shlo_jit
from shlo_jit.errors import UnsupportedError
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


class Counter(nn.Module):
    """A buffer with the name of an argument, which changes after its value was read."""

    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.zeros(3))

    def forward(self, x):
        old = self.x.clone()
        self.x.add_(x)
        return old, x


def test_a_buffer_may_have_the_name_of_an_input_and_is_read_before_it_changes():
    model, x = Counter(), torch.ones(3)
    run = compile_model(model, (x,))
    run(x)
    old, given = run(x)
    torch.testing.assert_close((old, given), (torch.ones(3), torch.ones(3)))
    torch.testing.assert_close(model.x, torch.full((3,), 2.0))
    torch.testing.assert_close(x, torch.ones(3))
    _, signature = from_exported(torch.export.export(model, (x,)))
    assert signature.arguments == ("x", "x_1")
    assert signature.weights["x"] is model.x


def test_an_executable_copies_an_argument_that_it_returns():
    exe = shlo_jit.compile(torch.export.export(Counter(), (torch.ones(3),)))
    x = np.ones(3, np.float32)
    results = exe(np.zeros(3, np.float32), x)
    assert not any(np.shares_memory(r, x) for r in results)


def test_arguments_that_a_model_changes_and_returns():
    class Swap(nn.Module):
        def forward(self, x, y):
            old = x.clone()
            x.copy_(y)
            y.copy_(old)
            return x, old

    x, y = torch.zeros(2), torch.ones(2)
    run = compile_model(Swap(), (x.clone(), y.clone()))
    torch.testing.assert_close(run(x, y), (torch.ones(2), torch.zeros(2)))
    torch.testing.assert_close((x, y), (torch.ones(2), torch.zeros(2)))


def test_numbers_and_flags_are_those_of_the_export():
    class Power(nn.Module):
        def forward(self, x, n, flag=False):
            return x * n if flag else x**n

    run = compile_model(Power(), (torch.full((2,), 3.0), 3))
    torch.testing.assert_close(run(torch.full((2,), 2.0), 3), torch.full((2,), 8.0))
    with pytest.raises(ValueError, match="exported for 3, got 5"):
        run(torch.ones(2), 5)
    with pytest.raises(TypeError, match="expected a tensor, got float"):
        run(1.0, 3)
    with pytest.raises(TypeError, match=r"expected torch\.float32, got torch\.int64"):
        run(torch.ones(2, dtype=torch.int64), 3)


def test_dynamic_shapes_are_checked():
    class Sum(nn.Module):
        def forward(self, x, y):
            return x + y, x * x.shape[0]

    batch = torch.export.Dim("batch", min=2)
    half = torch.export.Dim("half", min=2, max=20)
    for size, shapes in ((4, ({0: batch}, {0: batch})), (6, ({0: 2 * half}, {0: 2 * half}))):
        x = torch.randn(size, 3)
        run = compile_model(Sum(), (x, x), dynamic_shapes=shapes)
        x = torch.randn(10, 3)
        torch.testing.assert_close(run(x, x), (x + x, x * 10))
        for wrong in (x[:4], torch.randn(10, 2), torch.randn(10), torch.randn(10, 1)):
            with pytest.raises(ValueError, match="y: expected"):
                run(x, wrong)
    with pytest.raises(ValueError, match="x: expected a size of the form"):
        run(torch.randn(5, 3), torch.randn(5, 3))
    with pytest.raises(ValueError, match="between 2 and 20"):
        run(torch.randn(42, 3), torch.randn(42, 3))


def test_keywords_are_given_in_any_order():
    class Difference(nn.Module):
        def forward(self, x, *, a, b):
            return x + a - b

    x, a, b = torch.randn(3, 2).unbind(0)
    run = compile_model(Difference(), (x,), {"a": a, "b": b})
    torch.testing.assert_close(run(x, b=b, a=a), x + a - b)


def test_an_input_may_have_the_name_of_the_state_of_random_numbers():
    class Noise(nn.Module):
        def forward(self, random_state):
            return nn.functional.dropout(random_state, 0.5)

    x = torch.ones(1000)
    model = Noise()
    found = compile_model(model, (x,))(x)
    assert 300 < (found == 0).sum() < 700
    _, signature = from_exported(torch.export.export(model, (x,)))
    assert signature.arguments == ("random_state", "random_state_1")


def test_an_error_names_the_line_of_the_model_and_not_of_pytorch():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.FractionalMaxPool2d(2, output_size=(2, 2))

        def forward(self, x):
            return self.pool(x)

    with pytest.raises(UnsupportedError) as caught:
        compile_model(Pool(), (torch.ones(1, 1, 5, 5),))
    assert caught.value.diagnostics[0].line == Pool.forward.__code__.co_firstlineno + 1
