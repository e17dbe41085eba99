"""Products whose decisions the caller gives: what the routine can do, the memory it needs, its further parameters.

The routine of tiles, or of skinny tiles, decides by shape (`policy.py`). A second form of it takes a `Blocking` as
arguments after those of `GEMM_PARAMS`. The functions here say which decisions it carries out, for sizes that are known.
They return the reason against one, or None.
"""

from __future__ import annotations

from shlo_jit.kernels.gemm import policy
from shlo_jit.kernels.gemm.blocks import a_panel_bytes, shared_a_panel_bytes
from shlo_jit.kernels.gemm.known_sizes import is_phased
from shlo_jit.kernels.gemm.policy import IN_PLACE, PREPACKED, PRIVATE, SHARED, Blocking, Extents
from shlo_jit.kernels.gemm.precision import GemmPlan
from shlo_jit.kernels.gemm.staged_numbers import Ints
from shlo_jit.reasons import Reason

GIVEN_PARAMS = tuple(("i64", name) for name in Blocking._fields)
"""The parameters: the fields of a `Blocking`. Skinny products use `kc` and `nc` only."""


def against_mode_of_a(plan: GemmPlan, s: Extents, mode: int) -> Reason | None:
    """Returns why A is not read in a mode."""
    if mode == PREPACKED:
        return Reason("operand-not-packed-there", "only B can be packed before the product")
    if plan.kind == "amx":
        text = "the tile registers need their own layout, which each task makes"
        return None if mode == PRIVATE else Reason("tile-registers-layout", text)
    joined = plan.joins_a and policy.are_joined(Ints(), plan, s.a_cs, s.k)
    if mode == IN_PLACE and plan.convert[0] and not joined:
        return Reason("elements-converted", "its elements are converted to another type")
    return None


def against_mode_of_b(plan: GemmPlan, s: Extents, mode: int) -> Reason | None:
    """Returns why B, which is not prepacked, is not read in a mode."""
    if mode != IN_PLACE:
        return None
    if plan.convert[1]:
        return Reason("elements-converted", "its elements are converted to another type")
    if not policy.is_adjacent(Ints(), plan, s):
        text = "its rows are not contiguous, or end within a vector"
        return Reason("rows-not-contiguous", text)
    return None


def against_skinny(plan: GemmPlan, s: Extents) -> Reason | None:
    """Returns why skinny tiles do not compute a product."""
    if not policy.has_skinny_path(plan):
        return Reason("leaf-not-there", "skinny tiles need masked vectors, and elements that are not converted")
    if not policy.is_adjacent(Ints(), plan, s) or s.k < 1:
        return Reason("rows-not-contiguous", "skinny tiles read B in place, and its rows are not contiguous")
    return None


def against_pass(plan: GemmPlan, s: Extents, kc: int) -> Reason | None:
    """Returns why a pass over C does not take `kc` elements of k."""
    unit = plan.k_unit
    most = min(plan.prepacked_kc, -(-max(s.k, 1) // unit) * unit)
    if kc % unit or not unit <= kc <= most:
        return Reason("split-out-of-range", f"a pass takes a multiple of {unit} elements of k, from {unit} to {most}")
    return None


def against_rows(plan: GemmPlan, s: Extents, mc: int) -> Reason | None:
    """Returns why a task does not take `mc` rows."""
    return _against_part(mc, s.m, plan.mr, "rows")


def against_columns(plan: GemmPlan, s: Extents, nc: int) -> Reason | None:
    """Returns why a task does not take `nc` columns."""
    return _against_part(nc, s.n, plan.nr, "columns")


def _against_part(part: int, whole: int, unit: int, what: str) -> Reason | None:
    if part == whole or (part % unit == 0 and 0 < part < whole):
        return None
    return Reason("split-out-of-range", f"a task takes a multiple of {unit} {what}, or all {whole}")


def against_group(s: Extents, blocking: Blocking) -> Reason | None:
    """Returns why a task does not compute its rectangle for `group` products."""
    if not 1 <= blocking.group <= s.batch:
        return Reason("group-out-of-range", f"a task computes its rectangle for 1 to {s.batch} products")
    if blocking.group > 1 and is_phased(blocking):
        return Reason("one-product-per-phase", "an operand is packed for all tasks, which then belong to one product")
    return None


def given_scratch_bytes(plan: GemmPlan, s: Extents, blocking: Blocking, threads: int) -> int:
    """Returns the bytes of scratch (aligned to 64) of a product on tiles with these decisions, for any strides."""
    k, panels = min(s.k, blocking.kc), -(-s.n // plan.nr)
    shared = panels * plan.panel_bytes(k) if blocking.mode_b == SHARED else 0
    shared += -(-s.m // plan.mr) * shared_a_panel_bytes(plan, k) if blocking.mode_a == SHARED else 0
    chunk = min(panels, -(-blocking.nc // plan.nr)) * plan.panel_bytes(k) if blocking.mode_b == PRIVATE else 0
    return shared + max(threads, 1) * (a_panel_bytes(plan, True) + chunk) + 64
