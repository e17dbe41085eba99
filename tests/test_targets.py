"""Names of targets, their requirements, and one program for several targets.

The object code uses the vector registers of the target, and no wider ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from shlo_jit.codegen import optimize
from shlo_jit.codegen.cpu_features import FEATURES
from shlo_jit.codegen.known_cpus import CPUS, required_features
from shlo_jit.codegen.target import check_runs_here, resolve, target_machine
from shlo_jit.pipeline import program_of

TEXT = """
func.func @main(%x: tensor<40x50xf32>, %w: tensor<50x77xf32>) -> (tensor<40x77xf32>, tensor<77xf32>) {
  %0 = stablehlo.tanh %x : tensor<40x50xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<40x50xf32>, tensor<50x77xf32>) -> tensor<40x77xf32>
  %2 = stablehlo.exponential %1 : tensor<40x77xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%2 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<40x77xf32>, tensor<f32>) -> tensor<77xf32>
  return %2, %3 : tensor<40x77xf32>, tensor<77xf32>
}
"""
REGISTERS = {"zmm": r"%zmm\d", "ymm": r"%ymm\d", "v4s": r"\bv\d+\.4s"}
EXPECTED = {
    "x86-64-v4": ("zmm", set()),
    "x86-64-v3": ("ymm", {"zmm"}),
    "aarch64:generic": ("v4s", {"ymm", "zmm"}),
    "aarch64:neoverse-n1": ("v4s", {"ymm", "zmm"}),
}


def check_object(data: bytes, name: str, symbols: Iterable[str]) -> None:
    """Checks that data is ELF for the target's architecture that defines, or at least refers to, the symbols."""
    assert data[:6] == b"\x7fELF\x02\x01"
    assert int.from_bytes(data[18:20], "little") == (183 if name.startswith("aarch64") else 62)
    assert all(symbol.encode() + b"\0" in data for symbol in symbols)


@pytest.mark.parametrize("name", EXPECTED)
def test_vector_width(name: str) -> None:
    target = resolve(name)
    program = program_of(TEXT, "<test>", target)
    module = optimize.optimize(program.text, target)
    check_object(optimize.emit_object(module, target), name, ["shlo_main"])
    assembly = optimize.emit_assembly(module, target)
    wanted, forbidden = EXPECTED[name]
    assert len(re.findall(REGISTERS[wanted], assembly)) > 50
    assert not [r for r in forbidden if re.search(REGISTERS[r], assembly)]


@pytest.mark.parametrize("name", EXPECTED)
def test_routines_compile(name: str) -> None:
    from shlo_jit.codegen.objects import compile_routine

    target = resolve(name)
    for routine in program_of(TEXT, "<test>", target).routines:
        compiled = compile_routine(routine, target)
        assert set(routine.symbols) <= set(compiled.symbols)
        check_object(b"".join(compiled.objects), name, compiled.symbols)


NAMES = {
    "x86-64-v3": ("x86_64", "linux", "x86_64-unknown-linux-gnu", "x86-64-v3", 256),
    "x86-64-v2+avx": ("x86_64", "linux", "x86_64-unknown-linux-gnu", "x86-64-v2", 128),
    "x86-64-v4-avx512bw": ("x86_64", "linux", "x86_64-unknown-linux-gnu", "x86-64-v4", 256),
    "x86_64-linux:znver4": ("x86_64", "linux", "x86_64-unknown-linux-gnu", "znver4", 512),
    "x86_64-linux-musl:x86-64-v3": ("x86_64", "linux", "x86_64-unknown-linux-musl", "x86-64-v3", 256),
    "x86_64-macos": ("x86_64", "macos", "x86_64-apple-macosx11.0", "x86-64", 128),
    "x86_64-windows:x86-64-v3": ("x86_64", "windows", "x86_64-pc-windows-msvc", "x86-64-v3", 256),
    "x86_64-none:x86-64-v3": ("x86_64", "none", "x86_64-unknown-none-elf", "x86-64-v3", 256),
    "aarch64": ("aarch64", "linux", "aarch64-unknown-linux-gnu", "generic", 128),
    "neoverse-v1": ("aarch64", "linux", "aarch64-unknown-linux-gnu", "neoverse-v1", 128),
    "aarch64-macos:apple-m1": ("aarch64", "macos", "arm64-apple-macosx11.0", "apple-m1", 128),
    "riscv64": ("riscv64", "linux", "riscv64-unknown-linux-gnu", "generic-rv64", 64),
    "riscv64+v": ("riscv64", "linux", "riscv64-unknown-linux-gnu", "generic-rv64", 128),
    "wasm32": ("wasm32", "none", "wasm32-unknown-unknown", "generic", 64),
    "wasm32+simd128": ("wasm32", "none", "wasm32-unknown-unknown", "generic", 128),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(resolve().triple != "x86_64-unknown-linux-gnu", reason="the system of this machine is the default")
def test_names(name: str) -> None:
    target = resolve(name)
    assert (target.arch, target.system, target.triple, target.cpu, target.vector_bits) == NAMES[name]


def test_forms_of_threads_and_pointers() -> None:
    names = ["x86_64-linux", "x86_64-none", "x86_64-windows", "aarch64-macos", "riscv64", "wasm32"]
    assert [resolve(n).threads for n in names] == ["futex", "serial", "serial", "pthread", "futex", "serial"]
    assert [resolve(n).pointer_bits for n in names] == [64, 64, 64, 64, 64, 32]


@pytest.mark.parametrize("arch", CPUS)
def test_llvm_knows_the_cpus_and_features(arch: str, capfd: pytest.CaptureFixture[str]) -> None:
    system = resolve(arch).system
    for cpu in CPUS[arch]:
        target_machine(resolve(f"{arch}-{system}:{cpu}"))
    for feature in FEATURES[arch]:
        target_machine(resolve(f"{arch}-{system}+{feature}"))
    assert capfd.readouterr().err == ""


def test_what_is_required_is_what_a_cpu_is_listed_with() -> None:
    for arch, cpus in CPUS.items():
        for cpu, features in cpus.items():
            assert required_features(resolve(f"{arch}-{resolve(arch).system}:{cpu}")) == tuple(sorted(features)), cpu
    v4 = set(required_features(resolve("x86-64-v4")))
    assert v4 - set(required_features(resolve("x86-64-v4-avx512bw"))) == {"avx512bw"}
    assert set(required_features(resolve("x86-64-v4-avx2"))) == set(required_features(resolve("x86-64-v3"))) - {"avx2"}
    v2 = set(required_features(resolve("x86-64-v2")))
    assert set(required_features(resolve("x86-64-v2+avx2"))) == v2 | {"avx", "avx2"}


PROBE = """
define i64 @count(i64 %x) {{
  %y = call i64 @llvm.ctpop.i64(i64 %x)
  ret i64 %y
}}
define i32 @shift(i32 %x, i32 %n) {{
  %y = shl i32 %x, %n
  ret i32 %y
}}
define i32 @swapped(ptr %x) {{
  %v = load i32, ptr %x
  %y = call i32 @llvm.bswap.i32(i32 %v)
  ret i32 %y
}}
define <4 x float> @multiply_add(<4 x float> %x, <4 x float> %y) {{
  %z = call <4 x float> @llvm.fma.v4f32(<4 x float> %x, <4 x float> %y, <4 x float> %x)
  ret <4 x float> %z
}}
define <4 x float> @half(<4 x half> %x) {{
  %y = fpext <4 x half> %x to <4 x float>
  ret <4 x float> %y
}}
define <16 x i8> @reversed(<16 x i8> %x) {{
  %y = call <16 x i8> @llvm.bitreverse.v16i8(<16 x i8> %x)
  ret <16 x i8> %y
}}
define <16 x i8> @counts(<16 x i8> %x) {{
  %y = call <16 x i8> @llvm.ctpop.v16i8(<16 x i8> %x)
  ret <16 x i8> %y
}}
define <32 x i8> @picked(<32 x i8> %x, <32 x i8> %y) {{
  %z = shufflevector <32 x i8> %x, <32 x i8> %y, <32 x i32> <{picks}>
  ret <32 x i8> %z
}}
"""
INSTRUCTIONS = {
    "popcnt": r"popcntq",
    "bmi2": r"shlxl",
    "movbe": r"movbel",
    "fma": r"vfmadd\d+ps",
    "fma4": r"vfmaddps",
    "f16c": r"vcvtph2ps",
    "gfni": r"gf2p8affineqb",
    "avx512bitalg": r"vpopcntb",
    "avx512vbmi": r"vperm[ti]2b",
}


@pytest.mark.parametrize(
    "cpu", [*CPUS["x86_64"], "x86-64-v4-popcnt", "znver4-gfni", "icelake-server-fma", "x86-64+gfni"]
)
def test_llvm_uses_what_is_required(cpu: str) -> None:
    target = resolve(f"x86_64-linux:{cpu}")
    picks = ", ".join(f"i32 {(7 * k * k + 3 * k) % 64}" for k in range(32))
    assembly = optimize.emit_assembly(optimize.optimize(PROBE.format(picks=picks), target), target)
    used = {feature for feature, pattern in INSTRUCTIONS.items() if re.search(pattern, assembly)}
    required = set(required_features(target))
    assert used == set(INSTRUCTIONS) & (required - {"fma"} if "fma4" in required else required)


UNKNOWN = {
    "pentium": "unknown target 'pentium'; write native, ",
    "x86-64-v9": "unknown feature 'v9' in target 'x86-64-v9'; the levels of x86-64 are x86-64, x86-64-v2",
    "avx2": "unknown target 'avx2'; features come after a CPU's name, such as x86-64-v3+avx2",
    "cuda": "unknown target 'cuda'; only CPUs are supported",
    "native+avx2": "native takes no features",
    "znver": "unknown target 'znver'; did you mean 'znver",
    "aarch64:neoverse": "unknown CPU 'neoverse' in target 'aarch64:neoverse'; did you mean 'neoverse-",
    "x86-64-v3+avx512": "unknown feature 'avx512' in target 'x86-64-v3+avx512'; did you mean 'avx512",
    "x86-64-v3+aes": "unknown feature 'aes' in target",
    "riscv64+zba": "unknown feature 'zba' in target 'riscv64+zba'; known names: v",
    "arm64:generic": "unknown architecture 'arm64' in target 'arm64:generic'; did you mean 'aarch64'",
    "aarch64-bsd:generic": "unknown system 'bsd' in target 'aarch64-bsd:generic'; known names: linux, macos, none, windows",
    "x86_64-linux-bionic": "unknown C library 'bionic' in target 'x86_64-linux-bionic'; known names: gnu, musl",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_target(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(UNKNOWN[name])):
        resolve(name)


@pytest.mark.skipif(not resolve().is_x86 or resolve().system != "linux", reason="of other machines than an x86")
def test_check_runs_here() -> None:
    check_runs_here(resolve("native"))
    check_runs_here(resolve("x86-64"))
    for name in ("aarch64", "x86_64-windows"):
        with pytest.raises(ValueError, match="machine.*x86_64-"):
            check_runs_here(resolve(name))
    with pytest.raises(ValueError, match=r"'x86-64-v2\+xop' .*fma4, (sse4a, )?xop"):
        check_runs_here(resolve("x86-64-v2+xop"))
