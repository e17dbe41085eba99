"""Compares `torch.compile(model, backend="shlo_jit")` with eager PyTorch and with Inductor on models of `torch_zoo`.

    python -m benchmarks.torch_models                    all models whose libraries are installed
    python -m benchmarks.torch_models --models 'bert|llama' --threads 2

Each model runs in a process of its own with empty caches. A first call captures the model and compiles it; after
`torch._dynamo.reset()`, another first call finds the caches. Then calls alternate between eager, Inductor and shlo_jit,
and the shortest of each counts. Needs g++ for Inductor. Columns of the table:

- eager, Inductor, shlo_jit: milliseconds of a call: processor time with one thread, which other programs disturb less,
  and time of day with several; ratio: Inductor's time divided by ours;
- cold, cached: seconds of processor time of the first call with empty and with filled caches, Inductor's / ours;
- breaks: graph breaks of the model, which all backends have; fallbacks: graphs that shlo_jit leaves to PyTorch;
- difference: the largest difference from eager, divided by the largest absolute value of the result; ours / Inductor's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
BACKENDS = ("shlo_jit", "inductor")


# ---------------------------------------------------------------------------- one model in its own process
def tensors_of(result: Any) -> list[Any]:
    """The tensors of numbers in the result of a model."""
    import torch  # type: ignore[import-not-found]
    from torch.utils._pytree import tree_leaves  # type: ignore[import-not-found]

    found = tree_leaves(dict(result) if isinstance(result, Mapping) else result)
    return [x for x in found if isinstance(x, torch.Tensor) and x.numel()]


def difference(found: Any, wanted: Any) -> float:
    """The largest difference of two results, divided by the largest absolute value of each tensor."""
    worst = 0.0
    ours, theirs = tensors_of(found), tensors_of(wanted)
    if len(ours) != len(theirs) or any(x.shape != y.shape for x, y in zip(ours, theirs, strict=True)):
        return math.inf
    for x, y in zip(ours, theirs, strict=True):
        size = float(y.double().abs().max())
        off = float((x.double() - y.double()).abs().max())
        worst = max(worst, off / (size or 1.0) if math.isfinite(off) else math.inf)
    return worst


def measure(name: str, threads: int, backends: Sequence[str], budget: float) -> Row:
    """Compiles a model with each backend, first with empty caches, then with those, and times its calls."""
    import torch  # type: ignore[import-not-found]

    from benchmarks.torch_zoo import made

    torch.set_num_threads(threads)
    model, inputs = made(name)
    row: Row = {"parameters": sum(p.numel() for p in model.parameters())}
    with torch.no_grad():
        _import_backends(backends)
        calls: dict[str, Callable[[], Any]] = {"eager": lambda: model(**inputs)}
        wanted = calls["eager"]()
        for kind in ("cold", "cached"):
            torch._dynamo.reset()
            for backend in backends:
                compiled = _compiled(model, backend, threads)
                calls[backend] = lambda run=compiled: run(**inputs)
                row |= _first_call(backend, kind, calls[backend], wanted)
        row |= _shortest(calls, budget, time.process_time if threads == 1 else time.perf_counter)
    return row


def _first_call(backend: str, kind: str, call: Callable[[], Any], wanted: Any) -> Row:
    """Seconds of a first call, the difference of its result, and what was not compiled."""
    import torch  # type: ignore[import-not-found]

    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = _processor_seconds()
        found = call()
        row: Row = {f"{backend} {kind}": _processor_seconds() - start}
    row[f"{backend} difference"] = difference(found, wanted)
    row["breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
    if backend == "shlo_jit":
        row["fallbacks"] = [str(w.message)[:300] for w in caught if "does not compile" in str(w.message)]
    return row


def _processor_seconds() -> float:
    """Processor time of this process and of the compilers that it has called."""
    return sum(os.times()[:4])


def _compiled(model: Any, backend: str, threads: int) -> Callable[..., Any]:
    """The model, compiled by a backend."""
    import torch  # type: ignore[import-not-found]

    options = {"threads": threads} if backend == "shlo_jit" else None
    return torch.compile(model, backend=backend, options=options)


def _import_backends(backends: Sequence[str]) -> None:
    """Compiles a small function, so that first calls do not include the imports of the backends."""
    import torch  # type: ignore[import-not-found]

    for backend in backends:
        torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(7))
        torch._dynamo.reset()


def _shortest(calls: Mapping[str, Callable[[], Any]], budget: float, clock: Callable[[], float]) -> Row:
    """Seconds of the shortest call of each by this clock; they alternate."""
    best: dict[str, float] = {}
    start = time.perf_counter()
    rounds = 0
    while rounds < 5 or (time.perf_counter() - start < budget and rounds < 200):
        for name, call in calls.items():
            begin = clock()
            call()
            best[name] = min(best.get(name, math.inf), clock() - begin)
        rounds += 1
    return {f"{name} call": seconds for name, seconds in best.items()}


# ---------------------------------------------------------------------------- all models
def run(name: str, given: argparse.Namespace) -> Row:
    """Measures a model in a process of its own, with caches of its own."""
    with tempfile.TemporaryDirectory() as caches:
        return _process(name, given, caches)


def _process(name: str, given: argparse.Namespace, caches: str) -> Row:
    environment = os.environ | {
        "SHLO_JIT_CACHE_DIR": os.path.join(caches, "shlo_jit"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(caches, "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # compilers are children, whose processor time is known
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, "-m", "benchmarks.torch_models", "--worker", name, "--threads", str(given.threads),
               "--budget", str(given.budget), "--backends", given.backends]  # fmt: skip
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=given.limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {given.limit:g} s"}
    for line in reversed(done.stdout.splitlines()):
        with contextlib.suppress(ValueError):
            return json.loads(line)
    return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]}


HEADER = (
    f"{'model':30} {'M':>6} {'eager':>8} {'Inductor':>9} {'shlo_jit':>9} {'ratio':>6}  {'cold':>13} {'cached':>12} "
    f"{'breaks':>6} {'fallbacks':>9}  difference"
)


def line(name: str, row: Row) -> str:
    """A line of the table."""
    if "failed" in row:
        return f"{name:30} {row['failed']}"

    def milliseconds(backend: str) -> str:
        return f"{row[f'{backend} call'] * 1e3:.2f}" if f"{backend} call" in row else "-"

    def both(kind: str) -> str:
        return " / ".join(
            f"{row[f'{b} {kind}']:.1f}" if f"{b} {kind}" in row else "-" for b in ("inductor", "shlo_jit")
        )

    ratio = ratio_of(row)
    return (
        f"{name:30} {row['parameters'] / 1e6:6.1f} {milliseconds('eager'):>8} {milliseconds('inductor'):>9} "
        f"{milliseconds('shlo_jit'):>9} {f'{ratio:.2f}' if ratio else '-':>6}  {both('cold'):>13} {both('cached'):>12} "
        f"{row['breaks']:6} {len(row['fallbacks']):9}  {row['shlo_jit difference']:.1e} / "
        f"{row.get('inductor difference', math.nan):.1e}"
    )


def ratio_of(row: Row) -> float | None:
    """How many times as long as ours Inductor's calls take."""
    if "inductor call" not in row or "shlo_jit call" not in row:
        return None
    return row["inductor call"] / row["shlo_jit call"]


def summary(rows: Sequence[Row]) -> str:
    """Means over the models that both compile."""
    ratios = [r for r in map(ratio_of, rows) if r]
    parts = [f"{len(ratios)} of {len(rows)} models compiled by both"]
    if ratios:
        parts.append(f"Inductor's time divided by ours: geometric mean {_mean(ratios):.2f}, least {min(ratios):.2f}")
    for kind, title in (("cold", "first call, cold"), ("cached", "first call, cached")):
        names = [f"{backend} {kind}" for backend in BACKENDS]
        found = [r[names[1]] / r[names[0]] for r in rows if all(name in r for name in names)]
        if found:
            parts.append(f"{title}: {_mean(found):.1f}")
    return "; ".join(parts)


def _mean(numbers: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Runs the comparison, prints the table, and returns its rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="regular expression of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of the alternating calls of a model")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a process is stopped")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        print(json.dumps(measure(given.worker, given.threads, given.backends.split(","), given.budget)))
        return []
    from benchmarks.torch_zoo import ZOO

    rows = []
    print(HEADER, flush=True)
    for name in ZOO:
        if re.search(given.models, name):
            rows.append(run(name, given))
            print(line(name, rows[-1]), flush=True)
            for message in rows[-1].get("fallbacks", ()):
                print(f"    {message}", flush=True)
    print(summary(rows))
    return rows


if __name__ == "__main__":
    main()
