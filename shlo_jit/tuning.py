"""Every threshold that steers a compiler decision, defined once: its unit, what it separates and where it comes from.

Thresholds never change the meaning of a program, and most do not change the bits of its results. A case is one of
`benchmarks` whose code changes when the figure is halved or doubled. `python -m benchmarks.thresholds` times the cases,
and docs/tuning.md has the table. "No case moves" says that the code of none of the cases tried changes. "Chosen" marks
a figure that was derived by reasoning and that no case has contradicted.

A share such as `caches.L2 / 2` depends on the target (`Target.bytes_of`). Its text describes the CPU that the share was
measured on: 48 KiB of first-level, 1 MiB of second-level and 32 MiB of last-level cache. Shares do not change the bits
of results; thresholds that would change them are the same on every CPU.
"""

from __future__ import annotations

import warnings
from typing import Any

from shlo_jit import caches
from shlo_jit.sizes import Symbol

# ---------------------------------------------------------------------------- size of a program (passes)
FOLD_ELEMENTS = 4096
"""Maximum elements of a constant for ops on constants to be folded even if it takes more bytes than they do. Chosen:
the table of a sinusoid folds, weights of a layer do not."""
FOLD_BYTES = 16 << 10
"""Maximum growth, in bytes, of constants that weights are computed from when the program is compiled. Chosen: 4096
floats."""
FOLD_SHARE = 32
"""Growth of the same constants that counts as none, as a divisor of their bytes. Chosen: the sums of the columns of an
int8 matrix with 128 rows."""
FOLD_TEMPORARY_BYTES = 256 << 20
"""Maximum bytes of intermediate results that are computed to fold weights. Chosen: the sums of a matrix of 64 Mi bytes
are folded, and a large program is compiled in little more than the memory of its constants."""
FOLD_ROUNDS = 8
"""Number of times that operands are folded in place of results by which constants would grow. Bounds compile time.
Chosen: nibbles in bytes take three."""
WEIGHT_OPS = 1000
"""Maximum ops that weights are computed by, to be folded. Chosen: far more than dequantization takes."""
INLINE_OPS = 4000
"""Maximum ops of a program for every call to be inlined. `benchmarks.compile_growth`: below, planning and compiling the
whole program is no more expensive than its parts."""
INLINE_GROWTH = 4
"""Maximum growth of a program, as a factor over its text, by inlining calls. `benchmarks.compile_growth`."""
INLINE_SIZES = (1 << 60, 1000, 300, 100, 30, 10, 0)
"""Candidates for the maximum ops of an inlined function, tried in order until the program is small enough. Chosen:
steps of about a factor of three."""
INLINE_LARGEST = 5_000_000
"""Maximum ops of a program whose calls must be inlined; larger programs are refused. Chosen: bounds memory."""
INLINE_DEPTH = 50
"""Maximum nesting of control flow for calls to be inlined. Chosen: far below what recursion can handle."""
UNROLL_TRIP_COUNT = 8
"""Maximum trip count of a counted loop to be fully unrolled. Chosen: loops of a few iterations in real programs. No
case moves."""
UNROLL_OPS = 320
"""Maximum ops of a fully unrolled loop. Chosen: below the size of one loop nest. No case moves."""
BATCH_BLOCK_LARGEST, BATCH_BLOCK_BYTES, BATCH_BLOCK_KERNELS = 16 << 20, 4 << 20, 8 << 20
"""Batch blocking of chains of convolutions. Minimum bytes of the chain's largest value; maximum bytes of the largest
value of a block of several images; maximum bytes of all kernels of the chain. ResNet-50 of `benchmarks.deployed`, in
batches. The same on every CPU: passes do not know caches."""
NARROW_PRODUCT = 4
"""Maximum terms and columns for a product of any number of rows to be computed as a loop over the rows. Case
`dot f32 80000x3x3`."""
SMALL_PRODUCT = 1 << 11
"""Maximum multiply-adds of a product (one of a batch) for it to be lowered to a reduction, which fuses: the GEMM
routine would spend its time on dispatch and packing. Case `dot f32 2000 of 12`."""
SMALL_PRODUCT_STRIDED = 1 << 9
"""SMALL_PRODUCT if the columns along the lanes are not adjacent, or elements have fewer than four bytes: the routine
transposes as it packs, and multiplies such elements in pairs or fours. No case moves."""
SMALL_PRODUCT_TERMS = 32
"""Minimum terms for adjacent terms, not columns, to be the lanes. No case moves."""
SMALL_VECTOR_PRODUCT = 1 << 14
"""SMALL_PRODUCT of a vector and one matrix: both strategies read each element once. Case `dense 1x100`."""
SMALL_COMPLEX_PRODUCT = 1 << 12
"""Maximum multiply-adds of a complex product to be computed with complex numbers rather than as four real products.
Chosen."""
ADJACENT_ROWS = 16
"""Minimum rows of a product whose result is transposed for the rows to become columns, so that the transpose copies
contiguous runs. Chosen: a register of f32."""
DILATION_PHASES = 16
"""Maximum number of convolutions that a convolution over a dilated input is split into. Chosen: strides of 4 x 4 in a
gradient."""
BYTE_PATCHES = 1 << 28
"""Maximum bytes of gathered patches (im2col) for a convolution of bytes to become a product. Chosen: bounds memory."""
BYTE_LEAST_SIDE = 8
"""Minimum terms, and minimum results, of a row of patches for the copies to pay off. Chosen."""
BYTE_BLOCK_FEATURES = 32
"""Results that a block of groups should have, and maximum groups of a block: all products of a block but one part are
with zeros. Chosen: a register of bytes."""
COUNTED_ITERATIONS = 4096
"""Maximum iterations of a loop in custom code that are counted to determine its trip count. Chosen: some
milliseconds."""
BYTE_SEARCH = 8
"""Maximum ops searched from a product's operand back to bytes. Chosen: bounds compile time."""
LIFT_UNROLLED = 4
"""Maximum trip count of a loop in a lifted region to be fully unrolled. Chosen."""
LIFT_POSITIONS = 1 << 10
"""Maximum window positions for a window with a lifted body to be unrolled by position. Chosen: bounds compile time."""
SELECTED_OPS = 64
"""Maximum ops of a comparator with conditions for all its branches to be computed. For a longer one, a function
computes only the branches taken. Chosen."""

# ---------------------------------------------------------------------------- fusion
NEST_OPS = 400
"""Maximum ops of one loop nest. More would cost more to compile than they save: `benchmarks.compile_growth`."""
NEST_TWICE_OPS = 64
"""Maximum ops of a nest for a value to be computed at two places in it rather than written to memory. Chosen."""
EXPENSIVE_COST = 8
"""Minimum cost for a value to be written rather than recomputed by loops around those that it depends on. Case
`forces between bodies`."""
SMALL_SOURCE_RATIO = 16
"""Minimum ratio of the elements of a value to those of its inputs for each of several kernels that read it to recompute
it, unless it is as expensive as EXPENSIVE_COST. Case `forces between bodies`."""
FREE_PLACES = 8
"""Maximum places of one nest for an index map to be followed rather than its operand copied. Chosen: a stencil's."""
NEAR_PLACES = 27
"""FREE_PLACES for slices, pads, rolls and borders of a tensor that is in memory in any case. Chosen: a stencil's in
three dimensions."""
MOST_PLACES = 64
"""Maximum places of one nest at which any op is computed. Bounds compile time: each op of a chain that reads its
operand at two places may double the number of places."""
PLACE_TERMS = 128
"""Minimum terms and conditions of a place for the op to be written to memory and read from there at a simple place.
Bounds compile time: each op may double the terms of a place with run-time terms. Chosen: more than borders of stencils
and indices of indices have."""
CHOICE_SEGMENTS = 4
"""Maximum segments of a concatenation that a loop reads in place rather than from the concatenated tensor. Chosen:
rolls have two segments, tensors with borders three."""
UNPACKED_SEGMENTS = 8
"""Maximum segments that are computed from the same elements for a loop to choose between them. Chosen: numbers of four
bits in elements of 32."""
UNPACKING_DEPTH = 8
"""Maximum ops between such an element and a number in it. Chosen: shifts, a mask, a conversion, changes of shape."""
CHOICE_DEPTH = 100
"""Maximum ops searched for the operands of a choice. Bounds compile time."""
INTERIOR_PART = 2
"""Minimum share (one in this many) of a loop's iterations that need no conditions for guard-free code to be emitted for
them (loop peeling). Chosen."""
UPDATE_SHARE = 2
"""An update of at least one in this many of a tensor's elements counts as large. If it cannot be in place, it is
computed as a select of the new and the old values; only others are kept in place by moving reads and conditions.
Chosen: the traffic of a new tensor."""
UNIFORM_ELEMENTS = 512
"""Minimum elements of an array for a loop to branch on a scalar condition instead of selecting. Chosen: a select of
fewer costs less than a branch that is not predicted."""
MATERIALIZE_CANDIDATES = 50
"""Maximum nests reading a value that are asked whether they can also write it. Bounds compile time."""
ROW_ELEMENTS = 1 << 16
"""Maximum elements of a row that is traversed several times: it has to stay in the cache. Above 2^16 floats the second
pass comes from memory. No case moves. The same on every CPU: it decides which loop adds a sum."""
COLUMN_ELEMENTS = 2048
"""ROW_ELEMENTS for rows whose elements are not adjacent. A quarter of it if the distance of the elements is a multiple
of half a page, since they map to the same cache sets. Batch norm over NHWC tensors. No case moves."""
FEW_ROWS, FEW_ROWS_ELEMENTS = 16, 4096
"""Minimum rows for rows longer than these elements to become a row program: otherwise there is too little parallel
work. Chosen."""
EPILOGUE_COPIES = 4
"""Maximum places that an epilogue writes an element of the product to: pixels of a nearest-neighbor upscaled image for
one of the original. More would be more lines than the first-level cache has ways. Chosen."""
EPILOGUE_DISTANCE = 500
"""Maximum steps between a product and the loop that becomes its epilogue: all of them are examined. Bounds compile
time."""
SEGMENT_BYTES = 4 << 10
"""Minimum bytes not copied for each of the products that a concatenation is split into. Chosen: the cost of a call of
the routine."""
SEGMENT_ROWS = 8
"""Maximum rows that are multiplied with a concatenated operand whose segments are read in place. Chosen: queries of a
group that share a head's keys. For many rows each segment would be packed from memory, which takes longer than a copy
and packing the copy."""
ATTENTION_LEAST_COLUMNS = 16
"""Minimum columns of scores for lanes along a row of them to pay off. Chosen."""
ATTENTION_OPERAND_BYTES = 8 << 20
"""Maximum bytes of keys and values that each row reads for every task to pack them itself. Chosen: a share of the last-
level cache. The same on every CPU: it decides which kernel adds a sum."""
ROW_BLOCK_BYTES = 2 << 20
"""Minimum bytes of a value between a product and another step for both to run by blocks of rows. Chosen: the
second-level caches of two cores; the same on every CPU, since it decides which kernel adds a sum."""
ROW_BLOCK_OPERAND_BYTES = 1 << 20
"""Maximum bytes of the right operand of a product that is added to others for such a value: every block of rows reads
it again. Chosen: what a second-level cache keeps; the same on every CPU."""
ATTENTION_TASK_ROWS = 64
"""Minimum rows of an attention task: the task packs keys and values for them. Chosen. Case `causal attention`."""
RECOMPUTED_ELEMENTS = 1 << 18
"""Minimum weights of attention for its gradient to recompute them. Chosen: a megabyte, which does not stay in the
cache."""
KEPT_WEIGHTS_BYTES = 16 << 20
"""Maximum bytes of stored attention exponentials, over all of a function, for the gradients to read them rather than
recompute them. Chosen: a part of the last-level cache. The same on every CPU, as are all thresholds of passes."""
ATTENTION_LEAST_TASKS = 8
"""Number of tasks of attention below which its large products are split differently. Chosen: a machine of 8 cores."""
ORDER_SEARCH = 1000
"""Maximum steps searched for a dependence of one step on another; beyond, a dependence is assumed. Bounds compile
time."""

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
REGION_STEPS = 16
"""Maximum steps whose tasks run together: a task is found by a search through the steps. Chosen: more than a detector
has heads."""
SPLIT_UNITS = 8
"""Minimum units of rows for a large reduction to be parallelized over rows; with fewer, it is split along the row. No
case moves."""
COPY_PARALLEL_BYTES = 1 << 19
"""Minimum bytes of a copy to be split into tasks. Case `update rows`."""

# ---------------------------------------------------------------------------- loop nests
SHORT_LANES, SHORTER_LANES = 8, 4
"""Extents below which lanes along a variable gain little, and nothing. For tiles transposed in registers, these are the
minimum extents, and the minimum lanes. Chosen."""
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

# ---------------------------------------------------------------------------- products
ATTENTION_TASKS = 24
"""Approximate tasks of attention: more would pack more often, fewer keep fewer threads busy. Case
`attention 12 of 384`."""
ATTENTION_BLOCK_BYTES = (caches.L1 * 2 / 3).at_least(32 << 10)
"""Approximate bytes of scores of a block of rows: the first-level cache. Case `attention 12 of 384`."""
ROW_BUFFER_SHARE = caches.L2 / 2
"""Approximate bytes between the stages of a block of rows, if its right operands have more and do not stay in the cache
beside it. Chosen: blocks of 16 to 256 KB take the same time (`benchmarks.row_blocks`); larger ones read the operands
less often."""
GRADIENT_BLOCK_BYTES = 512 << 10
"""Approximate bytes of scores of a block of rows of the gradient of attention, for both products that it reads. Chosen:
a part of the second-level cache; smaller blocks would traverse the sums more often. The same on every CPU: it orders
sums."""
LINE_TILE_IMAGE_BYTES = caches.L2
"""Minimum bytes of images for the step that produces them and the step that reads them to run in line tiles. Chosen:
the second-level cache of a core; two cores keep smaller images from one step to the next."""
LINE_BUFFER_BYTES = caches.L2 / 2
"""Approximate bytes of the line buffers that a line tile writes and reads again. Chosen: half of the second-level
cache; the rest is for inputs and outputs."""
LINE_TILE_KEPT = 8
"""Minimum lines of a line tile for each line that the next tile needs as well and that is moved for it. Chosen: moving
more took as long as the caches saved."""
LINE_TILE_KERNEL_BYTES = caches.L2 * 5 / 8
"""Maximum bytes of weights that line tiles read, each tile anew. Chosen: what the second-level cache keeps beside some
lines."""
LINE_TILE_TASKS = 4
"""Tasks of steps in line tiles for each thread of the call. If tiles need lines of their neighbors (halo) there is one
task a thread: tasks compute the halo lines at their ends twice. Chosen."""
LINE_TILE_LINES = 4
"""Minimum lines of the last result in a task of line tiles. Chosen: some more than the lines that are computed
twice."""
LINE_TILE_LEAST_LINES = 2
"""The same for more than MANY_THREADS threads, which would have nothing to do instead. `benchmarks.many_cores`."""
GEMM_SERIAL = 1 << 20
"""Maximum multiply-adds for a product or a convolution to run on the caller: some 10 us, and waking threads costs as
much."""
GEMM_TASK = 6 << 20
"""Multiply-adds of a task: small enough that 8 threads get several each of a 1024 x 1024 x 1024 product. Case
`dot f32 512`."""
GEMM_LEAST_ROWS = 8
"""Rows of a tile that take as long as fewer: the bound is the latency of multiply-adds, or memory.
`benchmarks.weights`."""
GEMM_TASK_ROWS = 64
"""Minimum rows of C assumed when the columns of a task are sized, if B is prepacked. `benchmarks.weights`."""
GEMM_TASKS, GEMM_LEAST_TASK = 16, 1 << 19
"""Approximate number of tasks along the columns of a product, if B is prepacked, and multiply-adds of the smallest
task: some 4 us. `benchmarks.weights`."""
GEMM_FEW_TASKS = 8
"""Number of tasks of a product below which an odd number of them is doubled, if B is prepacked. Chosen: of five tasks,
two threads wait idle for one."""
GEMM_PRIVATE_ROWS = 160
"""Maximum rows of C for a task to pack its own chunk of B. Case `dot f32 128`."""
RANGED_LEAST_KEYS = 128
"""Minimum keys of attention for ranges of keys to be left out. Chosen."""
RANGED_ZEROS_KEYS = 512
"""Minimum keys of attention of few rows for ranges of keys whose values are read, but not multiplied, outside of the
ranges. 8 heads of 4 rows, 128 of 128 keys, two threads of Zen 4: 10 us without ranges, 16 with them; 128 of 4,096: 256
and 60."""
RANGED_LEAST_ROWS = 16
"""Minimum rows of a batch of attention for a test at run time whether its values are finite: the test reads them once
more. Chosen."""
RANGED_LEAST_PRODUCTS, RANGED_MOST_ROWS = 4, 64
"""Minimum products, and maximum rows of each, for a batch of products to have a task for each, which computes a range
of its terms or columns. Chosen."""
RANGED_CHUNK = 128
"""Keys that are left out together if their rows are packed. Chosen."""
RANGED_STEP = 64
"""Keys that are left out together if their rows are read in place. Chosen."""
GROUPED_ROWS = 512
"""Maximum rows of a task of a grouped product: enough to read each matrix of weights once for a prompt, and more tasks
for more rows. The same on every CPU. Chosen."""
GROUPED_BOX = 128 << 10
"""Maximum bytes of a box of a group's matrix that is computed before it is multiplied: less than a second-level cache.
The same on every CPU, as it decides the order of sums. Chosen."""
GROUPED_LEAST = 2
"""Minimum groups for a masked product to become a grouped one. 64 rows of two groups of 512x1024, two threads of Zen 4:
0.81 ms as masks, 0.38 grouped; 1,024 rows of 256x256: 1.40 and 0.66; 4 rows of 2048x4096: 6.6 and 6.0."""
GATED_LEAST = 64 * 64
"""Minimum elements of a group's matrix for products with gates to be left out where gates are zero. Chosen."""
ONE_HOT_LEAST, ONE_HOT_COLUMNS = 16, 8
"""Minimum positions of a one-hot matrix, and minimum columns of the other one, for their product to read or add rows.
Chosen."""
GEMM_SKINNY_ROWS = 48
"""Maximum rows of C for a B that is not constant, and that no cache keeps, to be read in place, a few rows at a time.
Transformer block of `benchmarks.curves`."""
GEMM_SKINNY_BYTES = 14 << 20
"""Maximum bytes of a program's matrices for it to do so: parts of rows come fast from a cache, and slowly from memory.
Chosen. The same on every CPU, like GEMM_B_RESIDENT."""
GEMM_NEAR_PANELS = (caches.L2 / 2).at_least(512 << 10)
"""Maximum bytes of panels that the rows of a task read, for many rows: half of the second-level cache; with 256 KiB,
cases `MLP` and `GRU` lose 10 to 20 %. ResNet-50 of `benchmarks.deployed`, in batches."""
GEMM_NEAR_ROWS, GEMM_CHUNKS = 56, 12
"""If all panels fit within GEMM_NEAR_PANELS: minimum rows of a task, and minimum tasks along the rows for tasks to have
whole lines of C. 784 x 128 x 512 gains 16 %. ResNet-50 of `benchmarks.deployed`."""
GEMM_PASS_K = 320
"""Maximum steps of k in a pass over C. Passes order the sums, so this and the next two are the same on every CPU."""
GEMM_PANEL_BYTES = 28 << 10
"""Maximum bytes of a panel of A in such a pass. Chosen: a first-level cache of 32 KiB keeps it beside a part
of B."""
GEMM_PREPACKED_K = 1024
"""GEMM_PASS_K if B is prepacked. `benchmarks.weights`."""
HOISTED_ROWS, HOISTED_TERMS, HOISTED_BYTES = 128, 16, 64 << 20
"""Hoisting a product out of a loop: maximum rows for it to be computed for all iterations in advance; minimum steps of
k for that to be faster than reading its result from memory; maximum bytes of the results. Chosen."""
LOOP_PANELS = 32 << 20
"""Maximum bytes of matrices that a loop packs before its first iteration: about what caches keep. Chosen. The same on
every CPU: panels have longer passes, which order sums."""
GEMM_PREPACKED_ROWS = 512
"""Maximum rows of C for A to be read in place if B is prepacked; beyond, A is packed once for all tasks.
`benchmarks.weights`."""
GEMM_PRIVATE_PRODUCT = 32 << 20
"""Maximum multiply-adds for a product of a batch to be a task of its own, with its own packed B. No case moves."""
GEMM_BATCH = 8
"""Minimum products of a batch for that. No case moves."""
GEMM_GROUP = 256 << 10
"""Multiply-adds of a task that computes many small products. Case `dot f32 2000 of 16`."""
GEMM_CHUNK_BYTES = (caches.L2 * 5 / 8).at_least(640 << 10)
"""Bytes of the chunk of B that a task reads for each of its rows, for 320 steps of k in 32 bits. It determines the
columns of C in a task. A second-level cache of 512 KiB gains nothing by smaller chunks. Case `dot f32 1536`."""
GEMM_B_RESIDENT = 128 << 10
"""Maximum bytes of B to be read in place for any m: it stays in the second-level cache unpacked. No case moves. The
same on every CPU: it chooses the algorithm, which orders sums."""
GEMM_AMX_IN_PLACE = 128
"""Maximum columns for tiles of A to be loaded in place. `benchmarks.kernels_gemm`."""
GEMM_PACK_WIDTH = 128
"""Approximate columns of B, or rows of A, that a task of the packing phase packs."""
GEMM_COLLIDING_ROWS = 12
"""Rows of A in one set of the first-level cache that cost nothing. With 14 rows, products take 1.2 to 1.3 times as long
on Zen 4: 512 x 1024 x 1024 on one thread 12.4 ms, 9.9 if A is packed."""
GEMM_COLLIDING_COLUMNS = 128
"""Minimum columns of C for such rows to be packed: with 64, packing takes as long as it saves."""
GEMM_PACK_PREFETCH = 8
"""Prefetch distance, in rows of B, while packing. Chosen."""
GROUPS_PREFETCH = 6 << 10
"""Prefetch distance, in bytes of weights in groups that one vector is multiplied by. Zen 4: 3072x576 of 4 bits from
memory takes 39 instead of 49 us; 2 KB gain half of that. From the caches, it takes 1.07 times as long."""
ROUNDED_GROUP = 16
"""Minimum terms with a scale in common, for activations to be rounded where that is asked for. Chosen: with fewer,
scales take more operations than products."""
UNPACKED_AGAIN = 16
"""Minimum times that a loop would unpack an element, for a small array to be unpacked before it if the loop would be
split otherwise. Chosen: zero points of groups are shared by at least as many weights."""
PACKED_FIELDS_BYTES = 64 << 10
"""Minimum bytes of words for their fields to be read as packed elements. Chosen: that of COMPUTED_OPERAND_BYTES."""
COMPUTED_OPERAND_BYTES = 64 << 10
"""Minimum bytes of an operand for a product to compute it where it reads it. Chosen: smaller ones stay in a cache."""
COMPUTED_OPERAND_SHARE = 0.75
"""Maximum share of an operand's bytes that the loop that computes it reads, for the product to do so where it reads it.
Chosen: packing an operand costs about what reading it costs."""
OWN_PART = 4
"""Minimum ratio of such an operand to a part of it, for the reader of the part to compute it again. Chosen."""
COMPUTED_OPERAND_ROWS = 8
"""Maximum rows that an element of an operand is multiplied by while it is in a register. Chosen: their sums take half
of the registers of AVX2."""
COMPUTED_OPERAND_PASSES = 3
"""Maximum times that a part of such an operand is computed, for as many rows each. With more, computing it takes longer
than packing it. Chosen: 24 rows of 2,048 x 2,048 weights."""
COMPUTED_VECTORS_SHARE = 2
"""Share of the first-level cache, one in so many, that the parts of all rows take that are multiplied by a part of such
an operand; of the second-level cache for a single row. Chosen: the operand and sums take the rest. It changes no
bits."""
FEATURES_LAST_WORK = 1 << 16
"""Minimum multiply-adds of a convolution with features first to be written with features last. Chosen: transposes of
smaller ones take as long as they do."""
FEATURES_LAST_LANES = 8
"""Minimum features of a depthwise convolution to be written with features last if it meets no other convolution. On
Zen 4 3, 4 and 6 features take 1.3 to 2.3 times as long then, 8 take 0.64 times."""
FEATURES_LAST_BYTES = caches.L2 * 4
"""Maximum bytes of the image and the result of such a convolution: transposes of more take several times as long. On
Zen 4, 3.6 MB take 0.4 times as long with features last, 6.4 MB 1.65 times."""
NARROWED_ROWS = 4
"""Maximum rows of a product for its constant weights to be kept in narrower numbers. On Zen 4, 4096x4096 in bf16 take
0.66 ms instead of 1.6 for one row, 1.0 instead of 1.5 for four, and as much as in f32 for eight."""
NARROWED_BYTES = 16 << 20
"""Minimum bytes of all such weights of a function: a last-level cache keeps fewer, and widening takes time, too."""
FLOATS_READ_TERMS = 32
"""Minimum terms of a product that reads a matrix of floats in registers. Chosen: fewer hardly fill a vector."""
COMPUTED_OPERAND_SUMS = 16 << 10
"""Maximum bytes of sums that such a task keeps: half of a first-level cache. Chosen."""
COMPUTED_FAR_BYTES = 4 << 20
"""Minimum bytes of the arrays that such an operand is computed from for units of work to have long runs of them, and
parts of the terms. `lowbit.py`. The same on every CPU: the parts order the sums."""
COMPUTED_FAR_SUMS = 64 << 10
"""Maximum bytes of sums that a task keeps then. Chosen: an eighth of a second-level cache."""
COMPUTED_OPERAND_PARTS = 8
"""Maximum parts of the terms. Chosen."""
COMPUTED_PARTS_BYTES = 512 << 10
"""Maximum bytes of the sums of all parts. Chosen."""
COMPUTED_OPERAND_UNITS = 16
"""Units of work that such a product has at least. Chosen: two for each of eight cores."""
COMPUTED_PREFETCH = 8 << 10
"""Approximate prefetch distance, in bytes of an array that a matrix is computed from, if lanes are terms: rows are
short, and later ones begin where the hardware does not look. Chosen: to the second-level cache, 4,096 take 7 % longer,
with weights of 1536x576 in 4 bits from memory, on one thread; 12,288 take 2 % longer."""
COMPUTED_PREFETCH_LINES = 16
"""Maximum lines of an array, such as scales, that are fetched at once for an output that reads a small part of a line
at a time. Chosen: longer rows are fetched in the loop, as the hardware follows them."""
COMPUTED_PRIVATE_ROWS = 1024
"""Maximum rows that are multiplied by a computed operand for each task to pack the columns that it needs, so that all
panels together are never in memory. With more rows, tasks share the panels of all columns. Chosen."""
GEMM_THIN = 32
"""Maximum rows of A that are treated as vectors. `benchmarks.kernels_gemm`. Case `dot f32 32x1024x4096`."""
GEMM_THIN_BYTES = 1 << 20
"""Minimum bytes of the matrix for several vectors to be treated so: it comes from beyond the caches. No case moves. The
same on every CPU, like GEMM_B_RESIDENT."""
GEMM_VECTOR_CHUNK = (caches.L1 * 2 / 3).at_least(16 << 10)
"""Maximum bytes of sums that a task of such a product keeps: most of the first-level cache, and room for 64 sums of 8
bytes for each of GEMM_THIN vectors."""
GEMM_VECTOR_FAR = caches.LAST_LEVEL / 4
"""Minimum bytes of the matrix for such a product to have one task a thread: memory is read faster in long contiguous
parts. Case `dot f32 vector x 3000x3000`."""
GEMM_VECTOR_PREFETCH = 8 << 10
"""Approximate prefetch distance of such a product in bytes of the matrix, if eight rows are fewer bytes: the latency of
memory times the read bandwidth of a core. Chosen. `benchmarks.kernels_gemm`."""
GEMM_VECTOR_SHORT = 256
"""Maximum bytes of a row for row-by-row products to prefetch the following rows: the hardware prefetcher follows longer
ones. Chosen."""
GEMM_PANEL_PREFETCH = 32
"""Prefetch distance of rows of B, in steps of k, for the tallest tiles: panels come from the second-level cache, and
prepacked panels from memory. `benchmarks.weights`."""
GEMM_SUM_TERMS = 128
"""Steps of k in one chain of additions of floats, a power of two; a tile adds longer sums to C in blocks. Shorter
chains round less, but C is read and written once a block. Chosen."""
EPILOGUE_BYTES = 12 << 10
"""Minimum bytes of a product's results per call of its epilogue, unless a task has fewer. Chosen."""
GEMM_AMX_PREFETCH = 2
"""Prefetch distance of AMX, in tiles of a panel. `benchmarks.kernels_gemm`."""
CONV_DISTANT = 4096
"""Minimum elements of a padded line for the elements that windows read to be gathered, if it also has WINDOW_SPARSE for
each of them. Chosen: far more than convolutions of models have, which have padded copies."""
CONV_TASK = 4 << 20
"""Approximate multiply-adds of a convolution's task. Case `conv 3x3 64x64x32`."""
CONV_TASKS, CONV_LINES = 32, 8
"""Sufficient number of tasks of a convolution, and maximum lines of a task for it not to be split further: consecutive
lines read the same lines of the input. U-Net of `benchmarks.deployed`."""
CONV_FEW_TASKS = 16
"""Number of tasks of a convolution below which they are resized so that threads finish together: five tasks for two
threads take a fifth longer than ten half-size ones. Chosen."""
CONV_EACH_TASK = 1 << 14
"""Multiply-adds equivalent to the fixed cost of a convolution's task, some 0.1 us. Chosen."""
CONV_KERNEL_BYTES = caches.L2 * 3 / 4
"""Bytes of a kernel, or of the part that a call of the tile reads, that the second-level cache keeps beside the input.
ResNet-50 of `benchmarks.deployed`."""
CONV_FAR_PIXELS = 256
"""Approximate pixels of a task if the kernel is larger. ResNet-50 of `benchmarks.deployed`."""
CONV_DEDICATED_TILE = 1 << 26
"""Minimum multiply-adds of a convolution for a tile as high as its lines to be compiled for it, if that wastes less. It
gains 15 % of 300 us, and takes 15 ms. Chosen."""
CONV_COLUMN_CALL = 80
"""Steps of a row of the tile that equal the cost of a call for one column of the window, where edge tiles leave out
columns. Chosen."""
CONV_EDGE_SHARE = 0.1
"""Minimum share of a convolution's work that its edge tiles must save by that. Chosen: windows of 33 pixels that are 12
or 24 apart gain 30 and 50 %. Windows of 7 adjacent pixels, a tenth of whose work is wasted, gain 3 % alone, and a
ResNet loses 1 %."""
CONV_EDGE_TILE = 10 << 20
"""Minimum multiply-adds that an edge tile of a dedicated height has to save. Chosen like CONV_DEDICATED_TILE: it takes
15 ms."""
CONV_GATHER = 4
"""Minimum idle rows of tiles, relative to a line's pixels, for pixels to be gathered: one part of this many times the
panels of a task. 13 pixels of 512 features gain 5 % when gathered, 20 of 256 lose 10 %. Chosen."""
CONV_FEW_FEATURES = 12
"""Maximum output features for the lanes of a convolution to run along its window. Chosen: 3 x 3 of 32 to 3 take a
seventh of the time of tiles, of 32 to 8 a third; of 64 to 12 they gain 20 %, of 16 to 12 nothing."""
CONV_FEW_STEPS = 5
"""Minimum steps of k for each feature for lanes to run along the window: their sums have to be added up in the end.
Chosen: single pixels of 16 to 3 features take two thirds, of 32 to 8 an eighth more."""
CONV_MARGINS = 1
"""Maximum share of an input to be padded that tasks copy at the margins of the image, each for itself. If it is more,
one padded copy is made for all. Lines of 128 pixels gain 3 %, those of 64 lose 2 %. U-Net of `benchmarks.deployed`."""
CONV_PLANE_FEATURES = 8
"""Maximum output features of an input channel for lanes to run along the pixels of planes, without products. Chosen."""
CONV_COPY_BYTES = 128 << 10
"""Approximate bytes of a padded image or of a kernel's panels that a task writes before the products. Chosen."""
CONV_TRANSPOSED_BYTES = 256 << 10
"""Maximum bytes of a kernel's rows that are transposed at a time to pack it. Chosen: they fit a second-level cache."""
CONV_WINDOW_PANELS, CONV_PIXEL_PANELS = 16, 4
"""Maximum panels of a kernel that a task packs, to read it in long runs: of windows, and of single pixels. Chosen."""
NARROW_ROWS = 64
"""Minimum rows for a product with few columns to become a convolution with few features. Chosen: fewer take 1 us."""
NARROW_PACKED_ROWS = 2
"""Minimum rows over the columns squared for that, if the columns are not constant. Chosen: packing 8 columns is worth
it for 128 rows, 10 for 256."""
NARROW_TERMS = 16
"""Minimum steps of k for that. Chosen: a vector of f32."""
DEPTHWISE_TASK = 1 << 18
"""Approximate multiply-adds of a task of a depthwise convolution with features last: some 4 us. Chosen."""
CONV_ADJACENT_IMAGES, CONV_ADJACENT_WINDOW = 8, 32
"""Minimum images, and minimum pixels of a window, for images that are adjacent in the input to be rows in place. Fewer
images leave the tile partly empty; with fewer pixels the sums are loaded and stored too often."""
CONV_ADJACENT_WORK = 64
"""Multiply-adds of a task for each element that it reads, for such images: operands come from the third-level cache."""
CONV_CALL_K = 1152
"""k elements of a micro-kernel call, unless one run is longer, or one line of the window with features first: nine
window positions of 128 features, which gain 4 % over two calls. Case `conv 3x3 16x16x192`."""

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

# ---------------------------------------------------------------------------- former names
former_names = {
    "BANDS_BUFFER": "LINE_BUFFER_BYTES",
    "BANDS_BYTES": "LINE_TILE_IMAGE_BYTES",
    "BANDS_KEPT": "LINE_TILE_KEPT",
    "BANDS_KERNEL_BYTES": "LINE_TILE_KERNEL_BYTES",
    "BANDS_LINES": "LINE_TILE_LINES",
    "BANDS_TASKS": "LINE_TILE_TASKS",
    "BYTE_LEAST_DEPTH": "BYTE_LEAST_SIDE",
    "BYTE_LEAST_FEATURES": "BYTE_LEAST_SIDE",
    "BYTE_MERGED_GROUPS": "BYTE_BLOCK_FEATURES",
    "CHOICE_PIECES": "CHOICE_SEGMENTS",
    "CONV_ENDS": "CONV_EDGE_SHARE",
    "CONV_END_TILE": "CONV_EDGE_TILE",
    "CONV_DISTANT_SHARE": "WINDOW_SPARSE",
    "CONV_FAR_KERNEL": "CONV_KERNEL_BYTES",
    "CONV_OWN_TILE": "CONV_DEDICATED_TILE",
    "CONV_SERIAL": "GEMM_SERIAL",
    "CONV_TAP_CALL": "CONV_COLUMN_CALL",
    "COUNTED_TURNS": "COUNTED_ITERATIONS",
    "DEAR_COST": "EXPENSIVE_COST",
    "DEPTHWISE_SERIAL": "PARALLEL_WORK",
    "EARLY_PRODUCT": "PRECOMPILED_PRODUCT",
    "EXCHANGE_BYTES": "PING_PONG_BYTES",
    "FEW_COLUMNS_PACKED": "NARROW_PACKED_ROWS",
    "FEW_COLUMNS_ROWS": "NARROW_ROWS",
    "FEW_COLUMNS_STEPS": "NARROW_TERMS",
    "GEMM_AMX_AHEAD": "GEMM_AMX_PREFETCH",
    "GEMM_FEW_BYTES": "GEMM_SKINNY_BYTES",
    "GEMM_FEW_ROWS": "GEMM_SKINNY_ROWS",
    "GEMM_PACK_AHEAD": "GEMM_PACK_PREFETCH",
    "GEMM_PANEL_AHEAD": "GEMM_PANEL_PREFETCH",
    "GEMM_VECTOR_AHEAD": "GEMM_VECTOR_PREFETCH",
    "GEMM_VECTOR_SERIAL": "PARALLEL_WORK",
    "HOISTED_STEPS": "HOISTED_TERMS",
    "HOMES_ASKED": "MATERIALIZE_CANDIDATES",
    "LEAST_TURNS": "INTERCHANGE_LEAST_ITERATIONS",
    "MATRIX_TOGETHER": "MATRIX_COOPERATIVE",
    "MPI_PIECE_BYTES": "MPI_CHUNK_BYTES",
    "NUMBER_BYTES": "SCALAR_BYTES",
    "PIECE_BYTES": "SEGMENT_BYTES",
    "PIECE_ROWS": "SEGMENT_ROWS",
    "PREFETCH_AHEAD": "PREFETCH_DISTANCE",
    "SCAN_COLUMN_VECTORS": "SCAN_ROWS",
    "SELECT_UNITS": "SCATTER_UNITS",
    "SPECIALISATIONS": "SPECIALIZATIONS",
    "STORED_BEHIND_BYTES": "BACKGROUND_STORE_BYTES",
    "SUBSTITUTION_PARALLEL": "PARALLEL_WORK",
    "THREADED_READ_BYTES": "THREADED_BYTES",
    "THREADED_TEXT_BYTES": "THREADED_BYTES",
    "TILE_EXTENT": "SHORT_LANES",
    "TILE_LEAST_SIDE": "SHORTER_LANES",
    "TIME_BLOCKS_BYTES": "TEMPORAL_TILE_LOOP_BYTES",
    "TIME_BLOCKS_CACHE": "TEMPORAL_TILE_BYTES",
    "TIME_BLOCKS_CHUNK": "TEMPORAL_TILE_CHUNK",
    "TIME_BLOCKS_FEW": "TEMPORAL_TILE_LEAST_ITERATIONS",
    "TIME_BLOCKS_FRONT": "TEMPORAL_TILE_WAVEFRONT",
    "TIME_BLOCKS_SHARED": "TEMPORAL_TILE_SHARED_BYTES",
    "TIME_BLOCKS_STRIPES": "TEMPORAL_TILE_STRIPES",
    "TIME_BLOCKS_TURNS": "TEMPORAL_TILE_ITERATIONS",
    "TOGETHER_OPS": "ROW_BATCH_OPS",
    "TOGETHER_VECTORS": "ROW_BATCH_VECTORS",
    "TURNS_OPS": "INTERCHANGE_OPS",
    "TURNS_VECTORS": "INTERCHANGE_VECTORS",
    "TURNS_WORK": "INTERCHANGE_WORK",
    "TURN_BYTES": "BATCH_BLOCK_BYTES",
    "TURN_KERNELS": "BATCH_BLOCK_KERNELS",
    "TURN_LARGEST": "BATCH_BLOCK_LARGEST",
    "TURN_SECONDS": "SWITCH_INTERVAL_SECONDS",
    "UNROLL_TURNS": "UNROLL_TRIP_COUNT",
    "USUAL_PART": "INTERIOR_PART",
    "USUAL_TURNS": "ASSUMED_TRIP_COUNT",
    "WINDOW_ASKS": "WINDOW_CHECKS",
    "WINDOW_UNITS": "MAX_TASKS",
    "WRITTEN_OUT_OPS": "UNROLLED_OPS",
}
"""Former name of a threshold -> its name. They go with the next release."""


def __getattr__(name: str) -> Any:
    """Returns a threshold by its former name, with a DeprecationWarning."""
    if name not in former_names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"shlo_jit.tuning.{name} is called {former_names[name]} now", DeprecationWarning, stacklevel=2)
    return globals()[former_names[name]]
