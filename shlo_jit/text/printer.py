"""Printer: writes a `Module` as text that parses to an equal module.

Ops are printed in their pretty form if they have one and match it, otherwise in the generic form. Values keep their
names from the text if those are unique; numbers are assigned anew, in order. Printing is idempotent: parsing printed
text and printing it again gives the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from shlo_jit.deep import deeply
from shlo_jit.ir.attribute_text import (
    attribute_text,
    dictionary_text,
    string_text,
    struct_fields_text,
    symbol_text,
)
from shlo_jit.ir.attributes import OpaqueAttr, StructAttr
from shlo_jit.ir.core import Block, Module, Op, Region, Value
from shlo_jit.ir.type_text import results_text, type_text
from shlo_jit.ir.types import Type
from shlo_jit.ops import OPS
from shlo_jit.text.syntax import NotPretty
from shlo_jit.verify.check_op import has_declared_form

__all__ = ["Printer", "print_module", "print_op", "type_text"]

_ALIAS = re.compile(r"#(loc[A-Za-z0-9_$.\-]*)")
_HINT = re.compile(r"[A-Za-z_$.\-][A-Za-z0-9_$.\-]*\Z")

_PROPERTIES = """
algorithm all_gather_dim api_version arg_attrs backend_config base_dilations batch_dims batch_group_count
broadcast_dimensions broadcast_sizes call_target_name callee called_computations channel_handle channel_id
compare_type comparison_direction composite_attributes concat_dimension custom_call_schedule decomposition dim
dimension dimension_numbers dimensions dot_dimension_numbers edge_padding_high edge_padding_low einsum_config
epsilon exponent_bits feature_group_count feature_index fft_length fft_type function_type has_side_effect index
indices_are_sorted infeed_config interior_padding iota_dimension is_host_transfer is_reverse is_associative
is_stable k known_expanding_dimensions known_nonexpanding_dimensions layout left_side lhs_dilation limit_indices
lower mantissa_bits mesh name operand_layouts operandSegmentSizes outfeed_config output_operand_aliases padding
permutation precision_config ragged_dot_dimension_numbers replica_groups res_attrs result_accuracy
result_layouts resultSegmentSizes rhs_dilation rng_algorithm rng_distribution scan_dim_size scatter_dimension
scatter_dimension_numbers slice_sizes source_target_pairs split_count split_dimension start_indices strides
sym_name sym_visibility transpose_a unique_indices unit_diagonal use_global_device_ids value version
window_dilations window_dimensions window_reversal window_strides"""
PROPERTIES = frozenset(_PROPERTIES.split())
"""Inherent attributes: the generic form has them in `<{...}>` and all others in `{...}`."""


@deeply
def print_module(module: Module) -> str:
    """Returns the text of the whole program, location aliases first."""
    printer = Printer()
    body = printer.op(module.op)
    return "\n".join([*aliases(module.locations, body), body, ""])


def print_op(op: Op) -> str:
    """Returns the text of one op, for messages and tests."""
    return Printer().op(op)


def value_names(op: Op) -> dict[Value, str]:
    """Returns the names, with `%`, that `print_op` gives to the values in an op, in the order of the text.

    Regions that do not see each other may use the same name for different values.
    """
    printer = Printer()
    printer.op(op)
    return printer.names


def aliases(locations: Mapping[str, str], body: str) -> Iterable[str]:
    """Returns the definitions of the location aliases that `body` needs, directly or through others.

    An alias comes before those that refer to it.
    """
    todo = _ALIAS.findall(body)
    if not todo or not locations:
        return []
    reached: dict[str, None] = {}
    while todo:
        name = todo.pop()
        if name in locations and name not in reached:
            reached[name] = None
            todo += _ALIAS.findall(locations[name])
    return [f"#{name} = {text}" for name, text in locations.items() if name in reached]


class Printer:
    """State of the printer: the names of values and the indentation. Text is passed as return values."""

    def __init__(self) -> None:
        self.indent = ""
        self.in_func = False
        """Whether the current op is directly in a function, where the prefix `func.` is omitted."""
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()
        self.counter = 0
        self.scopes: list[tuple[list[str], int]] = []

    # ---- ops

    def op(self, op: Op) -> str:
        """Returns the text of an op with its results and location, without the indentation of its first line."""
        from shlo_jit.text.pretty import SHORT

        # operands already have names; results get theirs before the op's regions are printed
        results = self._results(op)
        short = SHORT.get(op.name, op.name) if self.in_func or op.name == "builtin.module" else op.name
        outer = self.in_func
        if op.regions:
            self.in_func = op.name == "func.func"
        text = self._pretty(op, short)
        if text is None:
            self.in_func = False  # the generic form of a function requires the prefix
            text = self._generic(op)
        self.in_func = outer
        return f"{results}{text}{self.location(op)}"

    def location(self, op: Op) -> str:
        """Returns ` loc(...)` of an op, or an empty text."""
        return f" {op.location.text}" if isinstance(op.location, OpaqueAttr) else ""

    def _pretty(self, op: Op, name: str) -> str | None:
        """Returns the op in its pretty form, or None if it has none or does not match it."""
        from shlo_jit.text.pretty import PRINT

        pretty = PRINT.get(op.name)
        if pretty is None or "successors" in op.attributes:
            return None
        record = OPS.get(op.name)
        if record is not None and not has_declared_form(op, record):  # which the pretty form assumes
            return None
        try:
            text = pretty(self, op)
        except NotPretty:
            return None
        if text is None:
            return None
        return f"{name}{text}" if text[:1] in "(<" and op.name not in SPACED else f"{name} {text}".rstrip()

    def _results(self, op: Op) -> str:
        """Names the results of an op. Returns `%0 = `, `%0:2 = ` or `%a, %b = `."""
        results = op.results
        if not results:
            return ""
        if results[0] in self.names:  # named by `_name_ahead`
            texts = [self.names[value] for value in results]
            base, grouped, _ = texts[0].partition("#")
            return f"{base}:{len(texts)} = " if grouped else ", ".join(texts) + " = "
        hint = results[0].name
        if len(results) == 1:
            return f"{self.name(results[0])} = "
        if all(value.name == hint for value in results):
            base = self._fresh(hint)
            for i, value in enumerate(results):
                self.names[value] = f"{base}#{i}"
            return f"{base}:{len(results)} = "
        return ", ".join(self.name(value) for value in results) + " = "

    def _generic(self, op: Op) -> str:
        """Returns `"name"(operands)[successors] <{properties}> ({regions}) {attributes} : type`."""
        successors = op.attributes.get("successors")
        text = f"{string_text(op.name)}({self.operands(op)})"
        if successors:
            text += f"[{', '.join(block.text for block in successors)}]"
        properties = [(k, v) for k, v in op.attributes.items() if k in PROPERTIES]
        others = [(k, v) for k, v in op.attributes.items() if k not in PROPERTIES and k != "successors"]
        if properties:
            text += f" <{dictionary_text(properties)}>"
        if op.regions:
            text += f" ({', '.join(self.region(region) for region in op.regions)})"
        if others:
            text += f" {dictionary_text(others)}"
        return f"{text} : {self.function(op)}"

    # ---- names

    def name(self, value: Value) -> str:
        """Assigns a name to a value and returns it."""
        name = self.names[value] = self._fresh(value.name)
        return name

    def _fresh(self, hint: str) -> str:
        """Returns an unused name with `%`, from the hint or the next number."""
        if not _HINT.match(hint):
            self.counter += 1
            return f"%{self.counter - 1}"
        name = hint
        n = 0
        while name in self.used:
            name = f"{hint}_{n}"
            n += 1
        self.used.add(name)
        if self.scopes:
            self.scopes[-1][0].append(name)
        return f"%{name}"

    def value(self, value: Value) -> str:
        """Returns the name of a value at a use; a placeholder if the value is not defined."""
        found = self.names.get(value)
        return found if found is not None else f"%<undefined {value.name}>"

    def open_scope(self, values: list[Value], names: list[str] | None = None) -> list[str]:
        """Enters a region with these arguments. Returns their names, which are `names` or chosen here."""
        self.scopes.append(([], self.counter))
        if names is None:
            return [self.name(value) for value in values]
        for value, name in zip(values, names, strict=True):
            self.names[value] = name
            if name[1:] not in self.used:
                self.used.add(name[1:])
                self.scopes[-1][0].append(name[1:])
        return names

    def close_scope(self) -> None:
        names, self.counter = self.scopes.pop()
        self.used.difference_update(names)

    def open_function(self) -> tuple[set[str], int]:
        """Enters an op whose regions do not see outside values. Returns the state that `close_function` restores."""
        outer = (self.used, self.counter)
        self.used, self.counter = set(), 0
        return outer

    def close_function(self, outer: tuple[set[str], int]) -> None:
        self.used, self.counter = outer

    # ---- regions

    def opened_block(self, block: Block) -> str:
        """Returns `{ ops }` of a block whose scope is open, and closes the scope."""
        text = self._ops(block)
        self.close_scope()
        return f"{{\n{text}{self.indent}}}"

    def opened_region(self, region: Region) -> str:
        """Returns `{ blocks }` of a region whose open scope includes the first block's arguments; closes the scope."""
        self._name_ahead(region)
        texts = [self._ops(region.blocks[0])]
        texts += [self._labelled(block, i) for i, block in enumerate(region.blocks) if i]
        self.close_scope()
        return f"{{\n{''.join(texts)}{self.indent}}}"

    def isolated_region(self, region: Region, values: list[Value]) -> str:
        """Returns the text of a region that does not see outside values and whose arguments are named elsewhere."""
        outer = self.open_function()
        self.open_scope(values)
        text = self.opened_region(region)
        self.close_function(outer)
        return text

    def region(self, region: Region) -> str:
        """Returns the text of a region in the generic form, with arguments in block labels."""
        self.open_scope([])
        self._name_ahead(region)
        texts: list[str] = []
        for i, block in enumerate(region.blocks):
            if i == 0 and not block.arguments and block.ops and len(region.blocks) == 1:
                texts.append(self._ops(block))
            else:
                texts.append(self._labelled(block, i))
        self.close_scope()
        return f"{{\n{''.join(texts)}{self.indent}}}"

    def _name_ahead(self, region: Region) -> None:
        """Names all values of a region with several blocks in advance, since uses may precede definitions."""
        if len(region.blocks) < 2:
            return
        for block in region.blocks[1:]:
            for value in block.arguments:
                self.name(value)
        for block in region.blocks:
            for op in block.ops:
                self._results(op)

    def _labelled(self, block: Block, index: int) -> str:
        names = [self.names.get(value) or self.name(value) for value in block.arguments]
        arguments = ", ".join(
            f"{name}: {self.type(value.type)}{self.argument_location(block, i)}"
            for i, (name, value) in enumerate(zip(names, block.arguments, strict=True))
        )
        label = block.label or f"bb{index}"
        return f"{self.indent}^{label}{f'({arguments})' if arguments else ''}:\n{self._ops(block)}"

    def argument_location(self, block: Block, index: int) -> str:
        """Returns ` loc(...)` of an argument of a block, or an empty text."""
        location = block.locations[index] if index < len(block.locations) else None
        return f" {location.text}" if isinstance(location, OpaqueAttr) else ""

    def _ops(self, block: Block) -> str:
        outer = self.indent
        self.indent = outer + "  "
        lines = [f"{self.indent}{self.op(op)}\n" for op in block.ops]
        self.indent = outer
        return "".join(lines)

    # ---- parts of ops

    def operands(self, op: Op) -> str:
        """`%a, %b`"""
        return ", ".join([self.value(value) for value in op.operands])

    def dictionary(self, op: Op, skip: Iterable[str] = ()) -> str:
        """Returns `{...}` of the attributes except `skip`; empty if there are none."""
        attributes = op.attributes
        if not attributes:
            return ""
        items = [(name, value) for name, value in attributes.items() if name not in skip]
        return dictionary_text(items) if items else ""

    def spaced_dictionary(self, op: Op, skip: Iterable[str] = ()) -> str:
        """Returns the text of `dictionary`, preceded by a blank unless it is empty."""
        text = self.dictionary(op, skip)
        return f" {text}" if text else ""

    def type(self, type: Type) -> str:
        return type_text(type)

    def function(self, op: Op) -> str:
        """Returns `(types) -> types` of operands and results."""
        return f"({', '.join([type_text(value.type) for value in op.operands])}) -> {self.results_type(op)}"

    def results_type(self, op: Op) -> str:
        return results_text(tuple(value.type for value in op.results))

    def same_or_function(self, op: Op) -> str:
        """Returns a single type if operands and result all have it, otherwise the function type."""
        type = op.results[0].type if len(op.results) == 1 else None
        if type is not None and op.operands and all(value.type == type for value in op.operands):
            return type_text(type)
        return self.function(op)

    def attribute(self, value: Any) -> str:
        return attribute_text(value)

    def struct_fields(self, value: StructAttr) -> str:
        return struct_fields_text(value)

    def symbol(self, name: str) -> str:
        return symbol_text(name)


SPACED = frozenset({"stablehlo.constant", "stablehlo.optimization_barrier"})
"""Ops whose text keeps a blank after the name although it begins with a bracket."""
