"""Programs, arrays and errors on one device."""

from __future__ import annotations

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError


def test_the_platform_is_ours() -> None:
    device = jax.devices()[0]
    assert "shlo_jit" in device.client.platform_version
    assert (device.platform, len(jax.devices())) == ("cpu", 4)
    assert [m.kind for m in device.addressable_memories()] == ["device", "pinned_host", "unpinned_host"]


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64", "int4", "float8_e4m3fn"]
)
def test_arrays_of_every_kind_go_there_and_back(dtype: str) -> None:
    for shape in ((), (0,), (3,), (4, 5), (2, 0, 3), (7, 1, 2)):
        x = (np.arange(int(np.prod(shape))) % 2).reshape(shape).astype(jnp.dtype(dtype))
        for given in (x, np.asfortranarray(x), x[::-1] if x.ndim else x):
            there = jax.device_put(given)
            assert (there.shape, there.dtype) == (given.shape, given.dtype)
            np.testing.assert_array_equal(np.asarray(there), given)
            np.testing.assert_array_equal(np.asarray(jax.jit(lambda v: v.T)(there)), given.T)


def test_arrays_stay_where_they_are() -> None:
    x = np.arange(100_000, dtype=np.float32)
    there = jax.device_put(x)
    assert there.unsafe_buffer_pointer() == x.ctypes.data
    back = np.asarray(jax.jit(lambda v: v + 1)(there))
    assert not back.flags.owndata
    view = x[1::2]
    assert jax.device_put(view).unsafe_buffer_pointer() != view.ctypes.data


def test_a_donated_array_is_gone_and_its_memory_the_result() -> None:
    f = jax.jit(lambda a, b: (a + b, a * b), donate_argnums=0)
    x, y = jnp.arange(1000.0) + 0, jnp.ones(1000)
    before = x.unsafe_buffer_pointer()
    first, second = f(x, y)
    assert x.is_deleted()
    assert before in (first.unsafe_buffer_pointer(), second.unsafe_buffer_pointer())
    np.testing.assert_array_equal(np.asarray(first), np.arange(1000.0, dtype=np.float32) + 1)
    with pytest.raises((ValueError, RuntimeError), match="deleted"):
        f(x, y)


@pytest.mark.parametrize("devices", [1, 2])
def test_an_array_may_be_deleted_while_a_program_reads_it(devices: int) -> None:
    started, deleted = threading.Event(), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        started.set()
        assert deleted.wait(60)
        return x

    place = jax.sharding.NamedSharding(jax.make_mesh((devices,), ("d",)), jax.sharding.PartitionSpec("d"))
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    f = jax.jit(lambda x, one: x * jax.pure_callback(wait, shape, one), out_shardings=place)
    x = jax.block_until_ready(jax.device_put(jnp.ones((1 << 20,)) + 0, place))
    results: list[jax.Array] = []
    caller = threading.Thread(target=lambda: results.append(f(x, jnp.float32(1))))
    caller.start()
    assert started.wait(60)
    x.delete()
    others = [jax.device_put(jnp.full((1 << 20,), 7.0) + i, place) for i in range(4)]
    jax.block_until_ready(others)
    deleted.set()
    caller.join()
    np.testing.assert_array_equal(np.asarray(results[0]), np.ones(1 << 20, np.float32))
    with pytest.raises((ValueError, RuntimeError), match="deleted"):
        f(x, jnp.float32(1))


def test_what_others_look_at_is_not_written_over() -> None:
    f = jax.jit(lambda a: a * 2, donate_argnums=0)
    given = np.arange(5000, dtype=np.float32)
    kept = given.copy()
    f(jax.device_put(given))
    np.testing.assert_array_equal(given, kept)
    x = jnp.arange(5000.0) + 0
    seen = np.asarray(x)
    result = f(x)
    np.testing.assert_array_equal(seen, kept)
    np.testing.assert_array_equal(np.asarray(result), kept * 2)


@pytest.mark.parametrize("given", ["twice", "and used"])
def test_one_array_as_two_arguments_of_which_one_is_donated(given: str) -> None:
    donated = (0, 1) if given == "twice" else (0,)
    f = jax.jit(lambda a, b: (a + b, a - b), donate_argnums=donated)
    x = jnp.arange(10.0) + 0
    with pytest.raises(JaxRuntimeError, match="donate"):
        f(x, x)
    assert not x.is_deleted()
    np.testing.assert_array_equal(np.asarray(x), np.arange(10.0))


def test_compiler_options() -> None:
    f = jax.jit(lambda a: a + 1)
    assert f.lower(1.0).compile({"xla_embed_ir_in_executable": True})(2.0) == 3
    with pytest.raises(JaxRuntimeError, match="No such compile option: 'what'"):
        f.lower(1.0).compile({"what": True})


def test_activations_are_rounded_where_that_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    x, q = rng.standard_normal((2, 512), np.float32), rng.integers(-128, 128, (512, 256), np.int8)
    f = jax.jit(lambda x, q: x @ q.astype(jnp.float32)).lower(x, q)
    exact, rounded = f.compile()(x, q), f.compile({"shlo_jit_round_activations": "int8"})(x, q)
    assert 0 < np.abs(exact - rounded).max() < 0.02 * np.abs(exact).max()
    with pytest.raises(JaxRuntimeError, match="round_activations: expected None or 'int8', got 'int4'"):
        f.compile({"shlo_jit_round_activations": "int4"})


def test_rows_are_reproducible_where_that_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((16, 900), np.float32), rng.standard_normal((900, 40), np.float32)
    f = jax.jit(jnp.matmul)
    one, all_rows = (f.lower(a, w).compile({"shlo_jit_reproducible": True})(a, w) for a in (x[:1], x))
    np.testing.assert_array_equal(one[0], all_rows[0])
    with pytest.raises(JaxRuntimeError, match="reproducible: expected True or False, got 'yes'"):
        f.lower(x, w).compile({"shlo_jit_reproducible": "yes"})


def test_what_is_known_of_a_program() -> None:
    compiled = jax.jit(lambda a: (a @ a).sum(0)).lower(jnp.ones((64, 64))).compile()
    sizes = compiled.memory_analysis()
    assert (sizes.argument_size_in_bytes, sizes.output_size_in_bytes) == (4 * 64 * 64, 4 * 64)
    assert sizes.temp_size_in_bytes > 0


def test_threads_may_call_one_program() -> None:
    f = jax.jit(lambda a: jnp.cumsum(jnp.sin(a) @ a))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((50, 50), np.float32))
    want = np.asarray(f(x))
    wrong = []

    def work() -> None:
        for _ in range(200):
            if np.asarray(f(x)).tobytes() != want.tobytes():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_given_back() -> None:
    import resource

    f = jax.jit(lambda a: a + 1)
    x = jnp.zeros(1 << 20)

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(20):
        x = f(x)
    before = peak()
    for _ in range(500):
        x = f(x)
        np.asarray(x)
        jax.device_put(np.zeros(1 << 18, np.float32))
    gc.collect()
    assert peak() - before < 32 << 10  # KiB


def test_dlpack() -> None:
    x = jnp.arange(12.0).reshape(3, 4)
    seen = np.from_dlpack(x)
    assert seen.ctypes.data == x.unsafe_buffer_pointer()
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    for array in (given, given.T):
        np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(array)), array)
        np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(array, copy=True)), array)


def test_misaligned_memory_of_others() -> None:
    """Memory that is not aligned to the element size is copied, or refused if a copy is not permitted."""
    room = np.zeros(128, np.uint8)
    for dtype, off in ((np.float32, 1), (np.float32, 2), (np.float32, 4), (np.complex64, 4), (np.complex64, 8)):
        start = -room.ctypes.data % 64 + off
        array = room[start : start + 24].view(dtype)
        array[:] = np.arange(array.size)
        x = jax.dlpack.from_dlpack(array)
        place, size = x.unsafe_buffer_pointer(), np.dtype(x.dtype).itemsize
        assert place % size == 0 and (place == array.ctypes.data) == (off % size == 0)
        np.testing.assert_array_equal(np.asarray(x), array)
        with pytest.raises(JaxRuntimeError, match="multiple of 16"):
            jax.dlpack.from_dlpack(array, copy=False)


def test_arrays_lie_row_major() -> None:
    x = jnp.ones((2, 3, 4))
    f = jax.jit(lambda v, w: (v.T, w + 1))
    compiled = f.lower(x, 1.0).compile()
    orders = [
        format.layout.major_to_minor for format in jax.tree.leaves((compiled.input_formats, compiled.output_formats))
    ]
    assert orders == [(0, 1, 2), (), (0, 1, 2), ()]
    assert f(x, 1.0)[0].format.layout.major_to_minor == (0, 1, 2)


def test_layouts_are_not_read_from_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX requests them after each compilation; making HLO of the program takes longer than compiling a small one."""
    from shlo_jit.pjrt.compilation import Source

    executable = jax.jit(lambda v: v * 3).lower(jnp.ones(5)).compile().runtime_executable()
    monkeypatch.setattr(Source, "code", property(lambda self: pytest.fail("the program is asked for")))
    assert len(executable.get_parameter_layouts()) == len(executable.get_output_layouts()) == 1
