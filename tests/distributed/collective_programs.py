"""Programs of collective ops, written op by op; `grid_meaning.py` defines their meaning.

p = Writer()
x = p.argument((4, 6), "f32")
p.give(p.all_gather(x, 0, [[0, 1], [2, 3]]))
check(p.text(), [[x0], [x1], [x2], [x3]], 4, 1, "threads")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from grid_meaning import Grid

import shlo_jit
from shlo_jit.ir.types import DTYPES

Groups = Sequence[Sequence[int]]
CROSS_PARTITION = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
"""Attribute for groups of replicas and partitions, for ops that support that."""
GLOBAL = f"{CROSS_PARTITION}, use_global_device_ids"


class Name(NamedTuple):
    """A value of a program that is being written."""

    text: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def type(self) -> str:
        return type_text(self.shape, self.dtype)


def type_text(shape: Sequence[int], dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype if dtype != 'c64' else 'complex<f32>'}>"


def matrix_text(rows: Groups) -> str:
    longest = max(map(len, rows), default=0)
    filled = [[*row, *[-1] * (longest - len(row))] for row in rows]
    return f"dense<{filled or ''}> : tensor<{len(filled)}x{longest}xi64>"


def scaled(shape: tuple[int, ...], d: int, times: int = 1, by: int = 1) -> tuple[int, ...]:
    return tuple(n * times // by if i == d else n for i, n in enumerate(shape))


class Writer:
    """A function, by default @main. Groups are lists of ids; `more` is further attributes."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.arguments: list[Name] = []
        self.results: list[Name] = []
        self.lines: list[str] = []
        self._count = 0

    def argument(self, shape: tuple[int, ...], dtype: str) -> Name:
        found = Name(f"%x{len(self.arguments)}", shape, dtype)
        self.arguments.append(found)
        return found

    def give(self, *values: Name) -> None:
        self.results += values

    def text(self) -> str:
        given = ", ".join(f"{x.text}: {x.type}" for x in self.arguments)
        types = ", ".join(r.type for r in self.results)
        results = f"return {', '.join(r.text for r in self.results)} : {types}" if self.results else "return"
        body = "\n".join([*self.lines, results])
        return f"func.func @{self.name}({given}) -> ({types}) {{\n{body}\n}}\n"

    # ------------------------------------------------------------------ ops
    def op(self, name: str, operands: Sequence[Name], results: Sequence[tuple[tuple[int, ...], str]], attributes: str,
           body: str = "") -> list[Name]:  # fmt: skip
        self._count += 1
        found = f"%v{self._count}"
        several = len(results) > 1
        names = [Name(f"{found}#{i}" if several else found, *r) for i, r in enumerate(results)]
        types = f"({', '.join(x.type for x in operands)}) -> ({', '.join(n.type for n in names)})"
        home = f"{found}:{len(results)}" if several else found
        given = ", ".join(x.text for x in operands)
        self.lines.append(f'{home} = "stablehlo.{name}"({given}){body} {{{attributes}}} : {types}')
        return names

    def constant(self, value: str, shape: tuple[int, ...], dtype: str) -> Name:
        self._count += 1
        found = Name(f"%v{self._count}", shape, dtype)
        self.lines.append(f"{found.text} = stablehlo.constant dense<{value}> : {found.type}")
        return found

    def elementwise(self, name: str, *operands: Name) -> Name:
        return self.op(name, operands, [operands[0][1:]], "")[0]

    def id(self, name: str) -> Name:
        return self.op(f"{name}_id", [], [((), "ui32")], "")[0]

    def all_gather(self, x: Name, d: int, groups: Groups, more: str = "", size: int | None = None) -> Name:
        """Writes an all_gather. `size` is that of a group, if its ids are not those of processes."""
        shape = scaled(x.shape, d, size or len(groups[0]))
        attributes = f"all_gather_dim = {d} : i64, {_groups(groups, more)}"
        return self.op("all_gather", [x], [(shape, x.dtype)], attributes)[0]

    def all_reduce(self, xs: Sequence[Name], word: str, groups: Groups, more: str = "") -> list[Name]:
        return self.op("all_reduce", xs, [x[1:] for x in xs], _groups(groups, more), _body(word, xs[0].dtype))

    def cross_replica_sum(self, x: Name, groups: Groups) -> Name:
        return self.op("cross-replica-sum", [x], [x[1:]], _groups(groups, ""))[0]

    def reduce_scatter(
        self, x: Name, word: str, d: int, groups: Groups, more: str = "", size: int | None = None
    ) -> Name:
        shape = scaled(x.shape, d, by=size or len(groups[0]))
        attributes = f"scatter_dimension = {d} : i64, {_groups(groups, more)}"
        return self.op("reduce_scatter", [x], [(shape, x.dtype)], attributes, _body(word, x.dtype))[0]

    def all_to_all(self, xs: Sequence[Name], split: int, concat: int, groups: Groups, more: str = "") -> list[Name]:
        n = len(groups[0])
        dims = f"split_dimension = {split} : i64, concat_dimension = {concat} : i64, split_count = {n} : i64"
        types = [(scaled(scaled(x.shape, split, by=n), concat, n), x.dtype) for x in xs]
        return self.op("all_to_all", xs, types, f"{dims}, {_groups(groups, more)}")

    def broadcast(self, xs: Sequence[Name], groups: Groups, more: str = "", roots: Name | None = None) -> list[Name]:
        given, more = _with_roots(xs, roots, more)
        return self.op("collective_broadcast", given, [x[1:] for x in xs], _groups(groups, more))

    def reduce(
        self, xs: Sequence[Name], word: str, groups: Groups, more: str = "", roots: Name | None = None
    ) -> list[Name]:
        given, more = _with_roots(xs, roots, more)
        body = _body(word, xs[0].dtype)
        return self.op("collective_reduce", given, [x[1:] for x in xs], _groups(groups, more), body)

    def permute(self, xs: Sequence[Name], pairs: Groups, more: str = "") -> list[Name]:
        table = matrix_text(pairs) if pairs else "dense<> : tensor<0x2xi64>"
        attributes = f"source_target_pairs = {table}{more and ', ' + more}"
        return self.op("collective_permute", xs, [x[1:] for x in xs], attributes)

    def ragged(self, x: Name, out: Name, tables: Sequence[Name], groups: Groups) -> Name:
        """Writes a ragged_all_to_all. `tables`: input offsets, send sizes, output offsets and received sizes."""
        config = f"backend_config = {{replica_groups = {matrix_text(groups)}}}"
        call = f'call_target_name = "ragged_all_to_all", api_version = 4 : i32, {config}'
        return self.op("custom_call", [x, out, *tables], [out[1:]], call)[0]


BODIES = {
    "first_then_half": "%m = stablehlo.add %b, %b : {0}\n%n = stablehlo.subtract %m, %b : {0}\n"
    "%s = stablehlo.add %a, %n : {0}",
    "larger_or_half": """%p = stablehlo.compare LT, %a, %b : ({0}, {0}) -> tensor<i1>
      %s = "stablehlo.if"(%p) ({{
        stablehlo.return %b : {0}
      }}, {{
        %two0 = stablehlo.constant dense<2> : tensor<i32>
      %two = stablehlo.convert %two0 : (tensor<i32>) -> {0}
        %h = stablehlo.divide %a, %two : {0}
        stablehlo.return %h : {0}
      }}) : (tensor<i1>) -> {0}""",
    "doubled_up_to": """%one0 = stablehlo.constant dense<1> : tensor<i32>
      %one = stablehlo.convert %one0 : (tensor<i32>) -> {0}
      %m = stablehlo.maximum %a, %one : {0}
      %s = stablehlo.while(%i = %m) : {0}
      cond {{
        %p = stablehlo.compare LT, %i, %b : ({0}, {0}) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %d = stablehlo.add %i, %i : {0}
        stablehlo.return %d : {0}
      }}""",
    "placed_in_a_tensor": """%zeros = stablehlo.broadcast_in_dim %a, dims = [] : ({0}) -> tensor<3x{1}>
      %row = stablehlo.reshape %b : ({0}) -> tensor<1x{1}>
      %at = stablehlo.constant dense<1> : tensor<i32>
      %u = stablehlo.dynamic_update_slice %zeros, %row, %at : (tensor<3x{1}>, tensor<1x{1}>, tensor<i32>) -> tensor<3x{1}>
      %start0 = stablehlo.constant dense<-1> : tensor<i32>
      %start = stablehlo.convert %start0 : (tensor<i32>) -> {0}
      %s = stablehlo.reduce(%u init: %start) applies stablehlo.add across dimensions = [0] : (tensor<3x{1}>, {0}) -> {0}""",
}
"""Bodies of several ops, by name."""


def _body(word: str, dtype: str) -> str:
    t = type_text((), dtype)
    ops = BODIES.get(word, f"%s = stablehlo.{word} %a, %b : {t}").format(t, dtype)
    return f" ({{\n^bb0(%a: {t}, %b: {t}):\n{ops}\nstablehlo.return %s : {t}\n}})"


def _groups(groups: Groups, more: str) -> str:
    return f"replica_groups = {matrix_text(groups)}{more and ', ' + more}"


def _with_roots(xs: Sequence[Name], roots: Name | None, more: str) -> tuple[list[Name], str]:
    if roots is None:
        return [*xs], more
    return [*xs, roots], f"has_dynamic_root = true{more and ', ' + more}"


# ---------------------------------------------------------------------------- checking
def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns integers so small that every dtype except i1 and i4 represents them and their sums."""
    t = DTYPES["complex<f32>" if dtype == "c64" else dtype].numpy
    if dtype == "i1":
        return rng.integers(0, 2, shape).astype(t)
    most = 1 if dtype == "f8E5M2" else 3  # it does not represent 9
    whole = rng.integers(0 if dtype[0] == "u" else -most - 1, most + 1, shape)
    return (whole + 1j * rng.integers(-4, 4, shape)).astype(t) if dtype == "c64" else whole.astype(t)


def arguments_of_ranks(seed: int, ranks: int, names: Sequence[Name]) -> list[tuple[np.ndarray, ...]]:
    """Returns arguments for every rank, all different."""
    rng = np.random.default_rng(seed)
    return [tuple(numbers(rng, x.shape, x.dtype) for x in names) for _ in range(ranks)]


def meaning(text: str, arguments: Sequence[Sequence[Any]], replicas: int, partitions: int) -> list[list[np.ndarray]]:
    """Returns the expected results of each process."""
    function = shlo_jit.parse(text).function("main")
    assert function is not None
    return Grid(replicas, partitions).run(function, arguments)


def results_of(given: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in (given if isinstance(given, tuple) else (given,))]


def assert_same(got: Sequence[Any], want: Sequence[Sequence[Any]]) -> None:
    """Checks every result of every rank for the same bits."""
    for rank, (given, expected) in enumerate(zip(got, want, strict=True)):
        for i, (a, b) in enumerate(zip(results_of(given), expected, strict=True)):
            b = np.asarray(b)
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if a.tobytes() != b.tobytes():
                np.testing.assert_array_equal(a, b, err_msg=f"rank {rank}, result {i}")
                raise AssertionError(f"rank {rank}, result {i}: equal numbers of other bits")


def check(
    text: str,
    arguments: Sequence[Sequence[Any]],
    replicas: int,
    partitions: int,
    transport: str,
    meant: Sequence[Sequence[Any]] | None = None,
    **options: Any,
) -> None:
    """Checks that two calls compute what the program means with these arguments, or with those that are `meant`."""
    want = meaning(text, arguments if meant is None else meant, replicas, partitions)
    grid = {"num_replicas": replicas, "num_partitions": partitions}
    with shlo_jit.compile(text, **grid, transport=transport, time_out=20.0, **options) as exe:
        for _ in range(2):
            assert_same(exe(arguments), want)
