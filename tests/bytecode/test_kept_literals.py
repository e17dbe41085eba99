"""Long literals are cut out of artifacts and read into their final buffers."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_artifact_sources import exported

import shlo_jit
from shlo_jit import sources, tuning
from shlo_jit.bytecode import long_literals
from shlo_jit.runtime import known_files
from shlo_jit.sources import Artifact, content, read_source

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "f64": np.float64, "i1": np.bool_}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Treats short literals as long and files as settled, with a separate cache."""
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "LONG_LITERAL_BYTES", 64)
    monkeypatch.setattr(tuning, "KNOWN_FILE_BYTES", 1)
    monkeypatch.setattr(known_files, "SETTLED_SECONDS", -1.0)


def arrays(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {"f32": 700, "bf16": 3, "i8": 999, "f64": 41, "i1": 1000}
    return {name: rng.integers(-9 * (name != "i1"), 2, sizes[name]).astype(dtype) for name, dtype in TYPES.items()}


def text(constants: Mapping[str, np.ndarray]) -> str:
    """Returns a program that returns the constants."""
    lines, types = [], []
    for name, array in constants.items():
        types.append(f"tensor<{len(array)}x{name}>")
        digits = np.packbits(array, bitorder="little") if name == "i1" else array
        values = ", ".join("true" if x else "false" for x in array) if name == "i1" else ""
        literal = f"dense<[{values}]>" if values else f'dense<"0x{digits.tobytes().hex()}">'
        lines.append(f"%{name} = stablehlo.constant {literal} : {types[-1]}")
    values = ", ".join(f"%{name}" for name in constants)
    return (
        f"func.func @main() -> ({', '.join(types)}) {{\n{chr(10).join(lines)}\nreturn {values} : {', '.join(types)}\n}}"
    )


def artifact(seed: int = 0) -> bytes:
    return shlo_jit.parse(text(arrays(seed))).serialize()


def check(source: Any, seed: int = 0) -> None:
    for got, want in zip(shlo_jit.compile(source)(), arrays(seed).values(), strict=True):
        np.testing.assert_array_equal(np.asarray(got).view(want.dtype), want)


def opened(source: Any, known: bool = False) -> Artifact:
    found = read_source(source, known)
    assert isinstance(found, Artifact)
    return found


@pytest.mark.parametrize("wrap", [bytes, exported], ids=["artifact", "exported"])
def test_bytes_and_files(wrap: Any, tmp_path: Path) -> None:
    data, path = artifact(), tmp_path / "model.bin"
    path.write_bytes(wrap(data))
    for source in (wrap(data), path):
        found = opened(source)
        assert sorted(x.nbytes for x in found.literals.values()) == [125, 41 * 8, 999, 700 * 4]
        assert len(found.data) == len(data)
        assert len(found.rest) + sum(x.nbytes for x in found.literals.values()) == len(data)
        check(source)
        assert shlo_jit.parse(source).serialize() == data


def test_what_is_not_long_is_not_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LONG_LITERAL_BYTES", 1 << 20)
    data = artifact()
    found = opened(data)
    assert not found.literals and found.data == data == found.rest == content(found)


def test_programs_are_told_apart_by_their_literals() -> None:
    found = {content(opened(artifact(seed))) for seed in range(4)}
    assert len(found) == 4
    for seed in (0, 1, 0):
        check(artifact(seed), seed)


def test_a_file_that_is_as_it_was_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, calls = tmp_path / "model.bin", []
    path.write_bytes(exported(artifact()))
    made = sources._artifact
    monkeypatch.setattr(sources, "_artifact", lambda *given: calls.append(given) or made(*given))
    for _ in range(3):
        check(path)
    first, again = opened(path), opened(path, known=True)
    assert len(calls) == 2 and content(first) == content(again)
    assert not any(x.is_read for x in again.literals.values())
    path.write_bytes(exported(artifact(1)))
    check(path, 1)
    assert len(calls) == 3


def test_a_literal_whose_file_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(artifact())
    found = opened(path)
    path.write_bytes(artifact(1))
    at, literal = next(iter(found.literals.items()))
    literal.release()
    with pytest.raises(OSError, match="changed"):
        _ = literal.data
    os.truncate(path, at + 1)
    with pytest.raises(OSError, match="shorter"):
        _ = literal.data


def test_damaged_artifacts_are_refused_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any wrong byte and any truncation, the message does not depend on literals being cut out."""
    data, pick = artifact(), random.Random(0)

    def said(damaged: bytes) -> str | bytes:
        try:
            return shlo_jit.parse(damaged).serialize()
        except shlo_jit.ParseError as error:
            return str(error)

    for _ in range(300):
        damaged = bytearray(data)
        damaged[pick.randrange(4, len(data))] = pick.randrange(256)
        cut = bytes(damaged[: pick.choice([len(data), len(data), pick.randrange(8, len(data))])])
        monkeypatch.setattr(tuning, "LONG_LITERAL_BYTES", 64)
        short = said(cut)
        monkeypatch.setattr(tuning, "LONG_LITERAL_BYTES", 1 << 30)
        assert short == said(cut)


def test_memory_of_what_is_kept_out_is_not_touched() -> None:
    weights = np.zeros(1 << 20, np.float32)
    weights[-1] = 1
    data = shlo_jit.parse(text({"f32": weights})).serialize()
    found = opened(data)
    assert len(found.rest) < 1000 and found.data[:] != data
    rest = long_literals.rest_of(data, found.literals)
    assert rest == found.rest
