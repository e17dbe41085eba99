"""Notebook display of executables and modules."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from pictured import CONTROL, UNFIT, UNKNOWN, called, chain

import shlo_jit


def cells(shown: object) -> dict[str, str]:
    """Cells of the displayed table."""
    text = shown._repr_html_()  # type: ignore[attr-defined]
    assert len(text) < 10_000
    return {row[0].text or "": row[1].text or "" for row in ET.fromstring(text).iter("tr")}


def test_an_executable() -> None:
    found = cells(shlo_jit.compile(CONTROL, threads=2))
    assert found["input 0"] == "x float32[16,64]" and found["input 1"] == "n int32[]"
    assert found["result 0"] == "1 float32[16,64]" and found["threads"] == "2"
    assert found["memory"].startswith("arena ")


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
def test_an_executable_for_any_shape(dynamic: str) -> None:
    exe = shlo_jit.compile(UNKNOWN, dynamic=dynamic)
    assert cells(exe)["input 0"] == "x float32[?,64]"
    exe.executable([(8, 64)])
    assert "memory" in cells(exe)


def test_many_inputs_are_cut() -> None:
    arguments = ", ".join(f"%a{i}: tensor<2xf32>" for i in range(100))
    text = f"func.func @main({arguments}) -> tensor<2xf32> {{ return %a0 : tensor<2xf32> }}"
    assert cells(shlo_jit.compile(text))["input"] == "88 more"


def test_a_module() -> None:
    found = cells(shlo_jit.parse(CONTROL))
    assert found["@main"] == "(16x64xf32, i32, i1) → (16x64xf32)"
    (ops,) = [text for word, text in found.items() if word.endswith(" ops")]
    assert "2 dot_general" in ops
    assert "100 func.call" in str(cells(shlo_jit.parse(called())))
    assert "1000 dot_general" in str(cells(shlo_jit.parse(chain(1000))))


def test_names_are_text() -> None:
    shown = shlo_jit.parse(UNFIT)._repr_html_()
    assert "<b>" not in shown and "&lt;b&gt;&amp;" in shown
    ET.fromstring(shown)


def test_processes_and_libraries(tmp_path) -> None:
    shlo_jit.export(chain(2), tmp_path / "two.so")
    assert cells(shlo_jit.load(tmp_path / "two.so"))["threads"]


def test_types_of_functions_are_cut() -> None:
    arguments = ", ".join(f"%a{i}: tensor<2xf32>" for i in range(100))
    text = f"func.func @main({arguments}) -> tensor<2xf32> {{ return %a0 : tensor<2xf32> }}"
    assert cells(shlo_jit.parse(text))["@main"] == f"({'2xf32, ' * 12}88 more) → (2xf32)"


def test_a_program_in_several_processes() -> None:
    with shlo_jit.compile(chain(2), num_partitions=2, transport="threads") as exe:
        found = cells(exe)
    assert found["input 0"] == "v0 float32[16,64]" and found["threads"].endswith(" of each process")
    assert found["processes"] == "1 x 2 (replicas x partitions), by threads"
