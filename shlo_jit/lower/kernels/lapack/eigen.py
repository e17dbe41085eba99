"""Calls of LAPACK's eigenvalue and singular value routines (see `factors.py`)."""

from __future__ import annotations

from shlo_jit.kernels.llvm_values import V, const
from shlo_jit.lower.kernels.lapack.call_writer import Writer


def gesdd(w: Writer) -> None:
    m, n = w.call.rows("x"), w.call.columns("x")
    w.copy("x")
    work, size = w.sized_workspace("work")
    rwork = w.rwork()
    arguments = [
        w.char("mode"), w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("s"), w.result("u"), w.ld(m),
        w.result("vt"), w.ld(_rows_of_vt(w)), work, size, *rwork, w.workspace("iwork"), w.result("info"),
    ]  # fmt: skip
    w.guarded("gesdd", arguments, w.result("x"), m * n, w.result("info"))


def gesvd(w: Writer) -> None:
    m, n = w.call.rows("x"), w.call.columns("x")
    w.copy("x")
    work, size = w.sized_workspace("work")
    rwork = w.rwork()
    arguments = [
        w.char("mode"), w.char("mode"), w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("s"), w.result("u"),
        w.ld(m), w.result("vt"), w.ld(_rows_of_vt(w)), work, size, *rwork, w.result("info"),
    ]  # fmt: skip
    w.guarded("gesvd", arguments, w.result("x"), m * n, w.result("info"))


def _rows_of_vt(w: Writer) -> int:
    m, n = w.call.rows("x"), w.call.columns("x")
    return n if w.option("mode") == "A" else min(m, n)


def syevd(w: Writer) -> None:
    n = w.call.columns("x")
    w.copy("x")
    head = [w.char("mode"), w.char("uplo"), w.int(n), w.result("x"), w.ld(n), w.result("w")]
    work = w.sized_workspace("work")
    rwork = w.sized_workspace("rwork") if w.call.is_complex else ()
    name = "heevd" if w.call.is_complex else "syevd"
    w.invoke(name, *head, *work, *rwork, *w.sized_workspace("iwork"), w.result("info"))


def sytrd(w: Writer) -> None:
    n = w.call.columns("x")
    w.copy("x")
    work, size = w.sized_workspace("work")
    name = "hetrd" if w.call.is_complex else "sytrd"
    w.invoke(
        name, w.char("uplo"), w.int(n), w.result("x"), w.ld(n), w.result("d"), w.result("e"), w.result("tau"), work,
        size, w.result("info"),
    )  # fmt: skip


def gehrd(w: Writer) -> None:
    n = w.call.columns("x")
    w.copy("x")
    work, size = w.sized_workspace("work")
    w.invoke(
        "gehrd", w.int(n), w.int(w.option("low")), w.int(w.option("high")), w.result("x"), w.ld(n), w.result("tau"),
        work, size, w.result("info"),
    )  # fmt: skip


def gees(w: Writer) -> None:
    n = w.call.columns("x")
    w.copy("x")
    values = [w.result("w")] if w.call.is_complex else [w.result("wr"), w.result("wi")]
    work, size = w.sized_workspace("work")
    rwork = w.rwork()
    arguments = [
        w.char("mode"), w.text("N"), const("ptr", 0), w.int(n), w.result("x"), w.ld(n), w.result("sdim"), *values,
        w.result("vs"), w.ld(n), work, size, *rwork, w.workspace("bwork"), w.result("info"),
    ]  # fmt: skip
    w.guarded("gees", arguments, w.result("x"), n * n, w.result("info"))


def geev(w: Writer) -> None:
    n = w.call.columns("x")
    matrix = w.copied("x", w.operand("x"))
    work, size = w.sized_workspace("work")
    head = [w.char("compute_left"), w.char("compute_right"), w.int(n), matrix, w.ld(n)]
    if w.call.is_complex:
        arguments = [
            *head, w.result("w"), w.result("vl"), w.ld(n), w.result("vr"), w.ld(n), work, size, *w.rwork(),
            w.result("info"),
        ]  # fmt: skip
        w.guarded("geev", arguments, matrix, n * n, w.result("info"))
        return
    wr, wi, left, right = w.result("wr"), w.result("wi"), w.workspace("vl"), w.workspace("vr")
    arguments = [*head, wr, wi, left, w.ld(n), right, w.ld(n), work, size, w.result("info")]
    w.guarded("geev", arguments, matrix, n * n, w.result("info"))
    for option, packed, name in (("compute_left", left, "vl"), ("compute_right", right, "vr")):
        if w.option(option) == "V":
            _unpack_vectors(w, wi, packed, w.result(name), n)


def _unpack_vectors(w: Writer, wi: V, packed: V, out: V, n: int) -> None:
    """Unpacks the eigenvectors of a real matrix. A pair of conjugate ones comes as columns (real part, imaginary part),
    at the eigenvalue with positive imaginary part."""
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
