"""Table of the VHLO ops: their versions and stored attributes, with the corresponding attributes in StableHLO.

    op("exponential", "0.9 1.9", accuracy(since=2))

means that `exponential_v1` is written for StableHLO 0.9 and later, and `exponential_v2` from 1.9 on. The second version
added `result_accuracy`. Reader and writer use only these rows. An op of an older version implies the defaults of later
attributes, which StableHLO omits; an op is written in an older version only if its later attributes are the defaults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shlo_jit.bytecode.forms import (
    ANY,
    API_VERSION,
    BOOL,
    BOOLS,
    DEFAULT_PRECISION,
    DICTIONARIES,
    DICTIONARY,
    DIMS,
    FLAG,
    INT,
    INTEGER,
    INTS,
    LIST,
    PRECISIONS,
    SYMBOL,
    SYMBOLS,
    TENSOR,
    TEXT,
    TYPE,
    Default,
    Form,
    all_alike,
    default,
    either,
    enum,
    or_none,
    plain,
    rank_of_operand,
    spatial_rank,
)  # fmt: skip
from shlo_jit.bytecode.versions import Version, version_of
from shlo_jit.ir.attributes import Dense, DenseArray, DictAttr, EnumAttr, FloatAttr, IntegerAttr, StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.structs import CONV_FIELDS, STRUCTS
from shlo_jit.ir.structs import DIMS as DIMS_FIELD
from shlo_jit.ir.types import I64, TensorType, tensor


class Stored(NamedTuple):
    """A stored attribute of a VHLO op."""

    name: str
    form: Form
    default: Default | None = None
    since: int = 1
    """The first version of the op that has the attribute."""
    until: int = 99
    attribute: str = ""
    """Name in StableHLO if it differs."""
    struct: str = ""
    """Struct in StableHLO of which this is a field."""
    field: str = ""
    kept: bool = False
    """Whether StableHLO keeps the attribute if it is the default."""


class Versions(NamedTuple):
    """The versions of an op: `since[n - 1]` is the first version of StableHLO that writes `_v(n)`."""

    name: str
    """Name in StableHLO, including its dialect."""
    since: tuple[Version, ...]
    stored: tuple[Stored, ...]
    limits: tuple[Limit, ...]

    def at(self, version: Version) -> int:
        """Returns the version of the op that is written for a version of StableHLO; 0 if there is none."""
        return sum(since <= version for since in self.since)

    def names_in(self, number: int) -> tuple[str, ...]:
        """Returns the names of the attributes of version `number` of the op, in the order of files."""
        return _names_in(self.name, number)


@functools.cache
def _names_in(name: str, number: int) -> tuple[str, ...]:
    return tuple(sorted(s.name for s in OPS[name].stored if s.since <= number <= s.until))


class Limit(NamedTuple):
    """A feature of an op that versions of StableHLO before `since` lack."""

    since: Version
    what: str
    applies: Callable[[Op], bool]


OPS: dict[str, Versions] = {}
"""Ops by name in StableHLO."""
STEMS: dict[str, Versions] = {}
"""Ops by name in VHLO, without `_vN`."""


_version = functools.cache(version_of)


def op(name: str, since: str = "0.9", *stored: Stored | tuple[Stored, ...], limits: tuple[Limit, ...] = ()) -> None:
    """Adds a row. `name` includes its dialect unless that is `stablehlo`."""
    flat = [s for given in stored for s in ((given,) if isinstance(given, Stored) else given)]
    stem = name.partition(".")[2] or name
    full = name if "." in name else f"stablehlo.{name}"
    OPS[full] = STEMS[stem] = Versions(full, tuple(map(_version, since.split())), tuple(flat), limits)


def struct(name: str, attribute: str, later: dict[str, int] | None = None) -> tuple[Stored, ...]:
    """Returns the attributes that store the fields of a struct of numbers. `later` maps fields that were added later to
    their versions."""
    return tuple(
        Stored(
            field, DIMS if kind == DIMS_FIELD else INT, default(()) if later and field in later else None,
            later.get(field, 1) if later else 1, attribute=attribute, struct=name, field=field,
        )
        for field, kind, _ in STRUCTS[name]
    )  # fmt: skip


# ---------------------------------------------------------------------- attributes that several ops have
NO_INTS = default(DenseArray("i64", ()))
EMPTY_PAIRS = Dense(tensor((0, 2), I64), np.empty((0, 2), np.int64))
BATCHING_OF_GATHER = {"operand_batching_dims": 2, "start_indices_batching_dims": 2}
BATCHING_OF_SCATTER = {"input_batching_dims": 2, "scatter_indices_batching_dims": 2}
CHANNEL = "stablehlo.channel_handle"
CHANNEL_ID = Stored("channel_id", INT, default(0), attribute="channel_handle", struct=CHANNEL, field="handle")
GROUPS = (Stored("replica_groups", plain(Dense, StructAttr)), CHANNEL_ID)
GLOBAL_IDS = Stored("use_global_device_ids", FLAG, default(False))
TRANSFER = (
    Stored("channel_id", INT, attribute="channel_handle", struct=CHANNEL, field="handle"),
    Stored("channel_type", INT, attribute="channel_handle", struct=CHANNEL, field="type"),
    Stored("is_host_transfer", BOOL, default(False)),
    Stored("source_target_pairs", TENSOR, Default(lambda v: v.array.size == 0, lambda op: EMPTY_PAIRS), since=2),
)
PRECISION = Stored("precision_config", PRECISIONS, DEFAULT_PRECISION)
SORTED = Stored("indices_are_sorted", BOOL, default(False))
UNIQUE = Stored("unique_indices", BOOL, default(False))
_DEFAULT_MODE = EnumAttr("stablehlo", "result_accuracy_mode", "DEFAULT")
ACCURACY = Stored(
    "result_accuracy", plain(StructAttr),
    default(
        StructAttr("stablehlo.result_accuracy", (("atol", 0.0), ("rtol", 0.0), ("ulps", 0), ("mode", _DEFAULT_MODE)))
    ),
    since=2,
)  # fmt: skip
CONV_DIMS = tuple(
    Stored(field, DIMS if kind == DIMS_FIELD else INT, attribute="dimension_numbers", struct="conv", field=field)
    for field, kind in CONV_FIELDS
)
ALGORITHM = tuple(
    Stored(
        field,
        or_none(form),
        default(None),
        since=2,
        attribute="algorithm",
        struct="stablehlo.dot_algorithm",
        field=field,
    )
    for (field, _, _), form in zip(
        STRUCTS["stablehlo.dot_algorithm"], (TYPE, TYPE, TYPE, INT, INT, INT, BOOL), strict=True
    )
)


def ones(name: str, form: Form, rank: Callable[[Op], int], value: int = 1, **more: Any) -> Stored:
    """Returns an attribute that is a list with a number per dimension; by default all are `value`."""
    return Stored(name, form, all_alike(value, form, rank), **more)


def window(rank: Callable[[Op], int], *names: str) -> tuple[Stored, ...]:
    return tuple(ones(name, INTS, rank) for name in names)


def padding(rank: Callable[[Op], int], **more: Any) -> Stored:
    return ones("padding", TENSOR, rank, 0, **more)


CONVOLUTION = (
    *window(spatial_rank, "window_strides", "lhs_dilation", "rhs_dilation"),
    ones("window_reversal", BOOLS, spatial_rank, 0),
    *CONV_DIMS, Stored("feature_group_count", INTEGER), Stored("batch_group_count", INTEGER), PRECISION,
)  # fmt: skip


def ints(*names: str) -> tuple[Stored, ...]:
    return tuple(Stored(name, INTS) for name in names)


def integers(*names: str) -> tuple[Stored, ...]:
    return tuple(Stored(name, INTEGER) for name in names)


def flags(*names: str) -> tuple[Stored, ...]:
    """Returns boolean attributes without a default."""
    return tuple(Stored(name, BOOL) for name in names)


# ---------------------------------------------------------------------- features that old versions lack
def _promotes(op: Op) -> bool:
    """Whether a body computes in an element type that differs from its operands."""
    if not op.regions or not op.regions[-1].blocks:
        return False
    n = len(op.results)
    pairs = [(v.type, op.operands[i % n].type) for i, v in enumerate(op.regions[-1].blocks[0].arguments) if n]
    return any(
        isinstance(a, TensorType) and isinstance(t, TensorType) and a.dtype != t.dtype for a, t in pairs
    )  # fmt: skip


PROMOTION = (Limit(Version(0, 17), "a body of another element type than its operands", _promotes),)
ONE_OPERAND = (Limit(Version(1, 5), "more than one operand", lambda op: len(op.operands) != 1),)
REGIONS = (Limit(Version(1, 14), "regions", lambda op: bool(op.regions)),)
ROOT = (Limit(Version(1, 20), "a root that is an operand", lambda op: len(op.operands) != 1),)


def _has_dictionary(op: Op) -> bool:
    return isinstance(op.attributes.get("backend_config"), DictAttr) or op.attributes.get("api_version") == FFI


FFI = IntegerAttr(4, "i32")
"""API version of custom calls whose options are a dictionary."""
OPTIONS = (Limit(Version(1, 3), "a backend_config that is a dictionary", _has_dictionary),)
NO_ITEMS = DictAttr(())
BACKEND_CONFIG = Default(
    lambda value: value in ("", NO_ITEMS), lambda op: NO_ITEMS if op.attributes.get("api_version") == FFI else ""
)

# ---------------------------------------------------------------------- the ops
_PLAIN = """abs add after_all and atan2 bitcast_convert case ceil clamp complex convert count_leading_zeros create_token
divide dynamic_pad dynamic_reshape dynamic_update_slice floor if imag is_finite maximum minimum multiply negate not
optimization_barrier or partition_id popcnt power real real_dynamic_slice remainder replica_id reshape
round_nearest_afz round_nearest_even select shift_left shift_right_arithmetic shift_right_logical sign subtract tuple
uniform_dequantize uniform_quantize while xor"""
for _name in _PLAIN.split():
    op(_name)
for _name in "cbrt cosine exponential_minus_one log_plus_one logistic log rsqrt sine sqrt tanh".split():
    op(_name, "0.9 1.10", ACCURACY)
op("exponential", "0.9 1.9", ACCURACY)
op("tan", "1.4 1.10", ACCURACY)
op("async_start", "1.15")
op("async_done", "1.15")
op("all_gather", "0.9 1.5", integers("all_gather_dim"), GROUPS, GLOBAL_IDS, limits=ONE_OPERAND)
op("all_reduce", "0.9 1.5", GROUPS, GLOBAL_IDS, limits=(*ONE_OPERAND, *PROMOTION))
op("all_to_all", "0.9 1.5", integers("split_dimension", "concat_dimension", "split_count"), GROUPS, limits=ONE_OPERAND)
op("batch_norm_grad", "0.9", Stored("epsilon", plain(FloatAttr)), integers("feature_index"))
op("batch_norm_inference", "0.9", Stored("epsilon", plain(FloatAttr)), integers("feature_index"))
op("batch_norm_training", "0.9", Stored("epsilon", plain(FloatAttr)), integers("feature_index"))
op("broadcast", "0.9", ints("broadcast_sizes"))
op("broadcast_in_dim", "0.9", ints("broadcast_dimensions"))
op("cholesky", "0.9", Stored("lower", BOOL, default(False)))
op(
    "collective_broadcast", "0.16 1.20", GROUPS, Stored("has_dynamic_root", FLAG, default(False), since=2), limits=ROOT,
)  # fmt: skip
op("collective_permute", "0.9", Stored("source_target_pairs", TENSOR), CHANNEL_ID)
op("collective_reduce", "1.20", GROUPS, GLOBAL_IDS, Stored("has_dynamic_root", FLAG, default(False)))
op(
    "compare", "0.9", Stored("comparison_direction", enum("comparison_direction")),
    Stored("compare_type", enum("comparison_type"), default(EnumAttr("stablehlo", "comparison_type", "NOTYPE"))),
)  # fmt: skip
op(
    "composite", "0.19 1.14", Stored("name", TEXT), Stored("composite_attributes", DICTIONARY, default(DictAttr(()))),
    Stored("decomposition", SYMBOL), Stored("version", INTEGER, either(IntegerAttr(0, "i32"), IntegerAttr(0, "i64"))),
    limits=REGIONS,
)  # fmt: skip
op("concatenate", "0.9", integers("dimension"))
op("constant", "0.9", Stored("value", TENSOR))
op("convolution", "0.9", CONVOLUTION, padding(spatial_rank))
op("cross-replica-sum", "0.9", Stored("replica_groups", TENSOR))
op(
    "custom_call", "0.9 1.18", Stored("call_target_name", TEXT), Stored("has_side_effect", BOOL, default(False)),
    Stored("backend_config", ANY, BACKEND_CONFIG), Stored("api_version", API_VERSION, default(IntegerAttr(1, "i32"))),
    Stored("called_computations", SYMBOLS, default(())),
    Stored("operand_layouts", LIST, default(())), Stored("result_layouts", LIST, default(())),
    Stored("output_operand_aliases", LIST, default(())), Stored("result_tilings", LIST, default(()), since=2),
    limits=OPTIONS,
)  # fmt: skip
op("dot", "0.9", PRECISION)
op("dot_general", "0.9 1.6", struct("stablehlo.dot", "dot_dimension_numbers"), PRECISION, ALGORITHM)
op(
    "dynamic_broadcast_in_dim", "0.9", ints("broadcast_dimensions"),
    Stored("known_expanding_dimensions", INTS, NO_INTS), Stored("known_nonexpanding_dimensions", INTS, NO_INTS),
)  # fmt: skip
op("dynamic_conv", "0.9 0.20", CONVOLUTION, padding(spatial_rank, until=1))
op("dynamic_gather", "0.9 1.1", struct("stablehlo.gather", "dimension_numbers", BATCHING_OF_GATHER), SORTED)
op("dynamic_iota", "0.9", integers("iota_dimension"))
op("dynamic_slice", "0.9", ints("slice_sizes"))
op("einsum", "0.9", Stored("einsum_config", TEXT))
op("fft", "0.9", Stored("fft_type", enum("fft_type")), ints("fft_length"))
op(
    "gather",
    "0.9 1.1",
    struct("stablehlo.gather", "dimension_numbers", BATCHING_OF_GATHER),
    ints("slice_sizes"),
    SORTED,
)
op("get_dimension_size", "0.9", integers("dimension"))
op("get_tuple_element", "0.9", integers("index"))
op("infeed", "0.9", Stored("infeed_config", TEXT, default(""), kept=True), Stored("layout", LIST, default(())))
op("iota", "0.9", integers("iota_dimension"))
op("map", "0.9", ints("dimensions"))
op("outfeed", "0.9", Stored("outfeed_config", TEXT, default(""), kept=True))
op("pad", "0.9", ints("edge_padding_low", "edge_padding_high", "interior_padding"))
op("recv", "0.9 1.12", TRANSFER)
op("reduce", "0.9", ints("dimensions"), limits=PROMOTION)
op("reduce_precision", "0.9", integers("exponent_bits", "mantissa_bits"))
op("reduce_scatter", "0.9", integers("scatter_dimension"), GROUPS, GLOBAL_IDS, limits=PROMOTION)
op(
    "reduce_window", "0.9", ints("window_dimensions"),
    window(rank_of_operand, "window_strides", "base_dilations", "window_dilations"), padding(rank_of_operand),
    limits=PROMOTION,
)  # fmt: skip
op("reverse", "0.9", ints("dimensions"))
op("rng", "0.9", Stored("rng_distribution", enum("rng_distribution")))
op("rng_bit_generator", "0.9", Stored("rng_algorithm", enum("rng_algorithm")))
op(
    "scatter", "0.9 1.1", struct("stablehlo.scatter", "scatter_dimension_numbers", BATCHING_OF_SCATTER), SORTED, UNIQUE,
    limits=PROMOTION,
)  # fmt: skip
op(
    "select_and_scatter", "0.9", window(rank_of_operand, "window_dimensions", "window_strides"),
    padding(rank_of_operand), limits=PROMOTION,
)  # fmt: skip
op("send", "0.9 1.12", TRANSFER)
op("set_dimension_size", "0.9", integers("dimension"))
op("slice", "0.9", ints("start_indices", "limit_indices", "strides"))
op("sort", "0.9", Stored("dimension", INTEGER, default(IntegerAttr(-1))), Stored("is_stable", BOOL, default(False)))
op("torch_index_select", "0.9", integers("dim", "batch_dims"))
op("transpose", "0.9", ints("permutation"))
op(
    "triangular_solve", "0.9", flags("left_side", "lower", "unit_diagonal"), Stored("transpose_a", enum("transpose")),
)  # fmt: skip
op("unary_einsum", "0.9", Stored("einsum_config", TEXT))
op("return")
OPS["func.return"] = OPS["stablehlo.return"]
op("func.call", "0.9", Stored("callee", SYMBOL))
NO_DICTIONARIES = Default(lambda value: not any([d.items for d in value]), lambda op: ())
op(
    "func.func", "0.9", Stored("sym_name", TEXT), Stored("function_type", TYPE),
    Stored("sym_visibility", TEXT, default("")), Stored("arg_attrs", DICTIONARIES, NO_DICTIONARIES),
    Stored("res_attrs", DICTIONARIES, NO_DICTIONARIES),
)  # fmt: skip

# ---------------------------------------------------------------------- ops of other dialects
FOREIGN: dict[str, tuple[str, ...]] = {
    "builtin.module": ("sym_name?", "sym_visibility?"),
    "builtin.unrealized_conversion_cast": (),
    "sdy.all_gather": ("gathering_axes", "out_sharding"),
    "sdy.all_reduce": ("out_sharding", "reduction_axes"),
    "sdy.all_slice": ("out_sharding", "slicing_axes"),
    "sdy.all_to_all": ("out_sharding", "params"),
    "sdy.collective_permute": ("out_sharding",),
    "sdy.constant": ("value",),
    "sdy.manual_computation": ("in_shardings", "manual_axes", "out_shardings"),
    "sdy.mesh": ("mesh", "sym_name"),
    "sdy.named_computation": ("in_shardings?", "name", "out_shardings?"),
    "sdy.propagation_barrier": ("allowed_direction",),
    "sdy.reduce_scatter": ("out_sharding", "reduce_scatter_axes"),
    "sdy.reshard": ("sharding",),
    "sdy.return": (),
    "sdy.sharding_constraint": ("sharding",),
    "sdy.sharding_group": ("group_id",),
}
"""Attributes that are stored with the op, in order; optional ones are marked by `?`."""
