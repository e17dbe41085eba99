"""Decide which calls are inlined and which stay calls.

An inlined call can fuse with the code around it, so all calls are inlined while the program stays small. Inlining can
make a program exponentially large if its functions call each other often. Then functions above some number of ops stay
functions, and so do those that would nest control flow too deeply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shlo_jit import tuning
from shlo_jit.deep import NESTING_LIMIT
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops.bodies import CONTROL
from shlo_jit.ops.effects import acts

NEEDS_CONSTANTS = ("stablehlo.dynamic_", "stablehlo.real_dynamic_slice", "stablehlo.rng")
"""Prefixes of the names of ops with operands that must be constant: they may be constant only at the call site."""
RUNS_ON_VALUES = {"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice", "stablehlo.rng_bit_generator"}

Called = Callable[[Op], "tuple[str, Op] | None"]
"""Returns the name and the function that an op calls or refers to, or None."""


@dataclass
class Site:
    """A call site: the op, the callee's name and the levels of control flow around it. `bound` calls must be inlined
    (the bodies of reductions and the like cannot call)."""

    op: Op
    callee: str
    depth: int
    bound: bool
    inlined: bool = True


@dataclass
class Function:
    """A function that the program uses."""

    op: Op
    sites: list[Site] = field(default_factory=list)
    own: int = 0
    """Number of its ops."""
    own_depth: int = 0
    """Levels of its regions."""
    depth: int = 0
    """Levels of its regions, including inlined calls."""
    alone: bool = True
    """Whether it can be compiled separately."""
    has_effect: bool = False
    total: int = 0
    """Number of its ops, including inlined calls."""
    bound: bool = False
    """Whether it is inlined at a site where calls must be inlined, so everything it calls is inlined, too."""
    callers: int = 0
    """Number of calls to it in the text."""


def call_graph(name: str, entry: Op, called: Called) -> dict[str, Function]:
    """Returns the functions that an entry function uses, callees before callers. Raises UnsupportedError for
    recursion."""
    out: dict[str, Function] = {}
    open_: dict[str, Function] = {name: _function(entry, called)}
    stack = [(name, iter(open_[name].sites))]
    while stack:
        name, sites = stack[-1]
        site = next(sites, None)
        if site is None:
            stack.pop()
            out[name] = open_.pop(name)
            continue
        if site.callee in open_:
            raise UnsupportedError(diagnose(f"recursion: @{site.callee} calls itself", site.op.span, label="recursion"))
        if site.callee not in out:
            found = called(site.op)
            assert found is not None
            open_[site.callee] = _function(found[1], called)
            stack.append((site.callee, iter(open_[site.callee].sites)))
    for function in out.values():
        for site in function.sites:
            out[site.callee].callers += 1
    return out


def decide(functions: dict[str, Function]) -> None:
    """Decides which sites are inlined. Raises UnsupportedError if more would have to be inlined than is sensible."""
    for function in functions.values():
        function.has_effect |= any(functions[s.callee].has_effect for s in function.sites)
    for function in reversed(functions.values()):
        for site in function.sites:  # a function inlined in a body that cannot call cannot call, either
            site.bound |= function.bound
            functions[site.callee].bound |= site.bound
    limit = max(tuning.INLINE_OPS, tuning.INLINE_GROWTH * sum(f.own for f in functions.values()))
    total = 0
    for size in tuning.INLINE_SIZES:
        total = _inline_up_to(functions, size)
        if total <= limit:
            break
    *_, entry = functions.values()
    if total > tuning.INLINE_LARGEST:
        message = f"with its calls inlined, the program has more than {tuning.INLINE_LARGEST:,} ops"
        raise UnsupportedError(diagnose(message, entry.op.span, label="too-many-ops"))
    if max(f.depth for f in functions.values()) > NESTING_LIMIT:
        message = f"with its calls inlined, it is nested too deeply (more than {NESTING_LIMIT} regions)"
        raise UnsupportedError(diagnose(message, entry.op.span, label="nested-too-deeply"))


def _inline_up_to(functions: dict[str, Function], size: int) -> int:
    """Inlines functions of up to `size` ops. Returns the total number of ops that the program has then."""
    kept: set[str] = set()
    for function in functions.values():
        function.total, function.depth = function.own, function.own_depth
        for site in function.sites:
            callee = functions[site.callee]
            depth = site.depth + callee.depth
            fits = callee.total <= size or callee.callers == 1
            site.inlined = (
                site.bound or not callee.alone or (fits and (site.depth == 0 or depth <= tuning.INLINE_DEPTH))
            )
            if site.inlined:
                function.total = min(function.total + callee.total, 1 << 60)
                function.depth = max(function.depth, depth)
            else:
                kept.add(site.callee)
    *_, entry = functions.values()
    return entry.total + sum(functions[name].total for name in kept)


def _function(op: Op, called: Called) -> Function:
    function = Function(op, alone=all(map(_is_static, op.block().arguments)))
    for inner, depth, bound in _walk(op.block()):
        function.own += 1
        function.own_depth = max(function.own_depth, depth)
        found = called(inner)
        if found is not None:
            function.sites.append(Site(inner, found[0], depth, bound or inner.name == "func.constant"))
            function.alone &= inner.name != "func.constant"
        elif inner.name.startswith(NEEDS_CONSTANTS) and inner.name not in RUNS_ON_VALUES:
            function.alone = False
        function.alone &= all(map(_is_static, inner.results))
        function.has_effect |= acts(inner)
    return function


def _walk(block: Block) -> Iterator[tuple[Op, int, bool]]:
    """Yields every op of a block and its regions, with the levels of control flow around it, and whether it is in a
    region that is not control flow."""
    todo = [(block, 0, False)]
    while todo:
        block, depth, bound = todo.pop()
        for op in block.ops:
            yield op, depth, bound
            for region in op.regions:
                todo += [(b, depth + 1, bound or op.name not in CONTROL) for b in region.blocks]


def _is_static(value: Value) -> bool:
    """Whether a value is a plain static tensor, which any function can take and return."""
    t = value.type
    return isinstance(t, TensorType) and t.is_static and t.dtype is t.storage
