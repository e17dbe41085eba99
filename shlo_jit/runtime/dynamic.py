"""Programs with unknown dimensions: code for the shapes that arguments have, made when they are first seen.

A call looks up the shapes of the arguments whose dimensions are not all known, and the values of those that the
program computes shapes from; what is found is an ordinary executable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.ir.types import DType
from shlo_jit.runtime.arguments import check_count, describe_array, name_of, shape_text, take
from shlo_jit.runtime.code_table import CodeTable
from shlo_jit.runtime.staged import Runnable

Shape = tuple[int, ...]


class DynamicSignature(NamedTuple):
    """An argument or result of a program with unknown dimensions."""

    name: str
    """Empty when it has none."""
    shape: tuple[int | None, ...]
    """None: a dimension that is not known."""
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype.name}[{shape_text(self.shape)}]"


class DynamicPort(NamedTuple):
    """An argument or result; a dimension is None where it is not known."""

    name: str
    shape: tuple[int | None, ...]
    dtype: DType
    bounds: tuple[int | None, ...] | None = None
    """The most that dimensions may be, where there is a limit."""

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def signature(self) -> DynamicSignature:
        return DynamicSignature(self.name, self.shape, self.dtype.numpy)


class Key(NamedTuple):
    """What code is made for."""

    shapes: tuple[Shape, ...]
    """Of all arguments."""
    values: tuple[bytes | None, ...]
    """Of the arguments that shapes are computed from, and None for the others."""


Make = Callable[[Sequence[Shape], Mapping[int, np.ndarray]], Runnable]
"""Makes the executable for shapes, and values of some arguments."""


class NeedsValues(Exception):
    """Shapes follow from the values of arguments too."""


class DynamicExecutable:
    """A compiled program with unknown dimensions. Call it with arrays, as an `Executable`; results have the shapes that
    follow. At most `tuning.SPECIALISATIONS` shapes are kept, those that were used last. Threads may share it."""

    __slots__ = (
        "__call__",
        "__weakref__",
        "_hot",
        "_known",
        "_make",
        "_may_be_shapes",
        "_ports",
        "_table",
        "inputs",
        "outputs",
    )

    def __init__(
        self,
        inputs: Sequence[DynamicPort],
        outputs: Sequence[DynamicPort],
        known: tuple[int, ...],
        may_be_shapes: tuple[int, ...],
        make: Make,
    ) -> None:
        """`known`: arguments that shapes are computed from; where `make` raises NeedsValues, `may_be_shapes` are."""
        self._ports = tuple(inputs)
        self._known = known
        self._may_be_shapes = may_be_shapes
        self._make = make
        self._table: CodeTable[Key, Runnable] = CodeTable()
        self._hot: dict[Any, Runnable] = {}
        """Shapes of the arguments whose shapes are not all known -> executable. Forgotten whenever code is made, so
        that `_table` sees which shapes are in use."""
        self.inputs = tuple(p.signature for p in inputs)
        self.outputs = tuple(p.signature for p in outputs)
        self.__call__ = self._lookup()

    def _lookup(self) -> Callable[..., Any]:
        """The call. Shapes that were seen cost a look into a dictionary."""
        hot, slow = self._hot.get, self._call
        varying = [i for i, port in enumerate(self._ports) if not port.is_static]
        if len(varying) == 1:
            (only,) = varying

            def call(*args: Any) -> Any:
                try:
                    found = hot(args[only].shape)
                except (AttributeError, IndexError, TypeError):  # no array, or none there
                    found = None
                return slow(*args) if found is None else found(*args)

            return call

        def call_by_all(*args: Any) -> Any:
            try:
                found = hot(tuple([args[i].shape for i in varying]))
            except (AttributeError, IndexError, TypeError):
                found = None
            return slow(*args) if found is None else found(*args)

        return call_by_all

    def _call(self, *args: Any) -> Any:
        check_count(len(args), self._ports)
        arrays = [take(value, i, port) for i, (value, port) in enumerate(zip(args, self._ports, strict=True))]
        found = self._executable(arrays)
        if not self._known:
            varying = tuple(a.shape for a, port in zip(arrays, self._ports, strict=True) if not port.is_static)
            self._hot[varying[0] if len(varying) == 1 else varying] = found
        return found(*args)

    def specialize(self, *calls: Sequence[Sequence[int]]) -> None:
        """Have code ready for calls: for each the shapes of all arguments. Several are compiled at the same time.
        Raises ValueError for shapes that the program cannot have."""
        if self._known:
            raise ValueError("the program computes shapes from values of its arguments: call it with these")
        for shapes in calls:
            check_count(len(shapes), self._ports)
        with ThreadPoolExecutor(max(1, len(calls))) as pool:
            made = [pool.submit(self._for, Key(tuple(map(tuple, shapes)), (None,) * len(shapes))) for shapes in calls]
        for future in made:
            future.result()

    @property
    def specialisations(self) -> int:
        """How many shapes there is code for."""
        return len(self._table)

    def _executable(self, arrays: Sequence[np.ndarray]) -> Runnable:
        try:
            return self._for(self._key(arrays))
        except NeedsValues:
            self._known = self._may_be_shapes
            return self._for(self._key(arrays))

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        return f"<DynamicExecutable ({inputs}) -> ({outputs})>"

    def _key(self, arrays: Sequence[np.ndarray]) -> Key:
        values = tuple(arrays[i].tobytes() if i in self._known else None for i in range(len(arrays)))
        return Key(tuple(a.shape for a in arrays), values)

    def _for(self, key: Key) -> Runnable:
        """The executable for a key."""
        return self._table.find(key, lambda: self._made(key))

    def _made(self, key: Key) -> Runnable:
        for i, (shape, port) in enumerate(zip(key.shapes, self._ports, strict=True)):
            _check_shape(i, port, shape)
        values = {
            i: np.frombuffer(data, self._ports[i].dtype.numpy).reshape(key.shapes[i])
            for i, data in enumerate(key.values)
            if data is not None
        }
        made = self._make(key.shapes, values)
        self._hot.clear()
        return made


def _check_shape(index: int, port: DynamicPort, shape: Shape) -> None:
    """Raise ValueError for a shape that the port does not have."""
    expected = f"{name_of(index, port)}: expected {port.signature}"
    if len(shape) != len(port.shape) or any(n is not None and n != m for n, m in zip(port.shape, shape, strict=True)):
        raise ValueError(f"{expected}, got {describe_array(np.empty(shape, port.dtype.numpy))}")
    for d, (limit, extent) in enumerate(zip(port.bounds or (), shape, strict=False)):
        if limit is not None and extent > limit:
            raise ValueError(f"{expected} with at most {limit} in dimension {d}, got {extent}")
