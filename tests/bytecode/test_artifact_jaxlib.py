"""Artifacts against jaxlib: each side reads what the other one writes as the same program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import artifact_programs as programs
import numpy as np
import pytest

import shlo_jit
from shlo_jit.bytecode.versions import version_of
from shlo_jit.ir.core import Module
from shlo_jit.ir.equality import difference

stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
pytestmark = pytest.mark.xla
NEWEST = version_of(stablehlo.get_current_version())
KNOWN = [version for version in programs.VERSIONS if version_of(version) <= NEWEST]
FUNCTIONS = {**programs.functions(programs.EVERY_OP), **programs.functions(programs.LATER_OPS)}


@pytest.fixture(scope="module")
def text_of() -> Callable[[bytes], str]:
    """Returns a function that gives the text that jaxlib prints for an artifact."""
    from jax._src.interpreters.mlir import make_ir_context

    context = make_ir_context()

    def text(artifact: bytes) -> str:
        with context:
            return str(stablehlo.deserialize_portable_artifact(context, artifact))

    return text


def written(text: str, version: str) -> bytes | None:
    """Returns the artifact that jaxlib writes; None if it cannot."""
    try:
        return stablehlo.serialize_portable_artifact_str(text, version)
    except Exception:
        return None


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(5)
def test_both_ways(name: str, text_of: Callable[[bytes], str]) -> None:
    """For every version, artifacts written by jaxlib are read as the text it prints for them, and vice versa."""
    tried = 0
    first = name.split("_")[-2:]
    if all(part.isdigit() for part in first) and (int(first[0]), int(first[1])) > NEWEST[:2]:
        pytest.skip(f"jaxlib has StableHLO {NEWEST}")
    for version in KNOWN:
        theirs = written(FUNCTIONS[name], version)
        if theirs is None:
            continue
        tried += 1
        text = text_of(theirs)
        module = shlo_jit.parse(text)
        assert difference(shlo_jit.parse(theirs), module) is None, version
        assert text_of(module.serialize(version)) == text, version
    assert tried


def test_what_is_written_here_is_the_first_writer(text_of: Callable[[bytes], str]) -> None:
    """jaxlib reads our artifacts directly, without an artifact of its own in between."""
    module = shlo_jit.parse(programs.EVERY_OP)
    for version in KNOWN:
        assert difference(shlo_jit.parse(text_of(module.serialize(version))), module) is None, version


def test_shardings(text_of: Callable[[bytes], str]) -> None:
    module = shlo_jit.parse(programs.SHARDED)
    for version in ("0.9.0", "1.0.0", str(NEWEST)):
        assert difference(shlo_jit.parse(text_of(module.serialize(version))), module) is None


@pytest.mark.parametrize("attribute", programs.OWN_ATTRIBUTES)
def test_own_attributes_of_modules(attribute: str, text_of: Callable[[bytes], str]) -> None:
    theirs = written(f"module attributes {{own.name = {attribute}}} {{}}", "1.0.0")
    assert theirs is not None
    text = text_of(theirs)
    module = shlo_jit.parse(text)
    assert shlo_jit.parse(theirs).op.attributes == module.op.attributes != {}
    assert text_of(module.serialize("1.0.0")) == text


@pytest.mark.parametrize(("storage", "scale"), [("ui8", "2.0"), ("u8", "4.0")])  # equal types share a spelling
def test_quantized_types_as_they_are_spelled(storage: str, scale: str, text_of: Callable[[bytes], str]) -> None:
    theirs = written(programs.QUANTIZED.replace("ui8", storage).replace("2.0", scale), "1.0.0")
    assert theirs is not None
    assert text_of(shlo_jit.parse(theirs).serialize("1.0.0")) == text_of(theirs)


def test_locations(text_of: Callable[[bytes], str]) -> None:
    from jax._src.interpreters.mlir import make_ir_context

    context = make_ir_context()
    with context:
        theirs = stablehlo.deserialize_portable_artifact(context, shlo_jit.parse(programs.LOCATED).serialize())
        text = theirs.operation.get_asm(enable_debug_info=True)
    assert '"model.py":7:2 to :9' in text and "callsite(" in text and 'fused<"pass">' in text


def exported(function: Callable[..., Any], *arguments: np.ndarray) -> Any:
    jax = pytest.importorskip("jax")
    return jax.export.export(jax.jit(function))(*arguments)


def test_programs_of_jax(text_of: Callable[[bytes], str]) -> None:
    import jax
    import jax.numpy as jnp

    def loss(w: Any, x: Any) -> Any:
        return (jax.nn.softmax(x @ w) ** 2).sum() + jnp.linalg.norm(jnp.sort(x, axis=0))

    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, v: jnp.where(v > i, jnp.sin(v), v * 2), x)

    w, x = np.ones((4, 3), np.float32), np.arange(8, dtype=np.float32).reshape(2, 4)
    for function, arguments in ((jax.grad(loss), (w, x)), (loop, (x,))):
        made = exported(function, *arguments)
        module: Module = shlo_jit.parse(made.serialize())
        assert difference(module, shlo_jit.parse(text_of(made.mlir_module_serialized))) is None
        want = function(*arguments)
        np.testing.assert_allclose(shlo_jit.compile(made.serialize())(*arguments), want, rtol=2e-5, atol=1e-6)
