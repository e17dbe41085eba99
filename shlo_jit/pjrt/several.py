"""Programs on several devices, which are threads of this process that see each other's memory.

What is written for parts (shard_map) runs as one program a device, with collectives between them. Any other program is
about whole arrays: these are put together, the program runs once, with all threads, and its results are cut again as
the program says, or every device has them whole. Replicas of a program have arrays of their own; shardings are for one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shlo_jit.api import compile
from shlo_jit.codegen.program import TimedStep
from shlo_jit.distributed.manual import is_manual
from shlo_jit.ir.core import Module, walk
from shlo_jit.ops import OPS
from shlo_jit.pjrt import interface, records
from shlo_jit.pjrt.callbacks import CALLBACKS, INSPECT, placed
from shlo_jit.pjrt.executables import Calls, Program
from shlo_jit.pjrt.options import CompileOptions
from shlo_jit.pjrt.ports import Port, arguments_of, donated_of, main_of, results_of
from shlo_jit.pjrt.shardings import Cut, layout_of, look_sharding, op_sharding, recut
from shlo_jit.pjrt.table import PluginError
from shlo_jit.runtime.distributed import DistributedExecutable

if TYPE_CHECKING:
    from shlo_jit.pjrt.client import Client


class SeveralProgram(Program):
    """Called by Python, with the arrays of all devices."""

    def __init__(self, module: Module, options: CompileOptions, fingerprint: str, calls: Calls) -> None:
        super().__init__(module, options, fingerprint)
        main, devices = main_of(module), options.num_partitions
        layout = layout_of(module, main, devices, (*CALLBACKS, INSPECT))
        callbacks = [look for look in layout.looks if look.op.attributes["call_target_name"] in CALLBACKS]
        self.inspected = [
            (look.op.attributes["backend_config"], look_sharding(look, devices))
            for look in layout.looks
            if look.op.attributes["call_target_name"] == INSPECT
        ]
        program = placed(module, callbacks, devices)
        replicas, is_once = options.num_replicas, options.num_replicas == 1 and not _is_for_parts(program)
        self.exe = compile(
            program,
            num_replicas=replicas,
            num_partitions=1 if is_once else devices,
            transport=None if is_once else "threads",
            custom_calls=calls,
        )
        self.donated = donated_of(main)
        self.inputs: Any = self.exe.inputs
        self.outputs: Any = self.exe.outputs
        whole = arguments_of(main, self.inputs), results_of(main, self.outputs)
        self.given_cuts, self.wanted_cuts = cuts, _ = layout.arguments, layout.results
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
        """One call: `args` as LoadedExecutable_Execute gets them. Raises what the program does."""
        devices, count = args.num_devices, args.num_args
        if devices != self.options.num_devices or count != len(self.arguments):
            expected = f"{len(self.arguments)} arguments on {self.options.num_devices} devices"
            raise PluginError(interface.INVALID_ARGUMENT, f"expected {expected}, got {count} on {devices}")
        rows = [_pointers(at, count) for at in _pointers(args.argument_lists, devices)]
        with _held(client, [at for row in rows for at in row]):
            self._run_held(client, args, rows)

    def _run_held(self, client: Client, args: Any, rows: list[list[int]]) -> None:
        devices = len(rows)
        homes = [client.device_address(number) for row in self.options.devices for number in row]
        buffers = [[_BUFFER.from_address(at) for at in row] for row in rows]
        for d, row in enumerate(buffers):
            if any(buffer.device != homes[d] for buffer in row):
                raise PluginError(interface.INVALID_ARGUMENT, f"an argument of part {d} is on another device than that")
        columns = [
            [_view(row[i], port, self.inputs[port.number].dtype) for row in buffers]
            for i, port in enumerate(self.arguments)
            if port.number >= 0
        ]
        cuts = [cut for cut, port in zip(self.given_cuts, self.arguments, strict=True) if port.number >= 0]
        made = self._call(columns, cuts)
        for d, (home, place) in enumerate(zip(homes, _pointers(args.output_lists, devices), strict=True)):
            out = (ctypes.c_void_p * len(self.results)).from_address(place)
            for i, port in enumerate(self.results):
                array = np.zeros((), np.uint8) if port.number < 0 else made[port.number][d]
                out[i] = client.buffer_of(array, port, home)
        self._delete_donated(client, args, rows)
        if args.device_complete_events:
            ready = client.library.addresses["shlo_pjrt_ready"]
            (ctypes.c_void_p * devices).from_address(args.device_complete_events)[:] = [ready] * devices

    def steps(self) -> Sequence[TimedStep]:
        if isinstance(self.exe, DistributedExecutable):
            assert self.exe._remakes is not None
            return self.exe._remakes.steps(0)
        return super().steps()

    def _call(self, columns: list[list[np.ndarray]], cuts: list[Cut]) -> list[list[np.ndarray]]:
        """The arguments' arrays, by argument and device, to those of the results."""
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

    def _delete_donated(self, client: Client, args: Any, rows: list[list[int]]) -> None:
        options = interface.structure("ExecuteOptions").from_address(args.options)
        kept = ctypes.c_int64 * options.num_non_donatable_input_indices
        keep = set(kept.from_address(options.non_donatable_input_indices)) if kept._length_ else set()
        for i in self.donated - keep:
            for row in rows:
                client.delete(row[i])


def _is_for_parts(module: Module) -> bool:
    """Whether a program says what one device of several does."""
    for op in walk(module.body):
        record = OPS.get(op.name)
        if is_manual(op) or (record is not None and record.has("collective")):
            return True
    return False


_BUFFER = records.structure(records.BUFFER)


@contextmanager
def _held(client: Client, buffers: Sequence[int]) -> Iterator[None]:
    """While their memory is looked at."""
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
    """A port of the whole program, on one device."""
    if cut is None or port.number < 0:
        return port
    shape = cut.part_shape(port.shape)
    count = int(np.prod(port.shape, dtype=np.int64))
    return port._replace(
        shape=shape, nbytes=port.nbytes // (count // max(1, int(np.prod(shape, dtype=np.int64)))) if count else 0
    )


def _view(buffer: Any, port: Port, dtype: np.dtype) -> np.ndarray:
    """A buffer's memory as an array."""
    if buffer.nbytes != port.nbytes:
        raise PluginError(interface.INVALID_ARGUMENT, "an argument has another size than the program expects")
    memory = (ctypes.c_char * max(1, port.nbytes)).from_address(buffer.data)
    return np.ndarray(port.shape, dtype, memory)  # type: ignore[arg-type]  ctypes arrays are buffers
