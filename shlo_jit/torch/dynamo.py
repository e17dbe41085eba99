"""The backend of `torch.compile`: `torch.compile(model, backend="shlo_jit")`.

Dynamo captures the functions of a model, AOTAutograd makes graphs without mutations of the forward and the backward
pass, and each graph becomes a `Program`. PyTorch runs a graph with an operator that has no translation, after a warning
that names the operator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found]
from functorch.compile import min_cut_rematerialization_partition  # type: ignore[import-not-found]
from torch._dynamo.backends.common import aot_autograd  # type: ignore[import-not-found]
from torch._functorch._aot_autograd.utils import make_boxed_func  # type: ignore[import-not-found]

from shlo_jit.errors import StableHLOError
from shlo_jit.torch.calls import Storable
from shlo_jit.torch.captured import stored_graphs
from shlo_jit.torch.decompositions import Decompositions
from shlo_jit.torch.layouts import Layouts, physical_order, saved_orders, strides_of

if TYPE_CHECKING:
    from shlo_jit.torch.program import Program


class FallbackWarning(UserWarning):
    """Warns that a graph is not compiled, and names the operator."""


def backend(
    module: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """Compiles a graph of Dynamo. `options`: those of `shlo_jit.compile`, and `fallback` (by default True): whether a
    graph that cannot be compiled runs as PyTorch runs it; otherwise that raises UnsupportedError."""
    given = dict(options or {})
    fallback = given.pop("fallback", True)

    def compiler(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(graph, examples, given, fallback)

    with stored_graphs(given) as prepared:
        made = aot_autograd(
            fw_compiler=prepared(compiler),
            bw_compiler=prepared(compiler),
            inference_compiler=prepared(compiler),
            decompositions=Decompositions(),
            partition_fn=min_cut_rematerialization_partition,
        )
        return made(module, example_inputs)


def compile_graph(
    graph: torch.fx.GraphModule, examples: Sequence[Any], options: Mapping[str, Any], fallback: bool
) -> Callable[..., Any]:
    """Compiles a graph of ATen's operators. The result takes the list of its arguments."""
    from shlo_jit.torch.program import Program  # imports the builder, which a graph in a cache does not need

    layouts = _layouts(graph, examples)
    program = Program(graph, options, layouts)
    depends_on_data = any(_has_no_hint(n) for x in examples for n in (x.shape if isinstance(x, torch.Tensor) else (x,)))
    compiled: Callable[..., Any] = _or_eager(program, graph) if fallback else program.__call__
    if not depends_on_data:
        try:
            first = program.compiled([_example(x) for x in examples])
        except StableHLOError as error:
            if not fallback:
                raise
            return _eager(graph, error)
        compiled = first if program.is_static else compiled

    def call(arguments: list[Any]) -> Any:
        found = compiled(arguments)
        arguments.clear()
        return found

    _report(graph, layouts)
    if program.is_static and program.built is not None:
        call.storable = Storable(program.built, options, program.dtypes(program.built))  # type: ignore[attr-defined]
    call._boxed_call = True  # type: ignore[attr-defined]  PyTorch's mark of functions that take a list
    return call


def _layouts(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Layouts:
    """The orders in memory of arguments, as in the examples, and of what a forward pass saves. PyTorch's own for
    symbolic sizes, whose values may change the order."""
    tensors = [x for x in examples if isinstance(x, torch.Tensor)]
    results = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    if any(not isinstance(n, int) for x in tensors for n in (*x.shape, *x.stride())) or len(tensors) < len(examples):
        return Layouts()
    orders = {i: physical_order(x.shape, x.stride()) for i, x in enumerate(examples)}
    arguments = {i: order for i, order in orders.items() if order is not None}
    context = torch._guards.TracingContext.try_get()
    if context is None or context.output_strides is None or not isinstance(results, list | tuple):
        return Layouts(arguments)
    metadata = context.fw_metadata
    if metadata is None or metadata.num_symints_saved_for_bw is None:
        return Layouts(arguments)
    return Layouts(arguments, saved_orders(graph.graph, metadata.tensors_saved_for_backwards_slice))


def _report(graph: torch.fx.GraphModule, layouts: Layouts) -> None:
    """Tells PyTorch the strides of the results, with which it compiles the backward pass."""
    if not layouts.results:
        return
    nodes = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    context = torch._guards.TracingContext.get()
    for i, node in enumerate(nodes):
        fake: Any = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if not isinstance(fake, torch.Tensor):
            context.output_strides.append(None)
        else:
            order = layouts.results.get(i)
            context.output_strides.append(fake.stride() if order is None else strides_of(fake.shape, order))


def _or_eager(program: Program, graph: torch.fx.GraphModule) -> Callable[[Sequence[Any]], Any]:
    """Calls a program, or the graph for shapes for which it cannot be compiled."""
    refused: set[Any] = set()

    def call(arguments: Sequence[Any]) -> Any:
        key = program.given(arguments)
        if key not in refused:
            try:
                run = program.compiled(key)
            except StableHLOError as error:
                _warn(error)
                refused.add(key)
            else:
                return run(arguments)
        return graph(*arguments)

    return call


def _example(x: Any) -> Any:
    """The shape of a tensor, or a number."""
    if isinstance(x, torch.Tensor):
        return tuple(_number(n) for n in x.shape)
    return _number(x)


def _number(x: Any) -> Any:
    """The hint of a symbolic size: its value in the example."""
    return x.node.hint if isinstance(x, torch.SymInt | torch.SymFloat) else x


def _has_no_hint(x: Any) -> bool:
    """Whether it is a symbolic size that depends on data."""
    return isinstance(x, torch.SymInt | torch.SymFloat) and x.node.hint is None


def _eager(graph: torch.fx.GraphModule, error: Exception) -> Callable[..., Any]:
    _warn(error)
    return make_boxed_func(graph)


def _warn(error: Exception) -> None:
    warnings.warn(f"shlo_jit does not compile a graph, which PyTorch runs: {error}", FallbackWarning, stacklevel=2)
