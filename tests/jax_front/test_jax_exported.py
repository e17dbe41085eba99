"""Programs of `jax.export`: called with trees, symbolic shapes, and as a source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp
from jax import export  # noqa: F401  it is not there before it is imported

import shlo_jit
import shlo_jit.jax as sj

pytestmark = pytest.mark.xla
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def model(params: dict[str, Any], x: Any, *, scale: Any, unused: Any = None) -> Any:
    return {"y": jnp.tanh(x @ params["w"]) * scale, "n": x.shape[0] * 1.0}


PARAMS = {"w": X.T.copy()}


def exported(x: Any = X, **named: Any) -> Any:
    return jax.export.export(jax.jit(model), **named)(PARAMS, x, scale=2.0, unused=np.ones(3))


@pytest.mark.parametrize("serialized", [False, True])
def test_trees_and_arguments_that_are_not_used(serialized: bool) -> None:
    given = exported()
    f = sj.from_exported(given.serialize() if serialized else given)
    got, expected = (call(PARAMS, X, scale=2.0, unused=np.ones(3)) for call in (f, given.call))
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, expected)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(got))
    with pytest.raises(TypeError, match="exported for arguments"):
        f(PARAMS, X)
    with pytest.raises(TypeError, match="argument 1 .*float32, got int32"):
        f(PARAMS, X.astype(np.int32), scale=2.0, unused=np.ones(3))


@pytest.mark.parametrize("dynamic", ["specialize", "symbolic"])
def test_symbolic_shapes(dynamic: str) -> None:
    (n,) = jax.export.symbolic_shape("n")
    given = exported(jax.ShapeDtypeStruct((n, 4), np.float32))
    f = sj.from_exported(given, dynamic=dynamic)
    for rows in (1, 3, 3, 8):
        x = np.ones((rows, 4), np.float32)
        got = f(PARAMS, x, scale=2.0, unused=np.ones(3))
        np.testing.assert_allclose(got["y"], np.tanh(x @ PARAMS["w"]) * 2, rtol=1e-6)
        assert got["y"].shape == (rows, 3)
        assert float(got["n"]) == rows
    with pytest.raises((ValueError, shlo_jit.StableHLOError)):
        f(PARAMS, np.ones((3, 5), np.float32), scale=2.0, unused=np.ones(3))


@pytest.mark.parametrize("platforms", [["cpu", "tpu"], ["tpu", "cpu"], ["cuda", "tpu", "cpu"]])
def test_several_platforms(platforms: list[str]) -> None:
    def f(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cpu=lambda x: x * 2, tpu=lambda x: x * 3, cuda=lambda x: x * 5)

    given = jax.export.export(jax.jit(f), platforms=platforms)(X)
    np.testing.assert_array_equal(sj.from_exported(given)(X), X * 2)


def test_programs_for_others() -> None:
    with pytest.raises(ValueError, match=r"tpu, cuda: .*platforms=\['cpu'\]"):
        sj.from_exported(exported(platforms=["tpu", "cuda"]))


def test_keys() -> None:
    def f(k: Any) -> Any:
        return jax.random.split(k), jax.random.bits(k)

    given = jax.export.export(jax.jit(f))(jax.random.key(1))
    got, expected = sj.from_exported(given)(jax.random.key(2)), f(jax.random.key(2))
    assert got[0].dtype == expected[0].dtype
    assert (jax.random.key_data(got[0]) == jax.random.key_data(expected[0])).all()
    assert got[1] == expected[1]


def test_what_is_no_exported_program() -> None:
    with pytest.raises(TypeError, match="jax.export.Exported.*got str"):
        sj.from_exported("text")
    data = exported().serialize()
    for wrong in (b"", b"garbage", data[:40], data[:-2000]):
        with pytest.raises(ValueError, match="bytes.*jax.export"):
            sj.from_exported(bytes(wrong))


def test_objects_of_jax_as_sources(tmp_path: Any) -> None:
    lowered, given = jax.jit(model).lower(PARAMS, X, scale=2.0), exported()
    for source in (lowered, given):
        exe = shlo_jit.compile(source)
        assert shlo_jit.verify(source) == []
        assert shlo_jit.parse(source).function("main") is not None
        got = exe(PARAMS["w"], X, np.float32(2))
        np.testing.assert_allclose(got[1], np.tanh(X @ PARAMS["w"]) * 2, rtol=1e-6)
    exe = shlo_jit.compile(lowered)
    assert [p.name for p in exe.inputs] == ["params['w']", "x", "scale"]
    assert [p.name for p in exe.outputs] == ["result['n']", "result['y']"]
    shlo_jit.export(lowered, tmp_path / "model.o", header=tmp_path / "model.h")
    header = (tmp_path / "model.h").read_text()
    assert "const float *params__w__, const float *x, const float *scale" in " ".join(header.split())
    loaded = shlo_jit.load(tmp_path / "model.o")
    got = loaded(X.T.copy(), scale=np.float32(2), x=X)
    np.testing.assert_allclose(got[1], np.tanh(X @ PARAMS["w"]) * 2, rtol=1e-6)
    with pytest.raises(TypeError, match=r"argument 2 \(scale\).*missing"):
        loaded(X.T.copy(), x=X)


def test_refining_a_program_with_symbolic_shapes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    given = jax.export.export(jax.jit(lambda x: x * 2))(jax.ShapeDtypeStruct((n, 4), np.float32))
    assert "tensor<5x4xf32>" in str(shlo_jit.refine(given, [(5, 4)]))
