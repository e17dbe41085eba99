"""One program for several targets: the object code uses the vector registers the target has, and no wider ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from shlo_jit.codegen import optimize
from shlo_jit.codegen.target import resolve
from shlo_jit.pipeline import program_of

TEXT = """
func.func @main(%x: tensor<40x50xf32>, %w: tensor<50x77xf32>) -> (tensor<40x77xf32>, tensor<77xf32>) {
  %0 = stablehlo.tanh %x : tensor<40x50xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<40x50xf32>, tensor<50x77xf32>) -> tensor<40x77xf32>
  %2 = stablehlo.exponential %1 : tensor<40x77xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%2 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<40x77xf32>, tensor<f32>) -> tensor<77xf32>
  return %2, %3 : tensor<40x77xf32>, tensor<77xf32>
}
"""
REGISTERS = {"zmm": r"%zmm\d", "ymm": r"%ymm\d", "v4s": r"\bv\d+\.4s"}
EXPECTED = {
    "x86-64-v4": ("zmm", set()),
    "x86-64-v3": ("ymm", {"zmm"}),
    "aarch64:generic": ("v4s", {"ymm", "zmm"}),
    "aarch64:neoverse-n1": ("v4s", {"ymm", "zmm"}),
}


def check_object(data: bytes, name: str, symbols: Iterable[str]) -> None:
    """ELF for the target's architecture, which defines or at least names the symbols."""
    assert data[:6] == b"\x7fELF\x02\x01"
    assert int.from_bytes(data[18:20], "little") == (183 if name.startswith("aarch64") else 62)
    assert all(symbol.encode() + b"\0" in data for symbol in symbols)


@pytest.mark.parametrize("name", EXPECTED)
def test_vector_width(name: str) -> None:
    target = resolve(name)
    program = program_of(TEXT, "<test>", target)
    module = optimize.optimize(program.text, target)
    check_object(optimize.emit_object(module, target), name, ["shlo_main"])
    assembly = optimize.emit_assembly(module, target)
    wanted, forbidden = EXPECTED[name]
    assert len(re.findall(REGISTERS[wanted], assembly)) > 50
    assert not [r for r in forbidden if re.search(REGISTERS[r], assembly)]


@pytest.mark.parametrize("name", EXPECTED)
def test_routines_compile(name: str) -> None:
    from shlo_jit.codegen.objects import compile_routine

    target = resolve(name)
    for routine in program_of(TEXT, "<test>", target).routines:
        compiled = compile_routine(routine, target)
        assert set(routine.symbols) <= set(compiled.symbols)
        check_object(b"".join(compiled.objects), name, compiled.symbols)


def test_unknown_target() -> None:
    with pytest.raises(ValueError, match="unknown target 'pentium'"):
        resolve("pentium")
