"""A language model of the example as an ONNX graph, with the operators that ONNX Runtime has for such models.

Products are MatMulNBits on the integers of the GGUF file. The operator multiplies by (q - 2^(bits - 1)) * scale. What
the minimums of a format add is the product of the sums over groups of activations and a matrix of minimums. Attention
is GroupQueryAttention, whose caches are updated in place.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx  # type: ignore[import-not-found]
from onnx import TensorProto, helper, numpy_helper  # type: ignore[import-not-found]

CONTRIB = "com.microsoft"
EXTERNAL_BYTES = 1024
"""Arrays of this size and larger are in a file of their own, which ONNX Runtime maps."""


class Graph:
    """Nodes and arrays of a graph. Methods add nodes, and return the names of their results."""

    def __init__(self, model: Any, slots: int, accuracy: int) -> None:
        """`accuracy`: that of MatMulNBits: 0 for products in f32, 4 for activations rounded to 8 bits."""
        self.model, self.shape, self.slots, self.accuracy = model, model.shape, slots, accuracy
        if any(layer.q_norm is not None for layer in model.layers):
            raise ValueError("norms of heads are not written")
        self.nodes: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}
        angles = np.arange(slots)[:, None] * np.array(self.shape.frequencies)
        self.cosine, self.sine = self.array("cosine", np.cos(angles)), self.array("sine", np.sin(angles))

    def array(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        self.arrays[name] = np.ascontiguousarray(value, dtype)
        return name

    def node(self, op: str, inputs: list[str], domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        """Adds a node. Returns its first result; the others have the same name and a number."""
        name = f"{op}{len(self.nodes)}"
        results = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, inputs, results, name, domain=domain, **attributes))
        return name

    # ------------------------------------------------------------------ products
    def product(self, x: str, name: str, weight: Any) -> str:
        """`x` [1, t, k] times the transposed matrices of a weight, whose results are joined."""
        found = [self._matrix(x, f"{name}{i}", matrix) for i, matrix in enumerate(weight)]
        return found[0] if len(found) == 1 else self.node("Concat", found, axis=-1)

    def _matrix(self, x: str, name: str, matrix: Any) -> str:
        if matrix.scales is None:
            return self.node("MatMul", [x, self.array(name, matrix.values.astype(np.float32).T)])
        rows, groups, size = matrix.values.shape
        bits, scales = 4 if matrix.values.dtype.name.endswith("int4") else 8, matrix.scales.astype(np.float32)
        zero = 1 << (bits - 1)
        is_signed = not matrix.values.dtype.name.startswith("u")
        integers = (matrix.values.astype(np.int16) + (zero if is_signed else 0)).astype(np.uint8)
        packed = integers[..., 0::2] | integers[..., 1::2] << 4 if bits == 4 else integers
        inputs = [x, self.array(name, packed, np.uint8), self.array(f"{name}_scales", scales.reshape(-1))]
        sizes = {"K": groups * size, "N": rows, "bits": bits, "block_size": size}
        found = self.node("MatMulNBits", inputs, CONTRIB, **sizes, accuracy_level=self.accuracy)
        offset = np.zeros_like(scales) if is_signed else zero * scales
        offset = offset if matrix.minimums is None else offset + matrix.minimums.astype(np.float32)
        if not offset.any():
            return found
        split = self.node("Reshape", [x, self.array(f"split{groups}", [0, 0, groups, size], np.int64)])
        sums = self.node("ReduceSum", [split, self.array("last", [-1], np.int64)], keepdims=0)
        added = self.node("MatMul", [sums, self.array(f"{name}_minimums", offset.T)])
        return self.node("Add", [found, added])

    def rows_of(self, name: str, matrix: Any, indices: str) -> str:
        """The rows of a matrix at some indices, in f32."""
        values = matrix.values.astype(np.float32 if matrix.scales is None else np.int8)
        found = self.node("Gather", [self.array(name, values, values.dtype), indices])
        if matrix.scales is None:
            return found
        found = self.node("Cast", [found], to=TensorProto.FLOAT)
        for op, part in (("Mul", matrix.scales), ("Add", matrix.minimums)):
            if part is not None:
                table = self.array(f"{name}_{op}", part[..., None])
                found = self.node(op, [found, self.node("Gather", [table, indices])])
        return self.node("Reshape", [found, self.array("flat", [0, 0, -1], np.int64)])

    # ------------------------------------------------------------------ the network
    def normalized(self, x: str, name: str, weight: np.ndarray) -> str:
        inputs = [x, self.array(name, weight)]
        return self.node("SimplifiedLayerNormalization", inputs, epsilon=self.shape.epsilon, axis=-1)

    def attention(self, x: str, layer: int) -> str:
        shape, weights = self.shape, self.model.layers[layer]
        qkv = self.product(x, f"qkv{layer}_", weights.qkv)
        if weights.qkv_bias is not None:
            qkv = self.node("Add", [qkv, self.array(f"qkv_bias{layer}", weights.qkv_bias)])
        inputs = [qkv, "", "", f"keys{layer}", f"values{layer}", "last_position", "total", self.cosine, self.sine]
        heads = {"num_heads": shape.heads, "kv_num_heads": shape.key_heads}
        found = self.node("GroupQueryAttention", inputs, CONTRIB, outputs=3, **heads, do_rotary=1)
        results = self.nodes[-1].output
        results[1], results[2] = f"keys{layer}_out", f"values{layer}_out"
        return self.product(found, f"attention_output{layer}_", weights.attention_output)

    def feed_forward(self, x: str, layer: int) -> str:
        weights = self.model.layers[layer]
        both = self.product(x, f"gate_up{layer}_", weights.gate_up)
        gate = self.node("Split", [both], outputs=2, axis=-1, num_outputs=2)
        act = self.node("Mul", [gate, self.node("Sigmoid", [gate])])
        return self.product(self.node("Mul", [act, f"{gate}_1"]), f"down{layer}_", weights.down)

    def write(self) -> str:
        """Adds the whole network. Returns the scores of the tokens to follow the last one."""
        model = self.model
        x = self.rows_of("embedding", model.embedding[0], "tokens")
        for i, layer in enumerate(model.layers):
            x = self.node("Add", [x, self.attention(self.normalized(x, f"norm{i}a", layer.attention_norm), i)])
            x = self.node("Add", [x, self.feed_forward(self.normalized(x, f"norm{i}f", layer.feed_forward_norm), i)])
        x = self.node("Gather", [x, self.array("end", [-1], np.int64)], axis=1)
        return self.product(self.normalized(x, "output_norm", model.output_norm), "output", model.output)

    def save(self, path: Path) -> None:
        """Writes the graph, and its arrays into a file beside it."""
        logits, shape = self.write(), self.shape
        self.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
        caches = [f"{part}{i}" for i in range(shape.layers) for part in ("keys", "values")]
        cache = [1, shape.key_heads, self.slots, shape.head_size]
        given: list[tuple[str, int, list[Any]]] = [("tokens", TensorProto.INT64, [1, "t"])]
        given += [("last_position", TensorProto.INT32, [1]), ("total", TensorProto.INT32, [1])]
        given += [(name, TensorProto.FLOAT, cache) for name in caches]
        results: list[tuple[str, int, list[Any]]] = [("logits", TensorProto.FLOAT, [1, 1, "n"])]
        results += [(f"{name}_out", TensorProto.FLOAT, cache) for name in caches]
        inputs, outputs = ([helper.make_tensor_value_info(*row) for row in rows] for rows in (given, results))
        arrays = [numpy_helper.from_array(value, name) for name, value in self.arrays.items()]
        graph = helper.make_graph(self.nodes, "language_model", inputs, outputs, arrays)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(CONTRIB, 1)]
        whole = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        beside = {"location": f"{path.name}.data", "size_threshold": EXTERNAL_BYTES}
        onnx.save_model(whole, str(path), save_as_external_data=True, all_tensors_to_one_file=True, **beside)


def kept_graph(path: str, slots: int, accuracy: int) -> Path:
    """Returns the file of the graph for a GGUF file, which is written if there is none."""
    status = os.stat(path)
    key = f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns} {slots} {accuracy}"
    key += str(os.stat(__file__).st_mtime_ns)
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shlo_jit_language_model_onnx"
    folder = root / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not (folder / "complete").exists():
        from gguf_model import read_model  # type: ignore[import-not-found]

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx.data").unlink(missing_ok=True)
        Graph(read_model(path), slots, accuracy).save(folder / "model.onnx")
        (folder / "complete").touch()
    return folder / "model.onnx"


class Session:
    """A graph in ONNX Runtime, with caches that calls update in place."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime as ort  # type: ignore[import-not-found]

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = ort.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        self._binding.bind_output("logits")
        for port in self._session.get_inputs()[3:]:
            value = ort.OrtValue.ortvalue_from_numpy(np.zeros(port.shape, np.float32))
            self._binding.bind_ortvalue_input(port.name, value)
            self._binding.bind_ortvalue_output(f"{port.name}_out", value)

    def likeliest(self, tokens: list[int], position: int) -> int:
        """Appends tokens at a position. Returns the likeliest token to follow them."""
        end = position + len(tokens)
        self._binding.bind_cpu_input("tokens", np.array([tokens], np.int64))
        self._binding.bind_cpu_input("last_position", np.array([end - 1], np.int32))
        self._binding.bind_cpu_input("total", np.array([end], np.int32))
        self._session.run_with_iobinding(self._binding)
        return int(np.argmax(self._binding.get_outputs()[0].numpy()))
