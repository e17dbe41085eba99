"""Functions of arrays, compiled: `jit`.

    @shlo_jit.jit
    def layer(x, params):
        return {"y": builder.tanh(x @ params["w"] + params["b"].reshape((1, -1)))}

    layer(x, {"w": w, "b": b})["y"]

A function is traced, called once with values in the place of arrays, for each structure of its arguments with these
shapes, dtypes and static arguments; calls after that find the executable.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, overload

import numpy as np

from shlo_jit.api import compile
from shlo_jit.builder.arguments import is_number
from shlo_jit.builder.errors import BuilderError, wrong
from shlo_jit.builder.locations import place_of
from shlo_jit.builder.program import FunctionBuilder, ModuleBuilder
from shlo_jit.builder.scope import Handle
from shlo_jit.builder.shapes import type_of
from shlo_jit.builder.trees import Tree, flatten, paths, unflatten
from shlo_jit.ir.core import Module
from shlo_jit.ir.types import Type

Key = tuple[Hashable, ...]


class Traced:
    """A function for certain arguments: its program, and what it returns without its leaves."""

    def __init__(self, module: Module, results: Tree, leaves: int) -> None:
        self.module = module
        self.results = results
        self.leaves = leaves
        """How many results the program has."""


class Jitted:
    """A function that is compiled for the arguments it is called with. Threads may share it. To type checkers calls
    take and return anything: the function itself has values where its callers have arrays."""

    def __init__(
        self,
        f: Callable[..., Any],
        static_argnums: tuple[int, ...],
        static_argnames: frozenset[str],
        options: dict[str, Any],
    ) -> None:
        """`options`: of `shlo_jit.compile`."""
        functools.update_wrapper(self, f)
        self._f = f
        self._options = options
        self._signature = inspect.signature(f)
        self._nums, self._names = _static(self._signature, static_argnums, static_argnames)
        self._flat: dict[Key, Callable[..., Any]] = {}
        """By types, shapes and dtypes of arguments that are arrays, one and all."""
        self._calls: dict[Key, Callable[..., Any]] = {}
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What the function returns, as NumPy arrays."""
        if not named:
            try:
                return self._flat[tuple([(type(a), a.shape, a.dtype) for a in args])](*args)
            except (KeyError, AttributeError, BuilderError):
                pass  # the first call with these, or arguments of other kinds
        return self._call(args, named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        leaves, tree, static = self._leaves(args, named)
        if not all([type(leaf) is np.ndarray for leaf in leaves]):
            if any(isinstance(leaf, Handle) for leaf in leaves):
                return self._f(*args, **named)  # another function is being traced: this is a part of it
            leaves = [_array(leaf, path) for leaf, path in zip(leaves, self._paths(tree), strict=True)]
        key = (tree, static, *[(a.shape, a.dtype) for a in leaves])
        found = self._calls.get(key)
        if found is None:
            with self._lock:
                found = self._calls.get(key)
                if found is None:
                    traced = self._trace(args, named)
                    executable = compile(traced.module, **self._options)
                    found = self._calls[key] = _returning(executable, traced)
                    if not named and static == () and all(isinstance(a, np.ndarray | np.generic) for a in args):
                        self._flat[tuple((type(a), a.shape, a.dtype) for a in args)] = found
        return found(*leaves)

    def lower(self, *args: Any, **named: Any) -> Module:
        """The program for arguments like these; in the place of an array its shape will do ("f32[2,3]", "f32[?,3]").
        Raises BuilderError where the function cannot be traced."""
        return self._trace(args, named).module

    def compile(self, *args: Any, **named: Any) -> Any:
        """The Executable of `lower`. It takes the leaves of the arguments that are not static, one after the other, and
        returns the leaves of the result. Raises what `shlo_jit.compile` raises."""
        return compile(self._trace(args, named).module, **self._options)

    @property
    def signatures(self) -> int:
        """For how many kinds of arguments there is code."""
        return len(self._calls)

    def clear_cache(self) -> None:
        """Forget all code, which is kept otherwise for as long as the function is."""
        with self._lock:
            self._flat, self._calls = {}, {}

    def __repr__(self) -> str:
        return f"<shlo_jit.jit of {self._name}>"

    # ------------------------------------------------------------------------ tracing
    @property
    def _name(self) -> str:
        return getattr(self._f, "__name__", "function")

    def _leaves(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], Tree, Key]:
        """The leaves of the arguments that are not static, the structure of these, and the static ones."""
        if not self._nums and not self._names:
            leaves, tree = flatten((args, named))
            return leaves, tree, ()
        static = tuple((n, type(a), a) for n, a in enumerate(args) if n in self._nums)
        static += tuple((n, type(a), a) for n, a in sorted(named.items()) if n in self._names)
        for n, _, a in static:
            try:
                hash(a)
            except TypeError:
                raise wrong(str(n), f"static arguments have to be hashable, and {type(a).__name__} is not") from None
        dynamic = [a for n, a in enumerate(args) if n not in self._nums]
        leaves, tree = flatten((tuple(dynamic), {n: a for n, a in named.items() if n not in self._names}))
        return leaves, tree, static

    def _paths(self, tree: Tree) -> list[str]:
        """What the leaves of the arguments are called: `x`, `params['w']`."""
        assert tree is not None
        _, _, (positional, named) = tree
        parameters = [n for i, n in enumerate(self._signature.parameters) if i not in self._nums]
        found: list[str] = []
        for i, child in enumerate(positional[2]):
            found += paths(child, parameters[i] if i < len(parameters) else f"args[{i}]")
        for name, child in zip(named[1], named[2], strict=True):
            found += paths(child, name)
        return found

    def _trace(self, args: tuple[Any, ...], named: dict[str, Any]) -> Traced:
        leaves, tree, _ = self._leaves(args, named)
        where = self._paths(tree)
        types = [_type(leaf, path) for leaf, path in zip(leaves, where, strict=True)]
        with ModuleBuilder(re.sub(r"\W+", "_", self._name).strip("_")) as module:
            function = FunctionBuilder("main")
            function.place = place_of(self._f) or function.place
            values = [function.add_argument(name, t) for name, t in zip(_names(where), types, strict=True)]
            with function:
                dynamic, keywords = unflatten(tree, values)
                results, shape = flatten(self._f(*self._with_static(args, dynamic), **{**named, **keywords}))
                found = [_result(x, path) for x, path in zip(results, paths(shape, "result"), strict=True)]
                function.returns(*found)
        return Traced(module.module, shape, len(results))

    def _with_static(self, args: tuple[Any, ...], dynamic: Sequence[Any]) -> list[Any]:
        rest = iter(dynamic)
        return [a if n in self._nums else next(rest) for n, a in enumerate(args)]


@overload
def jit(f: Callable[..., Any], /) -> Jitted: ...
@overload
def jit(
    *,
    static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Iterable[str] = ...,
    **options: Any,
) -> Callable[[Callable[..., Any]], Jitted]: ...
@overload
def jit(
    f: Callable[..., Any],
    /,
    *,
    static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Iterable[str] = ...,
    **options: Any,
) -> Jitted: ...
def jit(
    f: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    **options: Any,
) -> Any:
    """The function, traced and compiled for each kind of arguments that it is called with; also a decorator.

    Arguments and results are trees (tuples, lists, dictionaries, dataclasses, None) of arrays and numbers; a number of
    Python's is an argument of NumPy's element type for it (i64, f64, complex<f64>, i1), and results are NumPy's arrays.
    static_argnums, static_argnames: arguments that the function is given as they are, by place or name; they have to be
    hashable, and every other one is traced anew. options: of `shlo_jit.compile`, such as `threads`.

    Raises BuilderError, with the line of the function, where it cannot be traced, and what `shlo_jit.compile` and the
    call of an Executable raise.
    """
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = frozenset({static_argnames} if isinstance(static_argnames, str) else static_argnames)
    if f is None:
        return functools.partial(jit, static_argnums=nums, static_argnames=names, **options)
    if not callable(f):
        raise wrong("f", f"expected a function, got {type(f).__name__}")
    return Jitted(f, nums, names, options)


def _static(
    signature: inspect.Signature, nums: tuple[int, ...], names: frozenset[str]
) -> tuple[frozenset[int], frozenset[str]]:
    """Which arguments are static, by place and by name: each that may come in both ways in both."""
    known = list(signature.parameters)
    for name in names - set(known):
        if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            raise wrong("static_argnames", f"the function has no argument {name!r}")
    places = {n % len(known) if -len(known) <= n < 0 else n for n in nums} | {
        known.index(n) for n in names if n in known
    }
    return frozenset(places), names | {known[n] for n in places if n < len(known)}


def _returning(executable: Any, traced: Traced) -> Callable[..., Any]:
    """The executable, whose results come as the tree that the function returns."""
    tree = traced.results
    if tree is None or (tree == (tuple, None, (None,) * traced.leaves) and traced.leaves > 1):
        return executable
    if traced.leaves == 1:
        return lambda *arrays: unflatten(tree, (executable(*arrays),))

    def call(*arrays: Any) -> Any:
        found = executable(*arrays)
        return unflatten(tree, found if traced.leaves else ())

    return call


# ---------------------------------------------------------------------------- leaves
def _array(leaf: Any, path: str) -> Any:
    """A leaf of the arguments as an array."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf
    if is_number(leaf) or hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__"):
        return np.asarray(leaf)
    what = "expected arrays, numbers, or trees of them"
    raise wrong(path, f"{what}, got {type(leaf).__name__}", hint="static_argnames is for what is no array")


def _type(leaf: Any, path: str) -> Type:
    """The type that is traced in the place of a leaf."""
    if isinstance(leaf, str | Type):
        return type_of(leaf, path)
    return type_of(_array(leaf, path), path)


def _names(where: Sequence[str]) -> list[str]:
    """Of arguments: their paths in letters that a program's names have, each once."""
    found: list[str] = []
    for path in where:
        name = re.sub(r"\W+", "_", path).strip("_") or "arg"
        name = f"arg_{name}" if name[0].isdigit() else name
        found.append(name if name not in found else f"{name}_{len(found)}")
    return found


def _result(x: Any, path: str) -> Any:
    if isinstance(x, Handle | np.ndarray | np.generic):
        return x
    if is_number(x):
        return np.asarray(x)
    raise wrong(path, f"expected values of the program, arrays or numbers, got {type(x).__name__}")
