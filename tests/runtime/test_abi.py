"""The interface between machine code and its host."""

from __future__ import annotations

import ctypes

import pytest

from shlo_jit import tuning
from shlo_jit.caches import PLAIN
from shlo_jit.codegen import abi
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions
from shlo_jit.pipeline import program_of
from shlo_jit.runtime import cache
from shlo_jit.runtime.instance import record_type

BYTES = {"i32": 4, "i64": 8, "ptr": 8}
CALLS = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @first(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.custom_call @second(%0) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""


def test_fields_lie_side_by_side() -> None:
    end = 0
    for field in abi.INSTANCE.values():
        assert field.offset == -(-end // BYTES[field.type]) * BYTES[field.type]
        end = field.offset + BYTES[field.type]
    assert end == abi.CONSTANTS


@pytest.mark.parametrize("constants", [0, 1, 5])
def test_the_host_s_record_is_the_code_s(constants: int) -> None:
    record = record_type(constants)
    assert {name: getattr(record, name).offset for name, *_ in record._fields_} == {
        **{name: field.offset for name, field in abi.INSTANCE.items()},
        "constants": abi.CONSTANTS,
    }
    assert ctypes.sizeof(record) == abi.instance_bytes(constants)


def test_the_entry_has_the_parameters() -> None:
    parameters = ", ".join(f"{type} noalias %{name}" for type, name in abi.PARAMETERS)
    text = program_of(CALLS, "<test>", resolve(), ["first", "second"]).text
    assert f"i32 @{abi.ENTRY}({parameters}) nounwind {{" in text


def test_statuses_have_texts() -> None:
    assert len({status.text for status in abi.Status}) == len(abi.Status)
    assert "custom call" in abi.status_text(abi.Status.CALL_FAILED)
    assert "77" in abi.status_text(77)


@pytest.mark.parametrize("last_level", [1 << 20, 32 << 20, 1 << 30])
def test_what_is_streamed_to_is_aligned(last_level: int) -> None:
    caches = PLAIN._replace(last_level=last_level)
    assert caches.bytes_of(tuning.STREAM_BYTES) >= abi.ALIGNED_RESULT_BYTES


def test_the_version_is_part_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    options = CompileOptions(resolve())
    before = {cache.program_key("text", options), cache.routine_key("name", resolve())}
    monkeypatch.setattr(cache, "ABI_VERSION", abi.ABI_VERSION + 1)
    assert not before & {cache.program_key("text", options), cache.routine_key("name", resolve())}
