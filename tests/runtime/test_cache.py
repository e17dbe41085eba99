"""The object cache: no contents of its folder can do harm."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from programs import TARGET, binary, callback, constant, parallel

from shlo_jit.codegen import abi
from shlo_jit.codegen.objects import compile_program, program_entry, read_program
from shlo_jit.codegen.target import resolve
from shlo_jit.custom.functions import LLVMFunction
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.kernels.routine import Routine
from shlo_jit.options import CompileOptions
from shlo_jit.runtime import cache as cache_module
from shlo_jit.runtime import routines, unfinished
from shlo_jit.runtime.build import build, from_cache
from shlo_jit.runtime.cache import ObjectCache, program_key
from shlo_jit.schedule.moves import Unroll

X = np.arange(4, dtype=np.float32)
HERE = str(Path(__file__).parent)


def entries(cache):
    return sorted(cache.folder.glob("*.shlo"))


def test_program_comes_back(cache):
    key = program_key("text", CompileOptions(TARGET))
    assert from_cache(key, TARGET, cache=cache) is None
    build(binary(4), TARGET, key=key, cache=cache)
    exe = from_cache(key, TARGET, cache=cache)
    np.testing.assert_array_equal(exe(X, X), X * 2)
    assert [p.name for p in exe.inputs] == ["x", "y"]


@pytest.mark.parametrize("values", [np.arange(10000.0), np.array(3, np.int8), np.zeros((0, 2), np.float32)])
def test_constants_come_back(cache, values):
    build(constant(values), TARGET, key="k", cache=cache)
    exe = from_cache("k", TARGET, cache=cache)
    np.testing.assert_array_equal(exe(), values)
    assert exe.memory.constants == values.nbytes


def test_callbacks_come_back(cache):
    attributes = {
        "a": 1, "b": 2.5, "c": "s", "d": None, "e": [1, [2]], "f": (1, 2), "g": {"k": True},
        "h": np.arange(3, dtype=np.int8), "i": b"\0\xff", "j": 1j, "k": np.float32(3),
    }  # fmt: skip
    seen = {}

    def f(x, y, **given):
        seen.update(given)
        return x

    build(callback(attributes=attributes), TARGET, key="k", cache=cache, custom_calls={"f": f})
    from_cache("k", TARGET, cache=cache, custom_calls={"f": f})(X, X)
    np.testing.assert_array_equal(seen.pop("h"), attributes.pop("h"))
    assert seen == attributes
    assert {k: type(v) for k, v in seen.items()} == {k: type(v) for k, v in attributes.items()}


def write_addition(m: ModuleText, target) -> None:
    b: Builder = m.function("add_one", [("ptr", "x"), ("ptr", "z")], linkage="external")
    x, z = b.params
    b.store(b.fadd(b.load("float", x), const("float", 1)), z)
    b.ret()


def with_routine(name):
    """Returns z[0] = x[0] + 1 by a routine."""
    routine = Routine(name, ("add_one",), write_addition)
    program = binary(1)
    m = ModuleText(TARGET)
    b = m.function(abi.ENTRY, abi.PARAMETERS, "i32", linkage="external")
    b.call("void", "add_one", [b.load("ptr", b.params[0]), b.load("ptr", b.params[1])])
    b.ret(V("i32", "0"))
    program.text, program.routines = m.text(), (routine,)
    return program


def test_routines_come_back(cache, monkeypatch):
    one = np.ones(1, np.float32)
    build(with_routine("plus_one"), TARGET, key="k", cache=cache)
    monkeypatch.setattr(routines, "_compiled", {})
    monkeypatch.setattr(routines, "_loaded", {})
    monkeypatch.setattr(routines, "compile_routine", None)
    assert from_cache("k", TARGET, cache=cache)(one, one) == 2


def test_missing_routine_is_no_program(cache, monkeypatch):
    build(with_routine("gone"), TARGET, key="k", cache=cache)
    monkeypatch.setattr(routines, "_compiled", {})
    monkeypatch.setattr(routines, "_loaded", {})
    for path in entries(cache):
        if path.stem != "k":
            path.unlink()
    assert from_cache("k", TARGET, cache=cache) is None


def test_every_damaged_byte_is_noticed(cache):
    header, blobs = program_entry(compile_program(constant(np.arange(4.0)), TARGET))
    cache.store("k", header, blobs)
    (path,) = entries(cache)
    whole = path.read_bytes()
    compiled = cache.read("k", read_program)
    assert compiled is not None
    step = max(1, len(whole) // 400)
    for at in [*range(0, 64), *range(64, len(whole), step), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        found = cache.read("k", read_program)
        # There is padding between the blobs, which is never read.
        assert found is None or found.objects == compiled.objects, at
        assert path.exists() == (found is not None)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"shlojit1", b"\0" * 5000, b"shlojit1" + b"\xff" * 100, b"PK\x03\x04" * 99]
)
def test_foreign_files_are_deleted(cache, content):
    cache.folder.mkdir()
    path = cache.folder / "k.shlo"
    path.write_bytes(content)
    assert from_cache("k", TARGET, cache=cache) is None
    assert not path.exists()


def test_truncated_at_every_length(cache):
    cache.store("k", {"a": 1}, [b"abc", b"", b"d" * 100])
    (path,) = entries(cache)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert cache.lookup("k") is None, length
    path.write_bytes(whole)
    header, blobs = cache.lookup("k")
    assert header == {"a": 1}
    assert [bytes(b) for b in blobs] == [b"abc", b"", b"d" * 100]


def test_valid_header_of_another_kind(cache):
    cache.store("k", {"kind": "routine", "name": "n", "symbols": [], "needs": []}, [b""])
    assert from_cache("k", TARGET, cache=cache) is None
    assert not entries(cache)


def test_nothing_is_unpickled(cache):
    cache.store("k", *program_entry(compile_program(binary(4), TARGET)))
    (path,) = entries(cache)
    data = path.read_bytes()
    length = int.from_bytes(data[8:16], "little")
    assert json.loads(data[20 : 20 + length])["kind"] == "program"


def test_eviction_keeps_what_was_used_last(cache):
    cache.limit = 20_000
    for k in range(30):
        assert cache.store(f"k{k}", {}, [bytes(1000)])
        os.utime(cache._path(f"k{k}"), (k, k))
        cache.lookup("k0")
    info = cache.info()
    assert info.nbytes <= cache.limit + cache.limit // 16 + 2000
    assert cache.lookup("k0") is not None
    assert cache.lookup("k1") is None
    assert cache.lookup("k29") is not None
    assert not cache.store("large", {}, [bytes(30_000)])


def test_clear_and_info(monkeypatch, tmp_path):
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "there"))
    build(binary(4), TARGET, key="k")
    info = cache_module.info()
    assert info.folder == str(tmp_path / "there")
    assert info.entries >= 1
    assert info.nbytes > 0
    cache_module.clear()
    assert cache_module.info().entries == 0
    assert from_cache("k", TARGET) is None


def test_size_by_environment(monkeypatch):
    monkeypatch.setenv("SHLO_JIT_CACHE_BYTES", "12345")
    assert cache_module.default_cache().limit == 12345


@pytest.mark.parametrize("folder", ["/proc/nowhere/cache", "/dev/null/cache"])
def test_unusable_folder_is_no_cache(folder):
    cache = ObjectCache(folder)
    with pytest.warns(RuntimeWarning, match="no object cache"):
        exe = build(binary(4), TARGET, key="k", cache=cache)
    np.testing.assert_array_equal(exe(X, X), X * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_cache("k", TARGET, cache=cache) is None
        build(binary(4), TARGET, key="k", cache=cache)
    cache.clear()
    assert cache.info().entries == 0


def test_cache_off(tmp_path, monkeypatch):
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "off"))
    build(binary(4), TARGET, key="k", cache=False)
    assert not (tmp_path / "off").exists()


OTHER = {
    "target": resolve("x86-64-v3"),
    "entry": "other",
    "donate": (1,),
    "calls": frozenset({"f"}),
    "num_replicas": 2,
    "num_partitions": 2,
    "code": (("f", LLVMFunction("", "f")),),
    "channels": ((7, ((0, 1),)),),
    "same_program": False,
    "reaches": False,
    "profile": True,
    "fold_scales": True,
    "round_activations": "int8",
    "assume_finite": True,
    "reproducible": True,
    "schedule": (("0", (Unroll(0, 2),)),),
    "has_lapack": True,
    "dynamic": "symbolic",
    "threads": 7,
    "implementations": {"f": print},
    "host": object(),
    "cache": False,
}
"""A value of every option that differs from its default."""
SAME_CODE = {"dynamic", "threads", "implementations", "host", "cache"}


def test_key_depends_on_the_text():
    options = CompileOptions(TARGET)
    assert program_key("a", options) != program_key("b", options)
    assert program_key("a // b", options) == program_key("a // c", options)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(CompileOptions)])
def test_key_depends_on_the_options_that_change_the_code(name):
    usual = CompileOptions(TARGET)
    other = dataclasses.replace(usual, **{name: OTHER[name]})
    assert (program_key("a", other) == program_key("a", usual)) == (name in SAME_CODE)
    assert (other == usual) == (name in SAME_CODE)


def test_key_is_the_same_for_the_same_options():
    names = [f"call{i}" for i in range(100)]
    there, back = (CompileOptions(TARGET, calls=frozenset(n)) for n in (names, names[::-1]))
    assert program_key("a", there) == program_key("a", back)
    by_name = dataclasses.replace(TARGET, name=TARGET.cpu)
    assert program_key("a", CompileOptions(by_name)) == program_key("a", CompileOptions(TARGET))


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from programs import TARGET, binary
from shlo_jit.codegen.objects import compile_program, program_entry, read_program
from shlo_jit.runtime.cache import ObjectCache
cache = ObjectCache(sys.argv[2], limit=200_000)
entry = program_entry(compile_program(binary(4), TARGET))
for turn in range(150):
    key = f"k{turn % 10}"
    assert cache.store(key, *entry)
    cache.lookup(f"k{(turn * 7) % 10}")
assert cache.read("k9", read_program).objects == (entry[1][0],)
"""


def test_several_processes_at_once(cache):
    command = [sys.executable, "-W", "error", "-c", WRITER, HERE, str(cache.folder)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [p.wait(timeout=120) for p in processes] == [0, 0, 0]
    assert len(entries(cache)) == 10
    assert all(cache.read(f"k{i}", read_program) is not None for i in range(10))
    assert not [p for p in cache.folder.iterdir() if p.name.startswith(".")]


def test_several_threads_at_once(cache):
    failed = []

    def work():
        for turn in range(20):
            if not cache.store(f"k{turn % 3}", {"n": 1}, [b"x" * 1000]) or cache.lookup(f"k{turn % 3}") is None:
                failed.append(turn)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


START = """
import sys, time
started = time.perf_counter()
import numpy as np
from shlo_jit.codegen.target import resolve
from shlo_jit.runtime import cache
from shlo_jit.runtime.build import from_cache
fingerprint = open(sys.argv[1], "rb").read()
cache.fingerprint = lambda: fingerprint  # somebody may edit a source file while the tests run
imported = time.perf_counter()
exe = from_cache("k", resolve())
x = np.ones(1 << 12, np.float32)
assert exe(x).sum() == 1 << 13
print((time.perf_counter() - imported) * 1e3, (imported - started) * 1e3)
for name in ("numba", "lark", "jax", "shlo_jit.codegen.optimize", "shlo_jit.lower", "shlo_jit.passes"):
    assert name not in sys.modules, name
"""


def test_start_from_the_cache_in_a_new_process(tmp_path, capsys):
    build(parallel(1 << 12, 8), TARGET, key="k")
    (tmp_path / "fingerprint").write_bytes(cache_module.fingerprint())
    command = [sys.executable, "-c", START, str(tmp_path / "fingerprint")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loaded, imported = map(float, run.stdout.split())
    with capsys.disabled():
        print(f"\nfrom the cache: {loaded:.1f} ms after {imported:.0f} ms of imports")


def test_entry_in_use_may_be_deleted(cache):
    values = np.arange(100_000.0)
    build(constant(values), TARGET, key="k", cache=cache)
    exe = from_cache("k", TARGET, cache=cache)
    cache.clear()
    np.testing.assert_array_equal(exe(), values)


DIES = """
import os, signal, sys
from pathlib import Path
from shlo_jit.runtime import unfinished
file, name = unfinished.create(Path(sys.argv[1]))
file.write(b"x" * 5000)
file.flush()
print(name, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def writer(cache):
    """Runs a process that is writing an entry. It dies when the block ends."""
    command = [sys.executable, "-c", DIES, str(cache.folder / "dying.shlo")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Path(process.stdout.readline().strip())
        process.communicate("go\n")


def test_files_of_processes_that_died_count_and_go(cache):
    cache.store("k", {}, [b"x"])
    whole = cache.info()
    with writer(cache) as file:
        assert cache.info() == whole._replace(nbytes=whole.nbytes + 5000, unfinished=1)
        cache.clear()
        assert file.exists()  # it is still being written
    assert cache.info() == whole._replace(entries=0, nbytes=5000, unfinished=1)
    (cache.folder / ".k.shlo.claim").touch()
    cache.clear()
    assert cache.info() == whole._replace(entries=0, nbytes=0)
    assert os.listdir(cache.folder) == []


def test_files_of_processes_that_died_go_before_entries(cache):
    cache.store("k", {}, [b"x"])
    with writer(cache):
        pass
    cache.limit = 5000
    ObjectCache(cache.folder, 5000).store("l", {}, [b"y"])
    assert {*os.listdir(cache.folder)} == {"k.shlo", "l.shlo", "evict.lock"}


def test_where_there_are_no_locks_old_files_go(cache, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    cache.store("k", {}, [b"x"])
    monkeypatch.setattr(unfinished.fcntl, "flock", refuse)
    old, new = (cache.folder / f".k.shlo.{i}" for i in range(2))
    for file in (old, new):
        file.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    cache.clear()
    assert new.exists() and not old.exists()
    assert cache.store("k", {}, [b"x"])


def test_a_file_that_is_deleted_before_it_is_locked_is_made_again(cache, monkeypatch):
    cache.make_folder()
    made, lock = [], unfinished._lock

    def late(file):
        made.append(os.readlink(f"/proc/self/fd/{file}"))
        if len(made) == 1:
            os.unlink(made[0])
        return lock(file)

    monkeypatch.setattr(unfinished, "_lock", late)
    assert cache.store("k", {}, [b"x"])
    assert len(made) == 2
    assert os.listdir(cache.folder) == ["k.shlo"]
