"""Matrices that loops pack before their first iteration."""

from __future__ import annotations

import pytest
from decisions import decides, main, schedules, tensor

from shlo_jit import tuning
from shlo_jit.schedule.panels import LoopSchedule
from shlo_jit.schedule.products import ProductSchedule


def loop(body: str, state: str, carried: str = "%x", result: str = "%y", own: str = "%") -> str:
    """Returns ten iterations of `body`, which computes `%next` from `%c`. Other names of the loop begin with `own`."""
    return f"""{own}zero = stablehlo.constant dense<0> : tensor<i32>
      {own}count, {result} = stablehlo.while({own}i = {own}zero, {own}c = {carried}) : tensor<i32>, {state}
      cond {{
        {own}ten = stablehlo.constant dense<10> : tensor<i32>
        {own}less = stablehlo.compare LT, {own}i, {own}ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return {own}less : tensor<i1>
      }} do {{
        {body}
        {own}one = stablehlo.constant dense<1> : tensor<i32>
        {own}j = stablehlo.add {own}i, {own}one : tensor<i32>
        stablehlo.return {own}j, {own}next : tensor<i32>, {state}
      }}"""


def dot(name: str, left: str, right: str, m: int, n: int, k: int) -> str:
    types = f"({tensor(m, k)}, {tensor(k, n)}) -> {tensor(m, n)}"
    return f"{name} = stablehlo.dot_general {left}, {right}, contracting_dims = [1] x [0] : {types}"


def found(text: str) -> tuple[list[LoopSchedule], list[ProductSchedule]]:
    all_of_it = schedules(text)
    return [s for s in all_of_it if isinstance(s, LoopSchedule)], [
        s for s in all_of_it if isinstance(s, ProductSchedule)
    ]


def test_a_matrix_from_outside_is_packed_once() -> None:
    body = f"{dot('%p', '%c', '%w', 4, 64, 64)}\n{dot('%next', '%p', '%w', 4, 64, 64)}"
    text = main(f"%x: {tensor(4, 64)}, %w: {tensor(64, 64)}", tensor(4, 64), loop(body, tensor(4, 64)))
    (packing,), products = found(text)
    decides(packing, "packs", "64 x 64", "loop-invariant")
    decides(products[0], "B", "before the loop", "loop-invariant")
    assert len(packing.fields) == 1
    assert [p.has_panels for p in products] == [True, True]


def test_a_matrix_of_the_loop_is_not() -> None:
    body = dot("%next", "%c", "%c", 64, 64, 64)
    text = main(f"%x: {tensor(64, 64)}", tensor(64, 64), loop(body, tensor(64, 64)))
    packing, (product,) = found(text)
    assert not packing and not product.has_panels


def test_the_outermost_loop_that_does_not_make_it_packs_it() -> None:
    inner = loop(dot("%bnext", "%bc", "%v", 4, 64, 64), tensor(4, 64), "%c0", "%made", "%b")
    body = f"%v = stablehlo.tanh %w : {tensor(64, 64)}\n{dot('%c0', '%c', '%w', 4, 64, 64)}\n{inner}"
    body += f"\n%next = stablehlo.negate %made : {tensor(4, 64)}"
    text = main(f"%x: {tensor(4, 64)}, %w: {tensor(64, 64)}", tensor(4, 64), loop(body, tensor(4, 64)))
    packing, products = found(text)
    assert sorted(len(p.fields) for p in packing) == [1, 1]
    assert len({id(p.loop[0]) for p in products if p.loop is not None}) == 2


@pytest.mark.parametrize("fits", [True, False])
def test_so_many_bytes_a_loop(fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LOOP_PANELS", 64 * 64 * 4 * (2 if fits else 1))
    body = f"{dot('%p', '%c', '%w', 4, 64, 64)}\n{dot('%next', '%p', '%v', 4, 64, 64)}"
    arguments = f"%x: {tensor(4, 64)}, %w: {tensor(64, 64)}, %v: {tensor(64, 64)}"
    _, products = found(main(arguments, tensor(4, 64), loop(body, tensor(4, 64))))
    assert sorted(p.has_panels for p in products) == [fits, True]
