"""Ops that apply a region to elements: reduce, reduce_window, select_and_scatter, sort, map."""

from __future__ import annotations

import functools

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import I1, TensorType, Type
from shlo_jit.ops.numeric import Array, result_dtype
from shlo_jit.ops.record import Violation, define, optional, required
from shlo_jit.ops.reducer import (
    RegionRunner,
    block_of,
    body_dtypes,
    check_reducer,
    converted,
    fold,
    returned_types,
)
from shlo_jit.ops.shape import pad
from shlo_jit.ops.type_algebra import (
    Shape,
    bounds_of,
    compatible_elements,
    compatible_shapes,
    element_text,
    merge,
    operand_types,
    type_text,
    with_bounds,
    with_element,
)
from shlo_jit.ops.window import Window, make_window, optional_ints, padding_pairs, take_windows, window_counts

# reduce


def split_operands(op: Op, label: str) -> tuple[list[TensorType], list[TensorType]]:
    """Returns the types of the inputs and of the initial values, which are equal in number."""
    types = operand_types(op)
    if not types:
        raise Violation(label, "requires at least 1 input value")
    if len(types) % 2:
        raise Violation(label, f"expects as many inputs as initial values, got {len(types)} operands")
    return types[: len(types) // 2], types[len(types) // 2 :]


def check_same_shapes(inputs: list[TensorType], label: str) -> TensorType:
    """Checks that all inputs have compatible shapes. Returns the first type that has a rank."""
    known = next((t for t in inputs if t.shape is not None), inputs[0])
    for i, t in enumerate(inputs):
        if not compatible_shapes(known.shape, t.shape):
            raise Violation(
                label,
                "expects all inputs to have compatible shapes. "
                f"Shape at input-index {i} is not compatible with shape at input-index 0",
            )
    return known


def check_inits(inputs: list[TensorType], inits: list[TensorType], label: str) -> None:
    """Checks that initial values have the element types of the inputs."""
    for i, (t, init) in enumerate(zip(inputs, inits, strict=True)):
        if not compatible_elements(t.dtype, init.dtype):
            raise Violation(
                label,
                f"expects the element type of input {i} and its initial value to be the same, "
                f"got '{type_text(t)}' and '{type_text(init)}'",
            )


def _infer_reduce(op: Op) -> list[Type]:
    block = block_of(op, 0, "C6")
    types = operand_types(op)
    if len(types) % 2:  # here the body determines the numbers of inputs and initial values
        raise Violation(
            "C6", f"Reduction-region must take {len(types) // 2 * 2} parameters, "
            f"but takes {len(block.arguments)} parameter(s)"
        )  # fmt: skip
    inputs, inits = split_operands(op, "C3")
    known = check_same_shapes(inputs, "C1")
    dims = op.ints("dimensions")
    if known.shape is None:
        raise Violation("type", "operand #0 must be ranked tensor")
    for d in dims:
        if not 0 <= d < known.rank:
            raise Violation("C4", f"Out-of-bounds dimension {d}, expected to be in range [0, {known.rank})")
    if len(set(dims)) != len(dims):
        twice = next(d for i, d in enumerate(dims) if d in dims[:i])
        raise Violation("C5", f"Duplicate reduction dimension: {twice}")
    kept = [d for d in range(known.rank) if d not in dims]
    shape = tuple(known.shape[d] for d in kept)
    results = check_reducer(block, inputs, inits, shape, "C6")
    check_inits(inputs, inits, "C2")
    out: list[Type] = []
    for t, r in zip(inputs, results, strict=True):
        limits = bounds_of(t) if t.shape is not None else [None] * known.rank
        own = tuple(t.shape[d] for d in kept) if t.shape is not None else shape
        out.append(with_bounds(own, r.dtype, [limits[d] for d in kept]))
    return out


def _reduce(op: Op, *arrays: Array, run: RegionRunner) -> tuple[Array, ...]:
    n = len(arrays) // 2
    dims = op.ints("dimensions")
    dtypes = body_dtypes(op.block(), n)
    inputs, inits = converted(arrays[:n], dtypes), converted(arrays[n:], dtypes)
    kept = [d for d in range(inputs[0].ndim) if d not in dims]
    shape = tuple(inputs[0].shape[d] for d in kept)
    count = int(np.prod([inputs[0].shape[d] for d in dims], dtype=np.int64))
    lines = [x.transpose([*kept, *sorted(dims)]).reshape(*shape, count) for x in inputs]
    return fold(run, 0, lines, inits)


define(
    "stablehlo.reduce", section="reduce",
    operands=("inputs*: tensor",), results=("results*: tensor",),
    attributes={"dimensions": required("ints")}, regions=("body",),
    infer=_infer_reduce, reference=_reduce,
)  # fmt: skip

# reduce_window

_WINDOW_LABELS = {
    "window": "C5", "strides size": "C6", "strides": "C7", "base size": "C8", "base": "C9",
    "dilation size": "C10", "dilation": "C11", "padding": "C12",
}  # fmt: skip


def reduce_window_window(op: Op, rank: int) -> Window:
    dimensions = op.ints("window_dimensions")
    if len(dimensions) != rank:
        raise Violation(
            "C4", f"expects window-dimensions size == input rank, but got window-dimensions size: {len(dimensions)} "
            f"and input rank: {rank}."
        )  # fmt: skip
    return make_window(
        dimensions,
        _WINDOW_LABELS,
        strides=optional_ints(op, "window_strides"),
        padding=padding_pairs(op.attributes.get("padding"), rank, "C12"),
        base_dilations=optional_ints(op, "base_dilations"),
        window_dilations=optional_ints(op, "window_dilations"),
    )


def _infer_reduce_window(op: Op) -> list[Type]:
    inputs, inits = split_operands(op, "C1")
    known = check_same_shapes(inputs, "C2")
    if known.shape is None:
        raise Violation("type", "operand #0 must be ranked tensor")
    window = reduce_window_window(op, known.rank)
    block = block_of(op, 0, "C13")
    results = check_reducer(block, inputs, inits, tuple(window.dimensions), "C13")
    check_inits(inputs, inits, "C3")
    out: list[Type] = []
    for t, r in zip(inputs, results, strict=True):
        own = t if t.shape is not None else known
        assert own.shape is not None
        limits = window_counts(tuple(bounds_of(own)), window) if own.bounds else None
        out.append(with_bounds(window_counts(own.shape, window), r.dtype, limits))
    return out


def _reduce_window(op: Op, *arrays: Array, run: RegionRunner) -> tuple[Array, ...]:
    n = len(arrays) // 2
    dtypes = body_dtypes(op.block(), n)
    inputs, inits = converted(arrays[:n], dtypes), converted(arrays[n:], dtypes)
    rank = inputs[0].ndim
    window = reduce_window_window(op, rank)
    counts = window_counts(inputs[0].shape, window)
    low, high = (tuple(p[i] for p in window.padding) for i in (0, 1))
    inner = tuple(b - 1 for b in window.base_dilations)
    lines = []
    for x, init in zip(inputs, inits, strict=True):
        padded = pad(x, init, low, high, inner)
        windows = take_windows(padded, counts, window)  # type: ignore[arg-type]
        count = int(np.prod(windows.shape[rank:], dtype=np.int64)) if windows.size else 0
        lines.append(windows.reshape((*windows.shape[:rank], count)))
    return fold(run, 0, lines, inits)


define(
    "stablehlo.reduce_window", section="reduce_window",
    operands=("inputs*: tensor",), results=("results*: tensor",),
    attributes={
        "window_dimensions": required("ints"),
        "window_strides": optional("ints"),
        "base_dilations": optional("ints"),
        "window_dilations": optional("ints"),
        "padding": optional("pairs"),
    },
    regions=("body",), infer=_infer_reduce_window, reference=_reduce_window,
)  # fmt: skip

# select_and_scatter

_SELECT_LABELS = {
    "window": "C5", "strides size": "C6", "strides": "C7", "base size": "", "base": "",
    "dilation size": "", "dilation": "", "padding": "C8",
}  # fmt: skip


def select_window(op: Op, rank: int) -> Window:
    dimensions = op.ints("window_dimensions", ())
    if len(dimensions) != rank:
        raise Violation(
            "C4", f"expects window-dimensions size == operand rank, but got window-dimensions size: {len(dimensions)} "
            f"and operand rank: {rank}."
        )  # fmt: skip
    padding = padding_pairs(op.attributes.get("padding"), rank, "C8")
    strides = optional_ints(op, "window_strides")
    return make_window(
        dimensions, _SELECT_LABELS, strides=strides, padding=padding, base_dilations=None, window_dilations=None
    )


def _infer_select_and_scatter(op: Op) -> list[Type]:
    operand, source, init = operand_types(op)
    if operand.shape is None:
        raise Violation("type", "operand #0 must be ranked tensor")
    _check_select(op, operand)
    results = check_reducer(block_of(op, 1, "C10"), [source], [init], (), "C10")
    window = select_window(op, operand.rank)
    expected = with_bounds(window_counts(operand.shape, window), operand.dtype, None)
    if not compatible_elements(source.dtype, operand.dtype):
        raise Violation("C1", f"expects source-type to be '{type_text(expected)}', but got'{type_text(source)}'")
    if not compatible_shapes(source.shape, expected.shape):
        raise Violation("C2", f"expects source-type to be '{type_text(expected)}', but got'{type_text(source)}'")
    check_inits([operand], [init], "C3")
    return [with_element(operand, results[0].dtype)]


def _check_select(op: Op, operand: TensorType) -> None:
    """Checks C9: select is (E, E) -> i1."""
    block = block_of(op, 0, "C9")
    scalar = with_bounds((), operand.dtype, None)
    if len(block.arguments) != 2:
        raise Violation("C9", f"expects the select-region to take 2 parameters, but takes {len(block.arguments)}")
    for i, argument in enumerate(block.arguments):
        t = argument.type
        if not isinstance(t, TensorType) or not compatible_elements(t.dtype, operand.dtype) or t.shape != ():
            raise Violation(
                "C9",
                f"expects the type of select-region's parameter at index {i} to be '{type_text(scalar)}', "
                f"but got '{type_text(t)}'",
            )
    results = returned_types(block)
    if len(results) != 1:
        raise Violation("C9", f"expects select-region to return single value, but got: {len(results)}")
    t = results[0]
    if not isinstance(t, TensorType) or t.dtype != I1 or t.shape != ():
        raise Violation("C9", f"expects the return-type of select-region to be tensor<i1>, but got: '{type_text(t)}'")


def _select_and_scatter(op: Op, operand: Array, source: Array, init: Array, *, run: RegionRunner) -> Array:
    rank = operand.ndim
    window = select_window(op, rank)
    counts = window_counts(operand.shape, window)
    low, high = (tuple(p[i] for p in window.padding) for i in (0, 1))
    none = (0,) * rank
    values = take_windows(pad(operand, np.zeros((), operand.dtype), low, high, none), counts, window)  # type: ignore[arg-type]
    flat = np.arange(operand.size, dtype=np.int64).reshape(operand.shape)
    places = take_windows(pad(flat, np.asarray(-1), low, high, none), counts, window)  # type: ignore[arg-type]
    if not source.size:
        (start,) = converted([init], body_dtypes(op.block(1), 1))
        return np.full(operand.shape, start, start.dtype)
    values, places = values.reshape(source.size, -1), places.reshape(source.size, -1)
    chosen, place = values[:, 0], places[:, 0]
    for k in range(1, values.shape[1]):
        (keep,) = run.map(0, chosen, values[:, k])
        keep = (keep & (place >= 0)) | (places[:, k] < 0)
        chosen, place = np.where(keep, chosen, values[:, k]), np.where(keep, place, places[:, k])
    (dtype,) = body_dtypes(op.block(1), 1)
    source, init = converted([source, init], [dtype, dtype])
    out = np.full(operand.size, init, dtype)
    inside = place >= 0
    update_in_order(run, 1, [out], place[inside], [source.reshape(-1)[inside]])
    return out.reshape(operand.shape)


def update_in_order(run: RegionRunner, region: int, targets: list[Array], places: Array, updates: list[Array]) -> None:
    """Computes targets[place] = body(targets[place], update) for each update in order, in place.

    Updates of different places are independent, so round k performs the k-th update of every place in one step.
    """
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(ordered)), 0))
    rounds = np.empty(len(ordered), np.int64)
    rounds[order] = np.arange(len(ordered)) - starts
    for k in range(int(rounds.max()) + 1 if len(rounds) else 0):
        now = np.flatnonzero(rounds == k)
        at = places[now]
        new = run.map(region, *[t[at] for t in targets], *[u[now] for u in updates])
        for target, value in zip(targets, new, strict=True):
            target[at] = value


define(
    "stablehlo.select_and_scatter", section="select_and_scatter",
    operands=("operand: tensor", "source: tensor", "init_value: tensor"),
    attributes={
        "window_dimensions": optional("ints"),
        "window_strides": optional("ints"),
        "padding": optional("pairs"),
    },
    regions=("select", "scatter"), infer=_infer_select_and_scatter, reference=_select_and_scatter,
)  # fmt: skip

# sort


def _infer_sort(op: Op) -> list[Type]:
    types = operand_types(op)
    if not types:
        raise Violation("C1", "requires at least 1 input value")
    known = check_same_shapes(types, "C3")
    rank, d = known.rank if known.shape is not None else None, op.int("dimension", -1)
    if rank is not None and not -rank <= d < rank and not (rank == 0 and d in (0, -1)):
        raise Violation("C4", f"dimension attribute value must be in range [-{rank}, {rank}), but found {d}")
    block = block_of(op, 0, "C5")
    if len(block.arguments) != 2 * len(types):
        raise Violation("C5", f"comparator block should have {2 * len(types)} arguments")
    for i, argument in enumerate(block.arguments):
        expected = with_bounds((), types[i // 2].dtype, None)
        t = argument.type
        if not isinstance(t, TensorType) or t.shape != () or not compatible_elements(t.dtype, expected.dtype):
            raise Violation(
                "C5",
                f"comparator block argument #{i} should be of type '{type_text(expected)}' but got '{type_text(t)}'",
            )
    results = returned_types(block)
    if len(results) != 1:
        raise Violation("C5", f"comparator must return single output but got {len(results)}")
    t = results[0]
    if not isinstance(t, TensorType) or t.dtype != I1 or t.shape != ():
        raise Violation("C5", f"comparator must return tensor<i1> but got '{type_text(t)}'")
    return list(types)


def _sort(op: Op, *arrays: Array, run: RegionRunner) -> tuple[Array, ...]:
    """Reference of sort: a stable sort of each line by the comparator."""
    if arrays[0].ndim == 0:
        return arrays
    d = op.int("dimension", -1)
    lines = [np.moveaxis(x, d, -1) for x in arrays]
    out = [np.empty(x.shape, x.dtype) for x in lines]
    for index in np.ndindex(lines[0].shape[:-1]):
        line = [x[index] for x in lines]
        order = sorted(range(len(line[0])), key=_comparison_key(run, line))
        for to, source in zip(out, line, strict=True):
            to[index] = source[order]
    return tuple(np.moveaxis(x, -1, d) for x in out)


def _comparison_key(run: RegionRunner, line: list[Array]):
    """Returns a sort key for positions of a line, based on the comparator. Small lines compare all pairs together."""
    n = len(line[0])
    if n * n <= 1 << 22:
        pairs = [side for x in line for side in (np.repeat(x, n), np.tile(x, n))]
        less = run.map(0, *pairs)[0].reshape(n, n) if n else np.empty((0, 0), bool)

        def before(a: int, b: int) -> bool:
            return bool(less[a, b])
    else:

        def before(a: int, b: int) -> bool:
            return bool(run(0, *[side for x in line for side in (x[a], x[b])])[0])

    def compare(a: int, b: int) -> int:
        return -1 if before(a, b) else int(before(b, a))

    return functools.cmp_to_key(compare)


define(
    "stablehlo.sort", section="sort",
    operands=("inputs*: tensor",), results=("results*: tensor",),
    attributes={"dimension": optional("i64"), "is_stable": optional("bool", False)},
    regions=("comparator",), infer=_infer_sort, reference=_sort,
)  # fmt: skip

# map


def _infer_map(op: Op) -> list[Type]:
    types = operand_types(op)
    if not types:
        raise Violation("C2", "requires at least 1 input value")
    block = block_of(op, 0, "C4")
    if len(block.arguments) != len(types):
        raise Violation(
            "C4",
            "expects number of operands to match the arity of map computation, "
            f"but got: {len(types)} and {len(block.arguments)}",
        )
    for i, (argument, t) in enumerate(zip(block.arguments, types, strict=True)):
        a = argument.type
        if not isinstance(a, TensorType) or a.shape not in ((), None):
            raise Violation(
                "C4", f"computation arguments must be 0-rank tensor, but got: arg #{i} of type '{type_text(a)}'"
            )
        if not compatible_elements(a.dtype, t.dtype):
            raise Violation(
                "C4",
                "element type of operands and computation arguments must match, "
                f"but got: '{element_text(t.dtype)}' and '{element_text(a.dtype)}'",
            )
    results = returned_types(block)
    if len(results) != 1:
        raise Violation("C4", f"computation must return single output, but got: {len(results)}")
    r = results[0]
    if not isinstance(r, TensorType) or r.shape not in ((), None):
        raise Violation("C4", f"computation must return 0-rank tensor, but got: '{type_text(r)}'")
    whole = merge(types, "C1")
    _check_map_dimensions(op, whole.shape)
    return [with_element(whole, r.dtype)]


def _check_map_dimensions(op: Op, shape: Shape | None) -> None:
    dims = op.ints("dimensions")
    for i, d in enumerate(dims):
        if d != i:
            raise Violation(
                "C3",
                "requires monotonically increasing dimension numbers, but got: " + ", ".join(map(str, dims)),
            )
    if shape is not None and len(dims) != len(shape):
        raise Violation(
            "C3",
            "applied to a subset of dimensions currently not supported: operand dimensions = "
            f"{len(shape)}, requested map dimensions size = {len(dims)}",
        )


def _map(op: Op, *arrays: Array, run: RegionRunner) -> Array:
    return run.map(0, *arrays)[0].astype(result_dtype(op))


define(
    "stablehlo.map", section="map",
    operands=("inputs*: tensor",), attributes={"dimensions": required("ints")}, regions=("computation",),
    infer=_infer_map, reference=_map,
)  # fmt: skip
