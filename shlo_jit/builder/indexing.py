"""`x[...]`: translation of an index to slices."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shlo_jit.builder import data
from shlo_jit.builder.arguments import element, shape_of, static_shape
from shlo_jit.builder.data import dynamic_slice, reshape, rev
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import Handle
from shlo_jit.builder.shapes import shape_text
from shlo_jit.ir.types import TensorType

if TYPE_CHECKING:
    from shlo_jit.builder.values import Value


_NO_MASKS = "use builder.select for masks: the number of true elements is unknown while a program is built"


class _Cut(NamedTuple):
    """Slice along one dimension: start, limit, step, and whether the elements are reversed."""

    start: int
    limit: int
    step: int
    reverse: bool
    size: int


def part(x: Value, index: Sequence[Any]) -> Value:
    """The part of a tensor that an index selects."""
    shape = static_shape(x, "index")
    entries = _for_each(index, len(shape), shape_text(x.type))
    cuts, dynamic, kept = [], {}, []
    d = 0
    for entry in entries:
        if entry is None:
            kept.append(1)
            continue
        n = shape[d]
        if isinstance(entry, Handle):
            _check_dynamic(entry)
            dynamic[d] = entry
            cuts.append(_Cut(0, n, 1, False, n))
        else:
            cuts.append(_cut(entry, n, d))
            if isinstance(entry, slice):
                kept.append(cuts[-1].size)
        d += 1
    return reshape(_taken(x, cuts, dynamic, shape), kept)


def _check_dynamic(entry: Handle) -> None:
    if not isinstance(entry.type, TensorType) or shape_of(entry) or element(entry).kind not in "iu":
        is_mask = isinstance(entry.type, TensorType) and element(entry).kind == "b"
        hint = _NO_MASKS if is_mask else "builder.gather takes tensors of indices"
        raise wrong("index", f"expected a scalar integer, got {shape_text(entry.type)}", hint=hint)


def _taken(x: Value, cuts: list[_Cut], dynamic: dict[int, Any], shape: tuple[int, ...]) -> Value:
    """Takes the static slices first, so that the dynamic slice is small."""
    if any((c.start, c.limit, c.step) != (0, n, 1) for c, n in zip(cuts, shape, strict=True)):
        x = data.slice(x, [c.start for c in cuts], [c.limit for c in cuts], [c.step for c in cuts])
    reverse = [d for d, c in enumerate(cuts) if c.reverse]
    if reverse:
        x = rev(x, reverse)
    if dynamic:
        kinds = {v.element_type for v in dynamic.values()}
        if len(kinds) > 1:
            raise wrong("index", f"indices of several element types: {', '.join(map(str, kinds))}", hint="use .astype")
        sizes = [1 if d in dynamic else c.size for d, c in enumerate(cuts)]
        x = dynamic_slice(x, [dynamic.get(d, 0) for d in range(len(cuts))], sizes)
    return x


def _for_each(index: Sequence[Any], rank: int, text: str) -> list[Any]:
    """Expands an index to an entry for each dimension, and None for new dimensions."""
    given = sum(entry is not None and entry is not ... for entry in index)
    dots = sum(isinstance(entry, EllipsisType) for entry in index)
    if dots > 1:
        raise wrong("index", "'...' must not repeat")
    if given > rank:
        raise wrong("index", f"{given} indices of {text}")
    rest: list[Any] = [slice(None)] * (rank - given)
    found: list[Any] = []
    for entry in index:
        found += rest if entry is ... else [entry]
    return found if dots else found + rest


def _cut(entry: Any, n: int, d: int) -> _Cut:
    """Slice of an integer or a slice object along a dimension of `n` elements."""
    if not isinstance(entry, slice):
        if isinstance(entry, bool | np.bool_) or (isinstance(entry, np.ndarray) and entry.dtype == bool):
            raise wrong("index", "expected an index, got a truth value", hint=_NO_MASKS)
        try:
            i = operator.index(entry)
        except TypeError:
            what = f"expected integers, slices, ..., None or scalars of the program, got {type(entry).__name__}"
            raise wrong("index", what, hint="builder.gather takes arrays of indices") from None
        if not -n <= i < n:
            raise wrong("index", f"index {i} is out of range for dimension {d} of size {n}")
        return _Cut(i % n, i % n + 1, 1, False, 1)
    if any(isinstance(v, Handle) for v in (entry.start, entry.stop, entry.step)):
        raise wrong("index", "expected a slice of known size", hint="builder.dynamic_slice takes starts and sizes")
    try:
        found = range(*entry.indices(n))
    except (TypeError, ValueError) as error:
        raise wrong("index", str(error)) from None
    if not found:
        return _Cut(0, 0, 1, False, 0)
    low, high = min(found[0], found[-1]), max(found[0], found[-1])
    return _Cut(low, high + 1, abs(found.step), found.step < 0, len(found))
