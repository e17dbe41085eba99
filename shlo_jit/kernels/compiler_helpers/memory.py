"""Copies, fills and comparisons of memory, a word at a time where addresses allow it."""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.compiler_helpers.function import begin
from shlo_jit.kernels.llvm_values import V, const, i64
from shlo_jit.kernels.target import Target

_WORD = 8


def _sizes(target: Target) -> str:
    """Returns the type of size_t."""
    return f"i{target.pointer_bits}"


def _words(b: Builder, target: Target, n: V, *pointers: V) -> V:
    """Returns the number of bytes that are copied as words: all whole words, on x86-64 and AArch64 at any address, else
    only if all addresses are aligned."""
    whole = b.and_(n, i64(-_WORD))
    if target.arch in ("x86_64", "aarch64"):
        return whole
    addresses = b.cast("ptrtoint", pointers[0], "i64")
    for p in pointers[1:]:
        addresses = b.or_(addresses, b.cast("ptrtoint", p, "i64"))
    return b.select(b.icmp("eq", b.and_(addresses, i64(_WORD - 1)), i64(0)), whole, i64(0))


def _align(target: Target) -> int:
    return 1 if target.arch in ("x86_64", "aarch64") else _WORD


def _forward(b: Builder, target: Target, to: V, source: V, n: V) -> None:
    words = _words(b, target, n, to, source)
    with b.loop(0, words, _WORD) as at:
        b.store(b.load("i64", b.offset(source, at), _align(target)), b.offset(to, at), _align(target))
    with b.loop(words, n) as at:
        b.store(b.load("i8", b.offset(source, at)), b.offset(to, at))


def _backward(b: Builder, target: Target, to: V, source: V, n: V) -> None:
    words = _words(b, target, n, to, source)
    with b.loop(0, b.sub(n, words)) as done:
        at = b.sub(b.sub(n, 1), done)
        b.store(b.load("i8", b.offset(source, at)), b.offset(to, at))
    with b.loop(0, words, _WORD) as done:
        at = b.sub(b.sub(words, _WORD), done)
        b.store(b.load("i64", b.offset(source, at), _align(target)), b.offset(to, at), _align(target))


def _copy(module: ModuleText, name: str, target: Target) -> None:
    """Emits ptr memcpy(ptr to, ptr source, size_t n) or ptr memmove(...)."""
    b = begin(module, name, [("ptr", "to"), ("ptr", "source"), (_sizes(target), "n")], "ptr")
    to, source, n = b.params
    n = b.cast("zext", n, "i64")
    if name == "memcpy":
        _forward(b, target, to, source, n)
        b.ret(to)
        return
    ahead = b.sub(b.cast("ptrtoint", to, "i64"), b.cast("ptrtoint", source, "i64"))
    forward, backward, end = (b.label(hint) for hint in ("forward", "backward", "end"))
    b.branch_if(b.icmp("ult", ahead, n), backward, forward)  # `to` lies inside the part that is still to be read
    for label, write in ((forward, _forward), (backward, _backward)):
        b.start(label)
        write(b, target, to, source, n)
        b.branch(end)
    b.start(end)
    b.ret(to)


def _fill(module: ModuleText, name: str, target: Target) -> None:
    """Emits ptr memset(ptr to, i32 byte, size_t n)."""
    b = begin(module, name, [("ptr", "to"), ("i32", "byte"), (_sizes(target), "n")], "ptr")
    to, byte, n = b.params
    n = b.cast("zext", n, "i64")
    byte = b.cast("trunc", byte, "i8")
    word = b.mul(b.cast("zext", byte, "i64"), i64(0x0101010101010101))
    words = _words(b, target, n, to)
    with b.loop(0, words, _WORD) as at:
        b.store(word, b.offset(to, at), _align(target))
    with b.loop(words, n) as at:
        b.store(byte, b.offset(to, at))
    b.ret(to)


def _compare(module: ModuleText, name: str, target: Target) -> None:
    """Emits i32 memcmp(ptr x, ptr y, size_t n)."""
    b = begin(module, name, [("ptr", "x"), ("ptr", "y"), (_sizes(target), "n")], "i32")
    x, y, n = b.params
    with b.loop(0, b.cast("zext", n, "i64")) as at:
        bytes_ = [b.cast("zext", b.load("i8", b.offset(p, at)), "i32") for p in (x, y)]
        difference = b.sub(*bytes_)
        with b.if_(b.icmp("ne", difference, const("i32", 0))):
            b.ret_early(difference)
    b.ret(const("i32", 0))


WRITERS = {"memcpy": _copy, "memmove": _copy, "memset": _fill, "memcmp": _compare}
