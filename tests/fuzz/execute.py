"""Verifies a mutant of a program; if it is valid, compiles it, runs it in guarded memory and compares the results.

    outcome, detail = check(text, number)

Good outcomes are `refused` (ParseError), `invalid` (VerifyError), `unsupported` (UnsupportedError with a location),
`stopped` (ExecutionError, or a documented TypeError or ValueError), `large` (too much to run), `endless` (a loop that
the reference does not finish), `undefined` (run; the result is unspecified), `unchecked` (run; it has no reference),
`equal`, `close`. The outcome `differs` must be examined. Everything else is a finding, and raised.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from typing import Any

import guarded
import numpy as np

import shlo_jit
from shlo_jit.errors import StableHLOError
from shlo_jit.ir.core import Module, Op, walk
from shlo_jit.ir.types import DType, TensorType
from shlo_jit.reference.interpreter import Interpreter, as_array
from shlo_jit.runtime.dynamic import DynamicExecutable

MOST_ELEMENTS = 20_000
"""Maximum size of any value in a program that is run."""
MOST_OPS = 5_000
"""Number of ops that the reference computes before a program counts as endless."""
REFERENCE_SECONDS = 20
TOLERANCE = {"f64": 1e-9, "f32": 1e-3, "complex<f64>": 1e-9, "complex<f32>": 1e-3}
LOOSE = 0.3
"""Tolerance of narrow floats, whose rounding errors add up."""


class Endless(Exception):
    """Raised if the reference exceeds its limit of ops."""


class Undefined(Exception):
    """Raised for undefined behavior: computed shapes that contradict the stated ones, matrices without a Cholesky
    factor, comparators that are not an order."""


OPEN = {
    "stablehlo.cholesky", "stablehlo.triangular_solve", "stablehlo.fft", "stablehlo.power", "chlo.broadcast_power",
    "chlo.polygamma", "chlo.broadcast_polygamma", "chlo.zeta", "chlo.broadcast_zeta",
}  # fmt: skip
"""Ops for which the propagation of infinities and NaN depends on the order of arithmetic, or is unspecified."""


class Bounded(Interpreter):
    """The reference interpreter with a limit of ops."""

    def __init__(self, module: Module):
        super().__init__(module)
        self.left = MOST_OPS

    def op(self, op: Op, arrays: list[Any], values: Any = None) -> tuple[Any, ...]:
        self.left -= 1
        if self.left < 0:
            raise Endless
        try:
            results = super().op(op, arrays, values)
        except (ValueError, OverflowError, MemoryError, IndexError):
            if _computes_shape(op):
                raise Undefined from None
            raise
        for v, x in zip(op.results, results, strict=True):
            t = v.type
            if isinstance(t, TensorType) and t.is_static and x.shape != t.extents and _computes_shape(op):
                raise Undefined
        if op.name in OPEN and not all(np.isfinite(x.astype(np.complex128)).all() for x in (*arrays, *results)):
            raise Undefined
        if op.name == "stablehlo.sort" and not _orders(op, arrays):
            raise Undefined
        return results


def _computes_shape(op: Op) -> bool:
    return "dynamic" in op.name or op.name in ("stablehlo.rng", "stablehlo.set_dimension_size")


def _orders(op: Op, arrays: list[Any]) -> bool:
    """Whether the comparator of a sort is a strict order of the given elements, as far as can be tested."""
    compares = [inner for inner in op.block().ops if inner.name == "stablehlo.compare"]
    directions = {inner.attributes["comparison_direction"].value for inner in compares}
    nans = any(np.isnan(x.astype(np.complex128)).any() for x in arrays if x.dtype.kind not in "biu")
    return len(op.block().ops) == 2 and directions <= {"LT", "GT"} and bool(compares) and not nans


def is_large(module: Module) -> bool:
    """Whether any value, or window of one, has too many elements."""
    for op in walk(module.body):
        values = [*op.operands, *op.results, *(a for r in op.regions for b in r.blocks for a in b.arguments)]
        for v in values:
            if isinstance(v.type, TensorType) and v.type.is_static and v.type.size > MOST_ELEMENTS:
                return True
        for name in (
            "window_dimensions",
            "dilations",
            "base_dilations",
            "lhs_dilation",
            "interior_padding",
            "rhs_dilation",
        ):
            if name in op.attributes and math.prod(abs(n) + 1 for n in op.ints(name)) > MOST_ELEMENTS:
                return True
        if "padding" in op.attributes and any(abs(n) > MOST_ELEMENTS for n in op.ints("padding")):
            return True
        if op.name == "stablehlo.fft" and math.prod(op.ints("fft_length")) > MOST_ELEMENTS:
            return True
    return False


def arrays_for(exe: Any, number: int) -> list[np.ndarray]:
    """Returns arguments: numbers near 1, and arbitrary ones in every third program."""
    rng = np.random.default_rng(number)
    return [_array(rng, p.shape, guarded_dtype(p.dtype), wild=number % 3 == 0) for p in exe.inputs]


def guarded_dtype(dtype: Any) -> DType:
    from shlo_jit.ir.dtypes import by_numpy

    return by_numpy()[np.dtype(dtype)]


def _array(rng: np.random.Generator, shape: Sequence[int], dtype: DType, wild: bool) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        bits = min(dtype.bits, 62)
        low, high = (0, 4) if dtype.kind == "u" else (-3, 4)
        if dtype.bits == 2:
            low, high = (0, 4) if dtype.kind == "u" else (-2, 2)
        if wild:
            low, high = (0, 1 << bits) if dtype.kind == "u" else (-(1 << bits - 1), 1 << bits - 1)
        return rng.integers(low, high, shape).astype(np.int64).astype(dtype.numpy)
    x = rng.standard_normal(shape)
    if wild:
        x = np.where(rng.random(shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30], shape), x)
    with np.errstate(all="ignore"):
        return (x + 1j * rng.standard_normal(shape) if dtype.is_complex else x).astype(dtype.numpy)


def check(text: str, number: int) -> tuple[str, str]:
    """Returns the outcome for a mutant, and details."""
    try:
        module = shlo_jit.parse(text)
        found = shlo_jit.verify(module)
    except shlo_jit.ParseError as error:
        return "refused", placed(error, text)
    if found:
        return "invalid", placed(shlo_jit.VerifyError(found), text)
    if is_large(module):
        return "large", ""
    function = module.function("main")
    if function is None:
        return "refused", ""
    try:
        exe = shlo_jit.compile(text, cache=False, threads=(1, 3)[number % 2])
    except shlo_jit.ExecutionError as error:  # programs of several processes: those of the fuzzer start none
        return "unsupported", str(error)
    except StableHLOError as error:
        return ("unsupported" if isinstance(error, shlo_jit.UnsupportedError) else "invalid"), placed(error, text)
    if isinstance(exe, DynamicExecutable):
        return _for_some_shapes(module, exe, text, number)
    return _executed(module, function, exe, arrays_for(exe, number))


def _for_some_shapes(module: Module, exe: DynamicExecutable, text: str, number: int) -> tuple[str, str]:
    """Returns the outcome for a program with unknown dimensions, for random sizes."""
    rng = np.random.default_rng(number)
    if any(p.shape is None for p in exe.inputs):  # unranked: the rank would be known at the call
        return "unchecked", ""
    shapes = [[int(rng.integers(0, 5)) if n is None else n for n in p.shape] for p in exe.inputs]
    try:
        refined = shlo_jit.refine(module, shapes)
        if is_large(refined):
            return "large", ""
        static = shlo_jit.compile(refined, cache=False)
    except StableHLOError as error:
        return ("unsupported" if isinstance(error, shlo_jit.UnsupportedError) else "invalid"), placed(error, text)
    function = refined.function("main")
    if function is None or isinstance(static, DynamicExecutable):  # sizes depend on data
        return "unchecked", ""
    return _executed(refined, function, static, arrays_for(static, number))


def _executed(module: Module, function: Op, exe: Any, arrays: list[np.ndarray]) -> tuple[str, str]:
    """Runs a compiled program and returns the outcome."""
    wants, otherwise = None, "unchecked"
    try:
        wants = reference(module, function, arrays)
    except Endless:
        return "endless", ""
    except Undefined:
        otherwise = "undefined"
    except shlo_jit.UnsupportedError:
        pass
    if _waits(module):
        return "unchecked", ""
    try:
        gots = [guarded.call(exe, arrays, at_end) for at_end in (True, False)]
        gots.append(guarded.outputs(exe(*arrays)) if exe.outputs else [])
    except shlo_jit.ExecutionError:
        return "stopped", ""
    if wants is None or any(_has_no_reference(op) for op in walk(module.body)):
        return otherwise, ""
    for got in gots[1:]:
        for i, (x, y) in enumerate(zip(gots[0], got, strict=True)):
            if x.tobytes() != y.tobytes():
                return "differs", f"result {i} of two calls"
    return compare(gots[0], wants)


def _has_no_reference(op: Op) -> bool:
    """Whether an op has no reference that determines its numbers."""
    return op.name in ("stablehlo.rng", "stablehlo.custom_call", "chlo._asin_acos_kernel")


def _waits(module: Module) -> bool:
    """Whether a program waits for the host, whose queues are empty."""
    return any(op.name in ("stablehlo.infeed", "stablehlo.recv") for op in walk(module.body)) or any(
        op.attributes.get("call_target_name") in ("stablehlo.infeed", "stablehlo.recv") for op in walk(module.body)
    )


def placed(error: StableHLOError, text: str) -> str:
    """Returns the first sentence of an error, after checking that it has a position inside the text."""
    lines = text.split("\n")
    for d in error.diagnostics:
        assert 1 <= d.line <= len(lines) and 1 <= d.column <= len(lines[d.line - 1]) + 1, f"no place: {d}"
        assert d.message
    return error.diagnostics[0].message


def reference(module: Module, function: Op, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """Returns the results of the reference interpreter; None if it has no answer within the limits of its numbers."""

    def late(*_: Any) -> None:
        raise Endless

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(REFERENCE_SECONDS)
    try:
        with np.errstate(all="ignore"):
            inputs = [as_array(x, a.type) for x, a in zip(arrays, function.block().arguments, strict=True)]
            found = Bounded(module).function(function, inputs)
    except ValueError:
        if len(arrays) != len(function.block().arguments):  # including tuples and tokens
            return None
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    return _flat(found)


def _flat(values: Sequence[Any]) -> list[np.ndarray]:
    """Flattens tuples and removes tokens."""
    out: list[np.ndarray] = []
    for v in values:
        if isinstance(v, tuple):
            out += _flat(v)
        elif v is not None:
            out.append(np.asarray(v))
    return out


def _close(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """Returns whether elements are close; sums may have another order, and narrow ones a wider type."""
    x, y = got.astype(np.float64), want.astype(np.float64)
    tolerance = TOLERANCE.get(dtype.name, LOOSE)
    with np.errstate(all="ignore"):
        scale = np.abs(y)[np.isfinite(y)].max(initial=1.0)
        return (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= tolerance * (np.abs(y) + scale))


def compare(gots: Sequence[np.ndarray], wants: Sequence[np.ndarray]) -> tuple[str, str]:
    """Returns whether results are equal or close, or where they differ."""
    worst = "equal"
    for i, (got, want) in enumerate(zip(gots, wants, strict=True)):
        if got.dtype != want.dtype or got.shape != want.shape:
            return "differs", f"result {i} is {got.dtype}{got.shape}, the reference has {want.dtype}{want.shape}"
        if got.tobytes() == np.ascontiguousarray(want).tobytes():
            continue
        worst = "close"
        dtype = guarded_dtype(got.dtype)
        if dtype.kind in "biu":
            same = got.astype(np.int64) == want.astype(np.int64)
        else:
            same = (
                _close(got.real, want.real, dtype) & _close(got.imag, want.imag, dtype)
                if dtype.is_complex
                else _close(got, want, dtype)
            )
        if not same.all():
            at = tuple(int(k[0]) for k in np.nonzero(~same)) if got.ndim else ()
            return "differs", f"result {i} at {at}: {got[at]}, the reference has {want[at]}"
    return worst, ""
