"""The GIL during calls, and signals that arrive meanwhile."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import shlo_jit

LOOP = """
func.func @main(%n: tensor<i64>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i64>, tensor<4xf32>
  cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i64>
    BODY
    stablehlo.return %j, %b : tensor<i64>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}"""
TINY = LOOP.replace("BODY", "%b = stablehlo.cosine %a : tensor<4xf32>")
NESTED = LOOP.replace(
    "BODY",
    """%s:2 = stablehlo.while(%k = %zero, %b0 = %a) : tensor<i64>, tensor<4xf32>
    cond {
      %q = stablehlo.compare LT, %k, %one : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %q : tensor<i1>
    } do {
      %l = stablehlo.add %k, %one : tensor<i64>
      %c = stablehlo.cosine %b0 : tensor<4xf32>
      stablehlo.return %l, %c : tensor<i64>, tensor<4xf32>
    }
    %b = stablehlo.add %s#1, %s#1 : tensor<4xf32>""",
)
HEAVY = LOOP.replace(
    "BODY",
    """%big = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<4xf32>) -> tensor<100000x4xf32>
    %sorted = "stablehlo.sort"(%big) <{dimension = 0 : i64}> ({
    ^bb0(%u: tensor<f32>, %v: tensor<f32>):
      %less = stablehlo.compare LT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    }) : (tensor<100000x4xf32>) -> tensor<100000x4xf32>
    %first = stablehlo.slice %sorted [0:1, 0:4] : (tensor<100000x4xf32>) -> tensor<1x4xf32>
    %b = stablehlo.reshape %first : (tensor<1x4xf32>) -> tensor<4xf32>""",
)
STEPS = 1000
STRAIGHT = (
    "func.func @main(%v0: T) -> T {\n"
    + "".join(f"  %v{k + 1} = stablehlo.dot %v{k}, %v0 : (T, T) -> T\n" for k in range(STEPS))
    + f"  return %v{STEPS} : T\n}}"
).replace("T", "tensor<500x500xf32>")
pytestmark = pytest.mark.usefixtures("ctrl_c")
X = np.ones(4, np.float32)
FOR_EVER = np.array(1 << 60)


@contextmanager
def signal_after(seconds: float, number: int = signal.SIGINT):
    """Sends a signal to this process; yields the times when it was sent."""
    sent: list[float] = []

    def send() -> None:
        time.sleep(seconds)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    yield sent
    thread.join()


def interrupted(exe, *args) -> float:
    """Returns the seconds from a Ctrl-C to KeyboardInterrupt."""
    with signal_after(0.2) as sent:
        with pytest.raises(KeyboardInterrupt):
            exe(*args)
        return time.perf_counter() - sent[0]


@pytest.mark.parametrize("text", [TINY, NESTED, HEAVY], ids=["tiny", "nested", "heavy"])
def test_a_loop_stops_and_can_run_again(text):
    exe = shlo_jit.compile(text)
    before = exe(np.array(3), X)
    assert min(interrupted(exe, FOR_EVER, X) for _ in range(2)) < 0.1
    np.testing.assert_array_equal(exe(np.array(3), X), before)


def test_a_call_through_conversions_stops():
    exe = shlo_jit.compile(TINY)
    assert min(interrupted(exe, int(FOR_EVER), X[::-1]) for _ in range(2)) < 0.1
    exe(3, X)


def test_a_call_with_donated_arguments_stops():
    exe = shlo_jit.compile(TINY, donate=[1])
    assert min(interrupted(exe, FOR_EVER, X.copy()) for _ in range(2)) < 0.1
    exe(np.array(3), X.copy())


@pytest.mark.slow
def test_a_long_straight_program_stops():
    exe = shlo_jit.compile(STRAIGHT)
    x = np.zeros((500, 500), np.float32)
    assert interrupted(exe, x) < 0.1


WIDE = 1 << 62
N = 4000
CONVOLUTION = """
func.func @main(%x: tensor<4x128x128x64xf32>, %w: tensor<13x13x64x128xf32>) -> tensor<4x128x128x128xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[6, 6], [6, 6]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<4x128x128x64xf32>, tensor<13x13x64x128xf32>) -> tensor<4x128x128x128xf32>
  return %0 : tensor<4x128x128x128xf32>
}"""
WINDOWS = """
func.func @main(%x: tensor<4xf64>, %one: tensor<f64>) -> tensor<4xf64> {
  %0 = "stablehlo.reduce_window"(%x, %one) <{window_dimensions = array<i64: SIZE>,
      padding = dense<[[LOW, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) : (tensor<4xf64>, tensor<f64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}""".replace("SIZE", str(WIDE)).replace("LOW", str(WIDE - 1))
NEST = """
func.func @main(%x: tensor<Nxf32>) -> tensor<Nxf32> {
  %a = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<Nxf32>) -> tensor<NxNxf32>
  %b = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<Nxf32>) -> tensor<NxNxf32>
  %c = stablehlo.power %a, %b : tensor<NxNxf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<NxNxf32>, tensor<f32>) -> tensor<Nxf32>
  return %r : tensor<Nxf32>
}""".replace("N", "50000")
PRODUCT = """
func.func @main(%x: T) -> T {
  %0 = stablehlo.dot %x, %x : (T, T) -> T
  return %0 : T
}""".replace("T", f"tensor<{N}x{N}xf32>")
LONG = {
    "product": (PRODUCT, (N, N)),
    "convolution": (CONVOLUTION, (4, 128, 128, 64), (13, 13, 64, 128)),
    "windows": (WINDOWS, (4,), ()),
    "nest": (NEST, (50000,)),
}
"""Programs of one step that takes seconds, the one with windows forever, and the shapes of their arguments."""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LONG)
def test_a_single_step_that_is_long_stops(name: str, threads: int) -> None:
    text, *shapes = LONG[name]
    exe, small = shlo_jit.compile(text, threads=threads), shlo_jit.compile(TINY, threads=threads)
    args = [np.ones(shape, np.float64 if name == "windows" else np.float32) for shape in shapes]
    before = small(np.array(3), X)
    assert min(interrupted(exe, *args) for _ in range(2)) < 0.25
    np.testing.assert_array_equal(small(np.array(3), X), before)


def test_exceptions_of_other_handlers_come_through():
    class Alarm(Exception):
        pass

    def ring(number, frame):
        raise Alarm

    exe = shlo_jit.compile(TINY)
    old = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            exe(FOR_EVER, X)
    finally:
        signal.signal(signal.SIGALRM, old)


def test_a_handler_that_returns_and_calls_programs_does_not_stop_the_call():
    exe = shlo_jit.compile(TINY)
    heard = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(exe(np.array(2), X)))
    try:
        expected = exe(np.array(2), X)
        count = np.array(30_000_000)
        with signal_after(0.1, signal.SIGUSR1):
            begin = time.perf_counter()
            exe(count, X)
            took = time.perf_counter() - begin
        assert took > 0.15
        np.testing.assert_array_equal(heard[0], expected)
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_calls_in_other_threads_go_on():
    """Ctrl-C is the main thread's: it gets it immediately, and the call in the other thread ends normally."""
    exe = shlo_jit.compile(TINY)
    results = []
    other = threading.Thread(target=lambda: results.append(exe(np.array(30_000_000), X)))
    with signal_after(0.1):
        with pytest.raises(KeyboardInterrupt):
            other.start()
            time.sleep(5)
        assert not results
        other.join()
    assert len(results) == 1


def test_a_long_call_after_short_ones_leaves_other_threads_running():
    exe = shlo_jit.compile(TINY)
    for _ in range(50):
        exe(np.array(1), X)
    ticks, stop = [], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.005)

    other = threading.Thread(target=tick)
    other.start()
    begin = time.perf_counter()
    exe(np.array(30_000_000), X)
    end = time.perf_counter()
    stop.set()
    other.join()
    assert end - begin > 0.1
    assert sum(begin < t < end for t in ticks) > 5


def test_which_programs_are_short():
    def short(text: str) -> bool:
        return shlo_jit.compile(text)._front.program.is_short

    def program(op: str) -> str:
        return f"func.func @main(%x: T) -> T {{\n  %0 = stablehlo.{op}\n  return %0 : T\n}}"

    add, dot = program("add %x, %x : T"), program("dot %x, %x : (T, T) -> T")
    assert [short(add.replace("T", f"tensor<{n}xf32>")) for n in (4, 1000, 100_000)] == [True, True, False]
    assert [short(dot.replace("T", f"tensor<{n}x{n}xf32>")) for n in (16, 64)] == [True, False]
    assert not short(TINY)
