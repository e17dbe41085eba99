"""Our linker: code runs where it was placed, references resolve, and damaged objects are refused."""

import ctypes
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import TARGET

from shlo_jit.codegen import jit
from shlo_jit.codegen.elf import read_object
from shlo_jit.codegen.link import Linker
from shlo_jit.codegen.optimize import emit_object, optimize
from shlo_jit.codegen.target import resolve
from shlo_jit.errors import InternalError

BASE = 0x5000_0000_0000


def assemble(text: str, target=TARGET) -> bytes:
    return emit_object(optimize(text, target, 0), target)


def loaded(*texts: str, symbols=None):
    return jit.load([assemble(t) for t in texts], ["f"], (), symbols)


def call(library, *args) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(library.addresses["f"])(*args)


def test_parts_call_each_other():
    one = "declare i64 @g(i64)\ndefine i64 @f(i64 %x) {\n %y = call i64 @g(i64 %x)\n ret i64 %y\n}"
    two = "define i64 @g(i64 %x) {\n %y = mul i64 %x, 7\n ret i64 %y\n}"
    assert call(loaded(one, two), 6) == call(loaded(two, one), 6) == 42


def test_data_are_writable_and_zero_at_first():
    text = """
@count = internal global i64 0
@start = global i64 40
define i64 @f() {
  %a = load i64, ptr @count
  %b = add i64 %a, 1
  store i64 %b, ptr @count
  %s = load i64, ptr @start
  %c = add i64 %s, %b
  ret i64 %c
}"""
    first, second = loaded(text), loaded(text)
    assert [call(first), call(first), call(second)] == [41, 42, 41]


def test_addresses_in_data():
    text = """
define internal i64 @one() {
  ret i64 1
}
define internal i64 @two() {
  ret i64 2
}
@table = internal constant [2 x ptr] [ptr @one, ptr @two]
define i64 @f(i64 %i) {
  %p = getelementptr ptr, ptr @table, i64 %i
  %g = load ptr, ptr %p
  %r = call i64 %g()
  ret i64 %r
}"""
    assert [call(loaded(text), i) for i in (0, 1)] == [1, 2]


def test_code_is_not_writable():
    library = loaded("define i64 @f() {\n ret i64 0\n}")
    address = library.addresses["f"]
    rows = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [([int(x, 16) for x in place.split("-")], rights) for place, rights in rows]
    assert [rights for (low, high), rights in ranges if low <= address < high] == ["r-xp"]


def test_given_symbols_come_before_those_of_the_process():
    text = "declare i64 @labs(i64)\ndefine i64 @f(i64 %x) {\n %y = call i64 @labs(i64 %x)\n ret i64 %y\n}"
    assert call(loaded(text), -3) == 3
    other = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 5)
    address = ctypes.cast(other, ctypes.c_void_p).value
    assert call(loaded(text, symbols={"labs": address}), -3) == 5


def test_a_symbol_defined_twice_is_refused():
    text = "define i64 @f() {\n ret i64 0\n}"
    with pytest.raises(InternalError, match="defined twice"):
        loaded(text, text)


def test_a_wanted_symbol_that_is_not_there_is_refused():
    with pytest.raises(InternalError, match="nothing defines f"):
        loaded("define i64 @g() {\n ret i64 0\n}")


def linked(text: str, target, find) -> tuple[np.ndarray, Linker]:
    linker = Linker([read_object(assemble(text, target))])
    image = np.zeros(linker.layout.size, np.uint8)
    linker.write(image, BASE, find)
    return image, linker


def word(image: np.ndarray, offset: int, kind: str = "<u4") -> int:
    return int(image[offset : offset + np.dtype(kind).itemsize].view(kind)[0])


CALL = "declare void @far()\ndefine void @f() {\n call void @far()\n ret void\n}"


@pytest.mark.parametrize("far", [0x10_0000, BASE + (1 << 31), BASE - (1 << 33)])
def test_far_calls_go_through_a_stub(far):
    image, linker = linked(CALL, resolve("x86-64-v3"), {"far": far}.get)
    (entry,) = linker.layout.entries.values()
    at = bytes(image).index(b"\xe8") + 1  # call
    assert at + 4 + word(image, at, "<i4") == entry
    assert bytes(image[entry : entry + 6]).hex() == "ff2502000000"
    assert word(image, entry + 8, "<u8") == far


def test_near_calls_are_direct():
    image, _ = linked(CALL, resolve("x86-64-v3"), {"far": BASE + 0x1234560}.get)
    at = bytes(image).index(b"\xe8") + 1
    assert at + 4 + word(image, at, "<i4") == 0x1234560


def sign(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def adrp_page(instruction: int, place: int) -> int:
    """Returns the page that an ADRP computes."""
    distance = sign(((instruction >> 5 & 0x7FFFF) << 2) | (instruction >> 29 & 3), 21)
    return (place >> 12 << 12) + (distance << 12)


@pytest.mark.parametrize("far", [BASE + 0x1234560, BASE + (1 << 27), 0x10_0000])
def test_aarch64_calls(far):
    image, linker = linked(CALL, resolve("aarch64:neoverse-n1"), {"far": far}.get)
    (entry,) = linker.layout.entries.values()
    at = next(i for i in range(0, entry, 4) if word(image, i) >> 26 == 0b100101)  # BL
    target = BASE + at + 4 * sign(word(image, at) & 0x3FFFFFF, 26)
    assert target == (far if far == BASE + 0x1234560 else BASE + entry)
    assert word(image, entry) == 0x58000050  # LDR X16, .+8
    assert word(image, entry + 4) == 0xD61F0200  # BR X16
    assert word(image, entry + 8, "<u8") == far


@pytest.mark.parametrize(("type", "shift"), [("i8", 0), ("i16", 1), ("i32", 2), ("i64", 3), ("<2 x i64>", 4)])
def test_aarch64_loads_of_constants(type, shift):
    """ADRP and a load whose offset counts elements."""
    text = f"""
@other = internal constant [7 x i8] c"abcdefg", align 32
@mine = internal constant [4 x {type}] zeroinitializer, align 32
define {type} @f(ptr %out) {{
  %i = ptrtoint ptr @other to i64
  store i64 %i, ptr %out
  %v = load volatile {type}, ptr @mine
  ret {type} %v
}}"""
    image, linker = linked(text, resolve("aarch64:neoverse-n1"), {}.get)
    objects = [s for s in linker.objects[0].symbols if int(s["info"]) & 15 == 1]
    places = {BASE + linker.layout.sections[0, int(s["section"])] + int(s["value"]) for s in objects}
    assert len(places) == 2
    code = [word(image, i) for i in range(0, int(linker.objects[0].sections[2].size), 4)]
    reached = set()
    for i, instruction in enumerate(code):
        if instruction & 0x9F000000 != 0x90000000:  # ADRP
            continue
        register, page = instruction & 31, adrp_page(instruction, BASE + 4 * i)
        for user in code[i + 1 :]:
            if user >> 5 & 31 != register:
                continue
            if user & 0xFF800000 == 0x91000000:  # ADD
                reached.add(page + (user >> 10 & 0xFFF))
            elif user >> 24 & 0x3B == 0x39:  # load or store with an unsigned offset
                reached.add(page + ((user >> 10 & 0xFFF) << shift))
            break
    assert reached == places


OUTSIDE = "@far = external global i64\ndefine i64 @f() {\n %x = load i64, ptr @far\n ret i64 %x\n}"


def test_data_of_others_are_reached_through_a_slot():
    value = ctypes.c_int64(77)
    assert call(loaded(OUTSIDE, symbols={"far": ctypes.addressof(value)})) == 77


def test_aarch64_data_of_others():
    image, linker = linked(OUTSIDE, resolve("aarch64:neoverse-n1"), {"far": 0x123}.get)
    (entry,) = linker.layout.entries.values()
    at = next(i for i in range(0, entry, 4) if word(image, i) & 0x9F000000 == 0x90000000)
    load = next(word(image, i) for i in range(at + 4, entry, 4) if word(image, i) >> 22 == 0b1111100101)  # LDR X
    assert adrp_page(word(image, at), BASE + at) + 8 * (load >> 10 & 0xFFF) == BASE + entry + 8
    assert word(image, entry + 8, "<u8") == 0x123


def test_damaged_objects_are_refused_or_linked():
    """A flipped bit in an object results in a known exception, or an image."""
    code = assemble(CALL.replace("{\n", "{\n store i64 1, ptr @v\n") + "\n@v = global i64 0")
    generator = random.Random(1)
    for _ in range(1500):
        data = bytearray(code)
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(len(data))] = generator.choice([0, 1, 127, 128, 255, generator.randrange(256)])
        try:
            length = generator.choice([len(data), generator.randint(0, len(data))])
            linker = Linker([read_object(bytes(data[:length]))])
            if linker.layout.size < 1 << 24:
                linker.write(np.zeros(linker.layout.size, np.uint8), BASE, {"far": 0x10_0000}.get)
        except (ValueError, LookupError, OverflowError):
            pass


GDB = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from programs import TARGET, parallel
from shlo_jit.runtime.build import build
print(build(parallel(64, 2), TARGET, threads=2, cache=False)(np.ones(64, np.float32)).sum())
"""


def test_loading_for_gdb(monkeypatch):
    monkeypatch.setenv("SHLO_JIT_GDB", "1")
    command = [sys.executable, "-c", GDB, str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "128.0\n"), run.stderr
