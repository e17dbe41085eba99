"""Tests that names in LLVM text are unique, for parameters, registers, blocks and symbols with any names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import i64
from shlo_jit.kernels.names import GlobalNames, LocalNames

HINTS = st.sampled_from(["v", "p", "i", "end", "then", "row"])


@settings(max_examples=100, deadline=None)
@given(st.sets(st.builds(lambda h, n: f"{h}{n}", HINTS, st.integers(0, 30))), st.lists(HINTS, max_size=40))
def test_local_names_differ(fixed: set[str], hints: list[str]) -> None:
    names = LocalNames(fixed)
    found = [*fixed, *(names.new(h) for h in hints)]
    assert len(set(found)) == len(found)


def test_names_that_cannot_be_told_apart_are_refused() -> None:
    names = LocalNames(["x"])
    with pytest.raises(AssertionError, match="called x"):
        names.claim("x")
    with pytest.raises(AssertionError, match="hint"):
        names.new("x1")
    names.new("x")
    with pytest.raises(AssertionError, match="may have been given"):
        names.claim("x1")
    with pytest.raises(AssertionError, match="called a"):
        ModuleText().function("f", [("i64", "a"), ("ptr", "a")])


def test_global_names_differ() -> None:
    names = GlobalNames()
    names.define("add.1")
    names.declare("sort")
    found = [names.new(h) for h in ("add", "add", "add.1", "sort", "add")]
    assert found == ["add", "add.2", "add.1.1", "sort.1", "add.3"]
    for name in found:
        names.define(name)
    names.release("add", "add.3")
    assert names.new("add") == "add.3"
    with pytest.raises(AssertionError, match="name of a kernel"):
        names.declare("add.3")


def test_a_dropped_kernel_leaves_the_names_of_others_alone() -> None:
    """The first of two kernels is dropped after the second has been emitted."""
    names = GlobalNames()
    first, second = names.new("k"), names.new("k")
    names.define(second)
    names.define(first)
    names.release("k", first)
    assert names.new("k") not in (second,)


def test_functions_and_variables_have_one_definition() -> None:
    """Repeated definitions must be equal, and a function and a variable cannot have the same name."""
    module = ModuleText()
    for value in (1, 1, 2):
        b = module.function("f", [], "i64")
        if value == 2:
            with pytest.raises(AssertionError, match="@f has two definitions"):
                b.ret(i64(value))
        else:
            b.ret(i64(value))
    for text in ("constant i8 0", "constant i8 0"):
        module.define_global("g", text)
    for name, text in (("g", "constant i8 1"), ("f", "constant i8 0")):
        with pytest.raises(AssertionError, match=f"@{name} has two definitions"):
            module.define_global(name, text)


def test_parameters_called_as_registers_are() -> None:
    """Loops, phis, blocks and stack space are named uniquely beside parameters with similar names."""
    params = [
        ("i64", f"{hint}{n}")
        for hint in ("v", "i", "c", "p", "loop", "end", "then", "fi", "stack")
        for n in range(1, 20)
    ]
    b = ModuleText().function("f", params, "i64")
    place = b.alloca("i64")
    with b.loop_carry(0, b.params[0], [b.params[1]]) as carry:
        with b.if_(b.icmp("slt", carry.index, b.params[2])):
            b.store(carry.values[0], place)
        carry.next(b.add(carry.values[0], 1))
    b.ret(carry.values[0])
    text = b.module.text()
    names = re.findall(r"^  (%[\w.]+) =", text, re.MULTILINE) + [
        "%" + x for x in re.findall(r"^([\w.]+):$", text, re.MULTILINE)
    ]
    names += [f"%{n}" for _, n in params]
    assert len(set(names)) == len(names)
