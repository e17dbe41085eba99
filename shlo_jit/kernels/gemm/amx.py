"""Products of bf16 and of bytes on the tile registers of AMX (Intel, from Sapphire Rapids on).

A tile register holds 16 rows of 64 bytes. Four of them hold a tile of C of 32 x 32 sums. Two hold 32 rows of A (16
units of k each, so A is packed row by row, or read in place), and two hold 16 steps of a packed B panel. One
instruction multiplies 16 x 16 x 16 units: 5 times the rate of f32 vectors for bf16 and 10 times for bytes.

A process has to request tiles from the operating system before it uses them. If that is refused, a plain loop over the
same panels runs instead; both sum in steps of 16 units, integers exactly.
"""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.gemm.micro import STRIPE_PARAMS, lane_masks, tile_attributes
from shlo_jit.kernels.gemm.pack import PACK_PARAMS
from shlo_jit.kernels.gemm.precision import GemmPlan, itemsize
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.kernels.target import Target

TILE = 16
"""Rows of a tile register, and units in a row."""
SIDE = 2 * TILE


def emit_amx(module: ModuleText, plan: GemmPlan, target: Target) -> None:
    """Emits `<symbol>_stripe`, as `micro.emit_stripe` does, and `<symbol>_pack_a`."""
    _emit_allowed(module, plan, target)
    _emit_pack_rows(module, plan, target)
    b = module.function(f"{plan.symbol}_stripe", STRIPE_PARAMS, linkage="", attributes=tile_attributes(target))
    config = f"{plan.symbol}_config"
    # Palette 1; 64 bytes per row and 16 rows for each of the eight tiles.
    words = [1, 0, *[0x0040004000400040] * 2, 0, 0, 0x1010101010101010, 0]
    module.define_global(config, f"internal constant [8 x i64] [{', '.join(f'i64 {w}' for w in words)}], align 64")
    a, a_rs, a_step, rows, b_first, _, b_panel, c, c_rs, n, k, accumulate, *_ = b.params
    block = b.alloca("i8", SIDE * SIDE * 4)
    allowed = b.icmp("eq", b.call("i64", f"{plan.symbol}_allowed", []), 1)
    with b.if_(allowed):
        b.call("void", "llvm.x86.ldtilecfg", [V("ptr", f"@{config}")])
    with b.loop_carry(0, n, [b_first, c], SIDE) as column:
        b_at, c_at = column.values

        def tiles(b_at: V = b_at) -> list[V]:
            _multiply_tiles(b, plan, (a, a_rs, a_step), b_at, k, block)
            return []

        def plain(b_at: V = b_at) -> list[V]:
            _multiply_plain(b, plan, (a, a_rs, a_step), b_at, k, block, rows)
            return []

        b.if_else(allowed, tiles, plain)
        width = b.min_(b.sub(n, column.index), SIDE)
        _add_block(b, plan, block, c_at, c_rs, rows, width, b.icmp("ne", accumulate, 0))
        column.next(b.offset(b_at, b_panel), b.offset(c_at, SIDE * 4))
    with b.if_(allowed):
        b.call("void", "llvm.x86.tilerelease", [])
    b.ret()


def _number(tile: int) -> V:
    return V("i8 immarg", str(tile))


def _tile(b: Builder, name: str, *args: V) -> None:
    """Emits a tile intrinsic; tile numbers are constants."""
    plain = [V(a.type.removesuffix(" immarg"), a.text) for a in args]
    b.call("void", f"llvm.x86.{name}", plain)


Rows = tuple[V, V, V]
"""A: the address of its first element, and the bytes from row to row and from tile to tile along k."""


def _multiply_tiles(b: Builder, plan: GemmPlan, rows: Rows, panel: V, k: V, block: V) -> None:
    """Emits block[32, 32] = A[32, k] @ panel[k, 32]; tiles 0-3 are sums, 4-5 A, 6-7 B."""
    a, a_rs, a_step = rows
    for t in range(4):
        _tile(b, "tilezero", _number(t))
    signs = {"bf16": "tdpbf16ps"}
    if plan.types.a != "bf16":
        signs[plan.types.a] = f"tdpb{'u' if plan.types.a == 'ui8' else 's'}{'u' if plan.types.b == 'ui8' else 's'}d"
    product = signs[plan.types.a]
    b_stride = i64(plan.b_step)
    second = b.offset(a, b.mul(a_rs, TILE))
    with b.loop_carry(0, k, [a, second, panel], TILE) as step:
        first, second, row = step.values
        _tile(b, "tileloadd64", _number(6), row, b_stride)
        _tile(b, "tileloadd64", _number(4), first, a_rs)
        _tile(b, "tileloadd64", _number(7), b.offset(row, 64), b_stride)
        _tile(b, "tileloadd64", _number(5), second, a_rs)
        for i in (0, 1):
            for j in (0, 1):
                _tile(b, product, _number(2 * i + j), _number(4 + i), _number(6 + j))
        for line in range(0, TILE * plan.b_step, 64):
            b.prefetch(b.offset(row, tuning.GEMM_AMX_PREFETCH * TILE * plan.b_step + line))
        step.next(b.offset(first, a_step), b.offset(second, a_step), b.offset(row, TILE * plan.b_step))
    for i in (0, 1):
        for j in (0, 1):
            to = b.offset(block, (i * TILE * SIDE + j * TILE) * 4)
            _tile(b, "tilestored64", _number(2 * i + j), to, i64(SIDE * 4))


def _multiply_plain(b: Builder, plan: GemmPlan, of: Rows, panel: V, k: V, block: V, rows: V) -> None:
    """Emits the same product without tiles, one row and vector at a time."""
    a, a_rs, a_step = of
    n = plan.lanes
    acc = vector(plan.acc, n)
    width = 32 // plan.group

    def part(x: V, t: int, dtype: str) -> V:
        """Returns element t of the units, in the type of the sums."""
        high = b.shl(x, 32 - width * (t + 1)) if t < plan.group - 1 else x
        if dtype == "bf16":
            word = b.and_(high, const(high.type, -65536))
            return b.bitcast(word, vector("float", n))
        shift = b.lshr if dtype.startswith("ui") else b.ashr
        return shift(high, 32 - width)

    with b.loop(0, rows) as r, b.loop(0, plan.nv) as v:
        row = b.offset(a, b.mul(r, a_rs))
        column = b.offset(panel, b.mul(v, n * 4))
        with b.loop_carry(0, k, [const(acc, 0)]) as step:
            tile = b.offset(row, b.mul(b.udiv(step.index, TILE), a_step))
            x = b.splat(b.load("i32", b.offset(tile, b.mul(b.urem(step.index, TILE), 4)), align=1), n)
            y = b.load(vector("i32", n), b.offset(column, b.mul(step.index, plan.b_step)))
            total = step.values[0]
            for t in range(plan.group):
                p, q = part(x, t, plan.types.a), part(y, t, plan.types.b)
                total = b.fma(p, q, total) if plan.acc == "float" else b.add(total, b.mul(p, q))
            step.next(total)
        b.store(step.values[0], b.offset(block, b.add(b.mul(r, SIDE * 4), b.mul(v, n * 4))))


def _add_block(b: Builder, plan: GemmPlan, block: V, c: V, c_rs: V, rows: V, width: V, more: V) -> None:
    """Emits C = (more ? C : 0) + block, for the rows and columns that exist."""
    masks = lane_masks(b, plan, width, plan.nv)
    type_ = vector(plan.acc, plan.lanes)
    none = const(masks[0].type, 0)
    with b.loop(0, rows, hint="row") as r:
        row, source = b.offset(c, b.mul(r, c_rs)), b.offset(block, b.mul(r, SIDE * 4))
        for v, mask in enumerate(masks):
            at = b.offset(row, v * plan.lanes * 4)
            before = b.masked_load(type_, at, b.select(more, mask, none))
            x = b.load(type_, b.offset(source, v * plan.lanes * 4))
            b.masked_store(b.fadd(before, x) if plan.acc == "float" else b.add(before, x), at, mask)


def _emit_pack_rows(module: ModuleText, plan: GemmPlan, target: Target) -> None:
    """Emits `<symbol>_pack_a(PACK_PARAMS)`: tile after tile along k, each of `SIDE` rows of 64 bytes, filled up with
    zeros to `panel_bytes` per row. Without packing, the rows of an A with a power of two columns map to few cache
    sets."""
    b = module.function(f"{plan.symbol}_pack_a", PACK_PARAMS, linkage="", attributes=tile_attributes(target))
    source, j_stride, k_stride, to, _, count, k, row_bytes = b.params
    size = itemsize(plan.types.a)
    element = f"i{8 * size}"
    used = b.mul(k, size)
    adjacent = b.icmp("eq", k_stride, size)
    with b.loop(0, count, hint="row") as j:
        row, at = b.offset(to, b.mul(j, 64)), b.offset(source, b.mul(j, j_stride))
        with b.loop(0, row_bytes, 64, hint="tile") as t:
            there, left = b.offset(row, b.mul(t, SIDE)), b.min_(b.sub(used, t), 64)

            def copy(t: V = t, there: V = there, left: V = left, at: V = at) -> list[V]:
                mask = _first_bytes(b, left)
                b.store(b.masked_load("<64 x i8>", b.offset(at, t), mask), there)
                return []

            def one_by_one(t: V = t, there: V = there, left: V = left, at: V = at) -> list[V]:
                b.store(const("<64 x i8>", 0), there)
                first = b.offset(at, b.mul(b.udiv(t, size), k_stride))
                with b.loop(0, b.udiv(left, size)) as kk:
                    b.store(b.load(element, b.offset(first, b.mul(kk, k_stride))), b.offset(there, b.mul(kk, size)))
                return []

            b.if_else(adjacent, copy, one_by_one)
    b.ret()


def _first_bytes(b: Builder, count: V) -> V:
    """Returns a mask of the first `count` (1 to 64) of 64 bytes."""
    word = b.lshr(i64(-1), b.sub(64, count))
    return b.emit("<64 x i1>", f"bitcast i64 {word.text} to <64 x i1>")


def _emit_allowed(module: ModuleText, plan: GemmPlan, target: Target) -> None:
    """Emits `i64 allowed()`: 1 if the operating system lets this process use tiles, 2 if not; it asks once."""
    known = f"{plan.symbol}_known"
    module.define_global(known, "internal global i64 0, align 8")
    b = module.function(f"{plan.symbol}_allowed", [], "i64", attributes=tile_attributes(target))
    cell = V("ptr", f"@{known}")
    before = b.emit("i64", f"load atomic i64, ptr {cell.text} monotonic, align 8")

    def ask() -> list[V]:
        # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
        registers = '"={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"'
        refused = b.emit("i64", f'call i64 asm sideeffect "syscall", {registers}(i64 158, i64 4131, i64 18)')
        answer = b.select(b.icmp("eq", refused, 0), i64(1), i64(2))
        b.line(f"store atomic i64 {answer.text}, ptr {cell.text} monotonic, align 8")
        return [answer]

    b.ret(b.if_else(b.icmp("eq", before, 0), ask, lambda: [before])[0])
