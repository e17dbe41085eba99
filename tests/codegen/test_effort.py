"""Optimization effort of LLVM, which attributes of functions control."""

from __future__ import annotations

import sys

import llvmlite.binding as llvm
import pytest

from shlo_jit import tuning
from shlo_jit.codegen import optimize
from shlo_jit.codegen.background import Background
from shlo_jit.codegen.target import resolve
from shlo_jit.kernels.routine import GLUE


def loop(name: str, attributes: str) -> str:
    """Returns a loop whose addresses LLVM's strength reduction would step: its variables are then called `lsr.iv`."""
    return f"""
define void @{name}(ptr %p, i64 %n, i64 %s) {attributes} nounwind {{
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %at = mul i64 %i, %s
  %q = getelementptr i8, ptr %p, i64 %at
  store i64 %n, ptr %q, align 8
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %again, label %end
end:
  ret void
}}"""


def optimized(*functions: str) -> dict[str, str]:
    module = optimize.optimize("".join(functions), resolve())
    optimize.emit_object(module.clone(), resolve())
    return {f.name: str(f) for f in module.functions if not f.is_declaration}


def test_code_generation_does_not_reduce_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lsr.iv" not in optimized(loop("f", ""))["f"]
    said: list[str] = []
    monkeypatch.setattr(llvm, "set_option", lambda name, option: said.append(option))
    optimized(loop("f", ""))
    assert said == ["-disable-lsr=true", "-disable-lsr=false"]


def test_glue_is_not_optimized_by_code_generation(capfd: pytest.CaptureFixture[str]) -> None:
    module = optimize.optimize(loop("f", "") + loop("g", GLUE), resolve())
    attributes = {f.name: b" ".join(f.attributes) for f in module.functions}
    assert b"optnone" in attributes["g"] and b"noinline" in attributes["g"] and b"optnone" not in attributes["f"]
    assert optimize.emit_object(module, resolve())
    assert capfd.readouterr() == ("", "")


def test_the_switch_interval_is_short_while_something_is_compiled() -> None:
    before = sys.getswitchinterval()
    with Background(1) as outer:
        assert sys.getswitchinterval() == pytest.approx(tuning.SWITCH_INTERVAL_SECONDS)
        with Background(1):
            pass
        assert outer.start(sys.getswitchinterval).result() == pytest.approx(tuning.SWITCH_INTERVAL_SECONDS)
    assert sys.getswitchinterval() == before
