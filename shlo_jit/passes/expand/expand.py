"""Expand rare ops into core ops: CHLO's compound ones, batch_norm_*, products by other names, deprecated forms.

Needs: inlined functions. Guarantees: ops named in `EXPANSIONS` are gone if their shapes are static (a rule that does
not apply leaves the op unchanged). The rules are in this folder, by family; each shows its equation.

    chlo.square %x   ->   multiply %x, %x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.verify.core import Rule

Expansion = Callable[[Rewriter, Op, list[Value]], "Sequence[Value] | None"]

_MODULES = {
    "chlo": """
        chlo.square chlo.conj chlo.constant_like chlo.cosh chlo.sinh chlo.scan
        chlo.broadcast_add chlo.broadcast_subtract chlo.broadcast_multiply chlo.broadcast_divide
        chlo.broadcast_remainder chlo.broadcast_power chlo.broadcast_maximum chlo.broadcast_minimum
        chlo.broadcast_atan2 chlo.broadcast_and chlo.broadcast_or chlo.broadcast_xor chlo.broadcast_shift_left
        chlo.broadcast_shift_right_arithmetic chlo.broadcast_shift_right_logical chlo.broadcast_next_after
        chlo.broadcast_polygamma chlo.broadcast_zeta chlo.broadcast_compare chlo.broadcast_complex
        chlo.broadcast_select
    """,
    "contract": "dot_general dot einsum unary_einsum chlo.ragged_dot",
    "bitcast": "bitcast_convert",
    "data": "broadcast torch_index_select map get_dimension_size chlo.constant",
    "dynamic": """
        dynamic_reshape chlo.dynamic_reshape dynamic_broadcast_in_dim dynamic_iota dynamic_pad real_dynamic_slice
        dynamic_gather dynamic_conv
    """,
    "norm": "batch_norm_inference batch_norm_training batch_norm_grad",
    "random": "rng_bit_generator",
    "rng": "rng",
    "shapes": "set_dimension_size compute_reshape_shape cstr_reshapable trace",
}

EXPANSIONS: dict[str, str] = {
    name if "." in name else f"stablehlo.{name}": module for module, names in _MODULES.items() for name in names.split()
}
"""Name of an op -> module of this package whose `RULES` has its rule. The module is imported when a program has the
op."""
PARTLY = {"stablehlo.dot_general", "stablehlo.bitcast_convert", "chlo.cosh", "chlo.sinh"}
"""Ops that are core ops, too: their rules expand only some of them."""
EXPANDED = Rule("no compound op", concerns=lambda name: name in EXPANSIONS and name not in PARTLY)
"""Rule that holds once all shapes are known to be static."""
ROUNDS = 4
"""Maximum depth of expansions: an expansion may emit ops that are expanded themselves."""


def expansion(name: str) -> Expansion | None:
    """Returns the rule for an op of that name, or None if it is not expanded."""
    module = EXPANSIONS.get(name)
    return None if module is None else import_module(f"shlo_jit.passes.expand.{module}").RULES[name]


def expand(function: Op, context: Context) -> Op:
    """The function with every expandable op replaced, including ops that expansions emit. A reproducible product stays
    one, however small it is."""
    for _round in range(ROUNDS):
        changed = False

        def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
            nonlocal changed
            rule = None if context.reproducible and op.name == "stablehlo.dot_general" else expansion(op.name)
            found = None if rule is None else rule(rw, op, operands)
            changed = changed or found is not None
            return found

        if not any(op.name in EXPANSIONS for op in walk(function.block())):
            break
        expanded = rewrite(function, visit)
        if not changed:
            break
        function = expanded
    return function
