"""Calls of LAPACK's eigenvalue and singular value routines (see `lapack.py`)."""

from __future__ import annotations

from shlo_jit.kernels.builder import V, const
from shlo_jit.lower.kernels.lapack.writer import BLOCK, Writer


def gesdd(w: Writer) -> None:
    m, n = w.rows("x"), w.columns("x")
    w.copy("x")
    small, large = min(m, n), max(m, n)
    work, size = w.work(4 * small * small + 7 * small + 3 * large + (m + n) * BLOCK)
    rwork = []
    if w.call_.is_complex:
        rwork = [w.real_work(max(5 * small * small + 7 * small, 2 * large * small + 2 * small * small + small))]
    arguments = [
        w.char("mode"), w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("s"), w.result("u"), w.ld(m),
        w.result("vt"), w.ld(_rows_of_vt(w)), work, size, *rwork, w.int_work(8 * small), w.result("info"),
    ]  # fmt: skip
    w.guarded("gesdd", arguments, w.result("x"), m * n, w.result("info"))


def gesvd(w: Writer) -> None:
    m, n = w.rows("x"), w.columns("x")
    w.copy("x")
    small, large = min(m, n), max(m, n)
    work, size = w.work(small * small + 5 * small + 3 * large + (m + n) * BLOCK)
    rwork = [w.real_work(5 * small)] if w.call_.is_complex else []
    arguments = [
        w.char("mode"), w.char("mode"), w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("s"), w.result("u"),
        w.ld(m), w.result("vt"), w.ld(_rows_of_vt(w)), work, size, *rwork, w.result("info"),
    ]  # fmt: skip
    w.guarded("gesvd", arguments, w.result("x"), m * n, w.result("info"))


def _rows_of_vt(w: Writer) -> int:
    m, n = w.rows("x"), w.columns("x")
    return n if w.option("mode") == "A" else min(m, n)


def syevd(w: Writer) -> None:
    n = w.columns("x")
    w.copy("x")
    head = [w.char("mode"), w.char("uplo"), w.int(n), w.result("x"), w.ld(n), w.result("w")]
    if w.call_.is_complex:
        work, size = w.work(2 * n + n * n + n * BLOCK)
        length = 1 + 5 * n + 2 * n * n
        middle = [work, size, w.real_work(length), w.int(length)]
    else:
        middle = list(w.work(1 + 6 * n + 2 * n * n + n * BLOCK))
    whole = 3 + 5 * n
    name = "heevd" if w.call_.is_complex else "syevd"
    w.call(name, *head, *middle, w.int_work(whole), w.int(whole), w.result("info"))


def sytrd(w: Writer) -> None:
    n = w.columns("x")
    w.copy("x")
    work, size = w.work(n * BLOCK)
    name = "hetrd" if w.call_.is_complex else "sytrd"
    w.call(
        name, w.char("uplo"), w.int(n), w.result("x"), w.ld(n), w.result("d"), w.result("e"), w.result("tau"), work,
        size, w.result("info"),
    )  # fmt: skip


def gehrd(w: Writer) -> None:
    n = w.columns("x")
    w.copy("x")
    work, size = w.work((n + BLOCK + 1) * BLOCK)
    w.call(
        "gehrd", w.int(n), w.int(w.option("low")), w.int(w.option("high")), w.result("x"), w.ld(n), w.result("tau"),
        work, size, w.result("info"),
    )  # fmt: skip


def gees(w: Writer) -> None:
    n = w.columns("x")
    w.copy("x")
    values = [w.result("w")] if w.call_.is_complex else [w.result("wr"), w.result("wi")]
    work, size = w.work(3 * n + n * BLOCK)
    rwork = [w.real_work(n)] if w.call_.is_complex else []
    arguments = [
        w.char("mode"), w.text("N"), const("ptr", 0), w.int(n), w.result("x"), w.ld(n), w.result("sdim"), *values,
        w.result("vs"), w.ld(n), work, size, *rwork, w.int_work(n), w.result("info"),
    ]  # fmt: skip
    w.guarded("gees", arguments, w.result("x"), n * n, w.result("info"))


def geev(w: Writer) -> None:
    n = w.columns("x")
    matrix = w.take(n * n * w.itemsize)
    w.b.memcpy(matrix, w.operand("x"), n * n * w.itemsize)
    work, size = w.work(4 * n + 2 * n * BLOCK)
    head = [w.char("compute_left"), w.char("compute_right"), w.int(n), matrix, w.ld(n)]
    if w.call_.is_complex:
        arguments = [
            *head, w.result("w"), w.result("vl"), w.ld(n), w.result("vr"), w.ld(n), work, size, w.real_work(2 * n),
            w.result("info"),
        ]  # fmt: skip
        w.guarded("geev", arguments, matrix, n * n, w.result("info"))
        return
    wr, wi, left, right = w.result("wr"), w.result("wi"), w.real_work(n * n), w.real_work(n * n)
    arguments = [*head, wr, wi, left, w.ld(n), right, w.ld(n), work, size, w.result("info")]
    w.guarded("geev", arguments, matrix, n * n, w.result("info"))
    for option, packed, name in (("compute_left", left, "vl"), ("compute_right", right, "vr")):
        if w.option(option) == "V":
            _unpack_vectors(w, wi, packed, w.result(name), n)


def _unpack_vectors(w: Writer, wi: V, packed: V, out: V, n: int) -> None:
    """Eigenvectors of a real matrix: a pair of conjugate ones comes as columns (real part, imaginary part), at the
    eigenvalue with positive imaginary part."""
    b, part = w.b, w.part
    zero = const(part, 0.0)
    with b.loop(0, n, 1, "column") as j:
        imaginary = b.load(part, b.element(wi, part, j))
        first, second = b.fcmp("ogt", imaginary, zero), b.fcmp("olt", imaginary, zero)
        last = b.icmp("slt", j, n - 1)
        re_column = b.sub(j, b.cast("zext", b.and_(second, b.icmp("sgt", j, 0)), "i64"))
        im_column = b.add(j, b.cast("zext", b.and_(first, last), "i64"))
        with b.loop(0, n, 1, "row") as i:
            re = b.load(part, b.element(packed, part, b.add(b.mul(re_column, n), i)))
            im = b.load(part, b.element(packed, part, b.add(b.mul(im_column, n), i)))
            im = b.select(first, im, b.select(second, b.fneg(im), zero))
            at = b.mul(b.add(b.mul(j, n), i), 2)
            b.store(re, b.element(out, part, at))
            b.store(im, b.element(out, part, b.add(at, 1)))


EIGEN_ROUTINES = {
    "gesdd": gesdd,
    "gesvd": gesvd,
    "syevd": syevd,
    "sytrd": sytrd,
    "gehrd": gehrd,
    "gees": gees,
    "geev": geev,
}
