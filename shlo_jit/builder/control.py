"""Control flow: branches, loops and function calls; barriers, tokens and asynchronous operations.

Operands and results of branches and loops are trees of values (`trees.py`): a value, or tuples, lists, dictionaries and
dataclasses of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from shlo_jit.builder.arguments import TensorLike, is_number, listed, tensor_of
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.regions import Computation, callable_of
from shlo_jit.builder.scope import Handle, emit, emit1, region
from shlo_jit.builder.shapes import shape_text
from shlo_jit.builder.trees import Tree, flatten, flatten_as, paths, unflatten
from shlo_jit.ir.core import Region
from shlo_jit.ir.types import I1, I32, FutureType, TensorType, TokenType, Type, tensor

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


# ---------------------------------------------------------------------------- branches
BY_PREDICATE = ("predicate", "true_operand", "true_computation", "false_operand", "false_computation")
BY_INDEX = ("branch_index", "branch_computations", "branch_operands")


@overload
def conditional(
    predicate: TensorLike,
    true_operand: Any,
    true_computation: Computation,
    false_operand: Any,
    false_computation: Computation,
) -> Any: ...
@overload
def conditional(
    branch_index: TensorLike, branch_computations: Sequence[Computation], branch_operands: Sequence[Any]
) -> Any: ...
def conditional(*given: Any, **named: Any) -> Any:
    """Calls one of several functions with its operand.

    conditional(predicate, true_operand, true_computation, false_operand, false_computation): by a scalar of pred.
    conditional(branch_index, branch_computations, branch_operands): by a scalar of s32; an index that is out of range
    selects the last function.

    Operands are trees of values, passed unchanged; a function whose operand is None or () takes nothing. All functions
    return trees of one structure with values of one type; the result is such a tree (document: Conditional).
    """
    for names in (BY_PREDICATE, BY_INDEX):
        arguments = dict(zip(names, given, strict=False)) | named
        if len(given) + len(named) == len(names) and arguments.keys() == set(names):
            return (_by_predicate if names is BY_PREDICATE else _by_index)(**arguments)
    raise wrong("", f"expected ({', '.join(BY_PREDICATE)}), or ({', '.join(BY_INDEX)})")


def _by_predicate(
    predicate: TensorLike, true_operand: Any, true_computation: Any, false_operand: Any, false_computation: Any
) -> Any:
    pred = _scalar(predicate, tensor((), I1), "predicate")
    computations = [("true_computation", true_computation), ("false_computation", false_computation)]
    return _branches("stablehlo.if", pred, computations, [true_operand, false_operand])


def _by_index(branch_index: TensorLike, branch_computations: Any, branch_operands: Any) -> Any:
    index = _scalar(branch_index, tensor((), I32), "branch_index")
    functions = listed(branch_computations, "branch_computations", "a list of functions")
    if not functions:
        raise wrong("branch_computations", "expected a list of at least one function")
    operands = listed(branch_operands, "branch_operands", "a list of operands")
    if len(operands) != len(functions):
        raise wrong("branch_operands", f"expected a list of {len(functions)} operands, one for each function")
    computations = [(f"branch_computations[{i}]", f) for i, f in enumerate(functions)]
    return _branches("stablehlo.case", index, computations, operands)


def _branches(name: str, selector: Value, computations: Sequence[tuple[str, Any]], operands: Sequence[Any]) -> Any:
    regions: list[Region] = []
    trees: list[Tree] = []
    for (argument, f), operand in zip(computations, operands, strict=True):
        nothing = operand is None or (isinstance(operand, tuple) and not operand)
        computation = callable_of(f, argument, 0 if nothing else 1)

        def body(
            f: Computation = computation, x: Any = operand, nothing: bool = nothing, n: str = argument
        ) -> list[Value]:
            found = f() if nothing else f(x)
            if trees:
                return _values_as(trees[0], found, n, "the first one")
            values, tree = values_of(found, n)
            trees.append(tree)
            return values

        regions.append(region(argument, [], body))
        _check_types(regions[0], regions[-1], argument, trees[0])
    found = emit(name, [selector], regions=regions)
    return unflatten(trees[0], found)


def _check_types(first: Region, other: Region, argument: str, tree: Tree) -> None:
    """Checks that both regions return values of the same types."""
    pairs = zip(first.block.terminator.operands, other.block.terminator.operands, paths(tree), strict=True)
    for a, b, path in pairs:
        if a.type != b.type:
            what = f"the function returns {shape_text(b.type)}{' at ' + path if path else ''}"
            raise wrong(argument, f"{what}, but the first one returns {shape_text(a.type)}")


def _scalar(x: object, t: TensorType, argument: str) -> Value:
    made = tensor_of(x, argument, t.storage)
    if made.type != t:
        raise wrong(argument, f"expected {shape_text(t)}, got {shape_text(made.type)}")
    return made


def values_of(x: Any, argument: str, like: Sequence[Type] | None = None) -> tuple[list[Value], Tree]:
    """Returns the values of a tree, and its structure. Arrays become constants, and so do numbers if `like` gives the
    types."""
    leaves, tree = flatten(x)
    return _values(leaves, tree, argument, like), tree


def _values_as(tree: Tree, x: Any, argument: str, other: str, like: Sequence[Type] | None = None) -> list[Value]:
    """Values of a function's result, which must be a tree like that of something else."""
    leaves = flatten_as(tree, x)
    if leaves is None:
        raise wrong(argument, f"the function returns another structure than {other}")
    return _values(leaves, tree, argument, like)


def _values(leaves: Sequence[Any], tree: Tree, argument: str, like: Sequence[Type] | None) -> list[Value]:
    values: list[Value] = []
    for i, (leaf, path) in enumerate(zip(leaves, paths(tree), strict=True)):
        if isinstance(leaf, Handle):
            values.append(leaf)  # type: ignore[arg-type]  handles are values
            continue
        t = like[i] if like is not None and i < len(like) else None
        values.append(tensor_of(leaf, argument + path, t.storage if isinstance(t, TensorType) else None))
    return values


# ---------------------------------------------------------------------------- loops
def while_(condition: Computation, body: Computation, init: Any) -> Any:
    """Repeats `body` on a tree of values while `condition` of it, a scalar of pred, is true.

    `body` returns a tree of the structure and types of `init` (document: While).
    """
    holds, step = callable_of(condition, "condition", 1), callable_of(body, "body", 1)
    values, tree = values_of(init, "init")
    types = [v.type for v in values]

    def cond_region(*state: Value) -> list[Value]:
        return [_scalar(holds(unflatten(tree, state)), tensor((), I1), "condition")]

    def body_region(*state: Value) -> list[Value]:
        found = _values_as(tree, step(unflatten(tree, state)), "body", "its argument", types)
        for v, t, path in zip(found, types, paths(tree), strict=True):
            if v.type != t:
                where = f" at {path}" if path else ""
                raise wrong("body", f"the function returns {shape_text(v.type)}{where}, and is given {shape_text(t)}")
        return found

    regions = [region("condition", types, cond_region), region("body", types, body_region)]
    return unflatten(tree, emit("stablehlo.while", values, regions=regions, names={"operand": "init"}))


# ---------------------------------------------------------------------------- order
def optimization_barrier(operand: Any) -> Any:
    """Returns a tree of values unchanged; all of them are computed before any op that uses one (document:
    OptimizationBarrier)."""
    values, tree = values_of(operand, "operand")
    return unflatten(tree, emit("stablehlo.optimization_barrier", values))


def create_token() -> Value:
    """A token without predecessors."""
    return emit1("stablehlo.create_token")


def after_all(tokens: Sequence[Value] = ()) -> Value:
    """A token that follows all of these (document: AfterAll)."""
    found = [token_of(t, f"tokens[{i}]") for i, t in enumerate(listed(tokens, "tokens", "a list of tokens"))]
    return emit1("stablehlo.after_all", found, names={"inputs": "tokens"})


def token_of(x: object, argument: str) -> Value:
    """Checks a token."""
    if not isinstance(x, Handle) or not isinstance(x.type, TokenType):
        what = shape_text(x.type) if isinstance(x, Handle) else type(x).__name__
        raise wrong(argument, f"expected a token, got {what}")
    return x  # type: ignore[return-value]  handles are values


def add_dependency(operand: Any, token: Value) -> Any:
    """Returns a tree of values unchanged, which depends on a token (document: AddDependency)."""
    values, tree = values_of(operand, "operand")
    found = emit("stablehlo.optimization_barrier", [*values, token_of(token, "token")])
    return unflatten(tree, found[:-1])


# ---------------------------------------------------------------------------- asynchronously
def async_start(operands: Sequence[Value], computation: Callable[..., Any]) -> Value:
    """Starts a function of one collective operation, or slice, on these values and returns a future for `async_done`
    (document: AsyncStart)."""
    given = operands if isinstance(operands, list | tuple) else [operands]
    f = callable_of(computation, "computation", len(given))
    values = [
        tensor_of(x, f"operands[{i}]") if is_number(x) or not isinstance(x, Handle) else x for i, x in enumerate(given)
    ]
    body = region("computation", [v.type for v in values], lambda *xs: values_of(f(*xs), "computation")[0])
    return emit1("stablehlo.async_start", values, regions=[body], names={"region": "computation"})


def async_update(future: Value) -> Value:
    """Returns the same future; the update has no effect (document: AsyncUpdate)."""
    return _future(future)


def async_done(future: Value) -> Any:
    """Result of a future: a value, or a tuple of several (document: AsyncDone)."""
    found = emit("stablehlo.async_done", [_future(future)])
    return found[0] if len(found) == 1 else found


def _future(x: object) -> Value:
    if not isinstance(x, Handle) or not isinstance(x.type, FutureType):
        what = shape_text(x.type) if isinstance(x, Handle) else type(x).__name__
        raise wrong("future", f"expected a future, got {what}")
    return x  # type: ignore[return-value]  handles are values
