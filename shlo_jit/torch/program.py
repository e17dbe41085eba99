"""Graphs of ATen's operators as machine code, which is compiled for the shapes of the arguments."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch  # type: ignore[import-not-found]
from torch._subclasses.fake_tensor import unset_fake_temporarily  # type: ignore[import-not-found]

from shlo_jit import builder as b
from shlo_jit.api import compile as compile_program
from shlo_jit.builder import Value
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.types import UI64, Type, tensor
from shlo_jit.torch.aten import Unsupported
from shlo_jit.torch.calls import Built, Result, caller
from shlo_jit.torch.control_flow import uses_random_numbers
from shlo_jit.torch.dtypes import element_type
from shlo_jit.torch.layouts import Layouts, Order, inverse, physical_order
from shlo_jit.torch.sizes import Bindings
from shlo_jit.torch.translate import Translator

RANDOM_STATE = "random_state"
"""Name of the argument with the state of random numbers, unless another argument has it."""


def build(
    module: torch.fx.GraphModule, given: Sequence[Any], returns_arguments: bool = False, layouts: Layouts | None = None
) -> Built:
    """Translates a graph for arguments: shapes of tensors, and numbers.

    returns_arguments: whether arguments that the graph returns are results of the program, too.
    """
    try:
        return _build(module, given, returns_arguments, layouts or Layouts())
    except Unsupported as error:
        raise UnsupportedError(diagnose(str(error), None, label="torch")) from error


def _build(
    module: torch.fx.GraphModule, given: Sequence[Any], returns_arguments: bool, layouts: Layouts
) -> Built:
    fakes = _fakes(module)
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    bindings = Bindings()
    bindings.bind(fakes, given)
    types: dict[str, Type] = {}
    tensor_arguments = []
    for i, (name, fake, x) in enumerate(zip(names, fakes, given, strict=True)):
        if isinstance(fake, torch.Tensor):
            order = layouts.arguments.get(i, range(len(x)))
            types[name] = tensor(tuple(x[d] for d in order), element_type(fake.dtype))
            tensor_arguments.append(i)
    state = unused_name(RANDOM_STATE, names)
    is_random = uses_random_numbers(module)
    if is_random:
        types[state] = tensor((2,), UI64)
    with b.function("main", **types) as f:  # type: ignore[arg-type]  types are shapes too
        translator = Translator(bindings)
        if is_random:
            translator.random_state = f[state]
        given_values = enumerate(zip(names, fakes, given, strict=True))
        arguments = [
            _in_order(f[name], layouts.arguments.get(i)) if isinstance(fake, torch.Tensor) else x
            for i, (name, fake, x) in given_values
        ]
        found = translator.run(module, arguments)
        found = list(found) if isinstance(found, list | tuple) else [found]
        values, results = _results(module, bindings, found, returns_arguments, layouts)
        f.returns(*values)
    orders = [layouts.arguments.get(i) for i in tensor_arguments] if layouts.arguments else ()
    return Built(f.module, tensor_arguments, is_random, results, orders)


def _in_order(x: Value, order: Order | None) -> Value:
    """The tensor whose memory is in this order."""
    return x if order is None else b.transpose(x, inverse(order))


def unused_name(name: str, used: Collection[str]) -> str:
    """The name, with a number after it if it is used."""
    numbered = (f"{name}_{i}" for i in itertools.count(1))
    return name if name not in used else next(n for n in numbered if n not in used)


def _fakes(module: torch.fx.GraphModule) -> list[Any]:
    """PyTorch's metadata of the arguments: tensors and symbolic numbers. That of tokens, which order effects, is None,
    and so are tokens."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    return [None if _is_token(node) else node.meta.get("val") for node in nodes]


def _is_token(node: torch.fx.Node) -> bool:
    users = [user for user in node.users if user.op != "output"]
    return bool(users) and all(str(user.target) == "with_effects" and user.args[0] is node for user in users)


def _results(
    module: torch.fx.GraphModule, bindings: Bindings, found: Sequence[Any], returns_arguments: bool, layouts: Layouts
) -> tuple[list[Value], list[Result]]:
    """Returns the results of the program, and those of the graph.

    A result is the memory of an argument only if the graph returns its placeholder. Nodes whose value is that of an
    argument, such as a clone, have memory of their own, because the argument may change before the result is read.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    by_placeholder = {} if returns_arguments else {node: i for i, node in enumerate(placeholders)}
    nodes = next(node for node in module.graph.nodes if node.op == "output").args[0]
    nodes = nodes if isinstance(nodes, list | tuple) else [nodes]
    values: list[Value] = []
    results: list[Result] = []
    for i, (node, value) in enumerate(zip(nodes, found, strict=True)):
        if not isinstance(value, Value):
            results.append(Result(literal=value))
        elif node in by_placeholder:
            results.append(Result(argument=by_placeholder[node]))
        else:
            fake = node.meta["val"]
            order = layouts.results.get(i)
            if order is None:
                order = physical_order(bindings.shape(fake.shape), bindings.shape(fake.stride()))
            back = None if order is None else inverse(order)
            results.append(Result(index=len(values), dtype=fake.dtype, order=back))
            values.append(value if order is None else b.transpose(value, order))
    return values, results


class Program:
    """A graph that is called with tensors and symbolic sizes. It is compiled when a call has new shapes."""

    def __init__(
        self, module: torch.fx.GraphModule, options: Mapping[str, Any], layouts: Layouts | None = None
    ) -> None:
        """`options`: those of `shlo_jit.compile`. `layouts`: only of a graph of static shapes."""
        self._module = module
        self._options = dict(options)
        self._layouts = layouts
        self._fakes = fakes = _fakes(module)
        self.is_static = not any(_is_symbolic(fake) for fake in fakes)
        self.built: Built | None = None
        """The last program that was compiled: the only one of static shapes."""
        self._calls: dict[tuple[Any, ...], Callable[[Sequence[Any]], list[Any]]] = {}
        self._lock = threading.Lock()

    def compiled(self, given: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
        """The function for arguments of these shapes; for symbolic sizes, these numbers."""
        key = tuple(given)
        found = self._calls.get(key)
        if found is None:
            with self._lock:
                found = self._calls.get(key)
                if found is None:
                    found = self._calls[key] = self._compile(key)
        return found

    def _compile(self, given: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
        with unset_fake_temporarily():  # constants of the graph are read
            built = build(self._module, given, layouts=self._layouts)
        self.built = built
        exe = compile_program(built.module, **self._options)
        return caller(exe, built, self.dtypes(built))

    def dtypes(self, built: Built) -> tuple[torch.dtype, ...]:
        """The element types of the arguments that are tensors."""
        return tuple(self._fakes[i].dtype for i in built.tensor_arguments)

    def given(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """What the code depends on: the shapes of tensors, and numbers."""
        return tuple(x.shape if isinstance(x, torch.Tensor) else x for x in arguments)

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        return self.compiled(self.given(arguments))(arguments)


def _is_symbolic(fake: Any) -> bool:
    if isinstance(fake, torch.Tensor):
        return any(not isinstance(n, int) for n in fake.shape)
    return fake is not None
