"""Arbitrary names of programs as names of C."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from building import SQUARE, chain, exported, needs_cc, run

import shlo_jit
from shlo_jit.aot.c_names import KEYWORDS, is_taken

COMPILERS = [
    *(("cc", f"-std={s}") for s in ("c99", "gnu11", "gnu17", "c2x")),
    *(("c++", f"-std={s}") for s in ("c++11", "gnu++17", "c++20", "c++23")),
]
WORDS = ("linux unix NULL INT8_MAX I int32_t int8_t size_t shlo_f16 SHLO_OK _Bool _Atomic __linux__ instance output "
         "model_instance model_create x").split()  # fmt: skip
TWO_SHAPES = """
func.func @main(%x: tensor<4xf32>, %y: tensor<i32>) -> (tensor<4xf32>, tensor<i32>) {
  %0 = stablehlo.custom_call @op(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.custom_call @op(%y) : (tensor<i32>) -> tensor<i32>
  return %0, %1 : tensor<4xf32>, tensor<i32>
}
"""


def calling(*targets: str) -> str:
    """A program with a sequence of custom calls."""
    calls = [
        f'  %{i + 1} = stablehlo.custom_call @"{t}"(%{i}) : (tensor<4xf32>) -> tensor<4xf32>\n'
        for i, t in enumerate(targets)
    ]
    n = len(targets)
    return f"func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {{\n{''.join(calls)}  return %{n} : tensor<4xf32>\n}}"


def check_header(folder: Path) -> None:
    """Compiles it as C and C++, in all versions of the languages, with all warnings."""
    for command, standard in COMPILERS:
        if shutil.which(command):
            source = folder / ("main.c" if command == "cc" else "main.cc")
            source.write_text('#include "model.h"\n#include "model.h"\n')
            flags = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only")
            run([command, standard, *flags, source])


@needs_cc
def test_inputs_with_names_that_are_taken(tmp_path: Path) -> None:
    names = [*WORDS, *sorted(KEYWORDS)]
    types = ["f32", "i32", "i8", "i1", "f16"]
    inputs = ", ".join(f"%{n}: tensor<{types[i % 5]}>" for i, n in enumerate(names))
    text = f"func.func @main({inputs}) -> tensor<f32> {{\n  return %linux : tensor<f32>\n}}"
    exported(text, tmp_path, ".o")
    check_header(tmp_path)


@needs_cc
@pytest.mark.parametrize("name", ["a */ int b; /*", "a /* b", "\\22\\0A#error", "??/", "\u00fc"])
def test_words_that_would_end_a_comment(name: str, tmp_path: Path) -> None:
    text = calling(name).replace("@main", f'@"{name}"')
    entry = name.replace("\\22", '"').replace("\\0A", "\n")
    exported(text, tmp_path, ".o", entry=entry, custom_calls=[entry])
    check_header(tmp_path)


@needs_cc
def test_custom_calls_with_names_that_are_taken(tmp_path: Path) -> None:
    """C's own functions, functions that libraries call or contain, types and macros of the header."""
    targets = ["mmap", "malloc", "main", "exp", "memset", "pthread_create", "shlo_parallel", "shlo_options", "SHLO_OK",
               "linux", "int", "model_create", "model_main", "my.op", "my op"]  # fmt: skip
    text = calling(*targets)
    path = exported(text, tmp_path, ".o", custom_calls=targets)
    check_header(tmp_path)
    symbols = re.findall(r"int32_t (\w+)\(void \*\*operands", (tmp_path / "model.h").read_text())
    assert symbols == [*(t + "_" for t in targets[:-2]), "my_op", "my_op_"]
    loaded = shlo_jit.load(path, custom_calls=dict.fromkeys(targets, lambda x: x + 1))
    assert loaded(np.arange(4, dtype=np.float32)).tolist() == [15, 16, 17, 18]


def test_a_custom_call_of_several_shapes(tmp_path: Path) -> None:
    exported(TWO_SHAPES, tmp_path, ".o", custom_calls=["op"])
    assert "/* op: (f32[4]) -> (f32[4]) or (i32[]) -> (i32[]) */" in (tmp_path / "model.h").read_text()


@needs_cc
def test_libraries_with_names_that_are_taken(tmp_path: Path) -> None:
    with pytest.raises(shlo_jit.ExportError, match="pthread_create"):
        exported(SQUARE, tmp_path, ".o", name="pthread")
    with pytest.raises(ValueError, match="and not 'shlo'"):
        exported(SQUARE, tmp_path, ".o", name="shlo")
    shlo_jit.export(SQUARE, tmp_path / "shlo.o", header=tmp_path / "model.h")
    check_header(tmp_path)
    assert "shlo__main(" in (tmp_path / "model.h").read_text()
    with pytest.raises(shlo_jit.ExportError, match="shlo_pool_create"):
        exported(SQUARE, tmp_path, ".o", name="shlo_pool")


@pytest.mark.skipif(shutil.which("nm") is None, reason="no binutils")
@pytest.mark.parametrize("target", ["native", "x86_64-linux-musl:x86-64-v3"])
def test_all_that_a_library_calls_is_known_to_be_taken(target: str, tmp_path: Path) -> None:
    path = exported(chain(320), tmp_path, ".o", weights="file", target=target)
    called = run(["nm", "-u", path]).stdout.split()[1::2]
    assert "mmap" in called
    assert not [name for name in called if not is_taken(name)]
