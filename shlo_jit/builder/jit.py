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
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from shlo_jit import tuning
from shlo_jit.api import compile
from shlo_jit.builder.arguments import array_of, integers, is_number
from shlo_jit.builder.direct_calls import direct_call, result_maker
from shlo_jit.builder.errors import BuilderError, wrong
from shlo_jit.builder.locations import place_of
from shlo_jit.builder.modules import FunctionBuilder, ModuleBuilder
from shlo_jit.builder.scope import Handle
from shlo_jit.builder.shapes import shape_text, type_of
from shlo_jit.builder.trees import Tree, flatten, paths, unflatten
from shlo_jit.builder.tuples import elements_of
from shlo_jit.ir.core import Module
from shlo_jit.ir.types import TensorType, Type

Key = tuple[Hashable, ...]


class Code(NamedTuple):
    """For arguments of one kind."""

    executable: Any
    result: Callable[..., Any]
    """Makes what the function returns of what the executable does."""


class Jitted:
    """A function that is compiled for the arguments it is called with. Threads may share it. To type checkers calls
    take and return anything: the function itself has values where its callers have arrays.

    Kinds of arguments that came first are tried first, by code that is written for each (`direct_calls.py`); others
    are looked up."""

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **named: Any) -> Any:
            """What the function returns, as NumPy arrays."""

    else:
        __slots__ = ("__call__", "__dict__", "__weakref__")

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
        self._signature = _signature_of(f)
        self._nums, self._names = _static(self._signature, static_argnums, static_argnames)
        self._lock = threading.Lock()
        self.clear_cache()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else Method(self, instance)

    def _call(self, /, *args: Any, **named: Any) -> Any:
        """A call with arguments that are not tried first."""
        if self._by_shapes and not named:
            try:
                code = self._by_shapes.get(tuple([(type(a), a.shape, a.dtype) for a in args]))
            except (AttributeError, TypeError, BuilderError):  # of what is no array, or a value
                code = None
            if code is not None:
                return code.result(code.executable(*args))
        leaves, tree, static = self._leaves(args, named)
        if not all([type(leaf) is np.ndarray for leaf in leaves]):
            if any(isinstance(leaf, Handle) for leaf in leaves):
                return self._f(*args, **named)  # another function is being traced: this is a part of it
            leaves = [_array(leaf, path) for leaf, path in zip(leaves, self._paths(tree), strict=True)]
        key = (tree, static, *[(a.shape, a.dtype) for a in leaves])
        code = self._kinds.get(key) or self._compiled(key, args, named)
        return code.result(code.executable(*leaves))

    def _compiled(self, key: Key, args: tuple[Any, ...], named: dict[str, Any]) -> Code:
        """The code for arguments, made once whichever threads ask for it. (Each key has a lock of its own: a function
        that is being traced may call others that are.)"""
        with self._locks.setdefault(key, threading.RLock()):
            code = self._kinds.get(key)
            if code is None:
                module, results, count = self._trace(args, named)
                executable = compile(module, **self._options)
                code = self._kinds[key] = Code(executable, result_maker(results, count))
                self._shorten(code, args, named, results, count)
        self._locks.pop(key, None)
        return code

    def _shorten(self, code: Code, args: tuple[Any, ...], named: dict[str, Any], results: Tree, count: int) -> None:
        """Let calls like this one find their code without taking the tree apart in Python."""
        with self._lock:
            if self._tried_first == tuning.TRIED_FIRST:
                if not named and not self._nums and all(type(a) is np.ndarray for a in args):
                    self._by_shapes[tuple((np.ndarray, a.shape, a.dtype) for a in args)] = code
            elif not self._names.intersection(named):
                self._tried_first += 1
                _, arguments, _ = self._leaves(args, named)
                static = {n: a for n, a in enumerate(args) if n in self._nums}
                self.__call__ = direct_call(code.executable, arguments, static, results, count, self.__call__)

    def lower(self, *args: Any, **named: Any) -> Module:
        """The program for arguments like these; in the place of an array its shape will do ("f32[2,3]", "f32[?,3]").
        Raises BuilderError where the function cannot be traced."""
        return self._trace(args, named)[0]

    def compile(self, *args: Any, **named: Any) -> Any:
        """The Executable of `lower`. It takes the leaves of the arguments that are not static, one after the other, and
        returns the leaves of the result. Raises what `shlo_jit.compile` raises."""
        return compile(self.lower(*args, **named), **self._options)

    @property
    def signatures(self) -> int:
        """For how many kinds of arguments there is code."""
        return len(self._kinds)

    def clear_cache(self) -> None:
        """Forget all code, which is kept otherwise for as long as the function is."""
        with self._lock:
            self._kinds: dict[Key, Code] = {}
            self._by_shapes: dict[Key, Code] = {}
            """Those for arrays, one and all."""
            self._locks: dict[Key, threading.RLock] = {}
            """Of those that are being compiled."""
            self._tried_first = 0
            """How many kinds of arguments are tried before others are looked up."""
            self.__call__ = self._call

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Jitted:
        return self

    def __reduce__(self) -> str:
        """By its name in its module, as functions are pickled."""
        return getattr(self, "__qualname__", self._name)

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
        given = [(n, a) for n, a in enumerate(args) if n in self._nums]
        given += [(n, a) for n, a in sorted(named.items()) if n in self._names]
        static = tuple((n, _static_key(a, str(n))) for n, a in given)
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

    def _trace(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Module, Tree, int]:
        """The program for arguments like these, what the function returns without its leaves, and how many these
        are."""
        leaves, tree, _ = self._leaves(args, named)
        where = self._paths(tree)
        types = [_type(leaf, path) for leaf, path in zip(leaves, where, strict=True)]
        with ModuleBuilder(re.sub(r"\W+", "_", self._name).strip("_")) as module:
            function = FunctionBuilder("main")
            function.place = place_of(self._f) or function.place
            values = [function.add_argument(name, t) for name, t in zip(_names(where), types, strict=True)]
            with function:
                dynamic, keywords = unflatten(tree, values)
                results, shape = _leaves_of(self._f(*self._with_static(args, dynamic), **{**named, **keywords}))
                found = [_result(x, path) for x, path in zip(results, paths(shape, "result"), strict=True)]
                function.returns(*found)
        return module.module, shape, len(results)

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
    nums = integers(static_argnums, "static_argnums")
    names = frozenset({static_argnames} if isinstance(static_argnames, str) else static_argnames)
    if f is None:
        return functools.partial(jit, static_argnums=nums, static_argnames=names, **options)
    if not callable(f):
        raise wrong("f", f"expected a function, got {type(f).__name__}")
    return Jitted(f, nums, names, options)


class Method(functools.partial):
    """A function under `jit` as a method of an instance, which is its first argument."""

    func: Any

    def lower(self, *args: Any, **named: Any) -> Module:
        """`Jitted.lower`."""
        return self.func.lower(*self.args, *args, **named)

    def compile(self, *args: Any, **named: Any) -> Any:
        """`Jitted.compile`."""
        return self.func.compile(*self.args, *args, **named)


def _signature_of(f: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(f)
    except ValueError:  # a built-in function that does not say what it takes
        return inspect.signature(lambda *args, **named: None)


def _static(
    signature: inspect.Signature, nums: tuple[int, ...], names: frozenset[str]
) -> tuple[frozenset[int], frozenset[str]]:
    """Which arguments are static, by place and by name: each that may come in both ways in both."""
    known = list(signature.parameters)
    kinds = {p.kind for p in signature.parameters.values()}
    for name in names - set(known):
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            raise wrong("static_argnames", f"the function has no argument {name!r}")
    most = None if inspect.Parameter.VAR_POSITIONAL in kinds else len(known)
    for n in nums:
        if n < -len(known) or (most is not None and n >= most):
            raise wrong("static_argnums", f"the function has no argument {n}")
    places = {n % len(known) if n < 0 else n for n in nums} | {known.index(n) for n in names if n in known}
    return frozenset(places), names | {known[n] for n in places if n < len(known)}


def _static_key(x: Any, argument: str) -> Hashable:
    """What a static argument is found by. Raises BuilderError for what has no hash."""
    try:
        hash(x)
    except TypeError:
        raise wrong(argument, f"static arguments have to be hashable, and {type(x).__name__} is not") from None
    return _with_types(x)


def _with_types(x: Any) -> Hashable:
    """So that 1, 1.0 and True are not the same, nor 0.0 and -0.0, in tuples neither."""
    if isinstance(x, tuple):
        return type(x), tuple(map(_with_types, x))
    return type(x), repr(x) if isinstance(x, float | complex) else x


# ---------------------------------------------------------------------------- leaves
def _array(leaf: Any, path: str) -> Any:
    """A leaf of the arguments as an array."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf
    found = np.asarray(leaf) if is_number(leaf) else array_of(leaf, path)
    if found is not None:
        return found
    what = "expected arrays, numbers, or trees of them"
    raise wrong(path, f"{what}, got {type(leaf).__name__}", hint="static_argnames is for what is no array")


def _type(leaf: Any, path: str) -> Type:
    """The type that is traced in the place of a leaf."""
    is_shape = hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not hasattr(leaf, "__array__")
    return type_of(leaf if is_shape or isinstance(leaf, str | Type) else _array(leaf, path), path)


def _names(where: Sequence[str]) -> list[str]:
    """Of arguments: their paths in letters that a program's names have, each once."""
    found: list[str] = []
    for path in where:
        name = wanted = re.sub(r"^(?=\d|$)", "arg_", re.sub(r"\W+", "_", path).strip("_"))
        number = len(found)
        while name in found:
            name, number = f"{wanted}_{number}", number + 1
        found.append(name)
    return found


def _leaves_of(results: Any) -> tuple[list[Any], Tree]:
    """Of what a function returns, where tuples of the program are Python's."""
    leaves, tree = flatten(results)
    elements = [elements_of(leaf) for leaf in leaves]
    if all(a is b for a, b in zip(leaves, elements, strict=True)):
        return leaves, tree
    return _leaves_of(unflatten(tree, elements))


def _result(x: Any, path: str) -> Any:
    if isinstance(x, Handle) and not isinstance(x.type, TensorType):
        raise wrong(path, f"expected tensors, got {shape_text(x.type)}")
    if isinstance(x, Handle | np.ndarray | np.generic):
        return x
    if is_number(x):
        return np.asarray(x)
    raise wrong(path, f"expected values of the program, arrays or numbers, got {type(x).__name__}")
