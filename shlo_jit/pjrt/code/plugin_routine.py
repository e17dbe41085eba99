"""Machine code of the plugin, as one object: all functions of the interface.

Functions are written in machine code if they run at every call of a program, or if a framework calls them while it
raises an exception or destroys objects, when no Python code may run. The others call Python.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.pool import THREADS
from shlo_jit.pjrt import interface
from shlo_jit.pjrt.code.buffers import write_buffers
from shlo_jit.pjrt.code.executables import write_executables
from shlo_jit.pjrt.code.execute import write_execute
from shlo_jit.pjrt.code.function_writer import symbol, write_records
from shlo_jit.pjrt.code.holds import write_holds
from shlo_jit.pjrt.code.layouts import write_layouts
from shlo_jit.pjrt.code.memory import LIMIT, LOCK, write_memory
from shlo_jit.pjrt.code.objects import READY, write_objects
from shlo_jit.pjrt.code.python import FUNCTIONS, INSIDE, MAIN_THREAD, PYTHON, RAISED, write_python
from shlo_jit.pjrt.code.row_major import LAYOUTS, write_row_major
from shlo_jit.pjrt.code.shapes import write_shapes
from shlo_jit.pjrt.code.transfer import VIEW_ALIGNMENT, write_transfer

OWN = (
    *("shlo_pjrt_error", "shlo_pjrt_take", "shlo_pjrt_give", "shlo_pjrt_lock_memory", "shlo_pjrt_take_dead"),
    *("shlo_pjrt_storage", "shlo_pjrt_drop", "shlo_pjrt_buffer"),
    *("shlo_pjrt_hold", "shlo_pjrt_let_go", "shlo_pjrt_delete"),
    *("shlo_pjrt_user_data", "shlo_pjrt_set_user_data"),
    *(READY.text[1:], LOCK.text[1:], LIMIT.text[1:], VIEW_ALIGNMENT.text[1:], MAIN_THREAD.text[1:]),
    *(FUNCTIONS.text[1:], INSIDE.text[1:], RAISED.text[1:]),
    *("shlo_pjrt_nothing", "shlo_pjrt_nothing_void", "shlo_pjrt_ended", "shlo_pjrt_raise"),
    *(LAYOUTS.text[1:], *map(symbol, ("MemoryLayout_Destroy", "MemoryLayout_Serialize", "Buffer_MemoryLayout"))),
)


def build(module: ModuleText, target: Target) -> None:
    write_records(module)
    write_memory(module, target)
    write_objects(module)
    write_holds(module)
    write_shapes(module)
    write_layouts(module)
    write_buffers(module)
    write_row_major(module)
    write_transfer(module)
    write_executables(module)
    write_execute(module)
    write_python(module)


PLUGIN = Routine("pjrt", (*OWN, *map(symbol, (*interface.FUNCTIONS, *PYTHON))), build, (THREADS,))
