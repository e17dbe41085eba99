"""Translation of a graph of ATen's operators to a function of the builder.

A node becomes values of the program, or a Python object: sizes are computed while the graph is translated, for certain
shapes of the arguments. Every operation has the line of the model in which PyTorch recorded its operator.
"""

from __future__ import annotations

import functools
import operator
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch  # type: ignore[import-not-found]
from torch.fx.node import Node, map_arg  # type: ignore[import-not-found]

from shlo_jit import builder as b
from shlo_jit.builder import BuilderError, Value
from shlo_jit.builder.locations import Place, line_of_file, located_at
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.torch.aten import RECORDS, Call, Unsupported, load
from shlo_jit.torch.control_flow import HIGHER_ORDER
from shlo_jit.torch.dtypes import array_of, element_type
from shlo_jit.torch.sizes import Bindings

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_PACKAGE = os.path.dirname(torch.__file__) + os.sep


class Translator:
    """Translates graphs into the open function of the builder."""

    def __init__(self, bindings: Bindings) -> None:
        load()
        self.bindings = bindings
        self.random_state: Value | None = None
        """The state from which random operators derive their keys: u64[2]."""
        self._draws = 0

    def run(self, module: torch.fx.GraphModule, arguments: Sequence[Any]) -> Any:
        """Translates a graph for these arguments (values or numbers), and returns its results, structured as in the
        graph."""
        known: dict[Node, Any] = {}
        given = iter(arguments)
        place: Place | None = None
        for node in module.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(given)
            elif node.op == "get_attr":
                known[node] = self._attribute(module, str(node.target))
            elif node.op == "output":
                return map_arg(node.args[0], known.__getitem__)
            elif node.op == "call_function":
                place = place_of(node) or place
                known[node] = self._called(node, known, place)
            else:
                _refuse(node, f"nodes of kind {node.op} are not supported", place)
        raise ValueError("the graph has no results")

    def _attribute(self, module: torch.fx.GraphModule, name: str) -> Any:
        found = functools.reduce(getattr, name.split("."), module)
        return b.constant(array_of(found)) if isinstance(found, torch.Tensor) else found

    # ------------------------------------------------------------------------ nodes
    def _called(self, node: Node, known: Mapping[Node, Any], place: Place | None) -> Any:
        with located_at(place):
            try:
                args = _plain(map_arg(node.args, known.__getitem__), self.bindings)
                named = _plain(map_arg(node.kwargs, known.__getitem__), self.bindings)
                return self._result(node, args, named)
            except Unsupported as error:
                _refuse(node, str(error), place, error)
            except BuilderError as error:
                _refuse(node, error.diagnostics[0].message.removeprefix(f"{node.target}: "), place, error)

    def _result(self, node: Node, args: Any, named: Any) -> Any:
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            record = RECORDS.get(str(target))
            if record is None:
                raise Unsupported("there is no record of this operator")
            return record.function(self._call(node), *args, **named)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self._higher_order(target, node, args, named)
        assert callable(target)
        if target.__name__ == "getitem" or not _has_values((args, named)):
            return target(*args, **named)
        raise Unsupported("functions of Python are computed for sizes only")

    def _higher_order(self, target: Any, node: Node, args: Any, named: Any) -> Any:
        function = HIGHER_ORDER.get(str(target.name()))
        if function is None:
            raise Unsupported("this higher-order operator is not supported")
        return function(self, node, *args, **named)

    def _call(self, node: Node) -> Call:
        result = node.meta.get("val")
        results = result if isinstance(result, list | tuple) else (result,)
        return Call(
            str(node.target),
            [element_type(r.dtype) if isinstance(r, torch.Tensor) else None for r in results],
            lambda: [self.bindings.shape(r.shape) if isinstance(r, torch.Tensor) else None for r in results],
            self.random_key,
            lambda i: self._storage(node, i),
            functools.partial(_is_used, node),
            functools.partial(self._lowered, node),
        )

    def _lowered(self, node: Node, name: str, *args: Any, **named: Any) -> Any:
        return RECORDS[name].function(self._call(node), *args, **named)

    def _storage(self, node: Node, index: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        source = node.args[index]
        assert isinstance(source, Node)
        tensor = source.meta["val"]
        shape, strides = self.bindings.shape(tensor.shape), self.bindings.shape(tensor.stride())
        return shape, strides, self.bindings.number(tensor.storage_offset())

    def random_key(self) -> Value:
        """A new key: the state of the call or of the iteration, and the number of the operator within the graph."""
        if self.random_state is None:
            raise Unsupported("random numbers are not available in this program")
        self._draws += 1
        low, high = (b.slice(self.random_state, [i], [i + 1]) for i in range(2))
        return b.concatenate([low, high ^ (self._draws << 32)], 0)


def _is_used(node: Node, index: int) -> bool:
    """Whether a node reads the result with this index of a node with several results."""
    is_part = [user.target is operator.getitem for user in node.users]
    return not all(is_part) or any(user.args[1] == index for user in node.users)


def _plain(x: Any, bindings: Bindings) -> Any:
    """Replaces PyTorch's element types and symbolic sizes in arguments by those of the builder."""
    if isinstance(x, list | tuple):
        return type(x)(_plain(y, bindings) for y in x) if type(x) in (list, tuple) else [_plain(y, bindings) for y in x]
    if isinstance(x, dict):
        return {key: _plain(y, bindings) for key, y in x.items()}
    if isinstance(x, torch.dtype):
        return element_type(x)
    if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
        return bindings.number(x)
    return x


def _has_values(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(map(_has_values, x))
    if isinstance(x, dict):
        return any(map(_has_values, x.values()))
    return isinstance(x, Value)


# ---------------------------------------------------------------------------- places and errors
def place_of(node: Node) -> Place | None:
    """The line of the model that a node is computed for: the innermost one of its recorded stack that is outside of
    PyTorch. None for a node without a stack, which belongs to the one before it."""
    frames = _FRAME.findall(node.stack_trace or "")
    if not frames:
        return None
    of_model = [frame for frame in frames if not frame[0].startswith(_PACKAGE)]
    file, line, _ = (of_model or frames)[-1]
    return line_of_file(file, int(line), str(node.target))


def _refuse(node: Node, message: str, place: Place | None, cause: Exception | None = None) -> NoReturn:
    name = str(node.target)
    found = diagnose(f"{name}: {message}", place.span if place else None, op=name, label="torch")
    raise UnsupportedError(found) from cause
