"""Native memory over many compilations: LLVM and we release unused memory."""

import ctypes
import gc
import os
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit import examples

EXAMPLES = sorted(p for p in Path(examples.__path__[0]).glob("*.mlir"))


class MallInfo(ctypes.Structure):
    """The structure mallinfo2 of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = MallInfo


def allocated() -> int:
    """Returns the bytes that malloc has allocated."""
    gc.collect()
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def cycle(text: str, cache: bool) -> None:
    exe = shlo_jit.compile(text, cache=cache)
    exe(*(np.zeros(p.shape, p.dtype) for p in exe.inputs))


def per_cycle(work, measure, warm: int, count: int) -> float:
    """Returns the growth per run of `work`, the smaller of two measurements: a leak is in both, a table that happens to
    grow is in one."""
    for _ in range(warm):
        work()
    found = [measure()]
    for _ in range(2):
        for _ in range(count):
            work()
        found.append(measure())
    return min(found[1] - found[0], found[2] - found[1]) / count


SMALL = """
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
REFUSED = {
    "parse": SMALL.replace("%0 =", "%0 -"),
    "verify": SMALL.replace("-> tensor<4xf32> {", "-> tensor<5xf32> {"),
    "lower": SMALL.replace(
        "stablehlo.add %a, %b :", "stablehlo.custom_call @nobody(%a, %b) : (tensor<4xf32>, tensor<4xf32>) ->"
    ),
}


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.sampled(2)
def test_compilations_give_their_memory_back(cache):
    assert per_cycle(lambda: cycle(SMALL, cache), allocated, 20, 200) < 300
    assert per_cycle(lambda: cycle(SMALL, cache), mappings, 0, 50) < 0.2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.sampled(5)
def test_examples_give_their_memory_back(path):
    text = path.read_text()
    assert per_cycle(lambda: cycle(text, False), allocated, 5, 15) < 2000


@pytest.mark.parametrize("stage", list(REFUSED))
@pytest.mark.sampled(2)
def test_refusals_give_their_memory_back(stage):
    def refused() -> None:
        with pytest.raises(shlo_jit.StableHLOError):
            shlo_jit.compile(REFUSED[stage], cache=False)

    assert per_cycle(refused, allocated, 20, 100) < 300


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_ten_thousand_cycles(path):
    text = path.read_text()
    assert per_cycle(lambda: cycle(text, True), resident, 1000, 10_000) < 100


@pytest.mark.slow
def test_a_thousand_compilations():
    text = EXAMPLES[0].read_text()
    assert per_cycle(lambda: cycle(text, False), resident, 200, 1000) < 4000
