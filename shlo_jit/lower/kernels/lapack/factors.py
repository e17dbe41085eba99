"""Lowers custom_call of LAPACK routines: machine code that calls them, matrix by matrix, with no Python in between.

Routines that work in place get a copy of the operand, in the result's buffer. Other workspaces are decided in
`schedule/lapack.py`.
"""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.lower.kernels.lapack.call_writer import Writer
from shlo_jit.lower.kernels.lapack.eigen import EIGEN_ROUTINES
from shlo_jit.lower.services import Services
from shlo_jit.schedule.lapack import LapackSchedule


def potrf(w: Writer) -> None:
    n = w.call.columns("x")
    w.copy("x")
    w.invoke("potrf", w.char("uplo"), w.int(n), w.result("x"), w.ld(n), w.result("info"))


def getrf(w: Writer) -> None:
    m, n = w.call.rows("x"), w.call.columns("x")
    w.copy("x")
    w.invoke("getrf", w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("ipiv"), w.result("info"))


def geqrf(w: Writer) -> None:
    m, n = w.call.rows("x"), w.call.columns("x")
    w.copy("x")
    work, size = w.sized_workspace("work")
    w.invoke("geqrf", w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("tau"), work, size, w.info())


def geqp3(w: Writer) -> None:
    m, n = w.call.rows("x"), w.call.columns("x")
    w.copy("x")
    w.copy("jpvt")
    work, size = w.sized_workspace("work")
    rwork = w.rwork()
    w.invoke(
        "geqp3", w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("jpvt"), w.result("tau"), work, size, *rwork,
        w.info(),
    )  # fmt: skip


def orgqr(w: Writer) -> None:
    m, n, k = w.call.rows("x"), w.call.columns("x"), w.call.length("tau")
    w.copy("x")
    work, size = w.sized_workspace("work")
    name = "ungqr" if w.call.is_complex else "orgqr"
    w.invoke(name, w.int(m), w.int(n), w.int(k), w.result("x"), w.ld(m), w.operand("tau"), work, size, w.info())


def ormqr(w: Writer) -> None:
    m, n, k = w.call.rows("c"), w.call.columns("c"), w.call.length("tau")
    w.copy("c")
    a = w.copied("a", w.operand("a"))  # the routine modifies it, and restores it
    work, size = w.sized_workspace("work")
    side = "L" if w.option("left") else "R"
    transposition = "N" if not w.option("transpose") else "C" if w.call.is_complex else "T"
    name = "unmqr" if w.call.is_complex else "ormqr"
    w.invoke(
        name, w.text(side), w.text(transposition), w.int(m), w.int(n), w.int(k), a, w.ld(w.call.rows("a")),
        w.operand("tau"), w.result("c"), w.ld(m), work, size, w.info(),
    )  # fmt: skip


def gtsv(w: Writer) -> None:
    n, columns = w.call.length("d"), w.call.columns("b")
    for name in ("dl", "d", "du", "b"):
        w.copy(name)
    lower = w.skip(w.result("dl"), w.call.length("dl") - n + 1)  # its first element belongs to no row
    w.invoke(
        "gtsv", w.int(n), w.int(columns), lower, w.result("d"), w.result("du"), w.result("b"), w.ld(n),
        w.result("info"),
    )  # fmt: skip


def gtsv_perturbed(w: Writer) -> None:
    """Solves by LU factors, with pivots that are too small to divide by replaced: by the precision times the largest
    element."""
    n, columns = w.call.length("d"), w.call.columns("b")
    w.copy("b")
    if n == 0:
        return
    lower = w.skip(w.operand("dl"), w.call.length("dl") - n + 1)
    sources = (("dl", lower), ("d", w.operand("d")), ("du", w.operand("du")))
    dl, d, du = (w.copied(name, source) for name, source in sources)
    tiny = w.tiny()
    small = w.b.fmul(w.largest(((dl, n - 1), (d, n), (du, n - 1))), w.precision())
    small = w.b.intrinsic("maxnum", w.part, [small, tiny])
    second, swaps, order = w.workspace("du2"), w.workspace("ipiv"), w.int(n)
    w.invoke("gttrf", order, dl, d, du, second, swaps, w.info())
    with w.b.loop(0, n, 1, "pivot") as i:
        w.keep_away_from_zero(d, i, tiny, small)
    w.invoke(
        "gttrs", w.text("N"), order, w.int(columns), dl, d, du, second, swaps, w.result("b"), w.ld(n), w.info(),
    )  # fmt: skip


def trsm(w: Writer) -> None:
    m, n = w.call.rows("b"), w.call.columns("b")
    w.copy("b")
    alpha = w.whole("alpha") if "alpha" in w.call.operands else w.one()
    order = m if w.option("side") == "L" else n
    w.invoke(
        "trsm", w.char("side"), w.char("uplo"), w.char("trans_x"), w.char("diag"), w.int(m), w.int(n), alpha,
        w.operand("a"), w.ld(order), w.result("b"), w.ld(m),
    )  # fmt: skip


ROUTINES = {
    "potrf": potrf,
    "getrf": getrf,
    "geqrf": geqrf,
    "geqp3": geqp3,
    "orgqr": orgqr,
    "ormqr": ormqr,
    "gtsv": gtsv,
    "gtsv_perturbed": gtsv_perturbed,
    "trsm": trsm,
    **EIGEN_ROUTINES,
}
"""Functions that emit the body of the loop over the batch."""


def lower(low: Services, step: OpStep, schedule: LapackSchedule) -> None:
    """Writes a function with the loop over the batch, and calls it."""
    call = schedule.call
    values = list(dict.fromkeys([*call.operands.values(), *call.results.values()]))
    pointers = [*(low.pointer(v) for v in values), low.scratch(step)]
    hint = f"lapack_{call.letter}{call.routine}"
    name = low.new_name(hint)
    params = [("ptr", f"p{i}") for i in range(len(pointers))]
    if low.is_symbolic:
        params.append(("ptr", "dims"))
    b = low.module.function(name, params, attributes="nounwind")
    matrices, scratch = dict(zip(values, b.params, strict=False)), b.params[len(values)]
    with b.loop(0, call.count, 1, "matrix") as i:
        writer = Writer(b, schedule, matrices, scratch, i)
        ROUTINES[call.routine](writer)
    b.ret()
    low.externals.update(writer.symbols)
    if low.is_symbolic:
        pointers.append(low.scope.dims)
    low.b.call("void", low.share(hint, name), pointers, declare=False)
