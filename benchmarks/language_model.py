"""Compares the example of a language model with llama.cpp on one GGUF file.

    python -m benchmarks.language_model MODEL.gguf
    python -m benchmarks.language_model MODEL.gguf --prompt 512 --slots 2048 --rounds 5

    python -m benchmarks.language_model MODEL.gguf --batch 8

The example runs with exact activations and with `round_activations="int8"`. Each run is a process of its own, and
runs of the engines alternate. The table has medians over the rounds. Engines whose packages are not installed are
left out: llama.cpp is called through llama-cpp-python, OpenVINO through openvino-genai, which reads GGUF files, ONNX
Runtime with a graph of its own operators (`onnx_language_model.py`; once with exact activations, and once with the
accuracy level 4 of products), and XLA:CPU through jax, with the example's own program. A run loads the model (the
first round, which is not counted, compiles that of the example and writes the graph), reads a prompt of random tokens
for each sequence, and decodes greedily. Columns:

- first token: seconds from the start of the process to the first token, with the compiled model on disk;
- prompt, decoding: tokens/s of the prompts, and of one token of each sequence at a time (the median of a run);
- bandwidth: bytes of the file times steps/s, divided by what two threads read of a large array, in percent;
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

EXAMPLE = Path(__file__).parent.parent / "examples" / "language_model"
ROUNDED = {
    "shlo_jit": "f32", "shlo_jit int8": "8 bits", "llama.cpp": "8 bits", "OpenVINO": "8 bits", "ONNX Runtime": "f32",
    "ONNX Runtime level 4": "8 bits", "XLA:CPU": "f32",
}  # fmt: skip
PACKAGES = {
    "llama.cpp": ["llama_cpp"], "OpenVINO": ["openvino_genai"], "ONNX Runtime": ["onnxruntime", "onnx"],
    "ONNX Runtime level 4": ["onnxruntime", "onnx"], "XLA:CPU": ["jax"],
}  # fmt: skip
"""What engines need besides shlo_jit."""
BATCHES = ["shlo_jit", "shlo_jit int8", "llama.cpp", "XLA:CPU"]
"""Engines that run several sequences in one step here."""
Run = dict[str, Any]


def prompt_of(length: int, sequence: int = 0) -> list[int]:
    """Tokens that any vocabulary has; other ones for each sequence."""
    return np.random.default_rng(sequence).integers(3, 20000, length).tolist()


def run_example(o: argparse.Namespace, began: float, round_activations: str | None = None) -> Run:
    sys.path.insert(0, str(EXAMPLE))
    from generate import Generator  # type: ignore[import-not-found]
    from kept_model import LIBRARY, kept_model  # type: ignore[import-not-found]

    folder = kept_model(o.model, o.slots, batch=o.batch, round_activations=round_activations)
    return _generate(o, began, Generator.loaded(folder / LIBRARY, o.threads))


def _generate(o: argparse.Namespace, began: float, generator: Any) -> Run:
    """Runs the example's loop over tokens."""
    prompts, rates, tokens = [prompt_of(o.prompt, i) for i in range(o.batch)], [], list[list[int]]()
    next(generator.tokens(prompts))
    first = time.time() - began
    for _ in range(2):
        tokens = [found for found, _ in zip(generator.tokens(prompts), range(o.tokens), strict=False)]
        rates.append(generator.rates)
    seconds = min(r.prompt[0] for r in rates)
    decoding = min(statistics.median(r.seconds) for r in rates)
    return _run(o, first, seconds, decoding, tokens)


def _run(o: argparse.Namespace, first: float, prompt: float, step: float, tokens: list[list[int]]) -> Run:
    """The result of a run: seconds up to the first token, of the prompts, and of a step; the tokens of each step."""
    return {"first": first, "prompt": o.batch * o.prompt / prompt, "decoding": o.batch / step, "tokens": tokens}


def measured(o: argparse.Namespace, began: float, read: Callable[[], list[int]], step: Callable[..., list[int]]) -> Run:
    """Measures an engine. `read()` reads the prompts, `step(tokens, position)` appends a token to each sequence; both
    return the tokens that follow."""
    read()
    first = time.time() - began
    best, decoding, tokens = float("inf"), float("inf"), list[list[int]]()
    for _ in range(2):
        start = time.perf_counter()
        tokens = [read()]
        best = min(best, time.perf_counter() - start)
        seconds = list[float]()
        for i in range(o.tokens - 1):
            start = time.perf_counter()
            tokens.append(step(tokens[-1], o.prompt + i))
            seconds.append(time.perf_counter() - start)
        decoding = min(decoding, statistics.median(seconds))
    return _run(o, first, best, decoding, tokens)


def run_llama(o: argparse.Namespace, began: float) -> Run:
    llama: Any = importlib.import_module("llama_cpp")
    silent = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(silent, None)
    model = llama.llama_model_load_from_file(o.model.encode(), llama.llama_model_default_params())
    sizes = llama.llama_context_default_params()
    sizes.n_ctx, sizes.n_seq_max, sizes.n_batch = o.slots * o.batch, o.batch, 512
    sizes.n_threads = sizes.n_threads_batch = o.threads
    context = llama.llama_init_from_model(model, sizes)
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def append(rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Appends tokens: for each its number, its position, its sequence, and whether to return what follows it."""
        batch = llama.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, is_last) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, is_last
        if llama.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        ends = [i for i, row in enumerate(rows) if row[3]]
        logits = [np.ctypeslib.as_array(llama.llama_get_logits_ith(context, i), (vocabulary,)) for i in ends]
        llama.llama_batch_free(batch)
        return [int(np.argmax(scores)) for scores in logits]

    def read() -> list[int]:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        found = list[int]()
        for sequence in range(o.batch):
            tokens = prompt_of(o.prompt, sequence)
            for start in range(0, o.prompt, sizes.n_batch):  # only the last part returns a token
                part = tokens[start : start + sizes.n_batch]
                found += append([(t, start + i, sequence, start + i == o.prompt - 1) for i, t in enumerate(part)])
        return found

    def step(tokens: list[int], position: int) -> list[int]:
        return append([(token, position, sequence, True) for sequence, token in enumerate(tokens)])

    return measured(o, began, read, step)


def run_onnx(o: argparse.Namespace, began: float, accuracy: int = 0) -> Run:
    sys.path.insert(0, str(EXAMPLE))
    from benchmarks.onnx_language_model import Session, kept_graph

    session, prompt = Session(kept_graph(o.model, o.slots, accuracy), o.threads), prompt_of(o.prompt)

    def read() -> list[int]:
        return [session.likeliest(prompt, 0)]

    return measured(o, began, read, lambda tokens, position: [session.likeliest(tokens, position)])


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
    return _run(o, first, seconds, decoding, [[token] for token in found[-1].tokens[0]])


class Input(NamedTuple):
    name: str
    shape: tuple[int, ...]


class XlaProgram:
    """The example's program for some tokens, compiled by XLA. Weights are arguments, since it expands constants."""

    def __init__(self, model: Any, rows: int, length: int, batch: int, slots: int) -> None:
        import jax
        from gguf_model import named_arrays  # type: ignore[import-not-found]
        from jax.extend import backend
        from program import add_function  # type: ignore[import-not-found]

        jax.config.update("jax_enable_x64", True)  # the state of the random numbers
        native = importlib.import_module("jaxlib._jax")
        devices = native.DeviceList(tuple(jax.devices("cpu")[:1]))
        module, weights = add_function("main", model, rows, length, batch, slots).module, named_arrays(model)
        shape = model.shape
        cache = batch, shape.key_heads, slots, shape.head_size
        self.inputs = [Input("tokens", (rows, length)), *(Input(f"keys{i}", cache) for i in range(2 * shape.layers))]
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
    slots = -(-o.slots // CHUNK) * CHUNK
    prompt = XlaProgram(model, 1, CHUNK, o.batch, slots)
    return _generate(o, began, Generator(prompt, XlaProgram(model, o.batch, 1, o.batch, slots)))


ENGINES: dict[str, Callable[[argparse.Namespace, float], Run]] = {
    "shlo_jit": run_example,
    "shlo_jit int8": partial(run_example, round_activations="int8"),
    "llama.cpp": run_llama,
    "OpenVINO": run_openvino,
    "ONNX Runtime": run_onnx,
    "ONNX Runtime level 4": partial(run_onnx, accuracy=4),
    "XLA:CPU": run_xla,
}


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
    parser.add_argument("--batch", type=int, default=1, help="sequences that are decoded together (1)")
    parser.add_argument("--only", help="engines to run, separated by commas (all that are installed)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each engine that count (3)")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not os.path.isfile(given.model):
        parser.error(f"there is no file {given.model}")
    return given


def chosen_engines(o: argparse.Namespace) -> list[str]:
    """The engines to compare. Prints why others are left out."""
    wanted, found = [*ENGINES] if o.only is None else o.only.split(","), []
    for engine in ENGINES:
        missing = [name for name in PACKAGES.get(engine, []) if importlib.util.find_spec(name) is None]
        if engine in wanted and missing:
            print(f"{engine} is left out: not installed: {', '.join(missing)}")
        elif engine in wanted and o.batch > 1 and engine not in BATCHES:
            print(f"{engine} is left out: only {', '.join(BATCHES)} run several sequences here")
        elif engine in wanted:
            found.append(engine)
    return found


def main() -> None:
    o = options()
    if o.engine:
        found = ENGINES[o.engine](o, o.began)
        print(json.dumps(found | {"peak": peak_memory()}))
        return
    engines = chosen_engines(o)
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
        share = 100 * nbytes * decoding / o.batch / bandwidth
        figures = f"{first:.2f}", f"{prompt:.0f}", f"{decoding:.0f}", f"{share:.0f}", f"{peak:.0f}"
        table.add_row(engine, *figures, ROUNDED[engine])
    Console(width=110).print(table)
    ours, *others = (found[0]["tokens"] for found in runs.values())
    for engine, theirs in zip(engines[1:], others, strict=True):
        same = next((i for i, (x, y) in enumerate(zip(ours, theirs, strict=True)) if x != y), len(ours))
        print(f"{engine} has the same first {same} of {len(ours)} tokens as {engines[0]}, in each sequence")


if __name__ == "__main__":
    main()
