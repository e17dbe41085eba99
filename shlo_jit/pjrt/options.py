"""Options of a compilation by a framework: the fields of CompileOptionsProto that matter here."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from shlo_jit.check_options import flag, rounded_type
from shlo_jit.pjrt import interface, proto
from shlo_jit.pjrt.table import PluginError

BUILD_OPTIONS, OVERRIDES = 3, 7
NUM_REPLICAS, NUM_PARTITIONS, DEVICE_ASSIGNMENT = 4, 5, 9
"""Fields of the build options."""
REPLICA_COUNT, COMPUTATION_COUNT, COMPUTATION_DEVICES = 1, 2, 3
"""Fields of the assignment. Field 1 of each computation has the devices of its replicas."""
OWN_PREFIX = "shlo_jit_"
USER_OPTIONS = ("round_activations", "reproducible")
"""Options of `shlo_jit.compile`, written with the prefix."""
TEXTS = frozenset(
    "as dir dump file filter flags isa kind level name options passes path re regex strategy to type".split()
)
"""Words in the names of XLA options whose values are texts; the values of all others are numbers."""


class CompileOptions(NamedTuple):
    """Numbers of replicas and partitions, and their devices."""

    num_replicas: int
    num_partitions: int
    devices: tuple[tuple[int, ...], ...]
    """Device ids by replica and partition."""
    own: dict[str, Any]
    """Options of shlo_jit, by name without the prefix."""

    @property
    def num_devices(self) -> int:
        return self.num_replicas * self.num_partitions

    @property
    def compile_options(self) -> dict[str, Any]:
        """Options of `shlo_jit.compile` that users may give."""
        return {name: self.own[name] for name in USER_OPTIONS if name in self.own}

    @property
    def device_assignment(self) -> bytes:
        """A DeviceAssignmentProto."""
        out = proto.write(REPLICA_COUNT, self.num_replicas) + proto.write(COMPUTATION_COUNT, self.num_partitions)
        for partition in range(self.num_partitions):
            ids = proto.write_packed(1, (row[partition] for row in self.devices))
            out += proto.write(COMPUTATION_DEVICES, ids)
        return out


def read_options(data: bytes, device_count: int) -> CompileOptions:
    """Parses the options. Raises PluginError for unknown options, for devices that do not exist, and for bytes that are
    not a CompileOptionsProto."""
    try:
        return _read(data, device_count)
    except (ValueError, struct.error, AttributeError, TypeError) as error:
        what = f"the options of a compilation are not a CompileOptionsProto: {error}"
        raise PluginError(interface.INVALID_ARGUMENT, what) from error


def _read(data: bytes, device_count: int) -> CompileOptions:
    top = proto.last(data)
    build = proto.last(proto.message(top, BUILD_OPTIONS))
    replicas, partitions = (max(1, _number(build, n)) for n in (NUM_REPLICAS, NUM_PARTITIONS))
    if replicas * partitions > device_count:
        what = f"a program of {replicas} replicas of {partitions} partitions was compiled for {device_count} devices"
        raise PluginError(interface.INVALID_ARGUMENT, what)
    own: dict[str, Any] = {}
    for number, value in proto.fields(data):
        if number == OVERRIDES and isinstance(value, bytes):
            name, setting = _override(value)
            if name.startswith(OWN_PREFIX):
                own[name.removeprefix(OWN_PREFIX)] = setting
                _check_own(name.removeprefix(OWN_PREFIX), setting)
            else:
                _check_foreign(name, setting)
    devices = _devices(proto.message(build, DEVICE_ASSIGNMENT), replicas, partitions)
    last = max(id for row in devices for id in row)
    if last >= device_count:
        what = f"a program is for device {last}, but there are {device_count} devices"
        raise PluginError(interface.INVALID_ARGUMENT, what)
    return CompileOptions(replicas, partitions, devices, own)


def _number(data: dict[int, int | bytes], number: int) -> int:
    """Returns a numeric field; 0 if it is missing. Raises ValueError for bytes."""
    value = data.get(number, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is expected to be a number")
    return value


def _check_own(name: str, value: Any) -> None:
    """Raises PluginError for an invalid value of an option that users give."""
    if name in USER_OPTIONS:
        try:
            rounded_type(value) if name == "round_activations" else flag(name, value)
        except (TypeError, ValueError) as error:
            raise PluginError(interface.INVALID_ARGUMENT, f"{OWN_PREFIX}{error}") from None


def _check_foreign(name: str, value: Any) -> None:
    """Checks an option of another owner. XLA's own options change how XLA compiles, not what a program means, so they
    are accepted and ignored if they can be XLA's."""
    if not name.startswith("xla_"):
        raise PluginError(interface.INVALID_ARGUMENT, f"No such compile option: '{name}'")
    is_number = isinstance(value, str) and (
        value in ("true", "false") or value.lstrip("-").replace(".", "", 1).isdigit()
    )
    if isinstance(value, str) and not is_number and not TEXTS & set(name.split("_")):
        what = f"While setting option {name}, '{value}' is not a valid bool value."
        raise PluginError(interface.INVALID_ARGUMENT, what)


def _devices(data: bytes, replicas: int, partitions: int) -> tuple[tuple[int, ...], ...]:
    columns = []
    for number, value in proto.fields(data):
        if number == COMPUTATION_DEVICES and isinstance(value, bytes):
            ids: list[int] = []
            for _, part in proto.fields(value):
                ids += proto.packed(part) if isinstance(part, bytes) else [part]
            columns.append(ids)
    if not columns:
        return tuple(tuple(r * partitions + p for p in range(partitions)) for r in range(replicas))
    different = {id for ids in columns for id in ids}
    if [len(ids) for ids in columns] != [replicas] * partitions or len(different) < replicas * partitions:
        what = f"expected a device for each of {replicas} replicas and {partitions} partitions, got {columns}"
        raise PluginError(interface.INVALID_ARGUMENT, what)
    return tuple(zip(*columns, strict=True))


def _override(data: bytes) -> tuple[str, Any]:
    """Returns name and value of an option; a value is a message with one field set."""
    entry = proto.last(data)
    name = proto.message(entry, 1).decode()
    for number, value in proto.fields(proto.message(entry, 2)):
        if number == 1 and isinstance(value, bytes):
            return name, value.decode()
        if number == 4 and isinstance(value, bytes):
            return name, struct.unpack("<d", value)[0]
        return name, bool(value) if number == 2 else value
    return name, None
