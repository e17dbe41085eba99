"""Detection of files and texts that are not StableHLO, by their first bytes, with advice to obtain a program from
them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

GLANCE = 4096
"""Number of first bytes that are examined."""


class Foreign(NamedTuple):
    """Kind of a file and advice. `code` is the stable name of the kind."""

    code: str
    what: str
    hint: str


_TEXT = "give the program's StableHLO text"
_JAX = "in JAX, jax.jit(f).lower(...).as_text()"
_TORCH = "in PyTorch, torch.export.export(model, inputs)"
_ONNX = (
    "convert the model: `onnx-mlir --EmitONNXIR FILE`, then `onnx-mlir-opt --convert-onnx-to-stablehlo`; "
    f"or export it as StableHLO where it came from ({_TORCH})"
)
_SAVED_MODEL = "let the function write its StableHLO, as docs/tensorflow.md shows: f.experimental_get_compiler_ir(...)"
_TFLITE = "TFLite models cannot be converted back: " + _SAVED_MODEL
_WEIGHTS = "these are weights and no program: export the program as StableHLO, and pass the arrays to the executable"
_CHECKPOINT = f"load it in PyTorch, and export the model as StableHLO: {_TORCH}"
_LIBRARY = "shlo_jit.load runs it if shlo_jit.export wrote it; else give the StableHLO text that it was made from"
_HLO = f"give the StableHLO it was made from ({_JAX}, before .compile()), or convert it: "

LIBRARIES = {
    b"\x7fELF": "an ELF object or library",
    b"!<arch>\n": "an archive of objects",
    b"\0asm": "a WebAssembly module",
    b"\xcf\xfa\xed\xfe": "a Mach-O object or library",
    b"MZ": "a Windows program or library",
}
"""First bytes of machine code, and its kind."""
STARTS: tuple[tuple[bytes, Foreign], ...] = (
    (b"\x1f\x8b", Foreign("file.gzip", "a gzip file", "decompress it first (gzip -d, or gzip.open in Python)")),
    (b"BZh", Foreign("file.bzip2", "a bzip2 file", "decompress it first (bzip2 -d)")),
    (b"\xfd7zXZ\0", Foreign("file.xz", "an xz file", "decompress it first (xz -d)")),
    (b"\x28\xb5\x2f\xfd", Foreign("file.zstd", "a zstd file", "decompress it first (zstd -d)")),
    (b"7z\xbc\xaf\x27\x1c", Foreign("file.7z", "a 7z archive", "unpack it first (7z x)")),
    (
        b"\x93NUMPY",
        Foreign("file.npy", "an array that numpy.save wrote", "numpy.load it and pass it to the executable"),
    ),
    (b"BC\xc0\xde", Foreign("file.llvm_bitcode", "LLVM bitcode", "give the StableHLO text that it was made from")),
    (b"\x89HDF", Foreign("file.hdf5", "an HDF5 file (Keras and others keep weights in it)", _WEIGHTS)),
    (b"GGUF", Foreign("file.gguf", "a GGUF file", _WEIGHTS)),
    (b"ggml", Foreign("file.gguf", "a GGML file", _WEIGHTS)),
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9", Foreign("file.torch", "a PyTorch checkpoint", _CHECKPOINT)),
    (b"\xff\xfe", Foreign("file.utf16", "UTF-16 text", "save it as UTF-8")),
    (b"\xfe\xff", Foreign("file.utf16", "UTF-16 text", "save it as UTF-8")),
    (b"\x89PNG", Foreign("file.picture", "a picture", _TEXT)),
    (b"%PDF", Foreign("file.pdf", "a PDF document", _TEXT)),
    *((start, Foreign("file.machine_code", what, _LIBRARY)) for start, what in LIBRARIES.items()),
)
"""First bytes and the kind of file that has them."""


def foreign_bytes(start: bytes) -> Foreign | None:
    """Detects a file of another format by its first `GLANCE` bytes; None for a possible text."""
    found = next((about for first, about in STARTS if start.startswith(first)), None)
    for look in (_zip, _tflite, _safetensors, _pickle, _tar, _wide_text):
        found = found or look(start)
    if found is None and _is_binary(start):
        found = protocol_buffer(start) or Foreign("file.binary", "binary data", _TEXT)
    return found


MOST_CONTROLS = 2
"""Maximum control characters at the start of a file that counts as a text with a mistake."""


def _is_binary(start: bytes) -> bool:
    controls = re.findall(rb"[\x01-\x08\x0e-\x1f]", start[:64])
    return b"\0" in start[:64] or len(controls) > MOST_CONTROLS


def _zip(start: bytes) -> Foreign | None:
    if not start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return None
    if b".npy" in start[:300]:
        return Foreign("file.npz", "a zip archive of arrays (.npz)", "numpy.load it, and pass the arrays")
    if any(name in start for name in (b"/data.pkl", b"/byteorder", b"/.format_version", b"archive_format")):
        return Foreign("file.torch", "a PyTorch file (.pt, .pth or .pt2)", _CHECKPOINT)
    if b"metadata.json" in start or b"config.json" in start[:300]:
        return Foreign("file.keras", "a Keras model (.keras)", f"load it, and write a tf.function: {_SAVED_MODEL}")
    return Foreign("file.zip", "a zip archive", "unpack it, and give the StableHLO text that is in it")


def _tflite(start: bytes) -> Foreign | None:
    return Foreign("file.tflite", "a TFLite model", _TFLITE) if start[4:8] == b"TFL3" else None


def _safetensors(start: bytes) -> Foreign | None:
    is_header = len(start) > 9 and start[8:9] == b"{" and 0 < int.from_bytes(start[:8], "little") < 1 << 30
    return Foreign("file.safetensors", "a safetensors file", _WEIGHTS) if is_header and start[9:10] in b'"} ' else None


def _pickle(start: bytes) -> Foreign | None:
    if re.match(rb"\x80[\x02-\x05](?:\x95|\}|\]|c|\x8a|\()", start):
        return Foreign("file.pickle", "a Python pickle", _TEXT)
    return None


def _tar(start: bytes) -> Foreign | None:
    return Foreign("file.tar", "a tar archive", "unpack it first (tar -xf)") if start[257:262] == b"ustar" else None


def _wide_text(start: bytes) -> Foreign | None:
    """Detects UTF-16 and UTF-32 without a byte order mark: zero bytes next to ASCII."""
    part = start[: len(start) & ~3][:64]
    for n, name in ((4, "UTF-32"), (2, "UTF-16")):
        for at in range(n):
            rest = [part[i::n] for i in range(n) if i != at]
            if len(part) >= 8 and not any(map(any, rest)) and re.fullmatch(rb"[\t\n\r -~]+", part[at::n]):
                return Foreign(f"file.{name.lower().replace('-', '')}", f"{name} text", "save it as UTF-8")
    return None


# ---------------------------------------------------------------------- protocol buffers
class Field(NamedTuple):
    number: int
    value: int | bytes
    """A number, or the first bytes of a length-delimited field."""


def fields_of(data: bytes) -> list[Field] | None:
    """First fields of a protocol buffer, as far as the bytes go; None if the bytes are not one."""
    found: list[Field] = []
    at = 0
    while at < len(data) and len(found) < 16:
        key, at = _varint(data, at)
        if key is None or not key >> 3 or key >> 3 > 1 << 16:
            return found if key is None and found and at >= len(data) else None
        value: int | bytes | None
        if key & 7 == 0:
            value, at = _varint(data, at)
        elif key & 7 == 2:
            length, at = _varint(data, at)
            value = None if length is None else data[at : at + length]
            at += length or 0
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
            value = b""
        else:
            return None
        if value is None:
            break
        found.append(Field(key >> 3, value))
    return found or None


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    """A number and its end; None if it is truncated, or longer than necessary."""
    value = 0
    for n in range(10):
        if at + n >= len(data):
            return None, len(data)
        value |= (data[at + n] & 127) << 7 * n
        if data[at + n] < 128:
            is_shortest = n == 0 or data[at + n] > 0
            return (value if is_shortest else None), at + n + 1
    return None, at


def protocol_buffer(data: bytes) -> Foreign | None:
    """Detects ONNX, SavedModel, HLO and GraphDef by the kinds of their first fields."""
    fields = fields_of(data)
    if fields is None:
        return None
    numbered = _by_number(fields)
    return next((kind for look, kind in _BUFFERS if look(numbered)), None)


def _by_number(fields: list[Field] | None) -> dict[int, int | bytes]:
    """The first field of each number."""
    return {field.number: field.value for field in reversed(fields or [])}


def _inner(value: int | bytes | None) -> dict[int, int | bytes]:
    """The fields of a message in a field."""
    return _by_number(fields_of(value)) if isinstance(value, bytes) else {}


def _is_readable(value: int | bytes | None) -> bool:
    return isinstance(value, bytes) and re.fullmatch(rb"[ -~]*", value) is not None


def _is_message(value: int | bytes | None) -> bool:
    return isinstance(value, bytes) and bool(value) and fields_of(value) is not None


def _is_onnx(f: dict[int, int | bytes]) -> bool:
    """Whether the fields are those of ONNX: ir_version, producer_name and producer_version, or directly the graph or
    opsets."""
    version = f.get(1)
    return isinstance(version, int) and 0 < version < 100 and (
        (2 in f and _is_readable(f[2])) or (2 not in f and (_is_message(f.get(7)) or _is_message(f.get(8))))
    )  # fmt: skip


def _is_saved_model(f: dict[int, int | bytes]) -> bool:
    """Whether the fields are saved_model_schema_version and meta_graphs, whose first field is their information."""
    return f.get(1) == 1 and _is_message(f.get(2)) and not _is_readable(f[2])


def _is_hlo(f: dict[int, int | bytes]) -> bool:
    """Whether the fields are those of an HloModuleProto: name, entry_computation_name and computations; or an
    HloProto."""
    module = f if _is_readable(f.get(1)) else _inner(f.get(1))
    has_names = bool(module.get(1)) and _is_readable(module.get(1)) and _is_readable(module.get(2))
    return has_names and _is_message(module.get(3)) and not _is_readable(module.get(3))


def _is_graph(f: dict[int, int | bytes]) -> bool:
    """Whether the fields are those of a GraphDef: nodes, each with a name and an op."""
    inner = _inner(f.get(1))
    return _is_readable(inner.get(1)) and _is_readable(inner.get(2)) and bool(inner.get(2))


_BUFFERS: tuple[tuple[Callable[[dict[int, int | bytes]], bool], Foreign], ...] = (
    (_is_onnx, Foreign("file.onnx", "an ONNX model", _ONNX)),
    (_is_saved_model, Foreign("file.saved_model", "a TensorFlow SavedModel", _SAVED_MODEL)),
    (_is_hlo, Foreign("file.hlo", "an HLO protocol buffer", f"{_HLO}xla-translate --hlo-to-stablehlo FILE")),
    (_is_graph, Foreign("file.tensorflow", "a TensorFlow GraphDef", _SAVED_MODEL)),
    (
        lambda f: True,
        Foreign("file.protocol_buffer", "a protocol buffer that is not an ONNX model, SavedModel or HLO", _TEXT),
    ),
)


# ---------------------------------------------------------------------- texts
_PYTHON = (
    r"#!.*python|(?:import|from) \w[\w.]*(?: import | as |\s*$)|def \w+\(.*\).*:\s*$|class \w+.*:\s*$"
    r"|@\w[\w.]*\s*\n\s*def "
)
_JSON, _XML = r"\{\s*\"|\[\s*[\[{\"]", r"<\?xml|<(?:net|html|!DOCTYPE|svg)\b"
_LLVM = r"; ModuleID|source_filename =|target (?:triple|datalayout) ="
_PROTOCOL_TEXT = r"(?:node|ir_version|model_version|graph|saved_model_schema_version)\s*[:{]"
_FROM_PYTHON = f"give the StableHLO that it makes: {_JAX}; or write the function for shlo_jit.jit"
TEXTS: tuple[tuple[str, Foreign], ...] = (
    (
        r"HloModule\b|(?:ENTRY|ROOT)\b",
        Foreign("file.hlo_text", "HLO text, not StableHLO", f"{_HLO}xla-translate --hlo-text-to-stablehlo FILE"),
    ),
    (r"\{ lambda", Foreign("file.jaxpr", "a jaxpr, not StableHLO", "give jax.jit(f).lower(...).as_text()")),
    (_LLVM, Foreign("file.llvm_ir", "LLVM IR, not StableHLO", "give the StableHLO text that it was made from")),
    (_PYTHON, Foreign("file.python", "Python source", _FROM_PYTHON)),
    (r"#\s*(?:include|define|pragma|ifndef)\b", Foreign("file.c", "C source", _TEXT)),
    (_JSON, Foreign("file.json", "JSON", _TEXT)),
    (_XML, Foreign("file.xml", "XML or HTML", f"{_TEXT}; export an OpenVINO model again, as StableHLO")),
    (
        r"version https://git-lfs",
        Foreign("file.git_lfs", "a pointer of git-lfs, not the file itself", "fetch the file: git lfs pull"),
    ),
    (_PROTOCOL_TEXT, Foreign("file.protocol_text", "a protocol buffer as text", _TEXT)),
)
"""Regular expression for the first line of a text, and the kind of text."""


def foreign_text(text: str) -> Foreign | None:
    """Detects a text of another language by its beginning."""
    start = text[:GLANCE].lstrip()
    if not start:
        return None
    while start.startswith(("//", "# ")) and "\n" in start:  # comments in either syntax
        start = start.partition("\n")[2].lstrip()
    return next((about for first, about in TEXTS if re.match(first, start, re.MULTILINE)), None)


EMPTY = Foreign("file.empty", "an empty file", "check the program that should have written it")


# ---------------------------------------------------------------------- objects of Python
_TORCH_MODEL = "give torch.export.export(model, inputs), or use shlo_jit.torch.compile(model, inputs)"
_LOWER = "pass what it lowers to: jax.jit(f).lower(...)"
_ARRAY = "this is an array: pass it to the executable"
OBJECTS: tuple[tuple[str, str], ...] = (
    (r"torch\.(?:jit|fx|nn)\..*", _TORCH_MODEL),
    (r"torch\..*Tensor|numpy\.ndarray|jax.*\.ArrayImpl|.*tensorflow.*Tensor", _ARRAY),
    (r"jax.*PjitFunction|jax\..*Jaxpr", _LOWER),
    (r"jax\..*Traced", "pass what it lowers to: its .lower()"),
    (r"onnx.*\.ModelProto", _ONNX),
    (r"tensorflow\..*[Ff]unction|.*polymorphic_function\..*|(?:tf_)?keras\..*", _SAVED_MODEL),
    (r".*mlir.*\.ir\.\w+", "pass its text: str(module)"),
    (r"builtins\.(?:function|method)|functools\.partial", "give shlo_jit.jit(f), or jax.jit(f).lower(...)"),
    (r"builtins\.(?:list|tuple|dict|set)", "give one program at a time"),
)
"""Regular expression for a type's module and name, and advice for such an object."""


def object_hint(value: object) -> str:
    """Advice for an object that is not a program; empty for an unknown one."""
    if callable(getattr(value, "read", None)):
        return "pass its .read()"
    for type_ in type(value).__mro__[:-1]:
        name = f"{type_.__module__}.{type_.__qualname__}"
        found = next((hint for pattern, hint in OBJECTS if re.fullmatch(pattern, name)), None)
        if found:
            return found
    return ""
