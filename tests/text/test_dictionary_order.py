"""Dictionaries are printed in the order of names, as in MLIR, regardless of the written order."""

from __future__ import annotations

import random
import re

import shlo_jit

NAMES = ["b", "a.z", "a", "Z", "a_b", "a10", "a9", "mhlo.x", "jax.y"]


def names_in(dictionary: str) -> list[str]:
    return re.findall(r"([\w.]+) = ", dictionary)


def test_every_dictionary_is_in_the_order_of_names() -> None:
    rng = random.Random(0)
    printed = set()
    for _ in range(5):
        rng.shuffle(NAMES)
        items = ", ".join(f'{name} = "v"' for name in NAMES)
        text = f"""module attributes {{{items}}} {{
          func.func @main(%x: tensor<2xf32> {{{items}}}) -> (tensor<2xf32> {{{items}}}) attributes {{{items}}} {{
            %0 = stablehlo.negate %x {{{items}}} : tensor<2xf32>
            %1 = stablehlo.custom_call @f(%0) {{inner = {{{items}}}}} : (tensor<2xf32>) -> tensor<2xf32>
            return %1 : tensor<2xf32>
          }}
        }}"""
        module = shlo_jit.parse(text)
        found = [names_in(part) for part in re.findall(r"{([^{}]* = \"v\"[^{}]*)}", str(module))]
        assert len(found) == 6
        assert all(names == sorted(NAMES) for names in found)
        assert shlo_jit.parse(str(module)) == module
        printed.add(str(module))
    assert len(printed) == 1


def test_properties_in_the_generic_form() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %i: tensor<i32>) -> tensor<2xf32> {
      %0 = "stablehlo.slice"(%x) <{strides = array<i64: 1>, start_indices = array<i64: 0>, limit_indices = array<i64: 2>}>
        {z = 1, a = 2} : (tensor<4xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    printed = str(shlo_jit.parse(text))
    assert shlo_jit.parse(printed) == shlo_jit.parse(text)
    for part in re.findall(r"{([^{}\n]* = [^{}\n]*)}", printed):
        assert names_in(part) == sorted(names_in(part))
