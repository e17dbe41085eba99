"""Prepares a call of handlers when an executable is created: everything that is the same for all runs.

The structures of a call (types, extents, attributes) are in a block of bytes, in which a run fills in addresses; see
`structures.Call`. The handlers are asked for their version, and the first stage runs here.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shlo_jit.codegen.program import Callback, Port
from shlo_jit.errors import ExecutionError
from shlo_jit.runtime.ffi import structures as s
from shlo_jit.runtime.ffi.attributes import Unfit, attributes
from shlo_jit.runtime.ffi.dispatch import BUFFERS, FRAME_BYTES
from shlo_jit.runtime.ffi.functions import STAGES, address_of, is_native
from shlo_jit.runtime.ffi.library import FfiLibrary, ffi_library

API_VERSION = 4
"""API version of calls that are for handlers."""


def is_for_handlers(callback: Callback, target: Any) -> bool:
    """Whether handlers implement a call: they are given by stage, or the call's version says that a native function is
    a handler. Raises ExecutionError if handlers are given for a call of another version."""
    if not isinstance(target, Mapping):
        return callback.api_version == API_VERSION and is_native(target)
    if callback.api_version != API_VERSION:
        raise ExecutionError(f"{name_of(callback)} has FFI handlers, which are for calls of API version {API_VERSION} "
                             f"(API_VERSION_TYPED_FFI); this one has version {callback.api_version}")  # fmt: skip
    return True


def name_of(callback: Callback) -> str:
    """Returns the name of a call, for messages."""
    return f"custom call {callback.target!r}" + (f" ({callback.place})" if callback.place else "")


class HandlerCall:
    """A call of handlers. It must be alive while the program runs; its state ends with it."""

    def __init__(self, callback: Callback, target: Any, device_ordinal: int, threads: int) -> None:
        """Prepares the call. Raises ExecutionError for a handler of another version, for attributes that cannot be
        passed to a handler, and for errors of the stage `instantiate`."""
        self.library = ffi_library()
        self._callback = callback
        stages = target if isinstance(target, Mapping) else {"execute": target}
        handlers = {stage: address_of(function) or 0 for stage, function in stages.items() if function is not None}
        self._keep: list[Any] = [target]
        try:
            attrs = attributes(callback.attributes, callback.attribute_types, self._keep)
        except Unfit as error:
            raise ExecutionError(f"{name_of(callback)}: {error}") from None
        self._call = s.Call(device_ordinal=device_ordinal, threads=threads)
        self._ask_versions(handlers)
        self._make_block(attrs)
        self._call.prepare, self._call.initialize, self._call.execute = (handlers.get(n) for n in STAGES[1:])
        # not at interpreter exit: another thread may be in a call until then
        weakref.finalize(self, _end_state, self.library, self._call, self._keep).atexit = False
        if "instantiate" in handlers:
            self._instantiate(handlers["instantiate"], attrs)

    @property
    def address(self) -> int:
        """Address of the structure."""
        return ctypes.addressof(self._call)

    def fail(self, error: int, stage: int) -> None:
        """Raises the error of a stage as an exception."""
        message = self.library.take_error(error)
        raise ExecutionError(f"{name_of(self._callback)} failed in its stage {STAGES[stage]}: {message}")

    # ------------------------------------------------------------------ when it is made
    def _frame(self, context: s.Context, **fields: Any) -> s.CallFrame:
        """Returns a frame for a handler call outside of the program."""
        context.call = self.address
        empty = {name: s.Values() for name in ("args", "rets")}
        api, ctx = ctypes.addressof(self.library.api), ctypes.addressof(context)
        return s.CallFrame(api=api, ctx=ctx, **{"attrs": s.Attrs(), **empty, **fields})

    def _ask_versions(self, handlers: Mapping[str, int]) -> None:
        for stage, handler in handlers.items():
            metadata = s.Metadata(api_version=s.Version(major_version=-1))
            extension = s.MetadataExtension(type=s.METADATA, metadata=ctypes.addressof(metadata))
            context = s.Context()
            frame = self._frame(context, extension_start=ctypes.addressof(extension))
            error = self.library.run(handler, ctypes.addressof(frame), s.EXECUTE)
            if error:
                self.fail(error, STAGES.index(stage))
            found = metadata.api_version.major_version, metadata.api_version.minor_version
            if found[0] != s.VERSION[0] or found[1] > s.VERSION[1]:
                made = "does not say its version" if found[0] < 0 else f"is for version {found[0]}.{found[1]}"
                expected = f"expected version {s.VERSION[0]}.0 to {s.VERSION[0]}.{s.VERSION[1]} of XLA's FFI"
                raise ExecutionError(f"{name_of(self._callback)}: its handler {made}; {expected}")

    def _instantiate(self, handler: int, attrs: s.Attrs) -> None:
        context = s.Context()
        frame = self._frame(context, attrs=attrs)
        error = self.library.run(handler, ctypes.addressof(frame), s.INSTANTIATE)
        self.library.end(ctypes.addressof(context))
        if error:
            self.fail(error, s.INSTANTIATE)

    def _make_block(self, attrs: s.Attrs) -> None:
        """Fills in everything of the call except its handlers."""
        callback, call = self._callback, self._call
        for port in (*callback.operands, *callback.results):
            if port.dtype.name not in s.DATA_TYPES:
                raise ExecutionError(f"{name_of(callback)}: handlers know no tensors of {port.dtype}")
        before = _buffers(callback.operands, callback.operand_orders, callback.operand_tokens)
        after = _buffers(callback.results, callback.result_orders, callback.result_tokens)
        rows = [*before, *after]
        first = BUFFERS + 8 * len(rows)
        block = (ctypes.c_char * (first + ctypes.sizeof(s.Buffer) * len(rows)))()
        base = ctypes.addressof(block)
        places = []
        pointers = (ctypes.c_void_p * len(rows)).from_buffer(block, BUFFERS)
        for i, row in enumerate(rows):
            at = first + i * ctypes.sizeof(s.Buffer)
            pointers[i] = base + at
            s.Buffer.from_buffer(block, at).__init__(**row.fields(self._keep))
            if row.dtype != s.TOKEN:
                places.append(at + s.Buffer.data.offset)
        kinds = (ctypes.c_int32 * max(1, len(rows)))(*[s.BUFFER] * len(rows))
        s.Context.from_buffer(block, FRAME_BYTES).call = self.address
        s.CallFrame.from_buffer(block).__init__(
            api=ctypes.addressof(self.library.api),
            ctx=base + FRAME_BYTES,
            args=s.Values(size=len(before), types=ctypes.addressof(kinds), values=base + BUFFERS),
            rets=s.Values(size=len(after), types=ctypes.addressof(kinds), values=base + BUFFERS + 8 * len(before)),
            attrs=attrs,
        )
        template = ctypes.create_string_buffer(bytes(block), len(block))
        offsets = (ctypes.c_int64 * max(1, len(places)))(*places)
        self._keep += [block, template, offsets, kinds]
        call.block = call.base = base
        call.template, call.block_bytes, call.buffers = ctypes.addressof(template), len(block), len(rows)
        call.operands, call.results = len(callback.operands), len(callback.results)
        call.places = ctypes.addressof(offsets)


def _end_state(library: FfiLibrary, call: s.Call, keep: object) -> None:
    """Ends the state that the stage `instantiate` left. `keep` must be alive until then."""
    library.drop(ctypes.addressof(call) + s.Call.instantiated.offset)


class _Row(NamedTuple):
    """Type of a buffer."""

    dtype: int
    extents: tuple[int, ...]

    def fields(self, keep: list[Any]) -> dict[str, Any]:
        dims = (ctypes.c_int64 * max(1, len(self.extents)))(*self.extents)
        keep.append(dims)
        return {"dtype": self.dtype, "rank": len(self.extents), "dims": ctypes.addressof(dims)}


def _buffers(ports: Sequence[Port], orders: Sequence[Sequence[int]], tokens: Sequence[int]) -> list[_Row]:
    """Returns the buffers of one side of a call, with its tokens at their positions."""
    rows = []
    for i, port in enumerate(ports):
        order = orders[i] if orders and orders[i] else range(len(port.shape))
        extents = dict(zip(order, port.shape, strict=True))
        rows.append(_Row(s.DATA_TYPES[port.dtype.name], tuple(extents[d] for d in range(len(port.shape)))))
    for place in tokens:  # in ascending order
        rows.insert(place, _Row(s.TOKEN, ()))
    return rows
