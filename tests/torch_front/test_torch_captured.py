"""Graphs in PyTorch's cache of captured graphs: what is stored, what is not, and that stored graphs give the same."""

import os
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn

from shlo_jit.torch import captured
from shlo_jit.torch.dynamo import backend


def _has_compiler():
    """Whether there is a C++ compiler of those that Inductor looks for."""
    return any(map(shutil.which, [os.environ.get("CXX", ""), "g++", "clang++"]))


pytestmark = pytest.mark.skipif(captured._Storable is None, reason="this PyTorch stores graphs of Inductor only")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Caches of PyTorch and of shlo_jit for each test."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "shlo"))


class Net(nn.Module):
    """A network whose buffer changes, with a result in another order of dimensions, and a constant."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.norm(self.layer(x)) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        return y.relu(), y.transpose(1, 3) + 1, x


def outcome(function, *tensors, options=None, backend=backend):
    """Calls a function that is captured anew, and returns its results and what PyTorch's cache did."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    found = torch.compile(function, backend=backend, options=options)(*tensors)
    counters = torch._dynamo.utils.counters["aot_autograd"]
    return found, {name: counters[f"autograd_cache_{name}"] for name in ("hit", "miss", "saved", "bypass")}


def updated(x):
    """Results, their strides, and the statistics of a network of fixed weights, and what PyTorch's cache did."""
    torch.manual_seed(1)
    model = Net()
    with torch.no_grad():
        found, counts = outcome(model, x)
    return [*found, *(torch.tensor(y.stride()) for y in found), *model.buffers()], counts


def test_a_stored_graph_gives_the_same_results_and_mutations():
    x = torch.randn(2, 3, 8, 8)
    first, cold = updated(x)
    second, cached = updated(x)
    assert (cold["miss"], cold["saved"], cold["hit"]) == (1, 1, 0)
    assert (cached["miss"], cached["hit"]) == (0, 1)
    for found, wanted in zip(second, first, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert second[2] is x


def test_a_graph_stored_for_inference_does_not_serve_training():
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    with torch.no_grad():
        outcome(layer, x)
    found, counts = outcome(layer, x)
    assert counts["hit"] == 0
    wanted = torch.autograd.grad(layer(x).square().sum(), [*layer.parameters()])
    for own, other in zip(torch.autograd.grad(found.square().sum(), [*layer.parameters()]), wanted, strict=True):
        torch.testing.assert_close(own, other)


def test_a_stored_graph_draws_new_random_numbers():
    def dropped():
        return outcome(lambda x: torch.nn.functional.dropout(x, 0.5), torch.ones(1000))

    torch.manual_seed(3)
    first, _ = dropped()
    second, cached = dropped()
    torch.manual_seed(3)
    third, _ = dropped()
    assert cached["hit"] == 1
    assert not torch.equal(first, second) and torch.equal(first, third)


def test_options_are_part_of_the_key():
    x = torch.randn(4, 4)
    counts = [outcome(torch.tanh, x, options=o)[1]["hit"] for o in ({}, {"threads": 1}, {}, {"threads": 1})]
    assert counts == [0, 0, 1, 1]


@pytest.mark.skipif(not _has_compiler(), reason="Inductor needs a C++ compiler, which was not found")
def test_graphs_of_inductor_are_not_ours():
    x, order = torch.randn(5, 3), ("inductor", "inductor", backend, "inductor", backend)
    with torch._functorch.config.patch(bundled_autograd_cache=True):  # ours are, and it is part of the key
        counts = [outcome(torch.tanh, x, backend=b)[1] for b in order]
    assert [c["hit"] for c in counts] == [0, 1, 0, 1, 1]
    assert [c["saved"] for c in counts] == [1, 0, 1, 0, 0]
    torch.testing.assert_close(outcome(torch.tanh, x)[0], torch.tanh(x))


def test_constants_are_part_of_the_key():
    x, results = torch.ones(3), []
    for factor in (2.0, 3.0):
        constant = torch.full((3,), factor)
        results.append(outcome(lambda x, c=constant: x * c * torch.tensor([factor, 1.0, 1.0]), x)[0])  # noqa: B023
    assert [r.tolist() for r in results] == [[4.0, 2.0, 2.0], [9.0, 3.0, 3.0]]


def test_without_the_cache_nothing_is_stored():
    _, counts = outcome(torch.sin, torch.ones(6), options={"cache": False})
    assert counts == {"hit": 0, "miss": 0, "saved": 0, "bypass": 0}


def test_graphs_of_symbolic_sizes_and_of_pytorch_are_not_stored():
    for _ in range(2):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        f = torch.compile(lambda x: x.cumsum(0) * x.shape[0], backend=backend, dynamic=True)
        for n in (3, 5):
            torch.testing.assert_close(f(torch.ones(n)), torch.ones(n).cumsum(0) * n)
        assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] == 0
    for _ in range(2):
        with pytest.warns(UserWarning, match="ldl_factor"):
            found, counts = outcome(lambda x: torch.linalg.ldl_factor(x)[0] + x.sum(), torch.eye(2))
        assert counts["hit"] == 0 and found.tolist() == [[3, 2], [2, 3]]


PROGRAM = """
import torch
from shlo_jit.torch.dynamo import backend
torch.manual_seed(0)
layer = torch.nn.Linear(16, 16)
with torch.no_grad():
    found = torch.compile(layer, backend=backend)(torch.ones(2, 16))
print(torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"], found.double().sum().item().hex())
"""


def test_another_process_does_not_capture_again():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert (first[0], second[0]) == ("0", "1")
    assert first[1] == second[1]


IMPORTS = """
import sys
import torch
from shlo_jit.torch.dynamo import backend
with torch.no_grad():
    torch.compile(torch.nn.Linear(16, 16), backend=backend)(torch.ones(2, 16))
unused = ("shlo_jit.builder", "shlo_jit.torch.program", "torch._inductor.lowering", "torch._inductor.codegen.cpp")
print(torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"], *(x in sys.modules for x in unused))
"""


def test_a_graph_in_the_cache_imports_neither_the_builder_nor_inductors_generators():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", IMPORTS]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert first == ["0", "True", "True", "False", "False"]
    assert second == ["1", "False", "False", "False", "False"]


TRACELESS = """
import torch
from shlo_jit.torch.dynamo import backend
torch._dynamo.config.caching_precompile = True


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)

    def forward(self, x):
        return self.norm(self.layer(x).relu())


torch.manual_seed(0)
model = Net()
if {trains}:
    found = torch.compile(model, backend=backend)(torch.randn(4, 16))
    found.square().sum().backward()
    parts = [found.detach(), *(p.grad for p in model.parameters()), *model.buffers()]
else:
    with torch.no_grad():
        parts = [torch.compile(model.eval(), backend=backend)(torch.randn(4, 16))]
torch.compiler.save_cache_artifacts()
counters = torch._dynamo.utils.counters
print(counters["dynamo_cache"]["dynamo_cache_hit"], counters["stats"]["unique_graphs"])
print(*(part.double().sum().item().hex() for part in parts))
"""


@pytest.mark.slow
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_another_process_does_not_trace(trains, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(TRACELESS.format(trains=trains))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    first, second = (
        subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        .stdout.strip()
        .splitlines()
        for _ in range(2)
    )
    assert (first[0], second[0]) == ("0 1", "1 0")
    assert first[1] == second[1]
