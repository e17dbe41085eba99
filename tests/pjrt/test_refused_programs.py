"""Invalid programs, options and serialized bytes, and calls with wrong arguments: errors describe what was passed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_host import ADD, DONATES, Host, Refused, numbers, options, record, text

import shlo_jit
from shlo_jit.bytecode.writer import write_artifact
from shlo_jit.pjrt import interface, proto

ARTIFACT = write_artifact(shlo_jit.parse(ADD), "1.13.7")
X = np.arange(4, dtype=np.float32)


def test_programs_of_other_formats(host: Host) -> None:
    for format in (b"hlo", b"", b"hlo_with_config", b"\xff\xfe"):
        with pytest.raises(Refused, match="format mlir, not ") as caught:
            host.compile(ADD, format=format)
        assert caught.value.code == interface.UNIMPLEMENTED
    for program, what in (
        (None, "Program is null"),
        (record("Program", 40), "48 bytes.*got 40"),
    ):
        with pytest.raises(Refused, match=what):
            host.call("Client_Compile", client=host.client, program=program)


@pytest.mark.parametrize("code, what", [
    (b"", "an empty file"),
    (b"not a program", "not"),
    (b"\xff\xfe\x00\x01", "UTF-8|utf-8|text"),
    (b"module {}", "@main"),
    (ADD.replace(b"stablehlo.add", b"stablehlo.frobnicate"), "frobnicate"),
    (ADD.replace(b"%b : tensor<4xf32>", b"%b : tensor<5xf32>"), "tensor<5xf32>"),
    (b"MLIR" + ARTIFACT[4:40], "."),
])  # fmt: skip
def test_programs_that_are_none(host: Host, code: bytes, what: str) -> None:
    with pytest.raises(Refused, match=what) as caught:
        host.compile(code)
    assert caught.value.code == interface.INVALID_ARGUMENT


def test_an_artifact(host: Host) -> None:
    loaded, x = host.compile(ARTIFACT), host.put(X)
    [[made]] = host.run(loaded, [x, x])
    np.testing.assert_array_equal(host.get(made), 2 * X)
    host.destroy(made, x)
    host.call("LoadedExecutable_Destroy", executable=loaded)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(ARTIFACT) - 1))
def test_artifacts_that_are_cut_off(host: Host, size: int) -> None:
    with pytest.raises(Refused) as caught:
        host.compile(ARTIFACT[:size])
    assert caught.value.code in (interface.INVALID_ARGUMENT, interface.UNIMPLEMENTED), caught.value
    assert str(caught.value)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_options_that_are_none(host: Host, data: bytes) -> None:
    """Any bytes are accepted if they happen to be options, or refused with a description."""
    try:
        host.call("LoadedExecutable_Destroy", executable=host.compile(ADD, data))
    except Refused as error:
        assert error.code in (interface.INVALID_ARGUMENT, interface.UNIMPLEMENTED), error
        assert str(error)


GOOD = options(1, 1, [[0]], xla_a_flag=proto.write(2, 1), xla_b_level=proto.write(3, 7))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.booleans())
def test_options_that_are_damaged(host: Host, place: int, byte: int, cut: bool) -> None:
    data = GOOD[:place] if cut else GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    test_options_that_are_none.hypothesis.inner_test(host, data)


@pytest.mark.parametrize("data, what", [
    (options(partitions=5), "1 replicas.*5 partitions.*4 devices"),
    (options(replicas=2**40), "1099511627776 replicas.*1 partitions.*4 devices"),
    (options(2**62, 2**62), "4 devices"),
    (options(devices=[[4]]), "device 4.* 4"),
    (options(partitions=2, devices=[[1], [1]]), r"1 replicas.*2 partitions.*\[\[1\], \[1\]\]"),
    (options(partitions=2, devices=[[1]]), r"1 replicas.*2 partitions.*\[\[1\]\]"),
    (options(devices=[[]]), r"1 replicas.*1 partitions.*\[\[\]\]"),
    (proto.write(3, proto.write(4, b"two")), "CompileOptionsProto: .*field 4"),
    (b"\x1a\xff", "CompileOptionsProto: .*number"),
    (b"\x1a\x05\x20", "CompileOptionsProto: .*last byte"),
    (b"\x1b", "CompileOptionsProto: .*kind 3"),
    (options(an_option=proto.write(2, 1)), "compile option: 'an_option'"),
    (options(xla_x=b"\x21\x00"), "CompileOptionsProto: "),
])  # fmt: skip
def test_options_that_mean_nothing(host: Host, data: bytes, what: str) -> None:
    with pytest.raises(Refused, match=what) as caught:
        host.compile(ADD, data)
    assert caught.value.code == interface.INVALID_ARGUMENT


@pytest.mark.parametrize("change, what", [
    (lambda data: data[:0], "serialized"),
    (lambda data: data[:10], "serialized"),
    (lambda data: data[:22], "serialized"),
    (lambda data: b"x" + data[1:], "serialized"),
    (lambda data: data[:19] + b"\xff" * 8 + data[27:], "serialized"),
    (lambda data: data[:-20], "."),
    (lambda data: data[:27] + b"\x1b" + data[28:], "CompileOptionsProto"),
])  # fmt: skip
def test_serialized_programs_that_are_damaged(host: Host, change, what: str) -> None:
    loaded = host.compile(ADD, GOOD)
    data = change(host.text_of(host.call("Executable_Serialize", executable=loaded), "serialized_bytes"))
    host.call("LoadedExecutable_Destroy", executable=loaded)
    bytes_ = {"serialized_executable": text(data), "serialized_executable_size": len(data)}
    with pytest.raises(Refused, match=what) as caught:
        host.call("Executable_DeserializeAndLoad", client=host.client, **bytes_)
    assert caught.value.code == interface.INVALID_ARGUMENT


def test_room_for_a_program(host: Host) -> None:
    loaded = host.compile(ADD)
    room = text(b"\0" * 10)
    with pytest.raises(Refused, match=f"{len(ADD)} bytes.* 10"):
        host.call("Executable_OptimizedProgram", executable=loaded, program=record("Program", code=room, code_size=10))
    assert not room.any()
    host.call("LoadedExecutable_Destroy", executable=loaded)


@pytest.mark.parametrize("code", (ADD, DONATES), ids=("plain", "donating"))
def test_arguments_that_do_not_fit(host: Host, code: bytes) -> None:
    """All are refused before anything is done: donated arrays are still alive, and a valid call works."""
    loaded, x = host.compile(code), host.put(X)
    for count in (0, 1, 3):
        with pytest.raises(Refused, match=f"2 arguments, got {count}"):
            host.run(loaded, [x] * count)
    others = {
        "5xf32": np.zeros(5, np.float32), "4xi32": np.zeros(4, np.int32), "2x2xf32": np.zeros((2, 2), np.float32),
        "8xbf16": np.zeros(8, ml_dtypes.bfloat16), "f32": np.float32(1), "0x4xf32": np.zeros((0, 4), np.float32),
    }  # fmt: skip
    for shape, array in others.items():
        wrong = host.put(np.asarray(array))
        for row in ([x, wrong], [wrong, x]):
            with pytest.raises(Refused) as caught:
                host.run(loaded, row)
            message = f"argument {row.index(wrong)}: the program expects 4xf32, got {shape}"
            assert str(caught.value) == message and caught.value.code == interface.INVALID_ARGUMENT
        host.destroy(wrong)
    for devices in ([], [[x, x]] * 2):
        with pytest.raises(Refused, match=f"one device, not {len(devices)}"):
            host.run(loaded, *devices)
    dims = [0] + [10**18] * 63  # more text than a message can hold
    many = host.put(np.zeros(0, np.float32), dims=numbers(dims), num_dims=len(dims), byte_strides=None)
    with pytest.raises(Refused, match="argument 1: .* 4xf32, got 0x1000000000000000000x1"):
        host.run(loaded, [x, many])
    y = host.put(X)
    [[made]] = host.run(loaded, [x, y])
    np.testing.assert_array_equal(host.get(made), 2 * X)
    host.destroy(x, y, made, many)
    host.call("LoadedExecutable_Destroy", executable=loaded)


def test_deleted_arguments(host: Host) -> None:
    loaded, x, gone = host.compile(ADD), host.put(X), host.put(X)
    host.call("Buffer_Delete", buffer=gone)
    for row in ([x, gone], [gone, x], [gone, gone]):
        with pytest.raises(Refused, match="argument.*deleted or donated"):
            host.run(loaded, row)
    host.destroy(x, gone)
    host.call("LoadedExecutable_Destroy", executable=loaded)
