"""Programs on global arrays: the local program as text, its meaning, and refusals with their line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from refusing import refused
from simulated_grid import run_local

import shlo_jit
from shlo_jit.distributed.global_arrays import grid_of, local_program
from shlo_jit.errors import ParseError, StableHLOError, UnsupportedError, VerifyError
from shlo_jit.ir.equality import difference

G, H = "tensor<4x4xf32>", "tensor<2x4xf32>"
MESH = 'sdy.mesh @mesh = <["x"=2, "y"=2]>'
X = np.arange(16, dtype=np.float32).reshape(4, 4)
GATHER = (
    '"stablehlo.all_gather"({0}) <{{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, '
    "replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}}> : (" + H + ") -> " + G
)
SLICE = f"""%p = stablehlo.partition_id : tensor<ui32>
  %table = stablehlo.constant dense<[0, 0, 2, 2]> : tensor<4xi64>
  %row = stablehlo.dynamic_slice %table, %p, sizes = [1] : (tensor<4xi64>, tensor<ui32>) -> tensor<1xi64>
  %start = stablehlo.reshape %row : (tensor<1xi64>) -> tensor<i64>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %part = stablehlo.dynamic_slice {{0}}, %start, %zero, sizes = [2, 4] : ({G}, tensor<i64>, tensor<i64>) -> {H}"""


def manual(name: str, operand: str, ins: str = '[{"x"}, {}]', outs: str = '[{"x"}, {}]', op: str = "negate") -> str:
    return f"""{name} = sdy.manual_computation({operand}) in_shardings=[<@mesh, {ins}>] out_shardings=[<@mesh, {outs}>] manual_axes={{"x"}} (%a: {H}) {{
    %b = stablehlo.{op} %a : {H}
    sdy.return %b : {H}
  }} : ({G}) -> {G}"""


def program(body: str, argument: str = G, result: str = G, more: str = "") -> str:
    return f"module {{\n{MESH}\nfunc.func @main(%x: {argument}) -> {result} {{\n  {body}\n}}\n{more}}}"


@dataclass(frozen=True)
class Case:
    before: str
    after: str
    expected: np.ndarray


CASES = {
    "argument and result are parts": Case(
        program(f"{manual('%0', '%x')}\n  return %0 : {G}"),
        program(f"%0 = stablehlo.negate %x : {H}\n  return %0 : {H}", H, H),
        -X,
    ),
    "one after the other": Case(
        program(f"{manual('%0', '%x')}\n  {manual('%1', '%0', op='abs')}\n  return %1 : {G}"),
        program(f"%0 = stablehlo.negate %x : {H}\n  %1 = stablehlo.abs %0 : {H}\n  return %1 : {H}", H, H),
        X,
    ),
    "the argument is read as a whole too": Case(
        program(f"{manual('%0', '%x')}\n  %1 = stablehlo.add %0, %x : {G}\n  return %1 : {G}"),
        program(
            f"{SLICE.format('%x')}\n  %n = stablehlo.negate %part : {H}\n  %w = {GATHER.format('%n')}\n"
            f"  %1 = stablehlo.add %w, %x : {G}\n  return %1 : {G}"
        ),
        0 * X,
    ),
    "in a function": Case(
        program(
            f"%0 = call @f(%x) : ({G}) -> {G}\n  return %0 : {G}",
            more=f"func.func private @f(%x: {G}) -> {G} {{\n  {manual('%0', '%x')}\n  return %0 : {G}\n}}\n",
        ),
        program(
            f"%0 = call @f(%x) : ({H}) -> {H}\n  return %0 : {H}", H, H,
            f"func.func private @f(%x: {H}) -> {H} {{\n  %0 = stablehlo.negate %x : {H}\n  return %0 : {H}\n}}\n",
        ),
        -X,
    ),
    "annotations": Case(
        program(f'%s = sdy.sharding_constraint %x <@mesh, [{{"y"}}, {{}}]> : {G}\n  {manual("%0", "%s")}\n  return %0 : {G}'),
        program(f"%0 = stablehlo.negate %x : {H}\n  return %0 : {H}", H, H),
        -X,
    ),
    "custom calls": Case(
        program(f"""%s = stablehlo.custom_call @Sharding(%x) {{mhlo.sharding = "{{devices=[2,1,2]<=[4] last_tile_dim_replicate}}"}} : ({G}) -> {G}
          %p = stablehlo.custom_call @SPMDFullToShardShape(%s) {{mhlo.sharding = "{{manual}}"}} : ({G}) -> {H}
          %n = stablehlo.negate %p : {H}
          %0 = stablehlo.custom_call @SPMDShardToFullShape(%n) {{mhlo.sharding = "{{devices=[2,1,2]0,1,2,3 last_tile_dims={{replicated}}}}"}} : ({H}) -> {G}
          return %0 : {G}"""),
        program(f"%0 = stablehlo.negate %x : {H}\n  return %0 : {H}", H, H),
        -X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_local_program(name: str) -> None:
    case = CASES[name]
    local = local_program(shlo_jit.parse(case.before), "main", 4)
    assert local is not None
    assert difference(local.module, shlo_jit.parse(case.after)) is None, str(local.module)
    (got,) = run_local(local, [X], 4)
    np.testing.assert_array_equal(got, case.expected)


SPLIT = '[{}, {}], unreduced={"x"}'
SUMMANDS = {
    "summands leave as they are": (
        program(f"{manual('%0', '%x', outs=SPLIT)}\n  return %0 : {H}", G, H).replace(f"({G}) -> {G}", f"({G}) -> {H}"),
        program(f"%0 = stablehlo.negate %x : {H}\n  return %0 : {H}", H, H),
        -(X[:2] + X[2:]),
    ),
    "summands are added up": (
        program(
            f"{manual('%0', '%x', outs=SPLIT)}\n  %1 = stablehlo.abs %0 : {H}\n  return %1 : {H}", G, H
        ).replace(f"({G}) -> {G}", f"({G}) -> {H}"),
        program(
            f"""%0 = stablehlo.negate %x : {H}
  %s = "stablehlo.all_reduce"(%0) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }}) : ({H}) -> {H}
  %1 = stablehlo.abs %s : {H}
  return %1 : {H}""", H, H
        ),
        abs(X[:2] + X[2:]),
    ),
    "an argument comes as summands": (
        program(f"{manual('%0', '%x', SPLIT, SPLIT)}\n  return %0 : {H}", H, H).replace(f"({G}) -> {G}", f"({H}) -> {H}"),
        program(f"%0 = stablehlo.negate %x : {H}\n  return %0 : {H}", H, H),
        -X[:2],
    ),
    "a whole is split": (
        program(
            f"%n = stablehlo.negate %x : {H}\n  {manual('%0', '%n', SPLIT, SPLIT)}\n  return %0 : {H}", H, H
        ).replace(f"({G}) -> {G}", f"({H}) -> {H}"),
        program(
            f"""%n = stablehlo.negate %x : {H}
  %p = stablehlo.partition_id : tensor<ui32>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %zero1 = stablehlo.constant dense<0> : tensor<i64>
  %part = stablehlo.dynamic_slice %n, %zero, %zero1, sizes = [2, 4] : ({H}, tensor<i64>, tensor<i64>) -> {H}
  %table = stablehlo.constant dense<[true, true, false, false]> : tensor<4xi1>
  %row = stablehlo.dynamic_slice %table, %p, sizes = [1] : (tensor<4xi1>, tensor<ui32>) -> tensor<1xi1>
  %first = stablehlo.reshape %row : (tensor<1xi1>) -> tensor<i1>
  %none = stablehlo.constant dense<0.0> : {H}
  %split = stablehlo.select %first, %part, %none : tensor<i1>, {H}
  %0 = stablehlo.negate %split : {H}
  return %0 : {H}""", H, H
        ),
        X[:2],
    ),
}  # fmt: skip
"""Programs as in CASES, with values of which the devices have summands along "x"."""


@pytest.mark.parametrize("name", SUMMANDS)
def test_summands(name: str) -> None:
    before, after, expected = SUMMANDS[name]
    local = local_program(shlo_jit.parse(before), "main", 4)
    assert local is not None
    assert difference(local.module, shlo_jit.parse(after)) is None, str(local.module)
    given = X if f"%x: {G}" in before else X[:2]
    np.testing.assert_array_equal(run_local(local, [given], 4)[0], expected)
    with shlo_jit.compile(before, num_partitions=4, transport="threads") as exe:  # type: ignore[union-attr]
        np.testing.assert_array_equal(exe(given), expected)


def test_sub_axes() -> None:
    """The minor half of an axis of four devices: devices 0 and 2 have the first part."""
    text = (
        program(f"{manual('%0', '%x')}\n  return %0 : {G}")
        .replace('"x"=2, "y"=2', '"x"=4')
        .replace('[{"x"}', '[{"x":(2)2}')
    )
    local = local_program(shlo_jit.parse(text), "main", 4)
    assert local is not None and local.inputs[0] is not None
    assert [local.inputs[0].device_tile(d) for d in range(4)] == [(0, 0), (1, 0), (0, 0), (1, 0)]
    np.testing.assert_array_equal(run_local(local, [X], 4)[0], -X)


def test_nothing_manual() -> None:
    assert local_program(shlo_jit.parse(program(f"return %x : {G}")), "main", 4) is None


def test_grid_of() -> None:
    assert grid_of(shlo_jit.parse("module {}")) == (1, 1)
    assert grid_of(
        shlo_jit.parse("module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32} {}")
    ) == (2, 4)
    with refused(VerifyError, "attribute", (1, 1), shows="mhlo.num_replicas"):
        grid_of(shlo_jit.parse("module attributes {mhlo.num_replicas = 0 : i32} {}"))


GOOD = program(f"{manual('%0', '%x')}\n  return %0 : {G}")
NESTED = GOOD.replace("%b = stablehlo.negate %a", f"%b = func.call @f(%a) : ({H}) -> {H} //")
INNER = f"""func.func private @f(%x: {H}) -> {H} {{
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{{"x"}}, {{}}]>] out_shardings=[<@mesh, [{{"x"}}, {{}}]>] manual_axes={{"x"}} (%a: tensor<1x4xf32>) {{
    sdy.return %a : tensor<1x4xf32>
  }} : ({H}) -> {H}
  return %0 : {H}
}}
"""
REFUSED: dict[str, tuple[str, type[StableHLOError], str, int]] = {
    "mesh": (GOOD.replace("<@mesh", "<@m"), VerifyError, "there is no mesh @m; the program has @mesh", 4),
    "axis": (GOOD.replace('[{"x"}', '[{"z"}'), VerifyError, "there is no axis 'z' in the mesh, whose axes are 'x', 'y'", 4),
    "manual axis": (GOOD.replace('axes={"x"}', 'axes={"x", "z"}'), VerifyError, "there is no axis 'z' in the mesh of operand 0", 4),
    "mesh's size": (GOOD.replace('"y"=2', '"y"=3'), UnsupportedError, "its mesh has 6 devices, but the program is compiled for 4 partitions", 4),
    "device ids": (GOOD.replace("=2]>", "=2], device_ids=[0, 1, 2, 2]>"), VerifyError, "device_ids should name each of the mesh's 4 devices once", 2),
    "summands": (GOOD.replace('[{"x"}, {}]>]', '[{"x"}, {}], unreduced={"y"}>]'), UnsupportedError, "unreduced along axis 'y', which is not manual, is not supported", 4),
    "summands twice": (GOOD.replace('[{"x"}, {}]>]', '[{"x"}, {}], unreduced={"x"}>]'), VerifyError, "axis 'x' is used twice in one sharding", 4),
    "twice": (GOOD.replace('[{"x"}, {}]', '[{"x"}, {"x"}]'), VerifyError, "axis 'x' is used twice in one sharding", 4),
    "cut wrong": (GOOD.replace('[{"x"}', '[{"x":(1)3}'), VerifyError, "axis 'x' of size 2 cannot be cut into 1 x 3", 4),
    "order": (GOOD.replace('[{"x"}', '[{"y", "x"}'), VerifyError, "manual axes come first; 'y' is not manual", 4),
    "rank": (GOOD.replace('[{"x"}, {}]', '[{"x"}]'), VerifyError, "operand 0 is tensor<4x4xf32>, but its sharding has rank 1", 4),
    "uneven": (GOOD.replace("4x4x", "5x4x"), UnsupportedError, "operand 0: dimension 0 has size 5, which cannot be cut into 2 equal parts", 4),
    "unknown": (GOOD.replace("4x4x", "?x4x"), UnsupportedError, "operand 0 has unknown dimensions", 4),
    "type": (GOOD.replace("2x4x", "1x4x"), VerifyError, "operand 0: a part should be tensor<2x4xf32> by its sharding, got tensor<1x4xf32>", 4),
    "count": (GOOD.replace("in_shardings=[", 'in_shardings=[<@mesh, [{"x"}, {}]>, '), VerifyError, "has 1 operands, 2 in_shardings, and 1 operands in its body", 4),
    "syntax": (GOOD.replace('[{"x"}', '[{x}'), ParseError, "expected a name in quotes, got x", 4),
    "long number": (GOOD.replace('[{"x"}', '[{"x":(1)' + "9" * 5000 + "}"), ParseError, "expected a sharding", 4),
    "called inside": (NESTED.replace("\n}\n}", "\n}\n" + INNER + "}"), VerifyError, "@f computes on parts along axis 'x', which is manual in a computation around the call", 5),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, kind, message, line = REFUSED[name]
    module = shlo_jit.parse(text)
    with pytest.raises(kind) as caught:
        local_program(module, "main", 4)
    assert message in str(caught.value)
    assert caught.value.line == line
    assert type(caught.value) is kind


def custom(sharding: str) -> str:
    return program(f"""%s = stablehlo.custom_call @Sharding(%x) {{mhlo.sharding = "{sharding}"}} : ({G}) -> {G}
  %p = stablehlo.custom_call @SPMDFullToShardShape(%s) {{mhlo.sharding = "{{manual}}"}} : ({G}) -> {H}
  return %p : {H}""", result=H)  # fmt: skip


@pytest.mark.parametrize(
    ("sharding", "kind", "message"),
    [
        ("{manual}", UnsupportedError, "does not say how an array is cut into parts"),
        ("{maximal device=0}", UnsupportedError, "does not say how an array is cut into parts"),
        (
            "{devices=[8,1]<=[8]}",
            UnsupportedError,
            "its sharding has 8 devices, but the program is compiled for 4 partitions",
        ),
        ("{devices=[0,4]<=[4]}", UnsupportedError, "its sharding has 0 devices"),
        ("{devices=[4]<=[4]}", VerifyError, "has rank 1, but the value has rank 2"),
        ("{devices=[4,1]0,1,2,2}", VerifyError, "should name each of 4 devices once"),
        ("{devices=[4,1]<=[2,2]T(0,0)}", VerifyError, "should name each of 4 devices once"),
        ("{devices=[4,1]<=[100000000000]}", VerifyError, "should name each of 4 devices once"),
        ("{devices=[4,1]<=[4]}", VerifyError, "a part should be tensor<1x4xf32> by its sharding, got tensor<2x4xf32>"),
        ("{replicated}", VerifyError, "a part should be tensor<4x4xf32> by its sharding"),
        ("{devices=[2,1,2]<=[4] last_tile_dims={odd}}", ParseError, "expected 'manual' or 'replicated', got odd"),
        ("{devices=[4,1]<=[4]", ParseError, "expected '}', got the end"),
        ("", ParseError, "expected '{', got the end"),
    ],
)
def test_refused_strings(sharding: str, kind: type[StableHLOError], message: str) -> None:
    with pytest.raises(kind) as caught:
        local_program(shlo_jit.parse(custom(sharding)), "main", 4)
    assert message in str(caught.value)
    assert caught.value.line == 5
