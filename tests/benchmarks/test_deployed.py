"""Deployed models: agreement of the written forms, counts of work, processes, and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp

import shlo_jit
from benchmarks.agreement import difference
from benchmarks.deployed import files, jax_writer, machine, measure, pictures, sequences, tables, work
from benchmarks.deployed.__main__ import line, main
from benchmarks.deployed.catalogue import MODELS, Model, select
from benchmarks.deployed.engines import ARGUMENT, CONSTANT, ORT, XLA, can_run, missing
from benchmarks.deployed.graph import Graph, array
from benchmarks.deployed.process import Process
from benchmarks.ready import listed


def named(name: str) -> Model:
    (model,) = (m for m in MODELS if m.name == name)
    return model


# ---------------------------------------------------------------------- models
@pytest.fixture(params=MODELS, ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> Model:
    return request.param


def expected(graph: Graph) -> list[np.ndarray]:
    """Results of JAX, in f32."""
    weights = {v.name: array(v) for v in graph.weights}
    return listed(jax.jit(jax_writer.function(graph))(weights, *(array(v) for v in graph.inputs)))


@pytest.mark.parametrize("constant", [True, False], ids=["constants", "arguments"])
@pytest.mark.sampled(8)
def test_our_program_agrees_with_jax(model: Model, constant: bool) -> None:
    graph = model.graph(is_small=True)
    weights, inputs = {v.name: array(v) for v in graph.weights}, [array(v) for v in graph.inputs]
    dtype = jnp.bfloat16 if model.floats == "bf16" else jnp.float32
    program = shlo_jit.compile(jax_writer.exported(graph, weights, inputs, dtype, constant=constant), cache=False)
    given = [] if constant else [weights[name] for name in sorted(weights)]
    given = [w.astype(port.dtype) for w, port in zip(given, program.inputs, strict=False)]
    assert difference(listed(program(*given, *inputs)), expected(graph), model.tolerance) == ""


def test_the_onnx_model_agrees_with_jax(model: Model) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from benchmarks.deployed import onnx_writer

    graph = model.graph(is_small=True)
    session = onnxruntime.InferenceSession(onnx_writer.write(graph).SerializeToString())
    inputs = {v.name: files.as_onnx(array(v)) for v in graph.inputs}
    results = [files.from_onnx(y) for y in session.run(None, inputs)]
    assert difference(results, expected(graph), model.tolerance) == ""


@pytest.mark.sampled(4)
def test_shapes_are_those_of_jax(model: Model) -> None:
    graph = model.graph(is_small=True)
    assert [y.shape for y in expected(graph)] == [v.shape for v in graph.outputs]


@pytest.mark.sampled(4)
def test_results_depend_on_every_input(model: Model) -> None:
    """A model with constant results would agree with anything."""
    for y in expected(model.graph(is_small=True)):
        assert np.isfinite(y).all() and (y.size == 1 or y.std() > 1e-3 * np.abs(y).max())


@pytest.mark.parametrize(
    ("name", "parameters", "gflop"),
    [
        ("MobileNetV2", 3.5e6, 0.60),
        ("EfficientNet-B0", 5.3e6, 0.77),
        ("ResNet-50", 25.6e6, 8.2),
        ("YOLOv3-tiny 416x416", 8.9e6, 5.57),
        ("ViT-S/16", 22.1e6, 9.2),
        ("BERT-base 128 tokens", 109e6, 22.3),
        ("GPT-2 one token", 124e6, 0.27),
        ("T5-small encoder", 35.3e6, 5.0),
    ],
)
def test_sizes_are_those_of_the_papers(name: str, parameters: float, gflop: float) -> None:
    graph = named(name).graph()
    assert sum(w.size for w in graph.weights) == pytest.approx(parameters, rel=0.02)
    assert work.count(graph, 4).flops == pytest.approx(1e9 * gflop, rel=0.03)


def test_names_are_unique_and_can_be_selected() -> None:
    assert len({m.name for m in MODELS}) == len(MODELS)
    assert [m.name for m in select("gpt,resnet")] == ["ResNet-50", "GPT-2 one token"]
    assert select() == list(MODELS) and not any("," in m.name for m in MODELS)


def test_distances_are_in_the_buckets_of_t5() -> None:
    buckets = sequences.distance_buckets(300)
    assert buckets[0, :9].tolist() == [0, 17, 18, 19, 20, 21, 22, 23, 24]
    assert (buckets.T[0, 1:] == buckets[0, 1:] - 16).all()
    assert buckets[0, 128:].tolist() == [31] * 172 and buckets.min() == 0
    assert (np.diff(buckets[0, 1:]) >= 0).all()


def test_an_array_is_the_same_every_time() -> None:
    for value in named("int8 MLP batch 1").graph().values[:3]:
        np.testing.assert_array_equal(array(value), array(value))
        assert array(value).dtype == {"f32": np.float32, "i8": np.int8}[value.dtype]


@pytest.mark.parametrize("name,count", [("int8 MLP batch 64", 2), ("int8 feed-forward 128 rows", 1)])
def test_quantized_activations_stay_within_seven_bits(name: str, count: int) -> None:
    """Activations that are clipped in only one form would differ."""
    graph = named(name).graph()
    graph.outputs = [v.operands[0] for v in graph.values if v.op == "quantized"]
    assert len(graph.outputs) == count and all(y.max() < 127 * sequences.FINE for y in expected(graph))


# ---------------------------------------------------------------------- work and the machine
def test_work_of_products_and_tables() -> None:
    graph = Graph()
    table = graph.weight("table", (100, 8))
    x = graph.rows(table, graph.input((3,), "i32", 100))
    graph.outputs = [graph.linear(x, "dense", 5)]
    found = work.count(graph, 4)
    assert found.flops == 2 * 3 * 8 * 5
    assert found.weight_bytes == 4 * (3 * 8 + 8 * 5 + 5)
    assert found.activation_bytes == 4 * (3 + 3 * 5 + 2 * 3 * 5)
    assert found.largest_bytes == 4 * (3 * 8 + 3 * 5)
    assert work.count(graph, 2).weight_bytes == found.weight_bytes / 2


def test_work_of_convolutions() -> None:
    graph = Graph()
    x = graph.input((2, 9, 7, 4))
    graph.outputs = [graph.conv(x, "filters", 8, 3, 2, groups=2)]
    assert graph.outputs[0].shape == (2, 5, 4, 8)
    assert work.count(graph, 4).flops == 2 * (2 * 5 * 4 * 8) * (3 * 3 * 2)


MACHINE = {
    "threads": 2,
    "peaks": {"f32": 100e9, "bf16": 200e9, "i8": 400e9},
    "reads": [[1 << 20, 100e9], [1 << 30, 10e9]],
}


def test_limits_are_those_of_where_the_bytes_are() -> None:
    found = work.Work(flops=1e9, weight_bytes=1e8, activation_bytes=1e7, largest_bytes=1e6)
    assert work.limits(found, "f32", MACHINE) == pytest.approx((0.01, 0.01 + 1e-4))
    assert work.limits(found, "i8", MACHINE)[0] == pytest.approx(0.0025)


def test_the_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "EFFORT", machine.EFFORT._replace(sizes=(1 << 17, 1 << 22), tries=2))
    found = machine.measure(1)
    assert [size for size, _ in found["reads"]] == [1 << 17, 1 << 22]
    assert all(rate > 1e8 for _, rate in found["reads"])
    assert set(found["peaks"]) == {"f32", "bf16", "i8"} and min(found["peaks"].values()) > 1e8
    assert found["peaks"]["f32"] < 32 * 2 * 2 * 8e9, "sums that LLVM has made one"


def test_of_two_measurements_the_higher_figures_count() -> None:
    slower = {
        "threads": 2,
        "peaks": {kind: 90e9 for kind in MACHINE["peaks"]},
        "reads": [[1 << 20, 200e9], [1 << 30, 1e9]],
    }
    assert machine.better(slower, MACHINE) == MACHINE | {"reads": [[1 << 20, 200e9], [1 << 30, 10e9]]}


# ---------------------------------------------------------------------- processes
@pytest.mark.slow
def test_a_model_is_measured_on_all_engines() -> None:
    options = measure.Options((CONSTANT, ARGUMENT, XLA), 0.01, is_started_twice=True)
    row = measure.measure(named("MLP batch 1"), 1, options)
    assert set(row["peers"]) == set(options.engines) and "error" not in row
    for found in row["peers"].values():
        assert 0 < found["low"] <= found["median"] <= found["high"] < found["start"]
        assert found["peak"] > 10 and found["cached start"] > 0
    assert line(row).startswith("MLP batch 1, threads 1: XLA")


def test_what_an_engine_says_is_its_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        Process("no such engine", tmp_path, tmp_path / "cache", 1, "f32")
    with pytest.raises(RuntimeError, match=files.INPUTS):
        Process(CONSTANT, tmp_path, tmp_path / "cache", 1, "f32")


def test_engines_that_fail_leave_the_others_their_times() -> None:
    class Stub:
        failure = ""

        def __init__(self, blocks: int) -> None:
            self.blocks = blocks

        def block(self) -> float:
            self.blocks -= 1
            if self.blocks < 0:
                self.failure = "crash"
                raise RuntimeError(self.failure)
            return 0.5

    peers: dict[str, Any] = {"good": {"start": 1.0}, "bad": {"start": 1.0}}
    live: Any = {"good": Stub(1000), "bad": Stub(2)}
    measure._time(live, 0.0, peers)
    assert peers == {"good": {"start": 1.0, "median": 0.5, "low": 0.5, "high": 0.5}, "bad": {"error": "crash"}}
    assert set(live) == {"good"}


def test_engines_that_are_left_out() -> None:
    assert missing(CONSTANT) == [] and can_run(ORT, "f32") and not can_run(ORT, "bf16")
    assert main(["--only", "no such model"]) == 2 and main(["--engines", "nobody"]) == 2


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "mlp"]) == 0
    assert capsys.readouterr().out.split("\n")[:2] == ["MLP batch 1", "MLP batch 64"]


# ---------------------------------------------------------------------- tables
WORK = {"flops": 1e9, "weight_bytes": 1e8, "activation_bytes": 1e7, "largest_bytes": 1e6}


def row(name: str, threads: int = 2, **medians: float | str) -> dict[str, Any]:
    names = {"ours": CONSTANT, "xla": XLA, "ort": ORT}
    peers = {names[key]: {"error": value} if isinstance(value, str) else
             {"median": value, "low": value, "high": value, "start": 1.5, "cached start": 0.25, "peak": 123.4}
             for key, value in medians.items()}  # fmt: skip
    return {"case": name, "threads": threads, "kind": "f32", "work": WORK, "peers": peers}


ROWS = [row("a", ours=0.02, xla=0.08, ort=0.01), row("b", ours=0.02, xla=0.04, ort="no bf16")]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_times_have_the_best_of_the_others() -> None:
    head, _, first, second = map(cells, tables.times(ROWS))
    assert head == ["model", CONSTANT, XLA, ORT, "best other / shlo_jit", "best other"]
    assert first == ["a", "20 ms", "80 ms", "10 ms", "0.50", ORT]
    assert second == ["b", "20 ms", "40 ms", "failed", "2.00", XLA]
    assert list(map(cells, tables.brief(ROWS)[2:])) == [
        ["a", "20 ms", "10 ms, ONNX Runtime", "0.50"],
        ["b", "20 ms", "40 ms, XLA", "2.00"],
    ]
    text = "\n".join(tables.summary(ROWS))
    assert "2 models, 2 measured against others; faster than the best of them in 1." in text
    assert "1.00 against the best of the others, 2.83 against XLA, 0.50 against ONNX Runtime." in text


def test_a_model_without_times() -> None:
    broken = row("c", ours="WRONG result", xla="crash")
    assert cells(tables.times([broken])[2]) == ["c", "failed", "failed", "", ""]
    assert tables.summary([broken]) == ["1 models, none measured against others."]
    assert cells(tables.shares([broken], MACHINE)[2])[-2:] == ["", ""]


def test_starts_and_memory() -> None:
    assert cells(tables.starts(ROWS)[2]) == ["a", *["1.50 / 0.25"] * 3]
    assert cells(tables.memory(ROWS)[3]) == ["b", "100", "123", "123", ""]


def test_shares_are_of_the_higher_limit() -> None:
    assert cells(tables.shares(ROWS, MACHINE)[2]) == ["a", "1", "100", "10", "10 ms", "10.1 ms", "50 %", "101 %"]


def test_speedups_are_of_more_threads_over_one() -> None:
    rows = [row("a", 1, ours=0.03, xla=0.08), *ROWS]
    assert list(map(cells, tables.speedups(rows, 2)[2:])) == [["a", "1.50", "1.00", ""]]


def test_peaks() -> None:
    wide = MACHINE | {"reads": [[1 << 19, 300e9], [2 << 20, 200e9], [16 << 20, 100e9], [512 << 20, 40e9]]}
    head, _, first = map(cells, tables.peaks([wide]))
    assert head[-4:] == ["read 512 KiB, GB/s", "read 2 MiB, GB/s", "read 16 MiB, GB/s", "read 512 MiB, GB/s"]
    assert first == ["2", "100", "200", "400", "300", "200", "100", "40"]


def test_pictures_are_drawn() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for figure in (pictures.ratios(pyplot, ROWS), pictures.roofline(pyplot, ROWS, MACHINE)):
        figure.canvas.draw()
        pyplot.close(figure)


def test_what_others_use_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle ticks count, including waiting for disks; ticks before the measurement do not."""
    ticks = iter([(1000, 5000), (1050, 5200)])
    monkeypatch.setattr(machine, "_times", lambda: next(ticks))
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    assert machine.busy(0.0) == pytest.approx(3.0)
