"""A graph as an ONNX model in the form of common exporters.

Images have their channels first, batch normalization is a separate op, which engines merge into convolutions, and
products of i8 are between QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx  # type: ignore[import-not-found]
from onnx import TensorProto, helper, numpy_helper  # type: ignore[import-not-found]

from benchmarks.deployed.files import CHANNELS_FIRST, CHANNELS_LAST
from benchmarks.deployed.graph import Graph, Value, array

OPSET, IR_VERSION = 20, 9
"""Versions supported by ONNX Runtime and OpenVINO of the last two years: the first opset with Gelu."""
EPSILON = 1e-5
TYPES = {"f32": TensorProto.FLOAT, "i8": TensorProto.UINT8, "i32": TensorProto.INT32}
"""Element types. Activations of eight bits are unsigned: engines have no kernels for signed ones on x86, or slow
ones."""
AXIS = (0, 2, 3, 1)
"""Maps an axis with channels last to the axis with channels first."""


class OnnxWriter:
    """Nodes and initializers, with a method for each op."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.names: dict[Value, str] = {}

    def model(self) -> Any:
        for value in self.graph.values:
            if value.op == "input":
                self.names[value] = value.name
            elif value.op != "weight":
                self.names[value] = WRITERS[value.op](self, value, *value.operands)
        ports = [[helper.make_tensor_value_info(self.names[v], TYPES[v.dtype], _shape(v)) for v in values]
                 for values in (self.graph.inputs, self.graph.outputs)]  # fmt: skip
        graph = helper.make_graph(self.nodes, "model", *ports, initializer=list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    # ------------------------------------------------------------------ parts of nodes
    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [result], **attributes))
        return result

    def constant(self, numbers: Any, dtype: Any, name: str = "") -> str:
        """An initializer; equal ones without a name are shared."""
        numbers = np.asarray(numbers, dtype, order="C")
        name = name or f"{numbers.dtype}{list(numbers.shape)} {hashlib.sha1(numbers.tobytes()).hexdigest()}"
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(numbers, name)
        return name

    def shape(self, *sizes: int) -> str:
        return self.constant(sizes, np.int64)

    def number(self, value: float) -> str:
        return self.constant(value, np.float32)

    def weight(self, value: Value, change: Callable[[np.ndarray], np.ndarray] = lambda w: w) -> str:
        if value.name in self.constants:
            return value.name
        numbers = change(array(value))
        return self.constant(numbers, numbers.dtype, value.name)

    def of(self, value: Value) -> str:
        return self.weight(value) if value.op == "weight" else self.names[value]

    # ------------------------------------------------------------------ images
    def conv(self, value: Value, x: Value, filters: Value) -> str:
        options, ((top, bottom), (left, right)) = value.attributes, value.attributes["padding"]
        weight = self.weight(filters, lambda w: w.transpose(3, 2, 0, 1))
        return self.node("Conv", self.of(x), weight, kernel_shape=filters.shape[:2], group=options["groups"],
                         strides=[options["stride"]] * 2, dilations=[options["dilation"]] * 2,
                         pads=[top, left, bottom, right])  # fmt: skip

    def batch_norm(self, value: Value, x: Value, scale: Value, offset: Value) -> str:
        zeros, ones = (self.constant(np.full(scale.shape, n), np.float32, f"{n} of {scale.name}") for n in (0, 1))
        return self.node("BatchNormalization", self.of(x), self.of(scale), self.of(offset), zeros, ones, epsilon=0.0)

    def bias(self, value: Value, x: Value, offset: Value) -> str:
        """Adds a bias, merged into the preceding convolution if it is the next node."""
        last = self.nodes[-1]
        if last.op_type == "Conv" and last.output[0] == self.of(x):
            last.input.append(self.of(offset))
            return self.of(x)
        change = (lambda w: w.reshape(-1, 1, 1)) if value.is_image else (lambda w: w)
        return self.node("Add", self.of(x), self.weight(offset, change))

    def max_pool(self, value: Value, x: Value) -> str:
        size, stride, pad = (value.attributes[name] for name in ("size", "stride", "pad"))
        return self.node("MaxPool", self.of(x), kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def mean_of_image(self, value: Value, x: Value) -> str:
        return self.node("GlobalAveragePool", self.of(x))

    def twice_as_large(self, value: Value, x: Value) -> str:
        scales = self.constant((1, 1, 2, 2), np.float32)
        return self.node("Resize", self.of(x), "", scales, mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric")  # fmt: skip

    def pixels(self, value: Value, x: Value) -> str:
        is_one = x.shape[1:3] == (1, 1)
        rows = self.of(x) if is_one else self.node("Transpose", self.of(x), perm=CHANNELS_LAST)
        return self.node("Reshape", rows, self.shape(*value.shape))

    # ------------------------------------------------------------------ elements and their order
    def simple(self, value: Value, *operands: Value) -> str:
        op, attributes = SIMPLE[value.op]
        return self.node(op, *map(self.of, operands), **attributes)

    def relu6(self, value: Value, x: Value) -> str:
        return self.node("Clip", self.of(x), self.number(0), self.number(6))

    def silu(self, value: Value, x: Value) -> str:
        return self.node("Mul", self.of(x), self.node("Sigmoid", self.of(x)))

    def scaled(self, value: Value, x: Value) -> str:
        return self.node("Mul", self.of(x), self.number(value.attributes["factor"]))

    def concatenate(self, value: Value, *operands: Value) -> str:
        return self.node("Concat", *map(self.of, operands), axis=_axis(value))

    def part(self, value: Value, x: Value) -> str:
        bounds = (self.shape(value.attributes[name]) for name in ("start", "stop"))
        return self.node("Slice", self.of(x), *bounds, self.shape(_axis(value)))

    def reshape(self, value: Value, x: Value) -> str:
        return self.node("Reshape", self.of(x), self.shape(*value.shape))

    def transpose(self, value: Value, x: Value) -> str:
        return self.node("Transpose", self.of(x), perm=value.attributes["order"])

    def columns(self, value: Value, x: Value) -> str:
        return self.node("Gather", self.of(x), self.shape(*value.attributes["places"]), axis=1)

    def bucketed(self, value: Value, table: Value) -> str:
        found = self.node("Gather", self.of(table), self.constant(value.attributes["buckets"], np.int64), axis=0)
        return self.node("Transpose", found, perm=(2, 0, 1))

    # ------------------------------------------------------------------ products
    def linear_by_rows(self, value: Value, x: Value, table: Value) -> str:
        return self.node("Gemm", self.of(x), self.of(table), transB=1)

    def matmul(self, value: Value, a: Value, b: Value) -> str:
        is_transposed = value.attributes["is_transposed"]
        second = self.node("Transpose", self.of(b), perm=(0, 2, 1)) if is_transposed else self.of(b)
        return self.node("MatMul", self.of(a), second)

    def rms_norm(self, value: Value, x: Value, scale: Value) -> str:
        square = self.node("Mul", self.of(x), self.of(x))
        mean = self.node("ReduceMean", square, self.shape(-1), keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.number(EPSILON)))
        return self.node("Mul", self.node("Div", self.of(x), root), self.of(scale))

    def lstm(self, value: Value, x: Value, by_input: Value, by_state: Value, bias: Value) -> str:
        time, features = value.shape
        rows = self.node("Reshape", self.of(x), self.shape(time, 1, x.shape[1]))
        weights = (self.weight(w, lambda w: w.T[None]) for w in (by_input, by_state))
        both = self.weight(bias, lambda b: np.concatenate([b, np.zeros_like(b)])[None])
        return self.node("Reshape", self.node("LSTM", rows, *weights, both, hidden_size=features),
                         self.shape(time, features))  # fmt: skip

    def quantized(self, value: Value, x: Value) -> str:
        zero = self.constant(0, np.uint8)
        return self.node("QuantizeLinear", self.of(x), self.number(value.attributes["scale"]), zero)

    def linear_i8(self, value: Value, x: Value, weight: Value, scales: Value, bias: Value) -> str:
        """A quantized dense layer with the bias as i32, in units of the sums, as engines for quantized models
        require."""
        scale, zero = value.attributes["scale"], self.constant(0, np.uint8)
        steps = array(scales) * np.float32(scale)
        sums = self.constant(np.round(array(bias) / steps), np.int32, bias.name)
        zeros = self.constant(np.zeros(scales.shape), np.int8, f"zeros of {weight.name}")
        left = self.node("DequantizeLinear", self.of(x), self.number(scale), zero)
        right = self.node("DequantizeLinear", self.of(weight), self.of(scales), zeros, axis=1)
        offset = self.node("DequantizeLinear", sums, self.constant(steps, np.float32, f"steps of {bias.name}"), axis=0)
        return self.node("Gemm", left, right, offset)


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(value.shape[i] for i in CHANNELS_FIRST) if value.is_image else value.shape


def _axis(value: Value) -> int:
    return AXIS[value.attributes["axis"]] if value.is_image else value.attributes["axis"]


SIMPLE: Mapping[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.1}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "softmax": ("Softmax", {"axis": -1}),
    "add": ("Add", {}),
    "multiply": ("Mul", {}),
    "rows": ("Gather", {"axis": 0}),
    "linear": ("Gemm", {}),
    "layer_norm": ("LayerNormalization", {"epsilon": EPSILON}),
}
"""Ops that are one node with the same operands."""
OWN = ("conv", "batch_norm", "bias", "max_pool", "mean_of_image", "twice_as_large", "pixels", "relu6", "silu", "scaled",
       "concatenate", "part", "reshape", "transpose", "columns", "bucketed", "linear_by_rows", "matmul", "rms_norm",
       "lstm", "quantized", "linear_i8")  # fmt: skip
WRITERS: Mapping[str, Callable[..., str]] = dict.fromkeys(SIMPLE, OnnxWriter.simple) | {
    op: getattr(OnnxWriter, op) for op in OWN
}


def write(graph: Graph) -> Any:
    """The checked model."""
    model = OnnxWriter(graph).model()
    onnx.checker.check_model(model)
    return model
