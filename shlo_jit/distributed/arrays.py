"""Splits global arrays over processes, and joins them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shlo_jit.codegen.program import Port
from shlo_jit.distributed.global_arrays import Cuts
from shlo_jit.runtime.arguments import arranged, check_count, take_checked
from shlo_jit.runtime.distributed import signature


class GlobalArrays:
    """Arguments and results of a program on global arrays. `num_partitions` processes share them in each of
    `num_replicas` rows."""

    def __init__(
        self, ports: tuple[Sequence[Port], Sequence[Port]], cuts: tuple[Cuts, Cuts], grid: tuple[int, int]
    ) -> None:
        """`ports` and `cuts` describe the global arguments and results."""
        self._inputs = tuple(ports[0])
        self.inputs, self.outputs = (tuple(map(signature, side)) for side in ports)
        self._cut_inputs, self._cut_outputs = cuts
        self._replicas, self._partitions = grid

    def split(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[list[np.ndarray]]:
        """Returns the arrays of each process; parts are views. Raises TypeError and ValueError for arguments that do
        not fit."""
        if named:
            arguments = arranged(arguments, named, self._inputs)
        check_count(len(arguments), self._inputs)
        arrays = [
            take_checked(value, i, port) for i, (value, port) in enumerate(zip(arguments, self._inputs, strict=True))
        ]
        pairs = list(zip(arrays, self._cut_inputs, strict=True))
        row = [[a if cut is None else cut.part(a, p) for a, cut in pairs] for p in range(self._partitions)]
        return row * self._replicas

    def joined(self, results: list[Any]) -> Any:
        """Returns the global results, joined from those of each process. Replicas agree, so the first one is used."""
        rows = [r if isinstance(r, tuple) else (r,) for r in results[: self._partitions]]
        out = tuple(
            rows[0][i] if cut is None else cut.assemble([row[i] for row in rows])
            for i, cut in enumerate(self._cut_outputs)
        )
        return out[0] if len(out) == 1 else out
