"""Names of operations in other libraries, and the corresponding StableHLO ops.

`NAMES` maps a name to one op. `RECIPES` explains operations that must be expressed with several ops.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_jit.ops.record import OPS
from shlo_jit.suggest import SHORTEST_PREFIX, closest

_WORDS = {
    "abs": "absolute absf fabs absi math_abs",
    "add": "addf addi plus sum2 accumulate",
    "and": "logical_and bitwise_and andi land",
    "or": "logical_or bitwise_or ori lor",
    "xor": "logical_xor bitwise_xor xori",
    "not": "logical_not bitwise_not invert inv_bits lnot",
    "atan2": "arctan2 arc_tan2",
    "all_reduce": "psum allreduce pmean pmax pmin cross_replica_sum",
    "all_gather": "allgather",
    "all_to_all": "alltoall",
    "bitcast_convert": "bitcast reinterpret view_as bitcast_convert_type",
    "broadcast_in_dim": "broadcast_to expand broadcastindim broadcast_like full fill ones zeros",
    "case": "switch match",
    "cbrt": "cube_root",
    "ceil": "ceiling",
    "clamp": "clip clamp_by_value hardtanh relu6",
    "collective_permute": "ppermute permute_collective",
    "compare": "equal eq not_equal ne less lt less_equal le greater gt greater_equal ge cmp cmpf cmpi isnan is_nan",
    "concatenate": "concat cat hstack vstack concatenation",
    "constant": "const literal constant_op scalar",
    "convert": "cast astype convert_element_type to type_as extf truncf sitofp fptosi extsi trunci to_dtype",
    "convolution": "conv conv1d conv2d conv3d conv_general_dilated convolve depthwise_conv2d conv_transpose",
    "cosine": "cos",
    "count_leading_zeros": "clz ctlz",
    "custom_call": "pure_callback io_callback custom extern",
    "divide": "div divf divi divsi truediv true_divide reciprocal floordiv floor_divide",
    "dot_general": "matmul mm bmm batch_matmul gemm linear dense fully_connected tensordot inner addmm",
    "dynamic_update_slice": "index_update slice_scatter update_slice",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "gather": "take index_select take_along_axis embedding gather_nd getitem index",
    "get_tuple_element": "gte tuple_get tuple_element",
    "if": "cond conditional",
    "iota": "arange range linspace",
    "is_finite": "isfinite finite",
    "log": "ln logarithm",
    "log_plus_one": "log1p",
    "logistic": "sigmoid expit",
    "maximum": "max maxf maximumf maxsi fmax",
    "minimum": "min minf minimumf minsi fmin",
    "multiply": "mul mulf muli times",
    "negate": "neg negative negf minus",
    "optimization_barrier": "barrier",
    "popcnt": "popcount ctpop population_count",
    "power": "pow powf integer_pow",
    "reduce": "sum reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or prod product all any amax amin",
    "reduce_window": "max_pool maxpool max_pool2d avg_pool avg_pool2d pooling cumsum cumprod cumulative_sum "
    "cummax average_pool",
    "recv": "receive",
    "reduce_scatter": "psum_scatter",
    "remainder": "rem mod fmod remf remsi modulo",
    "reshape": "expand_dims squeeze unsqueeze flatten ravel view collapse_shape expand_shape",
    "reverse": "flip rev fliplr flipud",
    "rng": "rng_uniform uniform rand random random_uniform normal randn",
    "round_nearest_even": "round rint roundeven",
    "rsqrt": "inverse_sqrt inv_sqrt",
    "scatter": "scatter_add scatter_nd index_add scatter_update segment_sum",
    "select": "where select_n cond_select ternary",
    "select_and_scatter": "max_pool_grad",
    "shift_left": "shl lshift left_shift shli",
    "shift_right_arithmetic": "shr ashr sra shrsi rshift",
    "shift_right_logical": "lshr srl shrui",
    "sign": "signum sgn",
    "sine": "sin",
    "slice": "split strided_slice narrow chunk",
    "sort": "argsort",
    "sqrt": "square_root",
    "subtract": "sub subf subi",
    "transpose": "permute permute_dims swapaxes moveaxis movedim",
    "triangular_solve": "solve_triangular trsm inv inverse solve",
    "while": "scan fori_loop while_loop for loop",
    "chlo.acos": "arccos",
    "chlo.acosh": "arccosh",
    "chlo.asin": "arcsin",
    "chlo.asinh": "arcsinh",
    "chlo.atan": "arctan",
    "chlo.atanh": "arctanh",
    "chlo.erf_inv": "erfinv",
    "chlo.is_inf": "isinf",
    "chlo.lgamma": "gammaln",
    "chlo.next_after": "nextafter",
    "chlo.top_k": "topk",
    "chlo.conj": "conjugate",
}
_OF_MODULES = "stablehlo"
NAMES = {
    word: name if "." in name else f"{_OF_MODULES}.{name}" for name, words in _WORDS.items() for word in words.split()
}
"""Name in another library -> op."""

_REDUCE = "stablehlo.reduce with `applies stablehlo.add`"
_SOFTMAX = "stablehlo.reduce (maximum), stablehlo.subtract, stablehlo.exponential, stablehlo.reduce (add)"
_INDEX = (
    "write stablehlo.reduce of the values and of a stablehlo.iota, whose region compares the values and selects both"
)
_RECURRENT = "write stablehlo.while over the steps, with stablehlo.dot_general, stablehlo.logistic and stablehlo.tanh"
_ATTENTION = "write stablehlo.dot_general, softmax in its ops, and stablehlo.dot_general; they are fused"
_LAPACK = "use jax.numpy.linalg in a JAX program, which emits LAPACK calls"
RECIPES = {
    "relu": "write stablehlo.maximum with a constant of zeros",
    "leaky_relu": "write stablehlo.compare with zero, stablehlo.multiply by the slope, and stablehlo.select",
    "elu": "write stablehlo.exponential_minus_one and stablehlo.select",
    "gelu": "write x * 0.5 * (1 + chlo.erf(x / sqrt(2))) with stablehlo.multiply, stablehlo.add and chlo.erf",
    "silu": "write stablehlo.multiply of x and stablehlo.logistic of x",
    "swish": "write stablehlo.multiply of x and stablehlo.logistic of x",
    "softplus": "write stablehlo.log_plus_one of stablehlo.exponential",
    "softmax": f"write {_SOFTMAX} and stablehlo.divide, with stablehlo.broadcast_in_dim between; they are fused",
    "log_softmax": f"write {_SOFTMAX}, stablehlo.log and stablehlo.subtract; they are fused",
    "logsumexp": "write stablehlo.reduce (maximum), stablehlo.exponential, stablehlo.reduce (add) and stablehlo.log",
    "attention": _ATTENTION,
    "scaled_dot_product_attention": _ATTENTION,
    "layer_norm": f"write the mean and the variance with {_REDUCE}, then stablehlo.subtract, stablehlo.rsqrt and "
    "stablehlo.multiply",
    "rms_norm": f"write the mean of squares with {_REDUCE}, then stablehlo.rsqrt and stablehlo.multiply",
    "batch_norm": "write stablehlo.batch_norm_inference (or batch_norm_training, batch_norm_grad)",
    "mean": f"write {_REDUCE} and stablehlo.divide by the number of elements",
    "average": f"write {_REDUCE} and stablehlo.divide by the number of elements",
    "var": f"write the mean of squared differences with {_REDUCE}",
    "std": f"write the mean of squared differences with {_REDUCE} and stablehlo.sqrt",
    "norm": f"write stablehlo.multiply, {_REDUCE} and stablehlo.sqrt",
    "argmax": _INDEX,
    "argmin": _INDEX,
    "one_hot": "write stablehlo.iota, stablehlo.compare EQ and stablehlo.convert",
    "eye": "write two of stablehlo.iota, stablehlo.compare EQ and stablehlo.convert",
    "tril": "write two of stablehlo.iota, stablehlo.compare GE and stablehlo.select",
    "triu": "write two of stablehlo.iota, stablehlo.compare LE and stablehlo.select",
    "stack": "write stablehlo.reshape of each operand and stablehlo.concatenate",
    "tile": "write stablehlo.broadcast_in_dim and stablehlo.reshape",
    "repeat": "write stablehlo.broadcast_in_dim and stablehlo.reshape",
    "roll": "write two of stablehlo.slice and stablehlo.concatenate",
    "square": "write stablehlo.multiply of the value and itself, or chlo.square",
    "log2": "write stablehlo.log and stablehlo.multiply by 1.4426950408889634",
    "log10": "write stablehlo.log and stablehlo.multiply by 0.4342944819032518",
    "exp2": "write stablehlo.multiply by 0.6931471805599453 and stablehlo.exponential",
    "hypot": "write stablehlo.multiply, stablehlo.add and stablehlo.sqrt",
    "trunc": "write stablehlo.sign, stablehlo.abs, stablehlo.floor and stablehlo.multiply",
    "identity": "use the operand itself",
    "copy": "use the operand itself",
    "dropout": "omit it for inference; for training write stablehlo.rng, stablehlo.compare and stablehlo.select",
    "lstm": _RECURRENT,
    "gru": _RECURRENT,
    "parameter": "name arguments in the function: func.func @main(%x: tensor<2x3xf32>)",
    "print": "write stablehlo.custom_call, and pass its implementation with custom_calls={...}",
    "nonzero": "shapes must follow from shapes: use stablehlo.select with a mask instead",
    "unique": "shapes must follow from shapes: use stablehlo.sort and a mask instead",
    "qr": _LAPACK,
    "svd": _LAPACK,
    "eigh": _LAPACK,
}
"""Operations that are not single ops -> how to express them."""


def hint_for(name: str) -> str:
    """Suggests an op for an unknown name: `did you mean 'stablehlo.exponential'?`. Empty if nothing is similar."""
    dialect, _, plain = name.rpartition(".")
    plain = plain.lower()
    joined = plain.replace("_", "").replace("-", "")
    same = [w for w in (*NAMES, *RECIPES) if w.replace("_", "") == joined]
    for candidate in [*_spellings(plain), *same]:
        found = _same_name(dialect, candidate) or NAMES.get(candidate)
        if found:
            return f"did you mean '{found}'?"
        if candidate in RECIPES:
            return RECIPES[candidate]
    known = closest(f"{dialect or _OF_MODULES}.{plain}", (op for op in OPS if not op.startswith("builtin.")))
    other = closest(plain, [w for w in (*NAMES, *RECIPES) if len(w) > SHORTEST_PREFIX]) if not known else ""
    if other:
        return RECIPES.get(other) or f"did you mean '{NAMES[other]}'?"
    return f"did you mean '{known}'?" if known else ""


def _spellings(name: str) -> Iterator[str]:
    """Yields the name, and variants without the suffixes and separators that libraries add."""
    yield name
    yield name.replace("-", "_")
    yield name.strip("_")
    for ending in ("_p", "_op", "op", "_v1"):
        if name.endswith(ending) and len(name) > len(ending) + 1:
            yield name.removesuffix(ending)


def _same_name(dialect: str, name: str) -> str:
    """Returns the op with the same name in another dialect, StableHLO first; empty if there is none."""
    return next((op for d in ("stablehlo", "chlo", "func") if d != dialect and (op := f"{d}.{name}") in OPS), "")
