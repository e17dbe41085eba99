"""Higher-order operators: those that call graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch  # type: ignore[import-not-found]

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.ir.types import UI64, tensor
from shlo_jit.torch.aten.registry import Unsupported

HIGHER_ORDER: dict[str, Callable[..., Any]] = {}
"""Functions that translate higher-order operators, by name. They take the translator, the node and the arguments."""


def _higher_order(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        HIGHER_ORDER[name] = function
        return function

    return register


@_higher_order("cond")
def cond(translator: Any, node: Any, predicate: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
    """Runs one of two graphs."""
    if not isinstance(predicate, Value):
        return translator.run(true if predicate else false, operands)

    def branch(graph: Any) -> Callable[[], tuple[Any, ...]]:
        return lambda: tuple(translator.run(graph, operands))

    scalar = b.reshape(predicate, ())
    return b.conditional(scalar, None, branch(true), None, branch(false))


@_higher_order("while_loop")
def while_loop(
    translator: Any, node: Any, condition: Any, body: Any, carried: Sequence[Any], others: Sequence[Any] = ()
) -> Any:
    """Repeats a graph while another one's result is true. Random numbers have a state, which each iteration draws for
    the next one."""
    if uses_random_numbers(condition):
        raise Unsupported("random numbers in the condition of a loop are not supported")
    is_random = uses_random_numbers(body)
    outer = translator.random_state
    count = len(carried)

    def holds(state: tuple[Value, ...]) -> Value:
        found = translator.run(condition, (*state[:count], *others))
        return b.reshape(found[0] if isinstance(found, list | tuple) else found, ())

    def iteration(state: tuple[Value, ...]) -> tuple[Value, ...]:
        if not is_random:
            return tuple(translator.run(body, (*state, *others)))
        translator.random_state = state[count]
        found = tuple(translator.run(body, (*state[:count], *others)))
        return (*found, _drawn_state(translator))

    first = (*carried, _drawn_state(translator)) if is_random else tuple(carried)
    found = b.while_(holds, iteration, first)
    translator.random_state = outer
    return found[:count]


def _drawn_state(translator: Any) -> Value:
    """A state of random numbers that is drawn from the current one."""
    return b.rng_bit_generator("PHILOX", translator.random_key(), tensor((2,), UI64))[1]


def uses_random_numbers(module: torch.fx.GraphModule) -> bool:
    """Whether an operator of the graph, or of the graphs in it, draws random numbers."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
        for graph in module.modules()
        if isinstance(graph, torch.fx.GraphModule)
        for node in graph.graph.nodes
    )


@_higher_order("map_impl")
def map_over(translator: Any, node: Any, body: Any, mapped: Sequence[Value], others: Sequence[Any] = ()) -> Any:
    """Applies a graph to every row of some tensors."""
    count = mapped[0].shape[0] or 0

    def rows(results: Sequence[Sequence[Value]]) -> tuple[Value, ...]:
        stacked = zip(*results, strict=True)
        return tuple(b.concatenate([b.reshape(v, (1, *v.shape)) for v in column], 0) for column in stacked)  # type: ignore[arg-type]

    def row(i: int) -> list[Value]:
        return [x[i] for x in mapped]

    return rows([translator.run(body, (*row(i), *others)) for i in range(count)])


@_higher_order("wrap_with_set_grad_enabled")
def with_gradients_or_not(translator: Any, node: Any, enabled: bool, graph: Any, *operands: Any) -> Any:
    """Runs a graph with gradients switched on or off, which the program need not know."""
    return translator.run(graph, operands)


@_higher_order("with_effects")
def with_effects(translator: Any, node: Any, token: Any, target: Any, *args: Any, **named: Any) -> tuple[Any, ...]:
    """Calls an operator with effects, and passes on the token that orders them. Checks are the only such operators."""
    if str(target) not in CHECKS:
        raise Unsupported(f"the effects of {target} are not supported")
    return None, None


CHECKS = ("aten._linalg_check_errors.default", "aten._assert_async.msg", "aten._assert_async.default")
"""Operators whose effect is an error, which programs leave out."""


@_higher_order("wrap_with_autocast")
def with_autocast(
    translator: Any, node: Any, device: str, dtype: Any, enabled: bool, cached: bool, graph: Any, *operands: Any
) -> Any:
    """Runs a graph in which the casts of autocast are operators already."""
    return translator.run(graph, operands)
