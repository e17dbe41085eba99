"""Libraries for other machines, run by an emulator or an engine if it is installed.

Every kind of kernel, a convolutional network and a transformer are compared with results of this machine.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from building import HOST, build, inputs, run, same
from kinds import KINDS, TOLERANCE
from test_sized import ADD, ADD_CALLS, ADD_HOST

import shlo_jit
from shlo_jit import examples
from shlo_jit.codegen.library_format import LibraryStatus

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.mlir"
"""A convolutional network."""


class Machine(NamedTuple):
    """A target, and the means to run its libraries."""

    target: str
    compiler: str
    """C compiler of the host; empty if Node is the host."""
    command: tuple[str, ...] = ()
    """Command that runs the host."""
    flags: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """A required tool that is not installed."""
        tools = (self.compiler or "node", *self.command[:1], *(() if self.compiler else ("wasm-ld",)))
        return next((tool for tool in tools if not shutil.which(tool)), "")


def emulated(arch: str, cpu: str = "max") -> tuple[str, ...]:
    return f"qemu-{arch}", "-L", f"/usr/{arch}-linux-gnu", "-cpu", cpu


MACHINES = [
    Machine("x86-64-v2", "cc"),
    Machine("x86_64-linux-musl:x86-64-v3", "musl-gcc", (), ("-static",)),
    Machine("aarch64", "aarch64-linux-gnu-gcc", emulated("aarch64", "cortex-a57")),
    Machine("aarch64:neoverse-n1", "aarch64-linux-gnu-gcc", emulated("aarch64")),
    Machine("riscv64", "riscv64-linux-gnu-gcc", emulated("riscv64", "rv64,v=false")),
    Machine("riscv64+v", "riscv64-linux-gnu-gcc", emulated("riscv64", "rv64,v=true,vext_spec=v1.0")),
    Machine("wasm32", ""),
    Machine("wasm32+simd128", ""),
]


def module(texts: dict[str, str]) -> str:
    """One module with a function for each text."""
    return "\n".join(text.replace("@main(", f'@"{name}"(', 1) for name, text in texts.items())


class Library:
    """A library with several functions, and the command to call them on its machine."""

    def __init__(self, machine: Machine, source: str | Path, entries: list[str], folder: Path) -> None:
        self.machine = machine
        self.entries = entries
        self.folder = folder
        ending = ".so" if machine.compiler else ".wasm"
        self.path = folder / f"model{ending}"
        header = folder / "model.h"
        static = "-static" in machine.flags
        if static:
            self.path = self.path.with_suffix(".a")
        shlo_jit.export(source, self.path, header=header, target=machine.target, entry=entries)
        if not machine.compiler:
            self.start = ["node", str(HOST.with_suffix(".mjs")), str(self.path), "model"]
            return
        words = [
            f'-DSHLO_HEADER="{header}"',
            *machine.flags,
            *(["-DSTATIC=model_library", self.path] if static else []),
        ]
        host = build(HOST, folder / "host", *words, "-lm", "-lpthread", "-ldl", compiler=machine.compiler)
        self.start = [*machine.command, str(host), str(self.path), "model"]

    def call(self, entry: str, arrays: list[np.ndarray], outputs) -> list[np.ndarray]:
        files = [self.folder / f"in{i}" for i in range(len(arrays))]
        for file, array in zip(files, arrays, strict=True):
            array.tofile(file)
        results = [self.folder / f"out{i}" for i in range(len(outputs))]
        threads = ["2", "1"] if self.machine.compiler else []
        run([*self.start, str(self.entries.index(entry)), *threads, *map(str, files), *map(str, results)])
        return [np.fromfile(p, s.dtype).reshape(s.shape) for p, s in zip(results, outputs, strict=True)]


@pytest.fixture(scope="module", params=MACHINES, ids=lambda m: m.target)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    if request.param.missing:
        pytest.skip(f"no {request.param.missing}")
    yield request.param


@pytest.fixture(scope="module")
def kinds(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(machine, module(KINDS), list(KINDS), tmp_path_factory.mktemp("kinds"))


@functools.cache
def compiled(source: str | Path) -> shlo_jit.runtime.executable.Executable:
    return shlo_jit.compile(source)


def check(source: str | Path, call: Callable) -> None:
    here = compiled(source)
    arrays = inputs(here)
    want = here(*arrays)
    wants = want if isinstance(want, tuple) else (want,)
    for got, expected in zip(call(arrays, here.outputs), wants, strict=True):
        if expected.dtype.kind in "iub":
            assert same(got, expected)
            continue
        wide = expected.astype(np.float64)
        error = np.abs(got.astype(np.float64) - wide).max() / np.abs(wide).max()
        key = expected.dtype.name if expected.dtype.kind == "V" else expected.dtype.str[1:]
        assert error <= TOLERANCE[key], f"error {error:.1e} of the largest value"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(8)
def test_kinds(kind: str, kinds: Library) -> None:
    check(KINDS[kind], functools.partial(kinds.call, kind))


@pytest.mark.skipif(not shutil.which("qemu-x86_64") or not shutil.which("cc"), reason="no qemu-x86_64, or no compiler")
@pytest.mark.parametrize(
    ("cpu", "target", "status"),
    [
        ("Nehalem", "x86-64-v2", 0),
        ("Nehalem", "x86-64-v3", LibraryStatus.UNSUPPORTED_CPU),
        ("Nehalem", "native", LibraryStatus.UNSUPPORTED_CPU),
        ("Nehalem", "x86-64-v2,x86-64-v3", 0),
        ("Haswell", "x86-64-v4,x86-64-v2,x86-64-v3", 0),
        ("Haswell", "x86-64-v4", LibraryStatus.UNSUPPORTED_CPU),
    ],
)
def test_processors_without_features(cpu: str, target: str, status: int, tmp_path: Path) -> None:
    """A library reports missing features, or picks code that the processor can run; the emulator traps unsupported
    instructions."""
    shlo_jit.export(KINDS["dot"], tmp_path / "model.so", header=tmp_path / "model.h", target=target)
    host = build(HOST, tmp_path / "host", f'-DSHLO_HEADER="{tmp_path / "model.h"}"', "-ldl")
    here = compiled(KINDS["dot"])
    files = [tmp_path / f"array{i}" for i in range(3)]
    for file, array in zip(files, inputs(here), strict=False):
        array.tofile(file)
    command = ["qemu-x86_64", "-cpu", cpu, host, tmp_path / "model.so", "model", "0", "2", "1", *files]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{int(status)} ")
    assert done.returncode == (1 if status else 0)
    if not status:
        got = np.fromfile(files[2], np.float32).reshape(here.outputs[0].shape)
        np.testing.assert_allclose(got, here(*inputs(here)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("path", [examples.path("attention"), examples.path("mlp"), DIGITS], ids=lambda p: p.stem)
@pytest.mark.sampled(4)
def test_networks(path: Path, machine: Machine, tmp_path: Path) -> None:
    (entry,) = re.findall(r"func\.func (?:public )?@(\w+)\(", path.read_text())
    library = Library(machine, path, [entry], tmp_path)
    check(path, functools.partial(library.call, entry))


ADD_NODE = """
import fs from "node:fs";
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(process.argv[2])), {});
const start = exports.__heap_base.value + 64 & ~63, bytes = Number(exports.model_memory_bytes(1));
exports.memory.grow(1 + (bytes >> 16));
const words = new Uint32Array(exports.memory.buffer, start, 12), [x, z, work] = [start + 128, start + 192, start + 256];
words[0] = 40, words[1] = 1, words[6] = work, words[8] = bytes;
if (exports.model_create(start + 48, start)) process.exit(1);
const instance = new Uint32Array(exports.memory.buffer, start + 48, 1)[0];
const numbers = new Float32Array(exports.memory.buffer, x, 32);
numbers.set([0, 1, 2, 3, 4, 5, 6, 7]);
if (exports.model_main(instance, x, 2n, x, 2n, 4n, z) || numbers[16 + 7] != 14) process.exit(2);
if (exports.model_main(instance, x, 3n, x, 3n, 4n, z) != 11) process.exit(3);
const place = start + 56;
if (exports.model_main_shapes(2n, 2n, 4n, place)) process.exit(4);
if (new BigInt64Array(exports.memory.buffer, place, 2).join() != "2,4") process.exit(5);
if (exports.model_main_shapes(2n, 2n, 5n, place) != 11) process.exit(6);
"""


def test_sizes(machine: Machine, tmp_path: Path) -> None:
    library = tmp_path / ("model.a" if machine.compiler else "model.wasm")
    shlo_jit.export(ADD, library, header=tmp_path / "model.h", target=machine.target, shapes=ADD_CALLS)
    source = tmp_path / ("main.c" if machine.compiler else "main.mjs")
    source.write_text(ADD_HOST if machine.compiler else ADD_NODE)
    if machine.compiler:
        words = [library, *machine.flags, "-lm", "-lpthread"]
        run([*machine.command, build(source, tmp_path / "main", *words, compiler=machine.compiler)])
    else:
        run(["node", source, library])
