"""Host arrays of any shape and any strides are read as NumPy does; others are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guarded import guarded, relaid
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_host import NUMPY_TYPES, TYPES, Host, Refused, numbers, record

from shlo_jit.pjrt import interface


@st.composite
def strided(draw: st.DrawFn) -> np.ndarray:
    """Draws an array next to an inaccessible page: sliced, stepped, reversed, transposed, broadcast."""
    dtype = draw(st.sampled_from([*NUMPY_TYPES.values()]))
    shape = draw(st.lists(st.integers(0, 6), max_size=5))
    steps = [draw(st.sampled_from((1, 1, 2, 3, -1, -2))) for _ in shape]
    whole = [extent * abs(step) for extent, step in zip(shape, steps, strict=True)]
    count = int(np.prod(whole, dtype=np.int64))
    bits = np.random.default_rng(count).integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8)
    raw = bits % 2 if dtype is np.bool_ else bits
    base = guarded(raw.view(dtype).reshape(whole), draw(st.booleans()))
    array = base[(..., *(slice(None, None, step) for step in steps))]
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()):
        array = np.broadcast_to(array, (draw(st.integers(0, 3)), *array.shape))
    return array


def bits_of(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@settings(max_examples=150, deadline=None)
@given(strided(), st.sampled_from((0, 1, 2, 3)), st.integers(0, 3))
def test_arrays_of_any_strides(host: Host, array: np.ndarray, semantics: int, device: int) -> None:
    buffer = host.put(array, semantics, device=host.devices[device])
    got = host.get(buffer)
    assert got.shape == array.shape and got.dtype == array.dtype
    assert bits_of(got) == bits_of(array)
    assert host.call("Buffer_Device", buffer=buffer).device == host.devices[device]
    host.destroy(buffer)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_views_of_any_order(host: Host, shape: list[int], data: st.DataObject) -> None:
    """A layout has the order of the dimensions, or their strides; both read the same elements as NumPy."""
    order = data.draw(st.permutations(range(len(shape))))
    home = np.arange(int(np.prod(shape)) + 16, dtype=np.int32)
    flat = home[(-home.__array_interface__["data"][0] % 64) // 4 :][: int(np.prod(shape))]
    array = flat.reshape([shape[d] for d in order]).transpose(np.argsort(order))
    if data.draw(st.booleans()):
        words = {"type": interface.TILED, "minor_to_major": numbers([*reversed(order)])}
    else:
        words = {"type": interface.STRIDES, "minor_to_major": numbers(array.strides)}
    layout = record("MemoryLayout", minor_to_major_size=len(shape), **words)
    buffer = view(host, flat, shape, layout=layout)
    np.testing.assert_array_equal(host.get(buffer), array)
    host.destroy(buffer)


def view(host: Host, data: Any, shape: list[int], **fields: Any) -> int:
    given = {"client": host.client, "device_buffer_ptr": data, "dims": numbers(shape), "num_dims": len(shape)}
    given |= {"element_type": TYPES["i32"], "device": host.devices[0]}
    return host.call("Client_CreateViewOfDeviceBuffer", **{**given, **fields}).buffer


def test_an_array_that_may_stay_is_not_copied(host: Host) -> None:
    array = relaid(np.arange(12.0).reshape(3, 4), at_end=True)
    place = array.__array_interface__["data"][0]
    for semantics, stays in ((0, False), (1, False), (2, True), (3, True)):
        buffer = host.put(array, semantics)
        assert (host.call("Buffer_UnsafePointer", buffer=buffer).buffer_pointer == place) == stays
        host.destroy(buffer)


@pytest.mark.parametrize("fields, text", [
    ({"type": 0}, "invalid array: type 0, 2 dimensions, the first of size 2"),
    ({"type": 99}, "type 99,"),
    ({"type": -1}, "type -1,"),
    ({"type": 2**31 - 1}, "type 2147483647"),
    ({"dims": numbers([-1, 3])}, "size -1"),
    ({"dims": numbers([2**62, 4])}, "4611686018427387904"),
    ({"dims": numbers([-(2**63), -(2**63)])}, "-9223372036854775808"),
    ({"dims": None}, "type 11, 2 dimensions"),
    ({"num_dims": 2**40}, "1099511627776 dimensions"),
    ({"dims": numbers([1] * 65), "num_dims": 65, "byte_strides": None}, "65 dimensions"),
    ({"num_byte_strides": 1}, "num_byte_strides: .*got 1"),
    ({"num_byte_strides": 3}, "num_byte_strides: .*got 3"),
    ({"host_buffer_semantics": 4}, "host_buffer_semantics: .*got 4"),
    ({"host_buffer_semantics": -1}, "host_buffer_semantics: .*got -1"),
    ({"data": None}, "data .*24 bytes"),
    ({"device": None}, "device nor a memory"),
    ({"device_layout": record("MemoryLayout", minor_to_major=numbers([0, 1]), minor_to_major_size=2)},
     "device_layout: .*row-major"),
    ({"device_layout": record("MemoryLayout", minor_to_major=numbers([0]), minor_to_major_size=1)},
     "layout has 1 dimensions.* 2"),
])  # fmt: skip
def test_arrays_that_are_refused(host: Host, fields: dict[str, Any], text: str) -> None:
    array = np.ones((2, 3), np.float32)
    with pytest.raises(Refused, match=text) as caught:
        host.put(array, **fields)
    expected = interface.UNIMPLEMENTED if "row-major" in text else interface.INVALID_ARGUMENT
    assert caught.value.code == expected


def test_an_array_that_is_too_large(host: Host) -> None:
    given = {"client": host.client, "shape_dims": numbers([2**50]), "shape_num_dims": 1, "device": host.devices[0]}
    for item, type in ((1, "i8"), (8, "f64")):
        with pytest.raises(Refused, match=f"out of memory: {item * 2**50} bytes") as caught:
            host.call("Client_CreateUninitializedBuffer", shape_element_type=TYPES[type], **given)
        assert caught.value.code == interface.RESOURCE_EXHAUSTED, item


def test_null_where_there_is_nothing(host: Host) -> None:
    """Arrays without elements need no data, those without dimensions no tables of them."""
    buffer = host.put(np.zeros((3, 0), np.float32), 2, data=None, byte_strides=None)
    assert host.get(buffer).shape == (3, 0)
    scalar = host.put(np.array(7, np.int32), dims=None, byte_strides=None)
    assert host.get(scalar) == 7
    huge = host.put(np.zeros(0, np.int8), dims=numbers([0, 2**60]), num_dims=2, byte_strides=None)
    assert host.call("Buffer_OnDeviceSizeInBytes", buffer=huge).on_device_size_in_bytes == 0
    host.destroy(buffer, scalar, huge)


@pytest.mark.parametrize("words, text", [
    ({"minor_to_major": numbers([0, 0])}, "minor_to_major: .*got 0"),
    ({"minor_to_major": numbers([2, 0])}, "minor_to_major: .*got 2"),
    ({"minor_to_major": numbers([-1, 0])}, "minor_to_major: .*got -1"),
    ({"minor_to_major_size": 3}, "layout has 3 dimensions.* 2"),
    ({"num_tiles": 1}, "tiles"),
    ({"type": 2}, "layout.* type 2"),
    ({"type": -1}, "layout.* type -1"),
])  # fmt: skip
def test_layouts_that_are_none(host: Host, words: dict[str, Any], text: str) -> None:
    layout = record("MemoryLayout", **{"minor_to_major": numbers([0, 1]), "minor_to_major_size": 2, **words})
    home = np.arange(64, dtype=np.int32)
    data = home[(-home.__array_interface__["data"][0] % 64) // 4 :]
    with pytest.raises(Refused, match=text):
        view(host, data, [2, 3], layout=layout)


def test_views_that_are_refused(host: Host) -> None:
    home = np.arange(64, dtype=np.int32)
    data = home[(-home.__array_interface__["data"][0] % 64) // 4 :]
    with pytest.raises(Refused, match="multiple of 16"):
        view(host, data[1:], [3])
    with pytest.raises(Refused, match="device_buffer_ptr.*12 bytes"):
        view(host, None, [3])
    with pytest.raises(Refused, match="device nor a memory"):
        view(host, data, [3], device=None)
    columns = record("MemoryLayout", minor_to_major=numbers([0, 1]), minor_to_major_size=2)
    for shape in ([2**60, 0], [0, 2**60]):
        empty = view(host, None, shape, layout=columns)
        assert host.call("Buffer_OnDeviceSizeInBytes", buffer=empty).on_device_size_in_bytes == 0
        host.destroy(empty)


def test_reading_what_is_not_there(host: Host) -> None:
    buffer = host.put(np.arange(4, dtype=np.float32))
    room = numbers([0] * 2)
    with pytest.raises(Refused, match="16 bytes.*15"):
        host.call("Buffer_ToHostBuffer", src=buffer, dst=room, dst_size=15)
    turned = record("MemoryLayout", type=interface.STRIDES, minor_to_major=numbers([-4]), minor_to_major_size=1)
    with pytest.raises(Refused, match="host_layout: .*row-major"):
        host.call("Buffer_ToHostBuffer", src=buffer, dst=room, dst_size=16, host_layout=turned)
    plain = record("MemoryLayout", minor_to_major=numbers([0]), minor_to_major_size=1)
    host.call("Buffer_ToHostBuffer", src=buffer, dst=room, dst_size=16, host_layout=plain)
    assert room.view(np.float32).tolist() == [0, 1, 2, 3]
    for offset, size in ((0, 17), (17, 0), (16, 1), (-1, 1), (8, -1), (2**62, 2**62)):
        with pytest.raises(Refused, match=f"16 bytes.*{size} bytes.*byte {offset}"):
            host.call("Buffer_CopyRawToHost", buffer=buffer, dst=room, offset=offset, transfer_size=size)
    with pytest.raises(Refused, match="external reference"):
        host.call("Buffer_DecreaseExternalReferenceCount", buffer=buffer)
    host.call("Buffer_Delete", buffer=buffer)
    deleted = {"Buffer_UnsafePointer": {}, "Buffer_OpaqueDeviceMemoryDataPointer": {}}
    deleted |= {"Buffer_IncreaseExternalReferenceCount": {}, "Buffer_CopyToDevice": {"dst_device": host.devices[0]}}
    deleted |= {
        "Buffer_CopyToMemory": {"dst_memory": host.memories[0]},
        "Buffer_CopyRawToHost": {"dst": room, "transfer_size": 4},
    }
    for name, fields in deleted.items():
        with pytest.raises(Refused, match="deleted or donated"):
            host.call(name, buffer=buffer, **fields)
    with pytest.raises(Refused, match="deleted or donated"):
        host.call("Buffer_ToHostBuffer", src=buffer, dst=room, dst_size=16)
    host.destroy(buffer)
