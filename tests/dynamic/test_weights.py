"""Contents of a program exist once for all shapes: its text is parsed once, its constants are hashed once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_data_dependent import POSITIVE

import shlo_jit
from shlo_jit import specialize
from shlo_jit.ir import digests
from shlo_jit.runtime import cache
from shlo_jit.text import printer

N = 512
WEIGHTS = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)
LAYER = f"""
func.func @main(%x: tensor<?x{N}xf32>) -> tensor<?x{N}xf32> {{
  %w = stablehlo.constant dense<"0x{WEIGHTS.tobytes().hex().upper()}"> : tensor<{N}x{N}xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<?x{N}xf32>, tensor<{N}x{N}xf32>) -> tensor<?x{N}xf32>
  return %0 : tensor<?x{N}xf32>
}}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path))


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[object]:
    """Counts the calls of a function from now on."""
    calls: list[object] = []
    function = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: calls.append(args) or function(*args, **kwargs))
    return calls


@pytest.mark.parametrize("given", ["text", "module"])
def test_another_shape_parses_and_hashes_nothing_again(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = counted(monkeypatch, digests, "content_digest")
    read = counted(monkeypatch, cache, "normal")
    printed = counted(monkeypatch, printer, "print_module")
    dynamic = shlo_jit.compile(LAYER if given == "text" else shlo_jit.parse(LAYER))
    for n in (1, 2, 3):
        x = np.ones((n, N), np.float32)
        np.testing.assert_allclose(dynamic(x), x @ WEIGHTS, rtol=1e-4, atol=1e-4)
    # the literal's digest was computed during decoding, and identifies its panels
    assert (len(hashed), len(read), len(printed)) == (0, 1, given == "module")


def test_constants_are_in_memory_once() -> None:
    dynamic = shlo_jit.compile(LAYER, cache=False)
    first, second = (
        dynamic.executable([(n, N)])._front.instance.loaded.constants[0]  # type: ignore[union-attr]
        for n in (1, 2)
    )
    assert first is second


def test_digests_are_of_the_content() -> None:
    data = np.frombuffer(bytes(range(256)), np.uint8)
    assert digests.digest(data[:128]) == digests.digest(data[:128].copy()) != digests.digest(data[128:])
    changing = np.zeros(8, np.uint8)
    before = digests.digest(changing)
    changing[0] = 1
    assert digests.digest(changing) != before
    kept = len(digests._found)
    del data
    assert len(digests._found) == kept - 1


def test_cached_programs_are_not_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    want = shlo_jit.compile(LAYER)(np.ones((2, N), np.float32))
    refined = counted(monkeypatch, specialize, "refine_module")
    again = shlo_jit.compile(LAYER)
    assert again(np.ones((2, N), np.float32)).tobytes() == want.tobytes()
    assert not refined
    again(np.ones((3, N), np.float32))
    assert len(refined) == 1


def test_the_cache_distinguishes_programs_and_sizes() -> None:
    other = LAYER.replace("contracting_dims = [1] x [0]", "contracting_dims = [1] x [1]")
    x = np.arange(2 * N, dtype=np.float32).reshape(2, N) / N
    for _ in range(2):
        for text, weights in ((LAYER, WEIGHTS), (other, WEIGHTS.T)):
            dynamic = shlo_jit.compile(text)
            for n in (1, 2):
                np.testing.assert_allclose(dynamic(x[:n]), x[:n] @ weights, rtol=1e-4, atol=1e-3)


def test_data_dependent_sizes_in_the_cache() -> None:
    """The programs are not confused: neither the first one, nor those for different sizes."""
    for _ in range(2):
        executable = shlo_jit.compile(POSITIVE)
        for count in (2, 5, 0):
            x = np.where(np.arange(6) < count, 1, -1).astype(np.float32)
            assert executable(x)[0].tolist() == list(range(count))


def test_values_in_the_cache() -> None:
    text = """
    func.func @main(%n: tensor<i32>) -> tensor<?xi32> {
      %0 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %1 : tensor<?xi32>
    }
    """
    for _ in range(2):
        executable = shlo_jit.compile(text)
        assert [executable(np.int32(n)).size for n in (3, 0, 7)] == [3, 0, 7]


def test_nothing_of_the_compiler_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intermediate stages of the code are computed again on demand."""
    dynamic = shlo_jit.compile(LAYER)
    dynamic.specialize([(1, N)])
    made = counted(monkeypatch, specialize, "refine_module")
    assert f"tensor<1x{N}xf32>" in dynamic.text("module")
    assert len(made) == 1
