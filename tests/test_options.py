"""The options of the public functions: each invalid one is refused with its name, the expected and the given value."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import numpy as np
import pytest

import shlo_jit
from shlo_jit import environment
from shlo_jit.runtime import cache, pool

TEXT = """func.func @main(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %y : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
X = np.ones(2, np.float32)

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"entry": 3}, TypeError, "entry: .*got 3"),
    ({"entry": None}, TypeError, "entry: .*got None"),
    ({"entry": "other"}, shlo_jit.StableHLOError, "@other.*@main"),
    ({"target": 3}, TypeError, "target: .*got 3"),
    ({"target": "foo"}, ValueError, "target 'foo'.*native, .*x86-64-v3"),
    ({"target": "foo:bar"}, ValueError, "architecture 'foo'.*'foo:bar'.*aarch64"),
    ({"cache": "yes"}, TypeError, "cache: .*got 'yes'"),
    ({"cache": None}, TypeError, "cache: .*got None"),
    ({"fold_scales": 1}, TypeError, "fold_scales: .*got 1"),
    ({"round_activations": True}, TypeError, "round_activations: .*'int8', got True"),
    ({"round_activations": "int4"}, ValueError, "round_activations: .*'int8', got 'int4'"),
    ({"reproducible": 1}, TypeError, "reproducible: .*got 1"),
    ({"reproducible": True, "target": "x86-64-v2"}, ValueError, "reproducible: .*'x86-64-v2' has no fused multiply-adds"),
    ({"reproducible": True, "schedule": {}}, ValueError, "reproducible: a given schedule"),
    ({"custom_calls": ["f"]}, TypeError, "custom_calls: .*got list"),
    ({"custom_calls": {"f": 3.5}}, TypeError, "custom call 'f': .*got float"),
    ({"custom_calls": {"f": None}}, TypeError, "custom call 'f': .*got NoneType"),
    ({"custom_calls": {3: abs}}, TypeError, "custom call: .*got 3"),
    ({"composites": "f"}, TypeError, "composites: .*got str"),
    ({"composites": {"f": "g"}}, TypeError, "composite 'f': .*got str"),
    ({"composites": {b"f": abs}}, TypeError, "composite: .*got b'f'"),
    ({"donate": 7}, TypeError, "donate: .*got 7"),
    ({"donate": "01"}, TypeError, "donate: .*got '01'"),
    ({"donate": None}, TypeError, "donate: .*got None"),
    ({"donate": ["a"]}, TypeError, "donate: .*got 'a'"),
    ({"donate": [0.0]}, TypeError, "donate: .*got 0.0"),
    ({"donate": [True]}, TypeError, "donate: .*got True"),
    ({"donate": [[0]]}, TypeError, r"donate: .*got \[0\]"),
    ({"donate": [0, 0]}, ValueError, "donate: argument 0.*twice"),
    (
        {"donate": [7]},
        ValueError,
        "donate: .*argument 7.*2 arguments.*0 to 1",
    ),
    ({"donate": [-1]}, ValueError, "donate: .*argument -1"),
    ({"threads": 0}, ValueError, "threads.*got 0"),
    ({"threads": 2.5}, ValueError, "threads.*got 2.5"),
    ({"threads": 10**6}, ValueError, "threads.*1024.*1000000"),
    ({"threads": 10**30}, ValueError, "threads.*1024.*1000"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG, ids=[str(row[0]) for row in WRONG])
@pytest.mark.parametrize("known", [False, True])
def test_wrong_options(known: bool, options: dict[str, Any], error: type[Exception], message: str) -> None:
    if known:  # in the cache
        shlo_jit.compile(TEXT)
    with pytest.raises(error, match=message):
        shlo_jit.compile(TEXT, **options)


def test_options_in_all_their_forms() -> None:
    for donate in ((0,), [1, 0], {0}, range(2), np.array([1]), iter([np.int64(0)])):
        assert shlo_jit.compile(TEXT, donate=donate)(X.copy(), X.copy()).tolist() == [2, 2]
    assert shlo_jit.compile(TEXT, "@main")(X, X).tolist() == [2, 2]
    assert shlo_jit.compile(TEXT, threads=np.int64(3)).threads == 3  # type: ignore[arg-type]  it counts
    assert shlo_jit.compile(TEXT, threads=1024).threads == 1024


def test_donations_of_programs_with_few_arguments() -> None:
    none = "func.func @main() -> tensor<i32> { %0 = stablehlo.constant dense<1> : tensor<i32> return %0 : tensor<i32> }"
    with pytest.raises(ValueError, match=r"argument 0: .* 0 arguments$"):
        shlo_jit.compile(none, donate=[0])
    one = "func.func @main(%x: tensor<i32>) -> tensor<i32> { return %x : tensor<i32> }"
    with pytest.raises(ValueError, match=r"argument 1: .* 1 argument$"):
        shlo_jit.compile(one, donate=[1])


def test_targets_of_other_machines() -> None:
    other = "aarch64:generic" if shlo_jit.codegen.target.resolve().is_x86 else "x86_64:haswell"
    with pytest.raises(ValueError, match=f"target '{other}'.*machine"):
        shlo_jit.compile(TEXT, target=other)


def test_a_target_with_more_than_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from shlo_jit.codegen import target

    real = target.resolve
    host = dataclasses.replace(real("x86_64-linux:haswell"), name="native")
    monkeypatch.setattr(target, "resolve", lambda name="native": host if name == "native" else real(name))
    with pytest.raises(ValueError, match=r"'x86-64-v4' .*avx512bw"):
        target.check_runs_here(real("x86-64-v4"))
    target.check_runs_here(real("x86-64-v3"))


@pytest.mark.parametrize("name", [3, None, "", b"f", ["f"]])
def test_names_of_custom_calls(name: Any) -> None:
    for target in (abs, None):
        with pytest.raises(TypeError, match="custom call: .*name"):
            shlo_jit.register_custom_call(name, target)


@pytest.mark.parametrize("target", [3.5, "g", 0, -1, True, [], {}, ctypes.c_int(3)])
def test_targets_of_custom_calls(target: Any) -> None:
    with pytest.raises(TypeError, match="'f'.*callable, a ctypes function"):
        shlo_jit.register_custom_call("f", target)


F32 = "tensor<2xf32>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, [F32, F32]), "op_name: .*got 3"),
        ((None, None), "op_name: .*got None"),
        (("add", 3), "operand_types: .*got 3"),
        (("add", F32), "operand_types: .*got 'tensor<2xf32>'"),
        (("add", [3]), r"operand_types: .*got \[3\]"),
        (("add", [F32, F32], [1]), r"attributes: .*got \[1\]"),
        (("add", [F32, F32], {}, 3), "regions: .*got 3"),
        (("add", [F32, F32], {}, [3]), r"regions: .*got \[3\]"),
    ],
)
def test_infer(arguments: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        shlo_jit.infer(*arguments)
    with pytest.raises(TypeError, match="result_types: .*got 3"):
        shlo_jit.infer("add", [F32, F32], result_types=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", ["foo", "", 3, None, ["plan"]])
def test_stages(stage: Any) -> None:
    with pytest.raises(ValueError, match="stage .*module, .*asm"):
        shlo_jit.compile(TEXT).text(stage)


@pytest.mark.parametrize(
    ("seconds", "error"), [("1", TypeError), (True, TypeError), (-1, ValueError), (np.nan, ValueError)]
)
def test_times_to_wait(seconds: Any, error: type[Exception]) -> None:
    exe = shlo_jit.compile(TEXT)
    for call in (lambda: exe.outfeed.get(seconds), lambda: setattr(exe.infeed, "time_out", seconds)):
        with pytest.raises(error, match="time_out"):
            call()
    exe.outfeed.queue.append((X,))
    assert exe.outfeed.get(float("inf")) is X


@pytest.mark.parametrize("handle", ["3", None, 3.0, True])
def test_channels(handle: Any) -> None:
    with pytest.raises(TypeError, match="channel: .*integer"):
        shlo_jit.compile(TEXT).channel(handle)


# ---------------------------------------------------------------------- environment variables
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 7), (" ", 7), ("0", 0), ("12345", 12345), ("1k", 1024), ("3K", 3072), ("2KB", 2048), ("2 KiB", 2048), ("5B", 5),
        ("1M", 1 << 20), ("1G", 1 << 30), ("1.5GiB", 3 << 29), ("2tib", 2 << 40), (str(10**25), 10**25),
    ],
)  # fmt: skip
def test_sizes(text: str, expected: int) -> None:
    assert environment.size(text, "SHLO_JIT_CACHE_BYTES", 7) == expected


@pytest.mark.parametrize("variable", ["SHLO_JIT_CACHE_BYTES", "SHLO_JIT_POOL_BYTES"])
@pytest.mark.parametrize("text", ["x", "1Q", "-1", "1e9", "1 2", "G", "0x10", "1.5.2M", "1GiBB"])
def test_bad_sizes(variable: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, text)
    read = cache.default_cache if "CACHE" in variable else lambda: pool.BlockPool().limit
    with pytest.raises(ValueError, match=f"{variable}.*'{text}'"):
        read()


def test_the_pool_s_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_POOL_BYTES", "3M")
    assert pool.BlockPool().limit == 3 << 20
    monkeypatch.delenv("SHLO_JIT_POOL_BYTES")
    assert pool.BlockPool().limit >= 256 << 20


def test_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in {
        "1": True,
        "true": True,
        "ON": True,
        "0": False,
        "no": False,
        "": False,
        "off": False,
    }.items():
        monkeypatch.setenv("SHLO_JIT_GDB", text)
        assert environment.flag("SHLO_JIT_GDB") is expected
    monkeypatch.setenv("SHLO_JIT_GDB", "maybe")
    with pytest.raises(ValueError, match="SHLO_JIT_GDB.*'maybe'"):
        environment.flag("SHLO_JIT_GDB")


@pytest.mark.parametrize("text", ["1.5", "2x", "٣", "5000"])
def test_thread_counts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_NUM_THREADS", text)
    with pytest.raises(ValueError, match="SHLO_JIT_NUM_THREADS.*(positive|1024)"):
        shlo_jit.compile(TEXT)
