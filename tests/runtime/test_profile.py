"""Profiles: the steps that ran, how often, and their names."""

from __future__ import annotations

import io
import re
import threading
import time

import numpy as np
import pytest
from measured_programs import LAYER, LOOP, layer_arguments
from programs import TARGET, constant
from rich.console import Console

import shlo_jit
from shlo_jit.runtime.build import build
from shlo_jit.runtime.profile import Profile


def test_steps_are_those_of_the_plan() -> None:
    exe, arguments = shlo_jit.compile(LAYER), layer_arguments()
    ordinary = exe(*arguments)
    with exe.profile() as p:
        for _ in range(5):
            measured = exe(*arguments)
    np.testing.assert_array_equal(ordinary, measured)
    plan = re.findall(r"^ +(\S+) (\w+)", exe.text("plan"), re.MULTILINE)
    assert [(s.label, s.title) for s in p.steps] == [(a, b) for a, b in plan if a[0].isdigit()]
    product, row = p.steps
    assert [s.calls for s in p.steps] == [5, 5]
    assert product.kernels == ("shlo_gemm_f32_f32_f32",)
    assert product.ops == "dot_general (line 2)"
    assert row.ops == "broadcast_in_dim add reduce subtract (lines 3-8)"
    assert product.share + row.share == pytest.approx(1)


def test_rates_are_bytes_and_operations_by_the_median() -> None:
    exe = shlo_jit.compile(LAYER)
    with exe.profile() as p:
        exe(*layer_arguments())
    product, row = p.steps
    assert product.gigaflops == pytest.approx(2 * 64 * 784 * 10 / product.median_us / 1e3)
    moved = 4 * (64 * 784 + 784 * 10 + 64 * 10)
    assert product.gigabytes_per_second == pytest.approx(moved / product.median_us / 1e3)
    # the row program reads the product and the bias and writes the result; add, maximum and subtract per element
    assert row.gigabytes_per_second == pytest.approx(4 * (2 * 64 * 10 + 10) / row.median_us / 1e3)
    assert row.gigaflops == pytest.approx(3 * 64 * 10 / row.median_us / 1e3)


def test_steps_in_a_loop_are_counted_each_iteration() -> None:
    exe, x = shlo_jit.compile(LOOP), np.linspace(0, 1, 64, dtype=np.float32)
    with exe.profile() as p:
        exe(x, np.int32(7))
    calls = {s.label: s.calls for s in p.steps}
    loop = next(s for s in p.steps if s.title == "while")
    assert calls[loop.label] == 1
    assert calls[f"{loop.label}.0.0"] == 8  # the condition is evaluated once more
    assert {n for label, n in calls.items() if label.startswith(f"{loop.label}.1.")} == {7}
    inside = sum(s.total_us for s in p.steps if s.label.startswith(f"{loop.label}."))
    assert loop.total_us > inside
    assert loop.share == 0 and loop.gigaflops is None
    assert sum(s.share for s in p.steps) == pytest.approx(1)


def test_times_are_those_of_a_clock() -> None:
    def wait(x: np.ndarray) -> np.ndarray:
        time.sleep(0.02)
        return x

    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @wait(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    exe = shlo_jit.compile(text, custom_calls={"wait": wait})
    with exe.profile() as p:
        exe(np.ones(4, np.float32))
    (step,) = p.steps
    assert 20_000 < step.median_us < 2_000_000


def test_functions_that_are_called_have_their_names() -> None:
    """Profiles a program that is too large for its calls to be inlined."""
    t = "tensor<64xf32>"
    body = "\n".join(f"%v{i + 1} = stablehlo.cosine %v{i} : {t}" for i in range(100))
    calls = "\n".join(f"%c{i + 1} = func.call @layer(%c{i}) : ({t}) -> {t}" for i in range(100))
    text = f"""
      func.func @main(%c0: {t}) -> {t} {{ {calls} return %c100 : {t} }}
      func.func private @layer(%v0: {t}) -> {t} {{ {body} return %v100 : {t} }}"""
    exe = shlo_jit.compile(text)
    with exe.profile() as p:
        exe(np.ones(64, np.float32))
    inside = [s for s in p.steps if s.label.startswith("@layer ")]
    assert inside and {s.calls for s in inside} == {100}
    calls = [s for s in p.steps if s.title == "call"]
    assert len(calls) == 100 and {s.share for s in calls} == {0}
    assert sum(s.share for s in p.steps) == pytest.approx(1)
    assert sum(s.total_us for s in calls) > sum(s.total_us for s in inside)


def test_calls_are_ordinary_again_afterwards() -> None:
    exe, arguments = shlo_jit.compile(LAYER), layer_arguments()
    ordinary = exe.__call__
    with pytest.raises(KeyError), exe.profile() as p:
        assert exe.__call__ is not ordinary
        exe(*arguments)
        raise KeyError
    assert exe.__call__ is ordinary
    exe(*arguments)
    assert {s.calls for s in p.steps} == {1}
    p.reset()
    assert p.steps == []


def test_a_profile_is_printed_as_a_table() -> None:
    exe = shlo_jit.compile(LAYER)
    with exe.profile() as p:
        exe(*layer_arguments())
    head, line, *rows = str(p).splitlines()
    assert head.split() == ["step", "calls", "median", "us", "best", "share", "GB/s", "GFLOP/s", "kernel", "ops"]
    assert set(line) == {"─"}
    assert [row.split()[:2] for row in rows] == [["0", "dot_general"], ["1", "row"]]
    assert len({row.index("shlo_gemm" if "shlo_gemm" in row else "row_") for row in rows}) <= 2


def test_figures_are_not_cut_on_narrow_consoles() -> None:
    exe = shlo_jit.compile(LAYER)
    with exe.profile() as p:
        exe(*layer_arguments())
    text = io.StringIO()
    Console(file=text, width=80, highlight=False).print(p.table())
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80 and "…" not in text.getvalue()
    assert lines[0].split() == ["step", "calls", "median", "us", "best", "share", "GB/s", "GFLOP/s"]
    second = lines.index("") + 1
    assert lines[second].split() == ["step", "ops", "kernel"]
    assert any("shlo_gemm" in line for line in lines[second:])


def test_threads_may_call_while_it_measures() -> None:
    exe, x = shlo_jit.compile(LOOP), np.linspace(0, 1, 64, dtype=np.float32)
    with exe.profile() as p:
        threads = [threading.Thread(target=lambda: [exe(x, np.int32(50)) for _ in range(20)]) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert 0 < p.steps[0].calls <= 60


def test_executables_without_a_program_have_no_profile() -> None:
    with pytest.raises(ValueError, match="StableHLO"):
        build(constant(np.ones(3)), TARGET, cache=False).profile()


def test_the_profile_is_exported() -> None:
    assert isinstance(shlo_jit.compile(LAYER).profile(), Profile)
