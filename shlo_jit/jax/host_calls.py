"""Custom calls by which JAX programs call Python functions.

JAX keeps the functions in a list, and each call has an `index` into it. Functions of `buffer_callback` receive
instances of JAX's `ExecutionContext` and `Buffer`. Here, these represent memory of one of our programs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jax._src import mesh
from jax._src.mesh import use_abstract_mesh
from jax._src.sharding_impls import _internal_use_concrete_mesh
from jax.errors import JaxRuntimeError
from jax.experimental import buffer_callback as names

from shlo_jit.pjrt.callbacks import BUFFERS, PARTS, WHOLE
from shlo_jit.pjrt.nesting import within_callback
from shlo_jit.runtime.callbacks import InPlace
from shlo_jit.runtime.dlpack import CPU, to_dlpack


def host_calls(callbacks: Sequence[Callable[..., Any]]) -> dict[str, Any]:
    """Returns implementations of these custom calls, by name."""
    # Ordered ones take and return a token first, and a compiled program has none.
    ordered = [next(iter(inspect.signature(c).parameters), "") == "token" for c in callbacks]

    def call(*operands: np.ndarray, index: int) -> Sequence[Any]:
        with within_callback(), _no_mesh():
            if ordered[index]:
                return callbacks[index](None, *operands)[1:]
            return callbacks[index](*operands)

    def call_in_place(operands: Sequence[np.ndarray], results: Sequence[np.ndarray], index: int) -> None:
        buffers = [*(MemoryBuffer.of(x, False) for x in operands), *(MemoryBuffer.of(x, True) for x in results)]
        try:
            with within_callback(), _no_mesh():
                callbacks[index](CallContext.__new__(CallContext), *buffers)
        finally:
            for buffer in buffers:
                buffer.end()

    return {WHOLE: call, PARTS: call, BUFFERS: InPlace(call_in_place)}


@contextmanager
def _no_mesh() -> Iterator[None]:
    """Removes the caller's mesh. The calling thread may be the user's, with a mesh set for the program, but its arrays
    are whole, on one device."""
    with use_abstract_mesh(mesh.empty_abstract_mesh), _internal_use_concrete_mesh(mesh.empty_concrete_mesh):
        yield


class CallContext(names.ExecutionContext):
    """Execution context of a call."""

    @property
    def stage(self) -> Any:
        return names.ExecutionStage.EXECUTE

    @property
    def stream(self) -> int:
        raise JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


class MemoryBuffer(names.Buffer):
    """An operand or result, valid until the function returns; raises RuntimeError after that."""

    _memory: np.ndarray | None
    _writeable: bool

    @classmethod
    def of(cls, memory: np.ndarray, writeable: bool) -> MemoryBuffer:
        made = cls.__new__(cls)  # JAX's class has no public constructor
        made._memory, made._writeable = memory, writeable
        return made

    def end(self) -> None:
        self._memory = None

    @property
    def memory(self) -> np.ndarray:
        if self._memory is None:
            raise RuntimeError("a callback's buffer can only be used until the callback returns")
        return self._memory

    @property
    def shape(self) -> tuple[int, ...]:
        return self.memory.shape

    @property
    def ndim(self) -> int:
        return self.memory.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.memory.dtype

    @property
    def writeable(self) -> bool:
        return self._writeable

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.memory, dtype, copy=copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise AttributeError("Buffer.__cuda_array_interface__ is only supported on CUDA and ROCm.")

    def __dlpack__(
        self, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> object:
        return to_dlpack(self.memory.copy() if copy else self.memory, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0
