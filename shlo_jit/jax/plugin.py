"""JAX platform `shlo`: `JAX_PLATFORMS=shlo python script.py` runs a JAX program on shlo_jit.

Once installed, it has a lower priority than the CPU platform. If the user requests it, it replaces the CPU platform
under both names, and XLA's is `xla_cpu`: host callbacks and some JAX functions need a backend named `cpu`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import os
import threading
import weakref
from typing import Any

from shlo_jit.jax.host_calls import host_calls
from shlo_jit.pjrt.callbacks import CALLBACKS
from shlo_jit.pjrt.plugin import plugin
from shlo_jit.runtime.ffi.state_types import register_ffi_type

NAME, CPU, XLA_CPU = "shlo", "cpu", "xla_cpu"
PRIORITY = -100
_tickets = itertools.count(1)


def initialize() -> None:
    """Registers the platform. JAX calls this for every installed plugin, and twice for one that it finds twice."""
    from jax._src import compiler
    from jax._src import xla_bridge as bridge

    if NAME in bridge._backend_factories or CPU in bridge._alias_to_platforms.get(NAME, ()):
        return
    asked = _requested_platforms()
    if asked and NAME not in asked:  # JAX would not use it, and starts faster without
        return
    made = plugin(_device_count)
    bridge._nonexperimental_plugins.add(NAME)
    bridge.register_plugin(NAME, c_api=made.capsule, priority=PRIORITY)
    factories = bridge._backend_factories
    if NAME in asked:
        factories[XLA_CPU] = factories[CPU]
        factories[CPU] = factories.pop(NAME)
        bridge._alias_to_platforms[NAME] = [CPU]
    else:  # a program that did not request it, such as one in several processes, runs without it if it fails to start
        factories[NAME] = dataclasses.replace(factories[NAME], fail_quietly=True)
    _take_handlers(made.client)
    _report_shardings(made.client)
    _pass_callbacks(compiler)
    _do_not_partition()
    _copy_from_others(made.view_alignment)


def _take_handlers(client: Any) -> None:
    """Makes the handlers callable that `jax.ffi.register_ffi_target` was given for the CPU. JAX holds them back until a
    receiver is registered."""
    from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue] - it has no stubs

    def register_type(name: str, ids: Any) -> None:
        _jax.register_custom_type(name, ids)
        register_ffi_type(name, ids)

    xla_client.register_custom_call_handler(CPU, _jax.register_custom_call_target)
    xla_client.register_custom_type_handler(CPU, register_type)

    def handlers() -> dict[str, Any]:
        """Returns the handlers, except those that only XLA's own programs can call."""
        found = xla_client.custom_call_targets("Host")
        return {name: found[name] for name in found if name not in CALLBACKS}

    client.foreign_handlers = handlers


def _report_shardings(client: Any) -> None:
    """Reports shardings to `jax.debug.inspect_array_sharding`, which leaves the address of its function in the program.
    We look it up among the functions that are alive."""
    from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue] - it has no stubs

    alive: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
    original = _jax.encode_inspect_sharding_callback

    def encode_inspect_sharding_callback(callback: Any) -> bytes:
        key = original(callback)
        alive[key] = callback
        return key

    def report(key: str, sharding: bytes) -> None:
        callback = alive.get(key.encode("utf-8", "surrogateescape"))
        if callback is not None:
            proto = xla_client.OpSharding()
            proto.ParseFromString(sharding)
            callback(xla_client.HloSharding.from_proto(proto))

    xla_client.encode_inspect_sharding_callback = encode_inspect_sharding_callback
    client.report_sharding = report


def _do_not_partition() -> None:
    """Lowers `custom_partitioning` without partitioning. Its rules are for XLA's partitioner, which asks for them as it
    works. Here, the function is part of the program as it is written for whole arrays."""
    from jax._src import core, custom_partitioning
    from jax._src.interpreters import mlir

    original = custom_partitioning._custom_partitioning_lowering_rule

    def lower(ctx: Any, *values: Any, call: Any, **more: Any) -> Any:
        backend = ctx.module_context.get_backend(optional=True)
        if backend is None or "shlo_jit" not in backend.platform_version:
            return original(ctx, *values, call=call, **more)
        return mlir.lower_fun(core.jaxpr_as_fun(call), multiple_results=True)(ctx, *values)

    mlir.register_lowering(custom_partitioning.custom_partitioning_p, lower, platform=CPU)


def _requested_platforms() -> list[str]:
    """Returns the platforms that the user requests; empty for any."""
    import jax

    config: Any = jax.config
    return [name for name in (config.jax_platforms or os.environ.get("JAX_PLATFORMS", "")).split(",") if name]


def _device_count() -> int:
    """Returns the number of devices that JAX would create for the CPU."""
    import jax

    config: Any = jax.config
    asked = config.jax_num_cpu_devices
    if asked > 0:
        return asked
    flags = [flag.partition("=") for flag in os.environ.get("XLA_FLAGS", "").split()]
    counts = [value for name, _, value in flags if name == "--xla_force_host_platform_device_count"]
    return int(counts[-1]) if counts and counts[-1].isdigit() else 1


def _copy_from_others(view_alignment: ctypes.c_int64) -> None:
    """Makes JAX copy another library's array when a copy is requested. JAX's own way is not open to plugins: here, a
    view of any alignment is made and copied. An array at an address that no program may read from is also copied."""
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue] - it has no stubs

    original, lock = _jax.dlpack_managed_tensor_to_buffer, threading.Lock()

    def dlpack_managed_tensor_to_buffer(tensor: Any, device: Any, stream: Any, copy: Any = None, *more: Any) -> Any:
        if "shlo_jit" not in device.client.platform_version:
            return original(tensor, device, stream, copy, *more)
        with lock:
            before = view_alignment.value
            view_alignment.value = before if copy is False else 1
            try:
                found = original(tensor, device, stream, False, *more)
            finally:
                view_alignment.value = before
        is_odd = found.unsafe_buffer_pointer() % min(found.dtype.itemsize, 8) != 0
        return found.copy() if copy or is_odd else found

    _jax.dlpack_managed_tensor_to_buffer = dlpack_managed_tensor_to_buffer


def _pass_callbacks(compiler: Any) -> None:
    """Passes Python callbacks to the plugin. JAX compiles a program with the Python functions that it calls, but the C
    interface has no parameter for them. They are stored under a number, which is passed as an option."""
    original = compiler.backend_compile_and_load

    def backend_compile_and_load(backend: Any, module: Any, devices: Any, options: Any, host_callbacks: Any) -> Any:
        if not host_callbacks or "shlo_jit" not in backend.platform_version:
            return original(backend, module, devices, options, host_callbacks)
        number, client = next(_tickets), plugin(_device_count).client
        client.tickets[number] = host_calls(host_callbacks)
        before = options.env_option_overrides
        options.env_option_overrides = [*before, ("shlo_jit_ticket", number)]
        try:
            return original(backend, module, devices, options, [])
        finally:
            options.env_option_overrides = before
            client.tickets.pop(number, None)

    compiler.backend_compile_and_load = backend_compile_and_load
