"""Higher-order operators: those that call graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shlo_jit import builder as b
from shlo_jit.builder import Value
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
    """Repeats a graph while another one's result is true."""

    def holds(state: tuple[Value, ...]) -> Value:
        found = translator.run(condition, (*state, *others))
        return b.reshape(found[0] if isinstance(found, list | tuple) else found, ())

    return b.while_(holds, lambda state: tuple(translator.run(body, (*state, *others))), tuple(carried))


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
