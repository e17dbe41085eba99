"""Models that `torch.export` captured, as modules and as functions of tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torch.export import ExportedProgram  # type: ignore[import-not-found]
from torch.export.graph_signature import InputKind, OutputKind  # type: ignore[import-not-found]
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten  # type: ignore[import-not-found]

from shlo_jit.api import compile as compile_program
from shlo_jit.ir.attributes import DictAttr, IntegerAttr
from shlo_jit.ir.core import Module
from shlo_jit.torch.decompositions import decompositions
from shlo_jit.torch.dtypes import array_of
from shlo_jit.torch.program import RANDOM_STATE, Built, build, caller

_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
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


def _weights(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """Parameters, buffers and constants by the name of their argument in the graph."""
    found: dict[str, torch.Tensor] = {}
    for spec in exported.graph_signature.input_specs:
        if spec.kind not in _WEIGHTS:
            continue
        name = str(spec.target)
        tensor = exported.state_dict.get(name)
        given = exported.constants[name] if tensor is None else tensor
        assert isinstance(given, torch.Tensor)
        found[spec.arg.name] = given
    return found


def _names(exported: ExportedProgram) -> dict[str, str]:
    """Names of arguments of the program by those of the graph."""
    return {
        spec.arg.name: str(spec.target) if spec.kind in _WEIGHTS else spec.arg.name
        for spec in exported.graph_signature.input_specs
    }


def _is_dynamic(exported: ExportedProgram) -> bool:
    return bool(exported.range_constraints)


def _shapes(exported: ExportedProgram) -> list[Any]:
    """Shapes of all arguments of the graph; the values of those that are no tensors."""
    found: list[Any] = []
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            fake = node.meta.get("val")
            found.append(tuple(fake.shape) if isinstance(fake, torch.Tensor) else fake)
    return found


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
    shapes = _shapes(model)
    if inputs is not None:
        given = [tuple(x.shape) if isinstance(x, torch.Tensor) else tuple(x) for x in inputs]
        shapes[len(shapes) - len(given) :] = given
    elif _is_dynamic(model):
        raise ValueError(
            "the model has dynamic dimensions: give the shapes of its inputs as inputs=, or call "
            "shlo_jit.torch.compile, which compiles for the shapes of each call"
        )
    built = _built(model, shapes)
    return built.module, _signature(model, built)


def _built(model: ExportedProgram, shapes: Sequence[Any]) -> Built:
    """Translates a model. Arguments have their names in the model as attributes, and are aliased to new values."""
    names = list(_names(model).values())
    built = build(model.graph_module, shapes)
    specs = model.graph_signature.output_specs
    mutated = {str(spec.target): i for i, spec in enumerate(specs) if spec.kind in _MUTATIONS}
    attributes = []
    for i in built.passed:
        items: tuple[tuple[str, Any], ...] = (("jax.arg_info", names[i]),)
        result = built.results[mutated[names[i]]].index if names[i] in mutated else None
        if result is not None:
            items += (("tf.aliasing_output", IntegerAttr(result, "i32")),)
        attributes.append(DictAttr(items))
    if built.is_random:
        attributes.append(DictAttr(()))
    op = next(op for op in built.module.op.regions[0].block.ops if op.attributes["sym_name"] == "main")
    op.attributes["arg_attrs"] = tuple(attributes)
    return built


def _signature(model: ExportedProgram, built: Built) -> Signature:
    names = list(_names(model).values())
    arguments = tuple(names[i] for i in built.passed) + ((RANDOM_STATE,) if built.is_random else ())
    by_name = {_names(model)[name]: tensor for name, tensor in _weights(model).items()}
    kinds = (*_MUTATIONS, OutputKind.USER_INPUT_MUTATION)
    mutated = tuple(str(s.target) for s in model.graph_signature.output_specs if s.kind in kinds)
    return Signature(arguments, {name: by_name[name] for name in arguments if name in by_name}, mutated)


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
        self.exported = decomposed(exported)
        self._options = dict(options)
        self._names = _names(self.exported)
        self._weights = _weights(self.exported)
        self._state = self._mutated()
        kept = set(self._state.values())
        self._frozen = {n: t for n, t in self._weights.items() if freeze and n not in kept}
        self._calls: dict[Any, Callable[[Sequence[Any]], list[Any]]] = {}
        self._given_names = [s.arg.name for s in self.exported.graph_signature.input_specs if s.kind not in _WEIGHTS]
        if not _is_dynamic(self.exported):
            self._compiled(tuple(_shapes(self.exported)))

    def _mutated(self) -> dict[int, str]:
        """Graph arguments whose new values are results, by the number of the result."""
        by_target = {target: name for name, target in self._names.items()}
        specs = self.exported.graph_signature.output_specs
        kinds = (*_MUTATIONS, OutputKind.USER_INPUT_MUTATION)
        return {i: by_target[str(s.target)] for i, s in enumerate(specs) if s.kind in kinds}

    def _compiled(self, shapes: tuple[Any, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        found = self._calls.get(shapes)
        if found is None:
            built = _built(self.exported, shapes)
            names = list(self._names)
            frozen = ((place, self._frozen.get(names[i])) for place, i in enumerate(built.passed))
            constants = {place: array_of(t) for place, t in frozen if t is not None}
            exe = compile_program(built.module, constants=constants or None, **self._options)
            passed = [i for i in built.passed if names[i] not in self._frozen]
            fakes = [n.meta["val"] for n in self.exported.graph.nodes if n.op == "placeholder"]
            rest = Built(built.module, passed, built.is_random, built.results)
            found = self._calls[shapes] = caller(exe, rest, [fakes[i].dtype for i in passed])
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the model. Raises TypeError for arguments of another structure, and the errors of a call of an
        Executable for other shapes or element types."""
        leaves, spec = tree_flatten((args, named))
        wanted = self.exported.call_spec.in_spec
        if spec != wanted:
            raise TypeError(f"the model was exported for arguments {wanted}, got {spec}")
        given = dict(zip(self._given_names, leaves, strict=True))
        arguments = [given[n] if n in given else self._weights[n] for n in self._names]
        shapes = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in arguments)
        if _is_dynamic(self.exported):
            self._check_ranges(shapes)
        else:
            shapes = tuple(_shapes(self.exported))
        with torch.no_grad():
            found = self._compiled(shapes)(arguments)
            results = []
            for i, x in enumerate(found):
                if i in self._state:
                    target = self._state[i]
                    (given.get(target) if target in given else self._weights[target]).copy_(x)  # type: ignore[union-attr]
                else:
                    results.append(x)
        out_spec = self.exported.call_spec.out_spec
        assert out_spec is not None
        return tree_unflatten(results, out_spec)

    def _check_ranges(self, shapes: Sequence[Any]) -> None:
        """Raises ValueError for a size that is out of the range for which the model was exported."""
        ranges = self.exported.range_constraints
        for name, shape, wanted in zip(self._names, shapes, _shapes(self.exported), strict=True):
            if not isinstance(wanted, tuple):
                continue
            for d, (size, symbolic) in enumerate(zip(shape, wanted, strict=True)):
                found = ranges.get(symbolic.node.expr) if isinstance(symbolic, torch.SymInt) else None
                if found is not None and not found.lower <= size <= found.upper:
                    between = f"between {found.lower} and {found.upper}"
                    raise ValueError(f"{name}: expected a size {between} for dimension {d}, got {size}")


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
