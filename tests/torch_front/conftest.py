"""Tests of the front end for PyTorch are skipped if it is not installed."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Each test compiles on its own, and a graph that PyTorch runs instead is an error."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "shlo_jit does not compile")
        yield
