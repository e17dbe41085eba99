"""A nest as an LLVM function: its loops, its passes over the reduced variables, its vectors and tails.

    void @name(ptr buffers..., i64 first, i64 last)

runs the units [first, last) of the nest's rows. A unit is one turn of the outer row loops, or, where the vector
variable is the only row variable, a chunk of it. The cut into units depends on shapes alone.

A nest with reduce variables runs in passes: pass 0 walks the row for every reduce whose operands need no other reduce,
pass 1 for those that need results of pass 0, and so on; stores of whole rows happen in the pass where their value is
known. Softmax is three passes over a row that stays in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shlo_jit.errors import UnsupportedError, diagnose
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Key, Nest, Store
from shlo_jit.ir.core import Op, Value
from shlo_jit.kernels.builder import V, Builder, ModuleText, bits, const, i64, lanes, vector, vector_literal
from shlo_jit.kernels.target import Target
from shlo_jit.lower.evaluate import INDEX_MAPS, Evaluator, Frame
from shlo_jit.lower.reducers import Reducer, across, reducer_of
from shlo_jit.lower.registers import Reg, is_pair, register_type, widen
from shlo_jit.lower.space import Space, Tile, make_space, tile_space

TASK_WORK = 1 << 15
"""Element operations a task should have, so that handing it over costs little."""
PARALLEL_WORK = 1 << 17
"""Element operations below which a nest runs on the caller."""
MAX_TASKS = 64
STREAM_BYTES = 1 << 23
"""Bytes of an output from which a plain loop writes it with non-temporal stores."""
MIN_UNITS = 8
"""Row units below which a large reduction is split along the row."""


STASH_COST = 8
"""Cost of an op above which its result is kept for a later pass rather than computed again."""
MAX_STASH = 1 << 17
"""Bytes of a row's intermediate results that are kept from one pass to the next."""


@dataclass
class Schedule:
    """How a nest's function is to be called."""

    units: int
    tasks: int
    """1: call it directly with (0, units)."""
    split: bool = False
    """Units are chunks of the outermost reduced variable: each leaves partial results in scratch memory, and a second
    function, called once, combines them in order and finishes the rows."""

    @property
    def grain(self) -> int:
        return -(-self.units // self.tasks)


class NestLowering:
    def __init__(self, nest: Nest, target: Target, tile: Tile | None = None):
        self.nest = nest
        self.target = target
        self.reduces: dict[Op, Reducer] = {}
        for node in nest.nodes.values():
            if node.op.name == "stablehlo.reduce" and node.op not in self.reduces:
                self.reduces[node.op] = reducer_of(node.op)
        scalar = any(r.simple is None for r in self.reduces.values())
        self.space: Space = make_space(nest, target, scalar) if tile is None else tile_space(nest, target, tile)
        self.reduced = set(nest.reduce_vars)
        self.phases: dict[Key, int] = {}
        self._row: dict[Key, bool] = {}
        self.unroll = self.choose_unroll()
        self.chunk = self.choose_chunk()
        self.schedule = self.choose_schedule()

    # ------------------------------------------------------------------ decisions
    def heavy(self) -> int:
        return sum(cost(n.op) for n in self.nest.nodes.values())

    def choose_unroll(self) -> int:
        """Vectors a turn of the vector loop handles: several for small bodies, to hide latency."""
        space = self.space
        if space.vector is None:
            return 1
        turns = space.extents[space.vector] // space.width
        size = len(self.nest.nodes) + len(self.nest.loads)
        along_rows = space.vector in space.rows
        if self.reduced and along_rows and space.inner:
            limit = 16 if size <= 4 else 4 if size <= 12 else 1
            limit = min(limit, self.target.vector_registers // 2)
        elif self.reduced:
            limit = 4 if size <= 24 else 2
        else:
            limit = 4 if size <= 8 else 2 if size <= 16 and self.heavy() < 40 else 1
        while limit > 1 and turns < limit:
            limit //= 2
        return limit

    def parallel_rows(self) -> list[int]:
        rows = [v for v in self.space.rows if v != self.space.vector]
        return rows

    def choose_chunk(self) -> int:
        """Elements of the vector variable a unit has, when that is the only row variable; 0 otherwise."""
        space = self.space
        if space.vector not in space.rows or self.parallel_rows():
            return 0
        assert space.vector is not None
        step = space.width * self.unroll
        work = max(1, self.heavy() + len(self.nest.loads)) * self.nest.reduced
        blocks = max(1, TASK_WORK // (step * work))
        return step * blocks

    def choose_schedule(self) -> Schedule:
        space = self.space
        if self.chunk:
            assert space.vector is not None
            units = -(-space.extents[space.vector] // self.chunk)
        else:
            units = 1
            for v in self.parallel_rows():
                units *= space.extents[v]
        work = max(1, self.heavy() + len(self.nest.loads) + 1) * self.nest.rows * self.nest.reduced
        if work >= PARALLEL_WORK and units < MIN_UNITS and self.can_split():
            self.split_chunk, chunks = self.choose_split(work)
            if chunks > 1:
                return Schedule(chunks, chunks, True)
        if work < PARALLEL_WORK or units < 2:
            return Schedule(units, 1)
        return Schedule(units, max(1, min(MAX_TASKS, units, work // TASK_WORK)))

    def can_split(self) -> bool:
        """One pass of simple reducers, and nothing stored inside it."""
        if not self.space.inner or any(r.simple is None for r in self.reduces.values()):
            return False
        if any(self.inside(s) for s in self.nest.stores):
            return False
        return all(self.phase(k) == 1 for k, n in self.nest.nodes.items() if n.op in self.reduces)

    def choose_split(self, work: int) -> tuple[int, int]:
        """Elements of the outermost reduced variable a chunk has, and the number of chunks."""
        v = self.space.inner[0]
        extent = self.space.extents[v]
        step = self.space.width * self.unroll if v == self.space.vector else 1
        tasks = max(1, min(MAX_TASKS, work // TASK_WORK))
        chunk = -(-extent // tasks)
        chunk = -(-chunk // step) * step
        return chunk, -(-extent // chunk)

    # ------------------------------------------------------------------ partial results
    def partials(self) -> list[tuple[str, int]]:
        """Of a split nest: memory type and byte offset in scratch of every accumulator part."""
        out, offset = [], 0
        for op, _ in self.reduces_of(0):
            for r in flatten([self.reduces[op].neutral()]):
                out.append((r.type, offset))
                size = max(1, bits(r.type) // 8) * self.schedule.units * self.nest.rows
                offset += -(-size // 64) * 64
        self._partial_bytes = offset
        return out

    def scratch_bytes(self) -> int:
        if not self.schedule.split:
            return 0
        self.partials()
        return self._partial_bytes

    def row_number(self, frame: Frame) -> V:
        """Number of the row (of the first of a vector's rows)."""
        number, size = i64(0), 1
        for v in reversed(self.space.rows):
            number = self.b.add(number, self.b.mul(frame.variables[v], size))
            size *= self.space.extents[v]
        return number

    def partial_address(self, frame: Frame, chunk: V, part: tuple[str, int]) -> V:
        b, (kind, offset) = self.b, part
        place = b.add(b.mul(chunk, self.nest.rows), self.row_number(frame))
        return b.element(b.offset(self.scratch, offset), memory_of(kind), place)

    def save_partials(self, frames: list[Frame], values: list[V]) -> None:
        """Store accumulators of the chunk at hand, frame by frame."""
        parts = self.partials()
        n = len(parts)
        for i, f in enumerate(frames):
            for part, x in zip(parts, values[i * n : (i + 1) * n], strict=True):
                x = self.b.cast("zext", x, "i8") if bits(x.type) == 1 else x
                address = self.partial_address(f, self.chunk_number, part)
                if f.mask is not None and lanes(x.type) > 1:
                    self.b.masked_store(x, address, f.mask)
                else:
                    self.b.store(x, address)

    def load_partials(self, frames: list[Frame], reduces) -> None:
        """Combine the chunks in order, then with the initial values."""
        b, parts = self.b, self.partials()
        for f in frames:
            width = f.width if self.space.vector in self.space.rows else 1
            like = [[widen(b, self.reduces[op].neutral(), width)] for op, _ in reduces]

            def read(chunk: V, f: Frame = f, width: int = width) -> list[V]:
                out = []
                for part in parts:
                    address, kind = self.partial_address(f, chunk, part), vector(memory_of(part[0]), width)
                    mask = f.mask if width > 1 else None
                    x = b.load(kind, address) if mask is None else b.masked_load(kind, address, mask)
                    out.append(b.cast("trunc", x, "i1") if part[0] == "i1" else x)
                return out

            with b.loop_carry(1, self.schedule.units, read(i64(0)), 1, "chunks") as carry:
                before, here = regroup(carry.values, like), regroup(read(carry.index), like)
                new: list[Reg] = []
                for (op, _), x, y in zip(reduces, before, here, strict=True):
                    new += self.reduces[op].combine(b, x, y)
                carry.next(*flatten(new))
            for (op, keys), total in zip(reduces, regroup(carry.values, like), strict=True):
                n = len(op.results)
                start = [self.ev.value(f, k) for k in self.nest.nodes[keys[0]].operands[n:]]
                start = self.reduces[op].enter(b, [widen(b, x, width) for x in start])
                self.finish(f, op, keys, self.reduces[op].combine(b, start, total))

    # ------------------------------------------------------------------ classification
    def in_row(self, key: Key) -> bool:
        """Whether a value belongs to the row: it does not vary over the reduced variables."""
        found = self._row.get(key)
        if found is None:
            found = self._row[key] = not self.space.depends(key[1], set(self.space.inner))
        return found

    def phase(self, key: Key) -> int:
        """Passes that must have run before the value can be computed in (or, for a row's value, after) one."""
        found = self.phases.get(key)
        if found is None:
            node = self.nest.nodes.get(key)
            found = 0
            if node is not None:
                found = max((self.phase(o) for o in node.operands), default=0)
                if node.op.name == "stablehlo.reduce":
                    found += 1
            self.phases[key] = found
        return found

    # ------------------------------------------------------------------ the function
    def write(self, module: ModuleText, name: str, buffers: Sequence[tuple[str, list[Value]]], noalias: bool) -> None:
        """Write the function into the module. `buffers`: parameter name and the values that live in it."""
        first, last = self.begin(module, name, buffers, noalias)
        rows = self.parallel_rows()
        if self.schedule.split:
            self.part = "chunk"
            v = self.space.inner[0]
            with self.b.loop(first, last, 1, "chunk") as number:
                self.chunk_number = number
                low = self.b.mul(number, self.split_chunk)
                high = self.b.min_(self.b.add(low, self.split_chunk), self.space.extents[v])
                self.bounds = {v: (low, high)}
                self.all_rows(rows)
            self.bounds = {}
        elif self.chunk:
            self.stream()
            self.chunked(first, last)
        else:
            self.rows_from(rows, first, last)
        self.b.ret()

    def write_finish(self, module: ModuleText, name: str, buffers: Sequence[tuple[str, list[Value]]], noalias: bool) -> None:
        """Of a split nest, the function that combines the partial results and stores the rows."""
        self.begin(module, name, buffers, noalias)
        self.part = "finish"
        self.all_rows(self.parallel_rows())
        self.b.ret()

    def write_epilogue(self, module: ModuleText, name: str, values: list[Value], tile: Tile) -> None:
        """`void @name(ptr frame, i64 batch, i64 i0, i64 i1, i64 j0, i64 j1)`: the nest on a rectangle of a matrix.

        The frame holds the addresses of `values` in order. `tile` says which variables number batches, rows, columns.
        """
        params = [("ptr", "frame"), *(("i64", n) for n in ("batch", "i0", "i1", "j0", "j1"))]
        b = module.function(name, params, attributes="nounwind")
        frame, batch, i0, i1, j0, j1 = b.params
        pointers = {v: b.load("ptr", b.element(frame, "ptr", i), 8, ", !invariant.load !{}") for i, v in enumerate(values)}
        self.start(b, pointers)
        outer = self.decode(tile.batch, batch)
        with b.loop(i0, i1, 1, "row") as i:
            variables = {**outer, **self.decode(tile.rows, i)}
            if self.space.vector is None:
                with b.loop(j0, j1, 1, "column") as j:
                    self.row([Frame({**variables, **self.decode(tile.columns, j)}, 1)])
            else:
                self.columns(variables, j0, j1)
        b.ret()

    def decode(self, order: list[int], number: V) -> dict[int, V]:
        """The values of variables (outermost first) that a running number stands for."""
        out: dict[int, V] = {}
        for v in reversed(order[1:]):
            out[v] = self.b.urem(number, self.space.extents[v])
            number = self.b.udiv(number, self.space.extents[v])
        if order:
            out[order[0]] = number
        return out

    def columns(self, variables: dict[int, V], start: V, stop: V) -> None:
        """Columns [start, stop), any bounds: whole vectors, then what is left."""
        b, w, v = self.b, self.space.width, self.space.vector
        assert v is not None
        whole = b.add(start, b.and_(b.sub(stop, start), i64(-w)))
        with b.loop(start, whole, w, "vector") as j:
            self.row([Frame({**variables, v: j}, w)])
        if self.target.has_masks:
            with b.loop(whole, stop, w, "tail") as j:
                left = b.splat(b.cast("trunc", b.sub(stop, j), "i32"), w)
                mask = b.icmp("slt", b.iota("i32", w), left)
                self.row([Frame({**variables, v: j}, w, mask)])
        else:
            with b.loop(whole, stop, 1, "tail") as j:
                self.row([Frame({**variables, v: j}, 1)])

    def begin(self, module: ModuleText, name: str, buffers: Sequence[tuple[str, list[Value]]], noalias: bool) -> tuple[V, V]:
        params = [("ptr", n) for n, _ in buffers] + [("i64", "first"), ("i64", "last")]
        b = module.function(name, params, noalias=noalias, attributes="nounwind")
        pointers = {v: V("ptr", f"%{n}") for n, values in buffers for v in values}
        if self.schedule.split:
            self.scratch = b.params[-3]
        self.start(b, pointers)
        if self.schedule.tasks == 1:
            return i64(0), i64(self.schedule.units)
        return b.params[-2], b.params[-1]

    def start(self, b: Builder, pointers: dict[Value, V]) -> None:
        self.b = b
        self.part = "whole"
        self.bounds: dict[int, tuple[V, V]] = {}
        self.stash: dict[Key, V] = {}
        self.ev = Evaluator(b, self.nest, self.space, pointers)

    def stream(self) -> None:
        """Outputs of a plain loop over one run that no cache will hold are written past it (DESIGN, Memory)."""
        if self.reduced or self.nest.overwrites is not None:
            return
        read = {id(self.ev.pointers[k[0]]) for k in self.nest.loads}
        for s in self.nest.stores:
            if s.target.tensor.nbytes >= STREAM_BYTES and id(self.ev.pointers[s.target]) not in read:
                self.ev.streaming.add(s.target)

    def all_rows(self, rows: list[int]) -> None:
        self.nested(rows, {}, lambda variables: self.row_vectors(variables))

    def rows_from(self, rows: list[int], first: V, last: V) -> None:
        b, extents = self.b, self.space.extents
        if self.schedule.tasks == 1:  # plain nested loops
            self.all_rows(rows)
            return
        with b.loop(first, last, 1, "unit") as unit:
            variables, rest = {}, unit
            for v in reversed(rows):
                if v == rows[0]:
                    variables[v] = rest
                else:
                    variables[v] = b.urem(rest, extents[v])
                    rest = b.udiv(rest, extents[v])
            self.row_vectors(variables)

    def nested(self, order: list[int], variables: dict[int, V], body) -> None:
        if not order:
            body(variables)
            return
        with self.b.loop(0, self.space.extents[order[0]], 1, "row") as i:
            self.nested(order[1:], {**variables, order[0]: i}, body)

    def chunked(self, first: V, last: V) -> None:
        """Units are chunks of the vector variable."""
        b, vector_var = self.b, self.space.vector
        assert vector_var is not None
        n = self.space.extents[vector_var]
        start, stop = b.mul(first, self.chunk), b.min_(b.mul(last, self.chunk), n)
        self.lanes_loop(start, stop, n, {})

    def row_vectors(self, variables: dict[int, V]) -> None:
        space = self.space
        if space.vector in space.rows:
            assert space.vector is not None
            n = space.extents[space.vector]
            self.lanes_loop(i64(0), i64(n), n, variables)
        else:
            self.row([Frame(variables, space.width if space.vector is not None else 1)])

    def lanes_loop(self, start: V, stop: V, n: int, variables: dict[int, V]) -> None:
        """The vector variable runs over rows [start, stop) of n: unrolled vectors, single vectors, a tail."""
        b, space, w = self.b, self.space, self.space.width
        v = space.vector
        assert v is not None
        step = w * self.unroll
        whole = n - n % w
        if self.unroll > 1:
            bulk = n - n % step
            with b.loop(start, b.min_(stop, bulk), step, "vectors") as i:
                self.row([Frame({**variables, v: b.add(i, k * w)}, w) for k in range(self.unroll)])
            if whole > bulk:
                with b.loop(b.max_(start, bulk), b.min_(stop, whole), w, "vector") as i:
                    self.row([Frame({**variables, v: i}, w)])
        elif whole:
            with b.loop(start, b.min_(stop, whole), w, "vector") as i:
                self.row([Frame({**variables, v: i}, w)])
        if n == whole:
            return
        if self.target.has_masks or self.nest.stores and n < w:
            with b.if_(b.icmp("eq", stop, n)) if stop.literal is None else _always():
                self.row([Frame({**variables, v: i64(whole)}, w, first_lanes(w, n - whole))])
        else:
            with b.loop(b.max_(start, whole), stop, 1, "tail") as i:
                self.row([Frame({**variables, v: i}, 1)])

    # ------------------------------------------------------------------ one row (or a vector of rows, or several)
    def row(self, frames: list[Frame]) -> None:
        """Everything for the rows of `frames`: passes in turn, then what remains to be stored."""
        if self.part == "chunk":
            self.walk(frames, self.reduces_of(0), [])
            return
        if self.part == "finish":
            self.load_partials(frames, self.reduces_of(0))
            self.store_rows(frames)
            return
        self.choose_stash()
        last = max((self.phase((s.value, s.at)) for s in self.nest.stores), default=0)
        passes = max([last + 1, *(self.phase(k) for k, n in self.nest.nodes.items() if n.op in self.reduces)])
        for p in range(passes + 1):
            reduces = self.reduces_of(p)
            inner = [s for s in self.nest.stores if self.inside(s) and self.phase((s.value, s.at)) == p]
            if reduces or inner:
                self.current_pass = p
                self.walk(frames, reduces, inner)
        self.store_rows(frames)

    def store_rows(self, frames: list[Frame]) -> None:
        for s in self.nest.stores:
            if not self.inside(s):
                for f in frames:
                    self.ev.store(f, s)

    # ------------------------------------------------------------------ results kept from pass to pass
    def choose_stash(self) -> None:
        """Give heavy values that several passes need a row of memory: the first pass fills it, later ones read it."""
        self.ev.keep, self.ev.kept = {}, set()
        if not self.space.inner or self.space.vector in self.space.rows:
            return
        users: dict[Key, set[int]] = {}
        for p in range(max(self.phases.values(), default=0) + 2):
            for key in self.needed(self.roots_of(p)):
                users.setdefault(key, set()).add(p)
        total = 0
        for key, passes in users.items():
            node = self.nest.nodes.get(key)
            if node is None or len(passes) < 2 or self.in_row(key) or cost(node.op) < STASH_COST:
                continue
            dtype = key[0].tensor.storage
            size = -(-self.nest.reduced // self.space.width) * self.space.width * dtype.itemsize
            if dtype.is_complex or total + size > MAX_STASH:
                continue
            total += size
            self.ev.keep[key] = self.stash_row(key, size)

    def stash_row(self, key: Key, size: int) -> V:
        if key not in self.stash:
            self.stash[key] = self.b.alloca("i8", size)
        return self.stash[key]

    def roots_of(self, p: int) -> list[Key]:
        roots = [(s.value, s.at) for s in self.nest.stores if self.inside(s) and self.phase((s.value, s.at)) == p]
        for op, keys in self.reduces_of(p):
            roots += self.nest.nodes[keys[0]].operands[: len(op.results)]
        return roots

    def needed(self, roots: list[Key]) -> set[Key]:
        """Values of the inner loops that the roots are computed from."""
        seen: set[Key] = set()
        todo = list(roots)
        while todo:
            key = todo.pop()
            if key in seen or self.in_row(key):
                continue
            seen.add(key)
            node = self.nest.nodes.get(key)
            todo.extend(node.operands if node is not None else [])
        return seen

    def inside(self, s: Store) -> bool:
        """The store happens at every turn of the reduced variables."""
        from shlo_jit.fuse.index import At

        return self.space.depends(At(s.index), set(self.space.inner))

    def reduces_of(self, p: int) -> list[tuple[Op, list[Key]]]:
        """Reduces whose operands are known in pass p, with the keys of their results."""
        out: dict[tuple, tuple[Op, list[Key]]] = {}
        for key, node in self.nest.nodes.items():
            if node.op in self.reduces and self.phase(key) == p + 1:
                entry = out.setdefault((node.op, tuple(node.operands)), (node.op, []))
                entry[1].append(key)
        return list(out.values())

    def walk(self, frames: list[Frame], reduces: list[tuple[Op, list[Key]]], stores: list[Store]) -> None:
        """One pass over the reduced variables."""
        roots = [(s.value, s.at) for s in stores]
        for op, keys in reduces:
            n = len(op.results)
            roots += self.nest.nodes[keys[0]].operands[:n]
        for f in frames:
            self.hoist(f, roots)
        along = self.space.vector in self.space.inner
        if along:
            self.walk_vectors(frames[0], reduces, stores)
        else:
            self.walk_serial(frames, reduces, stores)
        self.ev.kept.update(k for k in self.needed(roots) if k in self.ev.keep)

    def hoist(self, frame: Frame, roots: list[Key]) -> None:
        """Compute what belongs to the row before the pass's loops begin."""
        seen, todo = set(), list(roots)
        while todo:
            key = todo.pop()
            if key in seen:
                continue
            seen.add(key)
            node = self.nest.nodes.get(key)
            if self.in_row(key):
                if node is None or node.op.name != "stablehlo.constant":
                    self.ev.value(frame, key)
            elif node is not None:
                todo.extend(node.operands)

    # ------------------------------------------------------------------ lanes along a row: one element a turn each
    def walk_serial(self, frames: list[Frame], reduces, stores: list[Store]) -> None:
        """Elements of the row one after another, from the initial value on; lanes (if any) are rows."""
        starts: list[list[Reg]] = []
        for f in frames:
            for op, keys in reduces:
                if self.part == "chunk":
                    starts.append([widen(self.b, self.reduces[op].neutral(), f.width)])
                else:
                    starts.append(self.initial(f, op, keys))
        carried = [r for s in starts for r in s]
        flat = flatten(carried)

        def body(variables: dict[int, V], values: list[V]) -> list[V]:
            groups = regroup(values, starts)
            out: list[Reg] = []
            at = 0
            for f in frames:
                child = f.child(variables)
                for op, keys in reduces:
                    reducer = self.reduces[op]
                    element = self.elements(child, op, keys, f.width)
                    out += reducer.combine(self.b, groups[at], element)
                    at += 1
                for s in stores:
                    self.ev.store(child, s)
            return flatten(out)

        values = self.carry_loops(self.space.inner, {}, flat, body)
        if self.part == "chunk":
            self.save_partials(frames, values)
            return
        final = regroup(values, starts)
        at = 0
        for f in frames:
            for op, keys in reduces:
                self.finish(f, op, keys, final[at])
                at += 1

    def carry_loops(self, order: list[int], variables: dict[int, V], values: list[V], body) -> list[V]:
        if not order:
            return body(variables, values)
        low, high = self.bounds.get(order[0], (i64(0), i64(self.space.extents[order[0]])))
        with self.b.loop_carry(low, high, values, 1, "reduce") as carry:
            after = self.carry_loops(order[1:], {**variables, order[0]: carry.index}, carry.values, body)
            carry.next(*after)
        return carry.values

    def elements(self, frame: Frame, op: Op, keys: list[Key], width: int) -> list[Reg]:
        n = len(op.results)
        values = [self.ev.value(frame, k) for k in self.nest.nodes[keys[0]].operands[:n]]
        return self.reduces[op].enter(self.b, [widen(self.b, v, width) for v in values])

    def initial(self, frame: Frame, op: Op, keys: list[Key]) -> list[Reg]:
        n = len(op.results)
        values = [self.ev.value(frame, k) for k in self.nest.nodes[keys[0]].operands[n:]]
        return self.reduces[op].enter(self.b, [widen(self.b, v, frame.width) for v in values])

    def finish(self, frame: Frame, op: Op, keys: list[Key], values: list[Reg]) -> None:
        results = self.reduces[op].leave(self.b, values)
        for key in keys:
            frame.memo[key] = results[op.results.index(key[0])]

    # ------------------------------------------------------------------ lanes along the reduced variable
    def walk_vectors(self, frame: Frame, reduces, stores: list[Store]) -> None:
        """Vectors of a row: several accumulators of lanes from the neutral element, combined in a fixed tree."""
        b, space, w = self.b, self.space, self.space.width
        v = space.vector
        assert v is not None
        n, k = space.extents[v], self.unroll
        neutral = [widen(b, self.reduces[op].neutral(), w) for op, _ in reduces]
        width = len(flatten(neutral))
        flat = flatten(neutral * k)

        def inner(variables: dict[int, V], values: list[V]) -> list[V]:
            step, whole = w * k, n - n % w
            bulk = n - n % step
            low, high = self.bounds.get(v, (i64(0), i64(n)))
            if bulk:
                with b.loop_carry(low, b.min_(high, bulk), values, step, "vectors") as carry:
                    out: list[V] = []
                    for u in range(k):
                        place = {**variables, v: b.add(carry.index, u * w)}
                        part = carry.values[u * width : (u + 1) * width]
                        out += self.vector_turn(frame.child(place), reduces, stores, part, neutral)
                    carry.next(*out)
                values = carry.values
            head, rest = values[:width], values[width:]
            if whole > bulk:
                with b.loop_carry(b.max_(low, bulk), b.min_(high, whole), head, w, "vector") as carry:
                    child = frame.child({**variables, v: carry.index})
                    carry.next(*self.vector_turn(child, reduces, stores, carry.values, neutral))
                head = carry.values
            if n > whole:
                head = self.row_tail(frame, variables, reduces, stores, head, neutral, whole)
            return [*head, *rest]

        outer = [x for x in space.inner if x != v]
        final = self.carry_loops(outer, {}, flat, inner)
        self.combine_parts(frame, reduces, final, neutral, width)

    def row_tail(self, frame: Frame, variables, reduces, stores, head: list[V], neutral, whole: int) -> list[V]:
        """The elements that fill no vector: a masked vector, or where masks are dear, one by one into lane 0."""
        b, w, v = self.b, self.space.width, self.space.vector
        assert v is not None
        n = self.space.extents[v]
        low, high = self.bounds.get(v, (i64(0), i64(n)))
        low = b.max_(low, whole)
        if self.target.has_masks:
            with b.loop_carry(low, high, head, w, "tail") as carry:  # one turn, or none in a chunk that ends earlier
                mask = first_lanes(w, n - whole)
                child = Frame({**frame.variables, **variables, v: carry.index}, w, mask, frame)
                carry.next(*self.vector_turn(child, reduces, stores, carry.values, neutral))
            return carry.values
        with b.loop_carry(low, high, head, 1, "tail") as carry:
            child = Frame({**frame.variables, **variables, v: carry.index}, 1, None, frame)
            groups = regroup(carry.values, [[r] for r in neutral])
            out: list[Reg] = []
            for (op, keys), group in zip(reduces, groups, strict=True):
                lane0 = [map_parts(r, lambda x: b.extract(x, 0)) for r in group]
                new = self.reduces[op].combine(b, lane0, self.elements(child, op, keys, 1))
                out += [put_lane(b, old, x) for old, x in zip(group, new, strict=True)]
            for s in stores:
                self.ev.store(child, s)
            carry.next(*flatten(out))
        return carry.values

    def vector_turn(self, child: Frame, reduces, stores: list[Store], values: list[V], neutral: list[Reg]) -> list[V]:
        groups = regroup(values, [[r] for r in neutral])
        out: list[Reg] = []
        for (op, keys), group, empty in zip(reduces, groups, neutral, strict=True):
            element = self.elements(child, op, keys, child.width)
            if child.mask is not None:
                element = [select_lanes(self.b, child.mask, e, empty) for e in element]
            out += self.reduces[op].combine(self.b, group, element)
        for s in stores:
            self.ev.store(child, s)
        return flatten(out)

    def combine_parts(self, frame: Frame, reduces, final: list[V], neutral: list[Reg], width: int) -> None:
        parts = [regroup(final[u * width : (u + 1) * width], [[r] for r in neutral]) for u in range(self.unroll)]
        sums: list[Reg] = []
        for i, (op, keys) in enumerate(reduces):
            reducer = self.reduces[op]
            values = [p[i] for p in parts]
            while len(values) > 1:
                half = len(values) // 2
                values = [reducer.combine(self.b, values[j], values[j + half]) for j in range(half)]
            total = across(self.b, reducer, values[0])
            if self.part == "chunk":
                sums += total
                continue
            n = len(op.results)
            start = [self.ev.value(frame, k) for k in self.nest.nodes[keys[0]].operands[n:]]
            start = reducer.enter(self.b, start)
            self.finish(frame, op, keys, reducer.combine(self.b, start, total))
        if sums:
            self.save_partials([frame], flatten(sums))


def memory_of(kind: str) -> str:
    """The type an accumulator is stored as."""
    return "i8" if kind == "i1" else kind


class _always:
    """A `with` that does nothing: the tail is always there."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def flatten(values: Sequence[Reg]) -> list[V]:
    """Registers with complex pairs laid out."""
    out: list[V] = []
    for r in values:
        out.extend(r if is_pair(r) else [r])  # type: ignore[arg-type, list-item]
    return out


def regroup(values: Sequence[V], like: list[list[Reg]]) -> list[list[Reg]]:
    """The inverse of flatten, with the structure of `like`."""
    it = iter(values)
    return [[(next(it), next(it)) if is_pair(r) else next(it) for r in group] for group in like]


def map_parts(x: Reg, f) -> Reg:
    return (f(x[0]), f(x[1])) if is_pair(x) else f(x)  # type: ignore[index]


def put_lane(b: Builder, old: Reg, x: Reg) -> Reg:
    if is_pair(old):
        return tuple(b.insert(o, p, 0) for o, p in zip(old, x, strict=True))  # type: ignore[arg-type, return-value]
    return b.insert(old, x, 0)  # type: ignore[arg-type]


def select_lanes(b: Builder, mask: V, x: Reg, other: Reg) -> Reg:
    if is_pair(x):
        return tuple(b.select(mask, p, q) for p, q in zip(x, other, strict=True))  # type: ignore[arg-type, return-value]
    return b.select(mask, x, other)  # type: ignore[arg-type]


def first_lanes(width: int, count: int) -> V:
    """A mask of the first `count` lanes."""
    return vector_literal("i1", [k < count for k in range(width)])


def check_supported(nest: Nest) -> None:
    """Refuse what no emitter computes, at its line, before any text is written."""
    from shlo_jit.lower.elementwise import EMITTERS

    known = INDEX_MAPS | {"stablehlo.constant", "stablehlo.iota", "stablehlo.pad", "stablehlo.reduce"}
    for node in nest.nodes.values():
        if node.op.name not in known and node.op.name not in EMITTERS:
            raise UnsupportedError(diagnose(f"{node.op.name} has no lowering yet", node.op.span))


__all__ = ["NestLowering", "Schedule", "check_supported", "const", "register_type", "vector"]
