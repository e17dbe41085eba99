"""custom_call of LAPACK routines: machine code that calls them, matrix by matrix, with no Python in between.

Matrices come column-major: the pass `explicit_layouts` has made the transposes explicit, so a program's row-major
tensor of shape [..., columns, rows] is the matrix LAPACK sees. Routines that work in place get a copy of the operand,
in the result's buffer. Workspaces are part of the program's arena; their sizes are those the routines document, with
room for blocks of BLOCK columns where a routine runs faster with it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shlo_jit.codegen import lapack as library
from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.plan import OpStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.builder import Builder, ModuleText, V, const
from shlo_jit.lower.kernels.lapack.calls import Call, read_call
from shlo_jit.lower.kernels.lapack.eigen import EIGEN_ROUTINES
from shlo_jit.lower.kernels.lapack.writer import BLOCK, Writer
from shlo_jit.ops.lapack_records import lapack_target

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering

__all__ = ["is_lapack", "lower", "scratch"]


def is_lapack(target: str) -> bool:
    """Whether a custom call of this name is ours to make."""
    return lapack_target(target) is not None


def potrf(w: Writer) -> None:
    n = w.columns("x")
    w.copy("x")
    w.call("potrf", w.char("uplo"), w.int(n), w.result("x"), w.ld(n), w.result("info"))


def getrf(w: Writer) -> None:
    m, n = w.rows("x"), w.columns("x")
    w.copy("x")
    w.call("getrf", w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("ipiv"), w.result("info"))


def geqrf(w: Writer) -> None:
    m, n = w.rows("x"), w.columns("x")
    w.copy("x")
    work, size = w.work(n * BLOCK)
    w.call("geqrf", w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("tau"), work, size, w.info())


def geqp3(w: Writer) -> None:
    m, n = w.rows("x"), w.columns("x")
    w.copy("x")
    w.copy("jpvt")
    work, size = w.work(2 * n + (n + 1) * BLOCK)
    rwork = [w.real_work(2 * n)] if w.call_.is_complex else []
    w.call(
        "geqp3", w.int(m), w.int(n), w.result("x"), w.ld(m), w.result("jpvt"), w.result("tau"), work, size, *rwork,
        w.info(),
    )  # fmt: skip


def orgqr(w: Writer) -> None:
    m, n, k = w.rows("x"), w.columns("x"), w.length("tau")
    w.copy("x")
    work, size = w.work(n * BLOCK)
    name = "ungqr" if w.call_.is_complex else "orgqr"
    w.call(name, w.int(m), w.int(n), w.int(k), w.result("x"), w.ld(m), w.operand("tau"), work, size, w.info())


def ormqr(w: Writer) -> None:
    m, n, k = w.rows("c"), w.columns("c"), w.length("tau")
    w.copy("c")
    a = w.copied(w.operand("a"), math.prod(w.core("a")))  # the routine writes to it, and restores it
    work, size = w.work((max(m, n) + BLOCK + 1) * BLOCK)
    side = "L" if w.option("left") else "R"
    turn = "N" if not w.option("transpose") else "C" if w.call_.is_complex else "T"
    name = "unmqr" if w.call_.is_complex else "ormqr"
    w.call(
        name, w.text(side), w.text(turn), w.int(m), w.int(n), w.int(k), a, w.ld(w.rows("a")),
        w.operand("tau"), w.result("c"), w.ld(m), work, size, w.info(),
    )  # fmt: skip


def gtsv(w: Writer) -> None:
    n, columns = w.length("d"), w.columns("b")
    for name in ("dl", "d", "du", "b"):
        w.copy(name)
    lower = w.skip(w.result("dl"), w.length("dl") - n + 1)  # its first element belongs to no row
    w.call(
        "gtsv", w.int(n), w.int(columns), lower, w.result("d"), w.result("du"), w.result("b"), w.ld(n),
        w.result("info"),
    )  # fmt: skip


def gtsv_perturbed(w: Writer) -> None:
    """The solution by way of the factors L U, with pivots that are too small to divide by replaced: by the precision
    times the largest element."""
    n, columns = w.length("d"), w.columns("b")
    w.copy("b")
    if n == 0:
        return
    lower = w.skip(w.operand("dl"), w.length("dl") - n + 1)
    sources = ((lower, n - 1), (w.operand("d"), n), (w.operand("du"), n - 1))
    dl, d, du = (w.copied(source, length) for source, length in sources)
    tiny = w.tiny()
    small = w.b.fmul(w.largest(((dl, n - 1), (d, n), (du, n - 1))), w.precision())
    small = w.b.intrinsic("maxnum", w.part, [small, tiny])
    second, swaps, order = w.take((n - 1) * w.itemsize), w.int_work(n), w.int(n)
    w.call("gttrf", order, dl, d, du, second, swaps, w.info())
    with w.b.loop(0, n, 1, "pivot") as i:
        w.keep_away_from_zero(d, i, tiny, small)
    w.call(
        "gttrs", w.text("N"), order, w.int(columns), dl, d, du, second, swaps, w.result("b"), w.ld(n), w.info(),
    )  # fmt: skip


def trsm(w: Writer) -> None:
    m, n = w.rows("b"), w.columns("b")
    w.copy("b")
    alpha = w.whole("alpha") if "alpha" in w.call_.operands else w.one()
    order = m if w.option("side") == "L" else n
    w.call(
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
"""What writes the body of the loop over the batch."""


def _batch(call: Call) -> tuple[int, int]:
    """Number of batch dimensions and how many matrices there are in them."""
    matrix = max(call.operands.values(), key=lambda v: v.tensor.rank)
    dims = matrix.tensor.rank - 2
    return dims, math.prod(matrix.tensor.extents[:dims])


def _write(b: Builder, call: Call, pointers: dict[Value, V], work: V) -> Writer:
    """The loop over the batch; the writer knows the scratch memory it took."""
    dims, count = _batch(call)
    with b.loop(0, count, 1, "matrix") as i:
        writer = Writer(b, call, pointers, work, i, dims)
        ROUTINES[call.routine](writer)
    return writer


def scratch(low: ProgramLowering, step: OpStep) -> int:
    """Bytes of workspaces: what a trial run of the writer takes."""
    call = read_call(step.op)
    if not library.is_available():
        target = step.op.attributes["call_target_name"]
        raise UnsupportedError(diagnose(f"custom_call: @{target} {library.MISSING}", step.op.span))
    trial = ModuleText(low.target).function("trial", [])
    values = [*step.op.operands, *step.op.results]
    return _write(trial, call, dict.fromkeys(values, const("ptr", 0)), const("ptr", 0)).taken


def lower(low: ProgramLowering, step: OpStep) -> None:
    call = read_call(step.op)
    if _batch(call)[1] == 0:
        return
    values = list(dict.fromkeys([*call.operands.values(), *call.results.values()]))
    pointers = [low.pointer(v) for v in values]
    pointers.append(low.scratch(step) if id(step) in low.memory.scratch else const("ptr", 0))
    hint = f"lapack_{call.letter}{call.routine}"
    name = low.new_name(hint)
    params = [("ptr", f"p{i}") for i in range(len(pointers))]
    b = low.module.function(name, params, attributes="nounwind")
    writer = _write(b, call, dict(zip(values, b.params, strict=False)), b.params[-1])
    b.ret()
    low.externals.update(writer.symbols)
    low.b.call("void", low.share(hint, name), pointers, declare=False)
