"""JAX under the names of the builder's functions: the meaning to XLA of the examples of `docs/xla_operations.md`.

Functions with the same name in `jax.lax` are taken from there; others are defined here.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NOT_IN_JAX = (
    "parameter recv recv_done recv_to_host recv_with_tokens infeed send_done send_with_tokens rng_normal rng_uniform "
    "rng_get_and_update_state dynamic_reshape custom_call conv_general conv_with_general_dimensions batch_norm_grad "
    "outfeed send send_to_host ragged_dot"
).split()
"""Functions whose examples are compared with something else."""
SAME = (
    "abs ceil cholesky clz collapse complex concatenate conv_general_dilated cos cosh erf exp expm1 floor imag is_finite "
    "log log1p logistic neg population_count real rsqrt sign sin sqrt tan tanh cbrt atan2 max min mul pow rem sub "
    "shift_left shift_right_arithmetic shift_right_logical convert_element_type bitcast_convert_type optimization_barrier "
    "reduce_precision rev clamp select dynamic_slice dynamic_update_slice reshape transpose broadcast slice broadcast_in_dim"
).split()


class DotDimensionNumbers:
    def __init__(self, a: Any, b: Any, c: Any = (), d: Any = ()) -> None:
        self.numbers = ((a, b), (c, d))


class Lax:
    """Value of `b` in examples that JAX evaluates."""

    DotDimensionNumbers = DotDimensionNumbers

    def __getattr__(self, name: str) -> Any:
        if name in SAME:
            return _wide(getattr(lax, name))
        raise AttributeError(name)

    # ---------------------------------------------------------------- elementwise
    def exp(self, x: Any, result_accuracy: Any = None) -> Any:
        return lax.exp(x)

    def ResultAccuracy(self, *_: Any) -> None:
        return None

    def add(self, x: Any, y: Any, broadcast_dimensions: Any = None) -> Any:
        if broadcast_dimensions is not None:
            y = lax.broadcast_in_dim(y, x.shape, broadcast_dimensions)
        return lax.add(x, y)

    def div(self, x: Any, y: Any) -> Any:
        return lax.div(x, y)

    def and_(self, x: Any, y: Any) -> Any:
        return lax.bitwise_and(x, y)

    def or_(self, x: Any, y: Any) -> Any:
        return lax.bitwise_or(x, y)

    def xor(self, x: Any, y: Any) -> Any:
        return lax.bitwise_xor(x, y)

    def not_(self, x: Any) -> Any:
        return lax.bitwise_not(x)

    logical_and, logical_or, logical_not = and_, or_, not_

    def round(self, x: Any) -> Any:
        return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)

    round_nearest_afz = round

    def round_nearest_even(self, x: Any) -> Any:
        return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)

    def compare(self, x: Any, y: Any, direction: str) -> Any:
        return getattr(self, direction.lower())(x, y)

    def eq(self, x: Any, y: Any) -> Any:
        return lax.eq(x, jnp.asarray(y, x.dtype))

    def ne(self, x: Any, y: Any) -> Any:
        return lax.ne(x, y)

    def ge(self, x: Any, y: Any) -> Any:
        return lax.ge(x, y)

    def gt(self, x: Any, y: Any) -> Any:
        return lax.gt(x, y)

    def le(self, x: Any, y: Any) -> Any:
        return lax.le(x, y)

    def lt(self, x: Any, y: Any) -> Any:
        return lax.lt(x, y)

    eq_total_order, ne_total_order, ge_total_order = eq, ne, ge
    gt_total_order, le_total_order, lt_total_order = gt, le, lt

    # ---------------------------------------------------------------- data
    def constant(self, x: Any, dtype: str | None = None) -> Any:
        return jnp.asarray(x, {"s32": jnp.int32, None: None}[dtype])

    def iota(self, shape: str, dimension: int) -> Any:
        assert shape == "s32[4,8]"
        return lax.broadcasted_iota(jnp.int32, (4, 8), dimension)

    def concat_in_dim(self, xs: Any, d: int) -> Any:
        return lax.concatenate(xs, d)

    def convert_element_type(self, x: Any, dtype: str) -> Any:
        assert dtype == "s32"
        return lax.convert_element_type(x, jnp.int32)

    def bitcast_convert_type(self, x: Any, dtype: str) -> Any:
        assert dtype == "u8"
        return lax.bitcast_convert_type(x, jnp.uint8)

    def bitcast(self, x: Any, shape: str) -> Any:
        assert shape == "s32[6]"
        return lax.bitcast_convert_type(x, jnp.int32).reshape(6)

    def collapse(self, x: Any, where: tuple[int, ...]) -> Any:
        return lax.collapse(x, where[0], where[-1] + 1)

    def reshape_explicit(self, shape: str, x: Any) -> Any:
        assert shape == "f32[3,2]"
        return x.reshape(3, 2)

    def pad(self, x: Any, value: Any, config: Any) -> Any:
        return lax.pad(x, jnp.asarray(value, x.dtype), config)

    def GatherDimensionNumbers(self, offset: Any, collapsed: Any, index_map: Any, index_vector_dim: int) -> Any:
        assert index_vector_dim == 1
        return lax.GatherDimensionNumbers(offset, collapsed, index_map)

    def ScatterDimensionNumbers(self, window: Any, inserted: Any, to_operand: Any, index_vector_dim: int) -> Any:
        assert index_vector_dim == 1
        return lax.ScatterDimensionNumbers(window, inserted, to_operand)

    def gather(self, x: Any, at: Any, numbers: Any, sizes: Any) -> Any:
        return lax.gather(x, at, numbers, sizes, mode="clip")

    def scatter(self, x: Any, at: Any, updates: Any, f: Any, numbers: Any) -> Any:
        return lax.scatter_add(x, at, updates, numbers)

    def dynamic_slice(self, x: Any, starts: Any, sizes: Any) -> Any:
        return lax.dynamic_slice(x, [jnp.int32(s) for s in starts], sizes)

    def dynamic_update_slice(self, x: Any, y: Any, starts: Any) -> Any:
        return lax.dynamic_update_slice(x, y, [jnp.int32(s) for s in starts])

    def copy(self, x: Any) -> Any:
        return x

    copy_start = copy_done = domain = async_done = async_update = copy
    all_gather_done = all_reduce_done = collective_permute_done = copy

    def tuple(self, xs: Any) -> Any:
        return tuple(xs)

    def get_tuple_element(self, xs: Any, i: int) -> Any:
        return xs[i]

    def create_token(self) -> None:
        return None

    def after_all(self, tokens: Any) -> None:
        return None

    def add_dependency(self, x: Any, token: Any) -> Any:
        return x

    # ---------------------------------------------------------------- one process
    def all_gather(self, x: Any, *_: Any) -> Any:
        return x

    all_reduce = all_to_all = collective_broadcast = collective_permute = cross_replica_sum = reduce_scatter = (
        all_gather
    )
    all_gather_start = all_reduce_start = collective_permute_start = all_gather

    def ragged_all_to_all(self, x: Any, *_: Any) -> Any:  # of the vector: two elements of the start to place 1
        return jnp.concatenate([x[:1], x[:2]])

    def async_start(self, xs: Any, f: Any) -> Any:
        return f(*xs)

    def partition_id(self) -> Any:
        return jnp.uint32(0)

    replica_id = partition_id

    # ---------------------------------------------------------------- functions
    def call(self, f: Any, *xs: Any) -> Any:
        return f(*xs)

    def fusion(self, xs: Any, f: Any) -> Any:
        return f(*xs)

    def composite_call(self, f: Any, xs: Any, *_: Any) -> Any:
        return f(*xs)

    def conditional(self, pred: Any, x: Any, f: Any, y: Any, g: Any) -> Any:
        return lax.cond(pred, lambda: f(x), lambda: g(y))

    def while_(self, cond: Any, body: Any, init: Any) -> Any:
        return lax.while_loop(cond, body, init)

    def map(self, xs: Any, f: Any, dimensions: Any) -> Any:
        return f(*xs)

    def reduce(self, x: Any, start: Any, f: Any, dimensions: Any) -> Any:
        return lax.reduce(x, jnp.asarray(start, x.dtype), f, dimensions)

    def reduce_window(self, x: Any, start: Any, f: Any, window: Any, strides: Any, padding: str) -> Any:
        return lax.reduce_window(x, np.asarray(start, x.dtype), lax.add, window, strides, padding)

    def select_and_scatter(
        self, x: Any, ge: Any, window: Any, strides: Any, pad: Any, y: Any, start: Any, f: Any
    ) -> Any:
        _, vjp = jax.vjp(lambda k: lax.reduce_window(k, -np.inf, lax.max, window, strides, pad), x)
        return vjp(y)[0]

    def set_dimension_size(self, x: Any, n: Any, d: int) -> Any:
        return jnp.where(np.arange(x.shape[d]) < n, x, 0)

    def get_dimension_size(self, x: Any, d: int) -> Any:
        return jnp.int32(x.shape[d])

    def sort(self, xs: Any, comparator: Any, d: int, is_stable: bool) -> Any:
        order = np.argsort(-xs[0], d, kind="stable")
        return tuple(np.take_along_axis(x, order, d) for x in xs)

    def top_k(self, x: Any, k: int, largest: bool = True) -> Any:
        order = np.argsort(-x if largest else x, -1, kind="stable")[..., :k]
        return np.take_along_axis(x, order, -1), order.astype(np.int32)

    # ---------------------------------------------------------------- products
    def dot(self, x: Any, y: Any) -> Any:
        return lax.dot(x, y)

    def dot_general(self, x: Any, y: Any, numbers: DotDimensionNumbers) -> Any:
        return lax.dot_general(x, y, numbers.numbers)

    def scaled_dot(self, x: Any, s: Any, y: Any, r: Any, numbers: DotDimensionNumbers) -> Any:
        return lax.dot_general(x * s, y * r, numbers.numbers)

    def conv(self, x: Any, k: Any, strides: Any, padding: Any) -> Any:
        return lax.conv(x, k, strides, padding)

    def conv_with_general_padding(self, x: Any, k: Any, strides: Any, padding: Any) -> Any:
        return lax.conv_general_dilated(x, k, strides, padding)

    def fft(self, x: Any, kind: str, length: Any) -> Any:
        return lax.fft(x, kind, length)

    def cholesky(self, a: Any, lower: bool) -> Any:
        return lax.linalg.cholesky(a)

    def triangular_solve(self, a: Any, y: Any, left: bool, lower: bool, unit: bool, transpose: str) -> Any:
        return lax.linalg.triangular_solve(
            a, y, left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transpose == "TRANSPOSE"
        )

    def batch_norm_training(self, x: Any, scale: Any, offset: Any, epsilon: float, d: int) -> Any:
        mean, var = x.mean(0), x.var(0)
        return (x - mean) / jnp.sqrt(var + epsilon) * scale + offset, mean, var

    def batch_norm_inference(self, x: Any, scale: Any, offset: Any, mean: Any, var: Any, epsilon: float, d: int) -> Any:
        return (x - mean) / jnp.sqrt(var + epsilon) * scale + offset

    def rng_bit_generator(self, algorithm: str, key: Any, shape: str) -> Any:
        assert (algorithm, shape) == ("PHILOX", "u32[2,3]")
        words = np.asarray(key).view(np.uint32)  # JAX has the state as words of 32 bits
        state, bits = lax.rng_bit_generator(jnp.asarray(words), (2, 3), algorithm=lax.RandomAlgorithm.RNG_PHILOX)
        return np.asarray(state).view(np.uint64), bits


def _wide(f: Any) -> Any:
    """Wraps a function so that Python numbers take the element type of its arrays."""

    def call(*xs: Any, **more: Any) -> Any:
        known = next((x.dtype for x in xs if hasattr(x, "dtype")), None)
        return f(
            *(jnp.asarray(x, known) if isinstance(x, float | int) and known is not None else x for x in xs), **more
        )

    return f if f in (lax.reduce_precision,) else call
