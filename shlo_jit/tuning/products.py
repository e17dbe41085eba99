"""Thresholds of products and convolutions."""

from __future__ import annotations

from shlo_jit import caches

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
COMPUTED_KERNEL_FEATURES = 16
"""Minimum input and output features of a group for a convolution with several groups to compute its kernel while it is
packed. Chosen: fewer ones do not fill register tiles, and their kernels are read in place."""
COMPUTED_OPERAND_ROWS = 8
"""Maximum rows that an element of an operand is multiplied by while it is in a register. Chosen: their sums take half
of the registers of AVX2."""
COMPUTED_OPERAND_PASSES = 3
"""Maximum times that a part of such an operand is computed, for as many rows each. With more, computing it takes longer
than packing it. Chosen: 24 rows of 2,048 x 2,048 weights."""
COMPUTED_VECTORS_SHARE = 0.6
"""Maximum share of the first-level cache that the parts of all rows take that are multiplied by a part of such an
operand; of the second-level cache for a single row, or wide elements. The operand and sums take the rest. It changes no
bits. Zen 4, 8 rows and weights of 1536x576 in 4 bits, on one thread: 7.3 ms with whole rows (56 % of the cache), 8.2
with two blocks."""
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
COMPUTED_VECTORS_BYTES = 16 << 10
"""Minimum bytes of one to three vectors for several outputs to be computed together, with lanes of terms, although rows
are read at several places then: half of a first-level cache, as each output would read more from the second level. One
thread of Zen 4 reads 8 matrices of 2048x4096 in f32 for one vector each at 26 instead of 18 GB/s, of 4096x2048 at 28
instead of 30; for two vectors each at 22 instead of 14, and 23 instead of 20."""
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
GEMM_VECTOR_LONG = 4 << 10
"""Maximum bytes of a row for such a product with one vector to prefetch the next rows; along longer ones it prefetches
the same rows. One thread of a Zen 4: rows of 2 KB take 1.17 times as long so, of 4 KB 1.04, of 12 KB 0.86."""
GEMM_VECTOR_ALONG = 512
"""Prefetch distance along a row in bytes. 3000x3000, one thread of a Zen 4, relative to OpenBLAS: 0.97, without
prefetches 0.99, of the next rows 1.07, 2048 bytes ahead 1.30."""
GEMM_VECTOR_ROW = 32 << 10
"""Maximum bytes of a row for eight rows at a time to prefetch the next eight. One thread of a Zen 4, f32, without
prefetches: rows of 3 KiB from memory take 1.35 times as long, of 8 KiB 1.26, of 16 KiB 1.25, of 64 KiB 0.97, of 4 MB
0.55; rows of 4 KiB from the second-level cache 0.83."""
SEQUENTIAL_ROW_BYTES = 256
"""Maximum bytes of a row for the hardware to prefetch several rows that are read together and follow each other.
Chosen."""
GEMM_PANEL_PREFETCH = 32
"""Prefetch distance of rows of B, in steps of k, for the tallest tiles: panels come from the second-level cache, and
prepacked panels from memory. `benchmarks.weights`."""
GEMM_READ_AGAIN = 4
"""One row in so many of a tile of two vectors of floats reads its element of A from memory for both of its
multiply-adds, which AVX-512 does in the same instruction, instead of once into a register. On Zen 4 such a tile then
reaches 97 % of the peak instead of 94.5 %; tiles of one and of three vectors do so anyway. Pairs of bf16 would take 7 %
longer. If all rows did, CPUs that start two multiply-adds of 512 bits in a cycle would start too few loads."""
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
