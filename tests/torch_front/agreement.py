"""Compares compiled functions with PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from shlo_jit.torch.dynamo import backend


def agree(functions, *tensors, **tolerance):
    """Compares functions of the same tensors, which are compiled as one graph."""

    def together(*given):
        return [f(*given) for f in functions]

    found = torch.compile(together, backend=backend, options={"fallback": False})(*tensors)
    for i, (x, y) in enumerate(zip(found, together(*tensors), strict=True)):
        torch.testing.assert_close(x, y, equal_nan=True, **tolerance, msg=lambda m, i=i: f"function {i}: {m}")
