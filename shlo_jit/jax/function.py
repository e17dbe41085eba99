"""JAX functions that shlo_jit compiles: `jit`.

JAX traces a function once for each signature and lowers it to StableHLO for the CPU; shlo_jit compiles and runs that. A
call looks up the code by the key for which JAX generates code: the structure of the arguments, the shape, dtype and
weak type of each, the static arguments, and JAX's settings.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from jax._src import config, core
from jax._src.array import ArrayImpl
from jax._src.tree_util import default_registry

from shlo_jit.jax.bound_function import BoundParameters
from shlo_jit.jax.lowered_program import Program, lower

OPTIONS = frozenset(
    """threads target custom_calls composites cache fold_scales round_activations assume_finite reproducible
    schedule""".split()
)
"""Options of `shlo_jit.compile` that functions may have."""
Signature = tuple[Hashable, ...]
_AS_THEY_ARE = frozenset(np.dtype(t) for t in "? i1 i2 i4 u1 u2 u4 f2 f4 c8".split())
"""NumPy dtypes that JAX accepts with any of its settings, and does not convert."""
_NUMPY = frozenset((np.ndarray, *(t.type for t in _AS_THEY_ARE)))
_flatten = default_registry.flatten
_tracing = threading.local()
"""`depth` is the number of our functions that JAX is tracing in this thread."""


def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    constants: Mapping[int | str, Any] | None = None,
    **options: Any,
) -> Any:
    """Returns the function, compiled by shlo_jit for each signature that it is called with; also a decorator. Arguments
    and results are those of `jax.jit(f)`: trees of JAX arrays, NumPy arrays and Python numbers in, JAX arrays out.

    static_argnums, static_argnames, donate_argnums, donate_argnames: as in `jax.jit`. constants: trees of arrays by
    parameter, by name or position. Calls do not pass these parameters, and the arrays become constants of the program;
    see `docs/constants.md`. `options`: of `shlo_jit.compile`: `threads`, `target`, `custom_calls`, `composites`,
    `cache`, `fold_scales`, `round_activations`, `assume_finite`, `reproducible`, `schedule`.

    Inside another function that `shlo_jit.jax.jit` traces, it becomes a part of that function. Raises TypeError within
    other transformations of JAX (`jax.grad(jit(f))`: write `jit(jax.grad(f))`), the errors that JAX raises when it
    traces, StableHLOError if the program is refused, NotImplementedError for effects that an executable does not
    support, and the errors of a call of an Executable.
    """
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise TypeError(f"jit has no option {unknown[0]!r}: expected some of {', '.join(sorted(OPTIONS))}")
    if f is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            constants=constants,
            **options,
        )
    bound = BoundParameters(f, constants) if constants else None
    traced = jax.jit(
        f if bound is None else bound.function,
        static_argnums=static_argnums if bound is None else bound.positions(static_argnums),
        static_argnames=static_argnames if bound is None else bound.names(static_argnames),
        donate_argnums=donate_argnums if bound is None else bound.positions(donate_argnums),
        donate_argnames=donate_argnames if bound is None else bound.names(donate_argnames),
    )
    return Jitted(f, traced, options, bound)


class Jitted:
    """A function that is compiled for the signatures that it is called with. Threads may share it."""

    def __init__(
        self, f: Callable[..., Any], traced: Any, options: dict[str, Any], bound: BoundParameters | None = None
    ) -> None:
        """`traced` is the result of `jax.jit`; `options` are those of `shlo_jit.compile`. `bound`: parameters that
        calls do not pass; `traced` takes their values as its first argument."""
        functools.update_wrapper(self, f)
        self._jax = traced
        self._options = options
        self._bound = bound
        info, first = traced._jit_info, 0 if bound is None else 1
        self._static_argnums = tuple(n - first for n in info.static_argnums)
        self._static_argnames = frozenset(info.static_argnames)
        self._has_static = bool(self._static_argnums or self._static_argnames)
        self._tables: dict[Any, dict[Signature, Program]] = {}
        """Programs by JAX's settings, and then by signature."""
        self._latest: tuple[Any, dict[Signature, Program]] = (None, {})
        """Settings of the last call, and their table. Hashing the settings takes longer than everything else here."""
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **named: Any) -> Any:
        leaves, tree, static = self._leaves(args, named)
        context, (latest, table) = config.trace_context(), self._latest
        if context == latest:
            found = table.get((tree, static, *map(signature, leaves)))
            if found is not None:
                return found(leaves)
        return self._call(leaves, tree, static, context, args, named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _leaves(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], Any, Hashable]:
        """Returns the leaves of the arguments that are not static, their structure, and the static ones."""
        if not self._has_static:
            return *_flatten((args, named)), None
        nums, names = self._static(args, named)
        static = tuple((n, type(args[n]), args[n]) for n in sorted(nums))
        static += tuple((n, type(named[n]), named[n]) for n in sorted(names))
        try:
            hash(static)
        except TypeError:
            self._jax.trace(*self._first(), *args, **named)  # JAX says which one
            raise
        dynamic = tuple(a for n, a in enumerate(args) if n not in nums)
        return *_flatten((dynamic, {n: a for n, a in named.items() if n not in names})), static

    def _static(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[set[int], set[str]]:
        """Returns which arguments are static."""
        nums = {n % len(args) for n in self._static_argnums if -len(args) <= n < len(args)}
        return nums, set(self._static_argnames.intersection(named))

    def _call(
        self, leaves: list[Any], tree: Any, static: Hashable, context: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Runs a call that may be the first with its signature."""
        depth = getattr(_tracing, "depth", 0)
        if any(isinstance(leaf, core.Tracer) for leaf in leaves):
            if depth:
                return self._jax(*self._first(), *args, **named)
            hint = "write shlo_jit.jax.jit(jax.grad(f)), not jax.grad(shlo_jit.jax.jit(f))"
            raise TypeError(f"{self._name} is compiled code, which JAX cannot transform: {hint}")
        key = (tree, static, *map(signature, leaves))
        # Functions that are traced may call each other. A thread waits for at most one lock, whose owner waits for
        # none.
        with nullcontext() if depth else self._lock:
            table = self._tables.setdefault(context, {})
            found = table.get(key)
            if found is None:
                found = table[key] = self.lower(*args, **named).compile().program
            self._latest = context, table
        return found(leaves)

    def lower(self, *args: Any, **named: Any) -> Lowered:
        """Returns the function for arguments like these (or `jax.ShapeDtypeStruct`), as StableHLO."""
        nums, names = self._static(args, named)
        args = tuple(a if n in nums else jax.tree.map(_abstract, a) for n, a in enumerate(args))
        named = {n: a if n in names else jax.tree.map(_abstract, a) for n, a in named.items()}
        _tracing.depth = getattr(_tracing, "depth", 0) + 1
        try:
            traced = self._jax.trace(*jax.tree.map(_abstract, self._first()), *args, **named)
            leaves = () if self._bound is None else self._bound.leaves
            return Lowered(lower(traced), self._options, self._name, leaves)
        finally:
            _tracing.depth -= 1

    def _first(self) -> tuple[Any, ...]:
        """Returns what JAX's function takes before the arguments of a call."""
        return () if self._bound is None else (self._bound.values,)

    @property
    def signatures(self) -> int:
        """Number of signatures that have code."""
        return sum(map(len, list(self._tables.values())))

    def clear_cache(self) -> None:
        """Deletes all code, which otherwise lives as long as the function."""
        with self._lock:
            self._tables, self._latest = {}, (None, {})
            self._jax.clear_cache()

    @property
    def _name(self) -> str:
        return getattr(self, "__name__", "the function")

    def __repr__(self) -> str:
        return f"<shlo_jit.jax.jit of {self._name}>"


class Lowered:
    """A function for certain arguments, as StableHLO."""

    def __init__(self, lowered: Any, options: dict[str, Any], name: str, constants: Sequence[Any] = ()) -> None:
        """`lowered` is a `jax.stages.Lowered`. `constants`: values of its first leaves."""
        self._lowered = lowered
        self._constants = constants
        self._options = options
        self._name = name

    def as_text(self, *, debug_info: bool = False) -> str:
        """Returns StableHLO text; with `debug_info`, with locations and the arguments' names."""
        return self._lowered.as_text(debug_info=debug_info)

    def compile(self) -> Compiled:
        """Returns machine code. Raises StableHLOError if the program is refused, and NotImplementedError for effects
        that an executable does not support."""
        return Compiled(Program(self._lowered, self._options, self._constants), self._name)


class Compiled:
    """A function for certain arguments, as machine code. Call it with such arguments, without static ones."""

    def __init__(self, program: Program, name: str) -> None:
        self.program = program
        self._name = name

    @property
    def executable(self) -> Any:
        """The Executable: it takes the program's own arguments as arrays, one after the other."""
        return self.program.executable

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the function. Raises TypeError for arguments of another structure, shape or dtype."""
        leaves, tree = _flatten((args, named))
        if tree != self.program.in_tree:
            raise TypeError(f"{self._name} was compiled for arguments {self.program.in_tree}, got {tree}")
        self.program.check(list(map(signature, leaves)))
        return self.program(leaves)


def signature(leaf: Any) -> tuple[Hashable, ...]:
    """Returns the properties of a leaf that code depends on: shape, dtype, weak type. A leaf that JAX traces has none.
    Raises TypeError for a value that JAX does not know."""
    if type(leaf) is ArrayImpl:
        aval = leaf.aval
        return aval.shape, aval.dtype, aval.weak_type
    if type(leaf) in _NUMPY and leaf.dtype in _AS_THEY_ARE:  # `typeof` takes 1.5 to 3 us
        return leaf.shape, leaf.dtype, False
    if isinstance(leaf, core.Tracer):
        return ()  # there is never code for a tracer
    aval = jax.typeof(leaf)
    return aval.shape, aval.dtype, aval.weak_type


def _abstract(leaf: Any) -> Any:
    """Returns the value that is traced in place of an array, without its device."""
    if isinstance(leaf, jax.Array) and not isinstance(leaf, core.Tracer):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.aval.weak_type)
    return leaf
