"""The operations of XLA's documents, and the sample arrays of their examples: see `operations.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TODAY, OLDER = "today", "older"
BOTH = (TODAY, OLDER)


@dataclass(frozen=True)
class Operation:
    """An operation of the documents."""

    name: str
    """Name in the document."""
    function: str
    """Name of the function of `shlo_jit.builder`."""
    example: str
    """Expression of `b`, the builder, and of samples."""
    documents: tuple[str, ...] = BOTH
    host: bool = False
    """Whether the example needs more than a call: a peer or host that communicates with it, or another argument."""
    note: str = ""
    """Remark in the table."""


def _counting(dtype: type, *shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 7).astype(dtype).reshape(shape)


SAMPLES: dict[str, np.ndarray] = {
    "x": np.array([[-1.5, 0.5, 2.5], [1.0, -0.25, 3.0]], np.float32),
    "y": np.array([[0.5, 2.0, -1.0], [1.5, 0.75, 2.0]], np.float32),
    "v": np.array([1.0, 2.0, 4.0], np.float32),
    "w": np.array([[1.0, -2.0], [0.5, 4.0], [3.0, 0.25]], np.float32),
    "i": np.array([[-5, 0, 7], [3, 12, -2]], np.int32),
    "j": np.array([[2, 1, -2], [1, 0, 1]], np.int32),
    "u": np.array([[0, 1, 255], [4096, 7, 2**32 - 1]], np.uint32),
    "p": np.array([[True, False, True], [False, False, True]]),
    "q": np.array([[True, True, False], [False, True, True]]),
    "z": np.array([[1 + 2j, -1j, 3.5], [-2 + 1j, 0.5, 4 - 4j]], np.complex64),
    "n": np.array(1, np.int32),
    "m": np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]], np.float32),
    "t": _counting(np.float32, 4, 2, 3),
    "image": _counting(np.float32, 2, 3, 5, 5),
    "kernel": _counting(np.float32, 4, 3, 3, 3),
    "key": np.array([7, 2**64 - 3], np.uint64),
}
"""Sample arrays by their names in examples."""

OPERATIONS: tuple[Operation, ...] = (
    Operation("Abs", "abs", "b.abs(x)"),
    Operation("Add", "add", "b.add(x, v, broadcast_dimensions=(1,))"),
    Operation("AddDependency", "add_dependency", "b.add_dependency(x, b.create_token())", documents=(TODAY,)),
    Operation("AfterAll", "after_all", "b.add_dependency(x, b.after_all([b.create_token(), b.create_token()]))"),
    Operation("AllGather", "all_gather", "b.all_gather(x, 0, 1, [[0]])"),
    Operation(
        "AllGatherStart",
        "all_gather_start",
        "b.all_gather_done(b.all_gather_start(x, 0, 1, [[0]]))",
        documents=(TODAY,),
    ),
    Operation(
        "AllGatherDone", "all_gather_done", "b.all_gather_done(b.all_gather_start(x, 1, 1, [[0]]))", documents=(TODAY,)
    ),
    Operation("AllReduce", "all_reduce", "b.all_reduce(x, b.max, [[0]])"),
    Operation(
        "AllReduceStart",
        "all_reduce_start",
        "b.all_reduce_done(b.all_reduce_start(x, b.add, [[0]]))",
        documents=(TODAY,),
    ),
    Operation(
        "AllReduceDone", "all_reduce_done", "b.all_reduce_done(b.all_reduce_start(x, b.max, [[0]]))", documents=(TODAY,)
    ),
    Operation("AllToAll", "all_to_all", "b.all_to_all(x, 1, 0, 1, [[0]])"),
    Operation("And", "and_", "b.and_(i, j)", documents=(TODAY,)),
    Operation(
        "AsyncStart",
        "async_start",
        "b.async_done(b.async_start([x], lambda k: b.all_reduce(k, b.add, [[0]])))",
        documents=(TODAY,),
    ),
    Operation(
        "AsyncUpdate",
        "async_update",
        "b.async_done(b.async_update(b.async_start([x], lambda k: b.slice(k, (0, 1), (2, 3)))))",
        documents=(TODAY,),
    ),
    Operation(
        "AsyncDone",
        "async_done",
        "b.async_done(b.async_start([x], lambda k: b.slice(k, (0, 1), (2, 3))))",
        documents=(TODAY,),
    ),
    Operation("Atan2", "atan2", "b.atan2(x, y)", documents=(TODAY,)),
    Operation("BatchNormGrad", "batch_norm_grad", "b.batch_norm_grad(x, v, v, v, y, 0.001, 1)"),
    Operation("BatchNormInference", "batch_norm_inference", "b.batch_norm_inference(x, v, v, v, v, 0.001, 1)"),
    Operation("BatchNormTraining", "batch_norm_training", "b.batch_norm_training(x, v, v, 0.001, 1)"),
    Operation("Bitcast", "bitcast", "b.bitcast(x, 's32[6]')", documents=(TODAY,)),
    Operation("BitcastConvertType", "bitcast_convert_type", "b.bitcast_convert_type(x, 'u8')"),
    Operation("Broadcast", "broadcast", "b.broadcast(v, (2,))"),
    Operation("BroadcastInDim", "broadcast_in_dim", "b.broadcast_in_dim(v, (2, 3, 2), (1,))"),
    Operation("Call", "call", "b.call(lambda k, l: k - l, x, y)"),
    Operation("Cbrt", "cbrt", "b.cbrt(x)"),
    Operation("Ceil", "ceil", "b.ceil(x)"),
    Operation("Cholesky", "cholesky", "b.cholesky(m, lower=True)"),
    Operation("Clamp", "clamp", "b.clamp(0, i, 6)"),
    Operation("Clz", "clz", "b.clz(u)", documents=(TODAY,)),
    Operation("Collapse", "collapse", "b.collapse(t, (0, 1))"),
    Operation("CollectiveBroadcast", "collective_broadcast", "b.collective_broadcast(x, [[0]])", documents=(TODAY,)),
    Operation("CollectivePermute", "collective_permute", "b.collective_permute(x, [(0, 0)])"),
    Operation(
        "CollectivePermuteStart",
        "collective_permute_start",
        "b.collective_permute_done(b.collective_permute_start(x, [(0, 0)]))",
        documents=(TODAY,),
    ),
    Operation(
        "CollectivePermuteDone",
        "collective_permute_done",
        "b.collective_permute_done(b.collective_permute_start(y, [(0, 0)]))",
        documents=(TODAY,),
    ),
    Operation("Compare", "compare", "b.compare(x, y, 'GE')", documents=(TODAY,)),
    Operation("Complex", "complex", "b.complex(x, y)", documents=(TODAY,)),
    Operation(
        "CompositeCall",
        "composite_call",
        "b.composite_call(lambda k: k * 2.0, [x], 'foo.bar', '{n = 1 : i32}', 1)",
        documents=(TODAY,),
    ),
    Operation("ConcatInDim", "concat_in_dim", "b.concat_in_dim([x, y], 1)"),
    Operation("Concatenate", "concatenate", "b.concatenate([x, y], 0)"),
    Operation("Conditional", "conditional", "b.conditional(n > 0, x, b.exp, y, b.neg)"),
    Operation("Constant", "constant", "b.constant([[1, 2], [3, 4]], 's32')", documents=(TODAY,)),
    Operation("ConstantLiteral", "constant", "b.constant(np.float32(2.5))", documents=(TODAY,)),
    Operation("Conv", "conv", "b.conv(image, kernel, (2, 2), 'SAME')"),
    Operation(
        "ConvGeneral",
        "conv_general",
        "b.conv_general(image, kernel, (1, 1), [(1, 0), (0, 2)], ('NCHW', 'OIHW', 'NHWC'))",
        documents=(TODAY,),
    ),
    Operation(
        "ConvGeneralDilated",
        "conv_general_dilated",
        "b.conv_general_dilated(image, kernel, (1, 2), [(0, 0), (1, 2)], (2, 1), (1, 2))",
        documents=(TODAY,),
    ),
    Operation(
        "ConvWithGeneralDimensions",
        "conv_with_general_dimensions",
        "b.conv_with_general_dimensions(image, kernel, (1, 1), 'VALID', ('NCHW', 'OIHW', 'NHWC'))",
        documents=(TODAY,),
    ),
    Operation(
        "ConvWithGeneralPadding",
        "conv_with_general_padding",
        "b.conv_with_general_padding(image, kernel, (1, 1), [(1, 1), (0, -1)])",
    ),
    Operation("ConvertElementType", "convert_element_type", "b.convert_element_type(x, 's32')"),
    Operation("Copy", "copy", "b.copy(x)", documents=(TODAY,), note="values do not change"),
    Operation(
        "CopyStart", "copy_start", "b.copy_done(b.copy_start(x))", documents=(TODAY,), note="values do not change"
    ),
    Operation("CopyDone", "copy_done", "b.copy_done(b.copy_start(y))", documents=(TODAY,), note="values do not change"),
    Operation("Cos", "cos", "b.cos(x)"),
    Operation("Cosh", "cosh", "b.cosh(x)", documents=(TODAY,)),
    Operation("CrossReplicaSum", "cross_replica_sum", "b.cross_replica_sum(x, [[0]])"),
    Operation(
        "CustomCall",
        "custom_call",
        "b.custom_call('mhlo.erf', [x], 'f32[2,3]')",
        note="to a function of the host, or to a known target",
    ),
    Operation("Div", "div", "b.div(i, j)"),
    Operation("Domain", "domain", "b.domain(x)", documents=(TODAY,), note="only matters to passes of XLA"),
    Operation("Dot", "dot", "b.dot(x, w)"),
    Operation("DotGeneral", "dot_general", "b.dot_general(t, t, b.DotDimensionNumbers((2,), (2,), (0,), (0,)))"),
    Operation(
        "DynamicReshape",
        "dynamic_reshape",
        "b.dynamic_reshape(x, [n + 2, 2], (3, 2), (False, False))",
        documents=(TODAY,),
    ),
    Operation("DynamicSlice", "dynamic_slice", "b.dynamic_slice(x, (n, 0), (1, 2))"),
    Operation("DynamicUpdateSlice", "dynamic_update_slice", "b.dynamic_update_slice(x, y[:1, :2], (0, n))"),
    Operation("Eq", "eq", "b.eq(i, j)"),
    Operation("Ne", "ne", "b.ne(i, j)"),
    Operation("Ge", "ge", "b.ge(i, j)"),
    Operation("Gt", "gt", "b.gt(i, j)"),
    Operation("Le", "le", "b.le(i, j)"),
    Operation("Lt", "lt", "b.lt(i, j)"),
    Operation("EqTotalOrder", "eq_total_order", "b.eq_total_order(x, -y)"),
    Operation("NeTotalOrder", "ne_total_order", "b.ne_total_order(x, -y)"),
    Operation(
        "GeTotalOrder",
        "ge_total_order",
        "b.ge_total_order(x, -y)",
        documents=(OLDER,),
        note="replaced by GtTotalOrder in today's document",
    ),
    Operation("GtTotalOrder", "gt_total_order", "b.gt_total_order(x, -y)"),
    Operation("LeTotalOrder", "le_total_order", "b.le_total_order(x, -y)"),
    Operation("LtTotalOrder", "lt_total_order", "b.lt_total_order(x, -y)"),
    Operation("Erf", "erf", "b.erf(x)", documents=(TODAY,)),
    Operation("Exp", "exp", "b.exp(x, result_accuracy=b.ResultAccuracy('HIGHEST'))"),
    Operation("Expm1", "expm1", "b.expm1(x)", documents=(TODAY,)),
    Operation("Fft", "fft", "b.fft(x, 'RFFT', (3,))"),
    Operation("Floor", "floor", "b.floor(x)"),
    Operation(
        "Fusion",
        "fusion",
        "b.fusion([x, y], lambda k, l: k * l + k)",
        documents=(TODAY,),
        note="the compiler decides about fusion",
    ),
    Operation(
        "Gather",
        "gather",
        "b.gather(t, j[:, :1], b.GatherDimensionNumbers((1, 2), (0,), (0,), 1), (1, 2, 3))",
    ),
    Operation("GetDimensionSize", "get_dimension_size", "b.get_dimension_size(x, 1)"),
    Operation("GetTupleElement", "get_tuple_element", "b.get_tuple_element(b.tuple([x, i]), 1)"),
    Operation("Imag", "imag", "b.imag(z)"),
    Operation("Infeed", "infeed", "b.infeed('f32[2,3]') + x", host=True),
    Operation("Iota", "iota", "b.iota('s32[4,8]', 1)"),
    Operation("IsFinite", "is_finite", "b.is_finite(x / 0.0)"),
    Operation("Log", "log", "b.log(b.abs(x))"),
    Operation("Log1p", "log1p", "b.log1p(b.abs(x))", documents=(TODAY,)),
    Operation("LogicalAnd", "logical_and", "b.logical_and(p, q)", documents=(OLDER,)),
    Operation("LogicalNot", "logical_not", "b.logical_not(p)", documents=(OLDER,)),
    Operation("LogicalOr", "logical_or", "b.logical_or(p, q)", documents=(OLDER,)),
    Operation("Logistic", "logistic", "b.logistic(x)"),
    Operation("Map", "map", "b.map([x, y], lambda k, l: k * l + 1.0, (0, 1))"),
    Operation("Max", "max", "b.max(x, 0.0)"),
    Operation("Min", "min", "b.min(x, y)"),
    Operation("Mul", "mul", "b.mul(x, y)"),
    Operation("Neg", "neg", "b.neg(i)"),
    Operation("Not", "not_", "b.not_(i)", documents=(TODAY,)),
    Operation("OptimizationBarrier", "optimization_barrier", "b.optimization_barrier((x, y))"),
    Operation("Or", "or_", "b.or_(p, q)", documents=(TODAY,)),
    Operation("Outfeed", "outfeed", "(b.outfeed((x, i)), x)[1]", documents=(TODAY,), host=True),
    Operation("Pad", "pad", "b.pad(x, 0.0, [(1, -1, 0), (0, 2, 1)])"),
    Operation(
        "Parameter",
        "parameter",
        "b.parameter(1, 'f32[2,3]') + x",
        documents=(TODAY,),
        host=True,
        note="one more argument",
    ),
    Operation("PartitionID", "partition_id", "b.partition_id()", documents=(TODAY,)),
    Operation("BuildPartitionId", "partition_id", "b.partition_id() + b.replica_id()", documents=(TODAY,)),
    Operation("PopulationCount", "population_count", "b.population_count(u)"),
    Operation("Pow", "pow", "b.pow(b.abs(x), y)", documents=(TODAY,)),
    Operation(
        "RaggedAllToAll",
        "ragged_all_to_all",
        "b.ragged_all_to_all(v, n[None] - 1, n[None] + 1, v, n[None], n[None] + 1, [[0]])",
        documents=(TODAY,),
    ),
    Operation(
        "RaggedDot",
        "ragged_dot",
        "b.ragged_dot(w, t[:, :, :2].transpose(0, 2, 1), b.constant([1, 0, 1, 1], 's32'))",
        documents=(TODAY,),
    ),
    Operation("Real", "real", "b.real(z)"),
    Operation("Recv", "recv", "b.recv('f32[2,3]', 7) + x", host=True),
    Operation("RecvDone", "recv_done", "b.recv_done(b.recv('f32[2,3]', 7)) - x", host=True),
    Operation("RecvToHost", "recv_to_host", "b.recv_to_host('f32[2,3]', 7) * x", documents=(TODAY,), host=True),
    Operation(
        "RecvWithTokens",
        "recv_with_tokens",
        "b.recv_with_tokens(b.create_token(), 'f32[2,3]', 7)[0] + x",
        documents=(TODAY,),
        host=True,
    ),
    Operation("Reduce", "reduce", "b.reduce(x, 0.0, b.add, (1,))"),
    Operation("ReducePrecision", "reduce_precision", "b.reduce_precision(x / 3.0, 5, 10)"),
    Operation("ReduceScatter", "reduce_scatter", "b.reduce_scatter(x, b.add, 0, 1, [[0]])"),
    Operation(
        "ReduceWindow", "reduce_window", "b.reduce_window(image, 0.0, b.add, (1, 1, 2, 3), (1, 1, 2, 1), 'SAME')"
    ),
    Operation("Rem", "rem", "b.rem(i, j)"),
    Operation("ReplicaId", "replica_id", "b.replica_id()"),
    Operation("Reshape", "reshape", "b.reshape(t, (8, 3))"),
    Operation("Reshape (explicit)", "reshape_explicit", "b.reshape_explicit('f32[3,2]', x)", documents=(TODAY,)),
    Operation("Rev", "rev", "b.rev(x, (1,))"),
    Operation("RngBitGenerator", "rng_bit_generator", "b.rng_bit_generator('PHILOX', key, 'u32[2,3]')"),
    Operation(
        "RngGetAndUpdateState",
        "rng_get_and_update_state",
        "b.rng_get_and_update_state(key, 5)",
        documents=(TODAY,),
        note="the state is passed as a value",
    ),
    Operation("RngNormal", "rng_normal", "b.rng_normal(1.0, 2.0, 'f32[1000]')"),
    Operation("RngUniform", "rng_uniform", "b.rng_uniform(1.0, 2.0, 'f32[1000]')"),
    Operation("Round", "round", "b.round(x)"),
    Operation("RoundNearestAfz", "round_nearest_afz", "b.round_nearest_afz(x)", documents=(TODAY,)),
    Operation("RoundNearestEven", "round_nearest_even", "b.round_nearest_even(x)"),
    Operation("Rsqrt", "rsqrt", "b.rsqrt(b.abs(x))"),
    Operation(
        "ScaledDot",
        "scaled_dot",
        "b.scaled_dot(x, v[None, :1], w, w[:1, :], b.DotDimensionNumbers((1,), (0,)))",
        documents=(TODAY,),
    ),
    Operation(
        "Scatter",
        "scatter",
        "b.scatter(t, j[:, :2], x, b.add, b.ScatterDimensionNumbers((1,), (0, 1), (0, 1), 1))",
    ),
    Operation("Select", "select", "b.select(p, x, y)"),
    Operation(
        "SelectAndScatter",
        "select_and_scatter",
        "b.select_and_scatter(image, b.ge, (1, 1, 3, 3), (1, 1, 2, 2), 'VALID', image[:, :, :2, :2], 0.0, b.add)",
    ),
    Operation("Send", "send", "(b.send(x, 7), x)[1]", host=True),
    Operation("SendDone", "send_done", "b.add_dependency(x, b.send_done(b.send(x, 7)))", host=True),
    Operation("SendToHost", "send_to_host", "(b.send_to_host(x, 7), y)[1]", documents=(TODAY,), host=True),
    Operation(
        "SendWithTokens",
        "send_with_tokens",
        "b.add_dependency(x, b.send_with_tokens(x, b.create_token(), 7))",
        documents=(TODAY,),
        host=True,
    ),
    Operation("SetDimensionSize", "set_dimension_size", "b.reduce(b.set_dimension_size(x, n, 1), 0.0, b.add, (0, 1))"),
    Operation("ShiftLeft", "shift_left", "b.shift_left(i, 2)", documents=(TODAY,)),
    Operation("ShiftRightArithmetic", "shift_right_arithmetic", "b.shift_right_arithmetic(i, 1)", documents=(TODAY,)),
    Operation("ShiftRightLogical", "shift_right_logical", "b.shift_right_logical(i, 1)", documents=(TODAY,)),
    Operation("Sign", "sign", "b.sign(x)"),
    Operation("Sin", "sin", "b.sin(x)", documents=(TODAY,)),
    Operation("Slice", "slice", "b.slice(x, (0, 0), (2, 3), (1, 2))"),
    Operation("Sort", "sort", "b.sort([x, i], lambda k, l, *_: k > l, 1, is_stable=True)"),
    Operation("Sqrt", "sqrt", "b.sqrt(b.abs(x))"),
    Operation("Sub", "sub", "b.sub(x, y)"),
    Operation("Tan", "tan", "b.tan(x)", documents=(TODAY,)),
    Operation("Tanh", "tanh", "b.tanh(x)"),
    Operation("TopK", "top_k", "b.top_k(x, 2, largest=False)", documents=(TODAY,)),
    Operation("Transpose", "transpose", "b.transpose(t, (2, 0, 1))"),
    Operation("TriangularSolve", "triangular_solve", "b.triangular_solve(m, m[:, :2], True, True, False, 'TRANSPOSE')"),
    Operation("Tuple", "tuple", "b.tuple([x, i])[0]"),
    Operation("While", "while_", "b.while_(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] + s[1]), (n, x))"),
    Operation("Xor", "xor", "b.xor(p, q)", documents=(TODAY,)),
)
