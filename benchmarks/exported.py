"""Exported libraries against the compiled programs, with calls timed alternately in one process; and from a C program:
time of a call, time to the first result, scaling of two threads with an instance each.

    python -m benchmarks.exported                        ten cases of `cases.py`
    python -m benchmarks.exported --only softmax,dense   others
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

CASES = (
    *("dense 1x12", "gelu", "softmax", "sum of columns", "dot f32 1024", "max pool 2x2", "sort 500K", "fft 2048"),
    *("residual network", "k-means"),
)
ROUNDS = 3
"""Number of measurements; the median of their ratios counts."""
HOST = r"""
#include "affine.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const shlo_library *library;

static void *work(void *result) {
  shlo_options options = {.bytes = sizeof options, .threads = 1};
  void *instance, *outputs[8];
  const void *inputs[64];
  if (library->create(&instance, &options)) exit(1);
  const shlo_function *f = library->functions;
  for (int i = 0; i < f->input_count; i++) inputs[i] = aligned_alloc(64, (f->inputs[i].bytes + 63) / 64 * 64);
  for (int i = 0; i < f->output_count; i++) outputs[i] = aligned_alloc(64, (f->outputs[i].bytes + 63) / 64 * 64);
  double start = now(), seconds = 0;
  long calls = 0;
  for (; seconds < 0.5; calls++, seconds = now() - start) library->call(instance, 0, inputs, outputs);
  *(double *)result = (double)calls / seconds;
  return NULL;
}

int main(int argc, char **argv) {
  double start = now(), rate[3];
  void *handle = dlopen(argv[1], RTLD_NOW);
  if (argc < 3 || !handle) return 1;
  const shlo_library *(*describe)(void);
  *(void **)&describe = dlsym(handle, argv[2]);
  library = describe();
  void *instance, *outputs[8];
  const void *inputs[64];
  if (library->create(&instance, NULL)) return 2;
  double created = now();
  const shlo_function *f = library->functions;
  for (int i = 0; i < f->input_count; i++) inputs[i] = calloc(1, f->inputs[i].bytes + 64);
  for (int i = 0; i < f->output_count; i++) outputs[i] = aligned_alloc(64, (f->outputs[i].bytes + 63) / 64 * 64);
  if (library->call(instance, 0, inputs, outputs)) return 3;
  double first = now(), best = 1;
  for (int i = 0; i < 20; i++) {
    double before = now();
    for (int k = 0; k < 50; k++) library->call(instance, 0, inputs, outputs);
    double seconds = (now() - before) / 50;
    if (seconds < best) best = seconds;
  }
  library->destroy(instance);
  pthread_t thread;
  work(&rate[0]);
  pthread_create(&thread, NULL, work, &rate[1]);
  work(&rate[2]);
  pthread_join(thread, NULL);
  printf("%g %g %g %g\n", 1e3 * (created - start), 1e3 * (first - start), 1e6 * best, (rate[1] + rate[2]) / rate[0]);
  return 0;
}
"""


def call_ratios(only: str, console: Console) -> None:
    """Prints the times of a case's calls, compiled and exported."""
    import shlo_jit
    from benchmarks.cases import select
    from benchmarks.timing import interleave

    table = Table("case", "compiled, us", "exported, us", "ratio", box=None)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(c for name in only.split(",") for c in select(name)):
            text = case.lower().as_text()
            path = Path(folder) / f"case{number}.so"
            shlo_jit.export(text, path)
            calls = {"compiled": shlo_jit.compile(text), "exported": shlo_jit.load(path)}
            arrays = case.inputs()
            timed = {name: lambda call=call, arrays=arrays: call(*arrays) for name, call in calls.items()}
            rounds = [interleave(timed, 0.5) for _ in range(ROUNDS)]
            medians = [{name: times.median for name, times in found.items()} for found in rounds]
            ratio = statistics.median(m["exported"] / m["compiled"] for m in medians)
            ratios.append(ratio)
            columns = (statistics.median(m[name] for m in medians) * 1e6 for name in timed)
            table.add_row(case.name, *(f"{value:.1f}" for value in columns), f"{ratio:.3f}")
    console.print(table)
    console.print(f"ratios from {min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}")


def from_c(console: Console) -> None:
    """Prints the measurements of a C program."""
    import shlo_jit
    from shlo_jit import examples

    small = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    table = Table("from C", "created, ms", "first result, ms", "a call, us", "two instances in two threads", box=None)
    with tempfile.TemporaryDirectory() as folder:
        source, host = Path(folder) / "host.c", Path(folder) / "host"
        source.write_text(HOST)
        for name, program in (("affine", small), ("mlp", examples.path("mlp"))):
            library = Path(folder) / f"{name}.so"
            header = Path(folder) / "affine.h"
            shlo_jit.export(program, library, header=header, name=name)
            subprocess.run(["cc", "-O2", f"-I{folder}", source, "-o", host, "-ldl", "-lpthread"], check=True)
            rows = []
            for _ in range(5):
                done = subprocess.run([host, library, f"{name}_library"], check=True, capture_output=True, text=True)
                rows.append([float(word) for word in done.stdout.split()])
            medians = [statistics.median(column) for column in zip(*rows, strict=True)]
            created, first, call, scaling = medians
            table.add_row("a copy of 16 bytes" if name == "affine" else name, f"{created:.3f}", f"{first:.3f}",
                          f"{call:.3f}", f"{scaling:.2f}x")  # fmt: skip
    console.print(table)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "benchmarks.exported", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(CASES), metavar="WORDS", help="cases, separated by commas")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    console = Console(width=100, highlight=False)
    options = parse(arguments)
    from_c(console)
    call_ratios(options.only, console)


if __name__ == "__main__":
    main()
