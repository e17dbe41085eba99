"""Programs with unknown dimensions: code for the shapes that arguments have, made when they are first seen.

A call looks up the shapes of the arguments whose dimensions are not all known, and the values of those that the
program computes shapes from; what is found is an ordinary executable.
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
from shlo_jit.runtime.given_shapes import type_given
from shlo_jit.runtime.host import Channel, Host, Infeed, Outfeed
from shlo_jit.runtime.ports import DynamicPort, DynamicSignature
from shlo_jit.runtime.staged import Runnable
from shlo_jit.runtime.symbolic import SymbolicCode

if TYPE_CHECKING:
    import os

    from shlo_jit.lower.planned import PlannedFunction
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.trace import Trace

Shape = tuple[int, ...]
Given = Sequence["Sequence[int] | str | np.ndarray"]
"""A call's shapes: of each argument its extents, its type as text (`8x16xf32`), or an array that has them."""


class Key(NamedTuple):
    """What code is made for."""

    shapes: tuple[Shape, ...]
    """Of all arguments."""
    values: tuple[bytes | None, ...]
    """Of the arguments that shapes are computed from, and None for the others."""


Make = Callable[[Sequence[Shape], Mapping[int, np.ndarray]], Runnable]
"""Makes the executable for shapes, and values of some arguments."""


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
    """Shapes follow from the values of these arguments too."""

    def __init__(self, arguments: AbstractSet[int]) -> None:
        self.arguments = frozenset(arguments)


class DynamicExecutable(InProcess):
    """A compiled program with unknown dimensions. Call it with arrays, as an `Executable`; results have the shapes that
    follow. At most `tuning.SPECIALISATIONS` shapes are kept, those that were used last. Threads may share it; copies
    are the executable itself, and other processes compile their own.

    What is asked of the code for certain shapes is asked with `shapes`, one for each argument (see `Given`), or of the
    code that was used last."""

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
        """`known`: arguments that shapes follow from the values of; where `make` raises NeedsValues, more are.
        `threads`: how many a call may use; `host`: the queues of the executables that are made; `symbolic`: where code
        for any batch size is wanted."""
        self._ports = tuple(inputs)
        self._known = known
        self._make = make
        self._host = host
        self._symbolic = symbolic
        self._table: CodeTable[Key, Runnable] = CodeTable()
        self._hot: dict[Any, Runnable] = {}
        """What is unknown of the arguments' shapes (`_hot_key`) -> executable. Forgotten whenever code is made, so
        that `_table` sees which shapes are in use."""
        self._last: Runnable | None = None
        self._looks_up = 0
        """How many measurements want calls to look their code up."""
        self._tried: list[Executable] = []
        """Code that a call tries before it looks anything up: that for any size, and for the sizes it leaves out."""
        self.threads = threads
        self.inputs = tuple(p.signature for p in inputs)
        self.outputs = tuple(p.signature for p in outputs)
        self.__call__ = self._lookup()

    # ------------------------------------------------------------------ calls
    def _lookup(self) -> Callable[..., Any]:
        """The call, written for these arguments: a shape that was seen costs a look into a dictionary. Where only the
        first extent is unknown, that is the key: the code that is found checks the rest, and all dtypes."""
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
        """Have code ready for calls: for each the shapes of all arguments; where shapes follow from the values of an
        argument too, an array. Several are compiled at the same time. Raises ValueError and TypeError for shapes that
        the program cannot have, and what compiling raises."""
        with thread_pool(max(1, len(calls)), "shlo_jit shapes") as pool:
            made = [pool.submit(self.executable, shapes) for shapes in calls]
        for future in made:
            future.result()

    def executable(self, shapes: Given | None = None) -> Runnable:
        """What runs calls of these shapes, compiled if need be. Raises as `specialize`, and ValueError without shapes
        where nothing was called yet."""
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
        """How many shapes there is code for."""
        return len(self._table)

    def text(self, stage: str, shapes: Given | None = None) -> str:
        """The program for these shapes at a stage of its compilation; see `Executable.text`. Where code for any batch
        size was asked for, the plan of given shapes says whether it is that, or why not."""
        code = self.executable(shapes)
        text = code.text(stage)
        if stage != "plan" or self._symbolic is None:
            return text
        if isinstance(code, Executable) and code.symbol is not None:
            return f"{_plan_head(code)}\n{text}"
        return text if shapes is None else f"{_plan_head(self._symbolic.find(self._extents(shapes)))}\n{text}"

    def profile(self, shapes: Given | None = None) -> Profile:
        """Where the time of calls of these shapes goes; see `Executable.profile`."""
        profile = self.executable(shapes).profile()
        profile.around = self._looking_up
        return profile

    def trace(self, path: str | os.PathLike[str], shapes: Given | None = None) -> Trace:
        """When each step of calls of these shapes ran; see `Executable.trace`."""
        trace = self.executable(shapes).trace(path)
        trace.around = self._looking_up
        return trace

    def planned(self, shapes: Given | None = None) -> list[tuple[str, list[PlannedFunction]]]:
        """What was decided of the code for these shapes."""
        return self.executable(shapes).planned()

    def cost_analysis(self, shapes: Given | None = None, *, per_step: bool = False) -> Any:
        """What calls of these shapes compute and move; see `Executable.cost_analysis`."""
        return self.executable(shapes).cost_analysis(per_step=per_step)

    def memory_analysis(self, shapes: Given | None = None) -> MemoryAnalysis:
        """What memory calls of these shapes take; see `Executable.memory_analysis`."""
        return self.executable(shapes).memory_analysis()

    @property
    def memory(self) -> Memory:
        """Of the code used last; `executable(shapes).memory` is that for other shapes. Raises ValueError before."""
        return self.executable().memory

    @property
    def infeed(self) -> Infeed:
        """As of an `Executable`; it is the same for all shapes."""
        return self._host.infeed

    @property
    def outfeed(self) -> Outfeed:
        return self._host.outfeed

    def channel(self, handle: int) -> Channel:
        return self._host.channel(handle)

    # ------------------------------------------------------------------ keys
    def _for(self, shapes: Sequence[Shape], values: Mapping[int, np.ndarray]) -> Runnable:
        """The executable for shapes, and the values of those arguments that they follow from."""
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
        """Let calls try this code first: it looks at the arguments itself, in machine code. Only of few is that quicker
        than looking the shapes up."""
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
        """Calls inside look their code up, and call that: a measurement may have put another in its place."""
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
    """What `SymbolicCode.find` says, for people."""
    if isinstance(found, str):
        return f"code for these shapes alone: {found}"
    symbol = found.symbol
    assert symbol is not None
    return f"code for any {symbol}, {symbol.low:,} to {symbol.high:,}; figures are for {symbol.hint:,}"


def _extents(index: int, port: DynamicPort, given: object) -> Shape:
    """The extents that a user gives for an argument. Raises TypeError and ValueError."""
    what = f"shape of {name_of(index, port)}"
    type = type_given(what, port.dtype, port.dtype, given)
    if type.storage != port.dtype:
        raise TypeError(f"{what}: expected {port.signature}, got {given!r}")
    return type.extents


def _check_shape(index: int, port: DynamicPort, shape: Shape) -> None:
    """Raise ValueError for a shape that the port does not have."""
    if port.shape is None:
        return
    expected = f"{name_of(index, port)}: expected {port.signature}, got {port.dtype.numpy.name}[{shape_text(shape)}]"
    if len(shape) != len(port.shape) or any(n is not None and n != m for n, m in zip(port.shape, shape, strict=True)):
        raise ValueError(expected)
    for d, (most, extent) in enumerate(zip(port.bounds or (), shape, strict=False)):
        if most is not None and extent > most:
            raise ValueError(f"{expected}: dimension {d} has {extent}, and may have {most} at most")
