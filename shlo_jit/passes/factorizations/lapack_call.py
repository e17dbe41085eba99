"""The custom calls through which JAX calls LAPACK, read into one form.

Newer targets (`lapack_spotrf_ffi`) have options as attributes, older ones (`lapack_spotrf`, `blas_strsm`) as constant
operands; `ops/lapack_records.py` has the records of both. Here both become a `Call`: arrays by name, and options as
LAPACK spells them.

Matrices come column-major: the pass `explicit_layouts` has made the transposes explicit, so a program's row-major
tensor of shape [..., columns, rows] is the matrix LAPACK sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shlo_jit.errors import UnsupportedError
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops import Violation
from shlo_jit.ops.call_record import assigned, check_call, configuration
from shlo_jit.ops.known_calls import call_record, lapack_letter
from shlo_jit.ops.lapack_records import lapack_target
from shlo_jit.ops.type_algebra import constant_ints
from shlo_jit.verify.verifier import diagnostic_of


@dataclass(frozen=True)
class Call:
    """A call of a LAPACK routine for a batch of matrices."""

    op: Op
    letter: str
    """s, d, c or z: the element type."""
    routine: str
    """LAPACK's name of the routine for real matrices: `orgqr`, for `cungqr` too."""
    operands: dict[str, Value]
    results: dict[str, Value]
    options: dict[str, Any]

    @property
    def is_complex(self) -> bool:
        return self.letter in "cz"

    @property
    def part_bytes(self) -> int:
        """Bytes of a real number, or of the real part of a complex one."""
        return 4 if self.letter in "sc" else 8

    @property
    def itemsize(self) -> int:
        """Bytes of a matrix element."""
        return self.part_bytes * (2 if self.is_complex else 1)

    # ------------------------------------------------------------------ the batch, and one matrix of it
    @property
    def batch(self) -> tuple[int, ...]:
        """Extents of the batch dimensions."""
        matrix = max(self.operands.values(), key=lambda v: v.tensor.rank)
        return matrix.tensor.extents[:-2]

    @property
    def count(self) -> int:
        """Number of matrices in the batch."""
        return math.prod(self.batch)

    def core(self, name: str) -> tuple[int, ...]:
        """Shape, in memory order, of one matrix or vector of the batch. `name` is an operand or a result."""
        value = self.operands[name] if name in self.operands else self.results[name]
        return value.tensor.extents[len(self.batch) :]

    def rows(self, name: str) -> int:
        return self.core(name)[-1]

    def columns(self, name: str) -> int:
        return self.core(name)[-2]

    def length(self, name: str) -> int:
        """Length of a vector."""
        return self.core(name)[-1]


def read_call(op: Op) -> Call:
    """Reads a custom_call whose target `lapack_target` knows. Raises UnsupportedError if an operand that must be
    constant is not."""
    record, target = call_record(op), lapack_target(op.attributes["call_target_name"])
    assert record is not None and target is not None
    try:
        check_call(record, op, final=True)
    except Violation as violation:
        raise UnsupportedError(diagnostic_of(op, violation)) from None
    _, routine, ffi = target
    operands = {port.name: v for port, v in assigned(record.operands, op.operands)}
    results = {port.name: v for port, v in assigned(record.results, op.results)}
    options = _options(op) if ffi else _old_options(routine, operands)
    return Call(op, lapack_letter(op), routine, operands, results, options)


def _options(op: Op) -> dict[str, Any]:
    """The options of a newer target. Attributes hold characters as their codes; the options have the characters."""
    given = configuration(op)
    return {k: chr(v) if k not in ("low", "high") and type(v) is int else v for k, v in given.items()}


def _old_options(routine: str, operands: dict[str, Value]) -> dict[str, Any]:
    def number(name: str) -> int:
        known = constant_ints(operands[name])
        assert known is not None
        return known[0]

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
