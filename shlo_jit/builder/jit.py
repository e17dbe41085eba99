"""`jit`: compilation of functions of arrays.

    @shlo_jit.jit
    def layer(x, params):
        return {"y": builder.tanh(x @ params["w"] + params["b"].reshape((1, -1)))}

    layer(x, {"w": w, "b": b})["y"]

A function is traced, that is called once with values instead of arrays, for each combination of argument structure,
shapes, dtypes and static arguments. Later calls look up the executable.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from shlo_jit import tuning
from shlo_jit.api import compile
from shlo_jit.builder.arguments import array_of, integers, is_number, tensor_of
from shlo_jit.builder.bound_parameters import by_parameter, full_call, position_left, without
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
from shlo_jit.runtime.given_arrays import given_arrays

Key = tuple[Hashable, ...]


class Code(NamedTuple):
    """Compiled code for one kind of arguments."""

    executable: Any
    result: Callable[..., Any]
    """Builds the function's result from the executable's."""


class Constants:
    """Parameters of a function that have the same value in every call: trees of arrays, by name."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Arrays that may change are copied. Raises BuilderError for leaves that are no arrays."""
        leaves, self.tree = flatten(dict(given))
        self.paths = [path for name, value in given.items() for path in paths(flatten(value)[1], name)]
        arrays = [_array(leaf, path) for leaf, path in zip(leaves, self.paths, strict=True)]
        kept = {array.key: array for array in given_arrays(dict(enumerate(arrays)))}
        self._kept = kept
        self.leaves = [kept[i].value for i in range(len(arrays))]

    def values(self) -> dict[str, Any]:
        """Returns them as constants of the program that is being built."""
        return unflatten(self.tree, [tensor_of(leaf, path) for leaf, path in zip(self.leaves, self.paths, strict=True)])


class Jitted:
    """A function that is compiled for the arguments it is called with. Threads may share it.

    To type checkers calls take and return anything: the function itself has values where its callers have arrays. The
    first kinds of arguments are tried first, by code generated for each (`direct_calls.py`); others are looked up.
    """

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **named: Any) -> Any:
            """Returns the function's result with NumPy arrays."""

    else:
        __slots__ = ("__call__", "__dict__", "__weakref__")

    def __init__(
        self,
        f: Callable[..., Any],
        static_argnums: tuple[int, ...],
        static_argnames: frozenset[str],
        options: dict[str, Any],
    ) -> None:
        """`options`: those of `shlo_jit.compile`, with `constants` by the parameters of the function."""
        functools.update_wrapper(self, f)
        self._f = f
        whole = self._whole_signature = _signature_of(f)
        self._options = {name: value for name, value in options.items() if name != "constants"}
        bound = by_parameter(whole, options.get("constants") or {})
        nums, self._names = _static(whole, static_argnums, static_argnames)
        self._nums = frozenset(position_left(whole, bound, n) for n in nums)
        self._signature = without(whole, bound)
        self._constants = Constants(bound)
        self._lock = threading.Lock()
        self.clear_cache()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else Method(self, instance)

    def _call(self, /, *args: Any, **named: Any) -> Any:
        """Handles a call whose arguments match none of the code that is tried first."""
        if self._by_shapes and not named:
            try:
                code = self._by_shapes.get(tuple([(type(a), a.shape, a.dtype) for a in args]))
            except (AttributeError, TypeError, BuilderError):  # raised for values, and for objects that are no arrays
                code = None
            if code is not None:
                return code.result(code.executable(*args))
        leaves, tree, static = self._leaves(args, named)
        if not all([type(leaf) is np.ndarray for leaf in leaves]):
            if any(isinstance(leaf, Handle) for leaf in leaves):
                return self._run(args, named, self._constants.values())  # a part of another function, which is traced
            leaves = [_array(leaf, path) for leaf, path in zip(leaves, self._paths(tree), strict=True)]
        key = (tree, static, *[(a.shape, a.dtype) for a in leaves])
        code = self._kinds.get(key) or self._compiled(key, args, named)
        return code.result(code.executable(*leaves))

    def _compiled(self, key: Key, args: tuple[Any, ...], named: dict[str, Any]) -> Code:
        """Returns the code for arguments, compiled once even if several threads ask for it.

        Each key has a lock of its own, because a function that is being traced may call others that are traced.
        """
        with self._locks.setdefault(key, threading.RLock()):
            code = self._kinds.get(key)
            if code is None:
                module, results, count = self._trace(args, named)
                executable = self._compile(module)
                code = self._kinds[key] = Code(executable, result_maker(results, count))
                self._shorten(code, args, named, results, count)
        self._locks.pop(key, None)
        return code

    def _shorten(self, code: Code, args: tuple[Any, ...], named: dict[str, Any], results: Tree, count: int) -> None:
        """Generates a direct call for arguments like these, which does not flatten the tree in Python."""
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
        """Returns the program for arguments like these.

        A shape may replace an array ("f32[2,3]", "f32[?,3]"). Raises BuilderError if the function cannot be traced.
        """
        return self._trace(args, named)[0]

    def compile(self, *args: Any, **named: Any) -> Any:
        """Returns the Executable of `lower`.

        It takes the leaves of the arguments that are not static as positional arguments, and returns the leaves of the
        result. Raises the errors of `shlo_jit.compile`.
        """
        return self._compile(self.lower(*args, **named))

    def _compile(self, module: Module) -> Any:
        """Compiles a program whose last arguments are the constants."""
        main = module.function("main")
        assert main is not None
        first = len(main.block().arguments) - len(self._constants.leaves)
        constants = {first + i: leaf for i, leaf in enumerate(self._constants.leaves)}
        return compile(module, constants=constants, **self._options)

    @property
    def signatures(self) -> int:
        """Number of kinds of arguments that have code."""
        return len(self._kinds)

    def clear_cache(self) -> None:
        """Drops all code, which is otherwise kept as long as the function."""
        with self._lock:
            self._kinds: dict[Key, Code] = {}
            self._by_shapes: dict[Key, Code] = {}
            """Code for kinds of arguments whose leaves are all arrays."""
            self._locks: dict[Key, threading.RLock] = {}
            """Locks of the keys that are being compiled."""
            self._tried_first = 0
            """Number of kinds of arguments that are tried before a lookup."""
            self.__call__ = self._call

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Jitted:
        return self

    def __reduce__(self) -> str:
        """Pickles by name in the module, like a function."""
        return getattr(self, "__qualname__", self._name)

    def __repr__(self) -> str:
        return f"<shlo_jit.jit of {self._name}>"

    # ------------------------------------------------------------------------ tracing
    @property
    def _name(self) -> str:
        return getattr(self._f, "__name__", "function")

    def _leaves(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], Tree, Key]:
        """Returns the leaves of the arguments that are not static, their structure, and the static arguments."""
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
        """Names of the leaves of the arguments: `x`, `params['w']`."""
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
        """Returns the program for arguments like these, followed by the constants; the structure of the result, and its
        number of leaves."""
        leaves, tree, _ = self._leaves(args, named)
        count = len(leaves)
        leaves, where = [*leaves, *self._constants.leaves], [*self._paths(tree), *self._constants.paths]
        types = [_type(leaf, path) for leaf, path in zip(leaves, where, strict=True)]
        with ModuleBuilder(re.sub(r"\W+", "_", self._name).strip("_")) as module:
            function = FunctionBuilder("main")
            function.place = place_of(self._f) or function.place
            values = [function.add_argument(name, t) for name, t in zip(_names(where), types, strict=True)]
            with function:
                dynamic, keywords = unflatten(tree, values[:count])
                constants = unflatten(self._constants.tree, values[count:])
                found = self._run(self._with_static(args, dynamic), {**named, **keywords}, constants)
                results, shape = _leaves_of(found)
                function.returns(*(_result(x, path) for x, path in zip(results, paths(shape, "result"), strict=True)))
        return module.module, shape, len(results)

    def _run(self, args: Sequence[Any], named: dict[str, Any], constants: dict[str, Any]) -> Any:
        """Calls the function with values of the program."""
        if not constants:
            return self._f(*args, **named)
        full, keywords = full_call(self._whole_signature, constants, args, named)
        return self._f(*full, **keywords)

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
    constants: Mapping[int | str, Any] | None = ...,
    **options: Any,
) -> Callable[[Callable[..., Any]], Jitted]: ...
@overload
def jit(
    f: Callable[..., Any],
    /,
    *,
    static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Iterable[str] = ...,
    constants: Mapping[int | str, Any] | None = ...,
    **options: Any,
) -> Jitted: ...
def jit(
    f: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    constants: Mapping[int | str, Any] | None = None,
    **options: Any,
) -> Any:
    """Returns the function, traced and compiled for each kind of arguments that it is called with; also a decorator.

    Arguments and results are trees (tuples, lists, dictionaries, dataclasses, None) of arrays and numbers. A Python
    number is an argument of NumPy's element type for it (i64, f64, complex<f64>, i1). Results are NumPy arrays.
    static_argnums, static_argnames: arguments that the function receives unchanged, by position or name. They must be
    hashable, and each new value is traced again. constants: trees of arrays by parameter, by name or position. Calls do
    not pass these parameters, and the arrays become constants of the program; see `docs/constants.md`. options: those
    of `shlo_jit.compile`, such as `threads`. A `schedule` of moves is for one kind of arguments; `schedule="tuned"` is
    for all of them.

    Raises BuilderError, with the line of the function, if it cannot be traced, and the errors of `shlo_jit.compile` and
    of the call of an Executable.
    """
    options |= {} if constants is None else {"constants": constants}
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
    except ValueError:  # a built-in function without a signature
        return inspect.signature(lambda *args, **named: None)


def _static(
    signature: inspect.Signature, nums: tuple[int, ...], names: frozenset[str]
) -> tuple[frozenset[int], frozenset[str]]:
    """Returns the static arguments by position and by name. Arguments that can be passed both ways are in both."""
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
    """Returns the cache key of a static argument. Raises BuilderError if it is not hashable."""
    try:
        hash(x)
    except TypeError:
        raise wrong(argument, f"expected a hashable static argument, got {type(x).__name__}") from None
    return _with_types(x)


def _with_types(x: Any) -> Hashable:
    """Adds types to a key, so that 1, 1.0 and True differ, and 0.0 and -0.0, also within tuples."""
    if isinstance(x, tuple):
        return type(x), tuple(map(_with_types, x))
    return type(x), repr(x) if isinstance(x, float | complex) else x


# ---------------------------------------------------------------------------- leaves
def _array(leaf: Any, path: str) -> Any:
    """Converts a leaf of the arguments to an array."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf
    found = np.asarray(leaf) if is_number(leaf) else array_of(leaf, path)
    if found is not None:
        return found
    what = "expected arrays, numbers, or trees of them"
    raise wrong(path, f"{what}, got {type(leaf).__name__}", hint="use static_argnames for arguments that are no arrays")


def _type(leaf: Any, path: str) -> Type:
    """The type that is traced for a leaf."""
    is_shape = hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not hasattr(leaf, "__array__")
    return type_of(leaf if is_shape or isinstance(leaf, str | Type) else _array(leaf, path), path)


def _names(where: Sequence[str]) -> list[str]:
    """Unique names of arguments: their paths, reduced to the letters that names of a program can have."""
    found: list[str] = []
    for path in where:
        name = wanted = re.sub(r"^(?=\d|$)", "arg_", re.sub(r"\W+", "_", path).strip("_"))
        number = len(found)
        while name in found:
            name, number = f"{wanted}_{number}", number + 1
        found.append(name)
    return found


def _leaves_of(results: Any) -> tuple[list[Any], Tree]:
    """Leaves and structure of a function's result; tuples of the program become Python's."""
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
