"""PyTorch's models and functions, compiled by shlo_jit: `torch.compile(model, backend="shlo_jit")`,
`shlo_jit.torch.compile(model, args)` and `shlo_jit.torch.from_exported(exported)`. See `docs/pytorch.md`.

Needs PyTorch (the extra `torch`), which nothing else in the package imports. The records of ATen's operators
(`shlo_jit.torch.aten`) need only the builder.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shlo_jit.torch.dynamo import backend
    from shlo_jit.torch.exported import ExportedModule, Signature, compile, from_exported

__all__ = ["ExportedModule", "Signature", "backend", "compile", "from_exported"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{'dynamo' if name == 'backend' else 'exported'}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            "shlo_jit.torch needs PyTorch: pip install 'shlo_jit[torch]'", name="torch"
        ) from error
    return getattr(module, name)
