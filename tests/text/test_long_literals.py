"""Long literals are cut out of a text, decoded once into their final buffers, and restored if the text is needed."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import numpy as np
import pytest

import shlo_jit
from shlo_jit import sources, tuning
from shlo_jit.ir import digests
from shlo_jit.ir.attributes import Dense
from shlo_jit.runtime import hexadecimal
from shlo_jit.text import literals
from shlo_jit.text.literals import Cut, characters, cut_bytes, cut_string, identity, restored
from shlo_jit.text.parser import parse_module

DIGITS = 2000
VALUES = np.arange(DIGITS // 8, dtype=np.float32)
HEX = VALUES.tobytes().hex().upper()


def constant(digits: str, n: int = len(VALUES), before: str = "", behind: str = "") -> str:
    return (
        f"func.func @main() -> tensor<{n}xf32> {{\n"
        f'  {before}%0 = stablehlo.constant dense<"0x{digits}"> : tensor<{n}xf32>{behind}\n'
        f"  return %0 : tensor<{n}xf32>\n}}\n"
    )


def value_of(module: shlo_jit.Module) -> Dense:
    return next(module.functions()).block().ops[0].constant


def whole(text: str, cuts: tuple[Cut, ...]) -> str:
    return restored(text, cuts, lambda c: c.literal.digits(text[c.first : c.first + literals.KEPT]), 0, len(text))


def random_text(pick: random.Random) -> tuple[str, int]:
    """Returns a text with parts that look like literals, and the number of long literals."""
    parts, count = [], 0
    for _ in range(pick.randrange(1, 12)):
        n = pick.choice([0, 1, 3, 998, 999, 1000, 1001, 1002, 5000])
        digits = "".join(pick.choices("0123456789abcdefABCDEF", k=n))
        kind = pick.randrange(6)
        if kind == 0 and digits:
            at = pick.randrange(n)
            digits = digits[:at] + pick.choice('xg" \n\u00e9') + digits[at + 1 :]
        closer = ">" if kind != 1 else pick.choice(["", " >", ","])
        parts += [pick.choice(["", "x ", "\u00e9\u4e16", "// ", "dense<", '"', "\n"]), f'dense<"0x{digits}"{closer}']
    text = "".join(parts)
    for part in text.split('dense<"0x')[1:]:
        digits, _, rest = part.partition('"')
        hexadecimal = all(c in "0123456789abcdefABCDEF" for c in digits)
        count += len(digits) >= 1000 and len(digits) % 2 == 0 and hexadecimal and rest.startswith(">")
    return text, count


@pytest.mark.parametrize("window", [16, 1000, 1 << 18])
@pytest.mark.parametrize("seed", range(60))
def test_what_is_cut_out_can_be_put_back(seed: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literals, "WINDOW", window)
    monkeypatch.setattr(literals, "CHUNK", 2 * window)
    monkeypatch.setattr(tuning, "THREADED_BYTES", seed % 3)
    text, count = random_text(random.Random(seed))
    left, cuts = cut_string(text, 1 + seed % 2, hexadecimal.decoder)
    assert len(cuts) == count
    assert [left[c.at : c.first] for c in cuts] == ['dense<"0x'] * count
    assert whole(left, cuts).lower() == text.lower()
    assert len(left) == len(text) - sum(c.removed for c in cuts)
    data, of_bytes = cut_bytes(characters(text.encode()))
    assert (data.decode(), [c.at for c in of_bytes]) == (left, [c.at for c in cuts])


@pytest.mark.parametrize("make", [lambda: literals.decode_digits, hexadecimal.decoder], ids=["Python", "machine code"])
def test_digits_are_decoded_to_the_last_and_nothing_else_is(make: literals.Fast) -> None:
    decode = make()
    rng = np.random.default_rng(1)
    for n in (*range(70), 500, 4096):
        want = rng.integers(0, 256, n, np.uint8)
        memory = np.full(n + 64, 7, np.uint8)
        digits = want.tobytes().hex()
        for written in (digits, digits.upper()):
            assert decode(written.encode(), memory[:n])
            assert memory[:n].tobytes() == want.tobytes() and (memory[n:] == 7).all()
        assert not decode((digits + "00").encode(), memory[:n])
        assert not n or not decode(digits[:-2].encode(), memory[:n])
    for wrong in (c for c in range(256) if chr(c) not in "0123456789abcdefABCDEF"):
        at = int(rng.integers(0, 300))
        digits = bytearray(b"5a" * 150)
        digits[at] = wrong
        assert not decode(bytes(digits), np.empty(150, np.uint8)), (wrong, at)


def test_bytes_of_a_literal_are_aligned_and_known() -> None:
    _, (cut,) = cut_string(constant(HEX))
    data = cut.literal.data
    assert data.tobytes() == VALUES.tobytes()
    assert data.ctypes.data % 64 == 0 and not data.flags.writeable
    assert cut.literal.digest == hashlib.sha256(VALUES.tobytes()).hexdigest() == digests.digest(data)


def test_programs_are_known_by_what_literals_say() -> None:
    same, lower, other = (identity(*cut_string(constant(h))) for h in (HEX, HEX.lower(), HEX[:-2] + "01"))
    head = len('dense<"0x')
    assert same == lower != other
    assert len(same) < len(constant(HEX)) - DIGITS + 100 + head


def test_the_array_is_the_literal_itself(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(constant(HEX), encoding="utf-8")
    for source in (constant(HEX), path, constant(HEX).encode(), "\ufeff" + constant(HEX)):
        given = sources.read_source(source)
        assert isinstance(given, sources.Text) and len(given.text) < 400
        value = value_of(parse_module(*given))
        assert np.shares_memory(value.array, given.cuts[0].literal.data)
        np.testing.assert_array_equal(value.array, VALUES)


def test_a_literal_of_a_file_can_be_given_up(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(constant(HEX), encoding="utf-8")
    value = value_of(shlo_jit.parse(path))
    before = value.array
    value.release()
    again = value.array
    assert again is not before
    np.testing.assert_array_equal(again, VALUES)
    value.release()
    path.write_text(constant(HEX[:-2] + "7F"), encoding="utf-8")
    with pytest.raises(OSError, match="changed since"):
        _ = value.array
    os.truncate(path, 100)
    with pytest.raises(OSError, match="has changed"):
        _ = value.array
    of_text = value_of(shlo_jit.parse(constant(HEX)))
    kept = of_text.array
    of_text.release()
    assert np.shares_memory(of_text.array, kept)


def test_places_are_those_of_the_whole_text() -> None:
    text = constant(HEX, behind=" 7")
    with pytest.raises(shlo_jit.ParseError) as found:
        shlo_jit.parse(text)
    line = text.split("\n")[1]
    (diagnostic, *_) = found.value.diagnostics
    assert (diagnostic.line, diagnostic.column, diagnostic.source_line) == (2, len(line), line)
    lower = constant(HEX.lower(), behind=" 7")
    with pytest.raises(shlo_jit.ParseError) as found:
        shlo_jit.parse(lower)
    assert found.value.diagnostics[0].source_line == lower.split("\n")[1]


def test_what_a_literal_cannot_be_is_refused_where_it_is() -> None:
    for text, message in (
        (constant(HEX, n=7), "elements hex data size is invalid for the type: expected 28 bytes, found 1000"),
        (constant(HEX[:-1]), "expected string containing pairs of hex digits"),
        (constant(HEX[:500] + "g" + HEX[501:]), "expected string containing pairs of hex digits"),
        (constant(HEX).replace(f"tensor<{len(VALUES)}xf32>\n  r", "tensor<?xf32>\n  r"), "must have static shape"),
    ):
        with pytest.raises(shlo_jit.ParseError, match=message) as found:
            shlo_jit.parse(text)
        assert found.value.line == 2


def test_unicode_is_checked_in_all_of_the_text() -> None:
    text = constant(HEX, behind=' loc("\ud800")')
    with pytest.raises(shlo_jit.ParseError, match="half of a character") as found:
        shlo_jit.parse(text)
    assert (found.value.line, found.value.column) == (2, text.split("\n")[1].index("\ud800") + 1)
    data = constant(HEX, behind=' loc("X")').encode().replace(b'("X")', b'("\xff")')
    with pytest.raises(shlo_jit.ParseError, match="not UTF-8") as found:
        shlo_jit.parse(data)
    assert (found.value.line, found.value.column) == (2, data.split(b"\n")[1].index(b"\xff") + 1)


def test_literals_in_comments_and_unknown_attributes() -> None:
    module = shlo_jit.parse(f'// dense<"0x{HEX[:1200]}">\n' + constant(HEX))
    np.testing.assert_array_equal(value_of(module).array, VALUES)
    text = constant(HEX, behind="").replace(
        "stablehlo.constant", f'stablehlo.constant {{x = #other.y<dense<"0x{HEX[:1200]}"> : vector<3>>}}'
    )
    assert HEX[:1200] in str(shlo_jit.parse(text))


def test_compiled_from_a_file_with_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLO_JIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "THREADED_BYTES", 0)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 200, 200)).astype(np.float32)
    lines = [
        f'  %w{i} = stablehlo.constant dense<"0x{w.tobytes().hex()}"> : tensor<200x200xf32>'
        for i, w in enumerate(weights)
    ]
    lines += [
        f"  %{i + 1} = stablehlo.dot_general %{i or 'x'}, %w{i}, contracting_dims = [1] x [0] "
        ": (tensor<20x200xf32>, tensor<200x200xf32>) -> tensor<20x200xf32>"
        for i in range(3)
    ]
    path = tmp_path / "program.mlir"
    head = "func.func @main(%x: tensor<20x200xf32>) -> tensor<20x200xf32> {\n"
    path.write_text(head + "\n".join(lines) + "\n  return %3 : tensor<20x200xf32>\n}\n", encoding="utf-8")
    x = rng.standard_normal((20, 200)).astype(np.float32)
    want = x @ weights[0] @ weights[1] @ weights[2]
    results = [shlo_jit.compile(source)(x) for source in (path, path, path.read_text(encoding="utf-8"))]
    for found in results:
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-2)
        assert found.tobytes() == results[0].tobytes()
    kept = {path.name for path in (tmp_path / "cache").iterdir()}
    brought = {f"constant-{hashlib.sha256(w.tobytes()).hexdigest()}.shlo" for w in weights}
    assert kept and not kept & brought, "the program brings its literals itself"
