"""What may be given as a program, and what is said to what is none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit import sources

TEXT = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
DATA = TEXT.encode()


class Given:
    """An os.PathLike that is no Path."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __fspath__(self) -> Any:
        return self.path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.mlir"
    found.write_text(TEXT)
    return found


def test_texts_paths_bytes_and_modules(path: Path) -> None:
    module = shlo_jit.parse(TEXT)
    given = [
        path,
        str(path),
        Given(str(path)),
        Given(os.fsencode(path)),
        DATA,
        bytearray(DATA),
        memoryview(DATA),
        module,
    ]
    for source in given:
        assert shlo_jit.parse(source) == module
        assert shlo_jit.verify(source) == []
    for source in ("\ufeff" + TEXT, b"\xef\xbb\xbf" + DATA, TEXT.replace("\n", "\r\n")):
        assert shlo_jit.parse(source) == module
    assert shlo_jit.compile(bytearray(DATA))(np.ones(2, np.float32)).tolist() == [-1, -1]


def test_what_is_parsed_already_or_in_the_cache_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(2, np.float32)
    module = shlo_jit.parse(TEXT)
    shlo_jit.compile(TEXT)

    def parse_module(text: str, name: str) -> Any:
        raise AssertionError("parsed")

    monkeypatch.setattr("shlo_jit.text.parser.parse_module", parse_module)
    assert shlo_jit.parse(module) is module
    exe = shlo_jit.compile(module, cache=False)
    assert exe(x).tolist() == [-1, -1]
    assert exe.text("module") == str(module)
    assert shlo_jit.compile(TEXT)(x).tolist() == [-1, -1]
    with pytest.raises(shlo_jit.InternalError, match="parsed"):
        shlo_jit.compile(TEXT, cache=False)


def test_errors_in_a_module_are_at_the_places_of_its_text() -> None:
    module = shlo_jit.parse("// comments\n" * 5 + TEXT.replace("-> tensor<2xf32>", "-> tensor<3xf32>"))
    with pytest.raises(shlo_jit.VerifyError) as found:
        shlo_jit.compile(module)
    assert found.value.diagnostics == shlo_jit.verify(module)
    assert found.value.diagnostics[0].line == 8


@pytest.mark.parametrize("call", [shlo_jit.parse, shlo_jit.verify, shlo_jit.compile])
def test_files_that_are_not_there(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for source in ("modle.mlir", "my modle.mlir", "models/first", "/no/such/file", Path("modle"), Given("modle")):
        with pytest.raises(FileNotFoundError, match="modle|models/first|/no/such/file"):
            call(source)
    for source in (tmp_path, str(tmp_path), Path("")):
        with pytest.raises(IsADirectoryError):
            call(source)
    with pytest.raises(OSError, match="device: '/dev/zero'"):
        call(Path("/dev/zero"))


@pytest.mark.parametrize(
    "text", ["module {}", "// only/a.comment", "%0 = foo.bar", "", "hello world", "func.func @f.g"]
)
def test_texts_of_one_line_are_no_paths(text: str) -> None:
    assert sources.read_source(text) == (text, "<text>", ())


def test_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    large = TEXT + "// " + "x" * 1_000_000  # more than a pipe holds
    writer = threading.Thread(target=path.write_text, args=(large,))
    writer.start()
    assert sources.read_source(path) == (large, str(path), ())
    writer.join()
    monkeypatch.setattr(sources, "PIPE_WAIT", 0.05)
    with pytest.raises(TimeoutError, match="pipe"):
        shlo_jit.compile(path)


def written(function: Any) -> bytes:
    buffer = io.BytesIO()
    function(buffer)
    return buffer.getvalue()


OTHERS = {
    "a gzip file": gzip.compress(DATA),
    "a bzip2 file": bz2.compress(DATA),
    "an xz file": lzma.compress(DATA),
    "a zip archive (as .npz files are)": written(lambda b: np.savez(b, x=np.ones(2))),
    "an ELF object or library": Path(np._core._multiarray_umath.__file__).read_bytes()[:4096],  # type: ignore[attr-defined]
    "an archive of objects": b"!<arch>\nmodel.o/",
    "a WebAssembly module": b"\0asm\1\0\0\0",
    "a Mach-O object or library": b"\xcf\xfa\xed\xfe\x07\0\0\1",
    "a Windows program or library": b"MZ\x78\0",
    "an array that numpy.save wrote": written(lambda b: np.save(b, np.ones(2))),
    "a Python pickle": pickle.dumps({"text": TEXT}),
    "UTF-16 text": TEXT.encode("utf-16"),
    "a protocol buffer, as in a SavedModel": b"\x08\x01\x12\xc0\x84\x3d",
    "binary data": TEXT.encode("utf-16-le"),
    "HLO text, not StableHLO": b"HloModule jit_f, entry_computation_layout={()->f32[]}\n",
    "a jaxpr, not StableHLO": b"{ lambda ; a:f32[2]. let b:f32[2] = neg a in (b,) }",
    "LLVM IR, not StableHLO": b"; ModuleID = 'x'\n",
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_something_else_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(OTHERS[what])
    for source, name in ((OTHERS[what], "<bytes>"), (path, str(path))):
        with pytest.raises(shlo_jit.ParseError) as caught:
            shlo_jit.compile(source)
        (found,) = caught.value.diagnostics
        assert (found.message, found.file, found.line, found.column) == (f"this is {what}", name, 1, 1)
        assert found.hint and f"hint: {found.hint}" in str(caught.value)
        assert shlo_jit.verify(source) == [found]


def test_what_is_no_text_at_all() -> None:
    for source in (None, 3, [TEXT], {}, object(), np.ones(2)):
        for call in (shlo_jit.parse, shlo_jit.verify, shlo_jit.compile):
            with pytest.raises(
                TypeError,
                match=r"^expected StableHLO text, a path, bytes, a Module, or an object with mlir_module\(\) or as_text\(\), "
                f"got {type(source).__name__}$",
            ):
                call(source)
    with pytest.raises(TypeError, match=r"StringIO; .*\.read\(\)"):
        shlo_jit.compile(io.StringIO(TEXT))


class HasText:
    """What frontends have for a program."""

    def __init__(self, text: object) -> None:
        self.text = text

    def as_text(self) -> object:
        return self.text


def test_objects_that_have_a_text(tmp_path: Path) -> None:
    module = shlo_jit.parse(TEXT)
    source = HasText(TEXT)
    assert shlo_jit.parse(source) == module
    assert shlo_jit.verify(source) == []
    assert shlo_jit.compile(source)(np.ones(2, np.float32)).tolist() == [-1, -1]
    shlo_jit.export(source, tmp_path / "model.o")
    with pytest.raises(shlo_jit.ParseError, match="^<HasText>:1:1: "):
        shlo_jit.parse(HasText("no program"))
    with refused(shlo_jit.ParseError, "syntax", (1, 1), shows="HLO"):
        shlo_jit.compile(HasText("HloModule f"))
    for wrong in (HasText(None), HasText(b"text"), HasText):
        with pytest.raises(TypeError, match="^expected StableHLO text"):
            shlo_jit.compile(wrong)


@pytest.mark.xla
def test_what_jax_has_for_programs() -> None:
    jax = pytest.importorskip("jax")
    x = np.ones(2, np.float32)
    lowered = jax.jit(lambda x: -x).lower(x)
    exported = jax.export.export(jax.jit(lambda x: -x))(x)
    for source in (lowered, lowered.as_text(), exported, exported.mlir_module()):
        assert shlo_jit.compile(source)(x).tolist() == [-1, -1]
    for artifact in (exported.mlir_module_serialized, exported.serialize()):
        assert shlo_jit.compile(artifact)(x).tolist() == [-1, -1]
    with refused(shlo_jit.ParseError, "syntax", (1, 1), shows="HLO"):
        shlo_jit.compile(lowered.compile().as_text())
