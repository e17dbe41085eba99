"""Custom calls: how a running program calls Python callables and C functions.

A Python callable receives copies of the operands as arrays, which it may keep or change. It receives the attributes as
keywords if its signature has parameters for them. It returns an array, a sequence of arrays, or None for no results. An
operand that a result aliases (`output_operand_aliases`) is the result's own memory instead: data written to it are the
result, and if every result aliases an operand the callable may return None.

A Python callable within `InPlace` receives the memory of operands and results instead, and writes the results there.

A C function receives pointers to row-major dense buffers,

    void    f(void **operands, void **results);
    int32_t f(void **operands, void **results);     // status: 0, or the program stops with ExecutionError

and writes the results in place. Operands are read-only, except those that a result aliases: both pointers are then the
same. The layouts of buffers are the call's `operand_layouts` and `result_layouts`. The function is given as a ctypes
function object (whose `restype` distinguishes the two forms: None or an integer type), as an address (int, the first
form), or as a PyCapsule (the second form if its name ends in "status"). C functions are called with the GIL held.

In calls of API version 4 (API_VERSION_TYPED_FFI) such a function is an XLA FFI handler, and a dictionary has the
handlers of several stages; see `runtime/ffi/`. These are called without the GIL.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shlo_jit.codegen.abi import Status
from shlo_jit.codegen.program import Callback, Port
from shlo_jit.custom.functions import CustomCode, as_code
from shlo_jit.errors import ExecutionError
from shlo_jit.runtime.ffi.functions import STAGES, address_of, capsule_name, is_capsule, is_native
from shlo_jit.runtime.host import HOST_CALLS, Host

if TYPE_CHECKING:
    from shlo_jit.runtime.ffi.handler_calls import HandlerCall

Handler = Callable[[int, int], None]
"""Runs one custom call, given the addresses of its arrays of operand and result pointers. Raises to stop."""

TRAMPOLINE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
C_VOID = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
C_STATUS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)

_registry: dict[str, Any] = {}


class InPlace(NamedTuple):
    """A target that is called as `function(operands, results, **attributes)`: two sequences of arrays that are the
    program's memory, valid until it returns. Operands that no result aliases cannot be written to."""

    function: Callable[..., None]


def register_custom_call(name: str, target: Any) -> None:
    """Registers `target` as the custom call `name` of every program compiled or loaded from now on in this process;
    `compile`'s own `custom_calls` take precedence. None removes the name.

    `target` is a Python callable; code that is compiled into programs (`elementwise`, `array_function`,
    `LLVMFunction`); a C function (a ctypes function, a PyCapsule or an address), which in calls of API version 4 is an
    XLA FFI handler; or a dictionary of such handlers, of the stages `instantiate`, `prepare`, `initialize` and
    `execute`, as `jax.ffi.register_ffi_target` takes it. Raises TypeError for anything else.
    """
    check_name("custom call", name)
    if target is None:
        _registry.pop(name, None)
        return
    check_target("custom call", name, target)
    _registry[name] = target


def find_custom_call(name: str, custom_calls: Mapping[str, Any] | None = None) -> Any:
    """Returns the target registered under `name`, or a built-in one, or None."""
    found = (custom_calls or {}).get(name)
    found = _registry.get(name) if found is None else found
    return _OWN.get(name) if found is None else found


def is_known(name: str, calls: Container[str]) -> bool:
    """Whether programs can make the custom call: one of `calls`, which users have implemented, or a built-in one."""
    return name in calls or name in _OWN or name in HOST_CALLS


def registered(custom_calls: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Returns the names that the user has given targets."""
    return frozenset((*(custom_calls or ()), *_registry))


def registered_code(custom_calls: Mapping[str, Any] | None = None) -> tuple[tuple[str, CustomCode], ...]:
    """Returns the targets that are compiled into programs as code, by name."""
    targets = {**_registry, **(custom_calls or {})}
    found = ((name, as_code(target)) for name, target in sorted(targets.items()))
    return tuple((name, code) for name, code in found if code is not None)


def _shape_assertion(holds: np.ndarray, *values: np.ndarray, error_message: str = "") -> None:
    """Checks the shapes of the arguments of JAX's exported programs; `{0}` in the message is the first value."""
    if not holds:
        for i, value in enumerate(values):
            error_message = error_message.replace(f"{{{i}}}", str(value))
        raise ExecutionError(error_message)


_OWN: dict[str, Any] = {"shape_assertion": _shape_assertion}
"""Built-in targets."""


def check_name(what: str, name: object) -> None:
    """Raises TypeError unless a custom call, or another object described by `what`, can have that name."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"{what}: expected its name, got {name!r}")


def check_target(what: str, name: str, target: Any) -> None:
    """Raises TypeError unless the implementation of a custom call, or of another object described by `what`, can be
    called."""
    if isinstance(target, CustomCode):
        return
    if isinstance(target, Mapping) and target:
        _check_stages(f"{what} {name!r}", target)
    elif not (callable(target) or is_native(target) or isinstance(target, InPlace)):
        expected = "expected a callable, a ctypes function, a PyCapsule, an address or handlers by stage"
        raise TypeError(f"{what} {name!r}: {expected}, got {type(target).__name__}")


def _check_stages(what: str, handlers: Mapping[Any, Any]) -> None:
    for stage, handler in handlers.items():
        if stage not in STAGES:
            raise TypeError(f"{what}: expected handlers of the stages {', '.join(STAGES)}, got {stage!r}")
        if not is_native(handler):
            expected = "expected a PyCapsule, a ctypes function or an address"
            raise TypeError(f"{what}: {expected} for the stage {stage}, got {type(handler).__name__}")
    if "execute" not in handlers:
        raise TypeError(f"{what}: expected a handler of the stage execute, got {', '.join(handlers)}")


class CallbackTable:
    """The custom calls of one instance. It must be alive while the program runs."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        custom_calls: Mapping[str, Any] | None,
        host: Host | None = None,
        first: int = 0,
        rank: int = 0,
        threads: int = 1,
    ) -> None:
        """`first` is the number of the first of `callbacks`; `rank` that of the process in its grid; `threads` the
        maximum number of threads of a call."""
        self._number = self.handle = next(_handles)
        self.function = trampoline_address
        """Function that programs have in their instance as `callback`, together with `handle`."""
        self._raised: dict[int, BaseException] = {}
        """Exception that stopped each thread's current call."""
        targets = [_target(c, custom_calls, host) for c in callbacks]
        calls = [_handler_call(c, target, rank, threads) for c, target in zip(callbacks, targets, strict=True)]
        self._handlers = {
            first + i: _handler(c, target) if call is None else call.fail
            for i, (c, target, call) in enumerate(zip(callbacks, targets, calls, strict=True))
        }
        _tables[self._number] = self._handlers, self._raised
        if any(calls):
            from shlo_jit.runtime.ffi.table import FfiTable

            self._ffi = FfiTable(calls, first, self._number, trampoline_address)
            self.function, self.handle = self._ffi.function, self._ffi.address

    def __del__(self) -> None:
        _tables.pop(self._number, None)

    def take_exception(self) -> BaseException | None:
        """Returns the exception that stopped this thread's call, if a callback raised one."""
        return self._raised.pop(threading.get_ident(), None)


_handles = itertools.count(1)
_tables: dict[int, tuple[dict[int, Handler], dict[int, BaseException]]] = {}
"""Handlers and exceptions of each table, by the handle that is passed to the trampoline."""


def _dispatch(handle: int, index: int, operands: int, results: int) -> int:
    handlers, raised = _tables[handle]
    try:
        handlers[index](operands, results)
    except BaseException as error:  # raised again after the machine code has returned
        raised[threading.get_ident()] = error
        return Status.CALL_FAILED
    return Status.OK


_trampoline = TRAMPOLINE(_dispatch)
trampoline_address: int = ctypes.cast(_trampoline, ctypes.c_void_p).value or 0


def _target(callback: Callback, custom_calls: Mapping[str, Any] | None, host: Host | None) -> Any:
    if callback.target in HOST_CALLS and host is not None:
        return host.target(callback)
    return find_custom_call(callback.target, custom_calls)


def _handler_call(callback: Callback, target: Any, rank: int, threads: int) -> HandlerCall | None:
    """Returns the call of XLA FFI handlers; None if it is another kind of call."""
    if target is None:
        raise ExecutionError(f"custom call {callback.target!r} is not registered: pass it in custom_calls")
    check_target("custom call", callback.target, target)
    if as_code(target) is not None:
        raise ExecutionError(f"custom call {callback.target!r}: the program was compiled before and needs a function")
    if not (isinstance(target, Mapping) or is_native(target)):
        return None
    from shlo_jit.runtime.ffi.handler_calls import HandlerCall, is_for_handlers

    return HandlerCall(callback, target, rank, threads) if is_for_handlers(callback, target) else None


def _handler(callback: Callback, target: Any) -> Handler:
    if is_native(target):
        return _c_handler(callback, target)
    if isinstance(target, InPlace):
        return _in_place_handler(callback, target.function)
    return _python_handler(callback, target)


def _c_handler(callback: Callback, target: Any) -> Handler:
    if is_capsule(target):
        returns_status = capsule_name(target).endswith(b"status")
    else:
        returns_status = not isinstance(target, int) and target.restype is not None
    function = (C_STATUS if returns_status else C_VOID)(address_of(target) or 0)

    def call(operands: int, results: int) -> None:
        status = function(operands, results)
        if status:
            raise ExecutionError(f"custom call {callback.target!r} failed with status {status}")

    call.keep = target  # type: ignore[attr-defined]
    return call


def _python_handler(callback: Callback, target: Callable[..., Any]) -> Handler:
    keywords = _accepted(target, callback)
    aliased = set(callback.aliases.values())
    in_place = len(callback.aliases) == len(callback.results) > 0

    def call(operands: int, results: int) -> None:
        views = _views(callback.operands, operands, callback.operand_orders)
        returned = target(*(v if i in aliased else v.copy() for i, v in enumerate(views)), **keywords)
        if returned is None and in_place:
            return
        places = _views(callback.results, results, callback.result_orders)
        values = _sequence(returned, callback)
        for i, (value, place, port) in enumerate(zip(values, places, callback.results, strict=True)):
            place[...] = _checked(value, i, Port(port.name, place.shape, port.dtype), callback)

    return call


def _in_place_handler(callback: Callback, function: Callable[..., None]) -> Handler:
    keywords = dict(callback.attributes)
    aliased = set(callback.aliases.values())

    def call(operands: int, results: int) -> None:
        given = _views(callback.operands, operands, callback.operand_orders)
        for i, view in enumerate(given):
            view.flags.writeable = i in aliased
        function(given, _views(callback.results, results, callback.result_orders), **keywords)

    return call


def _views(ports: Sequence[Port], pointers: int, orders: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Returns the buffers of an array of pointers, as arrays with the program's dimensions (no copies)."""
    return [_logical(_buffer(port, pointers, i), orders, i) for i, port in enumerate(ports)]


def _logical(buffer: np.ndarray, orders: Sequence[tuple[int, ...]], index: int) -> np.ndarray:
    """Returns a view of a buffer, whose dimensions are stored in the given order, with the dimensions of the
    program."""
    return buffer.transpose(np.argsort(orders[index])) if orders and orders[index] else buffer


def _accepted(target: Callable[..., Any], callback: Callback) -> dict[str, Any]:
    """Returns the attributes that the callable has parameters for (all, if it has `**`)."""
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(callback.attributes)
    free = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken = {p.name for p in positional[: len(callback.operands)]}
    return {p.name: callback.attributes[p.name] for p in free if p.name in callback.attributes and p.name not in taken}


def _buffer(port: Port, pointers: int, index: int) -> np.ndarray:
    """Returns the program's buffer at an index of an array of pointers, as an array (not a copy)."""
    address = ctypes.c_void_p.from_address(pointers + 8 * index).value or 0
    if not port.nbytes:
        return np.empty(port.shape, port.dtype.numpy)
    memory = (ctypes.c_char * port.nbytes).from_address(address)
    return np.ndarray(port.shape, port.dtype.numpy, memory)  # type: ignore[arg-type]  ctypes arrays are buffers


def _sequence(returned: Any, callback: Callback) -> Sequence[Any]:
    expected = len(callback.results)
    if returned is None:
        values: Sequence[Any] = ()
    elif isinstance(returned, list | tuple):
        values = returned
    else:
        values = (returned,)
    if len(values) != expected:
        raise TypeError(f"custom call {callback.target!r} returned {len(values)} results, expected {expected}")
    return values


def _checked(value: Any, index: int, port: Port, callback: Callback) -> np.ndarray:
    """Returns a result of a callback: of the right dtype and shape, or a Python number for rank 0."""
    array = np.asarray(value)
    dtype = port.dtype.numpy
    where = f"result {index} of custom call {callback.target!r}"
    expected = f"expected {dtype.name}[{','.join(map(str, port.shape))}]"
    got = f"got {array.dtype.name}[{','.join(map(str, array.shape))}]"
    if array.shape != port.shape:
        raise ValueError(f"{where}: {expected}, {got}")
    if isinstance(value, bool | int | float | complex):
        from shlo_jit.runtime.arguments import convert

        return convert(value, index, port)
    if array.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"{where}: {expected}, {got}")
    return array
