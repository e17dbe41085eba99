"""Thresholds of memory, of program text, of run time and of collectives."""

from __future__ import annotations

from shlo_jit import caches
from shlo_jit.sizes import Symbol

# ---------------------------------------------------------------------------- memory
PING_PONG_BYTES = 1 << 12
"""Minimum bytes for a loop's state and its new value to swap buffers (ping-pong) rather than be copied. No case
moves."""
FEW_STORAGES = 1000
"""Maximum storages for the largest to be placed first, which is quadratic. `benchmarks.compile_growth`."""

# ---------------------------------------------------------------------------- program text and run time
STEP_WORK = 8
"""Fixed cost of a step, in additions: a call and its overhead."""
SHORT_WORK = 1 << 14
"""Maximum additions of a program that keeps Python's lock while it runs: 4 us at most."""
PAUSE_WORK = 1 << 21
"""Additions between checks for interrupts: a millisecond or so, 20 on a slow machine. Case `scan of 400`."""
WIDE_LANES_GAIN = 4
"""Minimum share (one in this many) of a loop's instructions that must be saved for lanes that take two registers of the
widest elements. Case `random bits`."""
INTERCHANGE_WORK = 1 << 23
"""Maximum vector operations of an interchanged loop between checks for interrupts: some 10 ms. Chosen."""
INTERCHANGE_LEAST_ITERATIONS = 64
"""Minimum iterations on a tile, whatever they cost: states are read and written once for all of them. Chosen."""
ASSUMED_TRIP_COUNT = 32
"""Trip count that is assumed for a loop whose trip count depends on values. Chosen."""
INTERCHANGE_VECTORS = 8
"""Vectors of a tile, if they fit into the registers: two pipes with a latency of four cycles. Case `mandelbrot`."""
SCALAR_TABLE_COST = 16
"""Minimum cost of an iteration's scalars, in additions, for an interchanged loop to compute them once for all tiles. A
tile then loads what it needs of them. Chosen."""
SCALAR_TABLE_BYTES = caches.L1 / 2
"""Bytes of such a table of scalars, which every tile reads. Chosen."""
TEMPORAL_TILE_LOOP_BYTES = caches.LAST_LEVEL / 2
"""Minimum bytes of a loop's states and operands for temporal tiling: several iterations run on a part of them before
the next part. Chosen: what a last-level cache keeps for a program; below, nothing is gained or lost. No case moves."""
TEMPORAL_TILE_BYTES = (caches.L2 * 5 / 8).at_least(640 << 10)
"""Bytes that a temporal tile works on: most of the second-level cache. Case `wave of 3000 x 3000`."""
TEMPORAL_TILE_LEAST_ITERATIONS = 4
"""Minimum iterations of a temporal tile in TEMPORAL_TILE_BYTES. With fewer, it works on TEMPORAL_TILE_SHARED_BYTES.
Chosen."""
TEMPORAL_TILE_SHARED_BYTES = caches.LAST_LEVEL / 8
"""Bytes of such a larger temporal tile: a part of the last-level cache, which cores share. Chosen by planes of 512
KiB."""
TEMPORAL_TILE_WAVEFRONT = 16 << 10
"""Bytes of lines that an iteration computes before the next one follows (the wavefront's step). Chosen: the cost of
starting it."""
TEMPORAL_TILE_ITERATIONS = 16
"""Maximum iterations of a temporal tile. Case `wave of 3000 x 3000`."""
TEMPORAL_TILE_STRIPES = 8
"""Minimum stripes, so that cores can share them. Chosen."""
TEMPORAL_TILE_CHUNK = 256
"""Elements of which chunks of several such loops are a multiple: whole vectors of each, however unrolled. Chosen."""
INTERCHANGE_OPS = 128
"""Maximum ops of an iteration, over all vectors of a tile: larger bodies hide their latency without it. Case
`mandelbrot`."""
PART_STEPS = 100
"""Steps (kernel calls, copies, control flow) of one function: some 10 ms of LLVM's time, which is superlinear.
`benchmarks.compile_growth`."""
SWITCH_INTERVAL_SECONDS = 2e-4
"""Seconds after which a thread that compiles takes Python's lock from the one that lowers the program. Chosen: a thread
switch takes some 10 us, and with Python's 5 ms the next job began up to 90 ms late."""
PRECOMPILED_PRODUCT = 1 << 15
"""Minimum multiplications of a product, or weights of a convolution, for its routine to be precompiled, before passes
have seen the program: smaller ones may become something else. Chosen."""
GLUE_LINES = 400
"""Minimum lines of a function of steps, without a loop, to be compiled with LLVM's fastest code generation: that takes
a third of the time, and calls of so many steps cost nothing beside the steps. No case moves."""
COLLECTIVE_STEPS = 4
"""Steps that a collective op and each of its operands count for: its loops and branches are emitted inline, and a
function of many is not value-numbered (`codegen/value_numbering.py`). Chosen."""
PART_REGION_STEPS = 1
"""Maximum steps of a region to stay in the function of its op, however many regions that has. Chosen."""
INLINE_CONSTANT_BYTES = 512
"""Maximum bytes of a constant to be part of the program's text. Chosen: a row of cache lines."""
SCALAR_BYTES = 32
"""Maximum bytes of a value that only loop nests and control flow use to be on the stack, for LLVM to keep it in
registers. Chosen: FEW_ELEMENTS of 64 bits."""
INLINE_KERNEL_LINES = 60
"""Maximum lines of text of a kernel called once to be inlined into the entry function: loops of tiny kernels then keep
their state in registers. No case moves."""
INLINE_STRAIGHT_LINES = 400
"""The same for a kernel without branches, as for an element of a table in a loop. Chosen: that of an edit
distance has some 300. `benchmarks.stateful_loops`."""
SPLIT_TEXT_BYTES = 50_000
"""Minimum bytes of text of a part when texts are split for several cores: some 20 ms of LLVM's time."""
PARTS_PER_CPU = 2
"""Parts for each CPU that large texts are split into for LLVM: more than one, since they take different times."""
INLINE_FUNCTION_LINES = 80
"""Maximum lines of text of an elementary function to be inlined. Chosen: above, a call costs little beside the body."""
WOKEN_WORKERS = 4
"""Maximum sleeping workers that a thread wakes: each of them wakes as many. Chosen: waking one takes 1 to 2 us, and the
caller has a task to run."""
SPIN_ROUNDS = 1000
"""Rounds a worker spins before it sleeps: 20 to 50 us. Longer spins made cold starts slower. No case moves."""
SHARED_CONSTANT_BYTES = 64 << 10
"""Minimum bytes of a constant to be stored once by content, in a process and as files of the object cache: opening a
file takes as long as reading this much of one."""
LONG_LITERAL_DIGITS = 1000
"""Minimum digits of a hexadecimal literal to be cut out of its text. Chosen: a search is far cheaper than a regular
expression."""
LONG_LITERAL_BYTES = 64 << 10
"""Minimum bytes of a literal in an artifact to be kept separate from the rest of it. Chosen: it is read by one or two
system calls."""
NARROW_LITERAL_BYTES = 1 << 20
"""Minimum bytes of a literal to be packed while it is read, if they are small numbers. Chosen: smaller ones cost memory
for a short time only."""
BACKGROUND_STORE_BYTES = 16 << 20
"""Minimum bytes of a program's constants for the object cache to be written in the background, while the program can
already be called. Chosen: files of that size take 10 ms and more."""
CACHE_WAIT_SECONDS = 5.0
"""Seconds to wait for another process that is writing a large program into the object cache, before the program is
compiled here. Chosen: 1 GiB, the cache's limit, is written in 2 s."""
KNOWN_FILE_BYTES = 1 << 20
"""Minimum bytes of a file for the object cache to keep its program without literals. Chosen: that much is decoded in 3
ms, and an entry of the cache read in 0.2."""
THREADED_BYTES = 8 << 20
"""Minimum bytes for several threads to read a program's constants from the object cache, or to decode the literals of a
text by machine code. Chosen: that much takes 4 to 5 ms, threads take 2 to import, and the machine code may take 10 to
compile."""
SHAPE_ELEMENTS = 16
"""Maximum elements of an integer tensor that may be a shape. Its values are followed when a program with unknown
dimensions is refined; for an argument, code is specialized for each value. Chosen: beyond the rank of real tensors."""
SYMBOLIC_SIZES = (Symbol(2, 1 << 20, 64),)
"""Ranges of the leading unknown dimension for code of any size, each with the size that it is tuned for. Sizes outside
have code of their own: the generated code relies on the dimension being more than 1."""
TRIED_FIRST = 4
"""Maximum executables that a call tries before it looks up its shapes, for a program compiled for any batch size or a
function under `jit`. Each trial costs 30 ns, the lookup 150, and of `jit` 2000."""
SPECIALIZATIONS = 256
"""Maximum shapes for which code of one program with unknown dimensions is kept. Chosen: a service that sees more sizes
than these should round them up, or pass them in chunks; each takes some 100 KB."""
TRACE_EVENTS = 1 << 17
"""Maximum step executions that a trace keeps. Chosen: 4 MB while it is recorded, and some 30 MB of JSON, which viewers
can load."""
KEPT_PROGRAM_BYTES = 64 << 20
"""Maximum bytes of constants for a program that the compiler failed on to be written to the temporary folder. Chosen:
such folders may be in memory."""

# ---------------------------------------------------------------------------- collectives
COLLECTIVE_ROW_BYTES = 64
"""Minimum bytes of a row of a member's part for an all_gather or a reduce_scatter to run along the row; shorter ones
run along dimension 0, between two transposes. Chosen: a cache line."""
COMBINED_BYTES = 4 << 20
"""Maximum total bytes of all_reduce ops that are combined into one. Chosen: a rendezvous costs microseconds, moving
this much some hundreds."""
INLINE_MESSAGE_BYTES = 8 << 10
"""Maximum bytes of a message to be copied into the board, so that the sender need not wait until it was read. Chosen:
the copy takes less than a microsecond."""
MEETING_PATIENCE = 2000, 63
"""Polls of a word before a rank sleeps, and the mask that selects the polls at which it yields, if every rank has a CPU
of its own. Chosen: some tens of microseconds."""
CROWDED_PATIENCE = 100, 0
"""MEETING_PATIENCE if there are more ranks than CPUs: the rank that is waited for needs the CPU. Chosen."""
COPY_TASK_BYTES = 1 << 18
"""Bytes of a task that copies arguments into shared memory. Chosen: some tens of microseconds."""
UNROLLED_SOURCES = 16
"""Maximum ranks whose operands a reduction reads simultaneously, with their addresses in registers or on the stack.
Chosen."""
UNROLLED_TARGETS = 4
"""Maximum ranks to which a reduction writes its part simultaneously, each with code of its own; for more it has a loop.
Chosen."""
MPI_POLLS = 1000
"""Polls for an MPI message before other ranks are served; between polls a rank sleeps. Chosen: a millisecond or two."""
MPI_NAP = 50e-6
"""Seconds of that sleep. Chosen."""
MPI_AWAKE_SECONDS = 1e-3
"""Seconds that a rank stays awake for the end of a call, which comes soon. Chosen."""
MPI_ENDED_SECONDS = 0.1
"""Seconds after a rank has reported its end in which its earlier messages may still arrive. Chosen: MPI nearly keeps
order."""
MPI_CHUNK_BYTES = 1 << 30
"""Maximum bytes of one MPI message; MPI counts them in 32 bits. Chosen."""
REDUCTION_BLOCK = 4096
"""Elements of a unit of the reduction over the operands of ranks. Chosen: a few vectors a task at least."""
FETCHED_BYTES = 256 << 10
"""Room in bytes on the stack for blocks of the sources of a reduction that have to be fetched. Measured: blocks of 64
KiB come 20 % faster than blocks of 16."""
