"""XLA's documents, if they are next to this checkout: the table has each operation they name, and its function has each
of their arguments.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from shlo_jit import builder
from shlo_jit.builder import operations
from shlo_jit.builder.operation_table import OLDER, OPERATIONS, TODAY

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
EDITIONS = [(TODAY, "002_"), (OLDER, "003_")]

NAMES = (
    re.compile(r"^ ?([A-Z]\w*)\(", re.MULTILINE | re.ASCII),
    re.compile(
        r"^ *([A-Z][a-z]+[A-Z]\w+|Expm1|Log1p|Rsqrt|Outfeed|Recv|Send)(?: \(\w+\))? *$", re.MULTILINE | re.ASCII
    ),
    re.compile(r"(?:XlaBuilder|HloInstruction)::(?:Create(?=[A-Z]))?([A-Z]\w*)", re.ASCII),
    re.compile(r"([GLEN][a-z]TotalOrder)"),
    re.compile(r"(?<![A-Za-z])([A-Z][a-z]\w*(?:Start|Update|Done|WithTokens|ToHost))(?![A-Za-z])", re.ASCII),
    re.compile(r"^(Copy) is internally|^(Reshape \(explicit\))$", re.MULTILINE),
    re.compile(r"(?<![A-Za-z])([A-Z][a-z]\w*) ?\((?=[가-힣])", re.ASCII),
)
"""Patterns of names of operations: in signatures, headings, and in text, in both translations."""
GLUED = re.compile(
    r"(the|tf|HloInstruction)$|^Reshape(?=Collapse)|^Op(?=[A-Z])|^Create(?=[A-Z])|^(Send|Recv)(?=\2Done)"
)
"""Words that a translation wrote without a space after a name."""
OTHER_WORDS = {"", "Op", "Concat", "Expm"}
"""Words that look like an operation: a placeholder for several, an abbreviation, and half of a name."""

CALL = re.compile(r"(?:^|\) )([A-Za-z]\w*)\(([a-z_]\w*(?:\.\.\.)?(?:, ?[a-z_]\w*(?:\.\.\.)?)*)\)", re.MULTILINE)
EXAMPLES = {("DynamicUpdateSlice", "a, u, s"), ("DynamicUpdateSlice", "b, u, s"), ("Select", "pred, v1, v2")}
"""Calls that are not signatures."""
RENAMED = {
    # of both: an example's, a typing error, and the record's own name
    ("DotGeneral", "dnums"): "dimension_numbers",
    ("Fft", "ftt_type"): "fft_type",
    ("ScaledDot", "dimension_number"): "dimension_numbers",
    # the older document's, renamed in today's
    ("AfterAll", "operands"): "tokens",
    ("AllGather", "all_gather_dim"): "all_gather_dimension",
    ("AllGather", "replica_group_ids"): "replica_groups",
    ("AllReduce", "replica_group_ids"): "replica_groups",
    ("BatchNormGrad", "mean"): "batch_mean",
    ("BatchNormGrad", "variance"): "batch_var",
    ("Call", "args"): "operands",
    ("Conditional", "pred"): "predicate",
    ("CustomCall", "args"): "operands",
    ("CustomCall", "target_name"): "call_target_name",
    ("DynamicSlice", "size_indices"): "slice_sizes",
    ("Recv", "channel_handle"): "handle",
    ("Reduce", "dimensions"): "dimensions_to_reduce",
    ("ReduceScatter", "replica_group_ids"): "replica_groups",
    ("ReduceScatter", "scatter_dim"): "scatter_dimension",
    ("RngBitGenerator", "key"): "initial_state",
    ("Send", "channel_handle"): "handle",
    ("SetDimensionSize", "size"): "val",
    # fields of a record
    **{("gather", n): "dimension_numbers" for n in ("offset_dims", "collapsed_slice_dims", "start_index_map")},
    **{
        ("scatter", n): "dimension_numbers"
        for n in ("index_vector_dim", "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    },
}


def text_of(start: str) -> str:
    files = sorted(SEEDS.glob(f"{start}*.txt"))
    if not files:
        pytest.skip("the documents are not beside this checkout (../shared/seeds)")
    return files[0].read_text(encoding="utf-8")


@pytest.mark.parametrize(("edition", "start"), EDITIONS)
def test_the_table_has_the_operations_of_the_documents(edition: str, start: str) -> None:
    text = text_of(start)
    found = {name for pattern in NAMES for match in pattern.finditer(text) for name in match.groups("")}
    found = {GLUED.sub("", name) for name in found} - OTHER_WORDS
    known = {op.name for op in OPERATIONS if edition in op.documents}
    assert found == known, (found - known, known - found)
    assert operations.counts()[edition] == len(found)


@pytest.mark.parametrize(("edition", "start"), EDITIONS)
def test_arguments_have_the_names_of_the_documents(edition: str, start: str) -> None:
    functions = {op.name: op.function for op in OPERATIONS} | {"gather": "gather", "scatter": "scatter"}
    checked, unknown = 0, []
    for name, given in CALL.findall(text_of(start)):
        if name not in functions or (name, given) in EXAMPLES:
            continue
        arguments = [a.strip().removesuffix("...") for a in given.split(",")]
        function = "reshape_explicit" if name == "Reshape" and arguments[0] == "shape" else functions[name]
        known = parameters(function)
        unknown += [(name, a) for a in arguments if RENAMED.get((name, a), a) not in known]
        checked += len(arguments)
    assert not unknown
    assert checked > 100


def parameters(function: str) -> set[str]:
    if function == "conditional":  # of two signatures
        from shlo_jit.builder.control import BY_INDEX, BY_PREDICATE

        return {*BY_PREDICATE, *BY_INDEX}
    return set(inspect.signature(getattr(builder, function)).parameters)
