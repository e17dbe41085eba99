"""Replaces calls of LAPACK by loops of core ops, whose sums have a fixed order.

Needs: row-major tensors. Guarantees: with `reproducible`, or where there is no LAPACK, no call of a routine of
`ROUTINES` is left. Those for general eigenvalues, `geev` and `gees`, stay calls.

    custom_call @lapack_sgetrf_ffi(x)   ->   while k < min(m, n): eliminate column k
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.attributes import EnumAttr
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import I32
from shlo_jit.ops.lapack_records import lapack_target
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.factorizations import eliminations, reflectors, rotations
from shlo_jit.passes.factorizations.lapack_call import Call, read_call
from shlo_jit.passes.factorizations.matrices import COLUMNS, ROWS, Matrices
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import NotSymbolic

Results = dict[str, Matrices]


def own_factorizations(function: Op, context: Context) -> Op:
    """The function without calls of LAPACK that have an equivalent here."""
    calls = [op for op in walk(function.block()) if _routine(op, context) in ROUTINES]
    if not calls or not (context.reproducible or not context.has_lapack()):
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        routine = _routine(op, context)
        return _Factorization(rw, op, operands).results() if routine in ROUTINES else None

    return rewrite(function, visit)


def _routine(op: Op, context: Context) -> str:
    """The routine that an op calls; empty if it calls none."""
    if op.name != "stablehlo.custom_call" or context.is_registered(op.attributes["call_target_name"]):
        return ""
    found = lapack_target(op.attributes["call_target_name"])
    return found[1] if found else ""


class _Factorization:
    """The expansion of one call."""

    def __init__(self, rw: Rewriter, op: Op, operands: list[Value]) -> None:
        self.rw, self.op = rw, op
        self.call: Call = read_call(op)
        self.given = dict(zip(op.operands, operands, strict=True))
        if not all(v.tensor.is_fixed for v in (*op.operands, *op.results) if mk.is_static(v)):
            raise NotSymbolic("fixed-shapes-only", "factorizations have fixed shapes only")

    def option(self, name: str) -> object:
        return self.call.options.get(name)

    def matrix(self, name: str) -> Matrices:
        """An operand as [count, rows, columns]."""
        shape = (self.call.count, *self.call.core(name))
        return Matrices(self.rw, mk.reshape(self.rw, self._value(name), shape)).transpose()

    def row(self, name: str) -> Matrices:
        """A vector as [count, 1, length]."""
        shape = (self.call.count, 1, self.call.length(name))
        return Matrices(self.rw, mk.reshape(self.rw, self._value(name), shape))

    def _value(self, name: str) -> Value:
        return self.given[self.call.operands[name]]

    def results(self) -> list[Value]:
        """The values of the results. Workspaces, which old targets return, are zeros."""
        found = ROUTINES[self.call.routine](self) if self.call.count else {}
        names = {v: name for name, v in self.call.results.items()}
        return [self._result(names.get(v), v, found) for v in self.op.results]

    def _result(self, name: str | None, result: Value, found: Results) -> Value:
        t = result.tensor
        value = found.get(name or "")
        if value is None:
            return mk.constant(self.rw, t, 0)
        if len(self.call.core(name or "")) == 2:
            value = value.transpose()
        return mk.convert(self.rw, mk.reshape(self.rw, value.value, t.extents), t.storage)


def _cholesky(f: _Factorization) -> Results:
    x, lower = f.matrix("x"), f.option("uplo") == "L"
    found = Matrices(f.rw, f.rw.emit1("stablehlo.cholesky", [x.value], x.value.tensor, {"lower": lower}))
    rows, columns = x.index(ROWS), x.index(COLUMNS)
    diagonal = found.real().chosen(rows.equals(columns), ROWS)
    wrong = (~(diagonal > 0)).first(COLUMNS) + 1
    is_factor = rows >= columns if lower else rows <= columns
    return {"x": found.where(is_factor, x), "info": wrong.where(wrong <= x.shape[ROWS], 0)}


def _lu(f: _Factorization) -> Results:
    x, pivots, info = eliminations.lu(f.matrix("x"))
    return {"x": x, "ipiv": pivots, "info": info}


def _qr(f: _Factorization) -> Results:
    x, tau = reflectors.qr(f.matrix("x"))
    return {"x": x, "tau": tau}


def _pivoted_qr(f: _Factorization) -> Results:
    x, tau, order = reflectors.pivoted_qr(f.matrix("x"), f.row("jpvt"))
    return {"x": x, "tau": tau, "jpvt": order}


def _orthogonal(f: _Factorization) -> Results:
    x = f.matrix("x")
    return {"x": reflectors.orthogonal(x, f.row("tau"), x.shape[COLUMNS])}


def _apply_orthogonal(f: _Factorization) -> Results:
    """c Q is (Q^H c^H)^H."""
    a, tau, c = f.matrix("a"), f.row("tau"), f.matrix("c")
    left, adjoint = bool(f.option("left")), bool(f.option("transpose"))
    found = reflectors.apply_reflectors(a, tau, c if left else c.adjoint(), adjoint=adjoint == left)
    return {"c": found if left else found.adjoint()}


def _svd(f: _Factorization) -> Results:
    mode = f.option("mode")
    found = rotations.svd(f.matrix("x"), mode != "N", mode == "A")
    results = {"s": found.s, "info": _failed(found.converged)}
    if found.u is not None and found.vt is not None:
        results |= {"u": found.u, "vt": found.vt}
    return results


def _failed(converged: Matrices) -> Matrices:
    return (~converged).convert(I32)


def _hermitian(f: _Factorization) -> Matrices:
    """The whole matrix of which one triangle is given."""
    x = f.matrix("x")
    rows, columns = x.index(ROWS), x.index(COLUMNS)
    is_given = rows > columns if f.option("uplo") == "L" else rows < columns
    diagonal = x.real().as_complex() if x.is_complex else x
    return x.where(is_given, diagonal.where(rows.equals(columns), x.adjoint()))


def _eigen(f: _Factorization) -> Results:
    vectors = f.option("mode") == "V"
    w, v, converged = rotations.hermitian_eigen(_hermitian(f), vectors)
    return {"w": w, "info": _failed(converged), **({} if v is None else {"x": v})}


def _hessenberg(f: _Factorization) -> Results:
    x, tau = reflectors.hessenberg(f.matrix("x"), f.call.options["low"], f.call.options["high"])
    return {"x": x, "tau": tau}


def _tridiagonal(f: _Factorization) -> Results:
    """The upper triangle is the lower one of the matrix with rows and columns in opposite order."""
    x, a, lower = f.matrix("x"), _hermitian(f), f.option("uplo") == "L"
    form, d, e, tau = reflectors.tridiagonal(a if lower else a.reversed())
    if not lower:
        form, d, e, tau = (v.reversed() for v in (form, d, e, tau))
    rows, columns = x.index(ROWS), x.index(COLUMNS)
    return {"x": form.where(rows >= columns if lower else rows <= columns, x), "d": d, "e": e, "tau": tau}


def _diagonals(f: _Factorization) -> tuple[Matrices, Matrices, Matrices]:
    """The three diagonals as columns. The outer ones end with a zero."""
    n = f.call.length("d")
    low, high = f.row("dl"), f.row("du").part(COLUMNS, 0, n - 1)
    low = low.part(COLUMNS, low.shape[COLUMNS] - n + 1, low.shape[COLUMNS])
    low, high = (v.padded(1, n).swapped_axes() for v in (low, high))
    return low, f.row("d").swapped_axes(), high


def _tridiagonal_solve(f: _Factorization) -> Results:
    n = f.call.length("d")
    if n == 0:
        return {}
    t = eliminations.factor_tridiagonal(*_diagonals(f), f.matrix("b"))
    zero = t.diagonal.equals(0).first(ROWS) + 1
    second = t.second.part(ROWS, 0, n - 1).swapped_axes()
    width = f.call.length("dl")
    found = {"dl": second if width == n - 1 else _shifted(second), "d": t.diagonal, "b": eliminations.solve_factored(t)}
    above = t.above if f.call.length("du") == n else t.above.part(ROWS, 0, n - 1)
    return {**found, "du": above, "info": zero.where(zero <= n, 0)}


def _shifted(row: Matrices) -> Matrices:
    """A row after a zero."""
    return Matrices(row.rw, mk.pad(row.rw, row.value, 0, [0, 0, 1], [0, 0, 0], [0, 0, 0]))


def _perturbed_solve(f: _Factorization) -> Results:
    if f.call.length("d") == 0:
        return {}
    given = _diagonals(f)
    t = eliminations.factor_tridiagonal(*given, f.matrix("b"))
    return {"b": eliminations.solve_factored(eliminations.away_from_zero(t, given))}


def _triangular_solve(f: _Factorization) -> Results:
    a, b = f.matrix("a"), f.matrix("b")
    if "alpha" in f.call.operands:
        alpha = Matrices(f.rw, mk.reshape(f.rw, f._value("alpha"), (1, 1, 1)))
        b = b * alpha
    kind = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[str(f.option("trans_x"))]
    attributes = {
        "left_side": f.option("side") == "L",
        "lower": f.option("uplo") == "L",
        "unit_diagonal": f.option("diag") == "U",
        "transpose_a": EnumAttr("stablehlo", "transpose", kind),
    }
    x = f.rw.emit1("stablehlo.triangular_solve", [a.value, b.value], b.value.tensor, attributes)
    return {"b": Matrices(f.rw, x)}


ROUTINES: dict[str, Callable[[_Factorization], Results]] = {
    "potrf": _cholesky,
    "getrf": _lu,
    "geqrf": _qr,
    "geqp3": _pivoted_qr,
    "orgqr": _orthogonal,
    "ormqr": _apply_orthogonal,
    "gesdd": _svd,
    "gesvd": _svd,
    "syevd": _eigen,
    "gehrd": _hessenberg,
    "sytrd": _tridiagonal,
    "gtsv": _tridiagonal_solve,
    "gtsv_perturbed": _perturbed_solve,
    "trsm": _triangular_solve,
}
"""Routine of LAPACK -> its results as core ops."""
