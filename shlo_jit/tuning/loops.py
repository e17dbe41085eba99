"""Thresholds of tasks, loop nests and the kernels that are neither products nor convolutions."""

from __future__ import annotations

from shlo_jit import caches

# ---------------------------------------------------------------------------- tasks
TASK_WORK = 1 << 15
"""Element operations a task should have for its dispatch (some 0.3 us) to cost little. Case `add 3M`."""
PARALLEL_WORK = 1 << 17
"""Minimum element operations of a kernel to be run in parallel; smaller ones run on the caller. Waking a worker takes
some 5 us. It also holds for multiply-adds that are bound by memory: of a product with a vector, a depthwise
convolution, a triangular system. Case `add 30K`."""
LONG_TASK = 1 << 26
"""Maximum element operations of a task, even if MAX_TASKS would make it longer: a call can be interrupted between
tasks. Chosen: tens of milliseconds."""
MAX_TASKS = 64
"""Maximum tasks of a kernel: several for each of 16 threads, so that a slow thread does not hold up the rest. A window
kernel is divided into about as many. Case `exp`."""
MANY_THREADS = 4
"""Maximum threads of a call for which products and convolutions keep the tasks that their shapes give. More threads
divide tasks further at run time, which changes no bits. Chosen: so calls with two or four threads pay nothing."""
TASKS_OF_THREAD, LEAST_TASK_OF_MANY = 2, 1 << 18
"""Tasks that each of many threads should have at least, and minimum multiply-adds of tasks that are divided for it:
some 8 us. `benchmarks.many_cores`."""
UNEVEN_TASKS = 8
"""Maximum share of the time, one part in so many, that threads wait in the last round of a product's tasks, if these
can be halved. `benchmarks.many_cores`: BERT-base with a batch of 8 on 32 threads has 73 % instead of 68 %."""
SPLIT_TILE, SPLIT_TERMS, SPLIT_PARTS = 64, 1024, 4
"""Rows and columns of a product that count as a task where its terms are split, minimum terms of a part, and minimum
parts. Chosen: the sums of a part take some 2 % of its time, and fewer parts do not repay another step."""
ROW_TASKS_OF_THREAD, LEAST_ROWS_OF_MANY = 4, 24
"""The same for tasks of row blocks, which take less equal times, and their minimum rows: every task reads the right
operands. `benchmarks.many_cores`."""
REGION_WORK, KERNEL_SPEED = 1 << 24, 8
"""Maximum element operations of a step that shares a parallel region with others, some 2 ms: on 64 threads the region
then takes not much longer than a wait for all threads. And multiply-adds of a kernel that take as long as an element
operation of a loop. Chosen: longer steps fill many threads alone. `benchmarks.many_cores`."""
REGION_TASK_WORK = 1 << 13
"""Minimum element operations of a step to be a task of its own in a parallel region, some 1 to 4 us; the caller runs
smaller ones first. Model `DLRM`: 26 tables, from each of which a batch reads 128 rows."""
REGION_STEPS = 32
"""Maximum steps whose tasks run together: a task is found by a search through the steps. Chosen: more than a
detector has heads, or a recommendation model has tables."""
SPLIT_UNITS = 8
"""Minimum units of rows for a large reduction to be parallelized over rows; with fewer, it is split along the row. No
case moves."""
COPY_PARALLEL_BYTES = 1 << 19
"""Minimum bytes of a copy to be split into tasks. Case `update rows`."""

# ---------------------------------------------------------------------------- loop nests
SHORT_LANES, SHORTER_LANES = 8, 4
"""Extents below which lanes along a variable gain little, and nothing. Tiles that are transposed in registers need the
first across the lanes, and more lanes than the second: 6 x 16 x 16 x 64 to 64 x 16 x 16 x 6 takes 48 instead of 116 us,
and 4 images gain nothing."""
SHORT_LOOP_GAIN = 1.25
"""Minimum factor by which the instructions of a nest decrease, as estimated, for lanes to run along a longer loop than
the short one along which more accesses are contiguous. Chosen: the estimate knows no ports and latencies."""
GATHER_COST, SHUFFLE_COST = 3, 2
"""Estimated instructions of a gather per lane, and of a vector of elements at a small distance per unit of the
distance. Chosen: from code for AVX2."""
SHORT_SELECTION = 56
"""Maximum elements of a row for lanes to run across rows in an argmax that gathers elements of the row: combining lanes
takes as long. Case `argmax of short rows`."""
FEW_ELEMENTS, FEW_ELEMENTS_COST = 4, 32
"""Maximum elements of a loop nest, and cost of an element, for it not to be vectorized: states of that size are scalars
of a loop (a point in space, a rotation). Chosen."""
JAMMED_ROWS, JAM_SHARE = 8, 0.1
"""Unroll and jam: maximum rows that run together, and minimum share of the work that they have in common, and that is
done once. Chosen: less than what loops over the rows cost."""
ROW_BATCH_VECTORS, ROW_BATCH_OPS = 4, 12
"""Row batching: maximum vectors of a row, and maximum ops and loads of its body, for several rows to combine their
lanes together. For longer rows combining is little of the work; larger bodies, emitted once per row, become long texts.
Chosen."""
STRIDED_LOAD = 8
"""Maximum stride of a load that loads whole vectors and shuffles its elements out of them, instead of gathering them
one by one. Case `strided slice`."""
UNROLLED_OPS = 64
"""Maximum ops and loads of all iterations of a reduction to be fully unrolled. Chosen: products of 4 x 4 matrices gain
half."""
INTERLEAVED = 4
"""Maximum vectors of results, adjacent in memory, that are interleaved by shuffles instead of scattered. Chosen: with
more, lanes run along the short dimension."""
SMALL_TENSOR = 256
"""Maximum elements for a strided traversal to be cheap, since the tensor stays in the first-level cache. Chosen."""
TILE_SIDE = 16
"""Side length, in elements, of the tiles that are transposed in registers. Case `transpose 3000`. On AVX2, tiles of 8
take 5 to 13 % longer for elements of one or two bytes."""
TILE_OPS = 60
"""Maximum ops of a nest to be tiled: its body is emitted for every line of a tile. Chosen."""
TILE_STRIPE = 4
"""Adjacent tiles that one iteration handles: it touches fewer memory pages that way. Case `transpose 3000`."""
TILE_COLLIDING = 4096
"""Distance in bytes of the lines that adjacent tiles write: at multiples of it an iteration handles one tile, because
the lines share a set of the first-level cache. A transpose of 64 x 64 x 64 takes 0.6 of the time. Chosen."""
PREFETCH_BYTES = caches.L2 * 2
"""Minimum bytes of an operand to be prefetched: it comes from memory or the last-level cache. Case `heat, 60 steps`."""
PREFETCH_DISTANCE = 2048
"""Prefetch distance of such operands in bytes: gelu 6.9 to 4.6, silu 14.1 to 5.8 ns a vector on 4M elements. Case
`gelu`."""
ROW_BUFFER_COST = 8
"""Minimum cost of an op for its result to be kept for a later pass over the row rather than recomputed. Case
`softmax`."""
ROW_BUFFER_BYTES = 1 << 18
"""Maximum bytes of a row's intermediate results that are kept from pass to pass, on the stack of a thread, which is why
it does not grow with the caches. No case moves between half and double of it; without it, softmax does."""
STREAM_BYTES = (caches.LAST_LEVEL / 4).at_least(8 << 20)
"""Minimum bytes of an output for a plain loop to write it with non-temporal stores: a reader would find little of it in
the last-level cache, with its operands beside it. Smaller results need not be aligned (`codegen/abi.py`). Case
`add 3M`."""
COPY_STREAM_BYTES = 32 << 20
"""Minimum bytes of a copy to use non-temporal stores, which do not read what they overwrite. Chosen: a last-level
cache, whatever the size of that of the CPU: copies are planned before there is a target. No case moves."""

# ---------------------------------------------------------------------------- other kernels
WINDOW_SPARSE, WINDOW_WIDE = 4, 64
"""Minimum positions of a window, relative to the input elements that it can cover and in all, for padding to be counted
instead of visited. The first also holds for elements of a padded line (CONV_DISTANT). Chosen: more than windows of
models have."""
WINDOW_CHECKS = 1 << 16
"""Padding values that are folded between checks for interrupts. Chosen: below a millisecond."""
WINDOW_UNROLLED = 64
"""Maximum window positions for the fold over a window to be fully unrolled. No case moves."""
WINDOW_SMALL = 16
"""Maximum window positions for several vectors of outputs to be folded side by side. No case moves."""
WINDOW_VECTORS = 4
"""Vectors of outputs that are folded side by side. Case `max pool 2x2`."""
WINDOW_BLOCK = 1024
"""Outputs of the last dimension in a unit, if the other dimensions give few units."""
SCAN_SIMPLE_COST = 4
"""Maximum cost of a body for scans to run side by side. No case moves."""
SCAN_RADIX = 16
"""Steps of a chain in a scan that rounds: the longest chain is this times the logarithm of the steps to this base."""
SCAN_ROWS = 4
"""Rows that are scanned side by side, to hide the latency of the chain from vector to vector; if the scanned dimension
is strided, vectors of columns. Case `cumulative sum`."""
FILL_BLOCK = 1 << 14
"""Elements of a unit that fills a tensor."""
SCATTER_UNITS = 16
"""Minimum iterations of a loop of a scatter to be the one that is split into tasks, and units that a select_and_scatter
should have."""
SCATTER_VECTORS = 4
"""Vectors of a window in a unit. Case `scatter add rows`."""
SCATTER_ACCESS_COST = 4
"""Cost of the memory accesses of an element update, in element operations."""
SORT_LONG_LINE = 1 << 17
"""Minimum elements of a line to be split into several tasks. No case moves."""
SORT_CHUNKS = 8
"""Chunks of such a line, a power of two. Chosen: more would add more counters than threads. Case `sort 500K`."""
TOP_K_INSERTED = 256
"""Maximum k for a top-k to keep a sorted array. No case moves."""
FFT_BLOCK_BYTES = caches.L2 / 8
"""Bytes of a block's elements: the two buffers of a block stay in the second-level cache. No case moves."""
FFT_PARALLEL = 1 << 14
"""Minimum elements for threads to pay off. No case moves."""
FFT_BLOCK_ELEMENTS = 1 << 14
"""Maximum elements of a block of short sequences. Chosen."""
FFT_LARGEST_ALONE = 31
"""Largest radix of a pass whose inner extent does not fill whole registers. Timed by length; see
docs/architecture.md."""
FFT_LARGEST_PRIME = 127
"""Largest radix; larger primes use Bluestein's algorithm. Timed by length: 101 is about where it begins to win."""
FFT_SLICE = 2048
"""Elements of a row in a unit of a pass, if rows are long. Chosen: the first-level cache. No case moves."""
MATRIX_COOPERATIVE = 256
"""Minimum order of a matrix for threads to cooperate on it rather than to process one matrix each. No case moves."""
LAPACK_BLOCK = 64
"""Maximum block size (columns) of a blocked routine of LAPACK: what LAPACK's own tables say for these sizes."""
