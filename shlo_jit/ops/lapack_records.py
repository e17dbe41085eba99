"""Records of the custom calls by which JAX uses LAPACK; see `call_record.py` for the notation.

`lapack_spotrf_ffi` has its options in its configuration, characters as ASCII codes. The older `lapack_spotrf` and
`blas_strsm` have options and sizes as constant operands before the arrays, and return workspaces among the results.
T denotes the element type given by the target's letter (s, d, c, z), R the type of its real part, C the complex type.
`lower/kernels/lapack/factors.py` uses the names of the ports.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shlo_jit.ir.types import DTYPES
from shlo_jit.ops.call_record import CallDef, ports

PERTURBED = "tridiagonal_solve_perturbed_ffi"
"""The only target without a letter: its element type follows from its operands."""
LETTERS = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
SYNONYMS = {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hetrd": "sytrd"}
"""Names of complex routines -> names of the real ones."""
_TARGET = re.compile(r"(?:lapack|blas)_([sdcz])([a-z0-9]+?)(_ffi)?")


@dataclass(frozen=True)
class Routine:
    """Operands and results of the targets of one routine."""

    operands: str
    results: str
    options: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    real_results: str = ""
    """Results for real matrices if they differ."""


_SVD = Routine(
    "x: T[m n]",
    "x: T[m n], s: R[min(m,n)], u: T[m p], vt: T[q n], info: i32[]",
    {"mode": "SAN"},
    ("mode == 'N' or p == (m if mode == 'A' else min(m, n))", "mode == 'N' or q == (n if mode == 'A' else min(m, n))"),
)
_DIAGONALS = "dl: T[below], d: T[n], du: T[above], b: T[n k]"
_TRIDIAGONAL = ("below in (n, n - 1)", "above in (n, n - 1)")
_SIDES = ("k == (m if side == 'L' else n)",)

ROUTINES: dict[str, Routine] = {
    "potrf": Routine("x: T[n n]", "x: T[n n], info: i32[]", {"uplo": "UL"}),
    "getrf": Routine("x: T[m n]", "x: T[m n], ipiv: i32[min(m,n)], info: i32[]"),
    "geqrf": Routine("x: T[m n]", "x: T[m n], tau: T[min(m,n)]"),
    "geqp3": Routine("x: T[m n], jpvt: i32[n]", "x: T[m n], jpvt: i32[n], tau: T[min(m,n)]"),
    "orgqr": Routine("x: T[m n], tau: T[k]", "x: T[m n]", rules=("k <= n <= m",)),
    "ormqr": Routine(
        "a: T[r s], tau: T[k], c: T[m n]", "c: T[m n]", {"left": "bool", "transpose": "bool"},
        ("r == (m if left else n)", "k <= min(r, s)"),
    ),
    "gesdd": _SVD,
    "gesvd": _SVD,
    "syevd": Routine("x: T[n n]", "x: T[n n], w: R[n], info: i32[]", {"uplo": "UL", "mode": "VN"}),
    "geev": Routine(
        "x: T[n n]", "w: C[n], vl: C[n n], vr: C[n n], info: i32[]", {"compute_left": "VN", "compute_right": "VN"},
        real_results="wr: R[n], wi: R[n], vl: C[n n], vr: C[n n], info: i32[]",
    ),
    "gees": Routine(
        "x: T[n n]", "x: T[n n], vs: T[n n], w: C[n], sdim: i32[], info: i32[]", {"mode": "VN", "sort": "N"},
        real_results="x: T[n n], vs: T[n n], wr: R[n], wi: R[n], sdim: i32[], info: i32[]",
    ),
    "gehrd": Routine(
        "x: T[n n]", "x: T[n n], tau: T[max(n-1,0)], info: i32[]", {"low": "int", "high": "int"},
        ("1 <= low <= max(n, 1)", "min(low, n) <= high <= n"),
    ),
    "sytrd": Routine(
        "x: T[n n]", "x: T[n n], d: R[n], e: R[max(n-1,0)], tau: T[max(n-1,0)], info: i32[]", {"uplo": "UL"}
    ),
    "gtsv": Routine(
        _DIAGONALS, "dl: T[below], d: T[n], du: T[above], b: T[n k], info: i32[]", rules=_TRIDIAGONAL
    ),
    "gtsv_perturbed": Routine(_DIAGONALS, "b: T[n k]", rules=_TRIDIAGONAL),
    "trsm": Routine(
        "a: T[k k], b: T[m n], alpha?: 0d T", "b: T[m n]", {"side": "LR", "uplo": "UL", "trans_x": "NTC", "diag": "UN"},
        _SIDES,
    ),
}  # fmt: skip
"""Operands and results of the `_ffi` targets, by routine."""


def _numbers(names: str) -> str:
    return "".join(f"{name}: 0d int, " for name in names.split())


_REST = ", work*: tensor"
OLD_ROUTINES: dict[str, Routine] = {
    "potrf": Routine(_numbers("lower batch n") + "x: T[n n]", "x: T[n n], info: i32[]", rules=("lower in (0, 1)",)),
    "getrf": Routine(_numbers("batch m n") + "x: T[m n]", "x: T[m n], ipiv: i32[min(m,n)], info: i32[]"),
    "geqrf": Routine(
        _numbers("batch m n lwork") + "x: T[m n]", "x: T[m n], tau: T[min(m,n)], info: i32[]" + _REST
    ),
    "orgqr": Routine(
        _numbers("batch m n k lwork") + "x: T[m n], tau: T[k]", "x: T[m n], info: i32[]" + _REST,
        rules=("k <= n <= m",),
    ),
    "gesdd": Routine(
        _numbers("full compute batch m n lwork") + "x: T[m n]",
        "x: T[m n], s: R[min(m,n)], u: T[m p], vt: T[q n], info: i32[]" + _REST,
        rules=(
            "full in (0, 1)", "compute in (0, 1)", "not compute or p == (m if full else min(m, n))",
            "not compute or q == (n if full else min(m, n))",
        ),
    ),
    "syevd": Routine(
        _numbers("lower batch n") + "x: T[n n]", "x: T[n n], w: R[n], info: i32[]" + _REST, rules=("lower in (0, 1)",)
    ),
    "geev": Routine(
        _numbers("batch n left right") + "x: T[n n]",
        "work: tensor, rwork: tensor, w: C[n], vl: C[n n], vr: C[n n], info: i32[]",
        rules=("left in (78, 86)", "right in (78, 86)"),
        real_results="work: tensor, vlwork: tensor, vrwork: tensor, wr: R[n], wi: R[n], vl: C[n n], vr: C[n n], "
        "info: i32[]",
    ),
    "gees": Routine(
        _numbers("batch n mode sort") + "x: T[n n]",
        "x: T[n n], rwork: tensor, w: C[n], vs: T[n n], sdim: i32[], info: i32[]" + _REST,
        rules=("mode in (78, 86)", "sort == 78"),
        real_results="x: T[n n], wr: R[n], wi: R[n], vs: T[n n], sdim: i32[], info: i32[]" + _REST,
    ),
    "gehrd": Routine(
        _numbers("n low high lda batch lwork") + "x: T[n n]", "x: T[n n], tau: T[max(n-1,0)], info: i32[]" + _REST,
        rules=("1 <= low <= max(n, 1)", "min(low, n) <= high <= n", "lda in (n, 1)"),
    ),
    "sytrd": Routine(
        _numbers("n lower lda batch lwork") + "x: T[n n]",
        "x: T[n n], d: R[n], e: R[max(n-1,0)], tau: T[max(n-1,0)], info: i32[]" + _REST,
        rules=("lower in (0, 1)", "lda in (n, 1)"),
    ),
    "trsm": Routine(
        _numbers("left lower trans unit m n batch") + "alpha: 0d T, a: T[k k], b: T[m n]", "b: T[m n]",
        rules=("left in (0, 1)", "lower in (0, 1)", "trans in (0, 1, 2)", "unit in (0, 1)", "k == (m if left else n)"),
    ),
}  # fmt: skip
"""The same for targets without `_ffi` (JAX up to 0.4.30). Letters are ASCII codes: 78 is N, 86 is V."""


@functools.cache
def lapack_target(name: str) -> tuple[str, str, bool] | None:
    """Returns the letter (or an empty string), the routine, and whether it is an `_ffi` target; None for a name that is
    not a known LAPACK target."""
    if name == PERTURBED:
        return "", "gtsv_perturbed", True
    match = _TARGET.fullmatch(name)
    if match is None:
        return None
    letter, routine, ffi = match.groups()
    routine = SYNONYMS.get(routine, routine)
    known = ROUTINES if ffi else OLD_ROUTINES
    return (letter, routine, bool(ffi)) if routine in known else None


@functools.cache
def lapack_record(letter: str, routine: str, ffi: bool) -> CallDef:
    """Returns the record of a target, given the parts that `lapack_target` returns; the letter is one of `LETTERS`."""
    about = (ROUTINES if ffi else OLD_ROUTINES)[routine]
    element = LETTERS[letter]
    part = DTYPES[element].part.name
    results = about.real_results if letter in "sd" and about.real_results else about.results
    meant = {"T": element, "R": part, "C": f"complex<{part}>"}

    def filled(text: str) -> str:
        return re.sub(r"\b[TRC]\b", lambda m: meant[m[0]], text)

    return CallDef(ports(filled(about.operands)), ports(filled(results)), about.options, about.rules)
