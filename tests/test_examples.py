"""The programs that come with the package, against NumPy; and the README, against its subject."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit import examples, op_table

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def dense(x: np.ndarray, w: np.ndarray, b: np.ndarray | float = 0.0) -> np.ndarray:
    return x @ w / np.sqrt(len(w)) + b


def mlp(x, w1, b1, w2, b2, w3, b3):
    return softmax(dense(np.tanh(dense(np.tanh(dense(x, w1, b1)), w2, b2)), w3, b3))


def attention(x, wq, wk, wv, wo):
    q, k, v = (dense(x, w).reshape(len(x), 8, -1).transpose(1, 0, 2) for w in (wq, wk, wv))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    return x + dense((softmax(scores) @ v).transpose(1, 0, 2).reshape(x.shape), wo)


def heat(u):
    for _ in range(200):
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u = np.pad(inner + 0.2 * (around - 4 * inner), 1)
    return u


@pytest.mark.parametrize("meaning", [mlp, attention, heat], ids=lambda f: f.__name__)
def test_example_computes_what_it_says(meaning) -> None:
    exe = shlo_jit.compile(examples.path(meaning.__name__))
    generator = np.random.default_rng(7)
    inputs = [generator.standard_normal(i.shape).astype(i.dtype) for i in exe.inputs]
    expected = meaning(*(x.astype(np.float64) for x in inputs))
    np.testing.assert_allclose(exe(*inputs), expected, rtol=2e-4, atol=2e-5)


def test_mandelbrot_counts_iterations() -> None:
    counts, iterations = shlo_jit.compile(examples.path("mandelbrot"))()
    assert iterations == 200 and counts.max() == 200
    y, x = np.mgrid[:256, :384]
    c = x / 128 - 2 + 1j * (y / 128 - 1)
    z, n = np.zeros_like(c), np.zeros(c.shape, np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(200):
            inside = abs(z) < 2
            z = np.where(inside, z * z + c, z)
            n += inside
    assert (counts == n).mean() > 0.99  # points at the border differ between f32 and f64


def test_examples_are_known_by_name() -> None:
    assert examples.names() == ["attention", "heat", "mandelbrot", "mlp"]
    with pytest.raises(ValueError, match="'none'.*attention, heat"):
        examples.path("none")


def test_the_page_of_ops_is_generated_from_the_records() -> None:
    page = ROOT / "docs" / "ops.md"
    text = page.read_text(encoding="utf-8")
    assert op_table.written_into(text) == text, "run: python -m shlo_jit.op_table docs/ops.md"
    ops = op_table.rows()
    assert f"All {len(ops)} ops" in README.read_text(encoding="utf-8") and all(op.how for op in ops)


def test_op_table_needs_its_markers() -> None:
    with pytest.raises(ValueError, match="op table: begin"):
        op_table.written_into("# nothing here")


def test_lines_of_code_in_readme_give_the_output_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    shown = re.search(r"```python\n(.*?)```\n\s*```text\n(.*?)```", text, re.S)
    assert shown is not None
    code, output = shown.groups()
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.split() == output.split()


def test_every_package_is_installed() -> None:
    """setuptools finds packages by their `__init__.py`: a folder of modules without one would be left out."""
    folders = {f.parent for f in (ROOT / "shlo_jit").rglob("*.py")}
    assert [f for f in folders if not (f / "__init__.py").exists()] == []
