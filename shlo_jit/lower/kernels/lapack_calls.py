"""The custom calls by which JAX reaches LAPACK, read into one form.

`lapack_spotrf_ffi` takes its options as attributes (characters by their ASCII code); the older `lapack_spotrf` and
`blas_strsm` take options and sizes as constant operands before the arrays, and return workspaces among the results.
Here both become a `Call`: arrays by name, and options as LAPACK spells them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.ir.core import Op, Value
from shlo_jit.lower.kernels.custom_call import attributes_of

PERTURBED = "tridiagonal_solve_perturbed_ffi"
"""The one target without a letter: its operands tell the element type."""
_TARGET = re.compile(r"(?:lapack|blas)_([sdcz])([a-z0-9]+?)(_ffi)?")

ARRAYS: dict[str, tuple[str, str]] = {
    "potrf": ("x", "x info"),
    "getrf": ("x", "x ipiv info"),
    "geqrf": ("x", "x tau"),
    "geqp3": ("x jpvt", "x jpvt tau"),
    "orgqr": ("x tau", "x"),
    "ormqr": ("a tau c", "c"),
    "gesdd": ("x", "x s u vt info"),
    "gesvd": ("x", "x s u vt info"),
    "syevd": ("x", "x w info"),
    "geev": ("x", "w vl vr info"),
    "gees": ("x", "x vs w sdim info"),
    "gehrd": ("x", "x tau info"),
    "sytrd": ("x", "x d e tau info"),
    "gtsv": ("dl d du b", "dl d du b info"),
    "gtsv_perturbed": ("dl d du b", "b"),
    "trsm": ("a b alpha", "b"),
}
"""Routine -> names of operands and of results, of the `_ffi` targets. `w` is two arrays, `wr wi`, for real matrices
where eigenvalues may be complex; a trailing `alpha` may be left out."""

OLD_ARRAYS: dict[str, tuple[str, str]] = {
    "potrf": ("lower batch n x", "x info"),
    "getrf": ("batch m n x", "x ipiv info"),
    "geqrf": ("batch m n lwork x", "x tau info work"),
    "orgqr": ("batch m n k lwork x tau", "x info work"),
    "gesdd": ("full compute batch m n lwork x", "x s u vt info"),
    "syevd": ("lower batch n x", "x w info"),
    "geev": ("batch n left right x", "work rwork w vl vr info"),
    "gees": ("batch n mode sort x", "x rwork w vs sdim info"),
    "gehrd": ("n low high lda batch lwork x", "x tau info work"),
    "sytrd": ("n lower lda batch lwork x", "x d e tau info work"),
    "trsm": ("left lower trans unit m n batch alpha a b", "b"),
}
"""The same for the targets without `_ffi` (JAX up to 0.4.30); workspaces at the end are not listed."""
OLD_REAL_RESULTS = {"geev": "work vlwork vrwork wr wi vl vr info", "gees": "x wr wi vs sdim info"}

SYNONYMS = {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hetrd": "sytrd"}
"""Complex names of routines -> the real ones'."""
LETTERS = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}


@dataclass(frozen=True)
class Call:
    """A call of a LAPACK routine for a batch of matrices."""

    op: Op
    letter: str
    """s, d, c or z: the element type."""
    routine: str
    """By its real name: `orgqr`, for `cungqr` too."""
    operands: dict[str, Value]
    results: dict[str, Value]
    options: dict[str, Any]

    @property
    def is_complex(self) -> bool:
        return self.letter in "cz"


def lapack_target(name: str) -> tuple[str, str, bool] | None:
    """Letter (or none), routine and whether it is an `_ffi` target; None for a name that is none of LAPACK's here."""
    if name == PERTURBED:
        return "", "gtsv_perturbed", True
    match = _TARGET.fullmatch(name)
    if match is None:
        return None
    letter, routine, ffi = match.groups()
    routine = SYNONYMS.get(routine, routine)
    known = ARRAYS if ffi else OLD_ARRAYS
    return (letter, routine, bool(ffi)) if routine in known else None


def read_call(op: Op) -> Call:
    """The call of a custom_call whose target `lapack_target` knows."""
    target = lapack_target(op.attributes["call_target_name"])
    assert target is not None
    letter, routine, ffi = target
    letter = letter or LETTERS.get(op.operands[0].tensor.storage.name, "")
    if not letter:
        what = f"custom_call: @{op.attributes['call_target_name']} of {op.operands[0].tensor}"
        raise UnsupportedError(diagnose(what, op.span))
    inputs, outputs = (ARRAYS if ffi else OLD_ARRAYS)[routine]
    if letter in "sd":
        if ffi and routine in ("geev", "gees"):
            outputs = re.sub(r"\bw\b", "wr wi", outputs)
        elif not ffi:
            outputs = OLD_REAL_RESULTS.get(routine, outputs)
    operands = dict(zip(inputs.split(), op.operands, strict=False))
    results = dict(zip(outputs.split(), op.results, strict=False))
    options = attributes_of(op) if ffi else _old_options(op, routine, operands)
    options = {k: chr(v) if k not in ("low", "high") and type(v) is int else v for k, v in options.items()}
    return Call(op, letter, routine, operands, results, options)


def _old_options(op: Op, routine: str, operands: dict[str, Value]) -> dict[str, Any]:
    def number(name: str) -> int:
        source = operands[name].op
        if source is None or source.name != "stablehlo.constant":
            raise UnsupportedError(diagnose(f"custom_call: operand '{name}' must be a constant", op.span))
        return int(source.constant.array.reshape(-1)[0])

    def triangle() -> str:
        return "L" if number("lower") else "U"

    readers: dict[str, Callable[[], dict[str, Any]]] = {
        "potrf": lambda: {"uplo": triangle()},
        "sytrd": lambda: {"uplo": triangle()},
        "syevd": lambda: {"uplo": triangle(), "mode": "V"},
        "gesdd": lambda: {"mode": ("A" if number("full") else "S") if number("compute") else "N"},
        "geev": lambda: {"compute_left": chr(number("left")), "compute_right": chr(number("right"))},
        "gees": lambda: {"mode": chr(number("mode")), "sort": chr(number("sort"))},
        "gehrd": lambda: {"low": number("low"), "high": number("high")},
        "trsm": lambda: {
            "side": "L" if number("left") else "R",
            "uplo": triangle(),
            "trans_x": "NTC"[number("trans")],
            "diag": "U" if number("unit") else "N",
        },
    }
    return readers.get(routine, dict)()
