"""`torch.compile(..., backend="shlo_jit")`: results, gradients, training, dynamic shapes, mutations, and refusals."""

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.while_loop import while_loop

from shlo_jit.errors import UnsupportedError
from shlo_jit.torch.dynamo import FallbackWarning, backend


def compiled(function, **options):
    return torch.compile(function, backend=backend, **options)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return torch.softmax(self.second(torch.relu(self.first(x))), -1)


def losses(model, run, steps=5):
    """Losses of a few steps of Adam on fixed data."""
    torch.manual_seed(1)
    x, y = torch.randn(12, 8), torch.randn(12, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (run(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_the_backend_has_an_entry_point():
    model, x = Net().eval(), torch.randn(3, 8)
    if "shlo_jit" not in torch._dynamo.list_backends():
        pytest.skip("the package is not installed, so it has no entry points")
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="shlo_jit")(x), model(x))


def test_training_follows_eager():
    model = Net()
    twin = copy.deepcopy(model)
    torch.testing.assert_close(losses(twin, compiled(twin)), losses(model, model), rtol=1e-5, atol=1e-6)


def test_batch_norm_updates_its_statistics():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    twin, x = copy.deepcopy(model), torch.randn(2, 3, 8, 8)
    for found, wanted in zip((compiled(twin)(x), *twin.buffers()), (model(x), *model.buffers()), strict=True):
        torch.testing.assert_close(found, wanted)


def test_dynamic_shapes_compile_one_graph():
    counter = CompileCounterWithBackend(backend)
    f = torch.compile(lambda x: (x @ x.T).sum(0) * x.shape[0], backend=counter, dynamic=True)
    for n in (3, 5, 8):
        x = torch.randn(n, 4)
        torch.testing.assert_close(f(x), (x @ x.T).sum(0) * n)
    assert counter.frame_count == 1


def test_marked_dimensions_are_dynamic():
    counter = CompileCounterWithBackend(backend)
    f = torch.compile(lambda x: torch.cat([x, x.flip(0)]).cumsum(0), backend=counter)
    for n in (4, 6):
        x = torch.randn(n, 3)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(f(x), torch.cat([x, x.flip(0)]).cumsum(0))
    assert counter.frame_count == 1


def test_mutations_of_arguments_and_views():
    def f(x, y):
        x.add_(1)
        y[1:].mul_(2)
        return x[0], y.t()

    first, second = torch.randn(3, 4), torch.randn(3, 4)
    given, wanted = (first.clone(), second.clone()), (first.clone(), second.clone())
    for found, expected in zip((*compiled(f)(*given), *given), (*f(*wanted), *wanted), strict=True):
        torch.testing.assert_close(found, expected)


def test_strides_of_results_are_those_of_eager():
    x = torch.randn(2, 3, 4)
    for f in (lambda x: (x + 1).transpose(1, 2), lambda x: (x * 2).permute(2, 0, 1), lambda x: x.sum(1)):
        assert compiled(f)(x).stride() == f(x).stride()


def test_a_graph_break_continues():
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    x = torch.randn(5)
    torch.testing.assert_close(compiled(f)(x), f(x))


def test_random_numbers_follow_the_seed():
    f = compiled(lambda x: torch.nn.functional.dropout(x, 0.25))
    x = torch.ones(10_000)
    torch.manual_seed(3)
    first, second = f(x), f(x)
    torch.manual_seed(3)
    assert torch.equal(f(x), first)
    assert not torch.equal(first, second)
    assert abs((first == 0).float().mean() - 0.25) < 0.02
    assert first.unique().tolist() == pytest.approx([0.0, 4 / 3])


def test_distributions():
    draw = compiled(lambda: (torch.rand(50_000), torch.randn(50_000), torch.randint(-2, 5, (50_000,))))
    uniform, normal, integers = draw()
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert sorted(integers.unique().tolist()) == [-2, -1, 0, 1, 2, 3, 4]


def test_dropout_in_training_uses_the_same_mask_in_both_directions():
    x = torch.ones(1000, requires_grad=True)
    y = compiled(lambda x: torch.nn.functional.dropout(x * 3, 0.5))(x)
    y.sum().backward()
    assert torch.equal(x.grad == 0, y == 0)


def test_autocast_to_bfloat16():
    model, x = Net().eval(), torch.randn(3, 8)
    run = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, wanted = run(x), model(x)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_bfloat16_goes_in_and_out():
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    f = lambda x: (x.relu(), x.float().sum(), x.T)  # noqa: E731
    for found, wanted in zip(compiled(f)(x), f(x), strict=True):
        torch.testing.assert_close(found, wanted)


def test_control_flow():
    def f(x):
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))

    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled(f)(x), f(x))


def test_a_loop_until_a_condition_is_false():
    def f(x):
        return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 1.5), (torch.tensor(0), x))

    x = torch.randn(3)
    torch.testing.assert_close(compiled(f)(x), f(x))


def test_a_function_of_every_row():
    x, y = torch.randn(3, 4), torch.randn(4)
    f = lambda x, y: map_rows(lambda row, other: row.sin() * other, x, y)  # noqa: E731
    torch.testing.assert_close(compiled(f)(x, y), f(x, y))


def segments(x, lengths):
    return torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True)


def test_an_unsupported_operator_falls_back_with_its_name():
    x, lengths = torch.arange(5.0), torch.tensor([2, 3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = compiled(segments)(x, lengths)
    torch.testing.assert_close(found, segments(x, lengths))
    messages = [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
    assert len(messages) == 1
    assert "aten.segment_reduce.default" in messages[0]
    assert "test_torch_backend.py" in messages[0]


def test_without_fallback_it_raises_at_the_line_of_the_model():
    with pytest.raises(Exception, match=r"aten\.segment_reduce") as caught:
        compiled(segments, options={"fallback": False})(torch.arange(5.0), torch.tensor([2, 3]))
    error = caught.value
    while error is not None and not isinstance(error, UnsupportedError):
        error = getattr(error, "inner_exception", None) or error.__cause__
    assert error is not None
    assert error.diagnostics[0].line == segments.__code__.co_firstlineno + 1


def test_results_have_memory_of_their_own():
    def f(x, n):
        old = x.clone()
        x.add_(1)
        return [old, n**1, n.clone().view(-1), n.roll(0, 0), n.flip([]), torch.cat([n]), n.to(n.dtype, copy=True), n]

    x, n = torch.ones(3), torch.arange(3.0)
    found = compiled(f)(x, n)
    torch.testing.assert_close(found[0], torch.ones(3))
    torch.testing.assert_close(x, torch.full((3,), 2.0))
    memory = {t.data_ptr() for t in (x, *found[:-1])}
    assert len(memory) == len(found)
    assert n.data_ptr() not in memory and found[-1].data_ptr() == n.data_ptr()


def test_sizes_that_depend_on_data_fall_back_or_are_given_by_a_call():
    x = torch.arange(6.0)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    torch.testing.assert_close(compiled(lambda x: x.sin() + 1)(x), x.sin() + 1)


def test_tensors_with_the_negative_bit_are_negated():
    x = torch.randn(3, dtype=torch.complex64)
    y = x.conj().imag
    assert y.is_neg()
    for dtype in (torch.float32, torch.bfloat16):
        z = y if dtype == torch.float32 else torch._neg_view(torch.randn(3).to(dtype))
        torch.testing.assert_close(compiled(lambda v: v * 2)(z), z * 2)


def test_the_name_of_the_backend_is_a_function_after_imports():
    import shlo_jit.torch
    import shlo_jit.torch.dynamo

    assert callable(shlo_jit.torch.backend)


def test_random_numbers_ignore_the_default_device():
    f = compiled(lambda x: x + torch.rand(3, device="cpu"))
    with torch.device("meta"):
        found = f(torch.zeros(3, device="cpu"))
    assert found.device.type == "cpu"


def test_edges_of_distributions():
    n = 1 << 22  # draws whose greatest integers round up without care

    def draw():
        weights = torch.tensor([1.0, 0.0])
        return (
            torch.randn(n).abs().max(),
            torch.randn(1000, dtype=torch.float64).isfinite().all(),
            torch.multinomial(weights, n, True).sum(),
            torch.randint(-(2**63), 2**63 - 1, (1000,)),
            torch.randn(10_000, dtype=torch.complex64),
            torch.rand(1000, dtype=torch.complex64).imag,
            torch.empty(n, dtype=torch.bfloat16).uniform_().max(),
            torch.empty(n).uniform_(1, 2).max(),
        )

    greatest, finite, heavy, integers, normal, imaginary, half, between = compiled(draw)()
    assert greatest < 10 and finite and heavy == 0
    assert (integers > 2**62).any() and (integers < -(2**62)).any() and (integers % 2 == 0).any()
    assert abs(normal.abs().square().mean() - 1) < 0.05 and abs(normal.imag.square().mean() - 0.5) < 0.03
    assert 0.4 < imaginary.mean() < 0.6
    assert half < 1 and between < 2


def test_the_ends_of_random_bits():
    from shlo_jit import builder as b
    from shlo_jit import compile as compile_program
    from shlo_jit.ir.dtypes import DTYPES
    from shlo_jit.ir.types import tensor
    from shlo_jit.torch.aten import random

    with pytest.MonkeyPatch.context() as patch, b.function("main", low=tensor((), DTYPES["f32"])) as f:
        ends = lambda call, shape, bits: b.constant(np.array([0, 2**bits - 1], f"u{bits // 8}"))  # noqa: E731
        patch.setattr(random, "_bits", ends)
        kinds = [DTYPES[name] for name in ("f32", "f64", "bf16")]
        f.returns(*(make(None, (2,), kind) for make in (random.normal, random.uniform) for kind in kinds))
    found = compile_program(f.module)(0.0)
    assert all(torch.tensor(x.astype("f8")).isfinite().all() for x in found)
    for x in found[3:]:
        assert x[0] == 0 and 0.99 < float(x[1]) < 1


def test_random_numbers_of_iterations_differ():
    def f(x):
        step = lambda i, v: (i + 1, v + torch.rand_like(v))  # noqa: E731
        return while_loop(lambda i, v: i < 1000, step, (torch.tensor(0), x))[1]

    found = compiled(f, options={"fallback": False})(torch.zeros(8))
    assert ((found > 420) & (found < 580)).all()
    assert len(found.unique()) == 8
