"""Programs on several devices, which are threads of this process that share its memory.

A program on parts (shard_map) runs as one program per device, with collectives between them. Any other program is on
whole arrays: these are assembled, the program runs once, with all threads, and its results are split again as the
program specifies, or every device has them whole. Replicas of a program have separate arrays; shardings are for one.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shlo_jit.api import compile
from shlo_jit.distributed.manual import is_manual
from shlo_jit.ir.core import Module, walk
from shlo_jit.ops import OPS
from shlo_jit.pjrt import host_records, interface
from shlo_jit.pjrt.callbacks import CALLBACKS, INSPECT, placed
from shlo_jit.pjrt.executables import Calls, Program
from shlo_jit.pjrt.nesting import in_callback
from shlo_jit.pjrt.options import CompileOptions
from shlo_jit.pjrt.ports import Port, arguments_of, main_of, results_of
from shlo_jit.pjrt.shardings import Cut, inspected_sharding, layout_of, op_sharding, recut
from shlo_jit.pjrt.table import PluginError, record_at
from shlo_jit.runtime.distributed import DistributedExecutable
from shlo_jit.text.argument_names import donated_arguments

if TYPE_CHECKING:
    from shlo_jit.pjrt.client import Client


NESTED_SECONDS = 10.0
WAKING_SECONDS = 0.2
"""Interval at which a waiting thread wakes up, since the interpreter may be shutting down."""


class MultiDeviceProgram(Program):
    """A program on several devices. Python calls it with the arrays of all devices."""

    def __init__(self, module: Module, options: CompileOptions, fingerprint: str, calls: Calls) -> None:
        super().__init__(module, options, fingerprint)
        main, devices = main_of(module), options.num_partitions
        layout = layout_of(module, main, devices, (*CALLBACKS, INSPECT))
        callbacks = [one for one in layout.inspecting if one.op.attributes["call_target_name"] in CALLBACKS]
        self.inspected = [
            (one.op.attributes["backend_config"], inspected_sharding(one, devices))
            for one in layout.inspecting
            if one.op.attributes["call_target_name"] == INSPECT
        ]
        program = placed(module, callbacks, devices)
        replicas, is_once = options.num_replicas, options.num_replicas == 1 and not _is_for_parts(program)
        self._compile = functools.partial(
            compile,
            program,
            num_replicas=replicas,
            num_partitions=1 if is_once else devices,
            transport=None if is_once else "threads",
            custom_calls=calls,
            **options.compile_options,
        )
        self.exe: Any = self._compile()
        self._has_ranks, self._changed = not is_once, threading.Condition()
        self._in_call: object = None
        self.donated = {*donated_arguments(main)}
        self.inputs: Any = self.exe.inputs
        self.outputs: Any = self.exe.outputs
        whole = arguments_of(main, self.inputs), results_of(main, self.outputs)
        self.given_cuts = cuts = layout.arguments
        self.wanted_cuts = layout.results
        if isinstance(self.exe, DistributedExecutable) and self.exe.is_global:
            arrays: Any = self.exe._arrays
            own = [None if port.number < 0 else arrays._cut_outputs[port.number] for port in whole[1]]
            self.wanted_cuts = [ours if cut is None else cut for cut, ours in zip(layout.results, own, strict=True)]
        self.arguments = [_part(port, cut) for port, cut in zip(whole[0], cuts, strict=True)]
        self.results = [_part(port, cut) for port, cut in zip(whole[1], self.wanted_cuts, strict=True)]
        if options.num_replicas > 1:
            if any(cut is not None for cut in (*cuts, *self.wanted_cuts)):
                what = f"a program with shardings has one replica, not {options.num_replicas}"
                raise PluginError(interface.UNIMPLEMENTED, what)
            return
        self.argument_shardings = [op_sharding(cut) for cut in cuts]
        self.result_shardings = [op_sharding(cut) for cut in self.wanted_cuts]

    def run(self, client: Client, args: Any) -> None:
        """Runs one call. `args` is the argument record of LoadedExecutable_Execute. Raises the program's errors."""
        devices, count = args.num_devices, args.num_args
        if devices != self.options.num_devices or count != len(self.arguments):
            expected = f"{len(self.arguments)} arguments on {self.options.num_devices} devices"
            raise PluginError(interface.INVALID_ARGUMENT, f"expected {expected}, got {count} on {devices}")
        rows = [_pointers(at, count) for at in _pointers(args.argument_lists, devices)]
        donated = self._donated(args)
        _check_given_once(rows, donated)
        with _held(client, [at for row in rows for at in row]):
            made = self._call_alone(client, rows)
            self._give(client, args, made)
        for i in donated:
            for row in rows:
                client.delete(row[i])

    def _call_alone(self, client: Client, rows: list[list[int]]) -> list[list[np.ndarray]]:
        """Runs a call exclusively. Calls of several ranks run one at a time. A nested call, by a function that the
        program calls, waits only for a limited time, since it may wait for its own caller. A call that fails ends the
        ranks, and the next call creates new ones."""
        views = self._views(client, rows)
        if not self._has_ranks:
            return self._call(*views)
        this = object()
        try:
            self._wait_for_other_calls(this)
            if self.exe is None:
                self.exe = self._compile()
            return self._call(*views)
        except BaseException:
            if self._in_call is this:
                self.exe = None
            raise
        finally:  # covers all that Ctrl-C may leave undone
            with self._changed:
                if self._in_call is this:
                    self._in_call = None
                    self._changed.notify()

    def _wait_for_other_calls(self, call: object) -> None:
        deadline = time.monotonic() + NESTED_SECONDS if in_callback() else math.inf
        with self._changed:
            while not self._changed.wait_for(lambda: self._in_call is None, timeout=WAKING_SECONDS):
                if time.monotonic() > deadline:
                    what = f"the program has been in another call for {NESTED_SECONDS:g} s, which may wait for this one"
                    raise PluginError(interface.FAILED_PRECONDITION, what)
            self._in_call = call

    def _views(self, client: Client, rows: list[list[int]]) -> tuple[list[list[np.ndarray]], list[Cut]]:
        """Returns the arguments' arrays, by argument and device, and how they are split. Raises PluginError if any is
        wrong."""
        devices_in_order = self._device_addresses(client)
        buffers = [[_BUFFER.from_address(at) for at in row] for row in rows]
        for d, row in enumerate(buffers):
            if any(buffer.device != devices_in_order[d] for buffer in row):
                raise PluginError(
                    interface.INVALID_ARGUMENT, f"an argument of part {d} is on another device than the part"
                )
        columns = [
            [_view(row[i], i, port, self.inputs[port.number].dtype) for row in buffers]
            for i, port in enumerate(self.arguments)
            if port.number >= 0
        ]
        cuts = [cut for cut, port in zip(self.given_cuts, self.arguments, strict=True) if port.number >= 0]
        return columns, cuts

    def _device_addresses(self, client: Client) -> list[int]:
        return [client.device_address(number) for row in self.options.devices for number in row]

    def _give(self, client: Client, args: Any, made: list[list[np.ndarray]]) -> None:
        """Creates buffers of the results' arrays."""
        token = np.zeros((), np.uint8)
        self._fill(
            client,
            args,
            lambda d, port, device: client.buffer_of(token if port.number < 0 else made[port.number][d], port, device),
        )

    def return_deleted(self, client: Client, args: Any) -> None:
        self._fill(client, args, lambda d, port, device: client.deleted_buffer(port, device))

    def _fill(self, client: Client, args: Any, make: Callable[[int, Port, int], int]) -> None:
        """Passes the results' buffers to the host. `make` returns the address of one, by device number, port and
        device."""
        devices_in_order = self._device_addresses(client)
        devices = len(devices_in_order)
        for d, (device, place) in enumerate(zip(devices_in_order, _pointers(args.output_lists, devices), strict=True)):
            out = (ctypes.c_void_p * len(self.results)).from_address(place)
            for i, port in enumerate(self.results):
                out[i] = make(d, port, device)
        if args.device_complete_events:
            ready = client.library.addresses["shlo_pjrt_ready"]
            (ctypes.c_void_p * devices).from_address(args.device_complete_events)[:] = [ready] * devices

    def costs(self) -> dict[str, float]:
        """Returns the costs of each device."""
        return (self.exe or self._compile()).cost_analysis()

    def _call(self, columns: list[list[np.ndarray]], cuts: list[Cut]) -> list[list[np.ndarray]]:
        """Runs the program on the arguments' arrays, by argument and device. Returns those of the results."""
        wanted = [cut for cut, port in zip(self.wanted_cuts, self.results, strict=True) if port.number >= 0]
        devices = self.options.num_partitions
        if isinstance(self.exe, DistributedExecutable):
            arrays: Any = self.exe._arrays
            inner = ((None,) * len(cuts), (None,) * len(wanted)) if arrays is None else (
                arrays._cut_inputs, arrays._cut_outputs)  # fmt: skip
            given = [recut(parts, cut, own) for parts, cut, own in zip(columns, cuts, inner[0], strict=True)]
            ranks = [front.converted([parts[d] for parts in given]) for d, front in enumerate(self.exe._ranks)]
            rows = [r if isinstance(r, tuple) else (r,) for r in self.exe._run(ranks)]
            made = [[row[i] for row in rows] for i in range(len(wanted))]
            return [recut(parts, own, cut) for parts, own, cut in zip(made, inner[1], wanted, strict=True)]
        whole = [recut(parts, cut, None)[0] for parts, cut in zip(columns, cuts, strict=True)]
        results = self.exe(*whole)
        results = results if isinstance(results, tuple) else (results,)
        return [recut([array] * devices, None, cut) for array, cut in zip(results, wanted, strict=True)]

    def _donated(self, args: Any) -> set[int]:
        """Returns the arguments that this call takes."""
        options = record_at("ExecuteOptions", args.options)
        return self.donated - {*_pointers(options.non_donatable_input_indices, options.num_non_donatable_input_indices)}


def _is_for_parts(module: Module) -> bool:
    """Whether a program describes what one device of several does."""
    for op in walk(module.body):
        record = OPS.get(op.name)
        if is_manual(op) or (record is not None and record.has("collective")):
            return True
    return False


_BUFFER = host_records.structure(host_records.BUFFER)


def _check_given_once(rows: list[list[int]], donated: set[int]) -> None:
    """Raises PluginError if a buffer is donated and is another argument too."""
    counts = Counter(at for row in rows for at in row)
    if any(counts[row[i]] > 1 for row in rows for i in donated):
        raise PluginError(interface.INVALID_ARGUMENT, "an array that is donated is passed a second time")


@contextmanager
def _held(client: Client, buffers: Sequence[int]) -> Iterator[None]:
    """Holds buffers while their memory is accessed."""
    held: list[int] = []
    try:
        for buffer in buffers:
            if not client.functions.hold(buffer):
                raise PluginError(interface.INVALID_ARGUMENT, "an argument has been deleted or donated")
            held.append(buffer)
        yield
    finally:
        for buffer in held:
            client.functions.let_go(buffer)


def _pointers(address: int, count: int) -> list[int]:
    return [*(ctypes.c_int64 * count).from_address(address)] if count else []


def _part(port: Port, cut: Cut) -> Port:
    """Returns a port of the whole program as it is on one device."""
    if cut is None or port.number < 0:
        return port
    shape, count = cut.part_shape(port.shape), math.prod(port.shape)
    return port._replace(shape=shape, nbytes=port.nbytes * math.prod(shape) // max(1, count))


def _view(buffer: Any, index: int, port: Port, dtype: np.dtype) -> np.ndarray:
    """Returns a buffer's memory as an array. Raises PluginError if it is not what the program expects."""
    shape = tuple(_pointers(buffer.dims, buffer.rank))
    if (buffer.type, shape) != (port.type, port.shape):
        what = f"the program expects {_shown(port.type, port.shape)}, got {_shown(buffer.type, shape)}"
        raise PluginError(interface.INVALID_ARGUMENT, f"argument {index}: {what}")
    memory = (ctypes.c_char * max(1, port.nbytes)).from_address(buffer.data)
    return np.ndarray(port.shape, dtype, memory)  # type: ignore[arg-type]  ctypes arrays are buffers


def _shown(type: int, shape: Sequence[int]) -> str:
    names = {number: name for name, number in interface.ELEMENT_TYPES.items()}
    return "x".join(map(str, (*shape, names[type])))
