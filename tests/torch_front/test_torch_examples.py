"""The examples of PyTorch: training follows PyTorch's own losses, and a C program prints a model's results."""

import copy
import importlib.util
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples" / "pytorch"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_training_a_gpt_follows_the_losses_of_pytorch():
    gpt = example("train_gpt")
    model = gpt.GPT(blocks=1)
    twin = copy.deepcopy(model)
    run = torch.compile(model, backend="shlo_jit" if "shlo_jit" in torch._dynamo.list_backends() else backend())
    found, wanted = gpt.train(model, run, 6), gpt.train(twin, twin, 6)
    assert found == pytest.approx(wanted, abs=1e-4)
    assert found[-1] < found[0]


def backend():
    from shlo_jit.torch import backend

    return backend


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_program_prints_the_results_of_a_model(tmp_path):
    classifier = example("export_classifier")
    printed = classifier.main(tmp_path)
    with torch.no_grad():
        wanted = classifier.model()(torch.arange(16.0).reshape(2, 8) / 16)
    found = [[float(word) for word in line.split()] for line in printed.splitlines()]
    torch.testing.assert_close(torch.tensor(found), wanted, atol=1e-4, rtol=0)
