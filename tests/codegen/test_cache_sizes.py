"""The caches of a target: the table of CPUs, and what operating systems say about the machine we run on."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from shlo_jit.caches import PLAIN, Caches
from shlo_jit.codegen import host_caches
from shlo_jit.codegen.cpu_caches import KNOWN, SOURCES, caches_of
from shlo_jit.codegen.host_caches import Level, combine, read_sysctl, read_sysfs, read_windows
from shlo_jit.codegen.known_cpus import CPUS
from shlo_jit.codegen.target import resolve
from shlo_jit.options import CompileOptions

KIB, MIB = 1 << 10, 1 << 20
NAMES = {name for cpus in CPUS.values() for name in cpus}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_rows_of_the_table(name: str) -> None:
    c = KNOWN[name]
    assert name in NAMES
    assert len(SOURCES[name]) > 8
    assert 16 * KIB <= c.l1 <= 256 * KIB
    assert c.l1 < c.l2 <= c.last_level
    assert c.cores > 0
    assert c.line in (64, 128, 256)


def test_targets_have_the_caches_of_their_cpus() -> None:
    assert resolve("znver5").caches == resolve("x86_64-linux:znver5+avx512bf16").caches == caches_of("znver5")
    assert resolve("aarch64:neoverse-v2").caches == caches_of("neoverse-v2")
    assert resolve("riscv64+v").caches == resolve("x86-64-v3").caches == PLAIN
    assert caches_of("znver5")[:3] == (48 * KIB, MIB, 32 * MIB)
    assert caches_of("apple-m1").core_share == 3 * MIB


# ---------------------------------------------------------------------- Linux
def cache(folder: Path, number: int, level: int, kind: str, size: str, shared: str, line: int = 64) -> None:
    index = folder / "cache" / f"index{number}"
    index.mkdir(parents=True)
    files = {"level": level, "type": kind, "size": size, "shared_cpu_list": shared, "coherency_line_size": line}
    for name, text in files.items():
        (index / name).write_text(f"{text}\n")


def threads(folder: Path, siblings: str) -> None:
    (folder / "topology").mkdir(parents=True)
    (folder / "topology" / "thread_siblings_list").write_text(siblings)


def test_sysfs_of_a_server(tmp_path: Path) -> None:
    """Two threads a core; caches of instructions are no data caches."""
    cpu = tmp_path / "cpu0"
    threads(cpu, "0,64\n")
    cache(cpu, 0, 1, "Data", "48K", "0,64")
    cache(cpu, 1, 1, "Instruction", "32K", "0,64")
    cache(cpu, 2, 2, "Unified", "2048K", "0,64")
    cache(cpu, 3, 3, "Unified", "107520K", "0-55,64-119")
    assert combine(read_sysfs(tmp_path), PLAIN) == Caches(48 * KIB, 2 * MIB, 105 * MIB, 56, 64)


def test_sysfs_without_a_third_level(tmp_path: Path) -> None:
    """Four cores share the second level, which is the last one: each counts on a quarter."""
    cache(tmp_path / "cpu0", 0, 1, "Data", "32K", "0")
    cache(tmp_path / "cpu0", 1, 2, "Unified", "1M", "0-3")
    assert combine(read_sysfs(tmp_path), PLAIN) == Caches(32 * KIB, 256 * KIB, MIB, 4, 64)


def test_sysfs_takes_the_first_cpu(tmp_path: Path) -> None:
    """Cores may differ. All processes have to agree, wherever they run."""
    (tmp_path / "cpu0").mkdir()  # offline
    cache(tmp_path / "cpu10", 0, 1, "Data", "32K", "10")
    cache(tmp_path / "cpu2", 0, 1, "Data", "48K", "2")
    assert read_sysfs(tmp_path) == [Level(1, 48 * KIB, 1, 64)]


@pytest.mark.parametrize(
    ("size", "shared"), [("", "0"), ("K", "0"), ("0K", "0"), ("3K", "0"), ("99999999G", "0"), ("abc", ""), ("-1K", "0")]
)
def test_sizes_that_make_no_sense_are_not_used(tmp_path: Path, size: str, shared: str) -> None:
    cache(tmp_path / "cpu0", 0, 1, "Data", size, shared)
    cache(tmp_path / "cpu0", 1, 2, "Unified", size, shared)
    cache(tmp_path / "cpu0", 2, 3, "Unified", size, shared)
    known = caches_of("znver4")
    assert combine(read_sysfs(tmp_path), known)[:4] == known[:4]


def test_what_is_not_described_is_known(tmp_path: Path) -> None:
    """A container shows some levels only, or files that cannot be read."""
    known = caches_of("znver4")
    assert read_sysfs(tmp_path) == read_sysfs(tmp_path / "missing") == []
    assert combine([], known) == known
    cache(tmp_path / "cpu0", 0, 2, "Unified", "512K", "0")
    (tmp_path / "cpu0" / "cache" / "index1").mkdir()
    (tmp_path / "cpu0" / "cache" / "index1" / "size").write_bytes(b"\xff\xfe")
    assert combine(read_sysfs(tmp_path), known) == known._replace(l2=512 * KIB)


def test_the_host_reads_its_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache(tmp_path / "cpu0", 0, 2, "Unified", "3M", "0")
    monkeypatch.setattr(host_caches.sys, "platform", "linux")
    monkeypatch.setattr(host_caches, "CPUS", tmp_path)
    assert host_caches.host_caches("znver3") == caches_of("znver3")._replace(l2=3 * MIB)
    monkeypatch.setattr(host_caches.sys, "platform", "another")
    assert host_caches.host_caches("a CPU of next year") == PLAIN


# ---------------------------------------------------------------------- macOS, Windows
def test_sysctl() -> None:
    m1 = {"hw.cachelinesize": 128, "hw.perflevel0.l1dcachesize": 128 * KIB, "hw.l1dcachesize": 64 * KIB,
          "hw.perflevel0.l2cachesize": 12 * MIB, "hw.perflevel0.cpusperl2": 4, "hw.physicalcpu": 8}  # fmt: skip
    assert combine(read_sysctl(lambda name: m1.get(name, 0)), PLAIN) == caches_of("apple-m1")
    intel = {"hw.cachelinesize": 64, "hw.l1dcachesize": 32 * KIB, "hw.l2cachesize": 256 * KIB, "hw.l3cachesize": 8 * MIB,
             "hw.physicalcpu": 4}  # fmt: skip
    assert combine(read_sysctl(lambda name: intel.get(name, 0)), PLAIN) == caches_of("haswell")
    assert combine(read_sysctl(lambda _: 0), PLAIN) == PLAIN


def windows_record(mask: int, relation: int, descriptor: bytes = b"") -> bytes:
    return struct.pack("<QI4x", mask, relation) + descriptor.ljust(16, b"\0")


def test_windows() -> None:
    """Two cores of two threads. The second core's caches, and instruction caches, do not count."""
    rows = [windows_record(0b11, 0), windows_record(0b1100, 0), windows_record(0b1111, 1)]
    for mask, level, nbytes, kind in [(0b11, 1, 48 * KIB, 2), (0b11, 1, 32 * KIB, 1), (0b1100, 1, 64 * KIB, 2),
                                      (0b11, 2, MIB, 0), (0b1111, 3, 32 * MIB, 0)]:  # fmt: skip
        rows.append(windows_record(mask, 2, struct.pack("<BBHII", level, 8, 64, nbytes, kind)))
    found = combine(read_windows(b"".join(rows)), PLAIN)
    assert found == Caches(48 * KIB, MIB, 32 * MIB, 2, 64)
    assert combine(read_windows(b""), PLAIN) == PLAIN


# ---------------------------------------------------------------------- identity
def test_sizes_are_part_of_what_code_is_kept_by() -> None:
    target = resolve("znver5")
    other = replace(target, caches=target.caches._replace(l2=2 * MIB))
    assert target.identity != other.identity
    assert target.instructions == other.instructions
    assert CompileOptions(target).identity() != CompileOptions(other).identity()
    lines = replace(target, caches=target.caches._replace(line=128, cores=1))
    assert lines.identity == target.identity, "neither decides anything"
