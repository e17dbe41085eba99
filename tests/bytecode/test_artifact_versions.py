"""Anything that a version of StableHLO cannot represent is rejected, with the op and its location."""

from __future__ import annotations

import artifact_programs as programs
import pytest

import shlo_jit
from shlo_jit.bytecode.versions import version_of
from shlo_jit.errors import UnsupportedError
from shlo_jit.ir.equality import difference

LATER = programs.functions(programs.LATER_OPS)


def version_in(name: str) -> tuple[int, int]:
    major, minor = name.split("_")[-2:]
    return int(major), int(minor)


@pytest.mark.parametrize("name", [name for name in LATER if name[-1].isdigit()])
def test_written_from_its_version_on(name: str) -> None:
    """The name of a function gives the first version that can represent it."""
    module = shlo_jit.parse(LATER[name])
    first = version_in(name)
    for version in programs.VERSIONS:
        if version_of(version)[:2] >= first:
            assert difference(shlo_jit.parse(module.serialize(version)), module) is None, version
        else:
            with pytest.raises(UnsupportedError, match=f"cannot be written for StableHLO {version}"):
                module.serialize(version)


def test_an_op_is_named_with_its_place() -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = stablehlo.tan %x : tensor<2xf32>\n"
    module = shlo_jit.parse(text + "  return %0 : tensor<2xf32>\n}\n")
    with pytest.raises(UnsupportedError) as caught:
        module.serialize("1.3.0")
    (found,) = caught.value.diagnostics
    expected = "stablehlo.tan cannot be written for StableHLO 1.3.0: it requires version 1.4.0 or later"
    assert (found.message, found.line, found.column, found.op) == (expected, 2, 8, "stablehlo.tan")


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("chlo.erf %x : tensor<2xf32> -> tensor<2xf32>", "portable artifacts cannot contain ops of dialect chlo"),
        ("stablehlo.negate %x {mark} : tensor<2xf32>", "VHLO has no"),
        (
            '"stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>, '
            "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (tensor<2xf32>) -> tensor<2xf32>",
            "attribute channel_handle with type = 1",
        ),
    ],
)
def test_what_no_version_can_say(op: str, why: str) -> None:
    module = shlo_jit.parse(f"func.func @main(%x: tensor<2xf32>) {{\n  %0 = {op}\n  return\n}}\n")
    with pytest.raises(UnsupportedError, match=why) as caught:
        module.serialize("1.20.0")
    assert caught.value.line == 2


@pytest.mark.parametrize("version", ["0.8.0", "1.21.0", "2.0.0", "1", "newest", "", "1.17.0.0", "-1.0.0"])
def test_versions_that_are_none(version: str) -> None:
    with pytest.raises(ValueError, match="^version: "):
        shlo_jit.parse("module {}").serialize(version)


def test_a_version_of_another_kind() -> None:
    with pytest.raises(TypeError, match="version: .*text"):
        shlo_jit.parse("module {}").serialize(1.17)  # type: ignore[arg-type]


def test_a_module_that_is_not_valid() -> None:
    text = 'func.func @main(%x: tensor<2xf32>) {\n  %0 = "stablehlo.transpose"(%x) : (tensor<2xf32>) -> tensor<2xf32>\n'
    with pytest.raises(shlo_jit.VerifyError, match="no attribute permutation") as caught:
        shlo_jit.parse(text + "  return\n}\n").serialize()
    assert caught.value.line == 2
