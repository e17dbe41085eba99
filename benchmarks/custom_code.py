"""Custom code that is compiled into programs, against the same in StableHLO, and against calls of Numba.

    python -m benchmarks.custom_code            every case
    python -m benchmarks.custom_code wave       one of them

A case is a program with ops before and after a custom call. `ops` is the same program with ops instead of the call,
`call` uses a Python callable that calls Numba's `vectorize`. All run on one thread, alternately. Each number is the
minimum of all rounds, in microseconds.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import shlo_jit

ROUNDS = 200


class Case(NamedTuple):
    """`f(a, b)`, and its body in ops on %0 and %y, with the result %r; {t} is the type of a tensor."""

    name: str
    function: Callable[..., Any]
    ops: str
    n: int = 100_000
    dtype: str = "f32"


def wave(a: Any, b: Any) -> Any:
    if a > b:
        return math.sin(a) * b
    return a - b


def bell(a: Any, b: Any) -> Any:
    return math.exp(-a * a) * np.float32(0.5) + b


def newton(a: Any, b: Any) -> Any:
    x = a
    for _ in range(8):
        x = (x + abs(b) / x) * np.float32(0.5)
    return x


def polynomial(a: Any, b: Any) -> Any:
    c = np.float32(0.1)
    return ((((a * c + b) * a - c) * a + b) * a + c) * a - b


def smooth(a: Any, b: Any) -> Any:
    return math.sin(math.log(math.exp(a) + np.float32(1)) * b)


def clipped(a: Any, b: Any) -> Any:
    x = min(max(a, np.float32(0.75)), np.float32(2.5))
    return x if b < np.float32(1) else -x


def hashed(a: Any, b: Any) -> Any:
    x = np.uint32(a) ^ np.uint32(b)
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B))
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B))
    return x ^ (x >> np.uint32(16))


CASES = (
    Case("polynomial", polynomial, """%c = stablehlo.constant dense<0.1> : {t}
      %1 = stablehlo.multiply %0, %c : {t}
      %2 = stablehlo.add %1, %y : {t}
      %3 = stablehlo.multiply %2, %0 : {t}
      %4 = stablehlo.subtract %3, %c : {t}
      %5 = stablehlo.multiply %4, %0 : {t}
      %6 = stablehlo.add %5, %y : {t}
      %7 = stablehlo.multiply %6, %0 : {t}
      %8 = stablehlo.add %7, %c : {t}
      %9 = stablehlo.multiply %8, %0 : {t}
      %r = stablehlo.subtract %9, %y : {t}"""),
    Case("smooth", smooth, """%o = stablehlo.constant dense<1.0> : {t}
      %e = stablehlo.exponential %0 : {t}
      %s = stablehlo.add %e, %o : {t}
      %l = stablehlo.log %s : {t}
      %m = stablehlo.multiply %l, %y : {t}
      %r = stablehlo.sine %m : {t}"""),
    Case("clipped", clipped, """%l = stablehlo.constant dense<0.75> : {t}
      %h = stablehlo.constant dense<2.5> : {t}
      %o = stablehlo.constant dense<1.0> : {t}
      %m = stablehlo.clamp %l, %0, %h : {t}
      %n = stablehlo.negate %m : {t}
      %c = stablehlo.compare LT, %y, %o : ({t}, {t}) -> {b}
      %r = stablehlo.select %c, %m, %n : {b}, {t}"""),
    Case("hashed", hashed, """%k = stablehlo.constant dense<73244147> : {t}
      %s = stablehlo.constant dense<16> : {t}
      %z = stablehlo.xor %0, %y : {t}
      %1 = stablehlo.shift_right_logical %z, %s : {t}
      %2 = stablehlo.xor %z, %1 : {t}
      %3 = stablehlo.multiply %2, %k : {t}
      %4 = stablehlo.shift_right_logical %3, %s : {t}
      %5 = stablehlo.xor %3, %4 : {t}
      %6 = stablehlo.multiply %5, %k : {t}
      %7 = stablehlo.shift_right_logical %6, %s : {t}
      %r = stablehlo.xor %6, %7 : {t}""", dtype="ui32"),
    Case("wave", wave, """%c = stablehlo.compare GT, %0, %y : ({t}, {t}) -> {b}
      %s = stablehlo.sine %0 : {t}
      %p = stablehlo.multiply %s, %y : {t}
      %d = stablehlo.subtract %0, %y : {t}
      %r = stablehlo.select %c, %p, %d : {b}, {t}"""),
    Case("bell", bell, """%h = stablehlo.constant dense<0.5> : {t}
      %n = stablehlo.negate %0 : {t}
      %q = stablehlo.multiply %n, %0 : {t}
      %e = stablehlo.exponential %q : {t}
      %m = stablehlo.multiply %e, %h : {t}
      %r = stablehlo.add %m, %y : {t}"""),
    Case("newton", newton, """%h = stablehlo.constant dense<0.5> : {t}
      %k = stablehlo.constant dense<0> : tensor<i32>
      %m = stablehlo.constant dense<8> : tensor<i32>
      %o = stablehlo.constant dense<1> : tensor<i32>
      %a = stablehlo.abs %y : {t}
      %w:2 = stablehlo.while(%i = %k, %u = %0) : tensor<i32>, {t}
        cond {{ %c = stablehlo.compare LT, %i, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %c : tensor<i1> }}
        do {{ %q = stablehlo.divide %a, %u : {t}
             %s = stablehlo.add %u, %q : {t}
             %z = stablehlo.multiply %s, %h : {t}
             %j = stablehlo.add %i, %o : tensor<i32>
             stablehlo.return %j, %z : tensor<i32>, {t} }}
      %r = stablehlo.add %w#1, %w#1 : {t}
      %r2 = stablehlo.multiply %r, %h : {t}"""),
)  # fmt: skip


def program(case: Case, inside: str) -> str:
    """Program of a case, with `inside` in place of the call."""
    t, b = (f"tensor<{case.n}x{d}>" for d in (case.dtype, "i1"))
    result = "%r2" if "%r2" in inside else "%r"
    return f"""func.func @main(%x: {t}, %y: {t}) -> {t} {{
      %0 = stablehlo.add %x, %y : {t}
      {inside.format(t=t, b=b)}
      %out = stablehlo.multiply {result}, %x : {t}
      return %out : {t}
    }}"""


def executables(case: Case) -> dict[str, Any]:
    call = "%r = stablehlo.custom_call @f(%0, %y) : ({t}, {t}) -> {t}"
    options: dict[str, Any] = {"threads": 1, "cache": False}
    calls = {"code": shlo_jit.elementwise(case.function), "call": _beside(case)}
    found = {n: shlo_jit.compile(program(case, call), custom_calls={"f": f}, **options) for n, f in calls.items()}
    return {**found, "ops": shlo_jit.compile(program(case, case.ops), **options)}


def _beside(case: Case) -> Callable[..., Any]:
    """A Python callable that calls the case's function compiled by Numba."""
    import numba

    types = {"f32": "float32", "ui32": "uint32"}[case.dtype]
    return numba.vectorize([f"{types}({types}, {types})"])(case.function).__call__


def measured(exes: dict[str, Any], arrays: Sequence[np.ndarray]) -> dict[str, float]:
    """Microseconds per call of each executable."""
    best = dict.fromkeys(exes, math.inf)
    for _ in range(ROUNDS):
        for name, exe in exes.items():
            start = time.perf_counter()
            exe(*arrays)
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: seconds * 1e6 for name, seconds in best.items()}


def _numbers(case: Case, rng: np.random.Generator) -> np.ndarray:
    if case.dtype == "f32":
        return rng.uniform(0.5, 3, case.n).astype(np.float32)
    return rng.integers(0, 1 << 32, case.n, np.uint32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases")
    names = parser.parse_args().names
    rng = np.random.default_rng(0)
    print(f"{'case':<10} {'code':>8} {'ops':>8} {'call':>8}   ops / code   plan")
    for case in CASES:
        if names and case.name not in names:
            continue
        exes = executables(case)
        arrays = [_numbers(case, rng) for _ in range(2)]
        np.testing.assert_allclose(exes["code"](*arrays), exes["call"](*arrays), rtol=1e-4, atol=1e-5)
        t = measured(exes, arrays)
        plan = exes["code"].text("plan").splitlines()[0].partition(";")[0]
        times = " ".join(f"{t[way]:8.1f}" for way in ("code", "ops", "call"))
        print(f"{case.name:<10} {times}   {t['ops'] / t['code']:10.2f}   {plan}")


if __name__ == "__main__":
    main()
