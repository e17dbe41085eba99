"""Programs are unchanged after a round trip through artifacts, for every version that can represent them."""

from __future__ import annotations

from pathlib import Path

import artifact_programs as programs
import numpy as np
import pytest

import shlo_jit
from shlo_jit import examples
from shlo_jit.bytecode.op_table import OPS
from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.core import Module, walk
from shlo_jit.ir.equality import difference

LATER = programs.functions(programs.LATER_OPS)


def read_again(module: Module, version: str) -> Module:
    return shlo_jit.parse(module.serialize(version))


def test_the_programs_have_every_op_of_the_table() -> None:
    texts = (programs.EVERY_OP, programs.LATER_OPS)
    assert {op.name for text in texts for op in walk(shlo_jit.parse(text).body)} >= set(OPS)


@pytest.mark.parametrize("version", programs.VERSIONS)
def test_every_op_for_every_version(version: str) -> None:
    module = shlo_jit.parse(programs.EVERY_OP)
    assert difference(read_again(module, version), module) is None


@pytest.mark.parametrize("name", LATER)
def test_what_later_versions_brought(name: str) -> None:
    module = shlo_jit.parse(LATER[name])
    assert difference(read_again(module, "1.20.0"), module) is None


@pytest.mark.parametrize("name", examples.names())
def test_examples(name: str) -> None:
    text = Path(examples.path(name)).read_text(encoding="utf-8")
    module = shlo_jit.parse(text.replace(", precision = [DEFAULT, DEFAULT]", ""))
    again = read_again(module, "1.17.0")
    assert difference(again, module) is None
    assert shlo_jit.verify(again) == []
    assert shlo_jit.parse(str(again)) == module


@pytest.mark.parametrize("version", ["0.9.0", "0.12.0", "0.14.0", "1.17.0"])
def test_shardings(version: str) -> None:
    module = shlo_jit.parse(programs.SHARDED)
    assert difference(read_again(module, version), module) is None


@pytest.mark.parametrize("attribute", programs.OWN_ATTRIBUTES)
def test_own_attributes_of_modules(attribute: str) -> None:
    module = shlo_jit.parse(f"module attributes {{own.name = {attribute}, own.list = [{attribute}]}} {{}}")
    for version in ("0.9.0", "1.17.0"):
        again = read_again(module, version)
        assert again.op.attributes == module.op.attributes and len(again.op.attributes) == 2


@pytest.mark.parametrize(("storage", "scale"), [("ui8", "2.0"), ("u8", "4.0")])  # equal types share a spelling
def test_storage_of_quantized_numbers_is_spelled_as_before(storage: str, scale: str) -> None:
    text = programs.QUANTIZED.replace("ui8", storage).replace("2.0", scale)
    again = str(read_again(shlo_jit.parse(text), "1.17.0"))
    assert again.count(f"<{storage}:f32") == text.count(f"<{storage}:f32") == 3


def test_defaults_are_left_out() -> None:
    """Files contain defaults in any case, so explicitly written defaults are omitted after reading."""
    written = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @f(%x) {has_side_effect = false, backend_config = "", api_version = 1 : i32} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
    again = read_again(shlo_jit.parse(written), "1.17.0")
    (call, _) = again.body.ops[0].block().ops
    assert call.attributes == {"call_target_name": "f"}


def test_values_that_regions_see_from_outside() -> None:
    """Numbers of values continue in regions, before those of later ops."""
    text = """func.func @main(%i: tensor<i32>, %x: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.case"(%i) ({
    %a = stablehlo.negate %x : tensor<f32>
    stablehlo.return %a : tensor<f32>
  }, {
    stablehlo.return %x : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  %1 = stablehlo.add %0, %x : tensor<f32>
  return %1 : tensor<f32>
}"""
    module = shlo_jit.parse(text)
    for version in ("0.9.0", "1.20.0"):
        assert difference(read_again(module, version), module) is None


def test_deep_nesting() -> None:
    depth = 1000
    text = "func.func @main(%b: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {\n"
    for i in range(depth):
        text += f'%r{i} = "stablehlo.if"(%b) ({{\n'
    text += "stablehlo.return %x : tensor<f32>\n"
    for i in reversed(range(depth)):
        text += "}, {\nstablehlo.return %x : tensor<f32>\n}) : (tensor<i1>) -> tensor<f32>\n"
        text += f"{'stablehlo.' if i else ''}return %r{i} : tensor<f32>\n"
    module = shlo_jit.parse(text + "}")
    assert read_again(module, "1.17.0") == module


def test_large_constants_are_viewed() -> None:
    """The array of a constant that is aligned in the file is a view of its bytes; others are copied only once."""
    array = np.arange(100_000, dtype=np.float32)
    text = f"""func.func @main() -> tensor<100000xf32> {{
  %0 = stablehlo.constant dense<"0x{array.tobytes().hex()}"> : tensor<100000xf32>
  return %0 : tensor<100000xf32>
}}"""
    data = shlo_jit.parse(text).serialize()
    again = shlo_jit.parse(data)
    value = again.body.ops[0].block().ops[0].attributes["value"]
    assert isinstance(value, Dense)
    np.testing.assert_array_equal(value.array, array)
    assert not value.array.flags.writeable
    assert len(data) < array.nbytes + 1000


# ---------------------------------------------------------------------- locations
def resolved(module: Module) -> list[str]:
    """Returns the locations of ops and arguments with aliases expanded."""

    def text_of(location: object) -> str:
        text = getattr(location, "text", "loc(unknown)")
        while "#" in text:
            start = text.index("#")
            name = text[start + 1 :].split(")")[0].split(" ")[0].split(",")[0].split("]")[0]
            text = text.replace(f"#{name}", module.locations.get(name, "loc(unknown)")[4:-1], 1)
        return text

    function = module.body.ops[0]
    locations = function.block().locations or (None,) * len(function.block().arguments)
    return [text_of(location) for location in (*locations, *(op.location for op in function.block().ops))]


def test_locations() -> None:
    module = shlo_jit.parse(programs.LOCATED)
    expected = [
        'loc("x")',
        "loc(unknown)",
        'loc("model.py":3:4)',
        'loc(callsite("layer"("model.py":7:2 to :9) at "model.py":3:4))',
        'loc(fused<"pass">["a", "model.py":7:2 to :9])',
        "loc(unknown)",
    ]
    assert resolved(module) == expected
    for version in ("0.9.0", "0.14.0", "1.17.0"):
        again = read_again(module, version)
        assert resolved(again) == expected
        assert shlo_jit.parse(str(again)) == module


def test_a_location_that_names_itself_is_unknown() -> None:
    text = '#loc1 = loc("a"(#loc2))\n#loc2 = loc("b"(#loc1))\nfunc.func @main() {\n  return loc(#loc1)\n}\n'
    again = read_again(shlo_jit.parse(text), "1.17.0")
    assert 'loc("a"' in str(again)
