"""The epilogue of a product on its tiles, as a function that the product's routine calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from shlo_jit.ir.core import Value
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.services import Services
from shlo_jit.schedule.epilogue import Epilogue
from shlo_jit.schedule.summed_products import Totals

NULL = V("ptr", "null")


def write_epilogue(low: Services, epilogue: Epilogue | None) -> tuple[V, V]:
    """The address of the epilogue's function, and the frame to pass to it. Nulls if there is no epilogue, or if it runs
    late."""
    if epilogue is None or epilogue.is_late:
        return NULL, NULL
    name, values = epilogue_function(low, epilogue)
    return V("ptr", f"@{name}"), frame_of(low, values)


def write_totals(low: Services, totals: Totals, buffer: V) -> tuple[V, V]:
    """Clears the sums over a batch of products. Returns the address of the function that adds to them, and the frame to
    pass to it. `buffer`: the address of one product's results."""
    low.b.memset(low.pointer(totals.total), 0, totals.total.tensor.nbytes)
    name, values = epilogue_function(low, totals.epilogue)
    return V("ptr", f"@{name}"), frame_of(low, values, {totals.buffer: buffer})


def frame_of(low: Services, values: Sequence[Value], own: Mapping[Value, V] = MappingProxyType({})) -> V:
    """Writes the addresses of values to the stack, followed by that of the sizes in a symbolic program. Returns where
    they are. `own`: addresses of values that are not in the program's memory."""
    b = low.b
    frame = b.alloca("ptr", max(1, len(values) + low.is_symbolic))
    for i, v in enumerate(values):
        b.store(own[v] if v in own else low.pointer(v), b.element(frame, "ptr", i))
    if low.is_symbolic:
        b.store(low.scope.dims, b.element(frame, "ptr", len(values)))
    return frame


def epilogue_function(low: Services, epilogue: Epilogue) -> tuple[str, list[Value]]:
    """The name of the epilogue's function, and the values whose addresses its frame holds."""
    nest = epilogue.schedule.nest
    check_supported(nest)
    values = list(dict.fromkeys([*(k[0] for k in nest.loads), *(s.target for s in nest.stores)]))
    hint = f"epilogue_{epilogue.step.hint}"
    name = low.new_name(hint)
    NestLowering(epilogue.schedule).write_epilogue(low.module, name, values, symbolic=low.is_symbolic)
    return low.share(hint, name), values
