"""Every threshold that steers a choice, once: its unit, what it separates, and where the figure is from.

None of them changes what a program means; most change neither its results' bits. A case is one of `benchmarks`, whose
code changes when the figure is halved or doubled; `python -m benchmarks.thresholds` times it, docs/tuning.md has the
table. "No case moves" says that none of the cases tried does. "Chosen" stands for a figure that was reasoned out, and
that no case has contradicted.
"""

from __future__ import annotations

from shlo_jit.sizes import Symbol

# ---------------------------------------------------------------------------- size of a program (passes)
WEIGHT_GROWTH = 4
"""How many times as large as the constants that they are made of weights may become when they are prepared: bytes that
are made floats grow so. Chosen."""
FOLD_ELEMENTS = 4096
"""Elements of a constant up to which ops on constants are folded. Chosen: the table of a sinusoid folds, weights of a
layer do not."""
INLINE_OPS = 4000
"""Ops of a program up to which every call is written out. `benchmarks.compile_growth`: below, planning and compiling
the whole is no dearer than its parts."""
INLINE_GROWTH = 4
"""How much larger than its text a program may become by writing out calls. `benchmarks.compile_growth`."""
INLINE_SIZES = (1 << 60, 1000, 300, 100, 30, 10, 0)
"""Ops of the largest function that is written out; the first is taken with which the program is small enough. Chosen:
about a factor of three from one to the next."""
INLINE_LARGEST = 5_000_000
"""Ops of a program beyond which it is refused, where calls have to be written out. Chosen: bounds memory."""
INLINE_DEPTH = 50
"""Levels of control flow that writing out calls may make of less. Chosen: far below what recursion can take."""
UNROLL_TURNS = 8
"""Turns of a counted loop up to which it is written out. Chosen: loops of a few turns in real programs. No case
moves."""
UNROLL_OPS = 320
"""Ops that a loop written out may have in all. Chosen: below the size of one loop nest. No case moves."""
TURN_LARGEST, TURN_BYTES, TURN_KERNELS = 16 << 20, 4 << 20, 8 << 20
"""Bytes of the largest value of a chain of convolutions from which images go through it in turn; those of the largest
value of a turn at most, if it has several images; of all kernels of the chain. ResNet-50 of `benchmarks.deployed`, in
batches."""
NARROW_PRODUCT = 3
"""Terms and columns up to which a product of any number of rows is computed as a loop over the rows. Case
`dot f32 80000x3x3`."""
SMALL_PRODUCT = 1 << 11
"""Multiply-adds of a product (one of a batch) up to which it is a reduction and fuses like one: the routine would spend
its time on deciding and packing. Case `dot f32 2000 of 12`."""
SMALL_PRODUCT_STRIDED = 1 << 9
"""The same where lanes would be columns that are not side by side, or elements have less than four bytes: the routine
transposes as it packs, and multiplies those in pairs or fours. No case moves."""
SMALL_PRODUCT_TERMS = 32
"""Terms from which lanes are those, not columns, if terms are side by side. No case moves."""
SMALL_VECTOR_PRODUCT = 1 << 14
"""Multiply-adds of a vector and one matrix, whose elements are read once in either way. Case `dense 1x100`."""
SMALL_COMPLEX_PRODUCT = 1 << 12
"""Multiply-adds up to which a complex product is one of complex numbers, not four real ones. Chosen."""
ADJACENT_ROWS = 16
"""Rows of a product that is transposed from which they become its columns, so that the transpose copies runs of them.
Chosen: a register of f32."""
DILATION_PHASES = 16
"""Convolutions at most that one over a dilated input becomes. Chosen: strides of 4 x 4 in a gradient."""
BYTE_PATCHES = 1 << 28
"""Bytes of gathered patches up to which a convolution of bytes is a product of them. Chosen: bounds memory."""
BYTE_LEAST_DEPTH, BYTE_LEAST_FEATURES = 8, 8
"""Products and results that a row of patches must have for the copies to pay. Chosen."""
BYTE_BLOCK_FEATURES, BYTE_MERGED_GROUPS = 32, 32
"""Results that a block of groups should have, and groups it may have: all but one part of its products are with zeros.
Chosen: a register of bytes."""
COUNTED_TURNS = 4096
"""Turns that are counted of a loop in custom code, to know how often it turns. Chosen: some milliseconds."""
BYTE_SEARCH = 8
"""Ops that are looked through from a product's operand to bytes. Chosen: bounds compile time."""
LIFT_UNROLLED = 4
"""Turns up to which a loop in a lifted region is written out. Chosen."""
LIFT_POSITIONS = 1 << 10
"""Window positions up to which a window with a lifted body goes position by position. Chosen: bounds compile time."""
SELECTED_OPS = 64
"""Ops up to which a comparator with conditions computes all its branches; of a longer one, a function computes those
that are taken. Chosen."""

# ---------------------------------------------------------------------------- fusion
NEST_OPS = 400
"""Ops of one loop nest. More would cost more to compile than they save: `benchmarks.compile_growth`."""
NEST_TWICE_OPS = 64
"""Ops of a nest up to which a value is computed in it at two places rather than written. Chosen."""
DEAR_COST = 8
"""Cost from which a value is written rather than computed several times over, by loops around those that it depends on.
Case `forces between bodies`."""
CHEAP_COST, LITTLE = 2, 16
"""Cost up to which a value is computed by each of several kernels that read it, where what it is made of has so many
times fewer elements. Case `forces between bodies`."""
FREE_PLACES = 8
"""Places of one nest at which an index map is still followed rather than its operand's copy written. Chosen: a
stencil's."""
NEAR_PLACES = 27
"""The same of parts, pads, rolls and borders of what is in memory in any case. Chosen: a stencil's in three
dimensions."""
MOST_PLACES = 64
"""Places of one nest at which any op is computed. Bounds compile time: ops that read an operand at two places each may
want it at twice as many with every op."""
PLACE_TERMS = 128
"""Terms and conditions of a place from which the op is written to memory, and read from there at a plain place. Bounds
compile time: a place with run-time terms may have twice as many with every op. Chosen: more than borders of stencils
and indices of indices have."""
CHOICE_PIECES = 4
"""Pieces of one tensor that a loop reads where they are, rather than their concatenation. Chosen: rolls have two,
tensors with borders three."""
CHOICE_DEPTH = 100
"""Ops that are looked through to find what a choice is made of. Bounds compile time."""
USUAL_PART = 2
"""One in so many turns of a loop, or more, are alike, for code without conditions to be written for them. Chosen."""
UPDATE_SHARE = 2
"""An update of one in so many elements, or more, is chosen from with what it leaves where it cannot be made in place.
Chosen: the same traffic."""
HOMES_ASKED = 50
"""Of the nests that read a value, so many are asked whether they can also write it: bounds compile time."""
ROW_ELEMENTS = 1 << 16
"""Elements of a row that is passed over several times: it has to stay in the cache. Above 2^16 floats the second
pass comes from memory. No case moves."""
COLUMN_ELEMENTS = 2048
"""The same for rows whose elements are not adjacent; a quarter where they lie a multiple of half a page apart, since
they fall into the same sets of the cache. Batch norm over NHWC tensors. No case moves."""
FEW_ROWS, FEW_ROWS_ELEMENTS = 16, 4096
"""Rows below which longer rows are no row program: there is too little to do side by side. Chosen."""
EPILOGUE_COPIES = 4
"""Places that an epilogue writes an element of the product to, at most: the pixels that an image made twice as large
has for one. More would be more lines than the first level cache has ways. Chosen."""
EPILOGUE_DISTANCE = 500
"""Steps between a product and the loop that becomes its epilogue: all of them are looked at. Bounds compile time."""
PIECE_BYTES = 4 << 10
"""Bytes that are not copied, at least, for each of the products that a concatenation becomes. Chosen: what a call of
the routine costs."""
PIECE_ROWS = 8
"""Rows that may meet a concatenation that is read in pieces. Chosen: queries of a group that share a head's keys. Many
would pack each piece on its way from memory, which takes longer than a copy and packing that."""
ATTENTION_LEAST_COLUMNS = 16
"""Columns of scores below which lanes along a row of them are not worth much. Chosen."""
ATTENTION_OPERAND_BYTES = 8 << 20
"""Bytes of keys and values that each row meets, up to which every task may pack them. Chosen: a share of the last level
of cache."""
ATTENTION_TASK_ROWS = 64
"""Rows that a task of attention has at least: it packs keys and values for them. Chosen. Case
`causal attention`."""
RECOMPUTED_ELEMENTS = 1 << 18
"""Weights of attention from which its gradient computes them again. Chosen: a megabyte, which leaves the cache."""
KEPT_WEIGHTS_BYTES = 16 << 20
"""Exponentials of attention, of all of a function, up to which its gradient reads them rather than computing them
again: Chosen: a part of the last level of cache."""
ATTENTION_LEAST_TASKS = 8
"""Tasks below which large products are cut otherwise. Chosen: a machine of 8 cores."""
ORDER_SEARCH = 1000
"""Steps looked at before one step is taken to depend on another. Bounds compile time."""

# ---------------------------------------------------------------------------- tasks
TASK_WORK = 1 << 15
"""Element operations a task should have, so that handing it over (some 0.3 us) costs little. Case `add 3M`."""
PARALLEL_WORK = 1 << 17
"""Element operations below which a kernel runs on the caller: waking a worker takes some 5 us. Case `add 30K`."""
LONG_TASK = 1 << 26
"""Element operations of a task at most, where MAX_TASKS would make it longer: between tasks a call can be interrupted.
Chosen: tens of milliseconds."""
MAX_TASKS = 64
"""Tasks of a kernel: several for each of 16 threads, so that a slow one does not hold up the rest. Case `exp`."""
SPLIT_UNITS = 8
"""Units of rows below which a large reduction is split along the row instead. No case moves."""
COPY_PARALLEL_BYTES = 1 << 19
"""Bytes from which a copy is cut into tasks. Case `update rows`."""

# ---------------------------------------------------------------------------- loop nests
SHORT_LANES, SHORTER_LANES = 8, 4
"""Extents below which lanes along a variable are not worth much, and nothing. Chosen."""
SHORT_SELECTION = 56
"""Elements of a row below which lanes run along the rows in the search for its greatest (argmax), where there are
gathers of its elements: combining lanes takes as long. Case `argmax of short rows`."""
FEW_ELEMENTS, FEW_ELEMENTS_COST = 4, 32
"""Elements of a loop nest, and what an element costs, up to which there are no lanes: states of that size are numbers
of a loop (a point in space, a rotation). Chosen."""
TOGETHER_VECTORS, TOGETHER_OPS = 4, 12
"""Vectors of a row, and ops and loads of its body, up to which several rows combine their lanes together: of longer
rows that is little of the work, and larger bodies, which are written once a row, become long texts. Chosen."""
STRIDED_LOAD = 8
"""Strides up to which a load takes whole vectors and picks its elements from them, instead of gathering them one by
one. Case `strided slice`."""
WRITTEN_OUT_OPS = 64
"""Ops and loads of the turns of a reduction up to which they are written one after the other. Chosen: products of
4 x 4 matrices gain half."""
INTERLEAVED = 4
"""Vectors up to which results that lie side by side in memory are shuffled into one run, instead of scattered. Chosen:
of more, lanes run along the short dimension."""
SMALL_TENSOR = 256
"""Elements up to which a strided walk costs little, since the tensor stays in the first level cache. Chosen."""
TILE_SIDE = 16
"""Elements of a side of the tiles that are transposed in registers. Case `transpose 3000`."""
TILE_LEAST_SIDE = 4
"""Lanes below which a transpose in registers gains nothing. Chosen."""
TILE_EXTENT = 8
"""Extents below which crossing loads are not tiled. Chosen."""
TILE_OPS = 60
"""Ops of a nest up to which it is tiled: its body is written for every line of a tile. Chosen."""
TILE_STRIPE = 4
"""Tiles next to each other that a turn handles: it touches fewer memory pages that way. Case `transpose 3000`."""
TILE_COLLIDING = 4096
"""Bytes between the lines that tiles next to each other write, a multiple of which leaves them one tile a turn: they
share a set of the first level cache. A transpose of 64 x 64 x 64 takes 0.6 of the time. Chosen."""
ROW_SUM_UNROLL = 16
"""Vectors of neighbouring rows that a reduction with a tiny body carries. Case `sum of columns`."""
PREFETCH_BYTES = 1 << 21
"""Bytes of an operand from which it comes from memory, or the last level of cache. Case `heat, 60 steps`."""
PREFETCH_AHEAD = 2048
"""Bytes that such operands are fetched ahead: gelu 6.9 to 4.6, silu 14.1 to 5.8 ns a vector on 4M elements. Case
`gelu`."""
STASH_COST = 8
"""Cost of an op above which its result is kept for a later pass over the row rather than computed again. Case
`softmax`."""
STASH_BYTES = 1 << 18
"""Bytes of a row's intermediate results that are kept from pass to pass, on the stack of a thread. No case moves."""
STREAM_BYTES = 1 << 23
"""Bytes of an output from which a plain loop writes it with non-temporal stores. Case `add 3M`."""
COPY_STREAM_BYTES = 1 << 25
"""Bytes from which a copy's stores are non-temporal: they need no reading of what they overwrite. No case moves."""

# ---------------------------------------------------------------------------- other kernels
WINDOW_SPARSE, WINDOW_WIDE = 4, 64
"""Positions of a window for each element of the input that it can have, and in all, from which padding is counted
instead of visited. Chosen: more than windows of models have."""
WINDOW_ASKS = 1 << 16
"""Padding values that are folded between looks at signals. Chosen: below a millisecond."""
WINDOW_UNROLLED = 64
"""Window positions up to which a window's fold is written out. No case moves."""
WINDOW_SMALL = 16
"""Window positions up to which several vectors of outputs are folded side by side. No case moves."""
WINDOW_VECTORS = 4
"""How many. Case `max pool 2x2`."""
WINDOW_UNITS = 64
"""Units that a window kernel should have. No case moves."""
WINDOW_BLOCK = 1024
"""Outputs of the last dimension in a unit, where the other dimensions give few units."""
SCAN_SIMPLE_COST = 4
"""Cost of a body up to which scans run side by side. No case moves."""
SCAN_ROWS = 4
"""Rows that are scanned side by side, to hide the latency of the chain from vector to vector. Case `cumulative sum`."""
SCAN_COLUMN_VECTORS = 4
"""Vectors of columns side by side in a unit, where the scanned dimension is strided."""
SELECT_UNITS = 16
"""Units that a select_and_scatter should have."""
FILL_BLOCK = 1 << 14
"""Elements of a unit that fills a tensor."""
SCATTER_UNITS = 16
"""Turns of a loop from which it is the one that is cut into tasks. No case moves."""
SCATTER_VECTORS = 4
"""Vectors of a window that a unit has. Case `scatter add rows`."""
SCATTER_ACCESS_COST = 4
"""Of an element update's memory accesses, in element operations."""
SORT_LONG_LINE = 1 << 17
"""Elements from which one line is worth several tasks. No case moves."""
SORT_CHUNKS = 8
"""Chunks of such a line, a power of two. More would be more counters to add up than threads to gain; chosen.
Case `sort 500K`."""
TOP_K_INSERTED = 256
"""k up to which a top-k keeps a sorted array. No case moves."""
FFT_BLOCK_BYTES = 128 << 10
"""Of a block's elements: the two buffers of a block stay in the second level cache. No case moves."""
FFT_PARALLEL = 1 << 14
"""Elements from which on threads pay. No case moves."""
FFT_BLOCK_ELEMENTS = 1 << 14
"""Of a block of short sequences, at the most. Chosen."""
FFT_LARGEST_ALONE = 31
"""Largest radix of a pass that has no whole registers to work on. Timed by length; see docs/architecture.md."""
FFT_LARGEST_PRIME = 127
"""Largest radix: beyond, Bluestein's algorithm. Timed by length: 101 is about where it begins to win."""
FFT_SLICE = 2048
"""Elements of a row that a unit of a pass treats, where rows are long. Chosen: the first level cache. No case moves."""
MATRIX_TOGETHER = 256
"""Order from which threads work together on one matrix rather than on several. No case moves."""
SUBSTITUTION_PARALLEL = 1 << 17
"""Multiply-adds of a block row from which on threads pay. No case moves."""
LAPACK_BLOCK = 64
"""Columns a blocked routine of LAPACK treats at once, at most: what its own tables say for these sizes."""

# ---------------------------------------------------------------------------- products
ATTENTION_TASKS = 24
"""Tasks of attention, about: more would pack more often, fewer keep fewer threads busy. Case `attention 12 of 384`."""
ATTENTION_BLOCK_BYTES = 32 << 10
"""Bytes of scores, about, that a block of rows has: the first level cache. Case `attention 12 of 384`."""
GRADIENT_BLOCK_BYTES = 512 << 10
"""Bytes of scores, about, that a block of rows of the gradient of attention has: both products that it reads. Chosen: a
part of the second level cache; fewer rows would go over the sums more often."""
BANDS_BYTES = 1 << 20
"""Bytes of images from which on the step that makes them and the one that reads them run in bands of lines. Chosen: the
second level cache of a core; two cores keep what is smaller from one step to the next."""
BANDS_BUFFER = 512 << 10
"""Bytes, about, of what a band makes and reads again. Chosen: half of the second level cache; the rest is for what
comes in and goes out."""
BANDS_KEPT = 8
"""Lines of a band, at least, for each that the band after it needs as well, and which is moved for it. Chosen: moving
more took as long as the caches saved."""
BANDS_KERNEL_BYTES = 640 << 10
"""Bytes of weights that bands meet at most, each of them anew. Chosen: what the second level cache keeps beside some
lines."""
BANDS_TASKS = 4
"""Tasks of steps in bands for each thread of the call. Where bands need lines of their neighbours there is one for each
thread: tasks make those at their ends twice. Chosen."""
BANDS_LINES = 4
"""Lines of the last result that a task in bands has at least. Chosen: some more than what it makes twice."""
GEMM_SERIAL = 1 << 20
"""Multiply-adds up to which a product runs on the caller: some 10 us, where waking threads costs as much. No case
moves."""
GEMM_TASK = 6 << 20
"""Multiply-adds of a task: small enough that 8 threads get several each of a 1024 x 1024 x 1024 product. Case
`dot f32 512`."""
GEMM_LEAST_ROWS = 8
"""Rows of a tile that take as long as fewer: the latency of multiply-adds, or memory. `benchmarks.weights`."""
GEMM_TASK_ROWS = 64
"""Rows of C that a task's columns are reckoned for at least, where B was packed before. `benchmarks.weights`."""
GEMM_TASKS, GEMM_LEAST_TASK = 16, 1 << 19
"""Tasks along the columns that a product is cut into, about, where B was packed before, and multiply-adds of the
shortest: some 4 us. `benchmarks.weights`."""
GEMM_FEW_TASKS = 8
"""Tasks of a product below which an odd number of them is made twice as many, where B was packed before. Chosen: of
five, two threads wait for one with nothing to do."""
GEMM_PRIVATE_ROWS = 160
"""Rows of C up to which a task packs its own chunk of B. Case `dot f32 128`."""
GEMM_FEW_ROWS = 48
"""Rows of C up to which a B that is no constant, and that no cache keeps, is read where it lies, a few rows at a time.
Transformer block of `benchmarks.curves`."""
GEMM_FEW_BYTES = 14 << 20
"""Bytes of the matrices of a program up to which it does so: pieces of rows come fast from a cache, and slowly from
memory. Chosen."""
GEMM_NEAR_PANELS = 1 << 19
"""Bytes of panels that the rows of a task meet, of many rows: half of the second level cache. ResNet-50 of
`benchmarks.deployed`, in batches."""
GEMM_NEAR_ROWS, GEMM_CHUNKS = 56, 12
"""Rows of a task at least where all panels are so near, and tasks along the rows from which they have whole lines of C:
784 x 128 x 512 gains 16 %. ResNet-50 of `benchmarks.deployed`."""
GEMM_PREPACKED_K = 1024
"""Steps of k in a pass over C at most, where B was packed before. `benchmarks.weights`."""
HOISTED_ROWS, HOISTED_STEPS, HOISTED_BYTES = 128, 16, 64 << 20
"""Rows of a product in a loop up to which it is computed for all turns before; steps of k from which that is faster
than reading its result from memory; bytes of that at most. Chosen."""
LOOP_PANELS = 32 << 20
"""Bytes of matrices that a loop packs before its first turn at most: about what caches keep. Chosen."""
GEMM_PREPACKED_ROWS = 512
"""Rows of C up to which a B that was packed before is met by an A as it lies; beyond, A is packed once for all tasks.
`benchmarks.weights`."""
GEMM_PRIVATE_PRODUCT = 32 << 20
"""Multiply-adds up to which a product of a batch is a task of its own, with its own packed B. No case moves."""
GEMM_BATCH = 8
"""Products from which a batch has enough of them for that. No case moves."""
GEMM_GROUP = 256 << 10
"""Multiply-adds of a task made of many small products. Case `dot f32 2000 of 16`."""
GEMM_WIDEST = 512
"""Columns of C in a task, about: with kc steps of k a chunk of B takes 3/4 MB of the second level cache. Case
`dot f32 1536`."""
GEMM_B_RESIDENT = 128 << 10
"""Bytes of B that are read in place whatever m is: they stay in the second level cache as they are. No case moves."""
GEMM_AMX_IN_PLACE = 128
"""Columns up to which tiles of A are loaded from where A lies. `benchmarks.kernels_gemm`."""
GEMM_PACK_WIDTH = 128
"""Columns of B or rows of A, about, that a task of the packing phase takes."""
GEMM_COLLIDING_COLUMNS = 256
"""Columns of C from which rows of A that share a set of the cache are packed. Chosen."""
GEMM_PACK_AHEAD = 8
"""Rows of B that are fetched before they are packed. Chosen."""
GEMM_THIN = 32
"""Rows of A that are taken as vectors at most. `benchmarks.kernels_gemm`. Case `dot f32 32x1024x4096`."""
GEMM_THIN_BYTES = 1 << 20
"""Bytes of the matrix from which several vectors are taken so: it comes from beyond the caches. No case moves."""
GEMM_VECTOR_SERIAL = 1 << 17
"""Elements of the matrix up to which the caller does a product with a vector alone."""
GEMM_VECTOR_CHUNK = 32 << 10
"""Bytes of sums that a task of such a product keeps at most: the first level cache. No case moves."""
GEMM_VECTOR_FAR = 8 << 20
"""Bytes of the matrix from which such a product has a task a thread: memory is read faster in long pieces. Case
`dot f32 vector x 3000x3000`."""
GEMM_VECTOR_AHEAD = 8 << 10
"""Bytes of the matrix, about, that such a product fetches before it wants them, where eight rows of it are fewer: the
latency of memory times what a core reads. Chosen. `benchmarks.kernels_gemm`."""
GEMM_VECTOR_SHORT = 256
"""Bytes of a row up to which products row by row fetch rows that follow: the processor sees by itself where longer ones
go. Chosen."""
GEMM_PANEL_AHEAD = 32
"""Steps of k that rows of B are fetched before the tallest tiles want them: panels come from the second level cache,
and those that were packed before from memory. `benchmarks.weights`."""
EPILOGUE_BYTES = 12 << 10
"""Bytes of a product's results that its epilogue is called with at least, unless a task has fewer. Chosen."""
GEMM_AMX_AHEAD = 2
"""Tiles of a panel that AMX fetches before they are wanted. `benchmarks.kernels_gemm`."""
CONV_DISTANT, CONV_DISTANT_SHARE = 4096, 4
"""Elements of a padded line, in all and for each that windows read, from which what windows read is gathered. Chosen:
far more than convolutions of models have, which have padded copies."""
CONV_TASK = 4 << 20
"""Multiply-adds of a convolution's task, about. Case `conv 3x3 64x64x32`."""
CONV_TASKS, CONV_LINES = 32, 8
"""Tasks of a convolution that are enough, and lines of a task up to which there are no more of them: lines that follow
each other read the same lines of the input. U-Net of `benchmarks.deployed`."""
CONV_FEW_TASKS = 16
"""Tasks of a convolution below which they are cut so that threads are done together: five tasks for two threads take
a fifth longer than ten halves of them. Chosen."""
CONV_EACH_TASK = 1 << 14
"""Multiply-adds that take as long as a task of a convolution does by itself, some 0.1 us. Chosen."""
CONV_FAR_KERNEL, CONV_FAR_PIXELS = 3 << 18, 256
"""Bytes of a kernel that the second level cache does not keep beside the input, and pixels of a task then, about.
ResNet-50 of `benchmarks.deployed`."""
CONV_OWN_TILE = 1 << 26
"""Multiply-adds of a convolution from which a tile as high as its lines are compiled for it, where that wastes less. It
gains 15 % of 300 us, and takes 15 ms. Chosen."""
CONV_TAP_CALL = 80
"""Steps of a row of the tile that a call for one column of the window costs: where ends of lines leave out columns.
Chosen."""
CONV_ENDS = 0.1
"""Share of a convolution's work that they have to save by that. Chosen: windows of 33 pixels that are 12 or 24 apart
gain 30 and 50 %; those of 7 adjacent pixels, a tenth of whose work is in vain, 3 % alone, and a ResNet loses 1 %."""
CONV_END_TILE = 10 << 20
"""Multiply-adds that a tile of a height of its own has to save there. Chosen, as that of lines: it takes 15 ms."""
CONV_GATHER = 4
"""Share of a line's pixels that may be idle rows of tiles, before they are gathered: one part of this many times the
panels of a task. 13 pixels of 512 features gain 5 % when gathered, 20 of 256 lose 10 %. Chosen."""
CONV_FEW_FEATURES = 12
"""Output features up to which the lanes of a convolution go along its window. Chosen: 3 x 3 of 32 to 3 take a seventh
of what tiles take, of 32 to 8 a third; of 64 to 12 they gain 20 %, of 16 to 12 nothing."""
CONV_FEW_STEPS = 5
"""Steps of k a feature from which they do: their sums have to be added up in the end. Chosen: single pixels of 16 to 3
features take two thirds, of 32 to 8 an eighth more."""
CONV_MARGINS = 1
"""Of an input that has to be padded, the share that tasks copy at the margins of the image at most, each for itself;
where it is more, one copy is made for all. Lines of 128 pixels gain 3 %, those of 64 lose 2 %. U-Net of
`benchmarks.deployed`."""
FEW_COLUMNS_ROWS = 64
"""Rows from which a product with a few columns is a convolution with a few features. Chosen: fewer take 1 us."""
FEW_COLUMNS_PACKED = 2
"""Rows for each column, squared, from which it is where the columns are no constant. Chosen: packing 8 columns is
worth it for 128 rows, 10 for 256."""
FEW_COLUMNS_STEPS = 16
"""Steps of k from which it is. Chosen: a vector of f32."""
CONV_SERIAL = 1 << 20
"""Multiply-adds up to which the caller does everything."""
DEPTHWISE_SERIAL = 1 << 17
"""The same of a depthwise convolution. Chosen: it is bound by memory, and takes some eight times as long a piece."""
DEPTHWISE_TASK = 1 << 18
"""Multiply-adds of a task of a depthwise convolution with features last, about: some 4 us. Chosen."""
CONV_ADJACENT_IMAGES, CONV_ADJACENT_WINDOW = 8, 32
"""Images, and pixels of a window, from which images that are adjacent in the input are rows as they lie: fewer rows
leave the tile empty, and with fewer pixels the sums are loaded and stored too often."""
CONV_ADJACENT_WORK = 64
"""Multiply-adds of a task for each element that it reads then: operands come from the third level cache."""
CONV_CALL_K = 1152
"""k elements of a micro-kernel call, unless one run is longer: nine taps of 128 features, which gain 4 % over two
calls. Case `conv 3x3 16x16x192`."""

# ---------------------------------------------------------------------------- memory
EXCHANGE_BYTES = 1 << 12
"""Bytes from which a loop's state and its new value exchange their memory rather than being copied. No case moves."""
FEW_STORAGES = 1000
"""Storages up to which the largest are placed first, which is quadratic. `benchmarks.compile_growth`."""

# ---------------------------------------------------------------------------- program text and run time
STEP_WORK = 8
"""Of a step as such, in additions: a call and what goes with it."""
SHORT_WORK = 1 << 14
"""Additions of a program that keeps Python's lock: 4 us at most."""
PAUSE_WORK = 1 << 21
"""Additions between looks at signals: a millisecond or so, 20 where it is slow. Case `scan of 400`."""
WIDE_LANES_GAIN = 4
"""One part in so many of a loop's instructions has to go for lanes that take two registers of the widest elements. Case
`random bits`."""
TURNS_WORK = 1 << 23
"""Vector operations that a nest of a loop's turns may take at most, some 10 ms: then signals are looked at. Chosen."""
LEAST_TURNS = 64
"""Turns on a tile, whatever they take: states are read and written once for all of them. Chosen."""
USUAL_TURNS = 32
"""Turns that a loop is taken to have where that depends on values. Chosen."""
TURNS_VECTORS = 8
"""Vectors of a tile, where they fit into the registers: two pipes with four turns of latency. Case `mandelbrot`."""
TIME_BLOCKS_BYTES = 16 << 20
"""Bytes of a loop's states and operands from which several turns are made on a part of them before the next part.
Chosen: what a last level of cache keeps for a program; below, nothing is gained or lost. No case moves."""
TIME_BLOCKS_CACHE = 640 << 10
"""Bytes that such turns work on at a time: most of the second level of cache. Case `wave of 3000 x 3000`."""
TIME_BLOCKS_FEW = 4
"""Turns below which they work on more. Chosen."""
TIME_BLOCKS_SHARED = 4 << 20
"""Bytes that they work on then: a part of the last level of cache, which cores share. Chosen by planes of 512 KiB."""
TIME_BLOCKS_FRONT = 16 << 10
"""Bytes of lines that a turn does before the next one follows. Chosen: what starting it costs."""
TIME_BLOCKS_TURNS = 16
"""Turns at a time, at most. Case `wave of 3000 x 3000`."""
TIME_BLOCKS_STRIPES = 8
"""Stripes there are at least, so that cores can share them. Chosen."""
TIME_BLOCKS_CHUNK = 256
"""Elements that chunks of several such loops are a multiple of: whole vectors of each, however unrolled. Chosen."""
TURNS_OPS = 128
"""Ops of a turn, of all vectors of a tile: larger bodies hide their latency by themselves. Case `mandelbrot`."""
PART_STEPS = 100
"""Steps (kernel calls, copies, control flow) of one function: some 10 ms of LLVM's time, which is superlinear.
`benchmarks.compile_growth`."""
TURN_SECONDS = 2e-4
"""After which a thread that compiles takes Python's lock from the one that lowers the program. Chosen: a change of
threads takes some 10 us, and with Python's 5 ms the next job began up to 90 ms late."""
EARLY_PRODUCT = 1 << 15
"""Multiplications of a product, or weights of a convolution, from which its routine is begun with before passes have
seen the program: smaller ones may become something else. Chosen."""
GLUE_LINES = 400
"""Lines of a function of steps, without a loop, from which LLVM generates code for it as fast as it can: that takes a
third of the time, and calls of so many steps cost nothing beside these. No case moves."""
COLLECTIVE_STEPS = 4
"""Steps that a collective op counts for, and each of its operands: loops and branches are written where it stands. LLVM
22's NewGVN ends the process at a function with a hundred such ops. Chosen."""
PART_REGION_STEPS = 1
"""Steps of a region up to which it stays in the function of its op, however many regions that has. Chosen."""
INLINE_CONSTANT_BYTES = 512
"""Bytes up to which a constant stands in the program's text. Chosen: a row of cache lines."""
NUMBER_BYTES = 32
"""Bytes up to which what only loop nests and control flow use is on the stack, for LLVM to keep in registers. Chosen:
FEW_ELEMENTS of 64 bits."""
INLINE_KERNEL_LINES = 60
"""Lines of text up to which a kernel called once is inlined into the entry function: loops of tiny kernels then keep
their state in registers. No case moves."""
SPLIT_TEXT_BYTES = 50_000
"""Bytes of text of a part, at least, that texts are cut into for several cores: some 20 ms of LLVM's time."""
PARTS_PER_CPU = 2
"""Parts that large texts are cut into for LLVM: more than one, since they take different times."""
INLINE_FUNCTION_LINES = 80
"""Lines of text up to which an elementary function is inlined. Chosen: above, a call costs little beside the body."""
SPIN_ROUNDS = 1000
"""Rounds a worker spins before it sleeps: 20 to 50 us. Longer spins made cold starts slower. No case moves."""
SHARED_CONSTANT_BYTES = 64 << 10
"""Bytes from which constants are kept once by content, in a process and as files of the object cache: opening a file
takes as long as reading this much of one."""
LONG_LITERAL_DIGITS = 1000
"""Of a hexadecimal literal that is cut out of its text. Chosen: a search is far cheaper than a regular expression."""
LONG_LITERAL_BYTES = 64 << 10
"""Of a literal in an artifact that is kept out of the rest of it. Chosen: it is read by a call of the system or two."""
THREADED_READ_BYTES = 8 << 20
"""Of a program's constants in the object cache from which on several threads read them. Chosen: that much takes 4 ms to
read, and threads 2 to import."""
STORED_BEHIND_BYTES = 16 << 20
"""Of a program's constants from which on the object cache is written while the program can be called already. Chosen:
files of that size take 10 ms and more."""
CACHE_WAIT_SECONDS = 5.0
"""For another process that is writing a large program into the object cache, before the program is compiled here.
Chosen: 1 GiB, the cache's limit, is written in 2 s."""
KNOWN_FILE_BYTES = 1 << 20
"""Of a file from which on the object cache has what is left of its program without literals. Chosen: that much is
decoded in 3 ms, and an entry of the cache read in 0.2."""
THREADED_TEXT_BYTES = 8 << 20
"""Of a text from which on several threads decode its literals, by machine code that may have to be compiled first (10
ms). Chosen: that much takes 5 ms to decode in Python."""
SHAPE_ELEMENTS = 16
"""Elements of an integer tensor up to which it may be a shape: its values are followed where a program with unknown
dimensions is refined, and of an argument code is made for each value. Chosen: beyond the rank of real tensors."""
SYMBOLIC_SIZES = (Symbol(2, 1 << 20, 64),)
"""Ranges of the leading unknown dimension that code for any size is made for, each with the size that it is tuned for.
Sizes outside have code of their own: the generated code relies on the dimension being more than 1."""
TRIED_FIRST = 4
"""Executables that a call of a program compiled for any batch size, or of a function under `jit`, tries before it looks
its shapes up: each costs 30 ns, the look 150, and of `jit` 2000."""
SPECIALISATIONS = 256
"""Shapes for which code of one program with unknown dimensions is kept. Chosen: a service that sees more sizes than
these should round them up, or pass them in chunks; each takes some 100 KB."""
TRACE_EVENTS = 1 << 17
"""Runs of steps that a trace keeps. Chosen: 4 MB while it is made, and some 30 MB of JSON, which viewers can load."""
KEPT_PROGRAM_BYTES = 64 << 20
"""Bytes of constants up to which a program that the compiler failed on is written to the temporary folder. Chosen: such
folders may be in memory."""

# ---------------------------------------------------------------------------- collectives
COLLECTIVE_ROW_BYTES = 64
"""Bytes of a row of a member's part from which an all_gather or a reduce_scatter goes along the row; shorter ones go
along dimension 0, with a transposition around. Chosen: a cache line."""
COMBINED_BYTES = 4 << 20
"""Bytes that all_reduce ops which become one have in all. Chosen: meeting costs microseconds, moving as much some
hundreds."""
INLINE_MESSAGE_BYTES = 8 << 10
"""Bytes up to which a message is copied into the board, so that who sends it need not wait until it was read. Chosen:
the copy takes less than a microsecond."""
MEETING_PATIENCE = 2000, 63
"""Looks at a word before a rank sleeps, and the mask of the numbers of those at which it yields, where every rank has a
CPU of its own. Chosen: some tens of microseconds."""
CROWDED_PATIENCE = 100, 0
"""The same where there are more ranks than CPUs: whoever is waited for needs the CPU. Chosen."""
COPY_TASK_BYTES = 1 << 18
"""Bytes of a task of the copies of arguments into shared memory. Chosen: some tens of microseconds."""
UNROLLED_SOURCES = 16
"""Ranks whose operands a reduction has at hand at once, their addresses in registers or on the stack. Chosen."""
MPI_POLLS = 1000
"""Looks for a message of MPI before others are heard, and between looks a rank sleeps. Chosen: a millisecond or two."""
MPI_NAP = 50e-6
"""Seconds of that sleep. Chosen."""
MPI_AWAKE_SECONDS = 1e-3
"""That a rank stays awake for the end of a call, which comes soon. Chosen."""
MPI_ENDED_SECONDS = 0.1
"""After a rank has told of its end, in which what it sent before may still come. Chosen: MPI all but keeps order."""
MPI_PIECE_BYTES = 1 << 30
"""Of a message; MPI counts them in 32 bits. Chosen."""
REDUCTION_BLOCK = 4096
"""Elements of a unit of the reduction of what ranks have. Chosen: a few vectors a task at least."""
FETCHED_BYTES = 256 << 10
"""Room on the stack for blocks of the sources of a reduction that have to be fetched. Measured: those of 64 KiB each
come 20 % faster than those of 16."""
