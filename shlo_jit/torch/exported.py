"""Models that `torch.export` captured, as modules and as functions of tensors."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torch.export import ExportedProgram  # type: ignore[import-not-found]
from torch.export.graph_signature import InputKind, OutputKind  # type: ignore[import-not-found]
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten  # type: ignore[import-not-found]

from shlo_jit.api import compile as compile_program
from shlo_jit.errors import UsageTypeError, UsageValueError
from shlo_jit.ir.attributes import DictAttr, IntegerAttr
from shlo_jit.ir.core import Module
from shlo_jit.torch.aten import Unsupported
from shlo_jit.torch.calls import Built, caller
from shlo_jit.torch.decompositions import decompositions
from shlo_jit.torch.dtypes import array_of
from shlo_jit.torch.program import RANDOM_STATE, build, unused_name
from shlo_jit.torch.sizes import Bindings

_CHANGED_KIND = {
    OutputKind.BUFFER_MUTATION: InputKind.BUFFER,
    OutputKind.PARAMETER_MUTATION: InputKind.PARAMETER,
    OutputKind.USER_INPUT_MUTATION: InputKind.USER_INPUT,
}
"""The kind of argument of which a result is the new value, by the kind of the result."""
_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True)
class Signature:
    """The arguments and results of the program of an exported model."""

    arguments: tuple[str, ...]
    """Names of the program's arguments: of parameters, buffers and constants those in the model."""
    weights: Mapping[str, torch.Tensor]
    """The tensors of those arguments that are parameters, buffers or constants."""
    mutated: tuple[str, ...]
    """Buffers whose new values are the first results, and arguments of the model that it changes."""


def decomposed(exported: ExportedProgram) -> ExportedProgram:
    """The model in the operators that have records."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)  # PyTorch copies its own deprecated classes
        return exported.run_decompositions(decompositions())


@dataclass(frozen=True)
class _Argument:
    """An argument of the graph of a model."""

    name: str
    """Name in the model, or of the input."""
    fake: Any
    """PyTorch's metadata: a tensor, a symbolic number, or the number or flag for which the model was exported."""
    weight: torch.Tensor | None
    """The tensor of a parameter, a buffer or a constant."""
    is_input: bool


def _arguments(model: ExportedProgram) -> list[_Argument]:
    """The arguments of a model's graph in order. Their names differ: an input whose name is that of a weight gets a
    number after it."""
    specs = model.graph_signature.input_specs
    fakes = [node.meta.get("val") for node in model.graph.nodes if node.op == "placeholder"]
    used = Counter(str(spec.target) if spec.kind in _WEIGHTS else spec.arg.name for spec in specs)
    found = []
    for spec, fake in zip(specs, fakes, strict=True):
        weight = None
        name = spec.arg.name
        if spec.kind in _WEIGHTS:
            name = str(spec.target)
            weight = model.constants[name] if name not in model.state_dict else model.state_dict[name]
            assert isinstance(weight, torch.Tensor)
        elif used[name] > 1:
            name = unused_name(name, used)
            used[name] += 1
        found.append(_Argument(name, fake, weight, spec.kind is InputKind.USER_INPUT))
    return found


def _mutations(model: ExportedProgram) -> dict[int, int]:
    """Results of the graph that are new values of arguments: the index of the argument by that of the result."""
    signature = model.graph_signature
    places = {
        (spec.kind, spec.arg.name if spec.kind is InputKind.USER_INPUT else spec.target): i
        for i, spec in enumerate(signature.input_specs)
    }
    return {
        i: places[_CHANGED_KIND[spec.kind], spec.target]
        for i, spec in enumerate(signature.output_specs)
        if spec.kind in _CHANGED_KIND
    }


def _is_dynamic(arguments: Sequence[_Argument]) -> bool:
    return any(_is_symbolic(n) for a in arguments for n in _sizes(a.fake))


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, torch.SymInt | torch.SymFloat)


def _varies(fake: Any) -> bool:
    """Whether an input is a tensor or a number that may differ from call to call."""
    return isinstance(fake, torch.Tensor) or _is_symbolic(fake)


def _sizes(fake: Any) -> Sequence[Any]:
    return fake.shape if isinstance(fake, torch.Tensor) else (fake,)


def _shape(x: Any) -> Any:
    """The shape of a tensor; anything else as it is."""
    return tuple(x.shape) if isinstance(x, torch.Tensor) else x


def _check_sizes(arguments: Sequence[_Argument], given: Sequence[Any], ranges: Mapping[Any, Any]) -> None:
    """Raises UsageValueError for shapes and numbers for which a model was not exported."""
    for a, x in zip(arguments, given, strict=True):
        if isinstance(a.fake, torch.Tensor) and (not isinstance(x, tuple) or len(x) != a.fake.ndim):
            expected = f"a shape of {a.fake.ndim} dimensions, got {x}"
            raise UsageValueError(f"{a.name}: expected {expected}", code="argument.shape")
    bindings = Bindings()
    bindings.bind([a.fake for a in arguments], given)
    for a, x in zip(arguments, given, strict=True):
        is_tensor = isinstance(a.fake, torch.Tensor)
        for d, (wanted, n) in enumerate(zip(_sizes(a.fake), x if is_tensor else (x,), strict=True)):
            expected = _expected(wanted, n, bindings, ranges)
            if expected:
                where = f" for dimension {d}" if is_tensor else ""
                raise UsageValueError(f"{a.name}: expected {expected}{where}, got {n}", code="argument.shape")


def _expected(wanted: Any, given: Any, bindings: Bindings, ranges: Mapping[Any, Any]) -> str:
    """Describes what was expected instead of a size or a number; an empty string for one that fits."""
    if not _is_symbolic(wanted):
        return "" if _is_same(wanted, given) else f"{wanted!r}"
    try:
        number = bindings.number(wanted)
    except Unsupported:
        return f"a size of the form {wanted}"
    if number != given:
        return f"{number} (as in other arguments)"
    for symbol in wanted.node.expr.free_symbols:
        allowed = ranges.get(symbol)
        if allowed is not None and not allowed.lower <= bindings.numbers[symbol] <= allowed.upper:
            of = "" if wanted.node.expr == symbol else f" of the form {wanted}, with {symbol}"
            return f"a size{of} between {allowed.lower} and {allowed.upper}"
    return ""


def _is_same(x: Any, y: Any) -> bool:
    return type(x) is type(y) and repr(x) == repr(y)  # NaN is the same, and zeros of different signs are not


def from_exported(exported: ExportedProgram, *, inputs: Sequence[Any] | None = None) -> tuple[Module, Signature]:
    """Translates a model of `torch.export` to a Module, whose arguments are the parameters, buffers and constants under
    their names in the model, and then the inputs. Its results are the new values of buffers that the model changes,
    and then the model's results. Such a buffer is marked as aliased to its new value, so that `donate="program"` reuses
    its memory.

    inputs: for a model with dynamic dimensions, tensors or shapes of the inputs for which the Module is made.

    Raises UnsupportedError, with the line of the model, for an operator that has no translation, and ValueError for
    dynamic dimensions without `inputs`.
    """
    model = decomposed(exported)
    arguments = _arguments(model)
    shapes = [_shape(a.fake) for a in arguments]
    if inputs is not None:
        places = [i for i, a in enumerate(arguments) if a.is_input]
        if len(places) != len(inputs):
            raise UsageValueError(f"inputs=: expected {len(places)} inputs, got {len(inputs)}", code="argument.count")
        for i, x in zip(places, inputs, strict=True):
            shapes[i] = tuple(x) if isinstance(x, list | tuple) else _shape(x)
        _check_sizes(arguments, shapes, model.range_constraints)
    elif _is_dynamic(arguments):
        raise ValueError(
            "the model has dynamic dimensions: give the shapes of its inputs as inputs=, or call "
            "shlo_jit.torch.compile, which compiles for the shapes of each call"
        )
    built = _built(model, arguments, shapes, returns_arguments=True)
    return built.module, _signature(model, arguments, built)


def _built(
    model: ExportedProgram, arguments: Sequence[_Argument], shapes: Sequence[Any], returns_arguments: bool
) -> Built:
    """Translates a model. Arguments have their names in the model as attributes, and are aliased to new values."""
    built = build(model.graph_module, shapes, returns_arguments)
    new_values = {argument: result for result, argument in _mutations(model).items()}
    attributes = []
    for i in built.tensor_arguments:
        items: tuple[tuple[str, Any], ...] = (("jax.arg_info", arguments[i].name),)
        is_state = i in new_values and arguments[i].weight is not None
        result = built.results[new_values[i]].index if is_state else None
        if result is not None:
            items += (("tf.aliasing_output", IntegerAttr(result, "i32")),)
        attributes.append(DictAttr(items))
    if built.is_random:
        attributes.append(DictAttr(()))
    op = next(op for op in built.module.op.regions[0].block.ops if op.attributes["sym_name"] == "main")
    op.attributes["arg_attrs"] = tuple(attributes)
    return built


def _signature(model: ExportedProgram, arguments: Sequence[_Argument], built: Built) -> Signature:
    used = [arguments[i] for i in built.tensor_arguments]
    names = [a.name for a in used]
    if built.is_random:
        names.append(unused_name(RANDOM_STATE, names))
    mutated = tuple(arguments[i].name for i in _mutations(model).values())
    return Signature(tuple(names), {a.name: a.weight for a in used if a.weight is not None}, mutated)


def with_weights(exported: ExportedProgram) -> tuple[Module, dict[int, np.ndarray]]:
    """A model as a Module, and its parameters, buffers and constants that stay as they are, for `constants=`."""
    module, signature = from_exported(exported)
    kept = {i: signature.weights.get(name) for i, name in enumerate(signature.arguments)}
    mutated = signature.mutated
    return module, {i: array_of(t) for i, t in kept.items() if t is not None and signature.arguments[i] not in mutated}


# ---------------------------------------------------------------------------- calls
class ExportedModule:
    """A model that is called with tensors, as it was exported. Dynamic dimensions are compiled for at each new size."""

    def __init__(self, exported: ExportedProgram, freeze: bool, options: Mapping[str, Any]) -> None:
        """`freeze`: whether parameters become constants. `options`: those of `shlo_jit.compile`."""
        self.exported = model = decomposed(exported)
        self._options = dict(options)
        self._in_spec, self._out_spec = model.call_spec.in_spec, model.call_spec.out_spec
        self._names_in_order = _names_of_keywords(self._in_spec)
        self._arguments = _arguments(model)
        self._inputs = [a for a in self._arguments if a.is_input]
        self._mutations = _mutations(model)
        changed = set(self._mutations.values())
        self._frozen = {i for i, a in enumerate(self._arguments) if freeze and a.weight is not None} - changed
        self._calls: dict[Any, Callable[[Sequence[Any]], list[Any]]] = {}
        if not _is_dynamic(self._arguments):
            self._compiled(tuple(_shape(a.fake) for a in self._inputs))

    def _compiled(self, shapes: tuple[Any, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        """The function for inputs of these shapes."""
        found = self._calls.get(shapes)
        if found is None:
            given = iter(shapes)
            every = [next(given) if a.is_input else _shape(a.fake) for a in self._arguments]
            _check_sizes(self._arguments, every, self.exported.range_constraints)
            built = _built(self.exported, self._arguments, every, returns_arguments=False)
            weights = [(place, self._arguments[i].weight) for place, i in enumerate(built.tensor_arguments)
                       if i in self._frozen]  # fmt: skip
            constants = {place: array_of(t) for place, t in weights if t is not None}
            exe = compile_program(built.module, constants=constants or None, **self._options)
            rest = [i for i in built.tensor_arguments if i not in self._frozen]
            without_constants = replace(built, tensor_arguments=rest)
            found = caller(exe, without_constants, [self._arguments[i].fake.dtype for i in rest])
            self._calls[shapes] = found
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the model. Raises TypeError for arguments of another structure, kind or element type, and
        UsageValueError for shapes, numbers and flags for which it was not exported."""
        if named.keys() == set(self._names_in_order):
            named = {name: named[name] for name in self._names_in_order}
        leaves, spec = tree_flatten((args, named))
        if spec != self._in_spec:
            raise UsageTypeError(
                f"the model was exported for arguments {self._in_spec}, got {spec}", code="argument.count"
            )
        for a, x in zip(self._inputs, leaves, strict=True):
            _check_kind(a, x)
        given = iter(leaves)
        arguments = [next(given) if a.is_input else a.weight for a in self._arguments]
        with torch.no_grad():
            # Constants are those of the export: NaN, for one, would be another key in each call.
            keys = (_shape(x) if _varies(a.fake) else a.fake for a, x in zip(self._inputs, leaves, strict=True))
            found = self._compiled(tuple(keys))(arguments)
            if self._mutations:
                found = self._with_new_values(arguments, found)
        assert self._out_spec is not None
        return tree_unflatten(found, self._out_spec)

    def _with_new_values(self, arguments: Sequence[Any], found: Sequence[Any]) -> list[Any]:
        """Stores new values in arguments that the model changes, and returns the other results."""
        changed = {id(arguments[i]) for i in self._mutations.values()}
        found = [x.clone() if id(x) in changed else x for x in found]  # a result that is an argument has its old value
        for result, argument in self._mutations.items():
            arguments[argument].copy_(found[result])
        return [x for i, x in enumerate(found) if i not in self._mutations]


def _names_of_keywords(in_spec: Any) -> Sequence[str]:
    """Names of keyword arguments in the order of the export."""
    keywords = tree_unflatten(range(in_spec.num_leaves), in_spec)[1]
    return list(keywords)


def _check_kind(argument: _Argument, given: Any) -> None:
    """Raises TypeError for an input that is no tensor, or has another element type, and UsageValueError for another
    number or flag than that of the export."""
    fake, name = argument.fake, argument.name
    if isinstance(fake, torch.Tensor):
        if not isinstance(given, torch.Tensor):
            raise UsageTypeError(f"{name}: expected a tensor, got {type(given).__name__}", code="argument.kind")
        if given.dtype is not fake.dtype:
            raise UsageTypeError(f"{name}: expected {fake.dtype}, got {given.dtype}", code="argument.dtype")
    elif _is_symbolic(fake):
        kind = int if isinstance(fake, torch.SymInt) else float
        if type(given) is not kind:
            message = f"{name}: expected {kind.__name__}, got {type(given).__name__}"
            raise UsageTypeError(message, code="argument.kind")
    elif not _is_same(fake, given):
        message = f"{name}: the model was exported for {fake!r}, got {given!r}"
        raise UsageValueError(message, code="argument.range", hint="export it again for another number or flag")


def compile(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    freeze: bool = True,
    **options: Any,
) -> ExportedModule:
    """Compiles a model for inference: a function of tensors that returns what the model returns.

    model: a module, which `torch.export` captures for `args` and `kwargs`, or an ExportedProgram. dynamic_shapes: as in
    `torch.export.export`. freeze: whether parameters become constants of the program: they are packed once, and later
    changes to the model have no effect. Buffers that the model changes are always updated. `options`: those of
    `shlo_jit.compile`.

    Raises UnsupportedError, with the line of the model, for an operator that has no translation, and the errors of
    `torch.export.export`.
    """
    if not isinstance(model, ExportedProgram):
        given = tree_map(lambda x: x, tuple(args))
        model = torch.export.export(model, given, dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    return ExportedModule(model, freeze, options)
