"""Layouts of arrays. All are row-major, so the rank determines the layout: the host gets a record per rank, with a
text.

Hosts request it when they read an array, perhaps while they raise an exception: no Python code may run then.
"""

from __future__ import annotations

from shlo_jit.ir.types import MAX_RANK
from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.llvm_values import V
from shlo_jit.pjrt.code.function_writer import Record, Slot
from shlo_jit.pjrt.host_records import BUFFER, LAYOUT, nbytes

LAYOUTS = V("ptr", "@shlo_pjrt_layouts")
"""One layout for each rank."""


def layout_text(rank: int) -> str:
    """Returns the dimensions from minor to major, as text."""
    return f"{{{','.join(map(str, reversed(range(rank))))}}}"


def write_row_major(module: ModuleText) -> None:
    rows = []
    for rank in range(MAX_RANK + 1):
        text = layout_text(rank)
        escaped = text.replace("{", "\\7B").replace("}", "\\7D")
        module.define_global(f"layout.{rank}", f'internal constant [{len(text)} x i8] c"{escaped}"')
        rows.append(f"{{ ptr, i64 }} {{ ptr @layout.{rank}, i64 {len(text)} }}")
    table = f"constant [{len(rows)} x {{ ptr, i64 }}] [{', '.join(rows)}], align 8"
    module.define_global(LAYOUTS.text[1:], table)
    Slot(module, "MemoryLayout_Destroy").done()

    slot = Slot(module, "MemoryLayout_Serialize")
    layout = Record(slot.b, LAYOUT, slot["layout"])
    slot["serialized_bytes"], slot["serialized_bytes_size"] = layout.pointer("text"), layout["text_size"]
    slot["serialized_layout"], slot["serialized_layout_deleter"] = layout.address, V("ptr", "@shlo_pjrt_nothing_void")
    slot.done()

    slot = Slot(module, "Buffer_MemoryLayout")
    rank = Record(slot.b, BUFFER, slot["buffer"])["rank"]
    slot["layout"] = slot.b.offset(LAYOUTS, slot.b.mul(rank, nbytes(LAYOUT)))
    slot.done()
