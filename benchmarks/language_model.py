"""Compares the example of a language model with llama.cpp on one GGUF file.

    python -m benchmarks.language_model MODEL.gguf
    python -m benchmarks.language_model MODEL.gguf --prompt 512 --slots 2048 --rounds 5

Each run is a process of its own, and runs of the engines alternate. The table has medians over the rounds. Engines
whose packages are not installed are left out: llama.cpp is called through llama-cpp-python, OpenVINO through
openvino-genai, which reads GGUF files, and XLA:CPU through jax, with the example's own program. A run loads the model
(the first round, which is not counted, compiles that of the example), reads a prompt of random tokens, and decodes
greedily. Columns:

- first token: seconds from the start of the process to the first token, with the compiled model on disk;
- prompt, decoding: tokens/s of the prompt, and of one token at a time (the median of a run);
- bandwidth: bytes of the file times tokens/s, divided by what two threads read of a large array, in percent;
- peak: memory of the process, in MB, interpreter and libraries included;
- activations: what they are rounded to before they are multiplied by weights.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

EXAMPLE = Path(__file__).parent.parent / "examples" / "language_model"
ROUNDED = {"shlo_jit": "f32", "llama.cpp": "8 bits", "OpenVINO": "8 bits", "XLA:CPU": "f32"}
PACKAGES = {"llama.cpp": "llama_cpp", "OpenVINO": "openvino_genai", "XLA:CPU": "jax"}
"""What engines need besides shlo_jit."""
Run = dict[str, Any]


def prompt_of(length: int) -> list[int]:
    """Tokens that any vocabulary has."""
    return np.random.default_rng(0).integers(3, 20000, length).tolist()


def run_example(o: argparse.Namespace, began: float) -> Run:
    sys.path.insert(0, str(EXAMPLE))
    from generate import Generator  # type: ignore[import-not-found]
    from kept_model import LIBRARY, kept_model  # type: ignore[import-not-found]

    return _generate(o, began, Generator.loaded(kept_model(o.model, o.slots) / LIBRARY, o.threads))


def _generate(o: argparse.Namespace, began: float, generator: Any) -> Run:
    """Runs the example's loop over tokens."""
    prompt, rates, tokens = prompt_of(o.prompt), [], list[int]()
    next(generator.tokens(prompt))
    first = time.time() - began
    for _ in range(2):
        tokens = [token for token, _ in zip(generator.tokens(prompt), range(o.tokens), strict=False)]
        rates.append(generator.rates)
    seconds = min(r.prompt[0] for r in rates)
    decoding = min(statistics.median(r.seconds) for r in rates)
    return {"first": first, "prompt": o.prompt / seconds, "decoding": 1 / decoding, "tokens": tokens}


def run_llama(o: argparse.Namespace, began: float) -> Run:
    import llama_cpp  # type: ignore[import-not-found]

    model: Any = llama_cpp.Llama(
        o.model, n_ctx=o.slots, n_threads=o.threads, n_threads_batch=o.threads, n_batch=512, verbose=False
    )
    vocabulary, prompt = model.n_vocab(), prompt_of(o.prompt)

    def likeliest() -> int:
        logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, (vocabulary,))))

    model.eval(prompt)
    token, first = likeliest(), time.time() - began
    best, decoding, tokens = float("inf"), float("inf"), list[int]()
    for _ in range(2):
        model.reset()
        start = time.perf_counter()
        model.eval(prompt)
        token = likeliest()
        best = min(best, time.perf_counter() - start)
        seconds, tokens = list[float](), [token]
        for _ in range(o.tokens - 1):
            start = time.perf_counter()
            model.eval([token])
            token = likeliest()
            seconds.append(time.perf_counter() - start)
            tokens.append(token)
        decoding = min(decoding, statistics.median(seconds))
    return {"first": first, "prompt": o.prompt / best, "decoding": 1 / decoding, "tokens": tokens}


def run_openvino(o: argparse.Namespace, began: float) -> Run:
    import openvino  # type: ignore[import-not-found]
    import openvino_genai as genai  # type: ignore[import-not-found]

    cache = genai.SchedulerConfig()
    cache.enable_prefix_caching = False  # the same prompt would be read once only
    pipeline = genai.LLMPipeline(o.model, "CPU", scheduler_config=cache, INFERENCE_NUM_THREADS=o.threads)
    prompt = np.array([prompt_of(o.prompt)])
    given = genai.TokenizedInputs(openvino.Tensor(prompt), openvino.Tensor(np.ones_like(prompt)))

    def generate(tokens: int) -> Any:
        return pipeline.generate(given, genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True))

    generate(1)
    first = time.time() - began
    found = [generate(o.tokens) for _ in range(2)]
    seconds = min(f.perf_metrics.get_ttft().mean for f in found) / 1000
    decoding = min(statistics.median(f.perf_metrics.raw_metrics.token_infer_durations[1:]) for f in found) / 1e6
    return {"first": first, "prompt": o.prompt / seconds, "decoding": 1 / decoding, "tokens": found[-1].tokens[0]}


class Input(NamedTuple):
    name: str
    shape: tuple[int, ...]


class XlaProgram:
    """The example's program for some tokens, compiled by XLA. Weights are arguments, since it expands constants."""

    def __init__(self, model: Any, length: int, slots: int) -> None:
        import jax
        from gguf_model import named_arrays  # type: ignore[import-not-found]
        from jax.extend import backend
        from program import build  # type: ignore[import-not-found]

        jax.config.update("jax_enable_x64", True)  # the state of the random numbers
        native = importlib.import_module("jaxlib._jax")
        devices = native.DeviceList(tuple(jax.devices("cpu")[:1]))
        module, weights = build(model, {"main": length}, slots), named_arrays(model)
        shape = model.shape
        cache = shape.key_heads, slots, shape.head_size
        self.inputs = [Input("tokens", (length,)), *(Input(f"keys{i}", cache) for i in range(2 * shape.layers))]
        self.put, self.weights = jax.device_put, [jax.device_put(array) for array in weights.values()]
        self.program = backend.get_backend("cpu").compile_and_load(str(module), devices, native.CompileOptions())

    def __call__(self, *arguments: Any) -> list[Any]:
        arrays = [*map(self.put, arguments), *self.weights]
        found = self.program.execute_sharded(arrays).disassemble_into_single_device_arrays()
        token, *results = (shards[0] for shards in found)
        return [np.asarray(token), *results]


def run_xla(o: argparse.Namespace, began: float) -> Run:
    sys.path.insert(0, str(EXAMPLE))
    from generate import Generator  # type: ignore[import-not-found]
    from gguf_model import read_model  # type: ignore[import-not-found]
    from kept_model import CHUNK  # type: ignore[import-not-found]

    model = read_model(o.model)
    return _generate(o, began, Generator(*(XlaProgram(model, length, o.slots) for length in (CHUNK, 1))))


ENGINES = {"shlo_jit": run_example, "llama.cpp": run_llama, "OpenVINO": run_openvino, "XLA:CPU": run_xla}


def read_bandwidth(threads: int, nbytes: int = 1 << 28) -> float:
    """Bytes a second that threads read of a large array."""
    array, best = np.ones(nbytes // 8), float("inf")
    for _ in range(6):
        parts = np.array_split(array, threads)
        workers = [threading.Thread(target=part.sum) for part in parts]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - start)
    return nbytes / best


def peak_memory() -> float:
    """MB of this process. `ru_maxrss` would include those of the process that started this one."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def in_a_process(engine: str, given: list[str]) -> Run:
    """Runs an engine in a process of its own. Raises RuntimeError with what it wrote if it fails."""
    command = [sys.executable, "-m", "benchmarks.language_model", *given, "--engine", engine, "--began"]
    done = subprocess.run([*command, str(time.time())], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{engine} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt (128)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to decode (64)")
    parser.add_argument("--slots", type=int, default=512, help="tokens that the caches hold (512)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="number of threads (all processors)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each engine that count (3)")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not os.path.isfile(given.model):
        parser.error(f"there is no file {given.model}")
    return given


def main() -> None:
    o = options()
    if o.engine:
        found = ENGINES[o.engine](o, o.began)
        print(json.dumps(found | {"peak": peak_memory()}))
        return
    engines = [e for e in ENGINES if e not in PACKAGES or importlib.util.find_spec(PACKAGES[e])]
    for engine in ENGINES.keys() - engines:
        print(f"{engine} is left out: the package {PACKAGES[engine]} is not installed")
    runs: dict[str, list[Run]] = {engine: [] for engine in engines}
    bandwidth = read_bandwidth(2)
    for number in range(o.rounds + 1):
        for engine in engines:
            found = in_a_process(engine, sys.argv[1:])
            if number > 0:
                runs[engine].append(found)
    names = ("first token, s", "prompt, tokens/s", "decoding, tokens/s", "bandwidth, %", "peak, MB", "activations")
    table = Table("engine", *names, title=f"{Path(o.model).name}, {o.threads} threads, {bandwidth / 1e9:.0f} GB/s")
    nbytes = os.path.getsize(o.model)
    for engine, found in runs.items():
        first, prompt, decoding, peak = (
            statistics.median(r[k] for r in found) for k in ("first", "prompt", "decoding", "peak")
        )
        share = 100 * nbytes * decoding / bandwidth
        figures = f"{first:.2f}", f"{prompt:.0f}", f"{decoding:.0f}", f"{share:.0f}", f"{peak:.0f}"
        table.add_row(engine, *figures, ROUNDED[engine])
    Console(width=110).print(table)
    ours, *others = (found[0]["tokens"] for found in runs.values())
    for engine, theirs in zip(engines[1:], others, strict=True):
        same = next((i for i, (x, y) in enumerate(zip(ours, theirs, strict=True)) if x != y), len(ours))
        print(f"the first {same} of {len(ours)} tokens are those of {engine}")


if __name__ == "__main__":
    main()
