"""Numba's code for a function as LLVM text, taken before Numba's optimizer so that its loops are as they were written.

Numba emits a function with its own calling convention: it returns a status and writes the result through a pointer. A
wrapper has the arguments and results that we want (`SCALAR`, or `KERNEL` in `llvm_text.py`). The exceptions that the
function may raise are numbered from 1: the status is 0, or the number of an exception.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from shlo_jit.custom.llvm_text import KERNEL, SCALAR, Refused
from shlo_jit.ir.dtypes import DType


class Typed(NamedTuple):
    """An operand or result of a call as Numba sees it. Its rank is 0 in elementwise functions."""

    dtype: DType
    shape: tuple[int, ...] = ()


class NumbaText(NamedTuple):
    """LLVM text of the function and of everything that it needs, with the wrapper."""

    text: str
    errors: tuple[str, ...]
    """Meaning of each status from 1 on."""


NAMES = {
    "i1": "boolean", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16",
    "ui32": "uint32", "ui64": "uint64", "f32": "float32", "f64": "float64", "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}  # fmt: skip
"""Numba's names of the element types."""
_EXCEPTION = re.compile(r"^(@\.const\.picklebuf\.[\w.]+) = .*\{ ptr (@[\w.]+),", re.MULTILINE)
_PICKLED = re.compile(r'^(@[\w.]+) = .*constant \[\d+ x i8\] c"((?:[^"\\]|\\[0-9A-F]{2}|\\\\)*)"', re.MULTILINE)
_INLINE = re.compile(r"\bnoinline\b")
"""Numba marks the functions that count references `noinline` until it has removed the pairs that cancel."""
_ADDRESSES = re.compile(r"^(@numba\.dynamic\.globals[\w.]*) = .*?\b(?:global|constant) (\S+) .*$", re.MULTILINE)
"""Variables that hold addresses of objects of this process. They have no definition, so code that needs one is refused.
"""
_ADVICE = ("This error may", "During:", "File ", "Failed in", "<source missing")
"""Starts of the lines of Numba's messages that say nothing about the function."""
UNNAMED = "an exception"
"""Description of an exception that is created when it is raised."""


def scalar_text(
    function: Any, operands: Sequence[DType], results: Sequence[DType], literals: Sequence[Any]
) -> NumbaText:
    """Returns the text of the function of scalars, called with the operands and then the literals. Raises Refused."""
    types = _numba_types()
    arguments = [_type(d) for d in operands]
    returned = [_type(d) for d in results]
    wanted = returned[0] if len(returned) == 1 else types.Tuple(returned)
    return _compile(function, arguments, literals, wanted, partial(_write_scalar, count=len(operands)))


def kernel_text(
    function: Any, operands: Sequence[Typed], results: Sequence[Typed], literals: Sequence[Any]
) -> NumbaText:
    """Returns the text of the function of arrays. It is called with the operands, the memory of the results and the
    literals. If it has parameters only for operands and literals, it returns the results instead. Raises Refused."""
    types = _numba_types()
    given = [types.Array(_type(t.dtype), len(t.shape), "C", readonly=True) for t in operands]
    into = [types.Array(_type(t.dtype), len(t.shape), "C") for t in results]
    returned = returns(function, len(operands))
    arrays = [*operands] if returned else [*operands, *results]

    write = partial(_write_kernel, given=(arrays, len(operands)), returned=results if returned else ())
    return _compile(function, given if returned else [*given, *into], literals, None, write)


def returns(function: Any, operands: int) -> bool:
    """Whether a function of arrays returns its results: its parameters are the operands and ones with defaults."""
    return function.__code__.co_argcount - len(function.__defaults__ or ()) <= operands


def _numba_types() -> Any:
    """Returns Numba's types. Raises Refused if Numba is not installed."""
    try:
        from numba.core import types
    except ImportError as error:
        raise Refused("numba-missing", f"Numba is not installed ({error}): pip install numba") from None
    return types


def _type(dtype: DType) -> Any:
    types = _numba_types()
    if dtype.name not in NAMES:
        raise Refused("numba-type", f"Numba has no scalars of type {dtype.name}")
    return getattr(types, NAMES[dtype.name])


def _compile(
    function: Any, arguments: Sequence[Any], literals: Sequence[Any], returned: Any, write: Callable[..., None]
) -> NumbaText:
    """Returns the text with a wrapper that `write` fills. Raises Refused if Numba rejects the function."""
    from numba import typeof
    from numba.core import compiler, registry
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.errors import NumbaError

    flags: Any = _own_flags()()
    flags.nrt = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    flags.noalias = True
    flags.error_model = "numpy"
    types = (*arguments, *(typeof(value) for value in literals))
    with global_compiler_lock:
        cpu: Any = registry.cpu_target
        typing, target = cpu.typing_context, cpu.target_context
        target.refresh()
        typing.refresh()
        library = _plain_library()(target.codegen(), "custom")
        try:
            found = compiler.compile_extra(typing, target, function, types, returned, flags, {}, library=library)
            constants = [*zip(types[len(arguments) :], literals, strict=True)]
            _write_wrapper(found.target_context, library, found.fndesc, constants, write)
            library.finalize()
        except (NumbaError, NotImplementedError) as error:
            raise Refused("numba-rejects", f"Numba rejects it: {_short(error)}") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # in partially supported code
            raise Refused("numba-fails", f"Numba crashed on it: {_short(error)}") from error
        text = _ADDRESSES.sub(r"\1 = external global \2", library.get_llvm_str())
        return _numbered(_INLINE.sub("nounwind", text))


def _own_flags() -> Any:
    """Returns a class of flags whose error model is not inherited by the functions that are called. They keep their
    own, because other callers use them too."""
    from numba.core.compiler import Flags

    class Own(Flags):
        def copy(self) -> Any:  # Numba passes this copy on
            made = super().copy()
            made.error_model = "python"
            return made

    return Own


def _plain_library() -> Any:
    """Returns a class of Numba libraries that are neither optimized nor loaded."""
    from numba.core.codegen import JITCodeLibrary

    class Plain(JITCodeLibrary):
        def _optimize_functions(self, ll_module: Any) -> None:
            pass

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

    return Plain


def _short(error: Exception) -> str:
    """Returns Numba's message without its advice."""
    text = re.sub(r"\x1b\[[\d;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(_ADVICE)]
    return " ".join(kept[:4]) or type(error).__name__


def _write_wrapper(
    context: Any, library: Any, fndesc: Any, literals: Sequence[Any], write: Callable[..., None]
) -> None:
    """Adds a module with the wrapper to the library."""
    module = library.create_ir_module("wrapper")
    callee = context.declare_function(module, fndesc)

    def call(builder: Any, arguments: Sequence[Any]) -> tuple[Any, Any]:
        """Calls the function with the arguments and the literals. Returns its status and result."""
        constants = [context.get_constant_generic(builder, type, value) for type, value in literals]
        given = [*arguments, *constants]
        return context.call_conv.call_function(builder, callee, fndesc.restype, fndesc.argtypes, given)

    write(context, module, fndesc, call)
    library.add_ir_module(module)


def _code_of(builder: Any, status: Any) -> Any:
    """Returns the status as an i64: 0, the address of the record that describes the exception, or 1 if that is unknown.
    Numbers replace the addresses when all code is in one module."""
    from llvmlite import ir

    i64 = ir.IntType(64)
    address = builder.ptrtoint(status.excinfoptr, i64)
    found = builder.select(status.is_python_exc, ir.Constant(i64, 1), address)
    user = builder.select(status.is_user_exc, found, ir.Constant(i64, 1))
    return builder.select(status.is_error, user, ir.Constant(i64, 0))


def _write_scalar(context: Any, module: Any, fndesc: Any, call: Callable[..., Any], count: int) -> None:
    """Writes {i64, results...} @SCALAR(operands...) with `count` operands."""
    from llvmlite import ir
    from numba.core import types

    arguments = fndesc.argtypes[:count]
    several = isinstance(fndesc.restype, types.BaseTuple)
    results = [*fndesc.restype] if several else [fndesc.restype]
    made = ir.LiteralStructType([ir.IntType(64), *map(context.get_value_type, results)])
    function = ir.Function(module, ir.FunctionType(made, [context.get_value_type(t) for t in arguments]), SCALAR)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    status, value = call(builder, function.args)
    out = builder.insert_value(ir.Constant(made, ir.Undefined), _code_of(builder, status), 0)
    for i in range(len(results)):
        out = builder.insert_value(out, builder.extract_value(value, i) if several else value, i + 1)
    builder.ret(out)


def _write_kernel(
    context: Any, module: Any, fndesc: Any, call: Callable[..., Any],
    given: tuple[Sequence[Typed], int], returned: Sequence[Typed],
) -> None:  # fmt: skip
    """Writes i64 @KERNEL(ptr operands, ptr results)."""
    from llvmlite import ir

    pointer, i64 = ir.PointerType(), ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(i64, [pointer, pointer]), KERNEL)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    arrays, operands = given
    places = [(function.args[0], i) for i in range(operands)]
    places += [(function.args[1], i) for i in range(len(arrays) - operands)]
    arguments = [
        _array(context, builder, type, typed.shape, _load_pointer(builder, table, i))
        for type, typed, (table, i) in zip(fndesc.argtypes, arrays, places, strict=False)
    ]
    status, value = call(builder, arguments)
    if returned:
        with builder.if_then(builder.not_(status.is_error)):
            builder.ret(_copy_results(context, builder, fndesc.restype, value, returned, function.args[1]))
    builder.ret(_code_of(builder, status))


def _load_pointer(builder: Any, table: Any, index: int) -> Any:
    from llvmlite import ir

    place = builder.gep(table, [ir.IntType(64)(index)], source_etype=ir.PointerType())
    return builder.load(place, typ=ir.PointerType())


def _array(context: Any, builder: Any, type: Any, shape: Sequence[int], data: Any) -> Any:
    """Returns a Numba array over memory. Its extents and strides are constants."""
    from llvmlite import ir
    from numba.np.arrayobj import make_array, populate_array

    i64 = ir.IntType(64)
    itemsize = context.get_abi_sizeof(context.get_data_type(type.dtype))
    strides = [itemsize] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    array = make_array(type)(context, builder)
    data = builder.bitcast(data, context.get_data_type(type.dtype).as_pointer())
    populate_array(array, data, [i64(n) for n in shape], [i64(n) for n in strides], itemsize, None)
    return array._getvalue()


def _copy_results(context: Any, builder: Any, type: Any, value: Any, results: Sequence[Typed], table: Any) -> Any:
    """Copies the arrays that the function returned into the program's buffers, and frees them. Returns a status, which
    is not 0 if an array has another shape."""
    from llvmlite import ir
    from numba.core import types
    from numba.np.arrayobj import make_array

    several = isinstance(type, types.BaseTuple)
    given: list[Any] = [*type] if several else [type]  # type: ignore[misc]  a tuple's types
    if len(given) != len(results):
        raise Refused("result-mismatch", f"it returns {type}, and the call has {len(results)} results")
    i1, i64 = ir.IntType(1), ir.IntType(64)
    fits = i1(1)
    for i, (each, typed) in enumerate(zip(given, results, strict=True)):
        wanted = types.Array(_type(typed.dtype), len(typed.shape), "C")
        if not isinstance(each, types.Array) or (each.dtype, each.ndim) != (wanted.dtype, wanted.ndim):
            raise Refused("result-mismatch", f"it returns {each} where the call has {wanted}")
        if each.layout != "C":
            raise Refused(
                "result-not-contiguous",
                f"it returns {each}, which may not be contiguous: return np.ascontiguousarray of it",
            )
        own = builder.extract_value(value, i) if several else value
        array = make_array(each)(context, builder, own)
        size = context.get_abi_sizeof(context.get_data_type(each.dtype))
        own_fits = i1(1)
        for d, n in enumerate(typed.shape):
            size *= n
            own_fits = builder.and_(own_fits, builder.icmp_signed("==", builder.extract_value(array.shape, d), i64(n)))
        with builder.if_then(own_fits):
            pointer = ir.PointerType()
            copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, i64])
            builder.call(copy, [_load_pointer(builder, table, i), array.data, i64(size), i1(0)])
        fits = builder.and_(fits, own_fits)
        context.nrt.decref(builder, each, own)
    return builder.select(fits, i64(0), i64(2))


def _numbered(text: str) -> NumbaText:
    """Returns the text with the numbers of exceptions in place of the records that describe them."""
    pickled = {name: _bytes(data) for name, data in _PICKLED.findall(text)}
    errors = [UNNAMED, "it returned an array of another shape"]
    for name, data in _EXCEPTION.findall(text):
        errors.append(_exception(pickled.get(data, b"")))
        number = len(errors)
        text = re.sub(rf"^{re.escape(name)} = .*$", "", text, flags=re.MULTILINE)
        text = re.sub(rf"{re.escape(name)}(?![\w.])", f"inttoptr (i64 {number} to ptr)", text)
    return NumbaText(text, tuple(errors))


def _bytes(escaped: str) -> bytes:
    """Returns the bytes of a string in LLVM text."""
    found = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), escaped.replace("\\\\", "\\5C"))
    return found.encode("latin-1")


def _exception(data: bytes) -> str:
    """Returns a description of the exception that Numba would raise: `ValueError: no (in f, model.py:12)`."""
    try:
        kind, arguments, place = pickle.loads(data)
    except Exception:  # the exception is not a name in a module
        return UNNAMED
    name = getattr(kind, "__name__", "Exception") if kind is not None else "AssertionError"
    kept = ", ".join(map(str, arguments or ()))
    where = f" (in {place[0]}, {str(place[1]).rpartition('/')[2]}:{place[2]})" if place else ""
    return f"{name}{f': {kept}' if kept else ''}{where}"
