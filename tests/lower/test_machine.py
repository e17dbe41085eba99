"""The operations that records use to define their computation, and the code that emits them."""

from __future__ import annotations

import inspect

import pytest

from shlo_jit.ir.types import DTYPES
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.elements.elementwise import apply
from shlo_jit.lower.elements.registers import register_type
from shlo_jit.lower.elements.registers_machine import RegistersMachine
from shlo_jit.ops import OPS
from shlo_jit.ops.machine import ByKind, Machine, by_kind

WORDS = [name for name, member in vars(Machine).items() if inspect.isfunction(member) and name[0] != "_"]


def test_every_word_is_written() -> None:
    assert len(WORDS) > 40
    for word in WORDS:
        want, got = (list(inspect.signature(getattr(c, word)).parameters) for c in (Machine, RegistersMachine))
        assert want == got, word


def test_words_that_are_none_are_refused_where_the_record_is_made() -> None:
    with pytest.raises(AssertionError, match="faddd"):
        by_kind(f="faddd")


@pytest.mark.parametrize("record", [r for r in OPS.values() if isinstance(r.machine, ByKind)], ids=lambda r: r.name)
def test_what_a_record_says_can_be_written(record) -> None:
    """For every kind of elements that the record has a computation for, its operands may have them, and the operations
    exist."""
    kinds = record.operand_kinds[0].elements
    words = {"f": "float", "i": "sint", "u": "uint", "b": "pred", "c": "complex"}
    for kind in record.machine.computations:
        assert words[kind] in kinds or (kind == "u" and "sint" in kinds), kind
        if record.attributes.keys() - {"result_accuracy"}:
            continue  # it needs an op
        dtype = DTYPES[{"f": "bf16", "i": "i16", "u": "ui16", "b": "i1", "c": "complex<f32>"}[kind]]
        t = register_type(dtype)
        count = 2 if dtype.is_complex else 1
        n = len(record.operands)
        b = ModuleText().function("f", [(t, f"x{k}") for k in range(count * n)])
        args = [tuple(b.params[2 * k : 2 * k + 2]) if count == 2 else b.params[k] for k in range(n)]
        result = apply(b, record, dtype, args)
        assert isinstance(result, V | tuple)
