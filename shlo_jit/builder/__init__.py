"""StableHLO programs built in Python without a framework: see `docs/builder.md`.

    from shlo_jit import builder

    with builder.function("main", x="f32[2,3]", w="f32[3,4]") as f:
        f.returns(builder.tanh(f.x @ f.w))
    exe = shlo_jit.compile(f.module)

The functions are XLA's operations under the documents' names, in Python's style: `docs/xla_operations.md` lists them.
They take values, arrays (which become constants) and numbers, add operations to the open function, and return values.
Docstrings name the heading in the documents. All functions raise BuilderError, and nothing else, for arguments of other
shapes or element types than they take. The error names the argument and the caller's line.
"""

from shlo_jit.builder.values import Value  # isort: skip  first: what functions return is of this class

from shlo_jit.builder.binary import (
    add,
    and_,
    atan2,
    clamp,
    complex,
    div,
    logical_and,
    logical_or,
    max,
    min,
    mul,
    or_,
    pow,
    rem,
    select,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sub,
    xor,
)
from shlo_jit.builder.calls import call, composite_call, custom_call, fusion
from shlo_jit.builder.collectives import (
    all_gather,
    all_gather_done,
    all_gather_start,
    all_reduce,
    all_reduce_done,
    all_reduce_start,
    all_to_all,
    collective_broadcast,
    collective_permute,
    collective_permute_done,
    collective_permute_start,
    cross_replica_sum,
    partition_id,
    ragged_all_to_all,
    reduce_scatter,
    replica_id,
)
from shlo_jit.builder.comparisons import (
    compare,
    eq,
    eq_total_order,
    ge,
    ge_total_order,
    gt,
    gt_total_order,
    le,
    le_total_order,
    lt,
    lt_total_order,
    ne,
    ne_total_order,
)
from shlo_jit.builder.contractions import dot, dot_general, matmul, ragged_dot, scaled_dot
from shlo_jit.builder.control import (
    add_dependency,
    after_all,
    async_done,
    async_start,
    async_update,
    conditional,
    create_token,
    optimization_barrier,
    while_,
)
from shlo_jit.builder.convolutions import (
    conv,
    conv_general,
    conv_general_dilated,
    conv_with_general_dimensions,
    conv_with_general_padding,
)
from shlo_jit.builder.data import (
    bitcast_convert_type,
    broadcast,
    broadcast_in_dim,
    collapse,
    concat_in_dim,
    concatenate,
    constant,
    convert_element_type,
    dynamic_slice,
    dynamic_update_slice,
    full,
    iota,
    pad,
    reduce_precision,
    reshape,
    reshape_explicit,
    rev,
    slice,
    transpose,
)
from shlo_jit.builder.dynamic import dynamic_reshape, get_dimension_size, set_dimension_size
from shlo_jit.builder.errors import BuilderError
from shlo_jit.builder.gathers import gather, scatter
from shlo_jit.builder.hlo import bitcast, copy, copy_done, copy_start, domain, parameter
from shlo_jit.builder.host import (
    infeed,
    infeed_with_token,
    outfeed,
    outfeed_with_token,
    recv,
    recv_done,
    recv_to_host,
    recv_with_tokens,
    send,
    send_done,
    send_to_host,
    send_with_tokens,
)
from shlo_jit.builder.jit import Jitted, jit
from shlo_jit.builder.linalg import cholesky, fft, triangular_solve
from shlo_jit.builder.modules import FunctionBuilder, ModuleBuilder, function, module
from shlo_jit.builder.normalization import batch_norm_grad, batch_norm_inference, batch_norm_training
from shlo_jit.builder.random import rng_bit_generator, rng_get_and_update_state, rng_normal, rng_uniform
from shlo_jit.builder.records import (
    ChannelHandle,
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    PaddingConfigDimension,
    RaggedDotDimensionNumbers,
    ResultAccuracy,
    ScatterDimensionNumbers,
)
from shlo_jit.builder.reductions import (
    map,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_window,
    reduce_xor,
    select_and_scatter,
)
from shlo_jit.builder.sorting import ascending, sort, top_k
from shlo_jit.builder.special import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bessel_i1e,
    conj,
    digamma,
    erf_inv,
    erfc,
    is_inf,
    lgamma,
    next_after,
    op,
    polygamma,
    sinh,
    square,
    zeta,
)
from shlo_jit.builder.tuples import get_tuple_element
from shlo_jit.builder.tuples import make_tuple as tuple
from shlo_jit.builder.unary import (
    abs,
    cbrt,
    ceil,
    clz,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    floor,
    imag,
    is_finite,
    log,
    log1p,
    logical_not,
    logistic,
    neg,
    not_,
    population_count,
    real,
    round,
    round_nearest_afz,
    round_nearest_even,
    rsqrt,
    sign,
    sin,
    sqrt,
    tan,
    tanh,
)

__all__ = [
    "BuilderError", "ChannelHandle", "ConvolutionDimensionNumbers", "DotDimensionNumbers", "FunctionBuilder",
    "GatherDimensionNumbers", "Jitted", "ModuleBuilder", "PaddingConfigDimension", "RaggedDotDimensionNumbers",
    "ResultAccuracy", "ScatterDimensionNumbers", "Value", "abs", "acos", "acosh", "add", "add_dependency", "after_all",
    "all_gather", "all_gather_done", "all_gather_start", "all_reduce", "all_reduce_done", "all_reduce_start",
    "all_to_all", "and_", "ascending", "asin", "asinh", "async_done", "async_start", "async_update", "atan", "atan2",
    "atanh", "batch_norm_grad", "batch_norm_inference", "batch_norm_training", "bessel_i1e", "bitcast",
    "bitcast_convert_type", "broadcast", "broadcast_in_dim", "call", "cbrt", "ceil", "cholesky", "clamp", "clz",
    "collapse", "collective_broadcast", "collective_permute", "collective_permute_done", "collective_permute_start",
    "compare", "complex", "composite_call", "concat_in_dim", "concatenate", "conditional", "conj", "constant", "conv",
    "conv_general", "conv_general_dilated", "conv_with_general_dimensions", "conv_with_general_padding",
    "convert_element_type", "copy", "copy_done", "copy_start", "cos", "cosh", "create_token", "cross_replica_sum",
    "custom_call", "digamma", "div", "domain", "dot", "dot_general", "dynamic_reshape", "dynamic_slice",
    "dynamic_update_slice", "eq", "eq_total_order", "erf", "erf_inv", "erfc", "exp", "expm1", "fft", "floor", "full",
    "function", "fusion", "gather", "ge", "ge_total_order", "get_dimension_size", "get_tuple_element", "gt",
    "gt_total_order", "imag", "infeed", "infeed_with_token", "iota", "is_finite", "is_inf", "jit", "le",
    "le_total_order", "lgamma", "log", "log1p", "logical_and", "logical_not", "logical_or", "logistic", "lt",
    "lt_total_order", "map", "matmul", "max", "min", "module", "mul", "ne", "ne_total_order", "neg", "next_after",
    "not_", "op", "optimization_barrier", "or_", "outfeed", "outfeed_with_token", "pad", "parameter", "partition_id",
    "polygamma", "population_count", "pow", "ragged_all_to_all", "ragged_dot", "real", "recv", "recv_done",
    "recv_to_host", "recv_with_tokens", "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or",
    "reduce_precision", "reduce_prod", "reduce_scatter", "reduce_sum", "reduce_window", "reduce_xor", "rem",
    "replica_id", "reshape", "reshape_explicit", "rev", "rng_bit_generator", "rng_get_and_update_state", "rng_normal",
    "rng_uniform", "round", "round_nearest_afz", "round_nearest_even", "rsqrt", "scaled_dot", "scatter", "select",
    "select_and_scatter", "send", "send_done", "send_to_host", "send_with_tokens", "set_dimension_size", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "slice", "sort", "sqrt", "square", "sub",
    "tan", "tanh", "top_k", "transpose", "triangular_solve", "tuple", "while_", "xor", "zeta",
]  # fmt: skip
