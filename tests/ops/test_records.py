"""The table of records is complete and consistent, and ops have references."""

from __future__ import annotations

import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import import_module

import pytest

from shlo_jit import ops
from shlo_jit.ir.types import F32, I32, tensor
from shlo_jit.ops import OPS, elementwise
from shlo_jit.ops import record as record_module
from shlo_jit.ops.attribute_kinds import ENUMS, describe
from shlo_jit.ops.families import FAMILY_OF
from shlo_jit.ops.kinds import type_kind
from shlo_jit.ops.record import TRAITS

WITHOUT_REFERENCE = {
    # other processes and the host
    "stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.all_to_all", "stablehlo.reduce_scatter",
    "stablehlo.collective_broadcast", "stablehlo.collective_reduce", "stablehlo.collective_permute",
    "stablehlo.cross-replica-sum", "stablehlo.replica_id", "stablehlo.partition_id", "stablehlo.infeed",
    "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv",
    # done by the interpreter itself, or never executed
    "stablehlo.custom_call", "stablehlo.return", "func.return", "func.func", "builtin.module",
    "stablehlo.cstr_reshapable",
}  # fmt: skip


def test_families_say_where_records_are():
    """Runs in a separate process, where nothing else has imported the families' modules. An op that is missing in the
    table, and not in a module of elementwise ops, would not be found there."""
    code = "from shlo_jit.ops import OPS\nfor name in reversed(list(OPS)): assert OPS[name].name == name, name\n"
    found = subprocess.run([sys.executable, "-c", f"{code}print(*OPS)"], check=True, capture_output=True, text=True)
    for info in pkgutil.iter_modules(ops.__path__):
        import_module(f"shlo_jit.ops.{info.name}")
    assert set(OPS._defined) == set(found.stdout.split()) >= set(FAMILY_OF)
    assert "stablehlo.nothing" not in OPS and "nothing.add" not in OPS
    assert OPS.get("stablehlo.nothing") is None
    with pytest.raises(KeyError):
        OPS["stablehlo.nothing"]


def test_references_are_there():
    assert {name for name, record in OPS.items() if record.reference is None} == WITHOUT_REFERENCE


@pytest.mark.parametrize("record", OPS.values(), ids=OPS)
def test_record(record):
    assert record.traits <= TRAITS
    assert len(record.operands) == len(record.operand_kinds)
    assert len(record.results) == len(record.result_kinds)
    for spec in record.attributes.values():
        word, _, rest = spec.kind.partition(" ")
        assert not word.startswith("enum") or rest in ENUMS
        assert describe(spec.kind)
        assert not (spec.required and spec.default is not None)


@pytest.mark.parametrize("record", [r for r in OPS.values() if r.reference], ids=lambda r: r.name)
def test_a_reference_takes_what_the_interpreter_gives(record):
    parameters = inspect.signature(record.reference).parameters
    keyword_only = {p.name for p in parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keyword_only <= {"run", "call"}
    assert ("run" in keyword_only) <= bool(record.regions)


def test_elementwise_ops_have_no_regions():
    assert not [r.name for r in OPS.values() if r.has("elementwise") and r.regions]


def test_the_example_is_the_record():
    """The example in the module's docstring defines the record of multiply."""
    example = re.search(r"define(\(.*?\n    \))\n", record_module.__doc__ or "", re.S)
    assert example is not None
    name, found = eval(example[1].replace("(", "capture(", 1), {**vars(elementwise), "capture": lambda n, **f: (n, f)})
    record = OPS[name]
    del found["reference"]
    assert found.pop("operands") == tuple(
        f"{n}: {kind.text}" for n, kind in zip(record.operands, record.operand_kinds, strict=True)
    )
    assert found.pop("results") == (f"{record.results[0]}: {record.result_kinds[0].text}",)
    assert {*found.pop("exact"), *"ux"} == record.exact
    for fact, value in found.items():
        assert getattr(record, fact) == value, fact


def test_kinds():
    kind = type_kind("0d int|f32")
    assert kind.accepts(tensor((), I32)) and kind.accepts(tensor((), F32))
    assert not kind.accepts(tensor((1,), I32))
    assert type_kind("any").accepts(tensor(None, I32))
    assert not type_kind("tensor").accepts(tensor(None, I32))
    assert not type_kind("shape").accepts(tensor((None,), I32))
    assert kind.describe() == "0D tensor of f32 or signed integer or unsigned integer values"


def test_results_that_are_not_inferred_are_chosen():
    """A record without inference has the trait `chooses_result`."""
    free = [r.name for r in OPS.values() if r.infer is None and r.results and not r.has("chooses_result")]
    assert free == []
