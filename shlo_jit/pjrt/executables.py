"""A program that a framework has compiled: our executable, and the record by which machine code runs it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit.api import compile, parse
from shlo_jit.ir.core import Module, function_type
from shlo_jit.ir.types import TensorType
from shlo_jit.pjrt import host_records, interface
from shlo_jit.pjrt.keep_alive import Kept
from shlo_jit.pjrt.options import CompileOptions
from shlo_jit.pjrt.ports import Port, arguments_of, main_of, results_of
from shlo_jit.pjrt.printable_program import shown
from shlo_jit.pjrt.table import PluginError
from shlo_jit.runtime.distributed import signature
from shlo_jit.runtime.executable import MemoryAnalysis
from shlo_jit.text.argument_names import donated_arguments

if TYPE_CHECKING:
    from shlo_jit.pjrt.client import Client


class Source(NamedTuple):
    """Source of a program: an artifact, and a CompileOptionsProto."""

    code: bytes
    options: bytes


Calls = dict[str, Any]
"""Custom calls by name."""


class Program:
    """A compiled program with its properties. `record_for` returns its record in the interface."""

    arguments: list[Port]
    results: list[Port]
    donated: set[int]
    """Arguments that the program may take."""
    argument_shardings: Sequence[bytes] = ()
    """Shardings of the arguments on several devices, an OpSharding each."""
    result_shardings: Sequence[bytes] = ()
    inspected: Sequence[tuple[str, bytes]] = ()
    """Shardings that the framework requested: the receiver, and an OpSharding."""
    source: Source
    """Source of the program, apart from custom calls."""
    calls: frozenset[str]
    """Names of the custom calls that it was compiled with."""
    is_bound: bool
    """Whether some of these are functions of this process that belong to this program."""

    def __init__(self, module: Module, options: CompileOptions, fingerprint: str) -> None:
        self.options, self.fingerprint = options, fingerprint
        self.kept = Kept()
        self.name = str(module.op.attributes.get("sym_name", "main"))

    @property
    def memory(self) -> MemoryAnalysis:
        arguments, results = (sum(p.nbytes for p in ports) for ports in (self.arguments, self.results))
        return MemoryAnalysis(0, arguments, results, 0, 0)

    def record_for(self, number: int, client: Client) -> int:
        """Returns the address of the record; it lives as long as the program."""
        device = client.device_address(self.options.devices[0][0])
        self.record = host_records.structure(host_records.EXECUTABLE)(
            device=device,
            argument_count=len(self.arguments),
            result_count=len(self.results),
            num_replicas=self.options.num_replicas,
            num_partitions=self.options.num_partitions,
            references=1,
            number=number,
            fail=client.fail,
            run_many=client.run_many,
        )
        return ctypes.addressof(self.record)

    def run(self, client: Client, args: Any) -> None:
        """Runs a call on several devices."""
        raise PluginError(interface.INVALID_ARGUMENT, f"the program is for one device, not {args.num_devices}")

    def return_deleted(self, client: Client, args: Any) -> None:
        """Returns deleted results from a call on several devices that was interrupted."""
        raise NotImplementedError

    def failure(self, status: int) -> BaseException:
        """Returns the reason why this thread's last call stopped."""
        raise NotImplementedError

    @cached_property
    def shown(self) -> bytes:
        """Program that a device runs, as a StableHLO artifact for people."""
        return shown(parse(self.source.code), self.options.num_partitions) or self.source.code

    def costs(self) -> dict[str, float]:
        """Returns lower bounds of the program's computations and memory traffic per device, by JAX's names."""
        raise NotImplementedError


class SingleProgram(Program):
    """A program on one device: machine code calls it."""

    def __init__(self, module: Module, options: CompileOptions, fingerprint: str, calls: Calls) -> None:
        super().__init__(module, options, fingerprint)
        main = main_of(module)
        self.donated = {*donated_arguments(main)}
        tensors = [i for i, type in enumerate(function_type(main).inputs) if isinstance(type, TensorType)]
        taken = tuple(number for number, i in enumerate(tensors) if i in self.donated)
        self.exe: Any = compile(module, custom_calls=calls, donate=taken, **options.compile_options)
        self.instance, self.compiled = self.exe._front.instance, self.exe._front.program
        self.arguments = arguments_of(main, [signature(p) for p in self.compiled.inputs])
        self.results = results_of(main, [signature(p) for p in self.compiled.outputs])

    @property
    def memory(self) -> MemoryAnalysis:
        return self.exe.memory_analysis()

    def costs(self) -> dict[str, float]:
        return self.exe.cost_analysis()

    def record_for(self, number: int, client: Client) -> int:
        """Returns the address of the record; it lives as long as the program."""
        aliases = dict(self.compiled.output_aliases)
        place_of = {p.number: i for i, p in enumerate(self.arguments) if p.number >= 0}
        taking = {argument: output for output, argument in aliases.items()}
        argument_rows = (host_records.structure(host_records.ARGUMENT) * max(1, len(self.arguments)))()
        for i, (row, port) in enumerate(zip(argument_rows, self.arguments, strict=False)):
            row.input, row.nbytes, row.type, row.rank = port.number, port.nbytes, port.type, len(port.shape)
            row.dims = self.kept.numbers(port.shape)
            row.is_donated, row.result = i in self.donated and port.number >= 0, taking.get(port.number, -1)
        result_rows = (host_records.structure(host_records.RESULT) * max(1, len(self.results)))()
        for row, port in zip(result_rows, self.results, strict=False):
            row.output, row.nbytes, row.type, row.rank = port.number, port.nbytes, port.type, len(port.shape)
            row.dims = self.kept.numbers(port.shape)
            row.memory = client.memory_address(self.options.devices[0][0], port.memory_kind)
            row.argument = place_of[aliases[port.number]] if port.number in aliases else -1
        address = super().record_for(number, client)
        record = self.record
        record.main, record.instance = self.instance.loaded.entry, self.instance.address
        record.arena_bytes = self.instance.memory_bytes
        record.arguments, record.results = self.kept.keep(argument_rows), self.kept.keep(result_rows)
        record.input_count, record.output_count = len(self.compiled.inputs), len(self.compiled.outputs)
        return address

    def failure(self, status: int) -> BaseException:
        """Returns the reason why this thread's last call stopped."""
        return self.instance.failure(status)
