"""Functions of Numba's run time that Numba's code calls, as LLVM text. They allocate memory for arrays, and compute the
strides of a reshaped dense array (for others, Numba raises that a copy is needed). The code itself counts references.

Memory starts with the header that Numba defines: {references, destructor, its argument, data, size, allocator}.
"""

from __future__ import annotations

from collections.abc import Iterable

_FUNCTIONS = {
    "NRT_Allocate": """define internal ptr @NRT_Allocate(i64 %size) {
  %p = call ptr @malloc(i64 %size)
  ret ptr %p
}""",
    "NRT_Free": """define internal void @NRT_Free(ptr %p) {
  call void @free(ptr %p)
  ret void
}""",
    "NRT_MemInfo_alloc_aligned": """define internal ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %wide = zext i32 %align to i64
  %head = add i64 %wide, 48
  %all = add i64 %size, %head
  %wraps = icmp ult i64 %all, %size
  br i1 %wraps, label %none, label %try
try:
  %p = call ptr @malloc(i64 %all)
  %failed = icmp eq ptr %p, null
  br i1 %failed, label %none, label %some
none:
  ret ptr null
some:
  %from = ptrtoint ptr %p to i64
  %end = add i64 %from, %head
  %over = urem i64 %end, %wide
  %at = sub i64 %end, %over
  %data = inttoptr i64 %at to ptr
  store i64 1, ptr %p
  %fields = getelementptr i8, ptr %p, i64 8
  call void @llvm.memset.p0.i64(ptr %fields, i8 0, i64 40, i1 false)
  %place = getelementptr i8, ptr %p, i64 24
  store ptr %data, ptr %place
  %place2 = getelementptr i8, ptr %p, i64 32
  store i64 %size, ptr %place2
  ret ptr %p
}""",
    "NRT_MemInfo_alloc_safe_aligned": """define internal ptr @NRT_MemInfo_alloc_safe_aligned(i64 %size, i32 %align) {
  %p = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align)
  ret ptr %p
}""",
    "NRT_MemInfo_alloc": """define internal ptr @NRT_MemInfo_alloc(i64 %size) {
  %p = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 16)
  ret ptr %p
}""",
    "NRT_MemInfo_alloc_safe": """define internal ptr @NRT_MemInfo_alloc_safe(i64 %size) {
  %p = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 16)
  ret ptr %p
}""",
    "NRT_MemInfo_call_dtor": """define internal void @NRT_MemInfo_call_dtor(ptr %p) {
  %place = getelementptr i8, ptr %p, i64 8
  %destructor = load ptr, ptr %place
  %has = icmp ne ptr %destructor, null
  br i1 %has, label %destroy, label %release
destroy:
  %place1 = getelementptr i8, ptr %p, i64 16
  %place2 = getelementptr i8, ptr %p, i64 24
  %place3 = getelementptr i8, ptr %p, i64 32
  %info = load ptr, ptr %place1
  %data = load ptr, ptr %place2
  %size = load i64, ptr %place3
  call void %destructor(ptr %data, i64 %size, ptr %info)
  br label %release
release:
  call void @free(ptr %p)
  ret void
}""",
    "numba_attempt_nocopy_reshape": """define internal i32 @numba_attempt_nocopy_reshape(
    i64 %nd, ptr %dims, ptr %strides, i64 %newnd, ptr %newdims, ptr %newstrides, i64 %itemsize, i32 %fortran) {
entry:
  %unknown = icmp ne i32 %fortran, 0
  br i1 %unknown, label %copy, label %old
old:
  %d = phi i64 [ %nd, %entry ], [ %e, %dense ]
  %step = phi i64 [ %itemsize, %entry ], [ %around, %dense ]
  %more = icmp sgt i64 %d, 0
  br i1 %more, label %check, label %new
check:
  %e = add i64 %d, -1
  %np = getelementptr i64, ptr %dims, i64 %e
  %sp = getelementptr i64, ptr %strides, i64 %e
  %n = load i64, ptr %np
  %s = load i64, ptr %sp
  %one = icmp eq i64 %n, 1
  %next = icmp eq i64 %s, %step
  %fits = or i1 %one, %next
  br i1 %fits, label %dense, label %copy
dense:
  %around = mul i64 %step, %n
  br label %old
new:
  %k = phi i64 [ %newnd, %old ], [ %l, %write ]
  %stride = phi i64 [ %itemsize, %old ], [ %beyond, %write ]
  %left = icmp sgt i64 %k, 0
  br i1 %left, label %write, label %done
write:
  %l = add i64 %k, -1
  %mp = getelementptr i64, ptr %newdims, i64 %l
  %tp = getelementptr i64, ptr %newstrides, i64 %l
  %m = load i64, ptr %mp
  store i64 %stride, ptr %tp
  %beyond = mul i64 %stride, %m
  br label %new
done:
  ret i32 1
copy:
  ret i32 0
}""",
}
_DECLARED = {
    "malloc": "declare noalias ptr @malloc(i64)",
    "free": "declare void @free(ptr)",
    "llvm.memset.p0.i64": "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}
RUN_TIME = frozenset(_FUNCTIONS)
"""Functions of Numba's run time that code may call."""


def run_time_text(names: Iterable[str]) -> str:
    """Returns a module with the named functions that exist here and everything they call, to be linked with the
    callers."""
    wanted: dict[str, None] = {}
    todo = [name for name in names if name in RUN_TIME]
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted[name] = None
            todo += [other for other in _FUNCTIONS if f"@{other}(" in _FUNCTIONS[name]]
    bodies = "\n".join(_FUNCTIONS[name].replace("define internal", "define linkonce_odr") for name in wanted)
    return "\n".join([*(text for name, text in _DECLARED.items() if f"@{name}(" in bodies), bodies, ""])
