"""Random functions of scalars, lifted or as loops if they cannot be, compared with Numba's code without our lifting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from random_functions import functions
from test_lifted import pairs, program

import shlo_jit

pytest.importorskip("numba")
from numba_code import computed

from shlo_jit.custom.llvm_text import Refused

same_every_time = settings(
    max_examples=25, deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
INTEGERS = [("i32", "i32"), ("i64", "i64"), ("i8", "i16"), ("ui8", "ui32")]
UNSIGNED_BECOMES_FLOAT = """def f(a, b):
    x = (a // a) if min(a, b) > b else b & a
    y = (((a * 4) % abs(x))) % 1009
    return (b + y) // (y * x)"""
"""Numba converts signed and unsigned integers to floats, here infinite ones, which become an integer again."""
MANY_BRANCHES = """def f(a, b):
    x = a
    y = b
    x = (((b % 5) // (x if min(-2, x) > x else x))) % 1009
    k0 = 0
    while k0 < 6 and ((x - a) <= b or -1 < a):
        k0 += 1
        if (a % y) == 9:
            if (b * y) <= -1:
                return (x * -7)
        else:
            y = (((~y) - (x + y))) % 1009
    return ((b + x) ^ (b - x))"""
"""Branches join in too many combinations to be lifted, which is found within its loop."""


def hold(text: str, operands: tuple[str, str], result: str, arrays: list[np.ndarray]) -> None:
    """Checks for the same bits, except in NaNs."""
    found = {"math": math, "np": np}
    exec(text, found)
    try:
        want = computed(found["f"], operands, result, arrays)
    except Refused:  # Numba cannot type a variable that is signed on one branch and unsigned on the other
        assume(False)
        raise
    code = shlo_jit.elementwise(found["f"])
    text = program([*operands], [result], len(arrays[0]))
    got = shlo_jit.compile(text, custom_calls={"f": code}, cache=False)(*arrays)
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@given(text=functions(integers=False), dtype=st.sampled_from(["f32", "f64"]))
@same_every_time
@pytest.mark.slow
def test_random_functions_of_floats(text, dtype):
    hold(text, (dtype, dtype), dtype, [*pairs(dtype, dtype)])


@given(text=functions(integers=True), dtypes=st.sampled_from(INTEGERS))
@example(text=UNSIGNED_BECOMES_FLOAT, dtypes=("ui8", "ui32"))
@example(text=MANY_BRANCHES, dtypes=("i32", "i32"))
@same_every_time
@pytest.mark.slow
def test_random_functions_of_integers(text, dtypes):
    hold(text, dtypes, "i64", [x.astype(np.float64).clip(-1000, 1000).astype(x.dtype) for x in pairs(*dtypes)])
