"""Decompositions of ATen's operators that have no record, by PyTorch's own tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch  # type: ignore[import-not-found]
from torch._decomp import core_aten_decompositions, global_decomposition_table  # type: ignore[import-not-found]

from shlo_jit.torch.aten import load


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions of all operators that have no record."""
    records = load()
    table = {**global_decomposition_table["post_autograd"], **core_aten_decompositions()}
    return {
        op: function
        for op, function in table.items()
        if isinstance(op, torch._ops.OpOverload) and str(op) not in records and not _is_primitive(op)
    }


def _is_primitive(op: Any) -> bool:
    """Whether it is an operator of the dialect `prims`, which functionalization needs as they are."""
    return op.namespace == "prims"


class Decompositions(Mapping[Any, Callable[..., Any]]):
    """The table of `decompositions`, which is made when it is first read: a graph that is in a cache needs none."""

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, operator: Any) -> Callable[..., Any]:
        return decompositions()[operator]

    def __iter__(self) -> Iterator[Any]:
        return iter(decompositions())

    def __len__(self) -> int:
        return len(decompositions())
