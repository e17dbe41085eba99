"""Modules and functions under construction.

with builder.module("model") as m:
    with builder.function("main", x="f32[2,3]", n="s32[]") as f:
        f.returns(f.x * 2.0, f.n + 1)
exe = shlo_jit.compile(m.module)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from shlo_jit.builder.arguments import is_number, tensor_of
from shlo_jit.builder.errors import BuilderError, wrong
from shlo_jit.builder.locations import Place, caller
from shlo_jit.builder.scope import Frame, Handle, Symbols, check_visible, frame, inside, open_frame, value
from shlo_jit.builder.shapes import ShapeLike, shape_text, type_of
from shlo_jit.ir import core
from shlo_jit.ir.attributes import DictAttr, TypeAttr
from shlo_jit.ir.core import Block, Module, Op, Region
from shlo_jit.ir.types import FunctionType, Type
from shlo_jit.verify.verifier import verify_module

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value

_module: ContextVar[Symbols | None] = ContextVar("shlo_jit.builder.module", default=None)


class ModuleBuilder:
    """A module in which functions are built while its `with` is open. `module` is the program afterwards."""

    def __init__(self, name: str = "") -> None:
        """`name`: name of the module; may be empty."""
        self._name = _checked_name(name, empty=True)
        self.place = caller()
        self._symbols = Symbols()
        self._module: Module | None = None
        self._before: Token[Symbols | None] | None = None

    def __enter__(self) -> ModuleBuilder:
        self._before = _module.set(self._symbols)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._before is not None
        _module.reset(self._before)
        if kind is None:
            self._module = finished_module(self._symbols, self.place, self._name)

    @property
    def module(self) -> Module:
        """The program, a Module like a parsed one. Raises BuilderError while the `with` is open."""
        if self._module is None:
            raise wrong("", "the module is only available after its `with` block")
        return self._module

    def __str__(self) -> str:
        return str(self.module)


class FunctionBuilder:
    """A function to which operations are added while its `with` is open.

    Its arguments are attributes (`f.x`), or unpacked (`x, y = f`). `f.returns(...)` ends it.
    """

    def __init__(self, name: str = "main", /, *shapes: ShapeLike, **arguments: ShapeLike) -> None:
        """`shapes`: shapes of unnamed arguments. `arguments`: shapes by name.

        Raises BuilderError for an invalid shape, and for a name that another function of the module has.
        """
        symbols, own = _symbols()
        if _checked_name(name) in symbols.names:
            raise wrong("name", f"the module already has a function {name}")
        self._begin(symbols, own, name)
        for i, shape in enumerate(shapes):
            self.add_argument(f"arg{i}", type_of(shape, f"shapes[{i}]"))
        for key, shape in arguments.items():
            self.add_argument(key, type_of(shape, key))
        symbols.names.add(name)

    def _begin(self, symbols: Symbols, own: bool, name: str) -> None:
        """`own`: whether the module contains only this function."""
        self.name = name
        self.place = caller()
        self._symbols, self._own = symbols, own
        self._frame = Frame(symbols, Block([]), None, f"function {name}")
        self._frame.function = self
        self._by_name: dict[str, Value] = {}
        self._opened: AbstractContextManager[Frame] | None = None
        self._op: Op | None = None

    def add_argument(self, name: str, type: Type) -> Value:
        """Adds an argument after the others; used by `builder.parameter`."""
        _checked_name(name)
        if name in self._by_name:
            raise wrong("name", f"the function already has an argument {name}")
        block = self._frame.block
        raw = core.Value(type, block, len(block.arguments), name)
        block.arguments.append(raw)
        self._by_name[name] = value(raw, self._frame)
        return self._by_name[name]

    # ------------------------------------------------------------------------ arguments
    @property
    def args(self) -> tuple[Value, ...]:
        """The arguments in order."""
        return tuple(self._by_name.values())

    def __iter__(self) -> Iterator[Value]:
        return iter(self.args)

    def __getitem__(self, name: str) -> Value:
        """Returns an argument by name, also if functions have an attribute of that name: `f["name"]`."""
        return FunctionBuilder.__getattr__(self, name)

    def __getattr__(self, name: str) -> Value:
        found = self.__dict__.get("_by_name", {}).get(name)
        if found is None:
            if name.startswith("__"):
                raise AttributeError(name)
            known = ", ".join(self.__dict__.get("_by_name", {})) or "none"
            raise AttributeError(f"the function has no argument {name!r}; its arguments: {known}")
        return found

    # ------------------------------------------------------------------------ building
    def __enter__(self) -> FunctionBuilder:
        if self._op is not None or self._opened is not None:
            raise wrong("", f"function {self.name} is already built")
        self._opened = inside(self._frame)
        self._opened.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._opened is not None
        self._opened.__exit__(kind, error, at)
        if kind is not None:
            self._symbols.names.discard(self.name)
            return
        if self._op is None:
            raise wrong("", f"function {self.name} returns nothing: end it with .returns(...)", place=self.place)
        self._symbols.functions.append(self._op)

    def returns(self, /, *results: Value, **named: Value) -> None:
        """Ends the function with these results, which may have names.

        Arrays become constants. A function may have no results.
        """
        if open_frame() is not self._frame:
            raise wrong("", f"function {self.name} is not the open one")
        if self._op is not None:
            raise wrong("", f"function {self.name} already has results")
        found = [_result(x, f"results[{i}]") for i, x in enumerate(results)]
        found += [_result(x, name) for name, x in named.items()]
        place = caller()
        end = Op("func.return", [h.raw for h in found], [], {}, [], place.source, place.start, place.end)
        end.location = self._symbols.location(place)
        block = self._frame.block
        block.ops.append(end)
        inputs = tuple(a.type for a in block.arguments)
        type = FunctionType(inputs, tuple(h.type for h in found))
        attributes: dict[str, Any] = {"sym_name": self.name, "function_type": TypeAttr(type)}
        if named:
            names = [""] * len(results) + list(named)
            attributes["res_attrs"] = tuple(DictAttr((("jax.result_info", n),) if n else ()) for n in names)
        at = self.place
        self._op = Op("func.func", [], [], attributes, [Region([block])], at.source, at.start, at.end)
        self._op.location = self._symbols.location(at)
        self._frame.is_open = False

    # ------------------------------------------------------------------------ afterwards
    @property
    def op(self) -> Op:
        """The function as an op of the module. Raises BuilderError before `returns`."""
        if self._op is None:
            raise wrong("", f"function {self.name} has not returned yet")
        return self._op

    @property
    def argument_types(self) -> tuple[Type, ...]:
        """The types of its arguments."""
        return tuple(a.type for a in self._frame.block.arguments)

    @property
    def symbols(self) -> Symbols:
        """The module in which it is built."""
        return self._symbols

    @property
    def module(self) -> Module:
        """The program: this function, and those that were built inside of it.

        Raises BuilderError for a function within `with builder.module()`: use that module's `module`.
        """
        if not self._own:
            raise wrong("", f"function {self.name} is part of a module: use that module's .module")
        assert self.op is not None
        return finished_module(self._symbols, self.place, "")

    def __repr__(self) -> str:
        return f"<function {self.name}({', '.join(shape_text(t) for t in self.argument_types)})>"


module = ModuleBuilder
function = FunctionBuilder


class PrivateFunction(FunctionBuilder):
    """A private function of the module that is being built, traced from a Python function."""

    def __init__(self, name: str, types: Sequence[Type], body: Callable[..., Sequence[object]]) -> None:
        """`body` is called with values of these types."""
        symbols = frame().symbols
        self._begin(symbols, False, symbols.free_name(name))
        for i, t in enumerate(types):
            self.add_argument(f"arg{i}", t)
        with self:
            self.returns(*body(*self.args))  # type: ignore[arg-type]  it says what is wrong
        self.op.attributes["sym_visibility"] = "private"


def finished_module(symbols: Symbols, place: Place, name: str) -> Module:
    """Returns the module of the finished functions. Raises BuilderError if the program is not valid."""
    attributes = {"sym_name": name} if name else {}
    body = Block([], list(symbols.functions))
    op = Op("builtin.module", [], [], attributes, [Region([body])], place.source, place.start, place.end)
    made = Module(op, place.source, symbols.locations)
    found = verify_module(made, is_registered=lambda target: True)
    if found:
        raise BuilderError(found[0], "module")
    return made


def _symbols() -> tuple[Symbols, bool]:
    """Returns the module that a new function belongs to, and whether it contains only that function."""
    found = _module.get()
    if found is not None:
        return found, False
    outer = open_frame()
    return (outer.symbols, False) if outer is not None else (Symbols(), True)


def _result(x: object, argument: str) -> Handle:
    if isinstance(x, Handle):
        check_visible(x, argument)
        return x
    if is_number(x):
        raise wrong(argument, f"{x!r} has no element type", hint="write builder.constant(number, dtype)")
    return tensor_of(x, argument)


def _checked_name(name: object, empty: bool = False) -> str:
    if not isinstance(name, str) or not (name or empty):
        raise wrong("name", f"expected a name, got {name!r}")
    return name
