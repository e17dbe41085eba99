"""Effect of the thresholds of `shlo_jit/tuning`: a case's times with a threshold halved, unchanged, and doubled.

    python -m benchmarks.thresholds                      every threshold that has a case
    python -m benchmarks.thresholds TILE_SIDE ROW_BUFFER_COST

Each variant is a process of its own that sets the threshold before it compiles, without the object cache. The three
alternate, so that a disturbance affects all. `changes` is what the variants differ in: the program's LLVM text, its
schedule (without reasons), or only the text of a routine it calls, which decides at run time, and here the same.
Variants that change nothing are not timed. Compare ratios with the noise: by how much the median of the blocks is above
the fastest.
"""

from __future__ import annotations

import multiprocessing
import re
import statistics
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from shlo_jit.caches import Share

CASES = {
    "NARROW_PRODUCT": "dot f32 80000x3x3",
    "SMALL_PRODUCT": "dot f32 2000 of 12",
    "SMALL_VECTOR_PRODUCT": "dense 1x100",
    "UNROLL_TRIP_COUNT": "k-means, 10 rounds",
    "UNROLL_OPS": "n-body, 10 steps",
    "ROW_ELEMENTS": "softmax",
    "COLUMN_ELEMENTS": "residual network",
    "TASK_WORK": "add 3M",
    "PARALLEL_WORK": "add 30K",
    "MAX_TASKS": "exp",
    "SPLIT_UNITS": "sum of all",
    "COPY_PARALLEL_BYTES": "update rows",
    "COPY_STREAM_BYTES": "update rows",
    "SHORT_SELECTION": "argmax of short rows",
    "STRIDED_LOAD": "strided slice",
    "EXPENSIVE_COST": "forces between bodies",
    "SMALL_SOURCE_RATIO": "forces between bodies",
    "TILE_SIDE": "transpose 3000",
    "TILE_STRIPE": "transpose 3000",
    "PREFETCH_BYTES": "heat, 60 steps",
    "PREFETCH_DISTANCE": "gelu",
    "ROW_BUFFER_COST": "softmax",
    "ROW_BUFFER_BYTES": "log softmax",
    "STREAM_BYTES": "add 3M",
    "WINDOW_UNROLLED": "max pool 2x2",
    "WINDOW_SMALL": "max pool 2x2",
    "WINDOW_VECTORS": "max pool 2x2",
    "SCAN_SIMPLE_COST": "cumulative sum",
    "SCAN_ROWS": "cumulative sum",
    "SCATTER_UNITS": "scatter add rows",
    "SCATTER_VECTORS": "scatter add rows",
    "SORT_LONG_LINE": "sort 500K",
    "SORT_CHUNKS": "sort 500K",
    "TOP_K_INSERTED": "top 10 of rows",
    "FFT_BLOCK_BYTES": "fft 2048",
    "FFT_PARALLEL": "fft 2048",
    "FFT_SLICE": "fft 2048",
    "MATRIX_COOPERATIVE": "cholesky 400",
    "ATTENTION_TASKS": "attention 12 of 384",
    "ATTENTION_TASK_ROWS": "causal attention",
    "ATTENTION_BLOCK_BYTES": "attention 12 of 384",
    "GEMM_SERIAL": "dot f32 128",
    "GEMM_TASK": "dot f32 512",
    "GEMM_PRIVATE_ROWS": "dot f32 128",
    "GEMM_PRIVATE_PRODUCT": "dot f32 16 of 256",
    "GEMM_BATCH": "dot f32 16 of 256",
    "GEMM_GROUP": "dot f32 2000 of 16",
    "GEMM_CHUNK_BYTES": "dot f32 1536",
    "GEMM_B_RESIDENT": "dot f32 128",
    "GEMM_THIN": "dot f32 32x1024x4096",
    "GEMM_THIN_BYTES": "MLP",
    "GEMM_VECTOR_CHUNK": "dot f32 vector x 3000x3000",
    "GEMM_VECTOR_FAR": "dot f32 vector x 3000x3000",
    "GEMM_PANEL_PREFETCH": "dot f32 1536",
    "CONV_TASK": "conv 3x3 64x64x32",
    "CONV_CALL_K": "conv 3x3 16x16x192",
    "PING_PONG_BYTES": "scan of 400",
    "PAUSE_WORK": "scan of 400",
    "WIDE_LANES_GAIN": "random bits",
    "TEMPORAL_TILE_LOOP_BYTES": "wave of 3000 x 3000",
    "TEMPORAL_TILE_BYTES": "wave of 3000 x 3000",
    "TEMPORAL_TILE_ITERATIONS": "wave of 3000 x 3000",
    "INTERCHANGE_VECTORS": "mandelbrot",
    "INTERCHANGE_OPS": "mandelbrot",
    "INLINE_KERNEL_LINES": "loop of 5000",
    "SPIN_ROUNDS": "GRU",
}
"""Maps a threshold to the case whose time it should affect."""
FACTORS = {"half": 0.5, "as is": 1.0, "double": 2.0}
SECONDS = 1.5
"""Seconds of timing for each variant."""
BLOCK = 0.02
"""Approximate seconds of a block of calls."""


class Found(NamedTuple):
    """Result of a variant: seconds of a call in each block, none if it was not timed, and the compiled texts."""

    blocks: list[float]
    texts: dict[str, str]


def measure(name: str, case: str) -> dict[str, Found]:
    """Measures a case by variant of a threshold. Raises KeyError for a case that does not exist."""
    from benchmarks.cases import select

    found = {c.name: c for c in select()}[case]
    with found.types():
        text = found.lower().as_text()
    variants = {how: _Variant(name, factor, text, found.inputs()) for how, factor in FACTORS.items()}
    try:
        texts = {how: variant.ask("texts") for how, variant in variants.items()}
        order = [how for how in variants if how == "as is" or texts[how] != texts["as is"]]
        blocks: dict[str, list[float]] = {how: [] for how in order}
        end = time.perf_counter() + SECONDS * len(order)
        while len(order) > 1 and (time.perf_counter() < end or len(blocks["as is"]) < 5):
            for how in order:
                blocks[how].append(variants[how].ask("block"))
            order.append(order.pop(0))
    finally:
        for variant in variants.values():
            variant.end()
    return {how: Found(blocks.get(how) or [], texts[how]) for how in variants}


def changed(found: dict[str, Found], how: str) -> str:
    """Difference of a variant: the program, else a routine; `-` if there is none."""
    ours, other = found["as is"].texts, found[how].texts
    return next((what for what in ours if ours[what] != other[what]), "-")


def row(name: str, case: str, found: dict[str, Found]) -> str:
    """A line of the table."""
    now = found["as is"].blocks
    times = [_microseconds(min(f.blocks)) if f.blocks else "" for f in found.values()]
    ratios = [f"{min(b) / min(now):.2f}" if (b := found[how].blocks) else "" for how in ("half", "double")]
    changes = f"{changed(found, 'half')}, {changed(found, 'double')}"
    noise = f"{100 * (statistics.median(now) / min(now) - 1):.0f} %" if now else ""
    return f"| {' | '.join([name, f'{_value(name):,}', case, *times, *ratios, changes, noise])} |"


HEAD = (
    "| threshold | value | case | half us | as is us | double us | half / as is | double / as is | changes | noise |\n"
    "|---|--:|---|--:|--:|--:|--:|--:|---|--:|"
)


def main(names: list[str]) -> int:
    """Prints the table. Exit status 2 for a name without a case."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        print(f"no case for {', '.join(unknown)}")
        return 2
    print(HEAD, flush=True)
    for name in names or CASES:
        try:
            print(row(name, CASES[name], measure(name, CASES[name])), flush=True)
        except (EOFError, ConnectionError):
            print(f"| {name} | | {CASES[name]}: a variant's process ended |", flush=True)
    return 0


def scaled(value: Any, factor: float) -> Any:
    """Returns a threshold multiplied by a factor: at least 1 if it is an integer. Of several numbers, each of them."""
    if type(value) is tuple:
        return tuple(scaled(v, factor) for v in value)
    if isinstance(value, Share):
        return value * round(factor) if factor >= 1 else value / round(1 / factor)
    if isinstance(value, int):
        return max(1, int(value * factor))
    return value * factor if isinstance(value, float) else value


def _value(name: str) -> int:
    from shlo_jit import tuning
    from shlo_jit.codegen.target import resolve

    return resolve().bytes_of(getattr(tuning, name))


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"


class _Variant:
    """A process that scales a threshold by a factor and times a program."""

    def __init__(self, name: str, factor: float, text: str, inputs: list[Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, name, factor, text, inputs))
        self.process.start()
        theirs.close()

    def ask(self, what: str) -> Any:
        self.pipe.send(what)
        return self.pipe.recv()

    def end(self) -> None:
        self.pipe.close()
        self.process.join(10)


def _serve(pipe: Connection, name: str, factor: float, text: str, inputs: list[Any]) -> None:
    import shlo_jit
    from shlo_jit import tuning

    setattr(tuning, name, scaled(getattr(tuning, name), factor))
    exe = shlo_jit.compile(text, cache=False)
    answers = {"texts": lambda: texts_of(text), "block": _block(exe, inputs)}
    while True:
        try:
            what = pipe.recv()
        except EOFError:
            return
        pipe.send(answers[what]())


def texts_of(text: str, target_name: str = "native") -> dict[str, str]:
    """LLVM text of a program, its schedule without reasons, and the LLVM text of the routines it calls."""
    from shlo_jit.codegen.target import resolve
    from shlo_jit.kernels.builder import ModuleText
    from shlo_jit.options import CompileOptions
    from shlo_jit.pipeline import lower
    from shlo_jit.stages import show
    from shlo_jit.text.parser import parse_module

    target, routines = resolve(target_name), []
    lowered = lower(parse_module(text, "case"), CompileOptions(target))
    for routine in lowered.program.routines:
        module = ModuleText(target)
        routine.build(module, target)
        routines.append(module.text(""))
    decisions = re.sub(r"   \(.*\)$", "", show(lowered, "schedule", target), flags=re.MULTILINE)
    return {"program": lowered.program.text, "schedule": decisions, "routine": "\n".join(routines)}


def _block(exe: Any, inputs: list[Any]) -> Any:
    """Returns a function that times a block of calls and returns seconds per call."""

    def calls(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            exe(*inputs)
        return (time.perf_counter() - start) / count

    calls(1)
    count = max(1, min(20_000, round(BLOCK / max(1e-7, min(calls(1), calls(1))))))

    def block() -> float:
        calls(1)  # brings its data back into the caches
        return calls(count)

    return block


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
