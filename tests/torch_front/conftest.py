"""Settings of the tests of the front end for PyTorch. Those that need PyTorch are skipped if it is not installed."""

import sys
import warnings

import pytest


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Each test compiles on its own, and a graph that PyTorch runs instead is an error."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch._dynamo.reset()
        torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "shlo_jit does not compile")
        yield
