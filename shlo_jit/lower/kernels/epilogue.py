"""The epilogue of a product on its tiles, as a function that the product's routine calls."""

from __future__ import annotations

from shlo_jit.ir.core import Value
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.nest.nest import NestLowering, check_supported
from shlo_jit.lower.services import Services
from shlo_jit.schedule.epilogue import Epilogue

NULL = V("ptr", "null")


def write_epilogue(low: Services, epilogue: Epilogue | None) -> tuple[V, V]:
    """The address of the epilogue's function, and the frame to pass to it. Nulls if there is no epilogue, or if it runs
    late."""
    if epilogue is None or epilogue.is_late:
        return NULL, NULL
    b = low.b
    name, values = epilogue_function(low, epilogue)
    frame = b.alloca("ptr", len(values) + low.is_symbolic)
    for i, v in enumerate(values):
        b.store(low.pointer(v), b.element(frame, "ptr", i))
    if low.is_symbolic:
        b.store(low.scope.dims, b.element(frame, "ptr", len(values)))
    return V("ptr", f"@{name}"), frame


def epilogue_function(low: Services, epilogue: Epilogue) -> tuple[str, list[Value]]:
    """The name of the epilogue's function, and the values whose addresses its frame holds."""
    check_supported(epilogue.step.nest)
    nest = epilogue.step.nest
    values = list(dict.fromkeys([*(k[0] for k in nest.loads), *(s.target for s in nest.stores)]))
    hint = f"epilogue_{epilogue.step.hint}"
    name = low.new_name(hint)
    NestLowering(epilogue.schedule).write_epilogue(low.module, name, values, symbolic=low.is_symbolic)
    return low.share(hint, name), values
