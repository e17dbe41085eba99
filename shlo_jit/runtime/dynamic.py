"""Programs with unknown dimensions: code is specialized for the shapes of arguments when they are first seen.

A call looks up the shapes of the arguments whose dimensions are not all known, and the values of the arguments that the
program computes shapes from. The result is an ordinary executable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.forking import thread_pool
from shlo_jit.runtime.arguments import arranged, check_count, name_of, shape_text, take
from shlo_jit.runtime.code_table import CodeTable
from shlo_jit.runtime.executable import Executable, InProcess, Memory, MemoryAnalysis
from shlo_jit.runtime.host import Channel, Host, Infeed, Outfeed
from shlo_jit.runtime.ports import DynamicPort, DynamicSignature
from shlo_jit.runtime.shape_arguments import type_given
from shlo_jit.runtime.staged import Runnable
from shlo_jit.runtime.symbolic import SymbolicCode

if TYPE_CHECKING:
    import os

    from shlo_jit.lower.planned import PlannedFunction
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.trace import Trace

Shape = tuple[int, ...]
Given = Sequence["Sequence[int] | str | np.ndarray"]
"""Shapes of a call: for each argument its extents, its type as text (`8x16xf32`), or an array that has them."""


class Key(NamedTuple):
    """Key of specialized code."""

    shapes: tuple[Shape, ...]
    """Shapes of all arguments."""
    values: tuple[bytes | None, ...]
    """Values of the arguments that shapes are computed from, and None for the others."""


Make = Callable[[Sequence[Shape], Mapping[int, np.ndarray]], Runnable]
"""Builds the executable for shapes, and values of some arguments."""


_CALL = """
def call(*args, **named):
    if named:
        args = arranged(args, named, ports)
    try:
        found = hot({key})
    except (AttributeError, IndexError, TypeError):  # no array, or none there
        found = None
    if found is None:
        return slow(*args)
    self._last = found
    return found(*args)
"""


class NeedsValues(Exception):
    """Shapes also depend on the values of these arguments."""

    def __init__(self, arguments: AbstractSet[int]) -> None:
        self.arguments = frozenset(arguments)


class DynamicExecutable(InProcess):
    """A compiled program with unknown dimensions. Call it with arrays, as an `Executable`; results have the shapes that
    follow. At most `tuning.SPECIALIZATIONS` shapes are kept, the most recently used ones. Threads may share it; copies
    are the executable itself, and other processes compile their own.

    Properties that depend on shapes are requested with `shapes`, one for each argument (see `Given`). Without them,
    they are those of the code that was used last.
    """

    __slots__ = (
        "__call__",
        "_host",
        "_hot",
        "_known",
        "_last",
        "_looks_up",
        "_make",
        "_ports",
        "_symbolic",
        "_table",
        "_tried",
        "threads",
    )
    inputs: tuple[DynamicSignature, ...]
    outputs: tuple[DynamicSignature, ...]

    def __init__(
        self,
        inputs: Sequence[DynamicPort],
        outputs: Sequence[DynamicPort],
        known: frozenset[int],
        make: Make,
        threads: int,
        host: Host,
        symbolic: SymbolicCode | None = None,
    ) -> None:
        """`known` has the arguments whose values shapes depend on; if `make` raises NeedsValues, more are added.
        `threads` is the maximum number of threads of a call. `host` has the queues of the executables. `symbolic` is
        given if code for any batch size is requested."""
        self._ports = tuple(inputs)
        self._known = known
        self._make = make
        self._host = host
        self._symbolic = symbolic
        self._table: CodeTable[Key, Runnable] = CodeTable()
        self._hot: dict[Any, Runnable] = {}
        """Executable by the unknown parts of the arguments' shapes (`_hot_key`). Cleared whenever code is generated, so
        that `_table` sees which shapes are in use."""
        self._last: Runnable | None = None
        self._looks_up = 0
        """Number of measurements that require calls to look up their code."""
        self._tried: list[Executable] = []
        """Code that a call tries before it looks anything up: that for any size, and for the sizes it leaves out."""
        self.threads = threads
        self.inputs = tuple(p.signature for p in inputs)
        self.outputs = tuple(p.signature for p in outputs)
        self.__call__ = self._lookup()

    # ------------------------------------------------------------------ calls
    def _lookup(self) -> Callable[..., Any]:
        """Returns the call function, generated for these arguments: a known shape costs one dictionary lookup. If only
        the first extent is unknown, that is the key: the code that is found checks the rest, and all dtypes."""
        names: dict[str, Any] = {"self": self, "hot": self._hot.get, "slow": self._call}
        names |= {"arranged": arranged, "ports": self._ports}
        exec(_CALL.format(key=self._hot_key), names)
        return names["call"]

    @property
    def _hot_key(self) -> str:
        """The key in `_hot`, as an expression over the tuple `args`."""
        varying = [(i, port.shape) for i, port in enumerate(self._ports) if not port.is_static]
        keys = [
            f"len(args[{i}])" if shape and shape[0] is None and None not in shape[1:] else f"args[{i}].shape"
            for i, shape in varying
        ]
        keys += [f"args[{i}].tobytes()" for i in sorted(self._known)]
        return keys[0] if len(keys) == 1 else f"({', '.join(keys)})"

    def _call(self, *args: Any) -> Any:
        check_count(len(args), self._ports)
        arrays = [take(value, i, port) for i, (value, port) in enumerate(zip(args, self._ports, strict=True))]
        found = self._last = self._for([a.shape for a in arrays], dict(enumerate(arrays)))
        if not _is_symbolic(found):
            self._hot[eval(self._hot_key, {"args": arrays})] = found
        return found(*args)

    # ------------------------------------------------------------------ code for shapes
    def specialize(self, *calls: Given) -> None:
        """Compiles code for calls. Each call is given by the shapes of all arguments; if shapes depend on an argument's
        value, give an array. Several are compiled at the same time. Raises ValueError and TypeError for shapes that the
        program cannot have, and the errors of compiling."""
        with thread_pool(max(1, len(calls)), "shlo_jit shapes") as pool:
            made = [pool.submit(self.executable, shapes) for shapes in calls]
        for future in made:
            future.result()

    def executable(self, shapes: Given | None = None) -> Runnable:
        """Returns the executable for calls of these shapes, compiled if necessary. Raises as `specialize`, and
        ValueError without shapes if there was no call yet."""
        if shapes is None:
            if self._last is None:
                wanted = ", ".join(map(str, self.inputs))
                raise ValueError(f"this depends on shapes: call the program first, or give shapes= for ({wanted})")
            return self._last
        extents = self._extents(shapes)
        values = {i: np.asarray(x) for i, x in enumerate(shapes) if isinstance(x, np.ndarray | np.generic)}
        found = self._last = self._for(extents, values)
        return found

    def _extents(self, shapes: Given) -> list[Shape]:
        if isinstance(shapes, str) or not isinstance(shapes, Sequence):
            raise TypeError(f"shapes: expected one for each argument, got {shapes!r}")
        check_count(len(shapes), self._ports)
        return [_extents(i, port, given) for i, (port, given) in enumerate(zip(self._ports, shapes, strict=True))]

    @property
    def specialisations(self) -> int:
        """Number of shapes that have code."""
        return len(self._table)

    def text(self, stage: str, shapes: Given | None = None) -> str:
        """Returns the program for these shapes at a stage of its compilation; see `Executable.text`. If code for any
        batch size was requested, the plan of given shapes says whether it applies, or why not."""
        code = self.executable(shapes)
        text = code.text(stage)
        if stage != "plan" or self._symbolic is None:
            return text
        if isinstance(code, Executable) and code.symbol is not None:
            return f"{_plan_head(code)}\n{text}"
        return text if shapes is None else f"{_plan_head(self._symbolic.find(self._extents(shapes)))}\n{text}"

    def profile(self, shapes: Given | None = None) -> Profile:
        """Profiles calls of these shapes; see `Executable.profile`."""
        profile = self.executable(shapes).profile()
        profile.around = self._looking_up
        return profile

    def trace(self, path: str | os.PathLike[str], shapes: Given | None = None) -> Trace:
        """Traces each step of calls of these shapes; see `Executable.trace`."""
        trace = self.executable(shapes).trace(path)
        trace.around = self._looking_up
        return trace

    def planned(self, shapes: Given | None = None) -> list[tuple[str, list[PlannedFunction]]]:
        """Returns the decisions on the code for these shapes."""
        return self.executable(shapes).planned()

    def cost_analysis(self, shapes: Given | None = None, *, per_step: bool = False) -> Any:
        """Returns the computations and memory traffic of calls of these shapes; see `Executable.cost_analysis`."""
        return self.executable(shapes).cost_analysis(per_step=per_step)

    def memory_analysis(self, shapes: Given | None = None) -> MemoryAnalysis:
        """Returns the memory use of calls of these shapes; see `Executable.memory_analysis`."""
        return self.executable(shapes).memory_analysis()

    @property
    def memory(self) -> Memory:
        """Memory of the code used last; `executable(shapes).memory` is that for other shapes. Raises ValueError before
        a call."""
        return self.executable().memory

    @property
    def infeed(self) -> Infeed:
        """See `Executable`; it is the same for all shapes."""
        return self._host.infeed

    @property
    def outfeed(self) -> Outfeed:
        return self._host.outfeed

    def channel(self, handle: int) -> Channel:
        return self._host.channel(handle)

    # ------------------------------------------------------------------ keys
    def _for(self, shapes: Sequence[Shape], values: Mapping[int, np.ndarray]) -> Runnable:
        """Returns the executable for shapes, and the values of the arguments that they depend on."""
        self._check(shapes)
        if self._symbolic is not None:
            found = self._symbolic.find(shapes)
            found = self._specialised(shapes, values) if isinstance(found, str) else found
            if isinstance(found, Executable) and not self._known:
                self._prefer(found)
            return found
        return self._specialised(shapes, values)

    def _specialised(self, shapes: Sequence[Shape], values: Mapping[int, np.ndarray]) -> Runnable:
        while True:
            try:
                return self._found(self._key(shapes, values))
            except NeedsValues as needs:
                self._known |= needs.arguments
                self._try([code for code in self._tried if code.symbol is not None])

    def _check(self, shapes: Sequence[Shape]) -> None:
        for i, (shape, port) in enumerate(zip(shapes, self._ports, strict=True)):
            _check_shape(i, port, shape)

    def _prefer(self, code: Executable) -> None:
        """Makes calls try this code first: it checks the arguments itself, in machine code. This is faster than looking
        the shapes up only for a few executables."""
        if code in self._tried or len(self._tried) == tuning.TRIED_FIRST:
            return
        self._try(sorted([*self._tried, code], key=lambda c: c.symbol is None))

    def _try(self, first: list[Executable]) -> None:
        self._tried = first
        call = self._lookup()
        for code in reversed(() if self._looks_up else first):
            call = code.before(call)
        self.__call__ = call

    @contextmanager
    def _looking_up(self) -> Iterator[None]:
        """Makes calls inside look up their code, and call that: a measurement may have replaced it by another."""
        self._looks_up += 1
        self._try(self._tried)
        try:
            yield
        finally:
            self._looks_up -= 1
            self._try(self._tried)

    def _key(self, shapes: Sequence[Shape], values: Mapping[int, np.ndarray]) -> Key:
        for i in sorted(self._known):
            if i not in values:
                name = name_of(i, self._ports[i])
                raise ValueError(f"{name}: shapes follow from its value: give an array, not just its shape")
        return Key(tuple(shapes), tuple(values[i].tobytes() if i in self._known else None for i in range(len(shapes))))

    def _found(self, key: Key) -> Runnable:
        return self._table.find(key, lambda: self._made(key))

    def _made(self, key: Key) -> Runnable:
        values = {
            i: np.frombuffer(data, self._ports[i].dtype.numpy).reshape(key.shapes[i])
            for i, data in enumerate(key.values)
            if data is not None
        }
        made = self._make(key.shapes, values)
        self._hot.clear()
        return made


def _is_symbolic(code: Runnable) -> bool:
    return isinstance(code, Executable) and code.symbol is not None


def _plan_head(found: Executable | str) -> str:
    """Returns the result of `SymbolicCode.find` as text."""
    if isinstance(found, str):
        return f"code for these shapes alone: {found}"
    symbol = found.symbol
    assert symbol is not None
    return f"code for any {symbol}, {symbol.low:,} to {symbol.high:,}; figures are for {symbol.hint:,}"


def _extents(index: int, port: DynamicPort, given: object) -> Shape:
    """Returns the extents that a user gives for an argument. Raises TypeError and ValueError."""
    what = f"shape of {name_of(index, port)}"
    type = type_given(what, port.dtype, port.dtype, given)
    if type.storage != port.dtype:
        raise TypeError(f"{what}: expected {port.signature}, got {given!r}")
    return type.extents


def _check_shape(index: int, port: DynamicPort, shape: Shape) -> None:
    """Raises ValueError for a shape that does not fit the port."""
    if port.shape is None:
        return
    expected = f"{name_of(index, port)}: expected {port.signature}, got {port.dtype.numpy.name}[{shape_text(shape)}]"
    if len(shape) != len(port.shape) or any(n is not None and n != m for n, m in zip(port.shape, shape, strict=True)):
        raise ValueError(expected)
    for d, (most, extent) in enumerate(zip(port.bounds or (), shape, strict=False)):
        if most is not None and extent > most:
            raise ValueError(f"{expected}: dimension {d} has {extent}, and may have {most} at most")
