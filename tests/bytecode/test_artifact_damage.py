"""Damaged files are rejected with a byte offset, whatever the damage."""

from __future__ import annotations

import random
import time
import tracemalloc

import artifact_programs as programs
import pytest

import shlo_jit
from shlo_jit.bytecode.container import write_container
from shlo_jit.bytecode.output_tables import OutputTables
from shlo_jit.bytecode.stream import Cursor, Damaged, Output
from shlo_jit.bytecode.versions import Version

SMALL = """func.func @main(%x: tensor<2x3xf32> {a.b = "c"}) -> tensor<2xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %k = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
  %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32> loc("here")
}
"""
ARTIFACT = shlo_jit.parse(SMALL).serialize("1.17.0")


def refusal(data: bytes) -> str:
    """Returns the message without its byte offset, after checking that the offset is inside the file."""
    with pytest.raises(shlo_jit.ParseError) as caught:
        shlo_jit.parse(data)
    (found,) = caught.value.diagnostics
    byte, _, message = found.message.rpartition("byte ")[2].partition(": ")
    assert found.label == "bytecode" and 0 <= int(byte) <= len(data)
    assert found.code in ("file.damaged", "file.cut_off", "file.unknown_artifact", "file.mlir_bytecode")
    return message


def code_and_hint(data: bytes) -> tuple[str, str]:
    with pytest.raises(shlo_jit.ParseError) as caught:
        shlo_jit.parse(data)
    return caught.value.code, caught.value.diagnostics[0].hint


# ---------------------------------------------------------------------- numbers
@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**14 - 1, 2**14, 2**49, 2**56 - 1, 2**56, 2**63, 2**64 - 1])
def test_numbers(value: int) -> None:
    out = Output()
    out.varint(value)
    cursor = Cursor(bytes(out.data), 0, len(out.data))
    assert cursor.varint() == value and cursor.at == cursor.end
    for end in range(len(out.data)):
        with pytest.raises(Damaged):
            Cursor(bytes(out.data), 0, end).varint()


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 2**62, -(2**63), 2**63 - 1])
def test_signed_numbers(value: int) -> None:
    out = Output()
    out.signed(value)
    assert Cursor(bytes(out.data), 0, len(out.data)).signed() == value


# ---------------------------------------------------------------------- whole files
def test_every_prefix_is_refused() -> None:
    for end in range(4, len(ARTIFACT)):
        refusal(ARTIFACT[:end])
        assert code_and_hint(ARTIFACT[:end])[0] == "file.cut_off"


def test_a_changed_byte_is_damage() -> None:
    damaged = bytearray(ARTIFACT)
    damaged[ARTIFACT.index(b"StableHLO") + 18] = 0x7F  # the id of the first section
    refusal(bytes(damaged))
    assert code_and_hint(bytes(damaged))[0] == "file.damaged"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"reduce_v1", b"reduce_v9", "the operation vhlo.reduce_v9 is unknown"),
        (b"vhlo\0", b"shlo\0", "the operation shlo.func_v1 is unknown"),
        (b"ML\xefR\x0d", b"ML\xefR\x0f", "bytecode of version 7 is newer than 6"),
    ],
)
def test_what_is_not_known_is_named(old: bytes, new: bytes, message: str) -> None:
    assert old in ARTIFACT
    found = refusal(ARTIFACT.replace(old, new))
    assert found == message


@pytest.mark.parametrize("version", ["1.21.0", "9.0.0", "0.8.5", "0.21.0", "2.1.0", "1.99.3", "9999.0.0"])
def test_versions_that_are_not_known(version: str) -> None:
    data = ARTIFACT.replace(b"StableHLO_v1.17.0", f"StableHLO_v{version}".encode())
    for given in (data, data.replace(b"reduce_v1", b"reduce_v9")):
        assert f"StableHLO {version}" in refusal(given) and "0.9.0 to 1.20.0" in refusal(given)
    with pytest.raises(shlo_jit.ParseError, match=f"release .*{version}"):
        shlo_jit.compile(data)


@pytest.mark.parametrize("version", ["0.9.0", "0.20.8", "1.0.0", "1.20.0", "1.20.7"])
def test_versions_that_are_known(version: str) -> None:
    assert shlo_jit.parse(ARTIFACT.replace(b"1.17.0", version.encode())) == shlo_jit.parse(SMALL)


def test_bytecode_that_is_no_artifact() -> None:
    other = ARTIFACT.replace(b"StableHLO_v1.17.0", b"MLIR20.0.0-trunk!").replace(b"reduce_v1", b"reduce_v9")
    code, hint = code_and_hint(other)
    assert code == "file.mlir_bytecode" and "stablehlo-translate --serialize" in hint


# ---------------------------------------------------------------------- tables with invalid or cyclic references
def file_with(attributes: list[bytes], types: list[bytes] = [], op: bytes = b"") -> bytes:  # noqa: B006
    """Returns a file with one op and tables of these attributes and types."""
    tables = OutputTables(Version(1, 17), {})
    for payload in attributes:
        tables.attributes(("builtin", payload, True))
    for payload in types:
        tables.types(("vhlo", payload, True))
    return write_container(6, "StableHLO_v1.17.0", tables, ["builtin.module"], [], op)


def varints(*values: int) -> bytes:
    out = Output()
    for value in values:
        out.varint(value)
    return bytes(out.data)


UNKNOWN = varints(15)


def module_with_dictionary(index: int, location: int = 0) -> bytes:
    """block op(name, mask, location, dictionary)"""
    return varints(2) + varints(0) + b"\x01" + varints(location, index)


def test_an_attribute_that_is_a_part_of_itself() -> None:
    circle = file_with([UNKNOWN, varints(0, 1, 2), varints(0, 1, 1)], op=module_with_dictionary(1))
    assert refusal(circle).startswith("attribute 1 ")


def test_attributes_that_are_deep_in_each_other() -> None:
    chain = [UNKNOWN, *(varints(0, 1, i + 2) for i in range(3000)), varints(0, 0)]
    assert refusal(file_with(chain, op=module_with_dictionary(1))).startswith("types and attributes are nested")


def test_attributes_that_double_with_every_line() -> None:
    """A kilobyte that would expand to a billion strings is rejected."""
    doubling = [UNKNOWN, varints(7), *(varints(0, 2, i + 1, i + 1) for i in range(60))]
    assert "nodes" in refusal(file_with(doubling, op=module_with_dictionary(61)))


def test_numbers_that_are_none() -> None:
    assert "number 99 of" in refusal(file_with([UNKNOWN], op=module_with_dictionary(99)))
    assert "number 5 of" in refusal(file_with([UNKNOWN], op=module_with_dictionary(0, 5)))
    assert "dictionary" in refusal(file_with([UNKNOWN, varints(7)], op=module_with_dictionary(1)))


def test_a_module_without_a_region() -> None:
    assert refusal(file_with([UNKNOWN], op=varints(2, 0) + b"\0" + varints(0))).endswith("not 0")


def test_counts_of_what_is_not_there() -> None:
    """A count is compared with the remaining bytes before any memory is allocated for it."""
    huge = (1 << 62) + 1
    for payload in (varints(0, huge), varints(1, huge), varints(12, huge), varints(17, 0, 3, huge)):
        tracemalloc.start()
        message = refusal(file_with([UNKNOWN, payload], [varints(14)], op=module_with_dictionary(1)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert "should follow" in message
        assert peak < 2_000_000
    assert "operations should follow" in refusal(file_with([UNKNOWN], op=varints(huge & ~1)))


def test_a_splat_of_more_elements_than_memory_has() -> None:
    """A splat may have any number of elements, as in text. A literal with neither one nor all elements is rejected."""
    text = "func.func @main() {\n  %0 = stablehlo.constant dense<7> : tensor<9000000x9000000xi16>\n  return\n}\n"
    data = shlo_jit.parse(text).serialize()
    assert shlo_jit.parse(data) == shlo_jit.parse(text)
    blob = data.index(varints(2) + b"\x07\0")
    three = data[:blob] + varints(3) + data[blob + 1 :]  # now its size in the table is too small by one
    assert refusal(three).startswith("3 bytes")


# ---------------------------------------------------------------------- random damage
def damaged(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Returns a file with flipped bits, changed bytes, or parts removed, truncated or taken from other files."""
    made = bytearray(data)
    how = rng.randrange(6)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(made)) if made else 0
        if how == 0 and made:
            made[at] ^= 1 << rng.randrange(8)
        elif how == 1 and made:
            made[at] = rng.randrange(256)
        elif how == 2:
            del made[max(at, 4) :]
        elif how == 3:
            del made[at : at + rng.randrange(1, 40)]
        elif how == 4:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            made[at : at + rng.randrange(30)] = other[start : start + rng.randrange(30)]
        else:
            made[at:at] = rng.choice((b"\0" + b"\xff" * 8, b"\xff" * 9, b"\0" * 9, bytes([rng.randrange(256)])))
    return b"ML\xefR" + bytes(made[4:])


def check_damaged(count: int, seed: int) -> None:
    rng = random.Random(seed)
    texts = [SMALL, programs.LOCATED, programs.SHARDED, *programs.functions(programs.LATER_OPS).values()]
    modules = [shlo_jit.parse(text) for text in texts]
    files = [module.serialize("1.20.0") for module in modules]
    files += [module.serialize(version) for module in modules[:3] for version in ("0.9.0", "0.12.0", "0.14.0")]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(count):
        data = damaged(rng.choice(files), files, rng)
        start = time.perf_counter()
        try:
            module = shlo_jit.parse(data)
        except shlo_jit.ParseError as error:
            outcomes["refused"] += 1
            assert "byte " in error.diagnostics[0].message and error.code.startswith("file.")
        else:
            outcomes["read"] += 1
            shlo_jit.verify(module)
            str(module)
        assert time.perf_counter() - start < 20
    assert min(outcomes.values()) > count // 200, outcomes


def test_damaged_files() -> None:
    check_damaged(4000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_damaged_files(seed: int) -> None:
    check_damaged(20_000, seed=100 + seed)
