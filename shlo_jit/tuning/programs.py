"""Thresholds of passes and fusion: sizes of programs, and which steps become one."""

from __future__ import annotations

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
