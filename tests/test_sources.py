"""Accepted sources of programs, and error messages for others."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusing import refused

import shlo_jit
from shlo_jit import sources
from shlo_jit.errors import UsageTypeError

TEXT = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
DATA = TEXT.encode()


class Given:
    """An os.PathLike that is not a Path."""

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


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a protocol buffer: a number below 128, or bytes."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    data = value.encode() if isinstance(value, str) else value
    size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
    return bytes([number << 3 | 2]) + size + data


NODE = field(1, field(1, "x") + field(2, "y") + field(4, "Relu"))
ONNX = (
    field(1, 8) + field(2, "pytorch") + field(3, "2.9.0") + field(7, NODE + field(2, "main")) + field(8, field(2, 17))
)
META = field(1, field(1, "v1") + field(4, "serve")) + field(2, NODE)
HLO = field(1, "jit_f") + field(2, "main.3") + field(3, field(1, "main.3") + field(2, field(1, "p0") + field(2, "f32")))
GRAPH = field(1, field(1, "x") + field(2, "Placeholder")) + field(1, field(1, "y") + field(2, "Relu") + field(3, "x"))


def zipped(*names: str) -> bytes:
    def write(buffer: io.BytesIO) -> None:
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in names:
                archive.writestr(name, "x")

    return written(write)


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
OTHERS = {
    "gzip": gzip.compress(DATA),
    "bzip2": bz2.compress(DATA),
    "xz": lzma.compress(DATA),
    "npz": written(lambda b: np.savez(b, x=np.ones(2))),
    "zip": zipped("model.mlir"),
    "torch": zipped("model/data.pkl", "model/byteorder", "model/data/0"),
    "torch, exported": zipped("archive_format", "models/model.json"),
    "torch, before 1.6": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
    "keras": zipped("metadata.json", "config.json", "model.weights.h5"),
    "tar": b"model.mlir".ljust(257, b"\0") + b"ustar\0" + bytes(249) + DATA,
    "safetensors": len(HEADER).to_bytes(8, "little") + HEADER + bytes(8),
    "gguf": b"GGUF\3\0\0\0" + bytes(16),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(32),
    "tflite": b"\x1c\0\0\0TFL3\x14\0\x20\0" + bytes(32),
    "onnx": ONNX,
    "onnx, without a producer": field(1, 9) + field(7, NODE) + field(8, field(2, 17)),
    "onnx, large": field(1, 10) + field(2, "tf2onnx") + b"\x3a\xff\xff\xff\xff\x0f" + NODE * 100,
    "saved_model": field(1, 1) + field(2, META),
    "hlo": HLO,
    "hlo, with its buffers": field(1, HLO) + field(3, field(1, 1)),
    "tensorflow": GRAPH,
    "protocol_buffer": field(1, 6) + field(2, field(1, field(1, 1) + field(2, "input"))) + field(3, 5) + field(4, 2),
    "machine_code": Path(np._core._multiarray_umath.__file__).read_bytes()[:4096],  # type: ignore[attr-defined]
    "machine_code, an archive": b"!<arch>\nmodel.o/",
    "machine_code, of the web": b"\0asm\1\0\0\0",
    "machine_code, of macOS": b"\xcf\xfa\xed\xfe\x07\0\0\1",
    "machine_code, of Windows": b"MZ\x78\0",
    "llvm_bitcode": b"BC\xc0\xde\x35\x14\0\0",
    "npy": written(lambda b: np.save(b, np.ones(2))),
    "pickle": pickle.dumps({"text": TEXT}),
    "pickle, of protocol 2": pickle.dumps({"text": TEXT}, protocol=2),
    "utf16": TEXT.encode("utf-16"),
    "utf16, without a mark": TEXT.encode("utf-16-le"),
    "utf16, of the other order": TEXT.encode("utf-16-be"),
    "utf32": TEXT.encode("utf-32-le"),
    "binary": b"\xaa\0\xbb\x99" * 20,
    "empty": b"",
    "empty, but for blanks": b" \n\n",
    "hlo_text": b"HloModule jit_f, entry_computation_layout={()->f32[]}\n",
    "hlo_text, with a comment": b"// a comment\n\nHloModule jit_f\n",
    "jaxpr": b"{ lambda ; a:f32[2]. let b:f32[2] = neg a in (b,) }",
    "llvm_ir": b"; ModuleID = 'x'\n",
    "llvm_ir, printed by clang": b'source_filename = "x.c"\n',
    "python": b"import jax\n\nprint(jax.jit(f).lower(1.0).as_text())\n",
    "python, with comments": b"#!/usr/bin/env python3\n# a comment\nx = 1\n",
    "python, a function": b"def f(x):\n    return x + 1\n",
    "python, decorated": b"@jax.jit\ndef f(x):\n    return x + 1\n",
    "c": b"#include <math.h>\n\nfloat f(float x) { return expf(x); }\n",
    "json": b'{\n  "model_type": "bert"\n}\n',
    "json, a list": b"[[1.0, 2.0], [3.0, 4.0]]\n",
    "xml": b'<?xml version="1.0"?>\n<net name="model" version="11">\n',
    "git_lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "protocol_text": b'node {\n  name: "x"\n  op: "Placeholder"\n}\n',
}
"""Maps the last word of a code to an example."""


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_something_else_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(OTHERS[what])
    for source, name in ((OTHERS[what], "<bytes>"), (path, str(path))):
        with pytest.raises(shlo_jit.ParseError) as caught:
            shlo_jit.compile(source)
        (found,) = caught.value.diagnostics
        assert (found.code, found.file, found.line, found.column) == (f"file.{what.partition(',')[0]}", name, 1, 1)
        assert found.hint and f"hint: {found.hint}" in str(caught.value)
        assert shlo_jit.verify(source) == [found]


def test_what_is_no_text_at_all() -> None:
    for source in (None, 3, [TEXT], {}, object(), np.ones(2)):
        for call in (shlo_jit.parse, shlo_jit.verify, shlo_jit.compile):
            with pytest.raises(
                TypeError,
                match=f"^expected StableHLO text, .* got {type(source).__name__}",
            ):
                call(source)
    with pytest.raises(TypeError, match=r"StringIO; .*\.read\(\)"):
        shlo_jit.compile(io.StringIO(TEXT))


def named(module: str, name: str) -> object:
    """An object that looks like one of another library."""
    return type(name, (), {"__module__": module})()


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (named("torch.jit._script", "RecursiveScriptModule"), "torch.export.export(model, inputs)"),
        (type("Net", (type(named("torch.nn.modules.module", "Module")),), {})(), "torch.export.export(model, inputs)"),
        (named("torch", "Tensor"), "pass it to the executable"),
        (np.ones(2), "pass it to the executable"),
        (named("jaxlib._jax", "PjitFunction"), "jax.jit(f).lower(...)"),
        (named("jax._src.core", "ClosedJaxpr"), "jax.jit(f).lower(...)"),
        (named("onnx.onnx_ml_pb2", "ModelProto"), "onnx-mlir"),
        (named("keras.src.models.sequential", "Sequential"), "experimental_get_compiler_ir"),
        (named("jaxlib.mlir._mlir_libs._mlir.ir", "Module"), "str(module)"),
        (lambda x: x, "shlo_jit.jit(f)"),
        ([TEXT], "one program at a time"),
    ],
)  # fmt: skip
def test_objects_of_other_libraries(source: object, hint: str) -> None:
    with pytest.raises(UsageTypeError) as caught:
        shlo_jit.compile(source)
    assert caught.value.code == "argument.program"
    assert hint in caught.value.hint and caught.value.hint in str(caught.value)


class HasText:
    """An object like those of frontends for a program."""

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
